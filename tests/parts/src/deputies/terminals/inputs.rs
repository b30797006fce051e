//! What a program stores in the counters of its terminal's input ring ends no server.
//!
//! The terminals' server adds to the head of that ring what a line has, before any reader has had
//! a look at it.

use super::numbers::regions_of;
use super::{PATIENCE, Terminal, beats, server};
use crate::deputies::{NOBODY, store};
use crate::{Seen, expect, libc};
use abi::region::WordAt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use unix::ring::{HEAD, TAIL};

/// What head and tail are, both: an empty ring at a place that none comes to.
const PLACES: [u64; 3] = [u64::MAX, u64::MAX - 2, 1 << 63];
const LINE: &[u8; 5] = b"line\n";

/// Reads these bytes, which may take a while to come.
fn arrives(file: &mut File, bytes: &[u8]) -> Option<()> {
    libc::set_waits(file.as_raw_fd(), false);
    let (mut seen, begun) = (Vec::new(), Instant::now());
    while seen != bytes {
        let mut some = [0; 16];
        match file.read(&mut some) {
            Ok(count) => seen.extend_from_slice(&some[..count]),
            Err(_) if begun.elapsed() < PATIENCE / 12 => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(_) => return None,
        }
        if !bytes.starts_with(&seen) || begun.elapsed() > PATIENCE {
            return None;
        }
    }
    Some(())
}

/// Has the server put lines into its own input ring where no head can be; are they read there?
fn forge(door: door::Door) -> i32 {
    if !libc::become_user(NOBODY) {
        return 1;
    }
    let Some(mut own) = Terminal::open(false) else { return 2 };
    let Some([input, ..]) = regions_of(&own) else { return 3 };
    for value in PLACES {
        if ![TAIL, HEAD].iter().all(|&offset| store(door, input, WordAt { offset, value })) {
            return 4;
        }
        if own.master.write_all(LINE).is_err() {
            return 5;
        }
        // With the echo the server has the line; a reader that came now would put the ring right.
        if arrives(&mut own.master, b"line\r\n").is_none() {
            return 6;
        }
        std::thread::sleep(Duration::from_millis(50));
        if arrives(&mut own.slave, LINE).is_none() {
            return 7;
        }
    }
    0
}

/// A line goes into a ring whose counters a program has forged, once that begins anew; the server
/// goes on, and so do others' terminals.
pub fn forged_inputs_end_no_server(door: door::Door) -> Seen {
    let (env, _) = server();
    let mut others = Terminal::open(false).ok_or("no terminal")?;
    let status = libc::wait(libc::spawn(|| forge(door)));
    let beats = beats(env);
    let serves = beats && others.serves();
    expect(status == 0 && serves && beats, || {
        format!("status {status:#x}, serves {serves}, the same server beats {beats}")
    })?;
    Ok(String::new())
}
