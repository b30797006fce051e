//! Environments that visit other domains, and memory types, in the model.

use super::Model;
use super::act::{Right, gives};
use super::check::effective;
use crate::answer::Refusal;
use crate::{domain, env, frame, table};
use abi::call::Call;
use abi::capability::{CONTROL, Capability, WRITE};
use abi::error::Error;
use abi::id::{DomainId, Frame};
use abi::memory::{Item, Operation, WRITABLE};
use abi::published::EnvState;

impl Model {
    /// To another domain, or home; mostly to where the save area is at the same address.
    pub(super) fn some_visit(&mut self, caller: usize) -> Call {
        let home = DomainId(self.state.published.envs[caller].home);
        if !home.is_none() && self.random.one_in(2) {
            return Call::DomainSwitch { domain: home };
        }
        let (address, frame) = match env::save_area(&self.state, caller) {
            Some((address, physical)) => (address, Frame::containing(physical).0),
            None => return Call::DomainSwitch { domain: self.some_domain_id() },
        };
        let target = self.random.below(self.domains.len());
        let (first, index) = (self.domains[0].index, self.domains[target].index);
        if !self.random.one_in(4) {
            let (named, value) = (self.domains[0].capabilities[1], WRITABLE);
            let operation = Operation::Map as u8;
            let item = Item { operation, level: 1, more: 0, frame, address, value };
            let (state, machine) = (&mut self.state, &mut self.machine);
            let (_, answer) = table::update_item(state, machine, first, index, &named, &item, 0);
            self.note(&answer);
            if answer == Err(Refusal::new(Error::NoTable, 2)) {
                self.grow(target, 2, address);
            } else if answer.is_ok() {
                self.remember(target, &item, None);
            }
        }
        Call::DomainSwitch { domain: self.domains[target].id }
    }

    /// One that gives CONTROL over a domain, mostly, if the caller has any.
    pub(super) fn best_over(&mut self, caller: usize, domain: DomainId, other: u64) -> u64 {
        let Ok(target) = domain::find(&self.state, domain) else { return other };
        let guard = *domain::guard(&self.state, target);
        let guard = &guard.components[..usize::from(guard.length)];
        let own = env::domain(&self.state, caller).index();
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
            let state = self.state.envs.slots[index].state;
            if matches!(state, EnvState::Free | EnvState::Dead) {
                assert_eq!(record.home, 0, "{index} is dead, and at home");
                continue;
            }
            assert_ne!(record.home, record.domain, "{index} visits its home");
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
            let next = |&at: &u16| Some(records[usize::from(at)].beside[1]).filter(|&at| at != 0);
            let first = Some(records[index].unborn).filter(|&at| at != 0);
            let counted = core::iter::successors(first, next).count();
            assert!(index == 0 || unborn == counted, "{index} has made {unborn}, not {counted}");
            assert!(record.id != 0 || unborn == 0 || index == 0, "the maker {index} has ended");
        }
    }
}
