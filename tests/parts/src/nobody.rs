//! A process of a user without rights names everything that is published, by all that it holds.
//!
//! Every environment, domain and account but its own, and the frames of other domains, is the
//! object of each call that could reach it, by each of its sixteen slots. All are refused, and a
//! process of user 0 beside it, the servers and the machine are there afterwards.

use crate::{Seen, expect, libc};
use abi::call::Call;
use abi::domain::NO_NAME;
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId, Frame};
use abi::limits::CAPABILITIES;
use abi::published::{AccountRecord, DomainRecord, EnvRecord, Table};
use abi::word::{UserAddress, Which};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use xok::published;
use xok::reader::{Owner, Reader};

/// The user.
const NOBODY: u32 = 65534;
/// Bytes of what is told of a failure.
const SAID: usize = 400;
/// One frame in so many is named.
const FRAMES: u32 = 61;

/// Was it refused for want of a right, or because there is no such object any more? No other answer
/// may come: neither that it was done nor that only the object's state forbids it.
fn is_refused(answer: Result<u64, (Error, u64)>) -> bool {
    const REFUSALS: [Error; 7] = [
        Error::NotPermitted,
        Error::NoSuchCapability,
        Error::NoSuchFrame,
        Error::WrongType,
        Error::NoSuchEnv,
        Error::NoSuchDomain,
        Error::NoSuchAccount,
    ];
    matches!(answer, Err((error, _)) if REFUSALS.contains(&error))
}

fn to_environment(env: EnvId) -> [Call; 5] {
    [
        Call::Post { env, bits: 0 },
        Call::EnvHold { env },
        Call::EnvRelease { env },
        Call::EnvDestroy { env, word: 0 },
        Call::SliceAlloc { cpu: 0, position: Which::Any, env },
    ]
}

fn to_domain(domain: DomainId, page: u64) -> [Call; 8] {
    let (which, vector, account) = (Which::Any, Which::Any, AccountId::NONE);
    let setup = UserAddress(page);
    [
        Call::EnvAlloc { which, domain, account, vector },
        Call::EnvMove { domain, fields: 0, setup },
        Call::DomainSwitch { domain },
        Call::TableUpdate { domain, items: setup, count: 0 },
        Call::CapabilityDerive { domain, slot: 9, extend: 0, components: 0, rights: 1 },
        Call::CapabilityPass { domain, slots: 0xffff },
        Call::DomainSet { domain, property: 0, value: 0 },
        Call::DomainDestroy { domain },
    ]
}

fn to_account(account: AccountId) -> [Call; 3] {
    [
        Call::AccountLimit { account, resource: 0, limit: 0, reserve: 0 },
        Call::AccountAlloc { which: Which::Any, parent: account },
        Call::AccountDestroy { account },
    ]
}

fn to_machine() -> [Call; 3] {
    [
        Call::TraceSet { kinds: 1 },
        Call::ConsoleRing { page: 0 },
        Call::MachineEnd { how: 0, status: 99 },
    ]
}

/// All that is to be tried, the machine's end last. In the domains that are spared are environments
/// that the user may signal, and no more.
fn calls(own: DomainId, page: u64, spared: &[u64]) -> Vec<Call> {
    let mut calls = Vec::new();
    for index in 1..published::table(Table::Envs).count as usize {
        let record: Option<EnvRecord> = published::record(Table::Envs, index);
        let signalled = |record: &EnvRecord| spared.contains(&record.domain);
        let others = record.filter(|record| record.id != 0 && record.domain != own.0);
        let others = others.filter(|record| !signalled(record));
        calls.extend(others.iter().flat_map(|record| to_environment(EnvId(record.id))));
    }
    for index in 1..published::table(Table::Domains).count as usize {
        let record: Option<DomainRecord> = published::record(Table::Domains, index);
        let others = record.filter(|record| record.id != 0 && record.id != own.0);
        calls.extend(others.iter().flat_map(|record| to_domain(DomainId(record.id), page)));
    }
    for index in 1..published::table(Table::Accounts).count as usize {
        let record: Option<AccountRecord> = published::record(Table::Accounts, index);
        let there = record.filter(|record| record.id != 0);
        calls.extend(there.iter().flat_map(|record| to_account(AccountId(record.id))));
    }
    let count = published::table(Table::Frames).count as u32;
    let frames = (0..count).step_by(FRAMES as usize).filter(|&frame| is_others(frame, own));
    calls.extend(frames.map(|frame| Call::FrameRevoke { frame: Frame(frame), flags: 0 }));
    calls.extend(to_machine());
    calls
}

/// Is the frame another domain's? What is free may be the process's own soon.
fn is_others(frame: u32, own: DomainId) -> bool {
    let owner = Reader::open().map(|reader| reader.owner(Frame(frame)));
    matches!(owner, Ok(Owner::Domain(domain)) if domain != own.index())
}

/// Is it still not about something of the process's own?
fn is_still(call: Call, own: DomainId) -> bool {
    match call {
        Call::FrameRevoke { frame, .. } => is_others(frame.0, own),
        _ => true,
    }
}

