//! What a process asks of another one beyond signals, and what only the superuser may ask for.
//!
//! A process writes its own page alone, so it changes its own priority, scheduling and limits and
//! nobody else's: of another process it learns whether that exists (ESRCH), else EPERM, the
//! superuser too.

#![allow(non_upper_case_globals)]

use crate::belief::{self, Claims, Kin, Payers};
use crate::errno::{Answer, Errno};
use crate::page::{self, ProcessPage};
use crate::process::Process;
use crate::time::to_timespec;
use crate::{machine, said, user};
use abi::id::EnvId;
use abi::limits::SLICE_NS;
use core::cell::LazyCell;
use linux_raw_sys::general::*;
use unix::process_page::nice_that_can_be;
use xok::published;

/// Who is meant by a `setpriority`.
const ONE: u64 = 0;
const GROUP: u64 = 1;
const USER: u64 = 2;
/// `ptrace` requests (linux/ptrace.h).
const PTRACE_ATTACH: u32 = 16;
/// See [`PTRACE_ATTACH`].
const PTRACE_SEIZE: u32 = 0x4206;
/// `unshare` flags that make namespaces, but the one of users, which anybody may make.
const NAMESPACES: u64 =
    (CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWCGROUP)
        as u64;

/// Does the call, if it is one of these.
pub fn call(process: &mut Process, number: u32, words: [u64; 6]) -> Option<Answer> {
    let [first, second, third, ..] = words;
    Some(match number {
        __NR_getpriority => priority(process, first, second as u32),
        __NR_setpriority => set_priority(process, first, second as u32, third as i32),
        __NR_sched_getscheduler => other(process, first as u32).map(|_| u64::from(SCHED_NORMAL)),
        __NR_sched_setscheduler => set_scheduler(process, first as u32, second as u32, third),
        __NR_sched_setparam => set_scheduler(process, first as u32, SCHED_NORMAL, second),
        __NR_sched_getparam => {
            other(process, first as u32).and_then(|_| user::write_value(second, &0_u32)).map(|()| 0)
        }
        __NR_sched_getaffinity => {
            other(process, first as u32).and_then(|_| machine::affinity(second, third))
        }
        __NR_sched_setaffinity => set_affinity(process, first as u32, second, third),
        __NR_sched_get_priority_min => priorities(first as u32).map(|all| all[0]),
        __NR_sched_get_priority_max => priorities(first as u32).map(|all| all[1]),
        __NR_sched_rr_get_interval => slice(process, first as u32, second),
        __NR_prlimit64 => machine::prlimit(process, words),
        __NR_getrlimit => machine::prlimit(process, [0, first, 0, second, 0, 0]),
        __NR_setrlimit => machine::prlimit(process, [0, first, second, 0, 0, 0]),
        __NR_ptrace if matches!(first as u32, PTRACE_ATTACH | PTRACE_SEIZE) => {
            looked_at(process, second as u32)
        }
        __NR_process_vm_readv | __NR_process_vm_writev => looked_at(process, first as u32),
        __NR_unshare if first & NAMESPACES == 0 => Err(Errno::ENOSYS),
        __NR_unshare | __NR_sethostname | __NR_setdomainname | __NR_settimeofday
        | __NR_clock_settime | __NR_vhangup | __NR_swapon | __NR_swapoff | __NR_acct
        | __NR_init_module | __NR_finit_module | __NR_delete_module | __NR_iopl | __NR_ioperm => {
            superusers(process)
        }
        _ => return None,
    })
}

/// What nobody can do here, and only the superuser is told so.
fn superusers(process: &Process) -> Answer {
    Err(if process.users[1] == 0 { Errno::ENOSYS } else { Errno::EPERM })
}

/// The page of another process, `None` for ourselves. What is no Linux process counts as user 0's:
/// that is who the servers belong to.
///
/// Its own word: it is told, or refuses to be looked at.
pub fn other(process: &Process, pid: u32) -> Result<Option<ProcessPage>, Errno> {
    if pid == 0 || pid == process.id.0 {
        return Ok(None);
    }
    let record = published::env(EnvId(pid)).ok_or(Errno::ESRCH)?;
    // Whose thread it is it says itself: a stranger would have us change what is our own.
    let id = belief::process_of(EnvId(pid), &record);
    if id == process.id {
        return Ok(None);
    }
    let page = said::of_index(id.index()).map(|page| *page.own_word());
    Ok(Some(page.unwrap_or(ProcessPage::EMPTY)))
}

/// Is it we ourselves that are meant?
pub fn own(process: &Process, pid: u32) -> Result<(), Errno> {
    match other(process, pid)? {
        None => Ok(()),
        Some(_) => Err(Errno::EPERM),
    }
}

/// May the process see what another one keeps to itself (ptrace(2), access mode checking)?
pub fn may_look(process: &Process, pid: u32) -> Result<bool, Errno> {
    let Some(page) = other(process, pid)? else { return Ok(true) };
    let (user, group) = (process.users[1], process.groups[1]);
    let same = [page.user, page.effective_user] == [user; 2]
        && [page.group_id, page.effective_group_id] == [group; 2];
    Ok(user == 0 || same && page.undumpable == 0)
}

