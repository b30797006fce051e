//! Two programs and a page or two of both: the paper's pipe, pipe′ and shm (aegis95 Table 8).
//!
//! # Safety
//! The pages are mapped here in both programs, stay as long as either uses them, and are reached
//! as ends of pipes, as boards or as one atomic word alone.
#![allow(unsafe_code)]

use abi::id::EnvId;
use abi::layout::PAGE_SIZE;
use alloc::format;
use core::sync::atomic::{AtomicU64, Ordering};
use xok::board::{Notifier, Waiter};
use xok::call;
use xok::memory::{DATA, Space};
use xok::pipe::{Reader, Writer};
use xok::spawn::Spawned;

use crate::partner::{self, Role};
use crate::row::Failure;

/// Where they lie, in either: one page for each way.
const PAGES: u64 = 0x7200_0000_0000;
/// The bit that wakes a waiter at a board.
const POSTED: u64 = 1;
/// From one condition to the next that is notified of: has no divisor in common with their numbers.
const CONDITION_STEP: usize = 1237;

/// A partner that shares the pages with us.
pub struct Pair {
    /// Its environment.
    pub env: EnvId,
    reader: Reader,
    writer: Writer,
    waiter: Waiter,
    notifier: Notifier,
    condition: usize,
}

fn ends(partner: EnvId, from: u64, to: u64) -> (Reader, Writer) {
    // SAFETY: see the file's head.
    unsafe { (Reader::at(from, partner), Writer::at(to, partner)) }
}

fn boards(partner: EnvId, capability: u8, from: u64, to: u64) -> (Waiter, Notifier) {
    // SAFETY: see the file's head.
    unsafe { (Waiter::at(from, POSTED), Notifier::at(to, partner, capability, POSTED)) }
}

fn counter() -> &'static AtomicU64 {
    // SAFETY: see the file's head.
    unsafe { &*(PAGES as *const AtomicU64) }
}

impl Pair {
    /// Starts one.
    pub fn start(image: &'static [u8], role: Role) -> Result<Pair, Failure> {
        let mut own = Space::own();
        own.allocate_zeroed(PAGES, 2, DATA).map_err(|why| format!("{why:?}"))?;
        let Spawned { env, .. } = partner::start_with(image, role, |theirs| {
            (0..2).try_for_each(|page| {
                let address = PAGES + page * PAGE_SIZE;
                let frame = xok::own::frame(address).ok_or("no frame")?;
                theirs.map(address, frame, 1, DATA).map_err(|why| format!("{why:?}"))
            })
        })?;
        let (reader, writer) = ends(env, PAGES + PAGE_SIZE, PAGES);
        let (waiter, notifier) = boards(env, call::OWN, PAGES + PAGE_SIZE, PAGES);
        Ok(Pair { env, reader, writer, waiter, notifier, condition: 0 })
    }

    /// Ends it.
    pub fn end(self) {
        partner::end(self.env);
        // The next row would be refused its own mapping.
        let _ = Space::own().unmap(PAGES, 2);
    }

    /// A word there and back, by the library's functions.
    pub fn call(&mut self) -> bool {
        let mut word = 1_u64.to_le_bytes();
        self.writer.write(&word).is_ok() && self.reader.read(&mut word) == Ok(8)
    }

    /// The same as part of the program.
    #[inline(always)]
    pub fn inlined(&mut self) -> bool {
        let mut word = 1_u64.to_le_bytes();
        self.writer.write_inlined(&word).is_ok() && self.reader.read_inlined(&mut word) == Ok(8)
    }

    /// Starts one whose posts are waited for: none shall interrupt.
    pub fn start_board(image: &'static [u8]) -> Result<Pair, Failure> {
        xok::upcall::set_mask(true);
        Self::start(image, Role::Board)
    }

    /// Ends it.
    pub fn end_board(self) {
        self.end();
        xok::upcall::set_mask(false);
    }

    /// Notifies of one of so many conditions, and is notified of the same.
    #[inline(always)]
    pub fn notify(&mut self, conditions: usize) -> bool {
        self.condition = (self.condition + CONDITION_STEP) % conditions;
        let wanted = self.condition;
        let mut told = conditions;
        let notified = self.notifier.notify(wanted).is_ok();
        notified && self.waiter.wait(0, |condition| told = condition) && told == wanted
    }

    /// Makes the counter odd, and waits until the partner has made it even.
    #[inline(always)]
    pub fn count(&mut self) -> bool {
        counter().fetch_add(1, Ordering::AcqRel);
        while !counter().load(Ordering::Acquire).is_multiple_of(2) {
            if call::yield_to(self.env).is_err() {
                return false;
            }
        }
        true
    }
}

/// The partner's part of [`Pair::call`].
pub fn echo(partner: EnvId) {
    let (mut reader, mut writer) = ends(partner, PAGES, PAGES + PAGE_SIZE);
    let mut word = [0; 8];
    while reader.read(&mut word) == Ok(8) && writer.write(&word).is_ok() {}
}

/// The partner's part of [`Pair::inlined`].
pub fn echo_inlined(partner: EnvId) {
    let (mut reader, mut writer) = ends(partner, PAGES, PAGES + PAGE_SIZE);
    let mut word = [0; 8];
    while reader.read_inlined(&mut word) == Ok(8) && writer.write_inlined(&word).is_ok() {}
}

/// The partner's part of [`Pair::notify`].
pub fn notify_back(partner: EnvId) {
    let (waiter, notifier) = boards(partner, crate::partner::GIFT, PAGES, PAGES + PAGE_SIZE);
    xok::upcall::set_mask(true);
    let mut alive = true;
    while alive {
        waiter.wait(0, |condition| alive &= notifier.notify(condition).is_ok());
    }
}

/// The partner's part of [`Pair::count`].
pub fn count(partner: EnvId) {
    loop {
        while counter().load(Ordering::Acquire).is_multiple_of(2) {
            if call::yield_to(partner).is_err() {
                return;
            }
        }
        counter().fetch_add(1, Ordering::AcqRel);
    }
}

/// Asks a server of `xok::server`'s, which keeps the registers that tlrpc leaves in its hands.
pub fn ask_trusting(server: EnvId) -> bool {
    // SAFETY: the partner is this program, and its server that of the library.
    unsafe { xok::rpc::tlrpc(server, [1, 2, 3, 4, 5, 6]) }.is_ok()
}
