//! Sending signals: `kill` and its kin.

use crate::belief::Kin;
use crate::capabilities::{REAL_SLOT, SAVED_SLOT, USER_SLOT};
use crate::errno::{Answer, Errno, from_kernel};
use crate::fs::pty;
use crate::machine;
use crate::page::{self, Mark};
use crate::process::{Child, Process};
use crate::said::{self, Brief};
use crate::signal::{CODE_THREAD, CODE_USER, Info, bit, hidden};
use crate::{groups, user};
use abi::id::{DomainId, EnvId};
use abi::published::{EnvState, Table};
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell};
use linux_raw_sys::general as linux;
use xok::keeping::Keeping;
use xok::{accounts, call, published};

/// How often the table is looked through, until no process is met for the first time.
const LOOKS: usize = 64;

/// How often one that was sent a stop is given the processor.
const PATIENCE: usize = 4;
/// Of how many that do not stop all the same this is tried: a program may ignore what it is sent,
/// and keeps the processor meanwhile.
const STUBBORN: usize = 2;

fn own_info(process: &Process, code: i32) -> Info {
    let first = u64::from(process.id.0) | u64::from(process.users[0]) << 32;
    Info { code, first, ..Info::default() }
}

/// Sends `signal` (0: only asks whether it may) to one process, which is told `info`.
fn to_one(process: &mut Process, target: &Brief, signal: u32, info: Info) -> Result<(), Errno> {
    if target.id == process.id {
        return to_own(process, signal, info);
    }
    if target.dead {
        return Ok(());
    }
    if signal == linux::SIGKILL {
        return kill_outright(process, target.id);
    }
    if signal == 0 {
        return ask(process, target.id);
    }
    let bits = bit(signal);
    let real = real_counts(process, target.id);
    by_users(real, |slot| call::post(slot, target.id, bits))?;
    if signal == linux::SIGCONT {
        // Refused when it is not held: it goes on anyhow.
        let _ = by_users(real, |slot| call::env_release(slot, target.id));
    }
    Ok(())
}

/// Sends `signal` to another process alone.
fn to_single(process: &mut Process, target: &Brief, signal: u32, info: Info) -> Answer {
    to_one(process, target, signal, info)?;
    await_stops(signal, [target.id].into_iter());
    Ok(0)
}

/// Lets those that were sent a stop take it before they are sent anything else. What waits is a
/// bit, which does not say when it came: a SIGCONT that came meanwhile would be lost with it.
fn await_stops(signal: u32, sent: impl Iterator<Item = EnvId>) {
    let stops = [linux::SIGSTOP, linux::SIGTSTP, linux::SIGTTIN, linux::SIGTTOU];
    if !stops.contains(&signal) {
        return;
    }
    let ended = [EnvState::Held as u32, EnvState::Dead as u32];
    let goes_on = |id| published::env(id).is_some_and(|record| !ended.contains(&record.state));
    let mut stubborn = 0;
    for id in sent.take(LOOKS) {
        if stubborn == STUBBORN {
            return;
        }
        for _ in 0..PATIENCE {
            if !goes_on(id) {
                break;
            }
            match call::yield_to(id) {
                Ok(_) if signal == linux::SIGSTOP => {}
                // Blocked, handled or ignored, if it was not taken.
                Ok(_) => break,
                // It may be running, on another processor, or waits for a server.
                Err(_) => _ = call::yield_to(EnvId::NONE),
            }
        }
        stubborn += usize::from(signal == linux::SIGSTOP && goes_on(id));
    }
}

/// May the real user signal this process, if it is another one than the effective one? User 0
/// reaches all by its name, but only as the effective user (capabilities(7)): as the real one,
/// those whose real or saved user it is.
fn real_counts(process: &Process, target: EnvId) -> bool {
    let [real, effective, _] = process.users;
    if real == effective {
        return false;
    }
    let is_its = |page: &page::ProcessPage| page.user == 0 || page.saved_user == 0;
    let says_so = || said::of_index(target.index()).is_some_and(|page| is_its(page.own_word()));
    process.users[0] != 0 || says_so()
}

