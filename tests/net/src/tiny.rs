//! Another TCP than the library's, of the smallest kind: one connection at a time, one segment.
//!
//! It shows that TCP is each program's own affair (appnet 1): this one runs beside Cheetah's on the
//! same interface, and neither the kernel nor the other program knows. It answers whoever connects
//! with one line, ends its stream in the same segment, and repeats what is not acknowledged.

use xio::checksum;
use xio::ethernet::{self, Mac};
use xio::filter::Filter;
use xio::ipv4::{self, Network};
use xio::stack::Receive;
use xnet::Port;
use xok::{call, clock};

use crate::control::nap;
use crate::servers::LISTENS;

/// Index of the capability over the network interface.
const NETWORK: u8 = 1;
/// What it says.
const LINE: &[u8] = b"another TCP\n";
/// Nanoseconds after which a segment is sent again.
const REPEAT_NS: u64 = 300_000_000;
/// Times it is sent at most.
const TIMES: u32 = 8;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Bytes of the headers before a segment's payload.
const HEADERS: usize = ethernet::HEADER + ipv4::HEADER + 20;

/// The one connection.
struct Connection {
    mac: Mac,
    peer: (core::net::Ipv4Addr, u16),
    /// Our next number, and the peer's.
    own: u32,
    theirs: u32,
    /// What is not acknowledged: flags and payload, how often it was sent, and when again.
    last: Option<(u8, &'static [u8])>,
    times: u32,
    again_ns: u64,
}

/// A segment that has come.
struct Segment {
    mac: Mac,
    peer: (core::net::Ipv4Addr, u16),
    number: u32,
    acknowledges: u32,
    flags: u8,
    length: u32,
}

struct Tiny {
    port: Port,
    network: Network,
    number: u16,
    connection: Option<Connection>,
}

/// Serves at `number`.
pub fn serve(number: u16) -> ! {
    let (Some(network), Ok(port)) = (xnet::settings::network(), Port::open(NETWORK, 0)) else {
        call::exit(1 << 8)
    };
    let local = core::net::SocketAddrV4::new(network.address, number);
    if port.claim(&Filter::tcp_listen(local)).is_err() {
        call::exit(2 << 8);
    }
    xok::upcall::set_mask(true);
    xnet::own_page()[LISTENS].store(u64::from(number), core::sync::atomic::Ordering::Release);
    let mut tiny = Tiny { port, network, number, connection: None };
    loop {
        while let Some(frame) = tiny.port.ring.peek() {
            let segment = read(frame);
            tiny.port.ring.release();
            if let Some(segment) = segment {
                tiny.take(&segment);
            }
        }
        tiny.repeat();
        nap(50_000_000);
    }
}

/// Checks a frame's sums and takes its segment apart.
fn read(frame: &[u8]) -> Option<Segment> {
    let (link, packet) = ethernet::Header::split(frame)?;
    let (ip, tcp) = ipv4::Header::split(packet).ok()?;
    if checksum::combine(pseudo(&ip, tcp.len()), checksum::sum(tcp)) != 0xffff || tcp.len() < 20 {
        return None;
    }
    let short = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    let long = |at: usize| u32::from(short(at)) << 16 | u32::from(short(at + 2));
    let header = usize::from(tcp[12] >> 4) * 4;
    Some(Segment {
        mac: link.source,
        peer: (ip.source, short(0)),
        number: long(4),
        acknowledges: long(8),
        flags: tcp[13],
        length: tcp.len().checked_sub(header)? as u32,
    })
}

fn pseudo(ip: &ipv4::Header, length: usize) -> u16 {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&ip.source.octets());
    bytes[4..8].copy_from_slice(&ip.destination.octets());
    bytes[9] = ip.protocol;
    bytes[10..].copy_from_slice(&(length as u16).to_be_bytes());
    checksum::sum(&bytes)
}

impl Tiny {
    fn take(&mut self, segment: &Segment) {
        if segment.flags & RST != 0 {
            self.connection = None;
            return;
        }
        let known = self.connection.as_ref().is_some_and(|known| known.peer == segment.peer);
        if segment.flags & SYN != 0 && !known {
            self.connection = Some(Connection {
                mac: segment.mac,
                peer: segment.peer,
                own: clock::tsc() as u32,
                theirs: segment.number.wrapping_add(1),
                last: Some((SYN | ACK, b"")),
                times: 0,
                again_ns: 0,
            });
            return self.repeat();
        }
        let Some(connection) = self.connection.as_mut().filter(|_| known) else { return };
        let ends = u32::from(segment.flags & FIN != 0);
        if segment.number == connection.theirs && segment.length + ends > 0 {
            connection.theirs = connection.theirs.wrapping_add(segment.length + ends);
        }
        let waits = connection.last.map(|(flags, bytes)| {
            (flags, bytes.len() as u32 + u32::from(flags & (SYN | FIN) != 0))
        });
        match waits {
            Some((flags, length))
                if segment.acknowledges == connection.own.wrapping_add(length) =>
            {
                connection.own = segment.acknowledges;
                connection.last = (flags & SYN != 0).then_some((FIN | ACK, LINE));
                connection.times = 0;
                connection.again_ns = 0;
            }
            _ => {}
        }
        if segment.length + ends > 0 {
            self.send(ACK, b"");
        }
        self.repeat();
    }

    /// Sends what is not acknowledged, if it is time.
    fn repeat(&mut self) {
        let now = clock::now_ns();
        let Some(connection) = self.connection.as_mut() else { return };
        let Some((flags, bytes)) = connection.last else { return };
        if connection.again_ns > now {
            return;
        }
        if connection.times == TIMES {
            self.connection = None;
            return;
        }
        connection.times += 1;
        connection.again_ns = now + REPEAT_NS;
        self.send(flags, bytes);
    }

    fn send(&mut self, flags: u8, bytes: &[u8]) {
        let Some(connection) = &self.connection else { return };
        let length = 20 + bytes.len();
        let link = ethernet::Header {
            destination: connection.mac,
            source: self.port.mac,
            kind: ethernet::TYPE_IPV4,
        };
        let ip = ipv4::Header {
            source: self.network.address,
            destination: connection.peer.0,
            protocol: ipv4::TCP,
        };
        let mut frame = [0; HEADERS + LINE.len()];
        frame[..14].copy_from_slice(&link.to_bytes());
        frame[14..34].copy_from_slice(&ip.to_bytes(length as u16));
        let tcp = &mut frame[34..34 + length];
        tcp[..2].copy_from_slice(&self.number.to_be_bytes());
        tcp[2..4].copy_from_slice(&connection.peer.1.to_be_bytes());
        tcp[4..8].copy_from_slice(&connection.own.to_be_bytes());
        tcp[8..12].copy_from_slice(&connection.theirs.to_be_bytes());
        tcp[12] = 5 << 4;
        tcp[13] = flags;
        tcp[14..16].copy_from_slice(&1000_u16.to_be_bytes());
        tcp[20..].copy_from_slice(bytes);
        let sum = !checksum::combine(pseudo(&ip, length), checksum::sum(tcp));
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        // Lost if the queue is full: it is sent again.
        self.port.transmitter.send(&frame[..34 + length]);
    }
}
