//! How much is done in one hold of the lock, and what is put off (decisions 20).
//!
//! Interrupts are off from an entry until the way out, for at most 50,000 instructions. What can be
//! long is reckoned while it is done, in instructions as the parts cost at most: a batch stops
//! before the item that would exceed [`PIECE`], and what dies is worked off in whatever the
//! call has left over.
//!
//! ```text
//!   entry ── call: spends ──► way out: destruction, while there is room ──► program
//!   0        up to PIECE               up to PIECE in all
//! ```

use crate::index::{AccountIndex, CpuIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::{frame, left, retract, sweep};

/// What one hold of the lock may spend. The rest of the bound is for what is not reckoned: entry,
/// copied arguments, the running order, frames that come back from limbo, the way out.
pub const PIECE: u32 = 30_000;

/// What the search for the environment that runs next may spend, at least and at most. It comes
/// last in a hold, so that some of it is done whatever the call has spent.
pub const TURN: core::ops::RangeInclusive<u32> = 2_000..=6_000;

/// What parts cost at most, in instructions, repeated string instructions by the step.
pub mod cost {
    /// Looking at an entry or a record that is not in use.
    pub const LOOK: u32 = 12;
    /// The same of a table's entry, of many in a row.
    pub const SKIP: u32 = 3;
    /// Looking whether a record's object is condemned.
    pub const RECORD: u32 = 90;
    /// The same of an environment, and whether it has lost another one.
    pub const ENV: u32 = 270;
    /// What one hears of another's end, or a record that goes with it.
    pub const BEREAVED: u32 = 600;
    /// Looking in a domain's list for what one retraction takes.
    pub const LIST: u32 = 1_400;
    /// A leaf entry changed: its chain, its frame's references.
    pub const ENTRY: u32 = 450;
    /// The same of a further page of an item, whose tables have been found.
    pub const PAGE: u32 = 290;
    /// A leaf taken from a dying table, and its frame put in limbo.
    pub const LEAF: u32 = 320;
    /// A frame cleared.
    pub const ZERO: u32 = 600;
    /// A frame's bytes copied between a region and a program.
    pub const TRANSFER: u32 = 700;
    /// A predicate or a ring looked through for a frame.
    pub const HOLDER: u32 = 4_000;
    /// The end of an environment, but for its predicate and further positions.
    pub const DEATH: u32 = 4_000;
    /// The end of a domain with nothing attached.
    pub const DOMAIN: u32 = 2_000;
    /// An attachment handed on: one looked for, another entered.
    pub const ATTACH: u32 = 900;
    /// An entry looked at for its frame's age.
    pub const AGE: u32 = 40;
    /// Looking whether an account can end, and its end.
    pub const ACCOUNT: u32 = 900;
    /// The end of a region with its frames, or of a ring with its buffers.
    pub const REGION: u32 = 2_500;
    /// Eight slots verified or compiled.
    pub const SLOTS: u32 = 9_000;
    /// The end of a region's methods, each page of them and their table.
    pub const METHODS: u32 = 9_000;
    /// All entries of a table looked at, and changed where they must be.
    pub const SCAN: u32 = 9_000;
    /// A folded table put back, and what was set in its large entry given to all entries.
    pub const UNFOLD: u32 = 6_000;
    /// All entries of a table looked at, and the frames that they map.
    pub const FOLD: u32 = 14_000;
    /// A predicate interpreted, but for its comparisons.
    pub const PREDICATE: u32 = 400;
    /// A comparison of one that is interpreted.
    pub const COMPARISON: u32 = 150;
    /// A predicate that is compiled; a comparison of it takes a fifth of that.
    pub const COMPILED: u32 = 150;
    /// A sleeper whose predicate is of no interest now.
    pub const SLEEPER: u32 = 30;
    /// A member of a ring walked past, or one step to whom it waits for.
    pub const MEMBER: u32 = 110;
    /// A comparison of a new predicate: looked at, entered, and what was there given up.
    pub const ATOM: u32 = 780;
    /// A buffer of a new ring.
    pub const BUFFER: u32 = 400;
    /// The last reference to a filter given up, with which that ends.
    pub const REFERENCE: u32 = 700;
    /// A filter that a new one is compared with.
    pub const FILTER: u32 = 110;
    /// A deadline served, but for predicates.
    pub const ALARM: u32 = 4_000;
    /// An interrupt of another processor, for one that an event has woken.
    pub const INTERRUPT: u32 = 4_000;
    /// A look at a sleeper put off.
    pub const PUT_OFF: u32 = 800;
    /// All entries of a table copied into another.
    pub const COPY: u32 = super::PIECE;
}

/// A hold of the lock begins, in which anything may come up.
#[inline]
pub fn begin(state: &mut State) {
    state.spent = 0;
    (state.settled, state.open) = (false, false);
}

/// A hold of the lock ends: short ways ([`crate::handover`]) may be gone if it leaves nothing to
/// look at behind. What is left to be worked off has its turn.
#[inline(always)]
pub fn end(state: &mut State) {
    state.settled = state.sched.is_quiet() && !frame::limbo_waiting(state);
    state.open = state.settled && state.sched.nobody_is_woken();
}

/// Reckons what is about to be done.
#[inline]
pub fn spend(state: &mut State, cost: u32) {
    state.spent = state.spent.saturating_add(cost);
}

/// Is there room for this much more? There is for whatever comes first.
#[inline]
pub fn room(state: &State, cost: u32) -> bool {
    state.spent == 0 || state.spent.saturating_add(cost) <= PIECE
}

/// What looking who runs next may spend now.
#[inline]
pub fn turn(state: &State) -> u32 {
    PIECE.saturating_sub(state.spent).clamp(*TURN.start(), *TURN.end())
}

/// Is there anything to destroy?
#[inline]
pub fn waiting(state: &State) -> bool {
    left::any(state)
}

/// Has this processor anything of that to do on its way out ([`step`])?
#[inline]
pub fn is_here(state: &State, cpu: CpuIndex) -> bool {
    let nobody_runs = || state.sched.cpus[cpu].current == 0;
    waiting(state) && (due(state, cpu) || left::is_fresh(state) || nobody_runs())
}

/// Is there anything that a way out of this processor's does a piece of, while somebody runs? On
/// time that is borrowed none does ([`worker`]): then the short ways stay open.
#[inline]
pub fn due(state: &State, cpu: CpuIndex) -> bool {
    let this = &state.sched.cpus[cpu];
    left::waits(state, this.account.into()) && this.lender == 0
}

/// Whose work is done on this processor now: that of the account in turn. Where nobody wants the
/// processor it is anybody's, and who has borrowed the time works off nothing.
fn worker(state: &State, cpu: CpuIndex) -> Option<AccountIndex> {
    let this = &state.sched.cpus[cpu];
    let account = match (this.current, this.working) {
        (0, 0) => return left::next(state, this.account.into()),
        (0, working) => working,
        _ => this.account,
    };
    let account = AccountIndex::from(account);
    (this.lender == 0 && left::waits(state, account)).then_some(account)
}

/// Before the processor looks whom it runs, in a slice that an account's work has: what may be as
/// long as a hold has room for if nothing else is done.
pub fn first<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex) {
    let account = AccountIndex::from(state.sched.cpus[cpu].working);
    if account != AccountIndex::NONE {
        sweep::work(state, machine, account);
    }
}