/// Does something by the effective user, else, if that counts, by the real one (kill(2)).
fn by_users(real: bool, act: impl Fn(u8) -> Result<u64, call::Refused>) -> Result<(), Errno> {
    let done = act(USER_SLOT).or_else(|refused| if real { act(REAL_SLOT) } else { Err(refused) });
    match done {
        Ok(_) => Ok(()),
        Err((error, _)) => Err(from_kernel(error)),
    }
}

/// Sends `signal` (0: only looks) to the process itself.
fn to_own(process: &mut Process, signal: u32, info: Info) -> Result<(), Errno> {
    // What `kill` sends arrives even if it cannot be counted any more (signal(7)).
    let room = signal == 0 || process.arrive(signal, info);
    if room || info.code == CODE_USER { Ok(()) } else { Err(Errno::EAGAIN) }
}

/// Ends a process whatever it does: its first thread with the status, then the others. A thread
/// that says nothing of itself is one of the process that the space belongs to.
fn kill_outright(process: &Process, id: EnvId) -> Result<(), Errno> {
    let real = real_counts(process, id);
    let domain = published::env_home(id).unwrap_or(DomainId::NONE);
    let word = crate::exit::signalled(linux::SIGKILL);
    let page = said::of_index(id.index());
    let word = page.map_or(word, |page| crate::exit::word(word, page.own_word()));
    let ended = by_users(real, |slot| call::env_destroy(slot, id, word));
    if ended == Err(Errno::EPERM) {
        // By whom its domain is signalled is the process's to set, the domain's guard is not.
        let slot = slot_of_root(process, domain).ok_or(Errno::EPERM)?;
        let destroyed = call::domain_destroy(slot, domain);
        return destroyed.map(|_| ()).map_err(|(error, _)| from_kernel(error));
    }
    ended?;
    end_rest(id, domain, real);
    Ok(())
}

/// Ends what is left in the domain of a process that has been ended: only now, as it may have made
/// environments there until then. Those that run make more while the table is looked through, so
/// the domain ends as one, unless its guard refuses that. Does it end?
fn end_rest(id: EnvId, domain: DomainId, real: bool) -> bool {
    let is_other = |&other: &EnvId| other != id;
    let is_left = || page::environments_of(domain).any(|other| is_other(&other));
    if published::domain(domain).is_none_or(|record| record.envs == 0) || !is_left() {
        return true;
    }
    let lives_there = |other: Brief| {
        other.id != id && !other.dead && published::env_domain(other.id) == Some(domain)
    };
    // Each may have just died.
    let end = |thread: EnvId| {
        let _ = by_users(real, |slot| call::env_destroy(slot, thread, 0));
    };
    if said::all().any(lives_there) {
        // A vfork child, or its parent, is there too, and stays.
        said::threads_of(id, domain).for_each(end);
        return false;
    }
    let destroyed = by_users(real, |slot| call::domain_destroy(slot, domain)).is_ok();
    let mut looks = 0..LOOKS;
    while !destroyed && looks.next().is_some() && is_left() {
        page::environments_of(domain).filter(is_other).for_each(end);
    }
    destroyed || !is_left()
}

/// Ends the environments of its domain that a dead child has left: no process tells of them. The
/// domain, if it ends: the kernel takes it apart in pieces.
pub fn end_left(process: &Process, id: EnvId) -> Option<DomainId> {
    let domain = published::env_home(id)?;
    published::domain(domain)?;
    // A vfork child was where the process is; servers' domains are no user's.
    let is_own = published::env_domain(process.id) == Some(domain);
    let ends = !is_own
        && accounts::payer(domain).is_some()
        && end_rest(id, domain, real_counts(process, id));
    ends.then_some(domain)
}

/// Where user 0's name lies that ends a domain whatever that says of itself: the effective user's,
/// or the saved one's if the effective user pays for the domain, which then is its program's.
fn slot_of_root(process: &Process, domain: DomainId) -> Option<u8> {
    let [_, effective, saved] = process.users;
    match (effective, saved) {
        (0, _) => Some(USER_SLOT),
        (_, 0) => (accounts::payer(domain) == Some(effective)).then_some(SAVED_SLOT),
        _ => None,
    }
}

