//! `poll`, `select` and their kin: readiness now, or one predicate over all that may become ready.

use alloc::rc::Rc;
use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use unix::Errno;

use super::Files;
use super::description::Description;
use super::node::{Device, Node};
use super::open_file::OpenFile;
use super::pipe::{Pipe, RING};
use super::terminal::Tty;
use crate::errno::{Answer, RESTART, RESTART_UNLESS_HANDLED};
use crate::net::{self, socket::Socket};
use crate::process::Process;
use crate::user;
use crate::wait::{EVENT_LOOK, Wait, Woken, sleep_until};

const IN: u16 = raw::POLLIN as u16;
const OUT: u16 = raw::POLLOUT as u16;
/// What a writer is told when the readers have gone.
pub const ERROR: u16 = raw::POLLERR as u16;
/// What a reader is told when the writers have gone.
pub const HANG_UP: u16 = raw::POLLHUP as u16;
const INVALID: u16 = raw::POLLNVAL as u16;
/// Bits of what may be read.
pub const IN_LIKE: u16 = IN | raw::POLLRDNORM as u16;
/// Bits of what may be written.
pub const OUT_LIKE: u16 = OUT | raw::POLLWRNORM as u16;
/// Events that are told whether asked for or not.
const ALWAYS: u16 = ERROR | HANG_UP | INVALID;

/// What is ready of `events`; where nothing is, adds to `wait` what to wait for.
pub fn ready(description: &Description, events: u16, wait: &mut Wait) -> Result<u16, Errno> {
    let asked = events | ALWAYS;
    match &description.file {
        OpenFile::Pipe(pipe) => pipe_ready(pipe, events, wait),
        OpenFile::Socket(socket) => Ok(socket_ready(socket, asked, wait)),
        OpenFile::UnixSocket(socket) => socket.ready(asked, wait),
        OpenFile::EventCounter(counter) => {
            let (reads, writes) = counter.ready()?;
            let found = if reads { IN_LIKE } else { 0 } | if writes { OUT_LIKE } else { 0 };
            if found & asked == 0 {
                counter.terms(asked & IN_LIKE != 0, wait);
            }
            Ok(found & asked)
        }
        OpenFile::Timer(timer) => Ok(if timer.ready(wait)? { IN_LIKE & asked } else { 0 }),
        OpenFile::Signals(file) => Ok(if file.ready(wait)? { IN_LIKE & asked } else { 0 }),
        OpenFile::Epoll(epoll) => {
            wait.events(EVENT_LOOK);
            Ok(if epoll.ready(wait)? { IN_LIKE & asked } else { 0 })
        }
        OpenFile::Terminal(tty) => terminal_ready(tty, (events, true), wait),
        OpenFile::Stream(0) => terminal_ready(&Tty::console()?, (events, false), wait),
        OpenFile::Master(master) => master.ready(asked, wait),
        OpenFile::Own(file) => file.ready(asked, wait),
        OpenFile::Stream(number) => {
            let error = *number == 2;
            let tty = Tty::console_stream(error)?;
            let (room, shown) = tty.has_room()?;
            let found = if room { OUT_LIKE } else { 0 };
            if found & asked == 0 && events & OUT_LIKE != 0 {
                tty.writable_terms(wait, shown);
            }
            Ok(found & asked)
        }
        OpenFile::Node(Node::Device(Device::Terminal | Device::Console)) => Ok(0),
        _ => Ok((IN_LIKE | OUT_LIKE) & asked),
    }
}

/// The same of a terminal; of what is only read, `writes` is false.
fn terminal_ready(tty: &Tty, (events, writes): (u16, bool), wait: &mut Wait) -> Result<u16, Errno> {
    let asked = events | ALWAYS;
    let (input, tail) = tty.has_input()?;
    let (room, shown) = tty.has_room()?;
    let mut found = if input { IN_LIKE } else { 0 };
    if room && writes {
        found |= OUT_LIKE;
    }
    if tty.number.is_some() {
        let control = tty.control()?;
        if control.hung_up {
            found |= IN_LIKE | OUT_LIKE | HANG_UP | ERROR;
        }
        tty.changed_terms(wait, control.version());
    }
    if found & asked == 0 {
        if events & IN_LIKE != 0 {
            tty.readable_terms(wait, tail);
        }
        if events & OUT_LIKE != 0 && writes {
            tty.writable_terms(wait, shown);
        }
    }
    Ok(found & asked)
}

