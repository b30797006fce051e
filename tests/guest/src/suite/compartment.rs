//! One environment in several protection domains: `DomainSwitch`, and the library on it.

use super::roles;
use crate::abroad::{self, Found, MESSAGE};
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::domain::Property;
use abi::error::Error;
use abi::id::{DomainId, EnvId};
use abi::layout::{PAGE_SIZE, PROGRAM_END};
use abi::setup::{EnvSetup, field};
use abi::upcall::Cause;
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN, Refused};
use xok::compartment::Compartment;
use xok::memory::{DATA, Space};
use xok::published;
use xok::start::{APPLICATION_PAGE, SAVE_AREA};

/// A page that is hidden, one that is another's there, one that both have.
const SECRET: u64 = SCRATCH;
const DOUBLE: u64 = SCRATCH + PAGE_SIZE;
const COMMON: u64 = SCRATCH + 2 * PAGE_SIZE;
/// The guest program's own environment.
const SELF: EnvId = EnvId(1);

fn said(refused: Refused) -> Failure {
    format!("{refused:?}")
}

/// Where this program is, and where it is at home.
fn whereabouts() -> (u64, u64) {
    published::env(SELF).map_or((0, 0), |record| (record.domain, record.home))
}

/// What ran there left in the common page: what it found, where it was, how a post was answered.
const RESULTS: u64 = 8;

/// Stores `value` to the common page, and what it finds in the double one; posts to itself.
extern "C" fn look(value: u64, _: u64, _: u64) -> u64 {
    faults::store(COMMON, value as u8);
    let first = faults::load(DOUBLE).map_or(u64::MAX, u64::from);
    faults::store(DOUBLE, value as u8);
    let (domain, home) = whereabouts();
    let posted = call::post(OWN, SELF, 1 << 40);
    let words = [first, domain, home, posted.is_ok().into()];
    for (at, word) in words.into_iter().enumerate() {
        let at = COMMON + RESULTS + 8 * at as u64;
        word.to_le_bytes().into_iter().zip(at..).for_each(|(byte, at)| {
            faults::store(at, byte);
        });
    }
    value + 1
}

fn word(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    for (byte, at) in bytes.iter_mut().zip(address..) {
        *byte = faults::load(at)?;
    }
    Some(u64::from_le_bytes(bytes))
}

/// aegis95 S25c: code in a compartment finds what it was shown and nothing else, at the speed of a
/// change of space; its environment's slices and identity go along, its events wait at home.
pub fn sees_what_it_is_shown(_: &Ground) -> Result<String, Failure> {
    let mut own = Space::own();
    own.allocate_zeroed(SECRET, 3, DATA).map_err(said)?;
    faults::store(SECRET, 11);
    faults::store(DOUBLE, 22);
    let (hidden, lent) = (SECRET..COMMON, COMMON..COMMON + PAGE_SIZE);
    let mut compartment = Compartment::but_for(&[hidden], &[lent]).map_err(said)?;
    compartment.space().allocate_zeroed(DOUBLE, 1, DATA).map_err(said)?;
    let home = whereabouts();
    expect!(home.0 != 0 && home.1 == 0, "at home: {home:?}");
    for round in 0..100 {
        faults::forget_bits();
        let answer = compartment.run(look, [round, 0, 0]).map_err(said)?;
        expect!(answer == round + 1, "round {round} answers {answer}");
        let results = [0, 1, 2, 3].map(|at| word(COMMON + RESULTS + 8 * at));
        let there = (compartment.domain().0, home.0);
        let expected = [round.saturating_sub(1), there.0, there.1, 1].map(Some);
        expect!(results == expected, "round {round}: {results:?}");
        let bits = faults::seen().posted_bits;
        expect!(bits == 1 << 40, "delivered at home: {bits:#x}");
        expect!(whereabouts() == home, "back at {:?}", whereabouts());
        let found = [SECRET, DOUBLE, COMMON].map(faults::load);
        expect!(found == [Some(11), Some(22), Some(round as u8)], "at home: {found:?}");
    }
    let domain = compartment.domain();
    drop(compartment);
    expect!(call::domain_switch(OWN, domain, [0; 5]).is_err(), "it has ended");
    own.unmap(SECRET, 3).map_err(said)?;
    Ok(String::new())
}

