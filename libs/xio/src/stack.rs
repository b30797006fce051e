//! One station's IPv4, TCP and UDP, over a link given at each call, at times given at each call.
//!
//! The owner calls [`Stack::poll`] when frames have arrived, when it has queued something to send,
//! and at the latest at [`Stack::next_deadline`]; nothing happens in between. Frames are
//! Ethernet's: headers are added and stripped here, and a next hop whose link address the caller's
//! [`Neighbours`] don't know is surfaced by [`Stack::unresolved`] while its packet waits.
//!
//! The TCP engine is smoltcp's; none of its types is seen outside. Ours are the checks before it,
//! listening (a connection costs nothing before its SYN), TIME-WAIT, time-outs and failures.

mod device;
mod egress;
mod ingress;
mod link;
mod sent;
mod slab;
mod tcp;
mod time_wait;
mod udp;

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use smoltcp::iface::{Config as InterfaceConfig, Interface, PollResult, SocketSet};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr};

use crate::ethernet::{self, Mac};
use crate::ipv4::Network;
use device::{Adapter, Nowhere};
use egress::Path;
use ingress::{Drop, Pass};

pub use link::{Neighbours, Receive, Transmit};
pub use tcp::{ListenerId, TcpId, TcpState};
pub use time_wait::{TIME_WAIT_MAX, TIME_WAIT_US};
pub use udp::UdpId;

/// Frames taken in by one poll.
pub const FRAMES_PER_POLL: usize = 64;
/// Rounds of one packet a connection that one poll sends at most.
const ROUNDS_PER_POLL: usize = 64;

/// Bytes that a TCP connection holds at most that were not yet read: the window of a handshake,
/// which is never scaled, says no more (RFC 7323 §2.2), and the engine takes it for scaled.
pub const RECEIVE_MAX: usize = u16::MAX as usize;

/// Where and how large a stack is.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Its address, network and router.
    pub network: Network,
    /// Its link address.
    pub mac: Mac,
    /// For first sequence numbers; should be random.
    pub seed: u64,
    /// Bytes a TCP connection holds that were received and not yet read, up to `RECEIVE_MAX`.
    pub receive_bytes: usize,
    /// Bytes a TCP connection holds that were written and not yet acknowledged.
    pub send_bytes: usize,
    /// TCP connections at one time, those in TIME-WAIT not counted.
    pub connections: usize,
    /// Microseconds without progress after which a connection is given up (RFC 9293 §3.8.3, R2).
    pub patience_us: u64,
}

impl Config {
    /// The usual sizes.
    pub fn new(network: Network, mac: Mac, seed: u64) -> Config {
        Config {
            network,
            mac,
            seed,
            receive_bytes: 16 << 10,
            send_bytes: 64 << 10,
            connections: 256,
            patience_us: 600_000_000,
        }
    }
}

/// Why an operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Not now: nothing to read, no room to write.
    WouldBlock,
    /// The name names nothing (any more).
    NoSuchSocket,
    /// Another socket of this stack has the port.
    PortTaken,
    /// An address or port that can't be used so.
    BadAddress,
    /// No room, or no memory, for one more.
    TooMany,
    /// The connection isn't in a state that allows it.
    NotConnected,
    /// The datagram is larger than a packet can carry.
    TooLarge,
    /// The peer refused the connection.
    Refused,
    /// The peer ended the connection in the middle.
    Reset,
    /// The peer didn't answer in time.
    TimedOut,
}

/// What a stack has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames taken from the link.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Dropped: too short for their headers, or too long.
    pub bad_size: u64,
    /// Dropped: to another station, or not IPv4.
    pub not_ours: u64,
    /// Dropped: headers that can't be.
    pub malformed: u64,
    /// Dropped: the sum of the IP header or the TCP segment was wrong.
    pub bad_checksum: u64,
    /// Dropped: fragments.
    pub fragments: u64,
    /// Dropped: from a source that can't be.
    pub spoofed: u64,
    /// SYNs dropped because the listener's queue or the table was full, or for want of memory.
    pub backlog_full: u64,
    /// Packets given up because too many waited for room on the link, or there was no memory for
    /// them to wait in (TCP sends them again).
    pub link_full: u64,
    /// Packets given up because the link address was not known, or there was no memory for them to
    /// wait for it in.
    pub unresolved: u64,
    /// Packets given up because there is no way to their destination.
    pub no_route: u64,
}