/// The same of a pipe.
fn pipe_ready(pipe: &Pipe, events: u16, wait: &mut Wait) -> Result<u16, Errno> {
    let asked = events | ALWAYS;
    let mut found = 0;
    if pipe.reads {
        let ended = pipe.no_writer();
        if pipe.waiting()? > 0 {
            found |= IN_LIKE;
        }
        if ended {
            found |= HANG_UP;
        }
    }
    let level = pipe.level()?;
    let room = level.room() >= unix::ring::PIPE_BUF;
    if !RING.can_be(level.head, level.tail) {
        found |= ERROR;
    }
    if pipe.writes {
        if room {
            found |= OUT_LIKE;
        }
        if pipe.no_reader() {
            found |= ERROR;
        }
    }
    if found & asked == 0 {
        let (_, tail) = pipe.counters()?;
        if pipe.reads && (events & IN_LIKE != 0 || !pipe.writes) {
            pipe.readable_terms(wait, tail);
        }
        if pipe.writes && !room && events & OUT_LIKE != 0 {
            pipe.writable_terms(wait, &level, unix::ring::PIPE_BUF);
        } else if pipe.writes && events & OUT_LIKE == 0 {
            pipe.broken_terms(wait);
        }
    }
    Ok(found & asked)
}

/// The same of a socket.
fn socket_ready(socket: &Socket, asked: u16, wait: &mut Wait) -> u16 {
    let found = socket.ready() & asked;
    if found == 0 {
        socket.wait_terms(asked & IN_LIKE != 0, asked & OUT_LIKE != 0, wait);
    }
    found
}

/// One descriptor asked about.
struct Asked {
    description: Option<Rc<Description>>,
    events: u16,
    found: u16,
}

/// Waits until one is ready; answers how many are.
fn wait_for(
    process: &mut Process,
    asked: &mut [Asked],
    deadline: Option<u64>,
) -> Result<u64, Errno> {
    loop {
        net::tend(process);
        let mut wait = Wait::new();
        let mut count = 0;
        for one in asked.iter_mut() {
            one.found = match &one.description {
                Some(description) => ready(description, one.events, &mut wait)?,
                None => INVALID,
            };
            count += u64::from(one.found != 0);
        }
        if count > 0 || deadline.is_some_and(|deadline| deadline <= xok::clock::now_ns()) {
            return Ok(count);
        }
        match sleep_until(process, &wait, deadline.unwrap_or(0)) {
            Ok(Woken::Ready | Woken::TimedOut) => {}
            Err(RESTART) => return Err(RESTART_UNLESS_HANDLED),
            Err(errno) => return Err(errno),
        }
    }
}

fn lookup(files: &Files, fd: i32) -> Option<Rc<Description>> {
    files.get(fd).ok()
}

/// `poll(fds, count, milliseconds)`
pub fn poll(process: &mut Process, fds: u64, count: u64, milliseconds: i32) -> Answer {
    poll_until(process, fds, count, deadline_in(milliseconds))
}

/// The deadline in so many milliseconds; a negative number is none.
pub fn deadline_in(milliseconds: i32) -> Option<u64> {
    match u64::try_from(milliseconds) {
        Ok(0) => Some(0),
        Ok(time) => Some(xok::clock::now_ns() + time * 1_000_000),
        Err(_) => None,
    }
}

/// Blocks the signals at `mask` (0: as before) until the call has ended.
pub fn use_mask(mask: u64, size: u64) -> Result<(), Errno> {
    if mask != 0 {
        if size != 8 {
            return Err(Errno::EINVAL);
        }
        crate::signal::calls::with_mask(user::read_value(mask)?);
    }
    Ok(())
}

/// `ppoll(fds, count, timeout, mask, bytes)`
pub fn ppoll(process: &mut Process, words: [u64; 6]) -> Answer {
    let [fds, count, timeout, mask, size, _] = words;
    let deadline = deadline_from(timeout, 1)?;
    use_mask(mask, size)?;
    poll_until(process, fds, count, deadline)
}

