//! Process groups that nobody can continue any more (exit(3), "orphaned process group").
//!
//! A group is orphaned when no member has a parent in another group of the same session. If an
//! exit makes it so while a member is stopped, its members get SIGHUP and SIGCONT, since no shell
//! is left that would continue them. A process that is killed outright tells nobody: its library
//! is gone.

use crate::belief::{Payers, descends};
use crate::children;
use crate::page;
use crate::process::Process;
use crate::said::{self, Place};
use crate::signal::send;
use abi::id::EnvId;
use abi::published::EnvState;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use xok::published;

/// `process` is about to end: hangs up groups of stopped children that lose their last link.
pub fn hang_up(process: &mut Process) {
    let (own_group, session) = (page::own().group, page::own().session);
    let mut groups: Vec<(u32, Option<EnvId>)> = Vec::new();
    for child in &process.children {
        let Some(brief) = stopped(process.id, child.id) else { continue };
        // Our own group, if no starter of a set-id program said it, and one that we put it into.
        // Of others that it says it is in, it speaks for itself and its descendants.
        let said = brief.place.own_word();
        let known = child.group == said.group || said.group == own_group && !process.told_group;
        let group = (said.group, (!known).then_some(child.id));
        if said.session == session && !groups.contains(&group) {
            groups.push(group);
        }
    }
    let payers = Payers::default();
    for (group, of) in groups {
        // Our own group has been orphaned all along if our parent is no link.
        let parent = EnvId(children::parent(process));
        let place = Place { group, session };
        let was_linked = group != own_group || is_link((process, &payers), parent, place);
        if was_linked && !is_linked_without((process, &payers), Some(process.id), place) {
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
    let place = Place { group: own.group, session: own.session };
    !is_linked_without((process, &Payers::default()), None, place)
}

/// The brief of a child that is stopped. What another process says is so only as far as the kernel
/// says it, too: whose child it is, and that it is held.
fn stopped(parent: EnvId, child: EnvId) -> Option<said::Brief> {
    let record = published::env(child)?;
    let held = record.holder == parent.0 && record.state == EnvState::Held as u32;
    said::brief_of(&record).filter(|brief| held && brief.stop_signal != 0)
}

/// Is `parent` a process of the session, outside of the group?
fn is_link((process, payers): (&Process, &Payers), parent: EnvId, place: Place) -> bool {
    let brief = said::brief(parent).filter(|brief| !brief.dead);
    let link = brief.and_then(|brief| {
        brief.place.fact(|said| {
            let is_outside = said.session == place.session && said.group != place.group;
            is_outside && payers.is_believed(process, parent)
        })
    });
    link.is_some()
}

/// Has the group a member other than `leaving` whose parent is another link? What processes say of
/// their groups counts if they are believed; whose parent is which the kernel says.
fn is_linked_without(
    (process, payers): (&Process, &Payers),
    leaving: Option<EnvId>,
    place: Place,
) -> bool {
    let leaves = |id| leaving == Some(id);
    said::all().filter(|member| !member.dead && !leaves(member.id)).any(|member| {
        let parent = EnvId(published::env(member.id).map_or(0, |record| record.holder));
        let is_linked = |said: &Place| {
            said.group == place.group
                && !leaves(parent)
                && is_link((process, payers), parent, place)
                && payers.is_believed(process, member.id)
        };
        member.place.fact(is_linked).is_some()
    })
}
