//! A second environment in our own space, which serves transfers.
//!
//! # Safety
//! Prepares the sibling's save area while nobody else refers to it, and enters Rust code on a
//! stack of its own.
#![allow(unsafe_code)]

use abi::id::{AccountId, DomainId, EnvId};
use abi::layout::PAGE_SIZE;
use abi::setup::{EnvSetup, FLAG_BORROW, field};
use alloc::boxed::Box;
use alloc::format;
use xok::call::{self, OWN};
use xok::memory::{DATA, Space};
use xok::upcall::{Beginning, Slot};

use crate::partner::Echo;
use crate::row::Failure;

/// Its save area, its application page, and its stacks, one after the other.
const SAVE_AREA: u64 = 0x7100_0000_0000;
const APPLICATION_PAGE: u64 = SAVE_AREA + PAGE_SIZE;
const STACKS: u64 = SAVE_AREA + 2 * PAGE_SIZE;
const STACK_PAGES: u64 = 4;

/// Starts it.
pub fn start() -> Result<EnvId, Failure> {
    let mut own = Space::own();
    let pages = 2 + STACK_PAGES;
    own.allocate_zeroed(SAVE_AREA, pages, DATA).map_err(|why| format!("{why:?}"))?;
    let top = STACKS + STACK_PAGES * PAGE_SIZE;
    // One page for each depth of handlers would be enough; no event comes to a masked server.
    let stacks = [1, 1, 1, 1].map(|depth: u64| STACKS + depth * PAGE_SIZE);
    let beginning =
        Beginning { save_area: SAVE_AREA, stacks, handler: ignore, trivial: &[], sample: 0 };
    // SAFETY: the page was mapped above, zeroed, and is known to nobody yet.
    unsafe { xok::upcall::prepare(SAVE_AREA, &beginning) };
    let env = call::env_alloc(OWN, DomainId::NONE, AccountId::NONE)
        .map_err(|why| format!("env_alloc: {why:?}"))?;
    let setup = EnvSetup {
        rip: serve as *const () as u64,
        // As after a call, which pushes a return address.
        rsp: top - 8,
        gs_base: SAVE_AREA,
        flags: FLAG_BORROW,
        save_area: SAVE_AREA,
        application_page: APPLICATION_PAGE,
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

extern "C" fn ignore(slot: &mut Slot, _cause: u64, _address: u64) {
    slot.mask = 1;
}
