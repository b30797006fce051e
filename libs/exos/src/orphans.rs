//! Process groups that nobody can continue any more (exit(3), "orphaned process group").
//!
//! A group is orphaned when no member has a parent in another group of the same session. If an
//! exit makes it so while a member is stopped, its members get SIGHUP and SIGCONT, since no shell
//! is left that would continue them. A process that is killed outright tells nobody: its library
//! is gone.

use crate::children;
use crate::page;
use crate::process::Process;
use crate::signal::{send, sender};
use abi::id::{DomainId, EnvId};
use abi::published::EnvState;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use xok::{accounts, published};

/// How far descent is followed.
const GENERATIONS: usize = 64;

/// `process` is about to end: hangs up groups of stopped children that lose their last link.
pub fn hang_up(process: &mut Process) {
    let (own_group, session) = (page::own().group, page::own().session);
    let mut groups: Vec<(u32, Option<EnvId>)> = Vec::new();
    for child in &process.children {
        let Some(brief) = stopped(process.id, child.id) else { continue };
        // Our own group, if no starter of a set-id program said it, and one that we put it into.
        // Of others that it says it is in, it speaks for itself and its descendants.
        let known = child.group == brief.group || brief.group == own_group && !process.told_group;
        let group = (brief.group, (!known).then_some(child.id));
        if brief.session == session && !groups.contains(&group) {
            groups.push(group);
        }
    }
    for (group, of) in groups {
        // Our own group has been orphaned all along if our parent is no link.
        let parent = children::parent(process);
        let was_linked = group != own_group || is_link(parent, group, session);
        if was_linked && !is_linked_without(process, Some(process.id), (group, session)) {
            for signal in [linux::SIGHUP, linux::SIGCONT] {
                send::to_members(process, signal, (session, group), |member| {
                    of.is_none_or(|child| descends(member.id, child))
                });
            }
        }
    }
}

/// Is the group that we are in orphaned?
pub fn own_is_orphaned(process: &Process) -> bool {
    let own = page::own();
    !is_linked_without(process, None, (own.group, own.session))
}

/// The brief of a child that is stopped. What another process says is so only as far as the kernel
/// says it, too: whose child it is, and that it is held.
fn stopped(parent: EnvId, child: EnvId) -> Option<page::Brief> {
    let record = published::env(child)?;
    let held = record.holder == parent.0 && record.state == EnvState::Held as u32;
    page::brief_of(&record).filter(|brief| held && brief.stop_signal != 0)
}

/// Is it `ancestor`, or one of its descendants?
fn descends(member: EnvId, ancestor: EnvId) -> bool {
    ancestors(member).any(|id| id == ancestor)
}

/// A process and its ancestors, as the kernel says who holds whom.
fn ancestors(id: EnvId) -> impl Iterator<Item = EnvId> {
    let parent = |id: &EnvId| published::env(*id).map(|record| EnvId(record.holder));
    core::iter::successors(Some(id), parent).take(GENERATIONS)
}

/// Is `parent` a process of the session, outside of the group?
fn is_link(parent: u32, group: u32, session: u32) -> bool {
    page::brief(EnvId(parent))
        .is_some_and(|brief| !brief.dead && brief.session == session && brief.group != group)
}

/// Has the group a member other than `leaving` whose parent is another link? What processes say of
/// their groups counts if they are believed; whose parent is which the kernel says.
fn is_linked_without(
    process: &Process,
    leaving: Option<EnvId>,
    (group, session): (u32, u32),
) -> bool {
    let leaves = |id| leaving == Some(id);
    page::all().any(|member| {
        let is_member = member.group == group && !member.dead && !leaves(member.id);
        let parent = EnvId(published::env(member.id).map_or(0, |record| record.holder));
        is_member
            && !leaves(parent)
            && is_link(parent.0, group, session)
            && [member.id, parent].into_iter().all(|id| is_believed(process, id))
    })
}

/// Is what this process says of its group, and of its session, no word of a stranger's, who would
/// keep others' groups stopped for ever? Our ancestors' it is not, nor that of who acts for one of
/// our users or for user 0, at that one's cost: a set-id program, for which its starter pays, says
/// what its starter has said.
pub fn is_believed(process: &Process, id: EnvId) -> bool {
    descends(process.id, id) || is_of_ours(process, id)
}

fn is_of_ours(process: &Process, id: EnvId) -> bool {
    process.users.into_iter().chain([0]).any(|user| acts_at_cost_of(id, user))
}

/// Does it act for this user, at that one's cost?
pub fn acts_at_cost_of(id: EnvId, user: u32) -> bool {
    let domain = published::env_domain(id).unwrap_or(DomainId::NONE);
    sender::acts_for(domain, user) && accounts::payer(domain).is_none_or(|payer| payer == user)
}

/// Those of whose groups more than their own word is known: our descendants, and those of our
/// ancestors in our session who act for one of our users.
#[derive(Clone, Copy, Debug)]
pub struct Kin(EnvId);

impl Kin {
    /// The process's, by the eldest of these ancestors.
    pub fn of(process: &Process) -> Self {
        let is_ours = |id: &EnvId| {
            let session = page::brief(*id).map(|brief| brief.session);
            session == Some(page::own().session) && is_of_ours(process, *id)
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