/// Nobody looks into another process by a call, but is told first whether it might.
fn looked_at(process: &Process, pid: u32) -> Answer {
    Err(if may_look(process, pid)? { Errno::ENOSYS } else { Errno::EPERM })
}

/// Nice values of those that are meant, and whether it is ourselves.
fn meant(process: &Process, which: u64, who: u32) -> Result<alloc::vec::Vec<(i32, bool)>, Errno> {
    let own = page::own();
    let of_group = if who == 0 { own.group } else { who };
    let of_user = if which == USER && who == 0 { process.users[0] } else { who };
    let claims = Claims::default();
    let (kin, payers) = (LazyCell::new(|| Kin::of(process, of_group)), Payers::default());
    // What strangers say of themselves makes none of them ours: we could not do as they are meant.
    let is_meant = |id: EnvId, page: &said::Priority| match which {
        GROUP if of_group == own.group => page.group == of_group && payers.is_believed(process, id),
        GROUP => page.group == of_group && kin.may_be_in(process, id),
        _ => page.user == of_user && claims.hold_of(id, of_user),
    };
    match which {
        ONE => Ok([other(process, who)?
            .map_or((own.nice, true), |page| (nice_that_can_be(page.nice), false))]
        .into()),
        GROUP | USER => {
            let pages = said::all().filter_map(|brief| {
                let page = said::priority(brief.id)?;
                let page = page.fact(|page| is_meant(brief.id, page))?;
                Some((nice_that_can_be(page.nice), brief.id == process.id))
            });
            Ok(pages.collect())
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `getpriority(which, who)`: the highest of those that are meant, as 20 less the nice value.
fn priority(process: &Process, which: u64, who: u32) -> Answer {
    let nices = meant(process, which, who)?;
    let least = nices.iter().map(|one| one.0).min().ok_or(Errno::ESRCH)?;
    Ok(20_u64.wrapping_sub(i64::from(least) as u64))
}

/// `setpriority(which, who, nice)`
fn set_priority(process: &Process, which: u64, who: u32, nice: i32) -> Answer {
    let nice = nice_that_can_be(nice);
    let all = meant(process, which, who)?;
    if all.is_empty() {
        return Err(Errno::ESRCH);
    }
    if all.iter().any(|one| one.1) {
        if nice < page::own().nice && process.users[1] != 0 {
            return Err(Errno::EACCES);
        }
        page::own().nice = nice;
    }
    if all.iter().all(|one| one.1) { Ok(0) } else { Err(Errno::EPERM) }
}

/// `sched_setaffinity(pid, size, mask)`: taken, if it leaves a processor, and not kept.
fn set_affinity(process: &Process, pid: u32, size: u64, mask: u64) -> Answer {
    let wanted = read_mask(size, mask)?;
    own(process, pid)?;
    if wanted & machine::processors() == 0 { Err(Errno::EINVAL) } else { Ok(0) }
}

/// The first 64 processors of a set; the rest of a shorter one is empty.
fn read_mask(size: u64, mask: u64) -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    user::read_bytes(mask, &mut bytes[..size.min(8) as usize])?;
    Ok(u64::from_le_bytes(bytes))
}

/// The lowest and the highest priority that a policy knows (sched_get_priority_min(2)).
fn priorities(policy: u32) -> Result<[u64; 2], Errno> {
    match policy {
        SCHED_FIFO | SCHED_RR => Ok([1, 99]),
        SCHED_NORMAL | SCHED_BATCH | SCHED_IDLE | SCHED_DEADLINE => Ok([0, 0]),
        _ => Err(Errno::EINVAL),
    }
}

/// `sched_rr_get_interval(pid, interval)`: all have the kernel's slices.
fn slice(process: &Process, pid: u32, into: u64) -> Answer {
    if (pid as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    other(process, pid)?;
    user::write_value(into, &to_timespec(SLICE_NS)).map(|()| 0)
}

/// `sched_setscheduler(pid, policy, parameters)`; an order before all others is the superuser's.
fn set_scheduler(process: &Process, pid: u32, policy: u32, parameters: u64) -> Answer {
    if (pid as i32) < 0 || parameters == 0 {
        return Err(Errno::EINVAL);
    }
    let priority: u32 = user::read_value(parameters)?;
    let another = other(process, pid)?.is_some();
    let real_time = match policy & !SCHED_RESET_ON_FORK {
        SCHED_FIFO | SCHED_RR => true,
        SCHED_NORMAL | SCHED_BATCH | SCHED_IDLE => false,
        _ => return Err(Errno::EINVAL),
    };
    if priority > 99 || (priority != 0) != real_time {
        return Err(Errno::EINVAL);
    }
    if another || real_time && process.users[1] != 0 { Err(Errno::EPERM) } else { Ok(0) }
}
