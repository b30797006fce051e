//! `epoll`: descriptors watched for long (epoll(7)).
//!
//! Each interest is looked at when somebody waits; what nothing is ready of, the waiter sleeps for
//! by one predicate (`crate::wait`). A file that is closed everywhere drops out by itself.
//!
//! An edge (`EPOLLET`) is told once: again when the file was written meanwhile, when it was not
//! ready in between, or when a call has drained it (`Description::drained`).

use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::RefCell;
use linux_raw_sys::general as raw;
use unix::Errno;
use unix::path::Canonical;

use super::at_once::{self, WATCHES};
use super::description::Description;
use super::node::{Device, Node};
use super::open_file::OpenFile;
use super::poll::{self, IN_LIKE, OUT_LIKE};
use crate::errno::{Answer, RESTART, RESTART_UNLESS_HANDLED};
use crate::net;
use crate::process::Process;
use crate::user;
use crate::wait::{EVENT_LOOK, Wait, Woken, sleep_until};

/// Bytes of `struct epoll_event`, which is packed.
const EVENT_BYTES: u64 = 12;
/// Events told by one call at most (`EP_MAX_EVENTS` is larger, and nobody has so many).
const EVENTS_MAX: u64 = 4096;
/// The bits of an interest that say what, not how.
const WHAT: u32 = 0xffff;

/// What is watched through one epoll descriptor.
#[derive(Debug, Default)]
pub struct Epoll(RefCell<Vec<Interest>>);

#[derive(Clone, Debug)]
struct Interest {
    fd: i32,
    file: Weak<Description>,
    events: u32,
    data: u64,
    told: Told,
}

/// What was told of an edge, and how far the file had come then.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    bits: u16,
    written: (u64, u64),
    drained: (u32, u32),
}

/// `epoll_create1(flags)`
pub fn create(process: &mut Process, flags: u32) -> Answer {
    if flags & !raw::EPOLL_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let file = OpenFile::Epoll(Epoll::default());
    let description = Description::new(file, Canonical::default(), raw::O_RDWR, None);
    let limit = process.limit(raw::RLIMIT_NOFILE);
    process.files.watches = true;
    at_once::set_detour(WATCHES, true);
    process.files.enter(description, flags & raw::EPOLL_CLOEXEC != 0, 0, limit)
}

fn epoll_of(description: &Description) -> Result<&Epoll, Errno> {
    match &description.file {
        OpenFile::Epoll(epoll) => Ok(epoll),
        _ => Err(Errno::EINVAL),
    }
}

/// Can readiness of this file be watched? Of ordinary files it cannot (epoll_ctl(2), EPERM).
fn check_watchable(file: &OpenFile) -> Result<(), Errno> {
    match file {
        OpenFile::Node(Node::Device(Device::Terminal | Device::Console)) => Ok(()),
        OpenFile::Node(_) | OpenFile::Text(..) => Err(Errno::EPERM),
        OpenFile::Epoll(_) => Err(Errno::ELOOP),
        _ => Ok(()),
    }
}

/// `epoll_ctl(epoll, operation, fd, event)`
pub fn control(process: &mut Process, at: i32, operation: u32, fd: i32, event: u64) -> Answer {
    let (events, data) = if operation == raw::EPOLL_CTL_DEL {
        (0, 0)
    } else {
        let words: [u32; 3] = user::read_value(event)?;
        (words[0], u64::from(words[1]) | u64::from(words[2]) << 32)
    };
    let holder = process.files.get(at)?;
    let file = process.files.get(fd)?;
    if Rc::ptr_eq(&holder, &file) {
        return Err(Errno::EINVAL);
    }
    let epoll = epoll_of(&holder)?;
    check_watchable(&file.file)?;
    let mut list = epoll.0.borrow_mut();
    list.retain(|interest| interest.file.strong_count() > 0);
    let is_it = |one: &Interest| one.fd == fd && one.file.as_ptr() == Rc::as_ptr(&file);
    let place = list.iter().position(is_it);
    let interest = Interest {
        fd,
        file: Rc::downgrade(&file),
        events: events | raw::EPOLLERR | raw::EPOLLHUP,
        data,
        told: Told::default(),
    };
    match (operation, place) {
        (raw::EPOLL_CTL_ADD, None) => list.push(interest),
        (raw::EPOLL_CTL_ADD, Some(_)) => return Err(Errno::EEXIST),
        (raw::EPOLL_CTL_MOD, Some(place)) => list[place] = interest,
        (raw::EPOLL_CTL_DEL, Some(place)) => drop(list.remove(place)),
        (raw::EPOLL_CTL_MOD | raw::EPOLL_CTL_DEL, None) => return Err(Errno::ENOENT),
        _ => return Err(Errno::EINVAL),
    }
    drop(list);
    process.look_again();
    Ok(0)
}

