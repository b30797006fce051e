//! What has been condemned and not yet ended: environments and domains, in pieces (decisions 20).
//!
//! Destroying a domain or an account marks it; then one number goes through the records of all
//! environments, all domains, all regions, and what is marked or charged to what is marked ends.
//! Each way out of the kernel goes on with it while there is room ([`crate::work`]), so no call
//! waits for a crowd, and it makes no difference whether the caller lives on.
//!
//! ```text
//!   0 ─── environments ─── domains ─── regions ─── end: nothing is condemned
//!              ▲ condemning anything begins again here
//! ```

use crate::env::Request;
use crate::machine::Machine;
use crate::state::State;
use crate::work::{self, cost};
use crate::{account, death, domain, region};
use abi::id::{AccountId, DomainId, EnvId};
use abi::published::EnvState;

/// Nothing is condemned.
pub(crate) const OVER: u32 = u32::MAX;

/// Something has been condemned.
pub(crate) fn begin(state: &mut State) {
    state.sweep = 0;
}

/// Is something condemned that has not ended?
#[inline]
pub fn waiting(state: &State) -> bool {
    state.sweep != OVER
}

fn end(state: &State) -> usize {
    state.envs.slots.len() + state.published.domains.len() + state.published.regions.len()
}

/// Ends what is condemned while there is room; is there more? It may end whom `cpu` runs.
pub fn work<M: Machine>(state: &mut State, machine: &mut M, cpu: usize) -> bool {
    let (envs, domains) = (state.envs.slots.len(), state.published.domains.len());
    while waiting(state) {
        if !work::room(state, cost::RECORD) {
            return true;
        }
        let at = state.sweep as usize;
        let done = if at < envs {
            if !state.envs.used().contains(&at.max(1)) {
                state.sweep = envs as u32;
                continue;
            }
            sweep_env(state, machine, cpu, at)
        } else if at < envs + domains {
            sweep_domain(state, machine, at - envs)
        } else {
            sweep_region(state, at - envs - domains)
        };
        if !done {
            return true;
        }
        // Not before: what is longest has room only in a hold that has done nothing else.
        work::spend(state, cost::RECORD);
        // What ended may have condemned more: then it begins again.
        if state.sweep as usize == at {
            state.sweep += 1;
            if at + 1 == end(state) {
                state.sweep = OVER;
            }
        }
    }
    false
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
    let domains = [record.domain, record.home].map(|id| DomainId(id).index());
    let domains = domains.map(|index| &state.domains.records[index]);
    if let Some(dying) = domains.into_iter().find(|domain| domain.dying) {
        return Some((0, dying.killer));
    }
    let [own, home] = domains.map(|domain| usize::from(domain.account));
    let payers = [AccountId(record.account).index(), own, home];
    let account = payers.into_iter().find(|&at| state.accounts.record(at).dying)?;
    Some((0, state.accounts.record(account).killer))
}

fn sweep_env<M: Machine>(state: &mut State, machine: &mut M, cpu: usize, index: usize) -> bool {
    let Some((word, killer)) = condemned(state, index) else { return true };
    let room = work::room(state, death::cost(state));
    if room {
        death::kill(state, machine, cpu, index, word, killer);
    }
    room
}

fn sweep_domain<M: Machine>(state: &mut State, machine: &mut M, index: usize) -> bool {
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

fn sweep_region(state: &mut State, index: usize) -> bool {
    let payer = AccountId(state.published.regions[index].account).index();
    let lives = !state.accounts.record(payer).dying;
    lives || {
        let room = work::room(state, cost::REGION);
        if room {
            region::destroy(state, index);
        }
        room
    }
}
