//! What has been condemned and not yet ended: environments and domains, in pieces (decisions 20).
//!
//! Destroying a domain or an account marks it; then, for the account that is destroyed or pays for
//! the domain, one number goes round the records of all environments and another one round those of
//! all domains and regions, and what is marked on its account ends. This goes on in that account's
//! time while there is room ([`crate::left`]), so no call waits for a crowd, and it makes no
//! difference whether the caller lives on. The first of these rounds also tells those that
//! the account's dead have left behind.
//!
//! ```text
//!   ┌─► environments ─┐   ┌─► domains ─── regions ─┐    each goes on from where it is until it has
//!   └─────────────────┘   └────────────────────────┘    been round since the last reason to begin
//! ```
//! So whoever gives reasons without end holds nobody else's end up: all are looked at once a round.
//! What another account is the reason for stays for that one's round.

use crate::env::Request;
use crate::index::{AccountIndex, DomainIndex, EnvIndex, RegionIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::work::{self, cost};
use crate::{account, death, domain, env, left, principal, region};
use abi::id::{AccountId, DomainId, EnvId};
use abi::limits::Resource;
use abi::published::EnvState;

/// How far both rounds of an account are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounds {
    envs: Round,
    others: Round,
}

impl Rounds {
    /// Is something condemned that has not ended, or somebody not told?
    #[inline]
    pub fn waiting(&self) -> bool {
        self.envs.left | self.others.left != 0
    }
}

/// One of the rounds: what is looked at next, and how many records are left to look at.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    next: u32,
    left: u32,
}

impl Round {
    fn begin(&mut self, records: usize) {
        self.left = records as u32;
    }

    /// One has been looked at.
    fn go_on(&mut self, records: usize) {
        let behind = self.next as usize + 1;
        self.next = if behind >= records { 0 } else { behind as u32 };
    }
}

fn rounds(state: &mut State, account: AccountIndex) -> &mut Rounds {
    &mut state.accounts.records[account].left.rounds
}

/// Something of this account's has been condemned.
pub(crate) fn begin(state: &mut State, account: AccountIndex) {
    look_for_bereaved(state, account);
    let records = others(state);
    rounds(state, left::worker(account)).others.begin(records);
}

/// One of this account's has ended that others held, waited for or shared a slice with.
pub(crate) fn look_for_bereaved(state: &mut State, account: AccountIndex) {
    let records = state.envs.slots.len();
    rounds(state, left::worker(account)).envs.begin(records);
    left::mark(state, left::worker(account));
}

fn others(state: &State) -> usize {
    state.published.domains.len() + state.published.regions.len()
}

/// Ends what is condemned on an account while there is room; is there more? Who runs, here too, is
/// asked to.
pub fn work<M: Machine>(state: &mut State, machine: &mut M, account: AccountIndex) -> bool {
    let account = left::worker(account);
    while rounds(state, account).waiting() {
        skip_what_it_has_not(state, account);
        if !(one_env(state, machine, account) && one_other(state, machine, account)) {
            return true;
        }
    }
    false
}

/// What an account pays nothing for it has neither condemned nor left behind.
fn skip_what_it_has_not(state: &mut State, account: AccountIndex) {
    let used = &state.published.accounts[account].used;
    let [envs, domains, regions] = [Resource::Envs, Resource::Domains, Resource::Regions]
        .map(|resource| used[resource as usize] != 0);
    let rounds = rounds(state, account);
    if !(envs || domains) {
        rounds.envs.left = 0;
    }
    if !(domains || regions) {
        rounds.others.left = 0;
    }
}

/// Looks at the next environment, if any is left; `false`: there is no room.
fn one_env<M: Machine>(state: &mut State, machine: &mut M, account: AccountIndex) -> bool {
    let Round { next, left } = rounds(state, account).envs;
    if left == 0 {
        return true;
    }
    let (at, records) = (next as usize, state.envs.slots.len());
    if at >= state.envs.used().end {
        // What follows is free.
        let round = &mut rounds(state, account).envs;
        round.left = round.left.saturating_sub((records - at) as u32);
        round.next = 0;
        return true;
    }
    if !work::room(state, cost::ENV) {
        return false;
    }
    // What ends may give reason to begin again.
    rounds(state, account).envs.left = left - 1;
    if !sweep_env(state, machine, account, EnvIndex::new(at)) {
        rounds(state, account).envs.left += 1;
        return false;
    }
    // Not before: what is longest has room only in a hold that has done nothing else.
    work::spend(state, cost::ENV);
    rounds(state, account).envs.go_on(records);
    true
}

