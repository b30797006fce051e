//! Records as text: `trace: record CPU NUMBER TSC KIND DETAIL ENV ARGUMENT`, in hexadecimal.

use abi::trace::{Event, Read};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use xok::print::LOG as STREAM;
use xok::services::{self, Service};
use xok::trace::Follower;
use xok::{call, published, trace};

/// Bytes that one call takes; lines are not cut, so that others' don't come in between.
const PIECE: usize = 256;
/// This part of a ring is filled before it is emptied.
const PART: u64 = 4;

/// What is sent, and how far each ring has been.
pub struct Lines {
    capability: u8,
    followers: Vec<Follower>,
    text: String,
}

impl Lines {
    /// Follows all processors from what they have recorded first.
    pub fn new(capability: u8) -> Self {
        let cpus = published::directory().cpus as usize;
        let followers = (0..cpus).filter_map(Follower::oldest).collect();
        Self { capability, followers, text: String::with_capacity(2 * PIECE) }
    }

    /// Sends a line, with those before it once they fill a call.
    pub fn line(&mut self, line: core::fmt::Arguments<'_>) {
        let before = self.text.len();
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "trace: {line}");
        if self.text.len() > PIECE {
            let rest = self.text.split_off(before);
            self.flush();
            self.text = rest;
        }
    }

    fn flush(&mut self) {
        let mut rest = self.text.as_bytes();
        while !rest.is_empty() {
            match call::console_write(self.capability, STREAM, rest) {
                Ok(taken) if taken > 0 => rest = &rest[(taken as usize).min(rest.len())..],
                _ => break,
            }
        }
        self.text.clear();
    }

    /// How many processors there are, and what their ticks mean.
    pub fn head(&mut self) {
        let clock = published::clock();
        self.line(format_args!(
            "clock {:x} {:x} {:x} {:x} {:x}",
            self.followers.len(),
            clock.base_tsc,
            clock.base_ns,
            clock.multiplier,
            clock.shift
        ));
        self.flush();
    }

    /// Sends the rings that are filling up.
    pub fn send_full(&mut self) {
        for at in 0..self.followers.len() {
            let follower = self.followers[at];
            let full = trace::ring(follower.cpu()).is_some_and(|ring| {
                ring.next.saturating_sub(follower.position()) >= ring.records / PART
            });
            if full {
                self.send(at);
            }
        }
        self.flush();
    }

    /// Sends all that is left.
    pub fn send_rest(&mut self) {
        for at in 0..self.followers.len() {
            self.send(at);
        }
        self.line(format_args!("end"));
        self.flush();
    }

    /// Sends a ring up to where it is now: what the sending adds comes the next time.
    fn send(&mut self, at: usize) {
        let own = services::get(Service::Tracer) as u32;
        let cpu = self.followers[at].cpu();
        let end = trace::ring(cpu).map_or(0, |ring| ring.next);
        while self.followers[at].position() < end {
            match self.followers[at].read() {
                Read::Record(_, _, event) if event.env == own => {}
                Read::Record(number, tsc, event) => self.record(cpu, number, tsc, &event),
                Read::Lost(count) => self.line(format_args!("lost {cpu:x} {count:x}")),
                Read::End => break,
            }
        }
    }

    fn record(&mut self, cpu: usize, number: u64, tsc: u64, event: &Event) {
        let Event { kind, detail, env, argument } = *event;
        self.line(format_args!(
            "record {cpu:x} {number:x} {tsc:x} {:x} {detail:x} {env:x} {argument:x}",
            kind as u8
        ));
    }
}
