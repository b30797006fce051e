//! A process's page of the process table: published, so that `ps` needs no call.
//!
//! Every environment has an application page that all may read and its owner writes; all of them
//! together are the process table. What stands here is a claim; checks use words that the kernel
//! writes.
//!
//! # Safety
//! The own page is mapped writable at `APPLICATION_PAGE` in the thread's area from the first
//! instruction on; pages of others are read from the published slot, field by field, and may change
//! meanwhile.
#![allow(unsafe_code)]

use crate::layout::APPLICATION_PAGE;
use crate::thread;
use abi::id::{DomainId, EnvId};
use abi::published::{EnvRecord, EnvState, Table};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use linux_raw_sys::general as linux;
use lockfree::versions;
use xok::published;

pub use unix::process_page::{
    CALLS, COMMAND_BYTES, FILES_BYTES, HELD, HELD_ANY, MAGIC, Mark, PATH_BYTES, PLACED, Placed,
    ProcessPage, THREAD_MAGIC,
};

/// The running process's own page. A vfork child has one of its own, too.
pub fn own() -> &'static mut ProcessPage {
    // SAFETY: head of the file; one function writes at a time.
    unsafe { &mut *((thread::process().area + APPLICATION_PAGE) as *mut ProcessPage) }
}

/// A copy of the page of the environment at `index`, if a Linux process filled it.
pub fn of_index(index: usize) -> Option<ProcessPage> {
    if published::application_word(index, 0) != Some(MAGIC) {
        return None;
    }
    published::record(Table::ApplicationPages, index)
}

/// A 32-bit word of the page of a live process.
fn field(index: usize, offset: usize) -> Option<u32> {
    Some(published::application(index)?.half(offset))
}

/// What is often asked of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief {
    /// Its id.
    pub id: EnvId,
    /// Process group.
    pub group: u32,
    /// Session.
    pub session: u32,
    /// Signal that stopped it.
    pub stop_signal: u32,
    /// Times it was stopped.
    pub stop_count: u32,
    /// Times it was continued.
    pub continue_count: u32,
    /// Dead, to be waited for.
    pub dead: bool,
}

/// Is it an environment of a Linux process? Its brief.
pub fn brief_of(record: &EnvRecord) -> Option<Brief> {
    let id = EnvId(record.id);
    let index = id.index();
    if record.id == 0 || published::application_word(index, 0) != Some(MAGIC) {
        return None;
    }
    let word = |offset| field(index, offset).unwrap_or(0);
    Some(Brief {
        id,
        group: word(core::mem::offset_of!(ProcessPage, group)),
        session: word(core::mem::offset_of!(ProcessPage, session)),
        stop_signal: stop_signal_that_can_be(word(core::mem::offset_of!(ProcessPage, stop_signal))),
        stop_count: word(core::mem::offset_of!(ProcessPage, stop_count)),
        continue_count: word(core::mem::offset_of!(ProcessPage, continue_count)),
        dead: record.state == EnvState::Dead as u32,
    })
}

/// A signal that stops, or 0, or in place of any other number the one that no process can refuse: a
/// page says what its owner likes.
fn stop_signal_that_can_be(signal: u32) -> u32 {
    match signal {
        0 | linux::SIGSTOP | linux::SIGTSTP | linux::SIGTTIN | linux::SIGTTOU => signal,
        _ => linux::SIGSTOP,
    }
}

/// The brief of the process with this id.
pub fn brief(id: EnvId) -> Option<Brief> {
    published::env(id).and_then(|record| brief_of(&record))
}

/// Has a process taken over the group that the order of this number put it into? One that has
/// executed a program follows no more (setpgid(2)).
pub fn has_followed(id: EnvId, order: u32) -> bool {
    let word = |offset| field(id.index(), offset).unwrap_or(0);
    word(core::mem::offset_of!(ProcessPage, followed)) >= order || has_executed(id)
}

/// Has a process executed a program since it was forked?
pub fn has_executed(id: EnvId) -> bool {
    field(id.index(), core::mem::offset_of!(ProcessPage, executed)).unwrap_or(0) != 0
}

/// Offset of the orders that a process has given its children.
const PLACED_AT: usize = core::mem::offset_of!(ProcessPage, placed);
const _: () = assert!(PLACED_AT.is_multiple_of(8));
/// Times that orders are read until they have stood still.
const READS: usize = 4;

