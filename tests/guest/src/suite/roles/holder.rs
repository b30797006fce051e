//! Roles that hold a capability, or a token for one, and try how far it goes.

use super::{SPOT, mirror, own_index};
use crate::faults;
use abi::capability::{ALL, READ};
use abi::error::Error;
use abi::id::{DomainId, Frame};
use abi::memory::{NO_EXECUTE, Operation};
use xok::call::{self, Refused};
use xok::memory::{DATA, Space, item};
use xok::published::application_word;

/// Enters the token in the application page of the environment at its first word, and enters the
/// frame in its second by it.
pub const ENTER_TOKEN: u64 = 20;
/// Enters pages of the frame in its first word by slot 5, until that is taken back.
pub const MAP_UNTIL_RETRACTED: u64 = 21;
/// Holds the frame in its first word by slot 5 for reading and writing, and tries to own it.
pub const BEHAVE_AS_OWNER: u64 = 22;
/// The report when all was as it should be.
pub const HOLDER_CONTENT: u64 = 0x600d;
/// Where the judge puts a token in its application page.
pub const TOKEN_AT: usize = 64;
/// The slot used.
pub const SLOT: u8 = 5;

fn map(capability: u8, frame: u32, choice: u64) -> Result<u64, Refused> {
    let change = item(Operation::Map, 1, SPOT, frame, choice);
    call::table_update(capability, DomainId::NONE, &[change])
}

fn not_permitted<T>(answer: Result<T, Refused>) -> bool {
    matches!(answer, Err((Error::NotPermitted, _)))
}

/// A number is what failed; an entered token's error is 0x100 and the error.
pub fn enter_token(from: usize, frame: u32) -> u64 {
    let word = |at: usize| application_word(from, TOKEN_AT + 8 * at).unwrap_or(0);
    let token = [word(0), word(1), word(2)];
    for bit in 0..192 {
        let mut forged = token;
        forged[bit / 64] ^= 1 << (bit % 64);
        if !not_permitted(call::capability_enter(SLOT.into(), forged)) {
            return 0x1000 + bit as u64;
        }
    }
    if let Err((error, _)) = call::capability_enter(SLOT.into(), token) {
        return 0x100 + error as u64;
    }
    if Space::own().tables_to(SPOT, 1).is_err() {
        return 1;
    }
    if !not_permitted(map(SLOT, frame, DATA)) {
        return 2;
    }
    if map(SLOT, frame, NO_EXECUTE).is_err() {
        return 3;
    }
    if faults::load(SPOT) != Some(77) || faults::store(SPOT, 1) {
        return 4;
    }
    HOLDER_CONTENT
}

pub fn map_until_retracted(frame: u32) -> u64 {
    if Space::own().tables_to(SPOT, 1).is_err() {
        return 1;
    }
    let mut mapped = 0;
    loop {
        match map(SLOT, frame, NO_EXECUTE) {
            Ok(_) => mapped += 1,
            Err((Error::NoSuchCapability, _)) if mapped > 0 => break,
            Err((error, _)) => return 0x100 + error as u64,
        }
        mirror::set_application_word(mapped);
        let clear = item(Operation::Unmap, 1, SPOT, 0, 0);
        if call::table_update(call::OWN, DomainId::NONE, &[clear]).is_err() {
            return 2;
        }
    }
    // What the domain was made with stays its own.
    let own = Space::own().allocate(SPOT, 1, DATA);
    if own.is_ok() && faults::store(SPOT, 1) { HOLDER_CONTENT } else { 3 }
}

pub fn behave_as_owner(frame: u32) -> u64 {
    // The index is found by a look at everybody's pages: not by a right over anybody.
    if own_index() == 0
        || Space::own().tables_to(SPOT, 1).is_err()
        || map(SLOT, frame, DATA).is_err()
    {
        return 1;
    }
    let tries = [
        call::frame_revoke(SLOT, Frame(frame)),
        call::capability_retract(SLOT, &[]),
        call::capability_derive(SLOT, DomainId::NONE, 6, &[], ALL),
        call::capability_token(SLOT).map(|_| 0),
    ];
    for (number, answer) in tries.iter().enumerate() {
        if !not_permitted(*answer) {
            return 0x10 + number as u64;
        }
    }
    let take = item(Operation::Allocate, 1, SPOT + 4096, frame, DATA);
    let taken = call::table_update(SLOT, DomainId::NONE, &[take]);
    if !matches!(taken, Err((Error::Taken, _))) {
        return 2;
    }
    // Giving one's own binding back frees nothing of the owner's.
    let clear = item(Operation::Unmap, 1, SPOT, 0, 0);
    if !faults::store(SPOT, 78) || call::table_update(SLOT, DomainId::NONE, &[clear]).is_err() {
        return 3;
    }
    if call::capability_derive(SLOT, DomainId::NONE, 6, &[1], READ).is_err() {
        return 4;
    }
    HOLDER_CONTENT
}
