//! Faults whose handler lacks a page: its code, its stack, its save area.
//!
//! # Safety
//! Names a handler stack that is not there: the processor finds out, and the handler of the fault
//! that follows, which has a stack of its own, puts the page there.
#![allow(unsafe_code)]

use super::{FAULT_HANDLED, SPOT};
use crate::faults;
use abi::id::{DomainId, EnvId};
use abi::memory::Operation;
use abi::setup::{EnvSetup, field};
use abi::upcall::Cause;
use xok::call::{self, OWN};
use xok::memory::{DATA, Space, item};
use xok::start::SAVE_AREA;
use xok::upcall::{Slot, block, set_word};

/// No page has the handler's code.
pub const MISSING_CODE: u64 = 0;
/// The handler's stack is not there, but that of the handler for the fault that follows.
pub const MISSING_STACK: u64 = 1;
/// The save area is not mapped where it was.
pub const MISSING_SAVE_AREA: u64 = 2;

/// Bytes of `ud2`.
const LENGTH: u64 = 2;

extern "C" fn supply(slot: &mut Slot, cause: u64, address: u64) {
    if cause != Cause::PageFault as u64 {
        slot.rip += LENGTH;
        return;
    }
    if Space::own().allocate(address & !0xfff, 1, DATA).is_err() {
        call::exit(2);
    }
}

/// The word to leave, if it comes to that.
pub fn fault_without(what: u64) -> u64 {
    let prepared = match what {
        MISSING_CODE => {
            let setup = EnvSetup { fault_entry: SPOT, ..EnvSetup::default() };
            call::env_set(OWN, EnvId::NONE, field::FAULT_ENTRY, &setup).is_ok()
        }
        MISSING_STACK => {
            xok::start::set_handler(supply);
            let tables = Space::own().tables_to(SPOT, 1).is_ok();
            // SAFETY: see the head of the file.
            unsafe { set_word(block::STACKS, SPOT + 4096) };
            tables
        }
        _ => {
            let gone = item(Operation::Unmap, 1, SAVE_AREA, 0, 0);
            call::table_update(OWN, DomainId::NONE, &[gone]).is_ok()
        }
    };
    if !prepared {
        return 1;
    }
    faults::illegal();
    FAULT_HANDLED
}
