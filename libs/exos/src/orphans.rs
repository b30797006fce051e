//! Process groups that nobody can continue any more (exit(3), "orphaned process group").
//!
//! A group is orphaned when no member has a parent in another group of the same session. If an
//! exit makes it so while a member is stopped, its members get SIGHUP and SIGCONT, since no shell
//! is left that would continue them. A process that is killed outright tells nobody: its library
//! is gone.

use crate::children;
use crate::page;
use crate::process::Process;
use crate::signal::send;
use abi::id::EnvId;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;

/// `process` is about to end: hangs up groups of stopped children that lose their last link.
pub fn hang_up(process: &mut Process) {
    let (own_group, session) = (page::own().group, page::own().session);
    let mut groups: Vec<u32> = Vec::new();
    for child in &process.children {
        let Some(brief) = page::brief(child.id).filter(|brief| !brief.dead) else { continue };
        if brief.stop_signal != 0 && brief.session == session && !groups.contains(&brief.group) {
            groups.push(brief.group);
        }
    }
    for group in groups {
        // Our own group has been orphaned all along if our parent is no link.
        let parent = children::parent(process);
        let was_linked = group != own_group || is_link(parent, group, session);
        if was_linked && !is_linked_without(process.id, group, session) {
            for signal in [linux::SIGHUP, linux::SIGCONT] {
                // Members that end meanwhile need not hear of it.
                let _ = send::kill(process, u64::from(group).wrapping_neg(), signal.into());
            }
        }
    }
}

/// Is `parent` a process of the session, outside of the group?
fn is_link(parent: u32, group: u32, session: u32) -> bool {
    page::brief(EnvId(parent))
        .is_some_and(|brief| !brief.dead && brief.session == session && brief.group != group)
}

/// Has the group a member other than `leaving` whose parent is another link?
fn is_linked_without(leaving: EnvId, group: u32, session: u32) -> bool {
    page::all().any(|member| {
        let parent = || page::of_index(member.id.index()).map_or(0, |page| page.parent);
        member.group == group && !member.dead && member.id != leaving && {
            let parent = parent();
            parent != leaving.0 && is_link(parent, group, session)
        }
    })
}
