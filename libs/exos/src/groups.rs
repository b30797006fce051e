//! Process groups and sessions: claims in the pages of the process table.
//!
//! A process writes its own page alone. So a parent that puts a child into a group says so in its
//! page, and rings; the child, which the kernel tells whose child it is, takes the group over if
//! setpgid(2) allows it. Once it has executed a program it follows no more.

use crate::belief::{Kin, Payers};
use crate::errno::{Answer, Errno};
use crate::lock::DOORBELL;
use crate::process::{Child, Process};
use crate::said::Place;
use crate::{capabilities, children, exit, page, said};
use abi::id::EnvId;
use abi::published::{EnvRecord, EnvState};
use core::cell::LazyCell;
use xok::{call, published};

/// Times the processor is lent to a child so that it takes its group over.
const PATIENCE: usize = 16;
/// In place of an order's number: the child was dead when its parent put it into the group.
const TOO_LATE: u32 = u32::MAX;

/// `setpgid(pid, group)`
pub fn setpgid(process: &mut Process, pid: u64, group: u64) -> Answer {
    let pid = if pid == 0 { process.id.0 } else { pid as u32 };
    let group = if group == 0 { pid } else { group as u32 };
    if group as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    if pid == process.id.0 {
        follow(process);
        let own = page::own();
        if own.session == pid || group != pid && !exists(process, group) {
            return Err(Errno::EPERM);
        }
        enter(process, group);
        return Ok(0);
    }
    let at = process.children.iter().position(|child| child.id.0 == pid).ok_or(Errno::ESRCH)?;
    let record = published::env(EnvId(pid)).unwrap_or_default();
    let dead = record.state == EnvState::Dead as u32;
    let brief = said::brief_of(&record).filter(|_| !dead);
    // What a child says of its session decides about the child.
    let session = brief.map(|brief| brief.place.own_word().session);
    if session.is_some_and(|session| session != page::own().session) {
        return Err(Errno::EPERM);
    }
    if if dead { exit::has_executed(record.word) } else { said::has_executed(EnvId(pid)) } {
        return Err(Errno::EACCES);
    }
    if session == Some(pid) || group != pid && !exists(process, group) {
        return Err(Errno::EPERM);
    }
    let child = &mut process.children[at];
    child.group = group;
    child.order = if dead { TOO_LATE } else { page::tell_child(pid, group) };
    if !dead {
        await_following(child);
    }
    Ok(0)
}

/// Rings at a child, and lets it run until it has followed. One that does not hear it, as it has
/// another user or is stopped, follows at its first chance.
fn await_following(child: &Child) {
    // Refused by a child that has become another user's.
    let _ = call::post(capabilities::USER_SLOT, child.id, DOORBELL);
    for _ in 0..PATIENCE {
        if said::has_followed(child.id, child.order) || !published::env_lives(child.id) {
            break;
        }
        // It may be running, on another processor.
        let _ = call::yield_to(child.id).or_else(|_| call::yield_to(EnvId::NONE));
    }
}

/// Does what the parent has ordered last, if it may order anything: the child of its session that
/// leads none and has not executed a program.
pub fn follow(process: &Process) {
    let own = page::own();
    if own.executed != 0 || process.borrows_space {
        return;
    }
    let parent = EnvId(children::parent(process));
    let Some(brief) = said::brief(parent) else { return };
    // Whose child we are the kernel says; a parent may order any group of its session.
    let Some(order) = said::order_for(parent, process.id.0) else { return };
    let order = order.own_word();
    if order.order <= own.followed {
        return;
    }
    own.followed = order.order;
    if own.session == brief.place.own_word().session
        && own.session != process.id.0
        && order.group as i32 > 0
    {
        enter(process, order.group);
    }
}

/// The process is in this group from now on.
fn enter(process: &Process, group: u32) {
    let own = page::own();
    if own.group == process.id.0 && group != own.group {
        process.left_own_group.set(true);
    }
    own.group = group;
}

