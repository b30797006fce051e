//! A wire in memory that loses, repeats and reorders what a seed tells it to.
#![allow(dead_code)] // Each test file uses its part of it.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use xio::ethernet::{FRAME_MAX, Mac};
use xio::ipv4::Network;
use xio::stack::{Config, Receive, Stack, Transmit};

/// A small generator (xorshift64*), so that a failure is one number.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// One station's end of the wire: frames that arrived, frames to go.
pub struct Port {
    pub arrived: VecDeque<Vec<u8>>,
    pub leaving: VecDeque<Vec<u8>>,
    buffer: Box<[u8; FRAME_MAX]>,
    /// Frames that `leaving` holds at most.
    pub room: usize,
}

pub struct Rx<'a>(&'a mut VecDeque<Vec<u8>>);
pub struct Tx<'a>(&'a mut VecDeque<Vec<u8>>, &'a mut [u8; FRAME_MAX], usize);

impl Port {
    pub fn new() -> Port {
        let buffer = Box::new([0; FRAME_MAX]);
        Port { arrived: VecDeque::new(), leaving: VecDeque::new(), buffer, room: 8 }
    }

    pub fn halves(&mut self) -> (Rx<'_>, Tx<'_>) {
        (Rx(&mut self.arrived), Tx(&mut self.leaving, &mut self.buffer, self.room))
    }
}

impl Receive for Rx<'_> {
    fn peek(&mut self) -> Option<&[u8]> {
        self.0.front().map(Vec::as_slice)
    }

    fn release(&mut self) {
        self.0.pop_front();
    }
}

impl Transmit for Tx<'_> {
    fn buffer(&mut self) -> Option<&mut [u8]> {
        (self.0.len() < self.2).then_some(&mut self.1[..])
    }

    fn commit(&mut self, length: usize) {
        self.0.push_back(self.1[..length].to_vec());
    }
}

/// What the wire does to frames, in percent.
#[derive(Clone, Copy, Default)]
pub struct Weather {
    pub loss: u64,
    pub repeat: u64,
    pub delay: u64,
}

pub struct Station {
    pub stack: Stack,
    pub port: Port,
    pub neighbours: BTreeMap<Ipv4Addr, Mac>,
}

/// Two stations and the wire between them.
pub struct Pair {
    pub now_us: u64,
    pub random: Random,
    pub weather: Weather,
    pub stations: [Station; 2],
    /// Frames on the wire: when they arrive, an order among equals, to whom.
    flying: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    order: u64,
    /// Sees every frame as it leaves; answers whether it may fly.
    pub guard: Option<fn(&[u8]) -> bool>,
}

pub const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];

pub fn config(which: usize) -> Config {
    let network = Network { address: ADDRESSES[which], prefix: 24, gateway: None };
    Config::new(network, MACS[which], 0x1234_5678 + which as u64)
}

impl Pair {
    pub fn new(seed: u64, weather: Weather) -> Pair {
        Pair::with(seed, weather, [config(0), config(1)])
    }

    pub fn with(seed: u64, weather: Weather, configs: [Config; 2]) -> Pair {
        let known: BTreeMap<_, _> = ADDRESSES.into_iter().zip(MACS).collect();
        let stations = configs.map(|config| Station {
            stack: Stack::new(config),
            port: Port::new(),
            neighbours: known.clone(),
        });
        Pair {
            now_us: 1_000_000,
            random: Random::new(seed),
            weather,
            stations,
            flying: BTreeMap::new(),
            order: 0,
            guard: None,
        }
    }

    /// Lets both stations work now, and puts what they send on the wire.
    pub fn work(&mut self) {
        for which in 0..2 {
            loop {
                let station = &mut self.stations[which];
                let neighbours = &station.neighbours;
                let lookup = |address: Ipv4Addr| neighbours.get(&address).copied();
                let (mut rx, mut tx) = station.port.halves();
                station.stack.poll(self.now_us, &mut rx, &mut tx, &lookup);
                if station.port.leaving.is_empty() {
                    break;
                }
                let frames: Vec<_> = station.port.leaving.drain(..).collect();
                for frame in frames {
                    self.launch(1 - which, frame);
                }
            }
        }
    }

    pub fn launch(&mut self, to: usize, frame: Vec<u8>) {
        if self.guard.is_some_and(|guard| !guard(&frame)) || self.random.chance(self.weather.loss) {
            return;
        }
        let copies = if self.random.chance(self.weather.repeat) { 2 } else { 1 };
        for _ in 0..copies {
            let late = self.random.chance(self.weather.delay);
            let delay = if late { 200 + self.random.below(20_000) } else { 200 };
            self.order += 1;
            self.flying.insert((self.now_us + delay, self.order), (to, frame.clone()));
        }
    }

    /// Goes on to the next time at which something happens; `false`: nothing ever will.
    pub fn advance(&mut self) -> bool {
        self.work();
        let mut next = self.flying.keys().next().map(|(at, _)| *at);
        for station in &mut self.stations {
            let due = station.stack.next_deadline().map(|at| at.max(self.now_us + 1));
            next = [next, due].into_iter().flatten().min();
        }
        let Some(next) = next else { return false };
        self.now_us = next.max(self.now_us);
        while let Some(entry) = self.flying.first_entry() {
            if entry.key().0 > self.now_us {
                break;
            }
            let (to, frame) = entry.remove();
            self.stations[to].port.arrived.push_back(frame);
        }
        self.work();
        true
    }

    /// Advances until `done`, for at most `limit_us`; did it come about?
    pub fn until(&mut self, limit_us: u64, mut done: impl FnMut(&mut Pair) -> bool) -> bool {
        let end = self.now_us + limit_us;
        self.work();
        while !done(self) {
            if self.now_us > end || !self.advance() {
                return false;
            }
        }
        true
    }

    pub fn stack(&mut self, which: usize) -> &mut Stack {
        &mut self.stations[which].stack
    }
}
