//! How often an account has all processors forget their translations, which interrupts each.
//!
//! ```text
//!   due ──► now: FORGETS_AT_ONCE of them at once, then one each FORGET_NS; a call that comes
//!           sooner begins anew, on its caller's time
//! ```
//! No account of another processor can be charged with that: a program that has a processor to
//! itself has no turns there that could be made shorter. Each time is counted; the calls that wait
//! are those with little work of their own.

use crate::index::{AccountIndex, EnvIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::turns::account_of;
use abi::call::Call;
use abi::limits::{FORGET_NS, FORGETS_AT_ONCE};
use abi::setup::field;

/// How far ahead an account is due at most: what ends in great numbers is not waited for.
const AHEAD_NS: u64 = 2 * FORGETS_AT_ONCE * FORGET_NS;

/// The account has all processors forget their translations.
pub(crate) fn note(state: &mut State, account: AccountIndex) {
    let now = state.sched.picked_ns;
    let due = &mut state.accounts.records[account].forgets_ns;
    *due = (now.max(*due) + FORGET_NS).min(now + AHEAD_NS);
}

/// Does the call have to begin anew later, as its account has had the processors forget too often?
pub(crate) fn comes_too_soon<M: Machine>(
    state: &State,
    machine: &M,
    caller: EnvIndex,
    call: &Call,
) -> bool {
    let asks = match *call {
        Call::EnvMove { .. } => true,
        Call::EnvSet { fields, .. } => fields & field::APPLICATION_PAGE != 0,
        // One that goes on with what it has begun has waited.
        Call::FrameRevoke { frame, .. } => state.envs.slots[caller].revokes != frame,
        _ => false,
    };
    let due = state.accounts.records[account_of(state, caller)].forgets_ns;
    asks && state.sched.online > 1 && due > machine.now_ns() + FORGETS_AT_ONCE * FORGET_NS
}
