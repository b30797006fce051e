//! Long work in pieces: dying tables and accounts (decisions 20).

use crate::machine::Machine;
use crate::state::State;

/// Is there anything to destroy?
pub fn waiting(state: &State) -> bool {
    let swept = state.accounts.sweep as usize >= state.published.frames.len();
    state.frames.dying != 0 || state.accounts.dying != 0 || !swept
}

/// Does up to `limits::WORK_PIECES` pieces of what is still to be destroyed. `true`: there is more;
/// call again after interrupts and other callers had their turn.
pub fn step<M: Machine>(state: &mut State, machine: &mut M) -> bool {
    crate::death::finish_accounts(state);
    crate::table::work(state, machine) | crate::revoke::sweep(state, machine)
}
