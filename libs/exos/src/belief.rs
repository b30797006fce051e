//! How far what a process says of itself is borne out by what the kernel says of it.
//!
//! The kernel knows for which users and groups a domain acts, whose account pays for it, in which
//! domain an environment is, and which environment holds which: whose child it is. It knows no
//! group of processes and no session.

use crate::process::Process;
use crate::{page, said};
use abi::capability::NAME_USER;
use abi::id::{DomainId, EnvId};
use abi::published::EnvRecord;
use xok::{accounts, call, published};

/// How far descent is followed.
const GENERATIONS: usize = 64;

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
    let parent = |id: &EnvId| published::env(*id).map(|record| EnvId(record.holder));
    core::iter::successors(Some(id), parent).take(GENERATIONS)
}

/// Is what this process says of its group, and of its session, no word of a stranger's, who would
/// keep others' groups stopped for ever? Our ancestors' it is not, nor that of who speaks for one
/// of our users or for user 0.
pub fn is_believed(process: &Process, id: EnvId) -> bool {
    descends(process.id, id) || is_of_ours(process, id)
}

fn is_of_ours(process: &Process, id: EnvId) -> bool {
    process.users.into_iter().chain([0]).any(|user| speaks_for(id, user))
}

/// Are its group and session this user's word? It acts for that one, at that one's cost: a set-id
/// program, for which its starter pays, says what its starter has said. So it does when it has
/// become its owner's wholly, and so do its descendants: their pages say whose word it is.
pub fn speaks_for(id: EnvId, user: u32) -> bool {
    let told_by = said::brief(id).and_then(|brief| brief.told_by);
    told_by.is_none_or(|teller| teller == user) && acts_at_cost_of(id, user)
}

/// Does it act for this user, at that one's cost?
fn acts_at_cost_of(id: EnvId, user: u32) -> bool {
    let domain = published::env_domain(id).unwrap_or(DomainId::NONE);
    acts_for(domain, user) && accounts::payer(domain).is_none_or(|payer| payer == user)
}

/// Those of whose groups more than their own word is known: our descendants, and those of our
/// ancestors in our session who act for one of our users.
#[derive(Clone, Copy, Debug)]
pub struct Kin(EnvId);

impl Kin {
    /// The process's, by the eldest of these ancestors.
    pub fn of(process: &Process) -> Self {
        let is_ours = |&id: &EnvId| {
            let session = said::brief(id).map(|brief| brief.place.own_word().session);
            let acts_for_us = || process.users.iter().any(|&user| acts_at_cost_of(id, user));
            session == Some(page::own().session) && acts_for_us()
        };
        Self(ancestors(process.id).skip(1).take_while(is_ours).last().unwrap_or(process.id))
    }

    /// May it be in this group, as it says? Each of the session may enter a group of the session,
    /// and so may who descends from the group's leader. Of others that is so if they act for one of
    /// our users: a stranger could keep a group there for ever.
    pub fn may_be_in(self, process: &Process, id: EnvId, group: u32) -> bool {
        descends(id, self.0) || descends(id, EnvId(group)) || is_of_ours(process, id)
    }
}