/// The same: who enters arrives where the domain says, with nothing in registers but the message;
/// and though the code there fills every register, home goes on behind its call, on its own stack.
pub fn entered_by_its_message(_: &Ground) -> Result<String, Failure> {
    let compartment = Compartment::but_for(&[], &[abroad::page()]).map_err(said)?;
    let (there, home) = (compartment.domain(), whereabouts().0);
    call::domain_set(OWN, there, Property::Entry, abroad::entry()).map_err(said)?;
    let features = published::directory().features;
    let bases = features & abi::published::FEATURE_FSGSBASE != 0;
    for round in 0..3 {
        let (found, back, stack) = abroad::visit(there, bases);
        let message = Found {
            rcx: u64::from(SELF.0),
            rdx: MESSAGE + 1,
            rsi: bases.into(),
            r8: MESSAGE + 2,
            r9: MESSAGE + 3,
            r10: MESSAGE + 4,
            ..Found::CLEAR
        };
        let expected = Found { rdi: home, ..message };
        expect!(found == expected, "round {round}, there: {found:x?}");
        let gs_base = if bases { SAVE_AREA } else { 0 };
        let expected = Found { rdi: there.0, rsp: stack, gs_base, ..message };
        expect!(back == expected, "round {round}, at home: {back:x?}");
    }
    // A domain that names no entry point admits nobody, whatever the visitor holds.
    call::domain_set(OWN, there, Property::Entry, 0).map_err(said)?;
    let refused = call::domain_switch(OWN, there, [0; 5]);
    expect!(refused == Err((Error::WrongState, 0)), "without an entry: {refused:?}");
    for address in [1 << 47, !0, PROGRAM_END - PAGE_SIZE] {
        let refused = call::domain_set(OWN, there, Property::Entry, address);
        expect!(refused == Err((Error::BadAddress, 0)), "{address:#x}: {refused:?}");
    }
    Ok(String::new())
}

/// Loads or stores at an address.
extern "C" fn touch(address: u64, stores: u64, _: u64) -> u64 {
    if stores != 0 {
        return faults::store(address, 1).into();
    }
    faults::load(address).map_or(u64::MAX, u64::from)
}

extern "C" fn undefined(_: u64, _: u64, _: u64) -> u64 {
    faults::illegal()
}

/// The same: a fault there runs no handler of the visitor's, nor one at an address of the other
/// side's choice: it ends the visit, and home is told why.
pub fn faults_come_home(_: &Ground) -> Result<String, Failure> {
    let mut own = Space::own();
    own.allocate_zeroed(SECRET, 3, DATA).map_err(said)?;
    let (hidden, lent) = (SECRET..DOUBLE, COMMON..COMMON + PAGE_SIZE);
    let mut compartment = Compartment::but_for(&[hidden], &[lent]).map_err(said)?;
    let home = whereabouts();
    let before = faults::seen().count;
    let page_fault = Err((Error::Dead, Cause::PageFault as u64));
    // What is hidden, what is shown to be read, the save area, this stack; the kernel's half.
    let stack = core::ptr::from_ref(&before) as u64;
    let static_data = core::ptr::from_ref(&TESTED) as u64;
    for (address, stores) in [
        (SECRET, 0),
        (SECRET, 1),
        (DOUBLE, 1),
        (static_data, 1),
        (SAVE_AREA, 0),
        (APPLICATION_PAGE, 1),
        (1 << 47, 0),
    ] {
        let ended = compartment.run(touch, [address, stores, 0]);
        let canonical = address != 1 << 47;
        let protection = Err((Error::Dead, Cause::Protection as u64));
        let expected = if canonical { page_fault } else { protection };
        expect!(ended == expected, "{address:#x} ({stores}): {ended:?}");
        expect!(whereabouts() == home, "{address:#x}: at {:?}", whereabouts());
    }
    let seen = compartment.run(touch, [stack, 0, 0]);
    expect!(seen == Ok(0), "this stack reads {seen:?}");
    for (address, stores) in [(DOUBLE, 0), (COMMON, 1)] {
        let seen = compartment.run(touch, [address, stores, 0]);
        expect!(seen == Ok(stores), "{address:#x}: {seen:?}");
    }
    let ended = compartment.run(undefined, [0; 3]);
    let expected = Err((Error::Dead, Cause::IllegalInstruction as u64));
    expect!(ended == expected, "an undefined instruction: {ended:?}");
    let count = faults::seen().count;
    expect!(count == before, "{} faults were handled", count - before);
    // At home they are handled as ever.
    expect!(faults::load(DOUBLE + 16 * PAGE_SIZE).is_none(), "nothing is there");
    expect!(faults::seen().count == before + 1, "the handler at home");
    own.unmap(SECRET, 3).map_err(said)?;
    Ok(String::new())
}