/// A station.
pub struct Stack {
    config: Config,
    interface: Interface,
    /// Those of UDP; each of TCP's is in a set of its own.
    sockets: SocketSet<'static>,
    path: Path,
    counters: Counters,
    tcp: tcp::Tables,
    udp: udp::Tables,
    /// The time of the last poll.
    now_us: u64,
    /// Work was left over by the last poll.
    more: bool,
}

impl Stack {
    /// A stack with nothing open.
    pub fn new(config: Config) -> Stack {
        let receive_bytes = config.receive_bytes.min(RECEIVE_MAX);
        let config = Config { receive_bytes, ..config };
        let mut engine = InterfaceConfig::new(HardwareAddress::Ip);
        engine.random_seed = config.seed;
        let mut interface = Interface::new(engine, &mut Nowhere, Instant::ZERO);
        let Network { address, prefix, gateway } = config.network;
        interface.update_ip_addrs(|addresses| {
            // The engine holds two addresses and was just made, so there is room.
            let _ = addresses.push(IpCidr::new(address.into(), prefix));
            let _ = addresses.push(IpCidr::new(Ipv4Addr::LOCALHOST.into(), 8));
        });
        if let Some(gateway) = gateway {
            // As above.
            let _ = interface.routes_mut().add_default_ipv4_route(gateway);
        }
        Stack {
            config,
            interface,
            sockets: SocketSet::new(Vec::new()),
            path: Path::new(config.network, config.mac),
            counters: Counters::default(),
            tcp: tcp::Tables::new(config.connections),
            udp: udp::Tables::new(),
            now_us: 0,
            more: false,
        }
    }

    /// Takes in frames that have arrived, and sends what is due.
    ///
    /// `now_us` is microseconds on any clock that doesn't go back.
    pub fn poll(
        &mut self,
        now_us: u64,
        rx: &mut impl Receive,
        tx: &mut impl Transmit,
        neighbours: &impl Neighbours,
    ) {
        self.take_in(now_us, rx, tx, neighbours);
        self.work(tx, neighbours);
    }

    /// Takes in frames that have arrived; what is due for them is sent by `flush`, which must
    /// follow before anything else is asked of the stack but to queue bytes.
    pub fn take_in(
        &mut self,
        now_us: u64,
        rx: &mut impl Receive,
        tx: &mut impl Transmit,
        neighbours: &impl Neighbours,
    ) {
        self.now_us = self.now_us.max(now_us);
        self.more = false;
        self.path.flush(self.now_us, tx, neighbours, &mut self.counters);
        self.wake_connections();
        for taken in 0.. {
            let Some(frame) = rx.peek() else { break };
            if taken == FRAMES_PER_POLL {
                self.more = true;
                break;
            }
            self.take(frame, tx, neighbours);
            rx.release();
        }
    }

    /// Has a time passed at which `poll` has something to do? Later calls count it as now.
    pub fn is_due(&mut self, now_us: u64) -> bool {
        self.now_us = self.now_us.max(now_us);
        let due = [self.path.next_deadline(), self.tcp.due_us()].into_iter().flatten().min();
        self.more || self.path.is_full() || due.is_some_and(|due| due <= self.now_us)
    }

    /// Sends what was queued since the last poll, without taking anything in: after it, and unless
    /// new frames arrive, no connection has become ready for anything.
    pub fn flush(&mut self, tx: &mut impl Transmit, neighbours: &impl Neighbours) {
        self.path.flush(self.now_us, tx, neighbours, &mut self.counters);
        self.work(tx, neighbours);
    }

    fn work(&mut self, tx: &mut impl Transmit, neighbours: &impl Neighbours) {
        self.send(tx, neighbours);
        self.tend_connections();
        // What tending queued (resets) goes out at once.
        if self.tcp.any_busy() {
            self.send(tx, neighbours);
            self.tend_connections();
        }
    }