/// The same of domains and regions.
fn one_other<M: Machine>(state: &mut State, machine: &mut M, account: AccountIndex) -> bool {
    let Round { next, left } = rounds(state, account).others;
    if left == 0 {
        return true;
    }
    if !work::room(state, cost::RECORD) {
        return false;
    }
    let (at, domains) = (next as usize, state.published.domains.len());
    rounds(state, account).others.left = left - 1;
    let done = if at < domains {
        sweep_domain(state, machine, account, DomainIndex::new(at))
    } else {
        sweep_region(state, account, RegionIndex::new(at - domains))
    };
    if !done {
        rounds(state, account).others.left += 1;
        return false;
    }
    work::spend(state, cost::RECORD);
    let records = others(state);
    rounds(state, account).others.go_on(records);
    true
}

/// How an environment ends that has been condemned.
pub(crate) struct Condemned {
    /// On whose account.
    pub account: AccountIndex,
    pub word: u64,
    pub killer: EnvId,
}

/// Is the environment at `index` condemned, or what it is in or charged to?
pub(crate) fn condemned(state: &State, index: EnvIndex) -> Option<Condemned> {
    let slot = &state.envs.slots[index];
    if matches!(slot.state, EnvState::Free | EnvState::Dead) {
        return None;
    }
    let record = &state.published.envs[index];
    let own = AccountIndex::from(AccountId(record.account));
    if let Request::Die { word, killer } = slot.request {
        return Some(Condemned { account: left::worker(own), word, killer });
    }
    // Index 0, of who is at home, is nobody's.
    let domains = [record.domain, record.home].map(|id| DomainIndex::from(DomainId(id)));
    let domains = domains.map(|index| &state.domains.records[index]);
    let payers = domains.map(|domain| AccountIndex::from(domain.account));
    if let Some(at) = domains.iter().position(|domain| domain.dying) {
        let account = left::worker(payers[at]);
        return Some(Condemned { account, word: 0, killer: domains[at].killer });
    }
    let mut payers = [own].into_iter().chain(payers);
    let account = payers.find(|&at| state.accounts.record(at).dying)?;
    Some(Condemned { account, word: 0, killer: state.accounts.record(account).killer })
}

fn sweep_env<M: Machine>(
    state: &mut State,
    machine: &mut M,
    account: AccountIndex,
    index: EnvIndex,
) -> bool {
    let Some(Condemned { account: by, word, killer }) = condemned(state, index) else {
        return follow(state, machine, account, index)
            && death::bereave(state, machine, account, index);
    };
    let room = by != account || work::room(state, death::cost(state, index));
    if by == account && room {
        death::end(state, machine, index, word, killer);
    }
    room
}

/// The domain that an environment is in or at home in may have come to this account: it follows.
/// `false`: there is no room for that.
fn follow<M: Machine>(
    state: &mut State,
    machine: &mut M,
    account: AccountIndex,
    index: EnvIndex,
) -> bool {
    if matches!(state.envs.slots[index].state, EnvState::Free | EnvState::Dead) {
        return true;
    }
    let domains = [env::domain(state, index), env::home(state, index)].map(DomainIndex::from);
    let is_here = domains.map(|domain| left::worker(domain::account(state, domain)) == account);
    is_here == [false; 2] || principal::follow(state, machine, index)
}

fn sweep_domain<M: Machine>(
    state: &mut State,
    machine: &mut M,
    account: AccountIndex,
    index: DomainIndex,
) -> bool {
    let payer = domain::account(state, index);
    if state.published.domains[index].id == 0 || left::worker(payer) != account {
        return true;
    }
    if let Some(killer) = account::killer(state, payer) {
        domain::condemn(state, index, killer);
    }
    let over = state.domains.record(index).dying && state.published.domains[index].envs == 0;
    !over || death::end_piece(state, machine, index)
}

fn sweep_region(state: &mut State, account: AccountIndex, index: RegionIndex) -> bool {
    let payer = AccountIndex::from(AccountId(state.published.regions[index].account));
    payer != account || !state.accounts.record(payer).dying || region::destroy(state, index)
}