/// May the process signal this one, by SIGKILL if by nothing else?
fn ask(process: &Process, id: EnvId) -> Result<(), Errno> {
    // User 0 reaches all: without a call for each of thousands.
    if process.users[1] == 0 {
        return if published::env_lives(id) { Ok(()) } else { Err(Errno::ESRCH) };
    }
    let asked = by_users(real_counts(process, id), |slot| call::post(slot, id, 0));
    let domain = published::env_domain(id).unwrap_or(DomainId::NONE);
    match asked {
        Err(Errno::EPERM) if slot_of_root(process, domain).is_some() => Ok(()),
        asked => asked,
    }
}

/// Ends an environment that shows no process, with all that is in its domain, or (0) asks whether
/// it may. It takes no other signal.
fn to_hidden(process: &Process, id: EnvId, signal: u32) -> Result<(), Errno> {
    match signal {
        linux::SIGKILL => kill_outright(process, id),
        0 => ask(process, id),
        _ => Err(Errno::ESRCH),
    }
}

fn checked(signal: u64) -> Result<u32, Errno> {
    if signal > 64 { Err(Errno::EINVAL) } else { Ok(signal as u32) }
}

/// `kill(pid, signal)`
pub fn kill(process: &mut Process, pid: u64, signal: u64) -> Answer {
    let signal = checked(signal)?;
    let info = own_info(process, CODE_USER);
    let pid = pid as i32;
    if pid == 1 {
        return to_init(process, signal);
    }
    if pid as u32 == process.id.0 {
        to_own(process, signal, info)?;
        return Ok(0);
    }
    if pid > 0 {
        let id = EnvId(pid as u32);
        if is_zombie(process, id) {
            if signal == linux::SIGKILL {
                end_left(process, id);
            }
            return Ok(0);
        }
        match said::brief(id) {
            Some(target) => return to_single(process, &target, signal, info),
            None if hidden::is_program(id) => to_hidden(process, id, signal)?,
            None => return Err(Errno::ESRCH),
        }
        return Ok(0);
    }
    let group = match pid {
        0 => Some(page::own().group),
        -1 => None,
        other => Some(other.unsigned_abs()),
    };
    to_group(process, signal, group)
}

/// Sends `signal` to a group, or (`None`) to all but init and the process itself.
fn to_group(process: &mut Process, signal: u32, group: Option<u32>) -> Answer {
    let (own, is_root) = (process.id, process.users[1] == 0);
    let kin = OnceCell::new();
    // Strangers who say that they are in the group are none whom another user than user 0 reaches.
    let may_be_in = |process: &Process, id, group| {
        kin.get_or_init(|| Kin::of(process, group)).may_be_in(process, id)
    };
    let told = to_all(process, signal, |process, target| match group {
        Some(group) => {
            is_in(process, target, group) && (is_root || may_be_in(process, target.id, group))
        }
        None => target.id != own && target.id.0 != 1,
    });
    let is_sent =
        |&(id, answer): &(EnvId, Result<(), Errno>)| (id != own && answer.is_ok()).then_some(id);
    await_stops(signal, told.iter().filter_map(is_sent));
    // Whoever waits for a group to end asks whether it is there: strangers do not count.
    let counts = |id| group.is_none_or(|group| !is_root || may_be_in(process, id, group));
    let mut sent = told.iter().any(|&(id, answer)| answer.is_ok() && counts(id));
    // Those that refuse it count if there are no others; who has ended meanwhile was none.
    let refusals = told.iter().filter_map(|&(id, answer)| Some((id, answer.err()?)));
    let mut refusals = refusals.filter(|&(_, errno)| !sent && errno != Errno::ESRCH);
    let refused = refusals.find(|&(id, _)| counts(id)).map(|(_, errno)| errno);
    if signal == linux::SIGCONT && told.iter().any(|&(_, answer)| answer == Err(Errno::EPERM)) {
        sent |= group.is_some_and(|group| goes_on(process, group, &told));
    }
    // They take nothing else. User 0 may end all servers, too, and does not mean them.
    let is_taken = matches!(signal, 0 | linux::SIGKILL);
    if is_taken && group.is_none() && !is_root {
        sent |= to_all_hidden(process, signal);
    }
    // Linux calls it done if there is anybody, may they all refuse it.
    let done = sent || group.is_none() && refused == Some(Errno::EPERM);
    if done { Ok(0) } else { Err(refused.unwrap_or(Errno::ESRCH)) }
}

