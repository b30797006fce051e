//! Capabilities are taken back, with everything below them (xok97 XK-8).
//!
//! From the moment it begins, a retraction counts as done: [`retracted`] is asked wherever a
//! capability is used, copied or entered. The lists themselves are emptied in pieces
//! ([`crate::work`]), as there may be thousands of them, in the time of the account that pays: each
//! retraction goes through all domains by itself, so none is held up by another one.
//!
//! ```text
//!   begin ── used as if gone ─────────────────────────────────────────► over: gone
//!     0 ─── domains' lists, a piece at a time ────────────────────────► all
//! ```
//! An account has one under way at a time; who asks for a second one asks again. Spared are the
//! list of the domain that asks, and the fresh name that each domain was made with (decision 0002):
//! that one is no grant, and goes when the domain goes.

use crate::answer::Refusal;
use crate::count::Count;
use crate::index::{AccountIndex, DomainIndex};
use crate::state::State;
use crate::work::{self, cost};
use crate::{account, capability, domain, frame, left};
use abi::capability::{CONTROL, Capability, Name, WRITE};
use abi::error::Error;
use abi::id::DomainId;
use abi::limits::Resource;

/// Retractions under way at a time.
pub const RETRACTIONS: usize = 16;

/// A retraction under way.
#[derive(Clone, Copy, Debug, Default)]
struct Retraction {
    /// Taken back are names at and below this one.
    name: Name,
    /// What it was taken back by: without WRITE, what gives that was not granted by it and stays.
    rights: u8,
    /// The domain whose list is spared, if there is one, as long as it lives.
    spared: DomainId,
    /// Index of the account that pays; 0: it is of the name of an account that ends.
    payer: u16,
    /// Index of the account in whose time lists are looked through: the one that pays, or ends.
    worker: u16,
    /// Domains that have not been looked at since it began, 0: it is over.
    left: u16,
}

/// Those under way, which come first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retractions {
    all: [Retraction; RETRACTIONS],
    count: u8,
}

impl Retractions {
    fn under_way(&self) -> &[Retraction] {
        &self.all[..usize::from(self.count)]
    }
}

/// Has the capability `held` at `slot` of a domain's list been taken back?
#[inline(always)]
pub fn retracted(state: &State, domain: DomainIndex, slot: usize, held: &Capability) -> bool {
    state.retractions.count != 0 && taken(state, domain, slot, held)
}

#[cold]
fn taken(state: &State, domain: DomainIndex, slot: usize, held: &Capability) -> bool {
    let mut all = state.retractions.under_way().iter();
    all.any(|retraction| takes(state, retraction, domain, slot, held))
}

fn takes(
    state: &State,
    retraction: &Retraction,
    domain: DomainIndex,
    slot: usize,
    held: &Capability,
) -> bool {
    retraction.spared != domain::id(state, domain)
        && (held.rights & WRITE == 0 || retraction.rights & WRITE != 0)
        && retraction.name.is_prefix_of(&held.name)
        && !(slot == 0 && held.name == *frame::guard(state, state.domains.records[domain].root))
}

/// Is any retraction under way?
pub fn under_way(state: &State) -> bool {
    state.retractions.count != 0
}

/// May a retraction begin that the account at this index pays for?
pub fn may_begin(state: &State, payer: AccountIndex) -> bool {
    let mut all = state.retractions.under_way().iter();
    all.all(|one| AccountIndex::from(one.payer) != payer)
        && account::check(state, payer, Resource::Retractions, 1).is_ok()
}

/// May the account at this index have one under way at all?
pub fn may_ever_begin(state: &State, payer: AccountIndex) -> bool {
    state.published.accounts[payer].limit[Resource::Retractions as usize] != 0
}

/// The account that one is charged to: those of the names of accounts that end are the first's.
fn charged(payer: u16) -> AccountIndex {
    if payer == 0 { account::FIRST } else { payer.into() }
}

/// Is the retraction of this name under way, that the account's end has brought?
pub(crate) fn is_ending(state: &State, name: &Name) -> bool {
    let all = state.retractions.under_way();
    all.iter().any(|one| one.payer == 0 && one.name == *name)
}