impl Interest {
    /// What is to be told of it; if nothing, `wait` gets what to wait for.
    fn look(&mut self, wait: &mut Wait) -> Result<u16, Errno> {
        let Some(file) = self.file.upgrade() else { return Ok(0) };
        let asked = (self.events & WHAT) as u16;
        if asked == 0 {
            // Told, and only once (`EPOLLONESHOT`).
            return Ok(0);
        }
        if self.events & raw::EPOLLET == 0 {
            return poll::ready(&file, asked, wait);
        }
        // Before it is asked what is ready: what comes in between is told once too often, and not
        // taken for what has been told.
        let written = written(&file)?;
        let found = poll::ready(&file, asked, &mut Wait::new())?;
        let drained = file.drained.get();
        let mut again = !found;
        if written.0 != self.told.written.0 || drained.0 != self.told.drained.0 {
            again |= IN_LIKE;
        }
        if written.1 != self.told.written.1 || drained.1 != self.told.drained.1 {
            again |= OUT_LIKE;
        }
        self.told = Told { bits: self.told.bits & !again, written, drained };
        if found & !self.told.bits != 0 {
            return Ok(found);
        }
        edge_terms(&file, asked & !found, written, wait)?;
        Ok(0)
    }
}

/// How often the file was written and read, where that can be known.
fn written(file: &Description) -> Result<(u64, u64), Errno> {
    match &file.file {
        OpenFile::Pipe(pipe) => pipe.counters(),
        OpenFile::EventCounter(counter) => Ok((counter.counts()?.1, 0)),
        _ => Ok((0, 0)),
    }
}

/// What to wait for where all that is ready has been told: what is not ready, and the next write.
fn edge_terms(
    file: &Description,
    missing: u16,
    (writes, reads): (u64, u64),
    wait: &mut Wait,
) -> Result<(), Errno> {
    match &file.file {
        OpenFile::Pipe(pipe) => {
            let ends = [missing & poll::HANG_UP != 0, missing & poll::ERROR != 0];
            pipe.change_terms(wait, writes, reads, ends);
        }
        OpenFile::EventCounter(counter) => counter.next_write(writes, wait),
        _ if missing & (IN_LIKE | OUT_LIKE) != 0 => {
            poll::ready(file, missing, wait)?;
        }
        _ => {}
    }
    if matches!(file.file, OpenFile::Socket(_)) {
        wait.events(net::EVENTS);
    }
    Ok(())
}

impl Epoll {
    /// Is something watched ready? (An epoll descriptor can be polled itself.)
    pub fn ready(&self, wait: &mut Wait) -> Result<bool, Errno> {
        let mut any = false;
        for interest in self.0.borrow_mut().iter_mut() {
            any |= interest.look(wait)? != 0;
        }
        Ok(any)
    }

    /// Takes up to `most` events; those behind come first the next time.
    fn take(&self, most: usize, wait: &mut Wait) -> Result<Vec<(u32, u64)>, Errno> {
        let mut list = self.0.borrow_mut();
        list.retain(|interest| interest.file.strong_count() > 0);
        let mut events = Vec::new();
        let mut seen = 0;
        for interest in list.iter_mut() {
            if events.len() == most {
                break;
            }
            seen += 1;
            let found = interest.look(wait)?;
            if found == 0 {
                continue;
            }
            interest.told.bits = found;
            events.push((u32::from(found), interest.data));
            if interest.events & raw::EPOLLONESHOT != 0 {
                interest.events &= !WHAT;
            }
        }
        if seen < list.len() {
            list.rotate_left(seen);
        }
        Ok(events)
    }
}

/// `epoll_wait` and its kin, until a deadline.
pub fn wait(process: &mut Process, at: i32, into: u64, most: u64, deadline: Option<u64>) -> Answer {
    if most as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let most = u64::from(most as u32).min(EVENTS_MAX);
    let holder = process.files.get(at)?;
    let epoll = epoll_of(&holder)?;
    loop {
        net::tend(process);
        let mut wait = Wait::new();
        wait.events(EVENT_LOOK);
        let events = epoll.take(most as usize, &mut wait)?;
        if !events.is_empty() {
            let mut bytes = Vec::with_capacity(events.len() * EVENT_BYTES as usize);
            for (bits, data) in &events {
                bytes.extend_from_slice(&bits.to_le_bytes());
                bytes.extend_from_slice(&data.to_le_bytes());
            }
            user::write_bytes(into, &bytes)?;
            return Ok(events.len() as u64);
        }
        if deadline.is_some_and(|deadline| deadline <= xok::clock::now_ns()) {
            return Ok(0);
        }
        match sleep_until(process, &wait, deadline.unwrap_or(0)) {
            Ok(Woken::Ready | Woken::TimedOut) => {}
            Err(RESTART) => return Err(RESTART_UNLESS_HANDLED),
            Err(errno) => return Err(errno),
        }
    }
}

/// `epoll_wait(epoll, events, most, milliseconds)`, `epoll_pwait` with a mask and its size.
pub fn wait_milliseconds(process: &mut Process, words: [u64; 6]) -> Answer {
    let [at, into, most, milliseconds, mask, size] = words;
    poll::use_mask(mask, size)?;
    let deadline = poll::deadline_in(milliseconds as i32);
    wait(process, at as i32, into, most, deadline)
}

/// `epoll_pwait2(epoll, events, most, timeout, mask, size)`
pub fn wait_timespec(process: &mut Process, words: [u64; 6]) -> Answer {
    let [at, into, most, timeout, mask, size] = words;
    let deadline = poll::deadline_from(timeout, 1)?;
    poll::use_mask(mask, size)?;
    wait(process, at as i32, into, most, deadline)
}
