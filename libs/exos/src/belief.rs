//! How far what a process says of itself is borne out by what the kernel says of it.
//!
//! The kernel knows for which users and groups a domain acts, whose account pays for it, in which
//! domain an environment is, and which environment holds which: whose child it is. It knows no
//! group of processes and no session.

use crate::process::Process;
use crate::{page, said};
use abi::capability::NAME_USER;
use abi::id::{AccountId, DomainId, EnvId};
use abi::published::{EnvRecord, Table};
use alloc::vec::Vec;
use core::cell::RefCell;
use xok::{accounts, call, published};

/// How far descent is followed.
const GENERATIONS: usize = 64;
/// Strangers of one account that the kernel is asked about.
const MANY: usize = 64;

/// Does the domain act for this user?
pub fn acts_for(domain: DomainId, user: u32) -> bool {
    call::domain_holds(domain, NAME_USER, user).is_ok()
}

/// The process whose thread the environment with this record says it is, if that is one of its
/// domain.
pub fn process_of(sender: EnvId, record: &EnvRecord) -> EnvId {
    let is_there = |&process: &EnvId| {
        let domain = DomainId(record.domain);
        published::env_domain(process) == Some(domain)
    };
    said::thread_of(sender).and_then(|process| process.fact(is_there)).unwrap_or(sender)
}

/// Is it `ancestor`, or one of its descendants?
pub fn descends(member: EnvId, ancestor: EnvId) -> bool {
    ancestors(member).any(|id| id == ancestor)
}

/// A process and its ancestors, as the kernel says who holds whom.
fn ancestors(id: EnvId) -> impl Iterator<Item = EnvId> {
    way_up(id).take(GENERATIONS)
}

/// The same, however many there are.
fn way_up(id: EnvId) -> impl Iterator<Item = EnvId> {
    core::iter::successors(Some(id), |&id| published::env_holder(id))
}

/// Which users pay, while all processes are looked at: the accounts' server is asked once about
/// each account, and the kernel about no stranger, of whom there may be thousands.
#[derive(Debug, Default)]
pub struct Payers(RefCell<Vec<(AccountId, Option<u32>)>>);

impl Payers {
    /// The user that pays for the domain, as far as that is known.
    fn of(&self, domain: DomainId) -> Option<u32> {
        let account = published::domain_account(domain)?;
        let mut known = self.0.borrow_mut();
        if let Some((_, user)) = known.iter().find(|(one, _)| *one == account) {
            return *user;
        }
        let user = accounts::whose(account);
        known.push((account, user));
        user
    }

    /// Is what the process `id` says of its group and session believed? A stranger is not: its word
    /// would keep others' groups stopped for ever. No strangers are our ancestors, and processes
    /// that speak for one of our users or for user 0.
    pub fn is_believed(&self, process: &Process, id: EnvId) -> bool {
        self.is_of_ours(process, id) || descends(process.id, id)
    }

    fn is_of_ours(&self, process: &Process, id: EnvId) -> bool {
        let [real, effective, saved] = process.users;
        self.speaks_for(id, [real, effective, saved, 0])
    }

    /// Are its group and session the word of one of these users? It acts for that one, at that
    /// one's cost: a set-id program, for which its starter pays, says what its starter has said. So
    /// it does when it has become its owner's wholly, and so do its descendants: their pages say
    /// whose word it is.
    pub fn speaks_for<const N: usize>(&self, id: EnvId, users: [u32; N]) -> bool {
        self.acts_at_cost_of(id, users, |user| {
            let told_by = said::brief(id).and_then(|brief| brief.told_by);
            told_by.is_none_or(|teller| teller == user)
        })
    }

