//! A peer without a window that says it has got what was never sent, or all there was.

mod wire;

use wire::{ADDRESSES, MACS, Pair, Weather};
use xio::checksum;
use xio::ethernet::{Header, TYPE_IPV4};
use xio::ipv4;
use xio::stack::{TcpId, TcpState};

const SECOND: u64 = 1_000_000;
const SYN: u8 = 2;
const ACK: u8 = 16;
/// The peer's first sequence number.
const FIRST: u32 = 1000;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

/// A segment of the peer's, from port 40000 to port 80, with a window of 0.
fn segment(number: u32, acknowledges: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    let mut tcp = [0; 20].to_vec();
    tcp[0..2].copy_from_slice(&40_000_u16.to_be_bytes());
    tcp[3] = 80;
    tcp[4..8].copy_from_slice(&number.to_be_bytes());
    tcp[8..12].copy_from_slice(&acknowledges.to_be_bytes());
    tcp[12] = 5 << 4;
    tcp[13] = flags;
    tcp.extend_from_slice(bytes);
    let length = (tcp.len() as u16).to_be_bytes();
    let pseudo = [&ADDRESSES[1].octets()[..], &ADDRESSES[0].octets(), &[0, 6], &length].concat();
    let sum = !checksum::sum(&[&pseudo[..], &tcp].concat());
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    let link = Header { destination: MACS[0], source: MACS[1], kind: TYPE_IPV4 };
    let ip = ipv4::Header { source: ADDRESSES[1], destination: ADDRESSES[0], protocol: ipv4::TCP };
    [&link.to_bytes()[..], &ip.to_bytes(tcp.len() as u16), &tcp].concat()
}

/// The server's station, and a peer that is written by hand.
struct Server {
    pair: Pair,
    accepted: TcpId,
    /// The number of the server's first byte.
    begins: u32,
}

impl Server {
    /// With a connection that has asked for something.
    fn new() -> Server {
        let mut pair = Pair::new(1, Weather::default());
        let listener = pair.stack(0).tcp_listen(80, 4).unwrap();
        let syn = take(&mut pair, Some(segment(FIRST, 0, SYN, b""))).pop().unwrap();
        let begins = u32::from_be_bytes(syn[38..42].try_into().unwrap()) + 1;
        take(&mut pair, Some(segment(FIRST + 1, begins, ACK, REQUEST)));
        let accepted = pair.stack(0).tcp_accept(listener).unwrap();
        let mut request = [0; REQUEST.len()];
        assert_eq!(pair.stack(0).tcp_receive(accepted, &mut request), Ok(REQUEST.len()));
        Server { pair, accepted, begins }
    }

    /// The peer acknowledges so many of the server's bytes; what is answered.
    fn acknowledge(&mut self, bytes: u32) -> Vec<Vec<u8>> {
        let number = FIRST + 1 + REQUEST.len() as u32;
        take(&mut self.pair, Some(segment(number, self.begins + bytes, ACK, b"")))
    }

    /// Goes on for so long; what is sent, and how often the stack wanted to be polled.
    fn until(&mut self, end_us: u64) -> (Vec<Vec<u8>>, usize) {
        let (mut sent, mut polls) = (Vec::new(), 0);
        while self.pair.now_us < end_us && polls < 10_000 {
            let due = self.pair.stack(0).next_deadline().unwrap_or(end_us);
            // A poll takes some time.
            self.pair.now_us = due.max(self.pair.now_us + 100);
            sent.append(&mut take(&mut self.pair, None));
            polls += 1;
        }
        (sent, polls)
    }
}

/// One poll of the first station, with room for every packet; what it sends.
fn take(pair: &mut Pair, frame: Option<Vec<u8>>) -> Vec<Vec<u8>> {
    let now_us = pair.now_us;
    let station = &mut pair.stations[0];
    station.port.arrived.extend(frame);
    station.port.room = usize::MAX;
    let (mut rx, mut tx) = station.port.halves();
    station.stack.poll(now_us, &mut rx, &mut tx, &|_| Some(MACS[1]));
    station.port.leaving.drain(..).collect()
}

fn bytes_of(frame: &[u8]) -> usize {
    let length = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    length - 20 - usize::from(frame[46] >> 4) * 4
}

/// Who acknowledges what was never sent is told what was, and nothing changes by it.
#[test]
fn what_was_never_sent_is_not_acknowledged() {
    for closes in [false, true] {
        let mut server = Server::new();
        assert_eq!(server.pair.stack(0).tcp_send(server.accepted, &[7; 1000]), Ok(1000));
        if closes {
            server.pair.stack(0).tcp_shutdown(server.accepted).unwrap();
        }
        // Perhaps a first byte to find out whether there is a window.
        let probes = take(&mut server.pair, None);
        assert!(probes.iter().map(|probe| bytes_of(probe)).sum::<usize>() <= 1);
        server.pair.now_us += SECOND / 10;
        let before = server.pair.stack(0).tcp_state(server.accepted);
        let answers = server.acknowledge(1000 + u32::from(closes));
        assert_eq!(answers.len(), 1, "closes {closes}");
        assert_eq!((bytes_of(&answers[0]), answers[0][47]), (0, ACK));
        assert_eq!(server.pair.stack(0).tcp_state(server.accepted), before);
        let room = server.pair.stack(0).tcp_room(server.accepted);
        assert_eq!(room, if closes { 0 } else { (64 << 10) - 1000 });
        let (sent, polls) = server.until(SECOND * 64);
        assert!(sent.len() < 20 && polls < 40, "closes {closes}: {} in {polls}", sent.len());
    }
}

/// A peer may have got all there is, and have no window: then nothing is left to ask it.
#[test]
fn who_has_got_all_is_left_in_peace() {
    for orphan in [false, true] {
        let mut server = Server::new();
        assert_eq!(server.pair.stack(0).tcp_send(server.accepted, b"."), Ok(1));
        let stack = server.pair.stack(0);
        if orphan {
            stack.tcp_close(server.accepted).unwrap();
        } else {
            stack.tcp_shutdown(server.accepted).unwrap();
        }
        // The byte that finds out whether there is a window, with the end of the stream.
        let (probe, _) = server.until(SECOND * 4);
        assert_eq!((bytes_of(&probe[0]), probe[0][47] & 1), (1, 1));
        server.acknowledge(2);
        if !orphan {
            let state = server.pair.stack(0).tcp_state(server.accepted);
            assert_eq!(state, Some(TcpState::FinWait2));
        }
        let end = server.pair.now_us + 60 * SECOND;
        let (sent, polls) = server.until(end);
        assert!(sent.len() <= 64 && polls <= 140, "orphan {orphan}: {} in {polls}", sent.len());
    }
}
