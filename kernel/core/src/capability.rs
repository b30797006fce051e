//! Capabilities: the one check, deriving and dropping (xok97 XK-8, XK-9; decisions 22).

use crate::answer::{Answer, Refusal};
use crate::domain;
use crate::index::{DomainIndex, bounded};
use crate::retract::retracted;
use crate::state::State;
use abi::capability::{Capability, DERIVE, Name};
use abi::error::Error;
use abi::id::DomainId;
use abi::limits::{CAPABILITIES, NAME_COMPONENTS};

/// The capability at `index` of the list of the domain at index `domain`.
pub fn get(state: &State, domain: DomainIndex, index: u8) -> Result<Capability, Error> {
    let list = &state.domains.records[domain].capabilities;
    let slot = usize::from(index);
    let inside = slot < CAPABILITIES;
    match list.get(bounded(slot, CAPABILITIES)).filter(|_| inside) {
        Some(held) if held.rights != 0 && !retracted(state, domain, slot, held) => Ok(*held),
        _ => Err(Error::NoSuchCapability),
    }
}

/// Does the capability at `index` dominate `guard` with `rights`?
pub fn check(
    state: &State,
    domain: DomainIndex,
    index: u8,
    guard: &Name,
    rights: u8,
) -> Result<(), Error> {
    if get(state, domain, index)?.dominates(guard, rights) {
        Ok(())
    } else {
        Err(Error::NotPermitted)
    }
}

/// Does any capability in the domain's list have these rights over `guard`?
pub fn holds(state: &State, domain: DomainIndex, guard: &Name, rights: u8) -> bool {
    (0..CAPABILITIES as u8).any(|slot| check(state, domain, slot, guard, rights).is_ok())
}

/// The arguments of `CapabilityDerive`.
#[derive(Clone, Copy, Debug)]
pub struct Derivation {
    /// Whose list; 0: the caller's.
    pub domain: DomainId,
    /// Where in it.
    pub slot: u16,
    /// Components appended.
    pub extend: u16,
    /// The components, lowest first.
    pub components: u64,
    /// Rights kept.
    pub rights: u16,
}

/// What is entered: checked against its source, never wider.
fn check_derived(source: &Capability, asked: &Derivation) -> Result<Capability, Refusal> {
    let name = extended(&source.name, (asked.extend, 2), (asked.components, 3))?;
    let rights = match u8::try_from(asked.rights) {
        Ok(rights) if rights != 0 => rights,
        _ => return Err(Refusal::new(Error::BadArgument, 4)),
    };
    if rights & !source.rights != 0 {
        return Err(Error::NotPermitted.into());
    }
    Ok(Capability { rights, zero: 0, name })
}

/// `name` with so many components appended, lowest first; each argument with its position.
pub(crate) fn extended(
    name: &Name,
    (extend, extend_at): (u16, u64),
    (components, components_at): (u64, u64),
) -> Result<Name, Refusal> {
    if extend > 3 {
        return Err(Refusal::new(Error::BadArgument, extend_at));
    }
    if components >> (16 * u32::from(extend)) != 0 {
        return Err(Refusal::new(Error::BadArgument, components_at));
    }
    let mut name = *name;
    for at in 0..extend {
        let component = (components >> (16 * u32::from(at))) as u16;
        let too_long = Refusal::new(Error::TooLarge, NAME_COMPONENTS as u64);
        name = name.child(component).ok_or(too_long)?;
    }
    Ok(name)
}

/// May the domain at `caller` give something to the one at `target` by the capability `named`?
/// What is passed on need not itself reach the receiver: one's own name may.
pub(crate) fn reaches(
    state: &State,
    caller: DomainIndex,
    target: DomainIndex,
    named: &Capability,
) -> bool {
    let own = get(state, caller, 0).unwrap_or_default();
    [&own, named].into_iter().any(|one| domain::may_write(state, caller, target, one))
}

/// `CapabilityDerive`, from the capability at `index` of the caller's list.
pub fn derive(state: &mut State, caller: DomainIndex, index: u8, asked: &Derivation) -> Answer {
    let source = get(state, caller, index)?;
    let target = domain::find_or_own(state, caller, asked.domain)?;
    let slot = usize::from(asked.slot);
    if slot >= CAPABILITIES {
        return Err(Refusal::new(Error::BadArgument, 1));
    }
    if target != caller {
        let over = reaches(state, caller, target, &source);
        if !over || source.rights & DERIVE == 0 {
            return Err(Error::NotPermitted.into());
        }
    }
    let derived = check_derived(&source, asked)?;
    if retracted(state, target, slot, &derived) {
        return Err(Error::WouldBlock.into());
    }
    state.domains.records[target].capabilities[slot] = derived;
    domain::holdings_changed(state, target);
    Ok(0)
}

/// `CapabilityPass`, by the capability at `index` of the caller's list.
pub fn pass(state: &mut State, caller: DomainIndex, index: u8, id: DomainId, slots: u16) -> Answer {
    let named = get(state, caller, index)?;
    let target = domain::find(state, id)?;
    if !domain::may_write(state, caller, target, &named) {
        return Err(Error::NotPermitted.into());
    }
    let bits =
        |of: u16| (0..(16 - of.leading_zeros()) as usize).filter(move |slot| of >> slot & 1 != 0);
    let mut entered = 0;
    for slot in bits(slots) {
        let Ok(held) = get(state, caller, slot as u8) else { continue };
        if held.rights & DERIVE == 0 {
            return Err(Refusal::new(Error::NotPermitted, slot as u64));
        }
        if retracted(state, target, slot, &held) {
            return Err(Error::WouldBlock.into());
        }
        entered |= 1 << slot;
    }
    for slot in bits(entered) {
        let held = state.domains.records[caller].capabilities[slot];
        state.domains.records[target].capabilities[slot] = held;
    }
    domain::holdings_changed(state, target);
    Ok(entered.into())
}

/// `CapabilityDrop`.
pub fn drop(state: &mut State, caller: DomainIndex, slot: u16) -> Answer {
    let list = &mut state.domains.records[caller].capabilities;
    match list.get_mut(usize::from(slot)) {
        Some(capability) => {
            *capability = Capability::default();
            domain::holdings_changed(state, caller);
            Ok(0)
        }
        None => Err(Refusal::new(Error::BadArgument, 0)),
    }
}
