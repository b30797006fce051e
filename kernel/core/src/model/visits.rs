//! Environments that visit other domains, and memory types, in the model.

use super::act::{Right, gives};
use super::check::effective;
use super::{Known, Model};
use crate::env::Entries;
use crate::index::{DomainIndex, EnvIndex};
use crate::machine::Machine;
use crate::{domain, env, exit, frame, principal, visit};
use abi::call::Call;
use abi::capability::{CONTROL, Capability, WRITE};
use abi::domain::Property;
use abi::id::DomainId;
use abi::memory::Item;
use abi::published::EnvState;

/// Where visitors arrive.
const ENTRY: u64 = 0x40_0100;

impl Model {
    /// To another domain, which mostly has an entry point by now, or home.
    pub(super) fn some_visit(&mut self, caller: usize) -> Call {
        let home = DomainId(self.state.published.envs[caller].home);
        if !home.is_none() && self.random.one_in(2) {
            return Call::DomainSwitch { domain: home };
        }
        if self.random.one_in(16) {
            return Call::DomainSwitch { domain: self.some_domain_id() };
        }
        let target = self.random.below(self.domains.len());
        let Known { index, id, .. } = self.domains[target];
        if self.random.one_in(4) {
            let value = self.random.pick(&[0, ENTRY, ENTRY + 8, 1 << 47]);
            let set = (DomainId::NONE, Property::Entry as u16, value);
            let answer = principal::set(&mut self.state, index, 0, set);
            assert_eq!(answer.is_ok(), value <= ENTRY + 8);
        }
        Call::DomainSwitch { domain: id }
    }

    /// One that gives CONTROL over a domain, mostly, if the caller has any.
    pub(super) fn best_over(&mut self, caller: usize, domain: DomainId, other: u64) -> u64 {
        let Ok(target) = domain::find(&self.state, domain) else { return other };
        let guard = *domain::guard(&self.state, target);
        let guard = &guard.components[..usize::from(guard.length)];
        let own = env::domain(&self.state, EnvIndex::new(caller)).into();
        let list = &self.state.domains.record(own).capabilities;
        let found = list.iter().position(|capability| gives(capability, guard, CONTROL));
        if self.random.one_in(8) { other } else { found.map_or(other, |at| at as u64) }
    }

    /// A memory type is for who has a name for the frame.
    pub(super) fn expect_type(&self, target: usize, named: &Capability, item: &Item) -> Right {
        let root = domain::root(&self.state, self.domains[target].index);
        let held = effective(&self.machine, root, item.address);
        let Some((frame, _)) = held else { return Right::Held };
        let guard = frame::guard(&self.state, frame);
        let guard = &guard.components[..usize::from(guard.length)];
        let may = gives(named, guard, WRITE) && !frame::is_leaving(&self.state, frame);
        if may { Right::Held } else { Right::Missing }
    }

    /// A domain counts who is in it and who is at home there; who visits is at home elsewhere.
    pub(super) fn check_homes(&self) {
        let mut there = vec![0; self.state.published.domains.len()];
        for (index, record) in self.state.published.envs.iter().enumerate() {
            let state = self.state.envs.slots[EnvIndex::new(index)].state;
            if matches!(state, EnvState::Free | EnvState::Dead) {
                assert_eq!(record.home, 0, "{index} is dead, and at home");
                continue;
            }
            assert_ne!(record.home, record.domain, "{index} visits its home");
            if record.home != 0 {
                let env = &self.state.envs.slots[EnvIndex::new(index)];
                assert_eq!(env.entries, Entries::default(), "{index} has entries abroad");
                let rip = self.machine.word(env.vector.address() + visit::OFFSET);
                assert!(exit::may_run_at(rip), "{index} can not go home to {rip:#x}");
            }
            let own = [record.domain, record.home].into_iter().filter(|&id| id != 0);
            own.for_each(|id| there[DomainId(id).index()] += 1);
            let lives = |id: u64| self.state.published.domains[DomainId(id).index()].id == id;
            assert!(record.home == 0 || lives(record.home), "{index} has lost its home");
            assert!(lives(record.domain), "{index} is nowhere");
        }
        for (index, record) in self.state.published.domains.iter().enumerate() {
            assert_eq!(record.envs, there[index], "environments of domain {index}");
            let records = &self.state.domains.records;
            let unborn = records.iter().filter(|one| usize::from(one.maker) == index).count();
            let next =
                |&at: &u16| Some(records[DomainIndex::from(at)].beside[1]).filter(|&at| at != 0);
            let first = Some(records[DomainIndex::new(index)].unborn).filter(|&at| at != 0);
            let counted = core::iter::successors(first, next).count();
            assert!(index == 0 || unborn == counted, "{index} has made {unborn}, not {counted}");
            assert!(record.id != 0 || unborn == 0 || index == 0, "the maker {index} has ended");
        }
    }
}
