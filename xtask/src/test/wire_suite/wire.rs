//! The wire: datagrams that are frames, our station at its end, and the weather between.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use xio::arp::{Outcome, Resolver, Table, Writer};
use xio::ethernet::{FRAME_MAX, Header, Mac, TYPE_ARP};
use xio::ipv4::Network;
use xio::stack::{Config, Receive, Stack, Transmit};

/// Our address.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
/// The guest's.
pub const GUEST: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
/// Our link address.
pub const MAC: Mac = Mac([0x52, 0x54, 0, 0x77, 0, 1]);
/// How long the guest may take to answer a frame.
const ANSWER: Duration = Duration::from_millis(30);
/// Microseconds by which a delayed frame is late, at most.
const LATE_US: u64 = 20_000;

/// A small generator (xorshift64*), so that a failure is one number.
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// What happens to frames, in percent.
#[derive(Clone, Copy, Default)]
pub struct Weather {
    pub loss: u64,
    pub repeat: u64,
    pub delay: u64,
}

/// Frames for the stack, and from it.
struct Queues {
    arrived: VecDeque<Vec<u8>>,
    leaving: Vec<Vec<u8>>,
    buffer: Vec<u8>,
}

struct Arrived<'a>(&'a mut VecDeque<Vec<u8>>);
struct Leaving<'a>(&'a mut Vec<Vec<u8>>, &'a mut Vec<u8>);

impl Receive for Arrived<'_> {
    fn peek(&mut self) -> Option<&[u8]> {
        self.0.front().map(Vec::as_slice)
    }

    fn release(&mut self) {
        self.0.pop_front();
    }
}

impl Transmit for Leaving<'_> {
    fn buffer(&mut self) -> Option<&mut [u8]> {
        Some(self.1)
    }

    fn commit(&mut self, length: usize) {
        self.0.push(self.1[..length].to_vec());
    }
}

/// The wire, with our station at this end of it.
pub struct Wire {
    /// Our port, and QEMU's.
    pub here: u16,
    pub there: u16,
    /// Our station.
    pub stack: Stack,
    socket: UdpSocket,
    addresses: Resolver<'static>,
    queues: Queues,
    begin: Instant,
    random: Random,
    weather: Weather,
    /// Frames under way, by time and number: to the guest, or to us.
    flying: BTreeMap<(u64, u64), (bool, Vec<u8>)>,
    number: u64,
    lost: u64,
    port: u16,
    /// Frames that came since `watch`, requests for link addresses left out.
    watched: Vec<Vec<u8>>,
}

impl Wire {
    /// A wire between two free ports.
    pub fn new() -> std::io::Result<Wire> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        // QEMU binds it in a moment; it was free just now.
        let there = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
        socket.connect(("127.0.0.1", there))?;
        socket.set_nonblocking(true)?;
        let network = Network { address: HOST, prefix: 24, gateway: None };
        // Lives as long as the program: a few kilobytes for each machine.
        let words: &'static [AtomicU64] =
            Vec::leak((0..512).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let table: Writer<'static> = Table::over(words).create();
        Ok(Wire {
            here: socket.local_addr()?.port(),
            there,
            stack: Stack::new(Config::new(network, MAC, 1)),
            socket,
            addresses: Resolver::new(network, MAC, table),
            queues: Queues {
                arrived: VecDeque::new(),
                leaving: Vec::new(),
                buffer: vec![0; FRAME_MAX],
            },
            begin: Instant::now(),
            random: Random::new(1),
            weather: Weather::default(),
            flying: BTreeMap::new(),
            number: 0,
            lost: 0,
            port: 20_000,
            watched: Vec::new(),
        })
    }

    /// Changes the weather.
    pub fn set_weather(&mut self, seed: u64, weather: Weather) {
        self.random = Random::new(seed);
        self.weather = weather;
        self.lost = 0;
    }

    /// What the weather did.
    pub fn weather_report(&self) -> String {
        format!("{} frames lost", self.lost)
    }

    /// A port not used before.
    pub fn next_port(&mut self) -> u16 {
        self.port += 1;
        self.port
    }