/// Begins, as there is room: names at and below `name` are worth nothing from now on in lists; of
/// tokens see [`crate::voided`].
pub(crate) fn begin(
    state: &mut State,
    name: Name,
    rights: u8,
    spared: DomainId,
    (payer, worker): (AccountIndex, AccountIndex),
) {
    let left = state.published.domains.len() as u16;
    let (payer, worker) = (payer.link(), left::worker(worker).link());
    account::count(state, charged(payer), Resource::Retractions, 1);
    let all = &mut state.retractions;
    all.all[usize::from(all.count)] = Retraction { name, rights, spared, payer, worker, left };
    all.count += 1;
    left::mark(state, worker.into());
}

/// `CapabilityRetract`, by the domain at `caller`: the name taken back, and the rights of the
/// capability that it is taken back by. The answer is the same whether or not one may begin; the
/// caller comes again if none may.
pub fn check(
    state: &State,
    caller: DomainIndex,
    index: u8,
    (extend, components): (u16, u64),
) -> Result<(Name, u8), Refusal> {
    let source = capability::get(state, caller, index)?;
    if source.rights & CONTROL == 0 {
        return Err(Error::NotPermitted.into());
    }
    let name = capability::extended(&source.name, (extend, 0), (components, 1))?;
    // Who holds a user's name or a group's has it in common with others, and is not their master.
    if name.is_principal() {
        return Err(Error::NotPermitted.into());
    }
    Ok((name, source.rights))
}

/// The accounts that pay for those under way, one for each.
#[cfg(test)]
pub(crate) fn payers(state: &State) -> std::vec::Vec<AccountIndex> {
    state.retractions.under_way().iter().map(|one| charged(one.payer)).collect()
}

/// Has the account any to work on?
pub(crate) fn works(state: &State, account: AccountIndex) -> bool {
    of(state, account).is_some()
}

/// The first of the account's.
fn of(state: &State, account: AccountIndex) -> Option<usize> {
    state.retractions.under_way().iter().position(|one| one.worker == account.link())
}

/// Empties lists for an account while there is room; is there more?
pub fn work(state: &mut State, account: AccountIndex) -> bool {
    while let Some(at) = of(state, account) {
        if !work::room(state, cost::LIST) {
            return true;
        }
        work::spend(state, cost::LIST);
        let retraction = state.retractions.all[at];
        let domain = state.published.domains.len() - usize::from(retraction.left);
        let domain = DomainIndex::new(domain);
        let lives = state.published.domains[domain].id != 0;
        let count = if lives { state.domains.records[domain].capabilities.len() } else { 0 };
        for slot in 0..count {
            let held = state.domains.records[domain].capabilities[slot];
            if takes(state, &retraction, domain, slot, &held) {
                state.domains.records[domain].capabilities[slot] = Capability::default();
                domain::holdings_changed(state, domain);
            }
        }
        looked_at_one(state, at);
    }
    false
}

/// A retraction has one domain less to look at; if there are none it is over.
fn looked_at_one(state: &mut State, at: usize) {
    let all = &mut state.retractions;
    all.all[at].left.less(1);
    let Retraction { left, payer, .. } = all.all[at];
    if left == 0 {
        all.count.less(1);
        all.all[at] = all.all[usize::from(all.count)];
        account::uncharge(state, charged(payer), Resource::Retractions, 1);
        // An account may wait for this to end, or for room.
        account::lighten_dying(state);
    }
}

/// What is under way, without serials: names, rights, payers, and lists left to be looked at.
#[cfg(test)]
pub(crate) fn shown(state: &State) -> std::vec::Vec<u64> {
    let mut all = std::vec![];
    for Retraction { name, rights, spared, payer, left, .. } in state.retractions.under_way() {
        let parts = name.components.map(u64::from);
        all.extend(parts.into_iter().chain([name.length.into(), (*rights).into()]));
        all.extend([spared.index() as u64, (*payer).into(), (*left).into()]);
    }
    all
}
