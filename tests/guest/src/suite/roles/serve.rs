//! Servers that are called by transfer.

use super::mirror::set_application_word;
use abi::id::EnvId;
use abi::setup::{EnvSetup, FLAG_BORROW, field};
use alloc::boxed::Box;
use xok::call::{self, Message, OWN};
use xok::clock::now_ns;

/// Replies with the sum of the six words.
pub const SERVE_SUMS: u64 = 1;
/// Works for as many nanoseconds as the first word says.
pub const SERVE_SLOWLY: u64 = 2;
/// Serves the environment it was told of, nobody else.
pub const SERVE_CHOOSY: u64 = 3;
/// Ends at the first request.
pub const SERVE_DEATH: u64 = 4;
/// As [`SERVE_SUMS`]; when the first word is even it sets flags of its own before it replies, so
/// that entry code does not know it any more and the rest of the kernel makes the reply.
pub const SERVE_SUMS_BY_TURNS: u64 = 5;
/// The choosy server's reply to the one it knows.
pub const WELCOME: u64 = 0x600d;
/// Its reply to everybody else.
pub const TURNED_AWAY: u64 = 0xa11;

struct Server {
    kind: u64,
    known: EnvId,
}

impl xok::server::Serve for Server {
    fn request(&mut self, caller: EnvId, message: &mut Message) {
        message[0] = match self.kind {
            SERVE_SUMS => sum(message),
            SERVE_SUMS_BY_TURNS => {
                let setup = EnvSetup { flags: FLAG_BORROW, ..EnvSetup::default() };
                if message[0].is_multiple_of(2) {
                    let set = call::env_set(OWN, EnvId::NONE, field::FLAGS, &setup);
                    set.unwrap_or_else(|_| call::exit(4));
                }
                sum(message)
            }
            SERVE_SLOWLY => {
                let end = now_ns() + message[0];
                while now_ns() < end {
                    core::hint::spin_loop();
                }
                1
            }
            SERVE_CHOOSY if caller == self.known => WELCOME,
            SERVE_CHOOSY => TURNED_AWAY,
            _ => call::exit(4),
        };
    }

    fn events(&mut self) -> u64 {
        xok::upcall::take_events();
        xok::upcall::take_pending();
        set_application_word(1);
        0
    }
}

fn sum(message: &Message) -> u64 {
    message.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}

/// Serves for ever.
pub fn run(kind: u64, known: u64) -> u64 {
    xok::server::run(Box::leak(Box::new(Server { kind, known: EnvId(known as u32) })))
}