    /// When `poll` should be called next, at the latest; `None`: when a frame arrives.
    ///
    /// A time that has passed means: as soon as the link has room.
    pub fn next_deadline(&mut self) -> Option<u64> {
        if self.more || self.path.is_full() {
            return Some(self.now_us);
        }
        let datagrams = self.udp.queued.then_some(self.now_us);
        [datagrams, self.path.next_deadline(), self.tcp_deadline()].into_iter().flatten().min()
    }

    /// Stations whose link addresses should be found out; packets wait for them.
    pub fn unresolved(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.path.unresolved()
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The station's place in the network.
    pub fn network(&self) -> Network {
        self.config.network
    }

    /// What a station that nobody listens at would answer a frame of ours that nobody took, if the
    /// frame went to this very station: a reset, to be taken in as if it had arrived.
    pub fn refusal(&self, frame: &[u8]) -> Option<Vec<u8>> {
        match ingress::judge(frame, self.config.mac, &self.config.network) {
            Ok(Pass::Tcp(segment)) if !segment.resets() => {
                let link = ethernet::Header {
                    destination: self.config.mac,
                    source: self.config.mac,
                    kind: ethernet::TYPE_IPV4,
                };
                Some([&link.to_bytes()[..], &tcp::reset(&segment)].concat())
            }
            _ => None,
        }
    }

    fn take(&mut self, frame: &[u8], tx: &mut impl Transmit, neighbours: &impl Neighbours) {
        self.counters.received += 1;
        let pass = match ingress::judge(frame, self.config.mac, &self.config.network) {
            Ok(pass) => pass,
            Err(drop) => return self.count(drop),
        };
        if let Pass::Tcp(segment) = pass {
            if self.tcp_waits(&segment, tx, neighbours) {
                return;
            }
            if segment.opens() && !self.tcp_opens(&segment) {
                self.counters.backlog_full += 1;
                return;
            }
        }
        let asks = match &pass {
            Pass::Tcp(segment) => self.tcp_asks(segment),
            Pass::Other => None,
        };
        let now = instant(self.now_us);
        let mut device = Adapter {
            packet: asks.as_ref().map(<[u8; 40]>::as_slice).or(frame.get(ethernet::HEADER..)),
            now_us: self.now_us,
            tx,
            neighbours,
            path: &mut self.path,
            counters: &mut self.counters,
        };
        let own = match &pass {
            Pass::Tcp(segment) => self.tcp.taker(segment),
            Pass::Other => None,
        };
        // A segment that is nobody's is answered there.
        let sockets = own.unwrap_or(&mut self.sockets);
        self.interface.poll_ingress_single(now, &mut device, sockets);
        if let Pass::Tcp(segment) = pass
            && segment.opens()
        {
            self.tcp_opened();
        }
    }

    fn send(&mut self, tx: &mut impl Transmit, neighbours: &impl Neighbours) {
        let now = instant(self.now_us);
        let mut device = Adapter {
            packet: None,
            now_us: self.now_us,
            tx,
            neighbours,
            path: &mut self.path,
            counters: &mut self.counters,
        };
        self.tcp.begin_sending();
        for _ in 0..ROUNDS_PER_POLL {
            let idle = !self.udp.queued && !self.tcp.is_sending();
            if idle || device.path.is_full() || device.tx.buffer().is_none() {
                break;
            }
            let mut sends = |sockets: &mut SocketSet<'static>| {
                self.interface.poll_egress(now, &mut device, sockets) != PollResult::None
                    && device.path.carried
            };
            self.udp.queued = self.udp.queued && sends(&mut self.sockets);
            self.tcp.send_round(self.now_us, sends);
        }
    }

    fn count(&mut self, drop: Drop) {
        let counters = &mut self.counters;
        let counter = match drop {
            Drop::Size => &mut counters.bad_size,
            Drop::NotOurs => &mut counters.not_ours,
            Drop::Malformed => &mut counters.malformed,
            Drop::Checksum => &mut counters.bad_checksum,
            Drop::Fragment => &mut counters.fragments,
            Drop::Spoofed => &mut counters.spoofed,
        };
        *counter += 1;
    }
}

fn instant(us: u64) -> Instant {
    Instant::from_micros(i64::try_from(us).unwrap_or(i64::MAX))
}
