//! A process's page of the process table: published, so that `ps` needs no call.
//!
//! Every environment has an application page that all may read and its owner writes; all of them
//! together are the process table. What stands here is a claim (`crate::said`); checks use words
//! that the kernel writes.
//!
//! # Safety
//! The own page is mapped writable at `APPLICATION_PAGE` in the thread's area from the first
//! instruction on.
#![allow(unsafe_code)]

use crate::layout::APPLICATION_PAGE;
use crate::said;
use crate::thread;
use abi::id::{DomainId, EnvId};
use abi::published::{EnvRecord, EnvState, Table};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
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

/// Offset of the orders that a process has given its children.
pub(crate) const PLACED_AT: usize = core::mem::offset_of!(ProcessPage, placed);
const _: () = assert!(PLACED_AT.is_multiple_of(8));

/// Tells a child into which group it is put; the number of the order. The number is written last.
pub fn tell_child(child: u32, group: u32) -> u32 {
    let page = own();
    page.orders = page.orders.wrapping_add(1).max(1);
    let order = page.orders;
    let is_done = |order: &Placed| {
        let id = EnvId(order.child);
        !published::env_lives(id) || said::has_followed(id, order.order)
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

/// What stands at the start of the page of a thread that is not its process's first one.
pub fn thread_head(process: EnvId) -> [u64; 2] {
    [THREAD_MAGIC, u64::from(process.0)]
}

/// All environments in `domain`, and those at home there that visit another one.
pub fn environments_of(domain: DomainId) -> impl Iterator<Item = EnvId> {
    let count = published::table(Table::Envs).count as usize;
    let records = (1..count).filter_map(|index| published::record(Table::Envs, index));
    let there = records.filter(move |record: &EnvRecord| {
        let is_its = [record.domain, record.home].contains(&domain.0);
        record.id != 0 && is_its && record.state != EnvState::Dead as u32
    });
    there.map(|record| EnvId(record.id))
}

/// Offset of the word that says which shared futex a thread sleeps for, in every thread's page.
pub(crate) const FUTEX: usize = core::mem::offset_of!(ProcessPage, futex);

/// Says that the running thread sleeps for the shared futex `key`, 0: for none.
pub fn set_futex(key: u64) {
    let place = (thread::area() + APPLICATION_PAGE) as usize + FUTEX;
    // SAFETY: a word of the thread's own page, which others only read; aligned, as the page is.
    unsafe { AtomicU64::from_ptr(place as *mut u64) }.store(key, Ordering::SeqCst);
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
