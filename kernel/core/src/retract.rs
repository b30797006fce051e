//! Capabilities are taken back, with everything below them (xok97 XK-8).
//!
//! From the moment it begins, a retraction counts as done: [`retracted`] is asked wherever a
//! capability is used, copied or entered. The lists themselves are emptied in pieces
//! ([`crate::work`]), one retraction at a time, as there may be thousands of them.
//!
//! ```text
//!   begin ── used as if gone ─────────────────────────────────────────► over: gone
//!     0 ─── domains' lists, a piece at each way out of the kernel ───► end
//! ```
//! Spared are the list of the domain that asks, and the fresh name that each domain was made with
//! (decision 0002): that one is no grant, and goes when the domain goes.

use crate::answer::Refusal;
use crate::state::State;
use crate::work::{self, cost};
use crate::{account, capability, frame};
use abi::capability::{CONTROL, Capability, Name};
use abi::error::Error;

/// A retraction under way.
#[derive(Clone, Copy, Debug)]
pub struct Retraction {
    /// Taken back are names at and below this one.
    name: Name,
    /// The domain whose list is spared; 0: none is.
    spared: u16,
    /// The first domain that has not been looked at.
    next: u16,
}

/// Has the capability `held` at `slot` of a domain's list been taken back?
#[inline(always)]
pub fn retracted(state: &State, domain: usize, slot: usize, held: &Capability) -> bool {
    state.retraction.is_some_and(|retraction| takes(state, &retraction, domain, slot, held))
}

fn takes(
    state: &State,
    retraction: &Retraction,
    domain: usize,
    slot: usize,
    held: &Capability,
) -> bool {
    usize::from(retraction.spared) != domain
        && retraction.name.is_prefix_of(&held.name)
        && !(slot == 0 && held.name == *frame::guard(state, state.domains.records[domain].root))
}

/// Is a retraction under way, so that no other can begin?
pub fn under_way(state: &State) -> bool {
    state.retraction.is_some()
}

/// Begins: names at and below `name` are worth nothing from now on, in lists and in tokens.
pub(crate) fn begin(state: &mut State, name: Name, spared: usize) {
    let keeper = account::keeper(state, &name);
    let epoch = &mut state.accounts.records[keeper].epoch;
    *epoch = epoch.wrapping_add(1);
    state.retraction = Some(Retraction { name, spared: spared as u16, next: 1 });
}

/// `CapabilityRetract`, by the domain at `caller`: the name taken back. The answer is the same
/// whether or not one is under way; the caller comes again if one is.
pub fn check(
    state: &State,
    caller: usize,
    index: u8,
    (extend, components): (u16, u64),
) -> Result<Name, Refusal> {
    let source = capability::get(state, caller, index)?;
    if source.rights & CONTROL == 0 {
        return Err(Error::NotPermitted.into());
    }
    capability::extended(&source.name, (extend, 0), (components, 1))
}

/// Empties lists while there is room.
pub fn work(state: &mut State) {
    while let Some(retraction) = state.retraction {
        if !work::room(state, cost::LIST) {
            return;
        }
        work::spend(state, cost::LIST);
        let domain = usize::from(retraction.next);
        if domain >= state.published.domains.len() {
            state.retraction = None;
            return;
        }
        let lives = state.published.domains[domain].id != 0;
        let count = if lives { state.domains.records[domain].capabilities.len() } else { 0 };
        for slot in 0..count {
            let held = state.domains.records[domain].capabilities[slot];
            if takes(state, &retraction, domain, slot, &held) {
                state.domains.records[domain].capabilities[slot] = Capability::default();
            }
        }
        state.retraction = Some(Retraction { next: retraction.next + 1, ..retraction });
    }
}