    /// The guest's link address.
    pub fn guest_mac(&self) -> Result<Mac, String> {
        self.addresses.table().get(GUEST).map(|entry| entry.mac).ok_or("no link address".into())
    }

    /// Puts a frame on the wire as it is; one without bytes would end the wire for QEMU.
    pub fn put(&mut self, frame: &[u8]) {
        if !frame.is_empty() {
            // A full socket is one more way to lose it.
            let _ = self.socket.send(frame);
        }
    }

    /// From now on keeps what comes.
    pub fn watch(&mut self) {
        self.watched.clear();
    }

    /// What came since.
    pub fn watched(&self) -> &[Vec<u8>] {
        &self.watched
    }

    /// Works until the guest has had time to answer.
    pub fn settle(&mut self) {
        self.run(ANSWER, |_| None::<()>);
    }

    /// Works a moment, so that no queue overflows.
    pub fn rest(&mut self) {
        self.run(Duration::from_millis(1), |_| None::<()>);
    }

    /// Works until `done` answers something, at most so long.
    pub fn run<T>(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let end = Instant::now() + limit;
        loop {
            self.work();
            if let Some(answer) = done(self) {
                // What that queued leaves at once.
                self.work();
                return Some(answer);
            }
            if Instant::now() > end {
                return None;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Sends a datagram to a port of the guest.
    pub fn send_datagram(&mut self, port: u16, bytes: &[u8]) -> Result<(), String> {
        let from = self.next_port();
        let id = self.stack.udp_bind(from).map_err(|why| format!("{why:?}"))?;
        let to = SocketAddrV4::new(GUEST, port);
        self.stack.udp_send(id, bytes, to).map_err(|why| format!("{why:?}"))?;
        self.settle();
        self.stack.udp_close(id).map_err(|why| format!("{why:?}"))
    }

    fn work(&mut self) {
        let now_us = self.begin.elapsed().as_micros() as u64;
        let mut datagram = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut datagram) {
            self.launch(false, datagram[..length].to_vec(), now_us);
        }
        self.land(now_us);
        let mut tx = Leaving(&mut self.queues.leaving, &mut self.queues.buffer);
        let mut rx = Arrived(&mut self.queues.arrived);
        let table = self.addresses.table().reader();
        self.stack.poll(now_us, &mut rx, &mut tx, &table);
        let unresolved: Vec<_> = self.stack.unresolved().collect();
        for address in unresolved {
            self.addresses.want(address, address.to_bits().into(), now_us);
        }
        while let Some(request) = self.addresses.poll(now_us) {
            self.put(&request);
        }
        for frame in std::mem::take(&mut self.queues.leaving) {
            self.launch(true, frame, now_us);
        }
        self.land(now_us);
    }

    /// Lets a frame fly, if the weather allows.
    fn launch(&mut self, to_guest: bool, frame: Vec<u8>, now_us: u64) {
        if self.random.below(100) < self.weather.loss {
            self.lost += 1;
            return;
        }
        let copies = 1 + u64::from(self.random.below(100) < self.weather.repeat);
        for _ in 0..copies {
            let late = self.random.below(100) < self.weather.delay;
            let delay = if late { self.random.below(LATE_US) } else { 0 };
            self.number += 1;
            self.flying.insert((now_us + delay, self.number), (to_guest, frame.clone()));
        }
    }

    /// Delivers what has flown long enough.
    fn land(&mut self, now_us: u64) {
        while let Some(entry) = self.flying.first_entry() {
            if entry.key().0 > now_us {
                return;
            }
            let (to_guest, frame) = entry.remove();
            if to_guest {
                self.put(&frame);
                continue;
            }
            if Header::split(&frame).is_some_and(|(link, _)| link.kind == TYPE_ARP) {
                match self.addresses.handle(&frame, now_us) {
                    Outcome::Reply(reply) => self.put(&reply),
                    // A request of the guest's for others is no answer to anything.
                    Outcome::Learned | Outcome::Refused(_) => {}
                }
                continue;
            }
            self.watched.push(frame.clone());
            self.queues.arrived.push_back(frame);
        }
    }
}
