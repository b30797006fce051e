//! What /proc tells of a process: what its page says, and of its ids what the kernel bears out.
//!
//! A program that makes kernel calls of its own stores anything into its page. An administrator
//! finds a user's processes by /proc, to end them: so each id there is one for which the process's
//! domain acts, or else that of the user that pays for it; its parent is the one that the
//! kernel gave its record to.

use abi::capability::{NAME_GROUP, NAME_USER};
use abi::id::{DomainId, EnvId};
use abi::published::{EnvRecord, EnvState};
use alloc::vec::Vec;
use unix::Errno;
use unix::attributes::device_number;
use unix::proc_text::ProcessRecord;
use unix::process_page::{Mark, ProcessPage};
use unix::tty::shared::TERMINALS;
use xok::{accounts, call, published};

use super::terminal::Tty;
use crate::signal::sender::NOBODY;
use crate::{children, said, thread};

/// The ids of a process: real, effective, saved, of files.
pub struct Ids {
    pub users: [u32; 4],
    pub groups: [u32; 4],
}

impl Ids {
    /// Of the process `id` with this page, as far as the kernel bears them out.
    pub fn of(id: EnvId, page: &ProcessPage) -> Self {
        let domain = home_of(&published::env(id).unwrap_or_default());
        let users = [page.user, page.effective_user, page.saved_user, page.file_user];
        let groups =
            [page.group_id, page.effective_group_id, page.saved_group_id, page.file_group_id];
        // The domain's: environments follow it to another account one after the other.
        let payer = || accounts::payer(domain).unwrap_or(NOBODY);
        Self {
            users: borne_out(domain, NAME_USER, users, payer),
            groups: borne_out(domain, NAME_GROUP, groups, || NOBODY),
        }
    }
}

fn home_of(record: &EnvRecord) -> DomainId {
    DomainId(if record.home != 0 { record.home } else { record.domain })
}

/// The groups of its set that its page shows, those of them that the kernel bears out.
fn more_groups(record: &EnvRecord, page: &ProcessPage) -> Vec<u32> {
    let domain = home_of(record);
    let holds = |group: &u32| call::domain_holds(domain, NAME_GROUP, *group).is_ok();
    page.groups().iter().copied().filter(holds).collect()
}

/// Those of the numbers for which the domain acts; in place of the others, what `instead` says.
fn borne_out(
    domain: DomainId,
    kind: u16,
    numbers: [u32; 4],
    instead: impl FnOnce() -> u32,
) -> [u32; 4] {
    // Mostly they are all the same one.
    let mut last = None;
    let holds = numbers.map(|number| {
        let (_, known) = last
            .filter(|&(before, _)| before == number)
            .unwrap_or_else(|| (number, call::domain_holds(domain, kind, number).is_ok()));
        last = Some((number, known));
        known
    });
    if holds == [true; 4] {
        return numbers;
    }
    let instead = instead();
    core::array::from_fn(|at| if holds[at] { numbers[at] } else { instead })
}

/// A process that is dead and that its parent has not waited for: the kernel's record is all that
/// is left of it.
pub fn zombie(pid: u32) -> Option<EnvRecord> {
    let record = published::env(EnvId(pid))?;
    let dead = record.state == EnvState::Dead as u32;
    (dead && said::brief(EnvId(record.holder)).is_some()).then_some(record)
}

fn record_of_zombie(record: &EnvRecord) -> ProcessRecord {
    ProcessRecord {
        pid: record.id,
        name: Vec::from(*b"defunct"),
        state: b'Z',
        ppid: record.holder,
        foreground: -1,
        run_ns: record.run_ns,
        threads: 1,
        started_ns: record.born_ns,
        cpu: record.cpu,
        switches: record.switches,
        ..ProcessRecord::default()
    }
}

/// The device number of what a process says is its session's terminal (0: none), and the group in
/// the foreground there (-1: none that we can see, as we do not have the terminal open).
fn terminal_of(mark: Mark) -> (u32, i32) {
    let console = mark == Mark::CONSOLE;
    let (device, tty) = match mark.number.checked_sub(2) {
        _ if console => (device_number(5, 1), Tty::console().ok()),
        Some(number) if (number as usize) < TERMINALS => {
            (device_number(136, number.into()), thread::process().files.terminal(mark))
        }
        _ => return (0, -1),
    };
    match tty.and_then(|tty| tty.control().ok()) {
        Some(control) if control.hung_up && !console => (0, -1),
        Some(control) => (device as u32, control.foreground as i32),
        None => (device as u32, -1),
    }
}

/// What the published pages know of a process.
pub fn record_of(pid: u32) -> Result<ProcessRecord, Errno> {
    let id = EnvId(pid);
    let record = published::env(id).ok_or(Errno::ESRCH)?;
    if let Some(record) = zombie(pid) {
        return Ok(record_of_zombie(&record));
    }
    let page = said::of_index(id.index()).ok_or(Errno::ESRCH)?;
    let page = page.own_word();
    let state = match record.state {
        state if state == EnvState::Ready as u32 || state == EnvState::Running as u32 => b'R',
        state if state == EnvState::Held as u32 => b'T',
        _ => b'S',
    };
    let resident = published::domain(DomainId(record.domain)).map_or(0, |domain| domain.entries);
    let ids = Ids::of(id, page);
    let (terminal, foreground) = terminal_of(page.mark());
    // What a process does with signals is in its own memory alone.
    let own = (pid == thread::process().id.0).then(thread::process);
    let signals = own.map(|process| &process.signals);
    Ok(ProcessRecord {
        pid,
        name: page.name().to_vec(),
        state,
        ppid: children::parent_of(&record),
        pgid: page.group,
        sid: page.session,
        terminal,
        foreground,
        run_ns: record.run_ns,
        children_ns: 0,
        nice: page.nice,
        threads: page.threads.max(1),
        started_ns: record.born_ns,
        mapped: page.virtual_bytes,
        resident: (u64::from(resident) * 4096).min(page.virtual_bytes),
        directed: signals.map_or(0, |_| thread::own().directed.set()),
        pending: signals.map_or(0, |signals| signals.pending.set()),
        blocked: signals.map_or(0, |_| thread::own().blocked),
        ignored: signals.map_or(0, |signals| signals.set_of(false)),
        caught: signals.map_or(0, |signals| signals.set_of(true)),
        users: ids.users,
        groups: ids.groups,
        more_groups: more_groups(&record, page),
        cpu: record.cpu,
        descriptors: page.descriptors,
        switches: record.switches,
        umask: page.umask,
    })
}