/// Tells a child into which group it is put; the number of the order. The number is written last.
pub fn tell_child(child: u32, group: u32) -> u32 {
    let page = own();
    page.orders = page.orders.wrapping_add(1).max(1);
    let order = page.orders;
    let is_done = |order: &Placed| {
        let id = EnvId(order.child);
        !published::env_lives(id) || has_followed(id, order.order)
    };
    let at = Placed::place_for(&page.placed, child, is_done);
    let place = &mut page.placed[at];
    let words = [(&mut place.order, 0), (&mut place.child, child), (&mut place.group, group)];
    for (word, value) in words {
        // SAFETY: an aligned word of our own page, which others only read.
        unsafe { AtomicU32::from_ptr(word) }.store(value, Ordering::SeqCst);
    }
    // SAFETY: as above.
    unsafe { AtomicU32::from_ptr(&mut place.order) }.store(order, Ordering::SeqCst);
    order
}

/// The last order that `parent` has given `child`, if it has written it wholly.
pub fn order_for(parent: EnvId, child: u32) -> Option<Placed> {
    // Mostly there is none. One that is being written is followed when its doorbell rings.
    let page = published::application(parent.index())?;
    let child_of = |at| page.half(PLACED_AT + at * size_of::<Placed>());
    if !(0..PLACED).any(|at| child_of(at) == child) {
        return None;
    }
    let read = || {
        let mut orders = [Placed::NONE; PLACED];
        for (at, order) in orders.iter_mut().enumerate() {
            let word = |offset: usize| {
                field(parent.index(), PLACED_AT + at * size_of::<Placed>() + offset).unwrap_or(0)
            };
            *order = Placed {
                child: word(core::mem::offset_of!(Placed, child)),
                group: word(core::mem::offset_of!(Placed, group)),
                order: word(core::mem::offset_of!(Placed, order)),
            };
        }
        orders
    };
    let mut seen = read();
    for _ in 0..READS {
        let again = read();
        if again == seen {
            return Placed::last_for(&seen, child);
        }
        seen = again;
    }
    None
}

/// What a process says is its session's terminal.
pub fn terminal(id: EnvId) -> Option<Mark> {
    let page = published::application(id.index())?;
    let number = page.half(core::mem::offset_of!(ProcessPage, terminal));
    let settings = page.word(core::mem::offset_of!(ProcessPage, terminal_settings));
    Some(Mark { number, settings })
}

/// Every Linux process, the dead not yet waited for included.
pub fn all() -> impl Iterator<Item = Brief> {
    let count = published::table(Table::Envs).count as usize;
    (1..count).filter_map(|index| {
        let record: EnvRecord = published::record(Table::Envs, index)?;
        brief_of(&record)
    })
}

/// What stands at the start of the page of a thread that is not its process's first one.
pub fn thread_head(process: EnvId) -> [u64; 2] {
    [THREAD_MAGIC, u64::from(process.0)]
}

/// The other threads of a process, those of them that are in `domain`.
pub fn threads_of(process: EnvId, domain: DomainId) -> impl Iterator<Item = EnvId> {
    let count = published::table(Table::Envs).count as usize;
    (1..count).filter_map(move |index| {
        let record: EnvRecord = published::record(Table::Envs, index)?;
        let is_thread = published::application_word(index, 0) == Some(THREAD_MAGIC)
            && published::application_word(index, 8) == Some(u64::from(process.0));
        (record.id != 0 && record.domain == domain.0 && is_thread).then_some(EnvId(record.id))
    })
}

/// All environments in `domain`.
pub fn environments_of(domain: DomainId) -> impl Iterator<Item = EnvId> {
    let count = published::table(Table::Envs).count as usize;
    let records = (1..count).filter_map(|index| published::record(Table::Envs, index));
    let there = records.filter(move |record: &EnvRecord| {
        record.id != 0 && record.domain == domain.0 && record.state != EnvState::Dead as u32
    });
    there.map(|record| EnvId(record.id))
}

/// Offset of the word that says which shared futex a thread sleeps for, in every thread's page.
const FUTEX: usize = core::mem::offset_of!(ProcessPage, futex);

