//! Capabilities: named in every call, only ever narrowed; copy-on-write with a hostile child.

use super::roles;
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::capability::{ALL, CONTROL, DERIVE, NAME_ACCOUNT, READ};
use abi::error::Error;
use abi::id::DomainId;
use abi::memory::NO_EXECUTE;
use abi::setup::EnvSetup;
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN};
use xok::memory::{DATA, Space};

/// xok97 T18, thesis98 Z-54: the wrong capability is refused even for who holds the right one.
pub fn named(ground: &Ground) -> Result<String, Failure> {
    let child = assistant::spawn(ground.image, roles::SLEEP, [0; 6], &[])?;
    // Slot 5: a name of our own account that dominates nothing of the child's.
    call::capability_derive(OWN, DomainId::NONE, 5, &[NAME_ACCOUNT + 1, 9, 9], ALL)
        .map_err(|why| format!("derive: {why:?}"))?;
    let wrong = call::post(5, child.env, 1);
    expect!(matches!(wrong, Err((Error::NotPermitted, _))), "the wrong one: {wrong:?}");
    let none = call::post(11, child.env, 1);
    expect!(matches!(none, Err((Error::NoSuchCapability, _))), "an empty slot: {none:?}");
    let beyond = call::post(200, child.env, 1);
    expect!(matches!(beyond, Err((Error::NoSuchCapability, _))), "beyond the list: {beyond:?}");
    let right = call::post(OWN, child.env, 1);
    expect!(right.is_ok(), "the right one: {right:?}");
    // Who may signal is asked by a way of its own.
    let set = |slot| call::env_set(slot, child.env, 0, &EnvSetup::default());
    let wrong = set(5);
    expect!(matches!(wrong, Err((Error::NotPermitted, _))), "the wrong one sets: {wrong:?}");
    let right = set(OWN);
    expect!(right.is_ok(), "the right one sets: {right:?}");
    call::env_destroy(OWN, child.env, 0).map_err(|why| format!("{why:?}"))?;
    assistant::wait(child.env)?;
    call::capability_drop(5).map_err(|why| format!("{why:?}"))?;
    Ok(String::new())
}

/// Names are only extended, rights only dropped.
pub fn narrowed(ground: &Ground) -> Result<String, Failure> {
    call::capability_derive(OWN, DomainId::NONE, 5, &[300], READ | DERIVE)
        .map_err(|why| format!("{why:?}"))?;
    let wider = call::capability_derive(5, DomainId::NONE, 6, &[1], READ | CONTROL);
    expect!(matches!(wider, Err((Error::NotPermitted, _))), "a wider right: {wider:?}");
    call::capability_derive(5, DomainId::NONE, 6, &[1, 2], READ)
        .map_err(|why| format!("{why:?}"))?;
    let other = assistant::spawn(ground.image, roles::SLEEP, [0; 6], &[])?;
    let from = call::capability_derive(6, other.domain, 7, &[], READ);
    call::domain_destroy(OWN, other.domain).map_err(|why| format!("{why:?}"))?;
    assistant::wait(other.env)?;
    expect!(matches!(from, Err((Error::NotPermitted, _))), "without DERIVE: {from:?}");
    let long = call::capability_derive(5, DomainId::NONE, 7, &[1, 2, 3], READ)
        .and_then(|_| call::capability_derive(OWN, DomainId::NONE, 7, &[1, 2, 3], ALL))
        .and_then(|_| call::capability_derive(7, DomainId::NONE, 8, &[4, 5, 6], ALL))
        .and_then(|_| call::capability_derive(8, DomainId::NONE, 9, &[7], ALL));
    expect!(matches!(long, Err((Error::TooLarge, _))), "a name of seven components: {long:?}");
    for slot in 5..=9 {
        call::capability_drop(slot).map_err(|why| format!("{why:?}"))?;
    }
    Ok(String::new())
}

/// xok97 T22: a child that shares a frame copy-on-write cannot make it writable while its parent
/// has it, whatever it tries.
pub fn copy_on_write_child(ground: &Ground) -> Result<String, Failure> {
    let mut own = Space::own();
    own.allocate(SCRATCH, 1, DATA).map_err(|why| format!("{why:?}"))?;
    faults::store(SCRATCH, 9);
    let frame = xok::own::frame(SCRATCH).ok_or("no frame")?;
    let words = [SCRATCH, frame.0.into(), 0, 0, 0, 0];
    let child = assistant::spawn(ground.image, roles::BREAK_COPY_ON_WRITE, words, &[])?;
    Space::of(child.domain, OWN)
        .map(SCRATCH, frame, 1, NO_EXECUTE)
        .map_err(|why| format!("share: {why:?}"))?;
    let word = assistant::finish(child)?;
    expect!(word == roles::BREAK_REFUSED, "the child reports {word:#x}");
    expect!(faults::load(SCRATCH) == Some(9), "the parent's page changed");
    own.unmap(SCRATCH, 1).map_err(|why| format!("{why:?}"))?;
    Ok(String::new())
}