    /// Does it act for one of these users, at that one's cost? Of the users those count that
    /// `is_meant` names.
    fn acts_at_cost_of<const N: usize>(
        &self,
        id: EnvId,
        users: [u32; N],
        is_meant: impl Fn(u32) -> bool,
    ) -> bool {
        let domain = published::env_domain(id).unwrap_or(DomainId::NONE);
        let payer = self.of(domain);
        let pays = |user: u32| payer.is_none_or(|payer| payer == user);
        users.into_iter().any(|user| pays(user) && is_meant(user) && acts_for(domain, user))
    }
}

/// Processes that say that they are a user's, while all are looked at: of each account, how many do
/// not act for that one.
#[derive(Debug, Default)]
pub struct Claims(RefCell<Vec<(AccountId, usize)>>);

impl Claims {
    /// Does this process, which says so, act for the user? The kernel is asked about no more of an
    /// account that has many that do not.
    pub fn hold_of(&self, id: EnvId, user: u32) -> bool {
        let domain = published::env_domain(id).unwrap_or(DomainId::NONE);
        let Some(account) = published::domain_account(domain) else { return false };
        let mut known = self.0.borrow_mut();
        let at = known.iter().position(|(one, _)| *one == account).unwrap_or(known.len());
        if at == known.len() {
            known.push((account, 0));
        }
        let Some((_, met)) = known.get_mut(at).filter(|(_, met)| *met < MANY) else { return false };
        let acts = acts_for(domain, user);
        *met += usize::from(!acts);
        acts
    }
}

/// What is known of whether a process descends from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Descent {
    Unknown,
    Descends,
    Stranger,
}

/// The descendants of two processes, while all are looked at: each way up is gone once, however
/// long strangers make it.
#[derive(Debug)]
struct Descendants {
    of: [EnvId; 2],
    /// By place in the table.
    known: RefCell<Vec<Descent>>,
}

impl Descendants {
    fn of(ancestors: [EnvId; 2]) -> Self {
        let count = published::table(Table::Envs).count as usize;
        Self { of: ancestors, known: RefCell::new(alloc::vec![Descent::Unknown; count]) }
    }

    /// Is it one of these processes, or of them?
    fn have(&self, member: EnvId) -> bool {
        let mut known = self.known.borrow_mut();
        let (mut found, mut steps) = (Descent::Stranger, 0);
        // A way that leads in a circle has no end.
        for id in way_up(member).take(known.len()) {
            let before = known.get(id.index()).copied().unwrap_or(Descent::Stranger);
            steps += 1;
            let is_one = !id.is_none() && self.of.contains(&id);
            if is_one || before != Descent::Unknown {
                found = if is_one { Descent::Descends } else { before };
                break;
            }
        }
        // The last one is known, and the first one is not asked about again.
        for id in way_up(member).take(steps).skip(1) {
            if let Some(place) = known.get_mut(id.index()) {
                *place = found;
            }
        }
        found == Descent::Descends
    }
}

/// Those of whose groups more than their own word is known: our descendants, and those of our
/// ancestors in our session who act for one of our users.
#[derive(Debug)]
pub struct Kin {
    payers: Payers,
    kin: Descendants,
}

impl Kin {
    /// The process's, by the eldest of these ancestors, and those that this group's leader has.
    pub fn of(process: &Process, group: u32) -> Self {
        let payers = Payers::default();
        let is_ours = |&id: &EnvId| {
            let session = said::brief(id).map(|brief| brief.place.own_word().session);
            let acts_for_us = || payers.acts_at_cost_of(id, process.users, |_| true);
            session == Some(page::own().session) && acts_for_us()
        };
        let eldest = ancestors(process.id).skip(1).take_while(is_ours).last();
        let kin = Descendants::of([eldest.unwrap_or(process.id), EnvId(group)]);
        Self { payers, kin }
    }

    /// May it be in the group, as it says? Each of the session may enter a group of the session,
    /// and so may who descends from the group's leader. Of others that is so if they act for one of
    /// our users: a stranger could keep a group there for ever.
    pub fn may_be_in(&self, process: &Process, id: EnvId) -> bool {
        self.kin.have(id) || self.payers.is_of_ours(process, id)
    }
}