/// Is a group continued of which some processes refuse our signals, as they are of our session
/// (kill(2))? The session's terminal has its server do that; those that have taken ours may hear of
/// it twice.
fn goes_on(process: &Process, group: u32, told: &[(EnvId, Result<(), Errno>)]) -> bool {
    let own = page::own();
    let is_ours = |&(id, answer): &(EnvId, Result<(), Errno>)| {
        answer == Err(Errno::EPERM)
            && said::brief(id).is_some_and(|it| it.place.own_word().session == own.session)
            && said::terminal(id).is_some_and(|said| *said.own_word() == own.mark())
    };
    let has_terminal = own.mark() != Mark::NONE;
    has_terminal && told.iter().any(is_ours) && pty::let_go_on(process, group).is_ok()
}

/// Sends `signal` to all that are meant; what each has answered.
///
/// A parent that makes a child meanwhile has the signal before its child is seen in the table, and
/// then begins its fork again; or after: then the child is met by a further look, as its place may
/// have been passed. None of them starts before all have been told.
fn to_all(
    process: &mut Process,
    signal: u32,
    is_meant: impl Fn(&Process, &Brief) -> bool,
) -> Vec<(EnvId, Result<(), Errno>)> {
    let info = own_info(process, CODE_USER);
    let (mut told, mut own) = (Vec::new(), false);
    // By its place, the last one met there.
    let count = published::table(Table::Envs).count as usize;
    let met = alloc::vec![Cell::new(EnvId::NONE); count];
    let is_met = |id: EnvId| met.get(id.index()).is_some_and(|last| last.get() == id);
    let keeping = Keeping::begin();
    for _ in 0..LOOKS {
        let mut fresh = false;
        for target in said::all_of(|id| !is_met(id)) {
            if !is_meant(process, &target) {
                continue;
            }
            fresh = true;
            met[target.id.index()].set(target.id);
            if target.id == process.id {
                own = true;
            } else {
                told.push((target.id, to_one(process, &target, signal, info)));
            }
        }
        if !fresh {
            break;
        }
    }
    drop(keeping);
    // Oneself last: the others must have it even if it ends us.
    if own {
        told.push((process.id, to_own(process, signal, info)));
    }
    told
}

/// The same to all that show no process; to any? One that has made another one before it was ended
/// is followed by a further look.
fn to_all_hidden(process: &Process, signal: u32) -> bool {
    let mut met = alloc::vec![EnvId::NONE; published::table(Table::Envs).count as usize];
    let mut sent = false;
    for _ in 0..LOOKS {
        let mut fresh = false;
        for id in hidden::all(process) {
            if core::mem::replace(&mut met[id.index()], id) != id {
                fresh = true;
                sent |= to_hidden(process, id, signal).is_ok();
            }
        }
        if !fresh {
            break;
        }
    }
    sent
}

/// Sends `signal` to a group of `session`, to those of its members that are meant. What a number
/// leads to that another process has said is no more than those that say themselves that they are
/// in the session, too.
pub fn to_members(
    process: &mut Process,
    signal: u32,
    (session, group): (u32, u32),
    is_meant: impl Fn(&Brief) -> bool,
) {
    // Those that refuse it, or end meanwhile, need not hear of it.
    let _ = to_all(process, signal, |process, target| {
        let is_there = target.place.own_word().session == session;
        is_there && is_in(process, target, group) && is_meant(target)
    });
}

