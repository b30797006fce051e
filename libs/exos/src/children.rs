//! Waiting for children: zombies are dead records that the parent holds; stops are claims in pages.

use crate::errno::{Answer, Errno};
use crate::exit::{CONTINUED, status_of, stopped};
use crate::groups;
use crate::page;
use crate::process::{Child, Process};
use crate::said;
use crate::signal::{Info, send, sender};
use crate::thread;
use crate::time;
use crate::user;
use crate::wait::{Wait, sleep_deaf, sleep_until};
use abi::id::EnvId;
use abi::predicate::Operator;
use abi::published::{DomainRecord, EnvRecord, EnvState, Table};
use abi::upcall::EVENT_CHILD;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;

/// Frees the dead children of a process that does not want to hear of them (`SIGCHLD` ignored, or
/// `SA_NOCLDWAIT`); those that died while it did stay. `change`: what it wants is about to change.
pub fn tend(process: &mut Process, change: bool) {
    let unwanted = process.signals.drops_children();
    if !unwanted && !change {
        return;
    }
    let mut dropped = Vec::new();
    process.children.retain_mut(|child| {
        let dead = xok::published::env(child.id)
            .is_some_and(|record| record.state == EnvState::Dead as u32);
        if !dead || child.kept {
            return true;
        }
        if unwanted {
            dropped.push(child.id);
        }
        child.kept = true;
        !unwanted
    });
    for id in dropped {
        reap(process, id);
    }
}

/// What a child has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct News {
    id: EnvId,
    status: u64,
    run_ns: u64,
    ended: bool,
}

/// Which children a wait is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Any,
    One(u32),
    Group(u32),
}

impl Which {
    fn is(self, child: &Child) -> bool {
        match self {
            Which::Any => true,
            Which::One(pid) => child.id.0 == pid,
            Which::Group(group) => groups::of_child(child) == group,
        }
    }
}

/// The pid of `process`'s parent; 1 once that has died.
pub fn parent(process: &Process) -> u32 {
    if process.borrows_space {
        return process.lender;
    }
    match xok::published::env(process.id) {
        Some(record) => parent_of(&record),
        None => 1,
    }
}

/// The parent that the kernel's record of a process names; 1 once that has died.
pub fn parent_of(record: &EnvRecord) -> u32 {
    if record.holder != 0 { record.holder } else { 1 }
}

/// What `child` has to say, if anything asked for.
fn news(child: &mut Child, options: u32) -> Option<News> {
    let record = xok::published::env(child.id)?;
    if record.state == EnvState::Dead as u32 {
        let (id, run_ns) = (child.id, record.run_ns);
        return Some(News { id, status: status_of(record.word), run_ns, ended: true });
    }
    let brief = said::brief(child.id)?;
    let held = record.state == EnvState::Held as u32;
    if options & linux::WUNTRACED != 0
        && brief.stop_signal != 0
        && held
        && brief.stop_count != child.stops
    {
        child.stops = brief.stop_count;
        let status = stopped(brief.stop_signal);
        return Some(News { id: child.id, status, run_ns: record.run_ns, ended: false });
    }
    if options & linux::WCONTINUED != 0 && brief.continue_count != child.continuations {
        child.continuations = brief.continue_count;
        let run_ns = record.run_ns;
        return Some(News { id: child.id, status: CONTINUED, run_ns, ended: false });
    }
    None
}

/// What SIGCHLD tells (sigaction(2)): of a child that is dead, those before all others of which
/// nothing was told yet; else of one that has stopped or goes on. `None`: nothing is to be told.
pub fn told(process: &mut Process) -> Option<Info> {
    let mut found: Option<(&mut Child, u64)> = None;
    for child in &mut process.children {
        let record = xok::published::env(child.id);
        let Some(record) = record.filter(|it| it.state == EnvState::Dead as u32) else { continue };
        if found.is_none() || !child.told {
            let new = !child.told;
            found = Some((child, record.word));
            if new {
                break;
            }
        }
    }
    let Some((child, word)) = found else { return told_alive(process) };
    child.told = true;
    let id = child.id;
    Some(told_of(process, id, end_of(status_of(word))))
}

