//! A program's own network: stack, port and address book, polled and waited for together.

use abi::error::Error;
use abi::id::FilterId;
use abi::upcall::{EVENT_PACKET, EVENT_SENT};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use xio::filter::Filter;
use xio::stack::{Config, Receive, Stack, Transmit};
use xok::call::{self, Refused};
use xok::clock;

use crate::addresses::AddressBook;
use crate::port::Port;
use crate::settings;

/// Events that mean work for the stack.
const EVENTS: u64 = EVENT_PACKET | EVENT_SENT;

/// Microseconds after which to look whether a link address that was asked for is known.
const ANSWER_US: u64 = 5_000;

/// What a machine answers packets to itself that nobody wants.
struct Answers(VecDeque<Vec<u8>>);

impl Receive for Answers {
    fn peek(&mut self) -> Option<&[u8]> {
        self.0.front().map(Vec::as_slice)
    }

    fn release(&mut self) {
        self.0.pop_front();
    }
}

/// All that a program has of the network.
pub struct Network {
    /// Protocols.
    pub stack: Stack,
    /// Packets.
    pub port: Port,
    addresses: AddressBook,
}

impl Network {
    /// Opens the first interface with the machine's address; `capability` has WRITE over it.
    ///
    /// Events stay masked from now on: [`wait`](Network::wait) reads their bits itself.
    pub fn open(capability: u8) -> Result<Network, Refused> {
        Network::with(capability, |config| config)
    }

    /// As `open`, with other sizes than the usual.
    pub fn with(capability: u8, change: impl Fn(Config) -> Config) -> Result<Network, Refused> {
        let network = settings::network().ok_or((Error::NotPresent, 0))?;
        let port = Port::open(capability, 0)?;
        // Without a source of randomness the time must do; boot says so.
        let seed = call::entropy().unwrap_or_else(|_| clock::tsc());
        let stack = Stack::new(change(Config::new(network, port.mac, seed)));
        xok::upcall::set_mask(true);
        Ok(Network { stack, port, addresses: AddressBook::default() })
    }

    /// The address and port as this station's.
    pub fn local(&self, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(self.stack.network().address, port)
    }

    /// Claims TCP segments to `port`, from the wire and from this machine. `Overlap`: another
    /// program has it.
    pub fn claim_tcp(&self, port: u16) -> Result<[FilterId; 2], Refused> {
        let looped = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        self.claim_both(&Filter::tcp_listen(self.local(port)), &Filter::tcp_listen(looped))
    }

    /// Claims datagrams to `port`, as `claim_tcp`.
    pub fn claim_udp(&self, port: u16) -> Result<[FilterId; 2], Refused> {
        let looped = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        self.claim_both(&Filter::udp(self.local(port)), &Filter::udp(looped))
    }

    fn claim_both(&self, outside: &Filter, looped: &Filter) -> Result<[FilterId; 2], Refused> {
        let first = self.port.claim(outside)?;
        self.port.claim(looped).map(|second| [first, second]).inspect_err(|_| {
            // Ours, and just made.
            let _ = call::filter_drop(first);
        })
    }

    /// Takes in what has arrived and sends what is due; the time, in microseconds since boot.
    pub fn poll(&mut self) -> u64 {
        // Before looking, so that what arrives from now on ends the next sleep.
        xok::upcall::take_events_of(EVENTS);
        let now_us = clock::now_ns() / 1000;
        let mut answers = Answers(VecDeque::new());
        while let Some(packet) = self.port.transmitter.take_unclaimed() {
            answers.0.extend(self.stack.refusal(&packet));
        }
        let Port { ring, transmitter, .. } = &mut self.port;
        if !answers.0.is_empty() {
            self.stack.poll(now_us, &mut answers, transmitter, &self.addresses);
        }
        self.stack.poll(now_us, ring, transmitter, &self.addresses);
        self.find_out(now_us);
        now_us
    }

    /// Has anything arrived since the last poll, or become due? If not, `poll` would only send,
    /// which `flush` does. A link address that was asked for is looked up by `poll` and `flush`
    /// alike.
    pub fn has_news(&mut self) -> bool {
        self.port.ring.peek().is_some()
            || self.port.transmitter.has_unclaimed()
            || self.stack.is_due(clock::now_ns() / 1000)
    }

    /// Takes in what has arrived; `flush` follows.
    pub fn take_news(&mut self) {
        let now_us = clock::now_ns() / 1000;
        let Port { ring, transmitter, .. } = &mut self.port;
        self.stack.take_in(now_us, ring, transmitter, &self.addresses);
    }

    /// Takes frames in that reached the program on another way than its ring.
    pub fn take_in(&mut self, frames: &mut impl Receive) {
        let now_us = clock::now_ns() / 1000;
        self.stack.poll(now_us, frames, &mut self.port.transmitter, &self.addresses);
        self.find_out(now_us);
    }

    /// Sends what was queued since `poll`, and takes nothing in: then it is time to wait.
    pub fn flush(&mut self) {
        self.stack.flush(&mut self.port.transmitter, &self.addresses);
        self.find_out(clock::now_ns() / 1000);
    }

    /// Asks for the link addresses that packets wait for.
    fn find_out(&mut self, now_us: u64) {
        let station = (self.port.mac, self.stack.network());
        for address in self.stack.unresolved() {
            let question = self.addresses.ask(address, (station.0, &station.1), now_us);
            if let Some(frame) = question {
                // Lost if the queue is full: it is asked again.
                self.port.transmitter.send(&frame);
            }
        }
    }

    /// When to poll at the latest, in microseconds since boot (`None`: when an event comes), and at
    /// which events. That a packet was sent is one while there is no room for another, and only
    /// then: else each packet would wake its sender, to whom it means nothing.
    pub fn deadline(&mut self) -> (Option<u64>, u64) {
        let mut deadline = self.stack.next_deadline();
        let mut events = EVENT_PACKET;
        if self.port.transmitter.buffer().is_none() {
            // Nothing can be sent before a slot is free, and that is an event.
            deadline = deadline.filter(|at| *at > clock::now_ns() / 1000);
            events |= EVENT_SENT;
        }
        // arpd's table changes without an event.
        let asked = self.stack.unresolved().next().map(|_| clock::now_ns() / 1000 + ANSWER_US);
        ([deadline, asked].into_iter().flatten().min(), events)
    }

    /// Sleeps for so long, whatever arrives.
    pub fn rest(&self, us: u64) {
        xok::beat::beat();
        let asked = xok::beat::asked_bit();
        let _ = call::sleep(clock::now_ns() + us * 1000, asked, 0, 0);
        xok::upcall::take_pending_of(asked);
    }

    /// Sleeps until a packet has arrived or there is room to send again, the stack has something
    /// due, or `until_us`.
    pub fn wait(&mut self, until_us: Option<u64>) {
        let (deadline, events) = self.deadline();
        let deadline = [deadline, until_us].into_iter().flatten().min();
        let deadline_ns = deadline.map_or(0, |at| at.saturating_mul(1000).max(1));
        if deadline_ns != 0 && deadline_ns <= clock::now_ns() {
            return;
        }
        xok::beat::beat();
        // A passed deadline and an event both mean: look again; so does who asks for a beat.
        let asked = xok::beat::asked_bit();
        let _ = call::sleep(deadline_ns, asked, events, 0);
        xok::upcall::take_pending_of(asked);
    }
}
