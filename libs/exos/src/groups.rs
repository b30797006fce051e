//! Process groups and sessions: claims in the pages of the process table.

use crate::errno::{Answer, Errno};
use crate::page;
use crate::process::Process;
use abi::id::EnvId;
use abi::published::{EnvRecord, EnvState};
use xok::published;

/// Times the processor is lent to a child so that it takes its group over.
const PATIENCE: usize = 16;

/// `setpgid(pid, group)`: one's own is written at once. A child writes its own page alone, so its
/// parent notes the group and lets it run until it has followed (it does so at its first chance).
pub fn setpgid(process: &mut Process, pid: u64, group: u64) -> Answer {
    let pid = if pid == 0 { process.id.0 } else { pid as u32 };
    let group = if group == 0 { pid } else { group as u32 };
    if group as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    if pid == process.id.0 {
        let own = page::own();
        if own.session == pid || !may_join(process, group) {
            return Err(Errno::EPERM);
        }
        own.group = group;
        return Ok(0);
    }
    let child = process.children.iter_mut().find(|child| child.id.0 == pid).ok_or(Errno::ESRCH)?;
    child.group = group;
    for _ in 0..PATIENCE {
        match page::brief(EnvId(pid)) {
            Some(brief) if brief.group != group && !brief.dead => {}
            _ => break,
        }
        if xok::call::yield_to(EnvId(pid)).is_err() {
            break;
        }
    }
    Ok(0)
}

/// May the process be put into `group`: its own, or one of its session? A leader that has ended
/// and that nobody has waited for keeps its group, and one that was put there by its parent may
/// not have followed yet.
fn may_join(process: &Process, group: u32) -> bool {
    let session = page::own().session;
    let leads = |record: EnvRecord| match page::brief_of(&record) {
        Some(leader) => leader.session == session,
        None => record.state == EnvState::Dead as u32,
    };
    group == process.id.0
        || published::env(EnvId(group)).is_some_and(leads)
        || page::all().any(|member| member.group == group && member.session == session)
}

/// `getpgid(pid)`
pub fn getpgid(process: &Process, pid: u64) -> Answer {
    if pid == 0 || pid as u32 == process.id.0 {
        return Ok(u64::from(page::own().group));
    }
    let noted = process.children.iter().find(|child| child.id.0 == pid as u32);
    if let Some(child) = noted
        && child.group != 0
    {
        return Ok(u64::from(child.group));
    }
    page::brief(EnvId(pid as u32)).map(|brief| u64::from(brief.group)).ok_or(Errno::ESRCH)
}

/// `getsid(pid)`
pub fn getsid(process: &Process, pid: u64) -> Answer {
    if pid == 0 || pid as u32 == process.id.0 {
        return Ok(u64::from(page::own().session));
    }
    page::brief(EnvId(pid as u32)).map(|brief| u64::from(brief.session)).ok_or(Errno::ESRCH)
}

/// `setsid()`
pub fn setsid(process: &mut Process) -> Answer {
    let own = page::own();
    if own.group == process.id.0 {
        return Err(Errno::EPERM);
    }
    own.session = process.id.0;
    own.group = process.id.0;
    own.terminal = 0;
    process.files.leave_console();
    Ok(u64::from(process.id.0))
}
