//! Capabilities on the way from one program to another: as plain data, taken back, and not owned.

use super::roles::{self, holder};
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::capability::{ALL, DERIVE, READ, WRITE};
use abi::error::Error;
use abi::id::{DomainId, Frame};
use abi::memory::{ANY_FRAME, Operation};
use abi::published::FrameRecord;
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN};
use xok::memory::{DATA, Space, item};
use xok::published;
use xok::spawn::Gift;

/// The judge's slots: all rights over the name of the tests' own, and what is passed on.
const ALL_OF_IT: u8 = 4;
const PASSED: u8 = holder::SLOT;
/// Its last component.
const BELOW: u16 = 7;

fn refused(why: call::Refused) -> Failure {
    format!("{why:?}")
}

/// A frame that the name [own, 7] guards, with 77 in its first byte.
fn guarded_frame() -> Result<Frame, Failure> {
    call::capability_derive(OWN, DomainId::NONE, ALL_OF_IT.into(), &[BELOW], ALL)
        .map_err(refused)?;
    let mut own = Space::own();
    own.tables_to(SCRATCH, 1).map_err(refused)?;
    let take = item(Operation::Allocate, 1, SCRATCH, ANY_FRAME, DATA);
    call::table_update(ALL_OF_IT, DomainId::NONE, &[take]).map_err(refused)?;
    expect!(faults::store(SCRATCH, 77), "own page");
    Ok(xok::own::frame(SCRATCH).ok_or("no frame")?)
}

fn clean_up() -> Result<String, Failure> {
    Space::own().unmap(SCRATCH, 1).map_err(refused)?;
    for slot in [ALL_OF_IT, PASSED] {
        call::capability_drop(slot.into()).map_err(refused)?;
    }
    Ok(String::new())
}

/// Puts the token of `PASSED` where everybody can read it.
fn show_token() -> Result<[u64; 3], Failure> {
    let token = call::capability_token(PASSED).map_err(refused)?;
    for (at, word) in token.iter().enumerate() {
        for (byte, value) in word.to_le_bytes().iter().enumerate() {
            let place = (holder::TOKEN_AT + 8 * at + byte) as u64;
            faults::store(xok::start::APPLICATION_PAGE + place, *value);
        }
    }
    Ok(token)
}

/// aegis95 T1: a right to read, as 24 bytes in a page that anybody reads. No call hands it over;
/// it enters what it says and nothing more, and no other bytes enter anything.
pub fn passed_as_data(ground: &Ground) -> Result<String, Failure> {
    let frame = guarded_frame()?;
    call::capability_derive(ALL_OF_IT, DomainId::NONE, PASSED.into(), &[], READ | DERIVE)
        .map_err(refused)?;
    show_token()?;
    let own = roles::own_index() as u64;
    let words = [own, frame.0.into(), 0, 0, 0, 0];
    let stranger = assistant::spawn(ground.image, roles::holder::ENTER_TOKEN, words, &[])?;
    let word = assistant::finish(stranger)?;
    expect!(word == holder::HOLDER_CONTENT, "the stranger reports {word:#x}");
    // Taken back: the same bytes are worth nothing.
    call::capability_retract(OWN, &[BELOW]).map_err(refused)?;
    let late = assistant::spawn(ground.image, roles::holder::ENTER_TOKEN, words, &[])?;
    let word = assistant::finish(late)?;
    let stale = 0x100 + Error::NotPermitted as u64;
    expect!(word == stale, "who came too late reports {word:#x}");
    clean_up()
}

/// Issue of revocation: what was granted is taken back with all below it, on every processor,
/// while its holder uses it.
pub fn retracted(ground: &Ground) -> Result<String, Failure> {
    let frame = guarded_frame()?;
    let gift = Gift { from: ALL_OF_IT, slot: PASSED.into(), extend: &[], rights: READ };
    let words = [frame.0.into(), 0, 0, 0, 0, 0];
    let role = roles::holder::MAP_UNTIL_RETRACTED;
    let child = assistant::spawn(ground.image, role, words, &[gift])?;
    let cpus = published::directory().cpus;
    if cpus > 1 {
        call::slice_alloc(OWN, 1, Which::Any, child.env).map_err(refused)?;
    }
    assistant::start(child)?;
    let used = || published::application_word(child.env.index(), 0).is_some_and(|n| n > 10);
    super::sched::until(used, "the child to use it")?;
    call::capability_retract(OWN, &[BELOW]).map_err(refused)?;
    let word = assistant::wait(child.env)?;
    expect!(word == holder::HOLDER_CONTENT, "the child reports {word:#x}");
    expect!(faults::load(SCRATCH) == Some(77), "the asker's own binding has gone");
    clean_up()?;
    Ok(format!("({cpus} processors)"))
}

/// aegis95 T2: who may write a frame and does not own it can neither free it nor change who may.
pub fn owner_rule(ground: &Ground) -> Result<String, Failure> {
    let frame = guarded_frame()?;
    let rights = READ | WRITE;
    let gift = Gift { from: ALL_OF_IT, slot: PASSED.into(), extend: &[], rights };
    let words = [frame.0.into(), 0, 0, 0, 0, 0];
    let role = roles::holder::BEHAVE_AS_OWNER;
    let child = assistant::spawn(ground.image, role, words, &[gift])?;
    let word = assistant::finish(child)?;
    expect!(word == holder::HOLDER_CONTENT, "the child reports {word:#x}");
    expect!(faults::load(SCRATCH) == Some(78), "what it may write it has written");
    let number = frame.0 as usize;
    let record = published::record::<FrameRecord>(abi::published::Table::Frames, number);
    let own = record.is_some_and(|record| record.account != 0);
    expect!(own, "the frame's record is {record:?}");
    clean_up()
}