static TESTED: u64 = 0;

/// What code abroad would like to change; how many calls were done.
extern "C" fn change(_: u64, _: u64, _: u64) -> u64 {
    let setup = EnvSetup::default();
    let entries = field::FAULT_ENTRY | field::EVENT_ENTRY | field::SYNC_ENTRY;
    let atoms = [];
    let answers = [
        call::env_set(OWN, EnvId::NONE, entries, &setup),
        call::env_set(OWN, EnvId::NONE, field::FLAGS, &setup),
        call::predicate_set(&atoms),
        call::timer_set(1),
    ];
    answers.into_iter().filter(|answer| *answer != Err((Error::WrongState, 0))).count() as u64
}

/// The same: code abroad has the environment, not what that is at home.
pub fn leaves_home_alone(_: &Ground) -> Result<String, Failure> {
    let mut compartment = Compartment::but_for(&[], &[]).map_err(said)?;
    let done = compartment.run(change, [0; 3]);
    expect!(done == Ok(0), "changed at home: {done:?}");
    let before = faults::seen().count;
    expect!(faults::load(SCRATCH).is_none(), "nothing is there");
    expect!(faults::seen().count == before + 1, "the handler at home");
    Ok(String::new())
}

/// The same: whom one holds no name of, what has ended, and what admits nobody, one does not go to;
/// and nothing is changed by the attempt.
pub fn domain_of_others_is_refused(ground: &Ground) -> Result<String, Failure> {
    let home = whereabouts();
    let (domain, own) = (DomainId(home.0), call::domain_switch(OWN, DomainId::NONE, [0; 5]));
    expect!(own == Err((Error::NoSuchDomain, 0)), "no domain: {own:?}");
    let here = call::domain_switch(OWN, domain, [0; 5]);
    expect!(here == Err((Error::WrongState, 0)), "where one is: {here:?}");
    // The assistant's domain is guarded by our name; a slot with another name has no say.
    let other = assistant::spawn(ground.image, roles::LOAD_THEN_STORE, [0; 6], &[])?;
    call::capability_derive(OWN, DomainId::NONE, 9, &[77], abi::capability::ALL).map_err(said)?;
    let foreign = call::domain_switch(9, other.domain, [0; 5]);
    expect!(foreign == Err((Error::NotPermitted, 0)), "another's: {foreign:?}");
    // It names no entry point.
    let strange = call::domain_switch(OWN, other.domain, [0; 5]);
    expect!(strange == Err((Error::WrongState, 0)), "without an entry: {strange:?}");
    call::capability_drop(9).map_err(said)?;
    call::env_destroy(OWN, other.env, 0).map_err(said)?;
    assistant::wait(other.env)?;
    let ended = call::domain_switch(OWN, other.domain, [0; 5]);
    expect!(ended == Err((Error::NoSuchDomain, 0)), "one that has ended: {ended:?}");
    expect!(whereabouts() == home, "refused, and at {:?}", whereabouts());
    Ok(String::new())
}
