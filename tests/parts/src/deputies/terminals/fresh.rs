//! Terminals at the two ends of their life: made, and not yet seen by their server; ended by it.
//!
//! The file server makes a terminal, and the terminals' server finds it at its next turn. What its
//! maker does in between counts as it does later. A terminal that the server gives up, because its
//! rings cannot be, leaves nothing behind for the next one that it serves.

use super::numbers::{number_of, open, regions_of};
use super::{LOCK, NO_TERMINAL, PATIENCE, SEEN, Terminal, count, load};
use crate::deputies::{NOBODY, look, operate};
use crate::{Seen, expect, libc};
use abi::id::RegionId;
use abi::published::{RegionRecord, Table};
use abi::region::{COPY_IN, RegionOperation, WordAt};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use unix::local::{head_of, ring_of};
use unix::ring::{HEAD, TAIL};
use xok::services::{self, Service};

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
        if begun.elapsed() > PATIENCE / 4 {
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

/// Bytes of a line that is typed at a terminal whose rings then cannot be: as many as the server
/// takes at once.
const LINE: usize = 256;
/// Terminals that are spoilt, at least.
const SPOILT: usize = 400;
/// How long more are spoilt until one of them was in time.
const UNTIL_IN_TIME: Duration = Duration::from_secs(30);

/// Operations that were ever done on a region.
fn operations(region: u64) -> u64 {
    let record = xok::published::record(Table::Regions, RegionId(region).index());
    record.map_or(0, |record: RegionRecord| record.operations)
}

/// Types a line at its own terminal, and has the ring that it is in end as one that cannot be while
/// the server works on the line: after it has taken that one, before it looks for the next. Was it
/// in time?
fn spoil(door: door::Door, own: &Terminal) -> Option<bool> {
    let [input, _, control, master] = regions_of(own)?;
    let mut line = [b'x'; LINE];
    line[LINE - 1] = b'\n';
    let word = |value| WordAt { offset: head_of(0) + HEAD, value };
    let mut types = RegionOperation {
        region: master,
        writes: 1,
        direction: COPY_IN,
        address: line.as_ptr() as u64,
        offset: ring_of(0).data,
        len: LINE as u32,
        ..Default::default()
    };
    types.write[0] = word(LINE as u64);
    let mut spoils = RegionOperation { region: master, writes: 1, ..Default::default() };
    spoils.write[0] = word(u64::MAX);
    let [settings, _] = load(door, control)?;
    // Ours, and three of the server's: it reads head and tail, takes the line, moves the tail.
    let taken = operations(master) + 4;
    let typed = operate(door, &types);
    let begun = Instant::now();
    let soon = || begun.elapsed() < Duration::from_millis(100);
    while operations(master) < taken && soon() {}
    if !typed || !operate(door, &spoils) {
        return None;
    }
    // It is hung up whenever that was.
    while load(door, control)?[0] == settings && soon() {}
    let tail = look(door, master, 0, head_of(0) + TAIL, 8)?;
    let took = tail == (LINE as u64).to_le_bytes();
    // Else what was typed is there to be read.
    Some(took && load(door, input)?[0] == 0)
}

/// Spoils terminals until one was spoilt in time. That takes two processors.
fn spoil_many(door: door::Door, in_time: &AtomicU64) -> bool {
    let (begun, alone) = (Instant::now(), xok::published::table(Table::Cpus).count == 1);
    for round in 0.. {
        let enough = alone || in_time.load(Ordering::SeqCst) != 0;
        if round >= SPOILT && (enough || begun.elapsed() > UNTIL_IN_TIME) {
            break;
        }
        match Terminal::open(false).and_then(|own| spoil(door, &own)) {
            Some(true) => _ = libc::count(in_time),
            Some(false) => {}
            None => return false,
        }
    }
    true
}

/// What was typed at a terminal that the server gives up is typed at no other one: not at the
/// console, which is served next.
pub fn what_a_lost_terminal_was_typed_is_lost(door: door::Door) -> Seen {
    // Cells that were ever typed there.
    let typed = || load(door, services::get(Service::TerminalInput)).map(|[head, _]| head);
    let (before, in_time) = (typed(), &libc::words(libc::shared(1), 1)[0]);
    let status = libc::wait(libc::spawn(|| {
        libc::silence();
        if !libc::become_user(NOBODY) {
            return 1;
        }
        // A thread, since the first one has the server's processor.
        let spoilt = std::thread::spawn(move || spoil_many(door, in_time));
        if spoilt.join().unwrap_or(false) { 0 } else { 2 }
    }));
    let (after, in_time) = (typed(), in_time.load(Ordering::SeqCst));
    expect(status == 0 && before.is_some() && after == before, || {
        format!("status {status:#x}; cells typed at the console: {before:?}, then {after:?}")
    })?;
    Ok(format!("({in_time} in time)"))
}