/// The same where none is dead.
fn told_alive(process: &mut Process) -> Option<Info> {
    let mut goes_on = false;
    for at in 0..process.children.len() {
        let child = &mut process.children[at];
        let Some(record) = xok::published::env(child.id) else { continue };
        let Some(brief) = said::brief_of(&record) else { continue };
        let [stops, continuations] = child.told_alive;
        let held = record.state == EnvState::Held as u32 && brief.stop_signal != 0;
        if held && stops != brief.stop_count {
            child.told_alive[0] = brief.stop_count;
            let (id, code) = (child.id, linux::CLD_STOPPED as i32);
            return told_unless_unwanted(process, id, (code, brief.stop_signal));
        }
        if continuations != brief.continue_count {
            child.told_early = true;
            return told_continued(process, at, brief.continue_count);
        }
        // It was released, and its page does not say so yet: it tells of that itself.
        goes_on |= !held && brief.stop_signal != 0;
    }
    (!goes_on).then(|| Info { code: linux::CLD_EXITED as i32, ..Info::default() })
}

/// What a child's own SIGCHLD tells, which it sends when its page says that it goes on: `None` for
/// one that is any process's.
pub fn told_by_itself(process: &mut Process, sender: EnvId) -> Option<Option<Info>> {
    let at = process.children.iter().position(|child| child.id == sender)?;
    let count = said::brief(sender)?.continue_count;
    let child = &mut process.children[at];
    if count != child.told_alive[1] {
        return Some(told_continued(process, at, count));
    }
    core::mem::take(&mut child.told_early).then_some(None)
}

fn told_continued(process: &mut Process, at: usize, count: u32) -> Option<Info> {
    let child = &mut process.children[at];
    child.told_alive[1] = count;
    let (id, code) = (child.id, linux::CLD_CONTINUED as i32);
    told_unless_unwanted(process, id, (code, linux::SIGCONT))
}

fn told_unless_unwanted(process: &mut Process, id: EnvId, what: (i32, u32)) -> Option<Info> {
    let flags = process.signals.action(linux::SIGCHLD).flags;
    let unwanted = flags & u64::from(linux::SA_NOCLDSTOP) != 0;
    (!unwanted).then(|| told_of(process, id, what))
}

fn told_of(process: &mut Process, id: EnvId, (code, status): (i32, u32)) -> Info {
    let first = u64::from(id.0) | u64::from(sender::of_child(process, id)) << 32;
    Info { code, first, second: status.into(), ..Info::default() }
}

/// How a child ended: `si_code` and `si_status` of its wait status.
fn end_of(status: u64) -> (i32, u32) {
    match status as u32 & 0x7f {
        0 => (linux::CLD_EXITED as i32, status as u32 >> 8 & 0xff),
        signal => (linux::CLD_KILLED as i32, signal),
    }
}

/// Looks at the children once: news, none yet, or no such child.
fn look(process: &mut Process, which: Which, options: u32) -> Result<Option<News>, Errno> {
    let mut any = false;
    for child in &mut process.children {
        if !which.is(child) {
            continue;
        }
        let news = news(child, options);
        // Whoever does not ask for ends has no child that has ended.
        if news.as_ref().is_some_and(|news| news.ended) && options & linux::WEXITED == 0 {
            continue;
        }
        any = true;
        if news.is_some() {
            return Ok(news);
        }
    }
    if any { Ok(None) } else { Err(Errno::ECHILD) }
}

/// Waits until the domain of a dead child has ended: when its parent hears of the end, all locks,
/// pipes and ports of the child are free (exit(2)). The kernel ends a domain in pieces. No signal
/// ends this wait: a parent that asks once, in SIGCHLD's handler, must get the answer.
fn await_end_of_domain(process: &mut Process, id: EnvId) {
    let Some(domain) = send::end_left(process, id) else { return };
    let offset = core::mem::offset_of!(DomainRecord, id) as u64;
    let address = xok::published::record_address(Table::Domains, domain.index()) + offset;
    let mut gone = Wait::new();
    gone.memory(address, Operator::NotEqual, domain.0).end_term();
    let is_gone = || xok::published::domain(domain).is_none();
    sleep_deaf(process, gone.atoms(), EnvId::NONE, is_gone);
}

/// Waits for news of a child as `options` say; one that has ended has nothing any more. Another
/// thread may have been told of its end meanwhile.
fn await_news(process: &mut Process, which: Which, options: u32) -> Result<Option<News>, Errno> {
    loop {
        let Some(news) = await_word(process, which, options)? else { return Ok(None) };
        if news.ended {
            await_end_of_domain(process, news.id);
        }
        if process.children.iter().any(|child| child.id == news.id) {
            return Ok(Some(news));
        }
    }
}

