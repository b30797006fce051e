//! Terminals that were made, and that their server has not seen yet.
//!
//! The file server makes a terminal, and the terminals' server finds it at its next turn. What its
//! maker does in between counts as it does later.

use super::numbers::{number_of, open};
use super::{LOCK, NO_TERMINAL, PATIENCE, SEEN, Terminal, count};
use crate::{Seen, expect, libc};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// `SIGHUP`
const HANG_UP: i32 = 1;
/// Terminals that each of two processes makes.
const ROUNDS: usize = 100;

/// Opens the slave of a master.
fn slave_of(master: &File, flags: i32) -> std::io::Result<File> {
    libc::control(master.as_raw_fd(), LOCK, 0);
    let number = number_of(master.as_raw_fd()).unwrap_or(u32::MAX);
    open(&format!("/dev/pts/{number}"), flags)
}

/// Types a line at a terminal that was made this moment, and reads it there.
fn type_at_once() -> std::io::Result<bool> {
    let mut master = open("/dev/ptmx", NO_TERMINAL)?;
    master.write_all(b"line\n")?;
    let mut slave = slave_of(&master, NO_TERMINAL)?;
    let mut line = [0; 5];
    slave.read_exact(&mut line)?;
    master.read_exact(&mut [0; 6])?;
    Ok(line == *b"line\n")
}

/// What is typed at a terminal before its server has seen it is read there, as all is that is typed
/// later.
pub fn new_terminals_take_what_is_typed(_: door::Door) -> Seen {
    let type_often = || {
        for round in 0..ROUNDS {
            match type_at_once() {
                Ok(true) => {}
                Ok(false) => return 1,
                Err(error) => {
                    println!("(round {round}: {error})");
                    return 2;
                }
            }
        }
        0
    };
    let other = libc::spawn(type_often);
    let (own, others) = (type_often(), libc::wait(other));
    expect(own == 0 && others == 0, || format!("own rounds {own}, another's {others:#x}"))?;
    Ok(String::new())
}

/// Leads a session whose terminal's master is closed at once; does the session hear of it, and the
/// terminal end?
fn close_at_once() -> i32 {
    if !libc::lead_session() {
        return 1;
    }
    libc::handle(HANG_UP, count);
    let Ok(master) = open("/dev/ptmx", NO_TERMINAL) else { return 2 };
    let Ok(mut slave) = slave_of(&master, 0) else { return 3 };
    drop(master);
    let begun = Instant::now();
    while SEEN.load(Ordering::SeqCst) == 0 {
        if begun.elapsed() > PATIENCE / 20 {
            return 4;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    libc::set_waits(slave.as_raw_fd(), false);
    let waits = |error: std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    if slave.read(&mut [0; 1]).is_err_and(waits) { 5 } else { 0 }
}

/// A process that keeps the server of terminals busy, so that it is late to see others.
fn noise() -> i32 {
    let Some(own) = Terminal::open(false) else { return 1 };
    let (master, slave) = (own.master.as_raw_fd(), own.slave.as_raw_fd());
    [master, slave].into_iter().for_each(|fd| libc::set_waits(fd, false));
    let (mut shown, begun) = ([0; 4096], Instant::now());
    while begun.elapsed() < PATIENCE {
        libc::write(slave, &[b'y'; 4096]);
        libc::read(master, &mut shown);
    }
    0
}

/// A terminal whose master is closed before the server has seen it is hung up, as any is.
pub fn masters_that_close_at_once_hang_up(_: door::Door) -> Seen {
    let busy = libc::spawn(noise);
    let rounds = (0..40).map(|_| libc::wait(libc::spawn(close_at_once)));
    let failed = rounds.enumerate().find(|(_, status)| *status != 0);
    libc::send(busy, 9);
    libc::wait(busy);
    expect(failed.is_none(), || format!("round and status: {failed:x?}"))?;
    Ok(String::new())
}