/// The group that a child was put into and has not taken over yet.
pub fn pending(child: &Child) -> Option<u32> {
    let followed = || said::has_followed(child.id, child.order);
    (child.order != 0 && (child.order == TOO_LATE || !followed())).then_some(child.group)
}

/// The group that a child is in.
pub fn of_child(child: &Child) -> u32 {
    let record = published::env(child.id).unwrap_or_default();
    let left = if record.state == EnvState::Dead as u32 {
        exit::group_of(record.word)
    } else if let Some(group) = pending(child) {
        group
    } else {
        said::brief_of(&record).map_or(0, |brief| brief.place.own_word().group)
    };
    // It does not say: then it is where its parent last knew it.
    if left != 0 && child.order != TOO_LATE { left } else { child.group }
}

/// Is there such a group in the process's session, by more than a stranger's word? A leader that
/// has ended and that nobody has waited for keeps its group, and a member may not have followed its
/// parent yet.
fn exists(process: &Process, group: u32) -> bool {
    let own = page::own();
    let is_led = |record: EnvRecord| {
        let left = exit::group_of(record.word);
        record.state == EnvState::Dead as u32 && (left == group || left == 0)
    };
    own.group == group
        || published::env(EnvId(group)).is_some_and(is_led)
        || has_member(process, group)
        || process.children.iter().any(|child| {
            let put_there = pending(child) == Some(group);
            put_there || !published::env_lives(child.id) && of_child(child) == group
        })
}

/// Has a group of the process's session a member, by more than a stranger's word?
pub fn has_member(process: &Process, group: u32) -> bool {
    let session = page::own().session;
    let kin = LazyCell::new(|| Kin::of(process, group));
    said::all().any(|member| {
        let may_be = || kin.may_be_in(process, member.id);
        member.place.fact(|&said| said == Place { group, session } && may_be()).is_some()
    })
}

/// `getpgid(pid)`
pub fn getpgid(process: &Process, pid: u64) -> Answer {
    if pid == 0 || pid as u32 == process.id.0 {
        follow(process);
        return Ok(u64::from(page::own().group));
    }
    if let Some(child) = process.children.iter().find(|child| child.id.0 == pid as u32)
        && let group @ 1.. = of_child(child)
    {
        return Ok(u64::from(group));
    }
    said::brief(EnvId(pid as u32))
        .map(|brief| u64::from(brief.place.own_word().group))
        .ok_or(Errno::ESRCH)
}

/// `getsid(pid)`
pub fn getsid(process: &Process, pid: u64) -> Answer {
    if pid == 0 || pid as u32 == process.id.0 {
        return Ok(u64::from(page::own().session));
    }
    said::brief(EnvId(pid as u32))
        .map(|brief| u64::from(brief.place.own_word().session))
        .ok_or(Errno::ESRCH)
}

/// `setsid()`: not of who leads a group, though it may have left that itself.
pub fn setsid(process: &mut Process) -> Answer {
    follow(process);
    let pid = process.id.0;
    if page::own().group == pid || leads_others(process) {
        return Err(Errno::EPERM);
    }
    let own = page::own();
    own.session = pid;
    own.group = pid;
    own.told_by = 0;
    own.terminal = 0;
    process.files.leave_console();
    Ok(u64::from(pid))
}

/// Has the group of the process's own number a member? There is no such group before the process
/// has led it. Who then says that it is there is believed if it acts for whom we act for, at that
/// one's cost: others could keep us from a session of our own.
fn leads_others(process: &Process) -> bool {
    if !process.left_own_group.get() {
        return false;
    }
    let own = page::own();
    let (pid, user) = (process.id.0, process.users[1]);
    let place = Place { group: pid, session: own.session };
    let payers = Payers::default();
    said::all().filter(|member| member.id != process.id).any(|member| {
        let is_ours = || payers.speaks_for(member.id, [user]);
        member.place.fact(|&said| said == place && is_ours()).is_some()
    }) || process.children.iter().any(|child| of_child(child) == pid)
}
