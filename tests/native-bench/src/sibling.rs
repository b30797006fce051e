//! Further environments in our own space: one that serves transfers, many that sleep.
//!
//! # Safety
//! Prepares the sibling's save area while nobody else refers to it, and enters Rust code on a
//! stack of its own.
#![allow(unsafe_code)]

use abi::id::{AccountId, DomainId, EnvId};
use abi::layout::PAGE_SIZE;
use abi::predicate::{Atom, Operator, Source};
use abi::published::EnvState;
use abi::setup::{EnvSetup, FLAG_BORROW, field};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use xok::call::{self, OWN};
use xok::memory::{DATA, Space};
use xok::published;
use xok::upcall::{Beginning, Slot};

use crate::partner::Echo;
use crate::row::Failure;

/// Where the first one's save area is, its application page and its stacks behind; the next
/// ones' [`BYTES`] further each.
const FIRST: u64 = 0x7100_0000_0000;
const STACK_PAGES: u64 = 4;
const BYTES: u64 = (2 + STACK_PAGES) * PAGE_SIZE;

/// Starts one that serves transfers.
pub fn start() -> Result<EnvId, Failure> {
    start_at(FIRST, serve)
}

/// Starts so many that sleep on predicates which never hold, and waits until they do.
pub fn start_sleepers(count: u64) -> Result<Vec<EnvId>, Failure> {
    let place = |number| FIRST + (1 + number) * BYTES;
    let sleepers: Result<Vec<EnvId>, _> =
        (0..count).map(|number| start_at(place(number), sleep)).collect();
    let sleepers = sleepers?;
    // They have no slices of their own: each comes as far as its sleep in what is left of ours.
    for env in &sleepers {
        while published::env(*env).is_some_and(|env| env.state != EnvState::Sleeping as u32) {
            call::yield_to(*env).map_err(|why| format!("yield: {why:?}"))?;
        }
    }
    Ok(sleepers)
}

/// Ends them.
pub fn end_sleepers(sleepers: Vec<EnvId>) {
    let count = sleepers.len() as u64;
    sleepers.into_iter().for_each(crate::partner::end);
    // Whoever measures next has a space without them.
    let _ = Space::own().unmap(FIRST + BYTES, count * BYTES / PAGE_SIZE);
}

fn start_at(save_area: u64, entry: extern "C" fn() -> !) -> Result<EnvId, Failure> {
    let mut own = Space::own();
    own.allocate_zeroed(save_area, BYTES / PAGE_SIZE, DATA).map_err(|why| format!("{why:?}"))?;
    let (application_page, first_stack) = (save_area + PAGE_SIZE, save_area + 2 * PAGE_SIZE);
    let top = save_area + BYTES;
    // One page for each depth of handlers would be enough; no event comes to who is masked.
    let stacks = [1, 1, 1, 1].map(|depth: u64| first_stack + depth * PAGE_SIZE);
    let beginning = Beginning { save_area, stacks, handler: ignore, trivial: &[], sample: 0 };
    // SAFETY: the page was mapped above, zeroed, and is known to nobody yet.
    unsafe { xok::upcall::prepare(save_area, &beginning) };
    let env = call::env_alloc(OWN, DomainId::NONE, AccountId::NONE)
        .map_err(|why| format!("env_alloc: {why:?}"))?;
    let setup = EnvSetup {
        rip: entry as *const () as u64,
        // As after a call, which pushes a return address.
        rsp: top - 8,
        gs_base: save_area,
        flags: FLAG_BORROW,
        save_area,
        application_page,
        ..EnvSetup::default()
    };
    let fields = field::RIP
        | field::RSP
        | field::GS_BASE
        | field::FLAGS
        | field::SAVE_AREA
        | field::APPLICATION_PAGE;
    call::env_set(OWN, env, fields, &setup).map_err(|why| format!("env_set: {why:?}"))?;
    call::env_release(OWN, env).map_err(|why| format!("release: {why:?}"))?;
    Ok(env)
}

extern "C" fn serve() -> ! {
    xok::server::run(Box::leak(Box::new(Echo)))
}

/// Sleeps for ever: on a predicate that wants the clock to be zero.
extern "C" fn sleep() -> ! {
    let never = Atom {
        operator: Operator::Equal as u8,
        left: Source::Clock as u8,
        right: Source::Constant as u8,
        last: 1,
        ..Atom::default()
    };
    loop {
        if let Err(why) = call::predicate_set(&[never]).and_then(|_| call::sleep(0, 0, 0, 0)) {
            xok::log!(0, "fatal sleeper: {why:?}");
            call::exit(1 << 8);
        }
    }
}

extern "C" fn ignore(slot: &mut Slot, _cause: u64, _address: u64) {
    slot.mask = 1;
}