/// When it is known whom the processor runs: does what this hold of the lock has room for, of the
/// work of the account in turn. `true`: nobody runs, and there is more; call again after interrupts
/// and other callers had their turn.
pub fn step<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex) -> bool {
    let mut more = false;
    while let Some(account) = worker(state, cpu).filter(|_| !more) {
        more = piece(state, machine, account);
    }
    left::place(state, cpu);
    state.sched.cpus[cpu].current == 0 && waiting(state)
}

/// Does what there is room for of an account's work; is there more?
///
/// What it revokes comes first in every other piece: others wait for that, and whoever destroys
/// without end is never done with what comes before it otherwise.
pub(crate) fn piece<M: Machine>(state: &mut State, machine: &mut M, account: AccountIndex) -> bool {
    let left = &mut state.accounts.records[account].left;
    left.revokes_first = !left.revokes_first && left.revoking != 0;
    let revokes = left.revokes_first;
    let more = revokes && crate::revoke::work(state, machine, account)
        || sweep::work(state, machine, account)
        || retract::work(state, account)
        || crate::method::work(state, machine, account)
        || crate::table::work(state, machine, account)
        || crate::revoke::sweep(state, machine, account)
        // An account that ends has its name taken back first: that is more work.
        || state.accounts.record(account).left.lighter
            && !(crate::death::finish_account(state, account)
                && left::is_nothing(state, account));
    if !more {
        left::done(state, account);
    }
    more
}

/// Does what there is room for of everybody's work; is there more?
#[cfg(test)]
pub(crate) fn anybodys<M: Machine>(state: &mut State, machine: &mut M) -> bool {
    while let Some(account) = left::next(state, AccountIndex::NONE) {
        if piece(state, machine, account) {
            return true;
        }
    }
    false
}
