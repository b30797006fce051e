//! Tokens: capabilities as plain data (aegis95 S9).
//!
//! Whoever has been told one enters it into its list, once.
//!
//! ```text
//!   word 0, 1: the capability's 16 bytes     word 2: its seal
//!   seal = SipHash-2-4 (key of this boot; word 0, word 1, the name's epochs)
//! ```
//! Epochs ([`crate::voided`]) move when the name, or one above it, is taken back, and whose the
//! name is, a domain or an account, is named with them: tokens made before are then worth nothing.
//! So the kernel remembers nothing of a token, and one that went astray can be made worthless.

use core::hash::Hasher;
#[expect(
    deprecated,
    reason = "for hash tables; as a seal it is SipHash-2-4, which is what we want"
)]
use core::hash::SipHasher;

use crate::answer::{Answer, Refusal};
use crate::index::DomainIndex;
use crate::machine::Machine;
use crate::state::State;
use crate::{capability, domain, retract, voided};
use abi::capability::{Capability, DERIVE};
use abi::error::Error;
use abi::limits::CAPABILITIES;

/// `CapabilityToken`: word number `word` of the token for the capability at `index`.
pub fn word<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: DomainIndex,
    index: u8,
    word: u16,
) -> Answer {
    let held = capability::get(state, caller, index)?;
    // Users and groups are no plain data, nor are devices, which go with them: what has been given
    // up could come back by it.
    let goes_with_ids = held.name.is_principal() || held.name.is_device();
    if held.rights & DERIVE == 0 || goes_with_ids {
        return Err(Error::NotPermitted.into());
    }
    let words = held.to_words();
    match word {
        0 | 1 => Ok(words[usize::from(word)]),
        2 => seal(state, machine, &held),
        _ => Err(Refusal::new(Error::BadArgument, 0)),
    }
}

/// `CapabilityEnter`: the capability that a token says, if its seal is right, into `slot`.
pub fn enter<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: DomainIndex,
    slot: u16,
    [first, second, said]: [u64; 3],
) -> Answer {
    let slot = usize::from(slot);
    if slot >= CAPABILITIES {
        return Err(Refusal::new(Error::BadArgument, 0));
    }
    // What no capability looks like has never been sealed.
    let told = Capability::from_words([first, second]).ok_or(Error::NotPermitted)?;
    if seal(state, machine, &told)? != said {
        return Err(Error::NotPermitted.into());
    }
    // It was told after the name was taken back, so it is good, but not yet.
    if retract::retracted(state, caller, slot, &told) {
        return Err(Error::WouldBlock.into());
    }
    state.domains.records[caller].capabilities[slot] = told;
    domain::holdings_changed(state, caller);
    Ok(0)
}

fn seal<M: Machine>(state: &mut State, machine: &mut M, capability: &Capability) -> Answer {
    let [low, high] = key(state, machine).ok_or(Error::NotPresent)?;
    // Sealed for a domain that has ended, or for nobody.
    let epochs = voided::epochs(state, &capability.name).ok_or(Error::NotPermitted)?;
    #[expect(deprecated, reason = "see above")]
    let mut hasher = SipHasher::new_with_keys(low, high);
    for word in capability.to_words() {
        hasher.write_u64(word);
    }
    epochs.into_iter().for_each(|epoch| hasher.write_u64(epoch));
    Ok(hasher.finish())
}

/// The key of this boot, drawn when it is first needed; `None` while the machine has no entropy.
fn key<M: Machine>(state: &mut State, machine: &mut M) -> Option<[u64; 2]> {
    if state.token_key.is_none() {
        state.token_key = Some([machine.random()?, machine.random()?]);
    }
    state.token_key
}