/// The attacker: 0 if all was refused.
fn attack(door: door::Door, page: u64, tried: &AtomicU64, spared: &[u64]) -> i32 {
    if !libc::become_user(NOBODY) {
        return 1;
    }
    let Some(own) = published::env_domain(EnvId(std::process::id())) else { return 2 };
    let (mut done, mut said) = (0, String::new());
    for call in calls(own, page, spared) {
        for slot in (0..CAPABILITIES as u8).filter(|_| is_still(call, own)) {
            let answer = libc::kernel_by(door, call, slot);
            libc::count(tried);
            if !is_refused(answer) {
                said.push_str(&format!("slot {slot}: {call:?}: {answer:?}; "));
                done += 1;
            }
        }
    }
    let len = said.len().min(SAID);
    libc::bytes(page, 4096)[..len].copy_from_slice(&said.as_bytes()[..len]);
    i32::from(done != 0) * 3
}

/// A daemon that acts for the attacker's user for a while, and its child, until `end` is not 0.
fn stepped_down(end: u64) -> i32 {
    let waits = move || {
        while libc::words(end, 1)[0].load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        0
    };
    if !libc::act_for(NOBODY) {
        return 1;
    }
    let child = libc::spawn(waits);
    libc::words(end, 3)[2].store(1, Ordering::SeqCst);
    libc::wait(child)
}

/// A set-gid program that the attacker's user starts: it acts for a group that the user is not in.
const TEAMS: &str = "/tmp/nobody-teams";
/// The name by which it is started.
pub const NAME: &str = "nobody-teams-program";

/// That program: it has a child, and tells where both are by writing to a pipe.
pub fn teams() -> u8 {
    let domain = || published::env_domain(EnvId(std::process::id())).map_or(0, |domain| domain.0);
    let tell = move || libc::write(1, &domain().to_le_bytes());
    let own = std::process::id();
    libc::spawn(move || {
        tell();
        while std::os::unix::process::parent_id() == own {
            std::thread::sleep(LOOK);
        }
        0
    });
    tell();
    loop {
        // Until it is killed.
        std::thread::sleep(LOOK);
    }
}

/// Between two looks whether the parent is there.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

/// Starts it; its pid, and its domain and its child's.
fn start_teams() -> Option<(i32, [u64; 2])> {
    crate::set_id::copy_program(TEAMS).ok()?;
    std::os::unix::fs::chown(TEAMS, Some(0), Some(2000)).ok()?;
    libc::set_mode(TEAMS, 0o2755);
    let (from, to) = libc::pair(libc::Pair::Pipe)?;
    let pid = libc::spawn(|| {
        if libc::become_user(NOBODY) && libc::set_output(&to) {
            libc::execute(TEAMS, &[NAME.to_string()], &[]);
        }
        1
    });
    drop(to);
    let mut told = [0; 16];
    let mut done = 0;
    while done < told.len() {
        match libc::read(from.as_raw_fd(), &mut told[done..]) {
            count if count > 0 => done += count as usize,
            _ => return None,
        }
    }
    let domain = |at: usize| u64::from_le_bytes(*told[at..].first_chunk().unwrap_or(&[0; 8]));
    Some((pid, [domain(0), domain(8)]))
}

/// Hole 1 of the issue, and its neighbours: a user without rights reaches nothing of others.
pub fn nobody_reaches_anything(door: door::Door) -> Seen {
    let (page, end) = (libc::shared(1), libc::shared(1));
    let victim = libc::spawn(|| {
        while libc::words(end, 1)[0].load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        0
    });
    let daemon = libc::spawn(|| stepped_down(end));
    let tried = &libc::words(end, 2)[1];
    while libc::words(end, 3)[2].load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let (teams, spared) = start_teams().ok_or("no set-gid program")?;
    let attacker = libc::spawn(|| attack(door, page, tried, &spared));
    let status = libc::wait(attacker);
    libc::send(teams, 9);
    libc::wait(teams);
    let _ = std::fs::remove_file(TEAMS);
    libc::words(end, 1)[0].store(1, Ordering::SeqCst);
    for (process, name) in [(victim, "the process of user 0"), (daemon, "the daemon")] {
        let ended = libc::wait(process);
        expect(ended == 0, || format!("{name} ended with {ended:#x}"))?;
    }
    expect(status == 0, || {
        let said = String::from_utf8_lossy(&libc::bytes(page, 4096)[..SAID]);
        format!("the attacker ended with {status:#x}: {}", said.trim_end_matches('\0'))
    })?;
    let written = std::fs::write("/tmp/nobody", "files are there");
    expect(written.is_ok(), || format!("{written:?}"))?;
    let _ = std::fs::remove_file("/tmp/nobody");
    let tried = tried.load(Ordering::SeqCst);
    expect(tried > 1000, || format!("only {tried} calls"))?;
    Ok(format!("({tried} calls)"))
}

/// A process says by which names it is signalled: one that says "by none" is ended by user 0 all
/// the same. (`cargo xtask hostile`, seed 111: a machine stood still in a `waitpid`.)
pub fn root_ends_who_takes_no_signals(door: door::Door) -> Seen {
    let page = libc::shared(1);
    let done = &libc::words(page, 1)[0];
    let refuser = libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 1;
        }
        let value = NO_NAME << 8 | NO_NAME;
        let domain = DomainId::NONE;
        let set = libc::kernel(door, Call::DomainSet { domain, property: 0, value });
        done.store(if set.is_ok() { 1 } else { 2 }, Ordering::SeqCst);
        // Ends by itself, so that a failure is one and not a machine that stands still.
        std::thread::sleep(std::time::Duration::from_secs(10));
        7
    });
    while done.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    libc::send(refuser, 9);
    let status = libc::wait(refuser);
    let set = done.load(Ordering::SeqCst);
    expect(set == 1 && status != 7 << 8, || format!("set {set}, ended with {status:#x}"))?;
    Ok(String::new())
}