/// A deadline from a relative `timespec` (`unit` 1) or `timeval` (`unit` 1000).
pub fn deadline_from(address: u64, unit: u64) -> Result<Option<u64>, Errno> {
    if address == 0 {
        return Ok(None);
    }
    let [seconds, fraction]: [i64; 2] = user::read_value(address)?;
    let (Ok(seconds), Ok(fraction)) = (u64::try_from(seconds), u64::try_from(fraction)) else {
        return Err(Errno::EINVAL);
    };
    let ns = seconds.saturating_mul(1_000_000_000).saturating_add(fraction.saturating_mul(unit));
    Ok(Some(if ns == 0 { 0 } else { xok::clock::now_ns().saturating_add(ns) }))
}

fn poll_until(process: &mut Process, fds: u64, count: u64, deadline: Option<u64>) -> Answer {
    if count > process.limit(raw::RLIMIT_NOFILE) {
        return Err(Errno::EINVAL);
    }
    let mut asked = Vec::with_capacity(count as usize);
    let mut places = Vec::with_capacity(count as usize);
    for at in 0..count {
        let address = fds + 8 * at;
        let word: u64 = user::read_value(address)?;
        let (fd, events) = (word as u32 as i32, (word >> 32) as u16);
        if fd >= 0 {
            asked.push(Asked { description: lookup(&process.files, fd), events, found: 0 });
            places.push(address);
        }
        user::write_value(address + 6, &0u16)?;
    }
    let ready = wait_for(process, &mut asked, deadline)?;
    for (one, address) in asked.iter().zip(places) {
        user::write_value(address + 6, &one.found)?;
    }
    Ok(ready)
}

/// `select(count, read, write, except, timeout)`, or `pselect6` with its mask.
pub fn select(process: &mut Process, words: [u64; 6], is_pselect: bool) -> Answer {
    let [count, read, write, except, timeout, mask] = words;
    let deadline = deadline_from(timeout, if is_pselect { 1 } else { 1000 })?;
    if is_pselect && mask != 0 {
        let [set, size]: [u64; 2] = user::read_value(mask)?;
        if set != 0 {
            if size != 8 {
                return Err(Errno::EINVAL);
            }
            let set = user::read_value(set)?;
            crate::signal::calls::with_mask(set);
        }
    }
    if count as i32 != count as u32 as i32 || (count as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let mut count = count as u32;
    if count > raw::__FD_SETSIZE {
        // Mostly a count beyond the last open descriptor (`getdtablesize`): no set is that long.
        let last = process.files.open_numbers().last().unwrap_or(0);
        count = count.min(raw::__FD_SETSIZE.max(last + 1));
    }
    let words = count.div_ceil(64) as u64;
    let mut sets = [read, write, except].map(|address| (address, Vec::new()));
    for (address, bits) in &mut sets {
        for at in 0..words {
            bits.push(if *address == 0 { 0 } else { user::read_value(*address + 8 * at)? });
        }
    }
    let is_in = |bits: &[u64], fd: u32| bits[(fd / 64) as usize] >> (fd % 64) & 1 != 0;
    let mut asked = Vec::new();
    let mut numbers = Vec::new();
    for fd in 0..count {
        let [reads, writes, excepts] = [0, 1, 2].map(|at: usize| is_in(&sets[at].1, fd));
        if !reads && !writes && !excepts {
            continue;
        }
        process.files.any(fd as i32)?;
        let description = lookup(&process.files, fd as i32);
        let events = if reads { IN_LIKE } else { 0 } | if writes { OUT_LIKE } else { 0 };
        asked.push(Asked { description, events, found: 0 });
        numbers.push((fd, reads, writes));
    }
    wait_for(process, &mut asked, deadline)?;
    let mut results = [0, 1, 2].map(|_| alloc::vec![0u64; words as usize]);
    let mut total = 0;
    for (one, (fd, reads, writes)) in asked.iter().zip(numbers) {
        let bit = 1 << (fd % 64);
        let place = (fd / 64) as usize;
        if reads && one.found & (IN_LIKE | HANG_UP | ERROR | INVALID) != 0 {
            results[0][place] |= bit;
            total += 1;
        }
        if writes && one.found & (OUT_LIKE | ERROR | INVALID) != 0 {
            results[1][place] |= bit;
            total += 1;
        }
    }
    for ((address, _), bits) in sets.iter().zip(&results) {
        for (at, word) in bits.iter().enumerate() {
            if *address != 0 {
                user::write_value(address + 8 * at as u64, word)?;
            }
        }
    }
    Ok(total)
}
