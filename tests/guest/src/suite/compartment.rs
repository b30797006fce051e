//! One environment in several protection domains: `DomainSwitch`, and the library on it.

use super::roles;
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::error::Error;
use abi::id::{DomainId, EnvId};
use abi::layout::PAGE_SIZE;
use abi::memory::{NO_EXECUTE, Operation};
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN, Refused};
use xok::compartment::Compartment;
use xok::memory::{DATA, Space, item};
use xok::published;
use xok::start::SAVE_AREA;

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

/// aegis95 S25c: code in a compartment finds what it was shown and nothing else, at the speed of a
/// change of space; registers, stack, events and faults go along, and back.
pub fn compartment_sees_what_it_is_shown(_: &Ground) -> Result<String, Failure> {
    let mut own = Space::own();
    own.allocate_zeroed(SECRET, 3, DATA).map_err(said)?;
    faults::store(SECRET, 11);
    faults::store(DOUBLE, 22);
    let hidden = SECRET..COMMON;
    let mut compartment = Compartment::but_for(&[hidden]).map_err(said)?;
    compartment.space().allocate_zeroed(DOUBLE, 1, DATA).map_err(said)?;
    let home = whereabouts();
    expect!(home.0 != 0 && home.1 == 0, "at home: {home:?}");
    for round in 0..100 {
        faults::forget_bits();
        let inside = compartment.run(|| {
            faults::store(COMMON, round);
            let first = faults::load(DOUBLE);
            faults::store(DOUBLE, round);
            // Delivered there, by a handler that both have.
            let posted = call::post(OWN, SELF, 1 << 40);
            (faults::load(SECRET), first, whereabouts(), posted)
        });
        let (secret, first, place, posted) = inside.map_err(said)?;
        expect!(secret.is_none(), "the secret reads {secret:?} in round {round}");
        expect!(first == Some(round.saturating_sub(1)), "round {round} finds {first:?}");
        expect!(place == (compartment.domain().0, home.0), "inside it is {place:?}");
        let bits = faults::seen().posted_bits;
        expect!(posted.is_ok() && bits == 1 << 40, "posted {posted:?}, delivered {bits:#x}");
        expect!(whereabouts() == home, "back at {:?}", whereabouts());
        let found = [SECRET, DOUBLE, COMMON].map(faults::load);
        expect!(found == [Some(11), Some(22), Some(round)], "at home: {found:?}");
    }
    let domain = compartment.domain();
    drop(compartment);
    expect!(call::domain_switch(OWN, domain).is_err(), "it has ended");
    own.unmap(SECRET, 3).map_err(said)?;
    Ok(String::new())
}

/// The same: whom one holds no name of, what has ended, and where the save area is not, one does
/// not go to; and nothing is changed by the attempt.
pub fn domain_of_others_is_refused(ground: &Ground) -> Result<String, Failure> {
    let home = whereabouts();
    let (domain, own) = (DomainId(home.0), call::domain_switch(OWN, DomainId::NONE));
    expect!(own == Err((Error::NoSuchDomain, 0)), "no domain: {own:?}");
    let here = call::domain_switch(OWN, domain);
    expect!(here == Err((Error::WrongState, 0)), "where one is: {here:?}");
    // The assistant's domain is guarded by our name; a slot with another name has no say.
    let other = assistant::spawn(ground.image, roles::LOAD_THEN_STORE, [0; 6], &[])?;
    call::capability_derive(OWN, DomainId::NONE, 9, &[77], abi::capability::ALL).map_err(said)?;
    let foreign = call::domain_switch(9, other.domain);
    expect!(foreign == Err((Error::NotPermitted, 0)), "another's: {foreign:?}");
    // Its save area is at the same address, and not ours.
    let strange = call::domain_switch(OWN, other.domain);
    expect!(strange == Err((Error::BadAddress, 0)), "another's save area: {strange:?}");
    call::capability_drop(9).map_err(said)?;
    call::env_destroy(OWN, other.env, 0).map_err(said)?;
    assistant::wait(other.env)?;
    let ended = call::domain_switch(OWN, other.domain);
    expect!(ended == Err((Error::NoSuchDomain, 0)), "one that has ended: {ended:?}");
    // Read-only is not enough: upcalls are written by the kernel and undone by the program.
    let compartment = Compartment::but_for(&[]).map_err(said)?;
    let protect = item(Operation::Protect, 1, SAVE_AREA, 0, NO_EXECUTE);
    call::table_update(OWN, compartment.domain(), &[protect]).map_err(said)?;
    let refused = compartment.run(|| ());
    expect!(refused == Err((Error::BadAddress, 0)), "a save area to read: {refused:?}");
    expect!(whereabouts() == home, "refused, and at {:?}", whereabouts());
    Ok(String::new())
}