/// Says that the running thread sleeps for the shared futex `key`, 0: for none.
pub fn set_futex(key: u64) {
    let place = (thread::area() + APPLICATION_PAGE) as usize + FUTEX;
    // SAFETY: a word of the thread's own page, which others only read; aligned, as the page is.
    unsafe { AtomicU64::from_ptr(place as *mut u64) }.store(key, Ordering::SeqCst);
}

/// The threads, of whatever process, that say they sleep for the shared futex `key`.
pub fn sleepers_for(key: u64) -> impl Iterator<Item = EnvId> {
    let count = published::table(Table::Envs).count as usize;
    (1..count).filter_map(move |index| {
        let record: EnvRecord = published::record(Table::Envs, index)?;
        let magic = published::application_word(index, 0);
        let is_thread = magic == Some(MAGIC) || magic == Some(THREAD_MAGIC);
        let sleeps = is_thread && published::application_word(index, FUTEX) == Some(key);
        (sleeps && record.id != 0).then_some(EnvId(record.id))
    })
}

/// Offset of the words that say which files of the memory file server are open here.
const HELD_AT: usize = core::mem::offset_of!(ProcessPage, held);

/// One of the process's words that say which files it has open; given back when dropped.
#[derive(Debug)]
pub struct Hold(&'static AtomicU64);

impl Hold {
    /// Takes a word, if one is free, and says what is held: who then looks at versions, or asks the
    /// server, is seen by it.
    pub fn take(held: u64) -> Option<Self> {
        let first = (thread::process().area + APPLICATION_PAGE) as usize + HELD_AT;
        (0..HELD)
            // SAFETY: words of the process's own page, which others only read; aligned, as the page
            // is. They outlive whoever holds one: a vfork child ends, and drops its files, before
            // its pages go.
            .map(|at| unsafe { AtomicU64::from_ptr((first + 8 * at) as *mut u64) })
            .find(|word| word.load(Ordering::Relaxed) == 0)
            .map(|word| {
                versions::say(word, held);
                Self(word)
            })
    }

    /// Says that something else is held from now on.
    pub fn set(&self, held: u64) {
        versions::say(self.0, held);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        versions::say(self.0, 0);
    }
}

/// Notes that the process stops by `signal`.
pub fn set_stopped(signal: u32) {
    let page = own();
    page.stop_signal = signal;
    page.stop_count = page.stop_count.wrapping_add(1);
}

/// Notes that it goes on.
pub fn set_continued() {
    let page = own();
    page.stop_signal = 0;
    page.continue_count = page.continue_count.wrapping_add(1);
}

/// Counts a call that is not supported.
pub fn count_unsupported(number: u64) {
    if let Some(count) = own().unsupported.get_mut(number as usize) {
        *count = count.saturating_add(1);
    }
}

/// Sets the process's name.
pub fn set_name(name: &[u8]) {
    fill_name(own(), name);
}

fn fill_name(page: &mut ProcessPage, name: &[u8]) {
    let len = name.len().min(15);
    page.name = [0; 16];
    page.name[..len].copy_from_slice(&name[..len]);
}

/// Sets what a process executes: the file's path, the path that was asked for (the name comes from
/// it), the arguments, each with its NUL.
pub fn fill_command(page: &mut ProcessPage, path: &[u8], asked: &[u8], command: &[u8]) {
    let len = command.len().min(COMMAND_BYTES);
    page.command[..len].copy_from_slice(&command[..len]);
    page.command_len = len as u32;
    let len = path.len().min(PATH_BYTES);
    page.path[..len].copy_from_slice(&path[..len]);
    page.path_len = len as u32;
    fill_name(page, asked.rsplit(|&byte| byte == b'/').next().unwrap_or(asked));
}

/// An empty page of a Linux process.
pub fn empty() -> ProcessPage {
    ProcessPage { magic: MAGIC, parent: 1, threads: 1, umask: 0o22, ..ProcessPage::EMPTY }
}

/// The page's bytes, for a child's.
pub fn bytes_of(page: &ProcessPage) -> &[u8] {
    // SAFETY: plain words without padding that matters.
    unsafe {
        core::slice::from_raw_parts(core::ptr::from_ref(page).cast(), size_of::<ProcessPage>())
    }
}
