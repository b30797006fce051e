//! What an account has left to be worked off, and in whose time that is done: its own.
//!
//! What dies is taken apart in pieces ([`crate::work`]), for whoever pays for it or asked for its
//! end. A way out of the kernel does a piece for the account in turn, and for no other one. What is
//! left then has a place in the round, as if it were one more environment of the account's: its
//! turn is a slice of pieces ([`crate::turns`], [`crate::round`]). So it is done however long the
//! account's environments sleep, also when all of them have ended; and who destroys as much as it
//! can takes no more from its neighbours than who computes.
//!
//! ```text
//!   round of a processor    account 5              account 9
//!                           ┌────────┬──────┐      ┌────────┐
//!                           │ common │ work │ ───► │ common │ ───► 5
//!                           └────────┴──────┘      └────────┘
//!   way out in a slice of 5: a piece of 5's;  of 9: of 9's;  nobody wants the processor: of any
//! ```

use crate::account::FIRST;
use crate::index::{AccountIndex, CpuIndex};
use crate::retract;
use crate::state::State;
use crate::sweep::Rounds;
use crate::turns::{self, WORK};
use abi::limits::ACCOUNTS;

/// What one account has left; all 0: nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    /// The first of its dying tables ([`crate::dying`]).
    pub tables: u32,
    /// The first of the frames that it revokes ([`crate::revoke`]).
    pub revoking: u32,
    /// The last of them, if there is any.
    pub revoking_last: u32,
    /// Its next piece of work begins with frames that it revokes.
    pub revokes_first: bool,
    /// The first of its method tables whose regions have ended ([`crate::method`]).
    pub methods: u32,
    /// The account dies, and so many frames are still to be looked at: those that it pays for are
    /// revoked.
    pub frames: u32,
    /// It dies, and may have lost the last of what it waited for. One that others hold something of
    /// costs nothing until they let go.
    pub lighter: bool,
    /// Whom it has condemned or left behind ([`crate::sweep`]).
    pub rounds: Rounds,
}

/// Accounts that have something left, a bit each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    all: [u64; ACCOUNTS / 64],
    /// Those of them whose work has a place in the round of a processor.
    placed: [u64; ACCOUNTS / 64],
    /// Some have no place yet.
    fresh: bool,
    /// There is one.
    any: bool,
}

/// The account that works off what is this one's: what is nobody's is the first one's.
#[inline]
pub(crate) fn worker(account: AccountIndex) -> AccountIndex {
    if account == AccountIndex::NONE { FIRST } else { account }
}

/// The bit of an account, and its word.
#[inline]
fn place_of(account: AccountIndex) -> (usize, u64) {
    (account.at() / 64 % (ACCOUNTS / 64), 1 << (account.at() % 64))
}

/// The account has something left from now on.
#[inline]
pub(crate) fn mark(state: &mut State, account: AccountIndex) {
    let (word, bit) = place_of(account);
    state.waiting.all[word] |= bit;
    state.waiting.any = true;
    state.waiting.fresh |= state.waiting.placed[word] & bit == 0;
}

/// Has it?
#[inline]
pub(crate) fn waits(state: &State, account: AccountIndex) -> bool {
    let (word, bit) = place_of(account);
    state.waiting.all[word] & bit != 0
}

/// Has any something left whose work has no place yet?
#[inline]
pub(crate) fn is_fresh(state: &State) -> bool {
    state.waiting.fresh
}

/// Has any?
#[inline]
pub(crate) fn any(state: &State) -> bool {
    state.waiting.any
}

/// The first that has, after this one, round and round.
pub(crate) fn next(state: &State, after: AccountIndex) -> Option<AccountIndex> {
    const WORDS: usize = ACCOUNTS / 64;
    let (first, bit) = place_of(after);
    // The word that this one is in comes first and last.
    for at in 0..=WORDS {
        let word = (first + at) % WORDS;
        let mask = if at == 0 { !(bit | (bit - 1)) } else { !0 };
        let waiting = state.waiting.all[word] & mask;
        if waiting != 0 {
            return Some(AccountIndex::new(word * 64 + waiting.trailing_zeros() as usize));
        }
    }
    None
}

/// It dies, and something that it waited for has gone.
#[inline]
pub(crate) fn lighten(state: &mut State, account: AccountIndex) {
    state.accounts.records[account].left.lighter = true;
    mark(state, account);
}

/// Is nothing of it left but to look whether it can end?
pub(crate) fn is_nothing(state: &State, account: AccountIndex) -> bool {
    let left = &state.accounts.records[account].left;
    left.tables | left.revoking | left.methods | left.frames == 0
        && !left.rounds.waiting()
        && !retract::works(state, account)
}

/// It has nothing left: its work gives up its place.
pub(crate) fn done(state: &mut State, account: AccountIndex) {
    let (word, bit) = place_of(account);
    state.waiting.all[word] &= !bit;
    state.waiting.any = state.waiting.all.iter().any(|&word| word != 0);
    if state.waiting.placed[word] & bit != 0 {
        state.waiting.placed[word] &= !bit;
        for cpu in CpuIndex::all() {
            turns::vacate(state, cpu, account, WORK);
        }
    }
}

/// What has been left behind on this processor is in its round from now on.
pub(crate) fn place(state: &mut State, cpu: CpuIndex) {
    if !core::mem::take(&mut state.waiting.fresh) {
        return;
    }
    for word in 0..ACCOUNTS / 64 {
        let mut fresh = state.waiting.all[word] & !state.waiting.placed[word];
        state.waiting.placed[word] |= fresh;
        while fresh != 0 {
            let account = word * 64 + fresh.trailing_zeros() as usize;
            fresh &= fresh - 1;
            turns::occupy(state, cpu, AccountIndex::new(account), WORK);
        }
    }
}

/// The accounts of which something waits, and what must hold of each.
#[cfg(test)]
pub(crate) fn check(state: &State) {
    assert_eq!(state.waiting.any, state.waiting.all.iter().any(|&word| word != 0));
    for account in (0..state.accounts.records.len()).map(AccountIndex::new) {
        let left = &state.accounts.records[account].left;
        let something = !is_nothing(state, account) || left.lighter;
        assert!(!something || waits(state, account), "what {account:?} has left is forgotten");
        let (word, bit) = place_of(account);
        let placed = state.waiting.placed[word] & bit != 0;
        assert!(!placed || waits(state, account));
        let places = CpuIndex::all().filter(|&cpu| turns::has_work(state, cpu, account)).count();
        assert_eq!(places, usize::from(placed), "places of the work of {account:?}");
    }
}
