//! Which tokens are worth nothing any more: the epochs that seals are made with.
//!
//! The kernel remembers nothing of a token. A seal covers the epoch of its name, and taking a name
//! back moves the epochs of the names at and below it:
//!
//! ```text
//!   at or below a domain's fresh name      an epoch of the domain's, which its end takes along
//!   others                                 the epochs of the name and of each one above, kept for
//!                                          those of which anything has been taken back
//! ```
//! So whoever takes back moves epochs of names that it has CONTROL over, and no other's: nothing is
//! hashed together. What is taken back below a fresh name voids all tokens below that one.

use crate::index::AccountIndex;
use crate::state::State;
use crate::{account, domain};
use abi::capability::Name;
use abi::limits::NAME_COMPONENTS;

/// Names that epochs are kept for. With one more all tokens are void but those below fresh names.
const KEPT: usize = 128;
/// Components of a name that stands for a device, say, and all that is below.
const PRINCIPAL: u8 = 3;

/// The epochs of names that no domain was made with.
pub(crate) struct Voided {
    kept: [(Name, u64); KEPT],
    count: usize,
    /// The last epoch that was given out.
    last: u64,
    /// The last that all names have had together.
    all: u64,
}

impl Voided {
    /// Nothing has been taken back.
    pub(crate) const NOTHING: Self =
        Self { kept: [(Name::ROOT, 0); KEPT], count: 0, last: 0, all: 0 };

    fn of(&self, name: &Name) -> u64 {
        let kept = &self.kept[..self.count];
        kept.iter().find(|(one, _)| one == name).map_or(0, |(_, epoch)| *epoch)
    }

    fn advance(&mut self, name: Name) {
        self.last = self.last.saturating_add(1);
        let known = self.kept[..self.count].iter().position(|(one, _)| *one == name);
        match known {
            Some(at) => self.kept[at].1 = self.last,
            None if self.count < KEPT => {
                self.kept[self.count] = (name, self.last);
                self.count += 1;
            }
            // Forgetting one alone would make its tokens worth something again.
            None => (self.kept[0], self.count, self.all) = ((name, self.last), 1, self.last),
        }
    }
}

/// `name` has been taken back: tokens for what is at and below it are worth nothing.
pub(crate) fn void(state: &mut State, name: &Name) {
    match domain::fresh_part(name) {
        Some(fresh) => {
            if let Some(index) = domain::made_with(state, &fresh) {
                let epoch = &mut state.domains.records[index].epoch;
                *epoch = epoch.saturating_add(1);
            }
        }
        None => {
            let principal = principal(state, name);
            state.voided.advance(principal);
        }
    }
}

/// The part of a name, which is below no fresh name, that stands for all that is below.
fn principal(state: &State, name: &Name) -> Name {
    let keeper = account::keeper(state, name);
    let account = state.accounts.record(keeper).name;
    let length =
        if keeper == AccountIndex::NONE { PRINCIPAL } else { account.length.saturating_add(1) };
    prefix(name, name.length.min(length))
}

fn prefix(name: &Name, length: u8) -> Name {
    Name::of(name.components.get(..usize::from(length)).unwrap_or(&[]))
}

/// The words that the seal of a token for `name` covers besides the token's own. `None`: none is
/// good, as the domain that the name was made for has ended.
pub(crate) fn epochs(state: &State, name: &Name) -> Option<[u64; NAME_COMPONENTS + 3]> {
    let mut words = [0; NAME_COMPONENTS + 3];
    let [own, holder, above @ ..] = &mut words;
    let mut length = name.length;
    match domain::fresh_part(name) {
        Some(fresh) => {
            let index = domain::made_with(state, &fresh)?;
            // Of a fresh name and those below it the domain keeps the epoch.
            length = fresh.length - 1;
            *own = state.domains.records[index].epoch;
            *holder = domain::id(state, index).0;
        }
        None => {
            *own = state.voided.all;
            *holder = state.published.accounts[account::keeper(state, name)].id;
        }
    }
    for (length, word) in (0..=length).zip(above) {
        *word = state.voided.of(&prefix(name, length));
    }
    Some(words)
}
