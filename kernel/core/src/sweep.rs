//! What has been condemned and not yet ended: environments and domains, in pieces (decisions 20).
//!
//! Destroying a domain or an account marks it; then one number goes round the records of all
//! environments and another one round those of all domains and regions, and what is marked or
//! charged to what is marked ends. Each way out of the kernel goes on with it while there is room
//! ([`crate::work`]), so no call waits for a crowd, and it makes no difference whether the caller
//! lives on. The first of these rounds also tells those that the dead have left behind.
//!
//! ```text
//!   ┌─► environments ─┐   ┌─► domains ─── regions ─┐    each goes on from where it is until it has
//!   └─────────────────┘   └────────────────────────┘    been round since the last reason to begin
//! ```
//! So whoever gives reasons without end holds nobody else's end up: all are looked at once a round.

use crate::env::Request;
use crate::index::{AccountIndex, CpuIndex, DomainIndex, RegionIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::work::{self, cost};
use crate::{account, death, domain, principal, region};
use abi::id::{AccountId, DomainId, EnvId};
use abi::published::EnvState;

/// How far both rounds are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sweep {
    envs: Round,
    others: Round,
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

/// Something has been condemned.
pub(crate) fn begin(state: &mut State) {
    look_for_bereaved(state);
    state.sweep.others.begin(others(state));
}

/// Somebody has ended that others held, waited for or shared a slice with.
pub(crate) fn look_for_bereaved(state: &mut State) {
    let records = state.envs.slots.len();
    state.sweep.envs.begin(records);
}

/// Is something condemned that has not ended, or somebody not told?
#[inline]
pub fn waiting(state: &State) -> bool {
    state.sweep.envs.left | state.sweep.others.left != 0
}

fn others(state: &State) -> usize {
    state.published.domains.len() + state.published.regions.len()
}

/// Ends what is condemned while there is room; is there more? It may end whom `cpu` runs.
pub fn work<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex) -> bool {
    while waiting(state) {
        if !(one_env(state, machine, cpu) && one_other(state, machine)) {
            return true;
        }
    }
    false
}

/// Looks at the next environment, if any is left; `false`: there is no room.
fn one_env<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex) -> bool {
    if state.sweep.envs.left == 0 {
        return true;
    }
    let (at, records) = (state.sweep.envs.next as usize, state.envs.slots.len());
    if at >= state.envs.used().end {
        // What follows is free.
        let round = &mut state.sweep.envs;
        round.left = round.left.saturating_sub((records - at) as u32);
        round.next = 0;
        return true;
    }
    if !work::room(state, cost::ENV) {
        return false;
    }
    // What ends may give reason to begin again.
    state.sweep.envs.left -= 1;
    if !sweep_env(state, machine, cpu, at) {
        state.sweep.envs.left += 1;
        return false;
    }
    // Not before: what is longest has room only in a hold that has done nothing else.
    work::spend(state, cost::ENV);
    state.sweep.envs.go_on(records);
    true
}

/// The same of domains and regions.
fn one_other<M: Machine>(state: &mut State, machine: &mut M) -> bool {
    if state.sweep.others.left == 0 {
        return true;
    }
    if !work::room(state, cost::RECORD) {
        return false;
    }
    let (at, domains) = (state.sweep.others.next as usize, state.published.domains.len());
    state.sweep.others.left -= 1;
    let done = if at < domains {
        sweep_domain(state, machine, DomainIndex::new(at))
    } else {
        sweep_region(state, RegionIndex::new(at - domains))
    };
    if !done {
        state.sweep.others.left += 1;
        return false;
    }
    work::spend(state, cost::RECORD);
    let records = others(state);
    state.sweep.others.go_on(records);
    true
}

/// Who condemned the environment at `index`, or what it is in or charged to, if anybody did.
pub(crate) fn condemned(state: &State, index: usize) -> Option<(u64, EnvId)> {
    let slot = &state.envs.slots[index];
    if matches!(slot.state, EnvState::Free | EnvState::Dead) {
        return None;
    }
    if let Request::Die { word, killer } = slot.request {
        return Some((word, killer));
    }
    let record = &state.published.envs[index];
    // Index 0, of who is at home, is nobody's.
    let domains = [record.domain, record.home].map(|id| DomainIndex::from(DomainId(id)));
    let domains = domains.map(|index| &state.domains.records[index]);
    if let Some(dying) = domains.into_iter().find(|domain| domain.dying) {
        return Some((0, dying.killer));
    }
    let [own, home] = domains.map(|domain| AccountIndex::from(domain.account));
    let payers = [AccountId(record.account).into(), own, home];
    let account = payers.into_iter().find(|&at| state.accounts.record(at).dying)?;
    Some((0, state.accounts.record(account).killer))
}

fn sweep_env<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex, index: usize) -> bool {
    let Some((word, killer)) = condemned(state, index) else {
        let lives = !matches!(state.envs.slots[index].state, EnvState::Free | EnvState::Dead);
        let followed = !lives || principal::follow(state, machine, index);
        return followed && death::bereave(state, machine, index);
    };
    let room = work::room(state, death::cost(state, index));
    if room {
        death::kill(state, machine, cpu, index, word, killer);
    }
    room
}

fn sweep_domain<M: Machine>(state: &mut State, machine: &mut M, index: DomainIndex) -> bool {
    if state.published.domains[index].id == 0 {
        return true;
    }
    let payer = account::killer(state, domain::account(state, index));
    if let Some(killer) = payer {
        domain::condemn(state, index, killer);
    }
    let over = state.domains.record(index).dying && state.published.domains[index].envs == 0;
    !over || death::end_piece(state, machine, index)
}

fn sweep_region(state: &mut State, index: RegionIndex) -> bool {
    let payer = AccountIndex::from(AccountId(state.published.regions[index].account));
    !state.accounts.record(payer).dying || region::destroy(state, index)
}
