//! Threads as the kernel sees them: environments in one domain, gone with their process.

use crate::linux;
use crate::suite::Seen;
use abi::id::{DomainId, EnvId};
use abi::published::{DomainRecord, Table};
use core::sync::atomic::{AtomicU32, Ordering};
use xok::published;

/// Looks that something which ends elsewhere is given.
const PATIENCE: usize = 1_000_000;

/// Environments in the domain, 0 when it is gone.
fn envs_in(domain: DomainId) -> u32 {
    let record: Option<DomainRecord> = published::record(Table::Domains, domain.index());
    record.filter(|record| record.id == domain.0).map_or(0, |record| record.envs)
}

fn domain_of(pid: u64) -> DomainId {
    DomainId(published::env(EnvId(pid as u32)).map_or(0, |record| record.domain))
}

/// decisions 1: SIGKILL stops all threads on all processors.
pub fn killed_process_takes_its_threads() -> Seen {
    static STOP: AtomicU32 = AtomicU32::new(0);
    static TIDS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
    let (reader, writer) = linux::pipe().ok_or(("pipe", [0; 3]))?;
    let child = linux::fork();
    if child == 0 {
        let made = TIDS.iter().filter(|tid| linux::spinning_thread(tid, &STOP) > 0).count();
        linux::send(writer, made as u64);
        loop {
            linux::pause();
        }
    }
    let made = linux::receive(reader).unwrap_or(0);
    let domain = domain_of(child as u64);
    let before = envs_in(domain);
    linux::kill(child, 9);
    let status = linux::wait(child);
    let mut after = envs_in(domain);
    for _ in 0..PATIENCE {
        if after == 0 {
            break;
        }
        linux::give_way();
        after = envs_in(domain);
    }
    linux::close(reader);
    linux::close(writer);
    if (made, before, after, status) == (3, 4, 0, 9) {
        return Ok([made, before.into(), after.into()]);
    }
    Err((
        "threads made, environments before and after the kill",
        [made, before.into(), after.into()],
    ))
}

/// A thread that has ended leaves neither environment nor record, and its area serves the next one.
pub fn threads_leave_nothing() -> Seen {
    static STOP: AtomicU32 = AtomicU32::new(1);
    static TID: AtomicU32 = AtomicU32::new(0);
    const ROUNDS: u64 = 200;
    let domain = domain_of(linux::pid());
    let mut free = 0;
    for round in 0..ROUNDS {
        if round == ROUNDS / 2 {
            free = published::directory().frames_free;
        }
        let made = linux::spinning_thread(&TID, &STOP);
        if made <= 0 {
            return Err(("clone", [round, made as u64, 0]));
        }
        loop {
            match TID.load(Ordering::Acquire) {
                0 => break,
                tid => linux::futex_wait(&TID, tid),
            };
        }
    }
    // What the last ones had is freed in turns of its own.
    let (mut left, mut taken) = (0, 0);
    for _ in 0..PATIENCE {
        left = envs_in(domain);
        taken = free.saturating_sub(published::directory().frames_free);
        if left == 1 && taken < ROUNDS / 4 {
            return Ok([ROUNDS, left.into(), taken]);
        }
        linux::give_way();
    }
    Err(("rounds, environments left, frames taken", [ROUNDS, left.into(), taken]))
}