/// The same, to those that have the terminal `mark` as their session's: what its settings say of
/// session and foreground any program has written that has the terminal.
pub fn to_terminals(process: &mut Process, signal: u32, mark: Mark, group: (u32, u32)) {
    to_members(process, signal, group, |target| has_terminal(target.id, mark));
}

/// The same by a leader that has given that terminal up, which hears it, too.
pub fn to_former_terminal(process: &mut Process, signal: u32, mark: Mark, group: (u32, u32)) {
    let own = process.id;
    to_members(process, signal, group, |target| target.id == own || has_terminal(target.id, mark));
}

fn has_terminal(id: EnvId, mark: Mark) -> bool {
    said::terminal(id).is_some_and(|said| *said.own_word() == mark)
}

/// What init does when told (busybox's `halt`, `poweroff` and `reboot` tell it so): ends the
/// machine.
fn to_init(process: &Process, signal: u32) -> Answer {
    if process.users[1] != 0 {
        return Err(Errno::EPERM);
    }
    match signal {
        linux::SIGUSR1 | linux::SIGUSR2 => machine::end(0),
        linux::SIGTERM => machine::end(1),
        _ => Ok(0),
    }
}

/// Is `target` in `group`: does it say so, or did we put it there, a child that has not looked at
/// its group yet?
fn is_in(process: &Process, target: &Brief, group: u32) -> bool {
    let put_there = |child: &Child| child.id == target.id && groups::pending(child) == Some(group);
    target.place.own_word().group == group || process.children.iter().any(put_there)
}

/// Is this a child that has died and was not waited for? It is there, and takes any signal.
fn is_zombie(process: &Process, id: EnvId) -> bool {
    let is_child = process.children.iter().any(|child| child.id == id);
    is_child && published::env(id).is_some() && !published::env_lives(id)
}

/// `tgkill(pid, tid, signal)`
pub fn thread_group_kill(process: &mut Process, pid: u64, thread: u64, signal: u64) -> Answer {
    if pid as i32 <= 0 || thread as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let is_own = process.threads.find(EnvId(thread as u32)).is_some();
    // Of others only the first threads are known here, whose number is their process's.
    let of = if is_own { process.id.0 } else { thread as u32 };
    if of != pid as u32 {
        return Err(Errno::ESRCH);
    }
    thread_kill(process, thread, signal)
}

/// `tkill(tid, signal)`
pub fn thread_kill(process: &mut Process, thread: u64, signal: u64) -> Answer {
    let signal = checked(signal)?;
    let id = EnvId(thread as u32);
    if id.0 as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let info = own_info(process, CODE_THREAD);
    if process.threads.find(id).is_some() {
        return to_thread(process, id, signal, info);
    }
    if is_zombie(process, id) {
        return Ok(0);
    }
    let target = said::brief(id).ok_or(Errno::ESRCH)?;
    to_single(process, &target, signal, info)
}

/// Sends `signal` (0: only looks) to one of our threads.
fn to_thread(process: &mut Process, id: EnvId, signal: u32, info: Info) -> Answer {
    let room = signal == 0 || process.arrive_at(id, signal, info);
    if room || info.code == CODE_THREAD { Ok(0) } else { Err(Errno::EAGAIN) }
}

/// `rt_sigqueueinfo(pid, signal, info)`, `rt_tgsigqueueinfo(pid, tid, signal, info)`
pub fn queue(process: &mut Process, pid: u64, signal: u64, address: u64) -> Answer {
    let words: [u64; 4] = user::read_value(address)?;
    let signal = checked(signal)?;
    let info =
        Info { code: words[1] as u32 as i32, first: words[2], second: words[3], ..Info::default() };
    let id = EnvId(pid as u32);
    let is_thread = id != process.id && process.threads.find(id).is_some();
    if is_thread {
        return to_thread(process, id, signal, info);
    }
    // To others nobody may speak as the kernel does, or as `kill` and `tkill`.
    if id != process.id && (info.code >= 0 || info.code == CODE_THREAD) {
        return Err(Errno::EPERM);
    }
    let target = said::brief(EnvId(pid as u32)).ok_or(Errno::ESRCH)?;
    to_single(process, &target, signal, info)
}
