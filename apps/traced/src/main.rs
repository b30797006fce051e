//! Sends the trace out of the machine, as lines of the kernel's log (docs/tracing.md).
//!
//! It looks a hundred times in a second whether a ring is a quarter full, and at the names that
//! programs give themselves; so it is rarely there while others run. Who started it posts a bit:
//! then nothing is recorded any more, the rest is sent, and it ends. Its own records are left out.
//!
//! Capabilities, given by who starts it: 1 the trace (WRITE), 3 the console's log.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod lines;
#[cfg(target_os = "none")]
mod names;

#[cfg(target_os = "none")]
xok::program!(main);

/// Index of the capability over the trace.
#[cfg(target_os = "none")]
const TRACE: u8 = 1;
/// Index of the capability over the console, for the log.
#[cfg(target_os = "none")]
const LOG: u8 = 3;
/// Nanoseconds between two looks.
#[cfg(target_os = "none")]
const LOOK_NS: u64 = 10_000_000;

#[cfg(target_os = "none")]
fn main(_argument: &'static [u8]) {
    xok::upcall::set_mask(true);
    let mut lines = lines::Lines::new(LOG);
    let mut names = names::Names::default();
    lines.head();
    loop {
        names.tell(&mut lines);
        lines.send_full();
        // Whatever ends the sleep, the loop looks again.
        let _ = xok::call::sleep(xok::clock::now_ns() + LOOK_NS, !0, 0, 0);
        if xok::upcall::take_pending() != 0 {
            break;
        }
    }
    if let Err((error, _)) = xok::call::trace_set(TRACE, 0) {
        xok::log!(LOG, "traced: {}", error.name());
    }
    names.tell(&mut lines);
    lines.send_rest();
}

#[cfg(not(target_os = "none"))]
fn main() {}