/// The same; what a child that has ended had may still be on its way back.
fn await_word(process: &mut Process, which: Which, options: u32) -> Result<Option<News>, Errno> {
    loop {
        thread::own().events &= !EVENT_CHILD;
        let posted = xok::upcall::take_events_of(EVENT_CHILD);
        if posted != 0 {
            process.tell(EVENT_CHILD);
            thread::own().events &= !EVENT_CHILD;
            if let Some(info) = told(process) {
                process.arrive(linux::SIGCHLD, info);
            }
        }
        tend(process, false);
        if let Some(news) = look(process, which, options)? {
            return Ok(Some(news));
        }
        if options & linux::WNOHANG != 0 {
            return Ok(None);
        }
        if let Err(interrupted) = sleep_until(process, Wait::new().events(EVENT_CHILD), 0) {
            // By SIGCHLD's own handler, perhaps: the child comes first.
            tend(process, false);
            return look(process, which, options)?.map_or(Err(interrupted), |news| Ok(Some(news)));
        }
    }
}

/// Forgets a dead child: its record is free, its time is the parent's children's.
fn forget(process: &mut Process, news: &News) {
    process.children.retain(|child| child.id != news.id);
    process.children_ns += news.run_ns;
    reap(process, news.id);
}

/// Forgets the record of a dead child, and ends what that has left in its domain.
fn reap(process: &Process, id: EnvId) {
    let _ = send::end_left(process, id);
    // The record is dead and ours; a kernel that refuses keeps it until we die.
    let _ = xok::call::env_forget(id);
}

/// `wait4(pid, status, options, usage)`
pub fn wait4(process: &mut Process, pid: u64, status: u64, options: u64, usage: u64) -> Answer {
    let options = options as u32;
    let known = linux::WNOHANG
        | linux::WUNTRACED
        | linux::WCONTINUED
        | linux::__WALL
        | linux::__WCLONE
        | linux::__WNOTHREAD;
    if options & !known != 0 {
        return Err(Errno::EINVAL);
    }
    let which = match pid as i32 {
        -1 => Which::Any,
        0 => Which::Group(page::own().group),
        pid if pid > 0 => Which::One(pid as u32),
        pid => Which::Group(pid.unsigned_abs()),
    };
    let options = options | linux::WEXITED;
    let Some(news) = await_news(process, which, options)? else { return Ok(0) };
    if status != 0 {
        user::write_value(status, &(news.status as u32))?;
    }
    if usage != 0 {
        user::write_value(usage, &time::usage(news.run_ns))?;
    }
    if news.ended {
        forget(process, &news);
    }
    Ok(u64::from(news.id.0))
}

/// `waitid(kind, id, info, options, usage)`
pub fn waitid(process: &mut Process, words: [u64; 6]) -> Answer {
    let [kind, id, info, options, usage, _] = words;
    let options = options as u32;
    let which = match kind as u32 {
        linux::P_ALL => Which::Any,
        linux::P_PID => Which::One(id as u32),
        linux::P_PGID if id == 0 => Which::Group(page::own().group),
        linux::P_PGID => Which::Group(id as u32),
        _ => return Err(Errno::EINVAL),
    };
    // Something must be waited for (waitid(2)).
    if options & (linux::WEXITED | linux::WSTOPPED | linux::WCONTINUED) == 0 {
        return Err(Errno::EINVAL);
    }
    let found = await_news(process, which, options)?;
    let mut words = [0_u32; 32];
    if let Some(news) = found {
        let (code, status) = match news.status {
            status if !news.ended && status == CONTINUED => {
                (linux::CLD_CONTINUED as i32, linux::SIGCONT)
            }
            status if !news.ended => (linux::CLD_STOPPED as i32, (status >> 8) as u32),
            status => end_of(status),
        };
        words[0] = linux::SIGCHLD;
        words[2] = code as u32;
        (words[4], words[5]) = (news.id.0, sender::of_child(process, news.id));
        words[6] = status;
    }
    if info != 0 {
        user::write_value(info, &words)?;
    }
    if let Some(news) = found {
        if usage != 0 {
            user::write_value(usage, &time::usage(news.run_ns))?;
        }
        if news.ended && options & linux::WNOWAIT == 0 {
            forget(process, &news);
        }
    }
    Ok(0)
}
