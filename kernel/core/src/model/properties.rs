//! Calls on properties of domains, one's own list, the machine, and the first account.
//!
//! The first account pays for what all have: no call ends it.

use super::Model;
use super::calls::BUFFER;
use crate::index::EnvIndex;
use crate::{account, domain, env};
use abi::call::{Call, TABLE, number as row};
use abi::capability::{NAME_GROUP, NAME_USER};
use abi::domain::{GROUPS_OF_LIST, NO_NAME, Property, SET_OF_GROUPS};
use abi::id::{AccountId, EnvId, Frame};
use abi::limits::RESOURCES;
use abi::setup::field::WHILE_RUNNING;

/// The first account, by its id.
const FIRST: AccountId = AccountId::new(1, 0);

/// Rows with the first account as an argument.
const ON_FIRST: [u16; 6] = [
    row::EnvAlloc,
    row::DomainAlloc,
    row::AccountAlloc,
    row::AccountLimit,
    row::AccountDestroy,
    row::DomainSet,
];

impl Model {
    /// One of these.
    pub(super) fn some_other_call(&mut self, caller: usize, word: u64, small: u16) -> Call {
        let domain = self.some_domain_id();
        match self.random.below(16) {
            0 => Call::CapabilityDerive {
                domain,
                slot: 2 + small,
                extend: small & 1,
                components: word & 0x3f,
                rights: self.random.below(32) as u16,
            },
            1 => Call::CapabilityDrop { slot: 2 + small },
            2 => {
                let kinds = [NAME_USER, NAME_GROUP, SET_OF_GROUPS, GROUPS_OF_LIST, small];
                let kind = self.random.pick(&kinds);
                Call::DomainHolds { domain, kind, number: u32::from(small) }
            }
            3 => Call::Entropy {},
            4 => Call::MachineEnd { how: small / 3, status: small },
            5 => Call::TraceSet { kinds: word },
            6..=9 => {
                let property = self.random.below(12) as u16;
                Call::DomainSet { domain, property, value: self.some_value(property, word) }
            }
            10 => {
                let frame = Frame(self.random.below(self.frames) as u32);
                Call::FrameRevoke { frame, flags: small & 1 }
            }
            11 => self.some_step(caller),
            12..=13 => Call::EnvMove { domain, fields: WHILE_RUNNING, setup: BUFFER },
            _ => self.some_call_on_first(word),
        }
    }

    fn some_value(&mut self, property: u16, word: u64) -> u64 {
        if self.random.one_in(8) {
            return word;
        }
        match Property::from_number(property) {
            Some(Property::Signals) => {
                let slot = self.random.below(4) as u64;
                slot | self.random.pick(&[NO_NAME, 0, 2]) << 8
            }
            Some(Property::Account) => self.state.published.accounts[1 + self.random.below(4)].id,
            Some(Property::Admits) => {
                let mut some = || {
                    let ids = self.state.published.envs.iter().map(|record| record.id);
                    let ids: Vec<u32> = ids.filter(|&id| id != 0).collect();
                    u64::from(EnvId(self.random.pick(&ids)).0)
                };
                some() | some() << 32
            }
            Some(Property::Entry) => 0x40_0100 + (word & 0x38),
            Some(Property::Ages | Property::Secret) => word & 1,
            _ if self.random.one_in(2) => 0,
            _ => self.some_region().0,
        }
    }

    /// The first account as what is charged, divided, limited or destroyed.
    fn some_call_on_first(&mut self, word: u64) -> Call {
        let any = abi::word::Which::Any;
        match self.random.below(6) {
            0 => Call::AccountDestroy { account: FIRST },
            1 => {
                let resource = self.random.below(RESOURCES + 1) as u16;
                let (limit, reserve) = (word as u32, u32::from(self.random.one_in(4)));
                Call::AccountLimit { account: FIRST, resource, limit, reserve }
            }
            2 => Call::AccountAlloc { which: any, parent: FIRST },
            3 => {
                let (property, value) = (Property::Account as u16, FIRST.0);
                Call::DomainSet { domain: self.some_domain_id(), property, value }
            }
            4 => {
                let domain = self.some_domain_id();
                Call::EnvAlloc { which: any, domain, account: FIRST, vector: any }
            }
            _ if self.domains.len() >= super::DOMAINS => Call::AccountDestroy { account: FIRST },
            _ => {
                let (window, bytes) = (0, u64::MAX);
                Call::DomainAlloc { which: any, account: FIRST, root: any, window, bytes }
            }
        }
    }

    /// Does the call say the first account, or mean it by none?
    pub(super) fn names_first(&self, caller: usize, call: &Call) -> bool {
        let own =
            domain::account(&self.state, env::domain(&self.state, EnvIndex::new(caller)).into());
        let is_first = |id: AccountId| match id.is_none() {
            true => own == account::FIRST,
            false => id == FIRST,
        };
        match *call {
            Call::EnvAlloc { account, .. } | Call::DomainAlloc { account, .. } => is_first(account),
            Call::AccountAlloc { parent, .. } => parent == FIRST,
            Call::AccountLimit { account, .. } | Call::AccountDestroy { account } => {
                account == FIRST
            }
            Call::DomainSet { property, value, .. } => {
                property == Property::Account as u16 && value == FIRST.0
            }
            _ => false,
        }
    }

    /// The rows that no call has done.
    pub(super) fn never_done(&self) -> Vec<&'static str> {
        let rows = TABLE.iter().zip(&self.rows);
        rows.filter(|(_, count)| count[1] == 0).map(|(row, _)| row.name).collect()
    }

    /// Every row has been done; those on the first account have been, and refused.
    pub(super) fn check_rows(&self) {
        let never = self.never_done();
        assert!(never.is_empty(), "never done: {never:?}");
        for at in ON_FIRST {
            let [refused, done] = self.on_first[usize::from(at)];
            let name = TABLE[usize::from(at)].name;
            assert!(refused > 10, "{name} of the first account: {refused} refused, {done} done");
            let ends = at == row::AccountDestroy;
            assert!(ends == (done == 0), "{name} of the first account: {done} done");
        }
    }
}
