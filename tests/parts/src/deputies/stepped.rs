//! What a process that was user 0's reaches of what it made as such, and who reaches its children.
//!
//! A server begins as user 0, starts a helper that stays so, and becomes a user. Whoever takes it
//! over by its input then has that user's rights, and makes kernel calls. What it has read as user
//! 0 is in its memory still, and in that of the children that it forks.

use super::{ANN, NOBODY, failed};
use crate::peers::regions;
use crate::{Seen, Test, expect, libc, set_id, two_users};
use abi::call::Call;
use abi::id::{AccountId, DomainId, EnvId, Frame, RegionId};
use abi::memory::{Item, NO_EXECUTE, Operation, WRITABLE};
use abi::published::{FrameRecord, FrameType, Table};
use abi::word::{UserAddress, Which};
use std::fs;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use unix::process_page::{MAGIC, ProcessPage};
use xok::published;

/// What holds.
pub const TESTS: [Test; 8] = [
    (
        "parents_who_stepped_down_keep_no_frames_of_children",
        parents_who_stepped_down_keep_no_frames_of_children,
    ),
    (
        "parents_who_stepped_down_keep_no_frames_of_programs",
        parents_who_stepped_down_keep_no_frames_of_programs,
    ),
    ("who_stepped_down_enters_no_pipe_of_before", who_stepped_down_enters_no_pipe_of_before),
    ("children_of_who_stepped_down_stay_closed", children_of_who_stepped_down_stay_closed),
    ("frames_of_who_stepped_down_are_clear", frames_of_who_stepped_down_are_clear),
    ("regions_of_who_stepped_down_stay_closed", regions_of_who_stepped_down_stay_closed),
    ("programs_of_who_stepped_down_are_as_others", programs_of_who_stepped_down_are_as_others),
    ("programs_with_two_users_stay_closed", programs_with_two_users_stay_closed),
];

const HELPER: &str = "/tmp/stepped-helper";
/// Who waits for this file is a helper.
const GO: &str = "/tmp/stepped-go";
const WAITS: &str = "stepped-waits";
/// Says for whom it acts.
const SAYS: &str = "stepped-says";
/// Forks a child, which forks another one; all say their ids, and wait.
const FORKS: &str = "stepped-forks";
/// Where the ids of processes that wait are said.
const PIDS: [&str; 3] = ["/tmp/stepped-0", "/tmp/stepped-1", "/tmp/stepped-2"];
/// In the environment of who waits.
const MARK: &str = "STEPPED_MARK";
/// Capabilities that a process may have.
const SLOTS: std::ops::Range<u8> = 0..16;
/// What a page has that parent and child share until one of them stores.
const SHARED_WORD: u64 = 0x5a1e_d0c5_ba5e_ba11;
/// What user 0 has read; in memory it stands the other way round.
const SECRET_WORD: u64 = 0x5ec7_e75e_c7e7_5ec7;
const WORDS: usize = 512;
const PAGES: usize = 64;
/// Frames looked at: those given up last come first, and other things are given up behind them.
const LOOKED_AT: usize = 8 * PAGES;

/// One of the programs that these tests execute, if that is what it is called.
pub fn role(words: &[String]) -> Option<u8> {
    match words.first()?.as_str() {
        WAITS => wait_until(|| fs::metadata(GO).is_ok()),
        FORKS => fork_and_wait(),
        SAYS => print!("for {}", effective_user()?),
        _ => return None,
    }
    Some(0)
}

/// Whom the process acts for.
fn effective_user() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    Some(users.split_whitespace().nth(1)?.to_owned())
}

fn fork_and_wait() {
    let wait = |at: usize| {
        let said = fs::write(PIDS[at], std::process::id().to_string());
        wait_until(|| fs::metadata(GO).is_ok());
        i32::from(said.is_err())
    };
    let child = libc::spawn(|| {
        let last = libc::spawn(|| wait(2));
        wait(1) | libc::wait(last)
    });
    wait(0);
    libc::wait(child);
}

fn wait_until(is: impl Fn() -> bool) {
    while !is() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Does this call go through by one of the capabilities?
fn by_any(door: door::Door, call: Call) -> bool {
    SLOTS.clone().any(|slot| libc::kernel_by(door, call, slot).is_ok())
}

/// Does one of them make an environment where this process is?
fn enters(door: door::Door, pid: u64) -> bool {
    let Some(domain) = published::env_domain(EnvId(pid as u32)) else { return false };
    let (which, vector, account) = (Which::Any, Which::Any, AccountId::NONE);
    by_any(door, Call::EnvAlloc { which, domain, account, vector })
}

/// Changes an entry of the page at `at` by one of the capabilities.
fn update(door: door::Door, operation: Operation, at: u64, (frame, value): (u32, u64)) -> bool {
    let operation = operation as u8;
    let item = Item { operation, level: 1, frame, address: at, value, ..Item::default() };
    let items = UserAddress(&raw const item as u64);
    by_any(door, Call::TableUpdate { domain: DomainId::NONE, items, count: 1 })
}

/// Half a word of the page that the process shows.
fn nice_of(child: i32) -> u32 {
    let page = published::application(EnvId(child as u32).index());
    page.map_or(0, |page| page.half(offset_of!(ProcessPage, nice)))
}

/// What there is of a child's behind this page: its process page, or one that it shares with us.
fn is_the_childs(child: i32, at: u64) -> bool {
    let words = libc::words(at, WORDS);
    let first = words[0].load(Ordering::SeqCst);
    if first == SHARED_WORD {
        words[0].store(SHARED_WORD ^ 1, Ordering::SeqCst);
        return true;
    }
    let nice = offset_of!(ProcessPage, nice);
    let page = libc::bytes(at, 4096);
    let before: [u8; 4] = page[nice..nice + 4].try_into().unwrap_or_default();
    if first != MAGIC || before == 7_u32.to_le_bytes() {
        return false;
    }
    page[nice..nice + 4].copy_from_slice(&7_u32.to_le_bytes());
    let is = nice_of(child) == 7;
    page[nice..nice + 4].copy_from_slice(&before);
    is
}

/// Looks for frames of the child's that may be written, and for other rights over it.
fn reach(door: door::Door, child: i32) -> i32 {
    let pages = libc::private(8);
    libc::bytes(pages, 4096).fill(1);
    let at = pages + 4 * 4096;
    let mut reached = 0;
    for number in 1..published::directory().frames as u32 {
        let record = published::record::<FrameRecord>(Table::Frames, number as usize);
        let Some(record) = record else { break };
        if record.kind != FrameType::Data as u8 {
            continue;
        }
        if update(door, Operation::Map, at, (number, WRITABLE | NO_EXECUTE)) {
            reached |= i32::from(is_the_childs(child, at));
            update(door, Operation::Unmap, at, (0, 0));
        } else if by_any(door, Call::FrameRevoke { frame: Frame(number), flags: 0 }) {
            reached |= 2;
        }
    }
    let env = EnvId(child as u32);
    let signals = [Call::Post { env, bits: 1 << 22 }, Call::EnvHold { env }];
    reached |= i32::from(signals.into_iter().any(|call| by_any(door, call))) << 2;
    reached | i32::from(enters(door, child as u64)) << 3
}

/// Becomes nobody, as whom it looks at what it reaches of this child.
fn step_down(door: door::Door, child: i32) -> i32 {
    if !libc::become_user(NOBODY) || libc::try_root() {
        return 100;
    }
    reach(door, child)
}

/// A child that a process forked as user 0 is not its parent's when that is no longer user 0.
fn parents_who_stepped_down_keep_no_frames_of_children(door: door::Door) -> Seen {
    let status = libc::wait(libc::spawn(|| {
        let words = libc::words(libc::shared(1), 2);
        let shared = libc::words(libc::private(1), WORDS);
        shared[0].store(SHARED_WORD, Ordering::SeqCst);
        let child = libc::spawn(|| {
            words[0].store(1, Ordering::SeqCst);
            wait_until(|| words[1].load(Ordering::SeqCst) != 0);
            i32::from(shared[0].load(Ordering::SeqCst) != SHARED_WORD)
        });
        wait_until(|| words[0].load(Ordering::SeqCst) != 0);
        let reached = step_down(door, child);
        // What it had goes on being its own.
        shared[0].store(1, Ordering::SeqCst);
        words[1].store(1, Ordering::SeqCst);
        let ended = libc::wait(child);
        if reached == 0 && ended != 0 { 101 } else { reached }
    }));
    expect(status == 0, || format!("status {status:#x}"))?;
    Ok(String::new())
}

/// The same of a program that it has started, by vfork or a kin of it.
fn parents_who_stepped_down_keep_no_frames_of_programs(door: door::Door) -> Seen {
    let _ = fs::remove_file(GO);
    set_id::copy_program(HELPER).map_err(failed)?;
    libc::set_mode(HELPER, 0o755);
    let status = libc::wait(libc::spawn(|| {
        use std::os::unix::process::CommandExt;
        let Ok(child) = Command::new(HELPER).arg0(WAITS).spawn() else { return 102 };
        step_down(door, child.id() as i32)
    }));
    fs::write(GO, "").map_err(failed)?;
    expect(status == 0, || format!("status {status:#x}"))?;
    Ok(String::new())
}

/// Nor are pipes that it made, gave away and closed.
fn who_stepped_down_enters_no_pipe_of_before(door: door::Door) -> Seen {
    let status = libc::wait(libc::spawn(|| {
        let words = libc::words(libc::shared(1), 1);
        let before = regions();
        let Some((from, to)) = libc::pair(libc::Pair::Pipe) else { return 102 };
        libc::write(to.as_raw_fd(), b"user 0's");
        let child = libc::spawn(|| {
            wait_until(|| words[0].load(Ordering::SeqCst) != 0);
            let mut bytes = [0; 16];
            i32::from(libc::read(from.as_raw_fd(), &mut bytes) != 8)
        });
        let made: Vec<u64> = regions().difference(&before).copied().collect();
        drop((from, to));
        let stepped = libc::become_user(NOBODY);
        let attach = |&region: &u64| {
            (0..4).any(|role| {
                let (region, domain) = (RegionId(region), DomainId::NONE);
                by_any(door, Call::RegionAttach { region, role, domain })
            })
        };
        // Those that it is attached to still are its own: none is the pipe's.
        let reached = made.iter().filter(|region| attach(region)).count() as i32;
        words[0].store(1, Ordering::SeqCst);
        let ended = libc::wait(child);
        if !stepped || ended != 0 || made.is_empty() { 101 } else { reached }
    }));
    expect(status == 0, || format!("status {status:#x}"))?;
    Ok(String::new())
}

/// Has `act` done in a child of a process that has given user 0 up, and in one that such a process
/// has forked in turn; their pids come to `words`, and both wait for a word there.
fn step_down_and_fork(words: &'static [AtomicU64]) -> i32 {
    let stay = |at: usize| {
        words[at].store(std::process::id().into(), Ordering::SeqCst);
        wait_until(|| words[0].load(Ordering::SeqCst) != 0);
    };
    libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 100;
        }
        let child = libc::spawn(|| {
            let grandchild = libc::spawn(|| {
                stay(3);
                0
            });
            stay(2);
            libc::wait(grandchild)
        });
        stay(1);
        libc::wait(child)
    })
}

/// As long as it has executed no program, no other process of the user's enters it or its children.
fn children_of_who_stepped_down_stay_closed(door: door::Door) -> Seen {
    let words = libc::words(libc::shared(1), 4);
    let child = step_down_and_fork(words);
    wait_until(|| words[1..4].iter().all(|word| word.load(Ordering::SeqCst) != 0));
    let attacker = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 100;
        }
        let entered = |at: usize| i32::from(enters(door, words[at].load(Ordering::SeqCst)));
        entered(1) | entered(2) << 1 | entered(3) << 2
    }));
    words[0].store(1, Ordering::SeqCst);
    let status = libc::wait(child);
    expect(attacker == 0 && status == 0, || format!("attacker {attacker:#x}, {status:#x}"))?;
    Ok(String::new())
}

/// Frames that hold the secret in memory of zeros not asked for, as a native program takes it.
fn frames_with_the_secret(door: door::Door) -> i32 {
    let at = libc::private(LOOKED_AT + 1);
    // The tables for all of it.
    libc::bytes(at, 1)[0] = 1;
    libc::bytes(at + 4096 * LOOKED_AT as u64, 1)[0] = 1;
    let at = at + 4096;
    let taken = |page: usize| {
        let address = at + 4096 * page as u64;
        let any = (abi::memory::ANY_FRAME, WRITABLE | NO_EXECUTE);
        let has = |word: &AtomicU64| word.load(Ordering::SeqCst) == !SECRET_WORD;
        update(door, Operation::Allocate, address, any)
            && libc::words(address, WORDS).iter().any(has)
    };
    (0..LOOKED_AT).filter(|&page| taken(page)).count().min(99) as i32
}

/// What user 0 has read is in no frames that the user's other processes get.
fn frames_of_who_stepped_down_are_clear(door: door::Door) -> Seen {
    let fill = |at: u64| {
        let words = libc::words(at, WORDS * PAGES);
        words.iter().for_each(|word| word.store(!SECRET_WORD, Ordering::SeqCst));
    };
    let status = libc::wait(libc::spawn(|| {
        let secret = libc::private(PAGES);
        fill(secret);
        if !libc::become_user(NOBODY) {
            return 100;
        }
        fill(libc::private(PAGES));
        // Behind it nothing takes what the child has had.
        let child = libc::spawn(|| {
            fill(secret);
            0
        });
        libc::wait(child)
    }));
    let looked = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) { 100 } else { frames_with_the_secret(door) }
    }));
    expect(status == 0 && looked == 0, || format!("status {status:#x}, looked {looked:#x}"))?;
    Ok(String::new())
}

/// Does a process of nobody's attach to one of these, by any right that it has?
fn attaches(door: door::Door, made: &[AtomicU64]) -> i32 {
    libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 100;
        }
        let attach = |region: &&AtomicU64| {
            let region = RegionId(region.load(Ordering::SeqCst));
            let domain = DomainId::NONE;
            (0..4).any(|role| by_any(door, Call::RegionAttach { region, role, domain }))
        };
        made.iter().filter(attach).count() as i32
    }))
}

/// Pipes, and the ways to the file server, that such a process or its child makes are closed, too.
fn regions_of_who_stepped_down_stay_closed(door: door::Door) -> Seen {
    let words = libc::words(libc::shared(1), WORDS);
    let make = |at: usize| {
        let before = regions();
        let pipe = libc::pair(libc::Pair::Pipe);
        let socket = libc::pair(libc::Pair::Stream);
        let read = fs::read("/etc/passwd").is_ok() && fs::write(HELPER, "text").is_ok();
        let made: Vec<u64> = regions().difference(&before).copied().collect();
        let places = words[at + 1..at + 64].iter();
        places.zip(&made).for_each(|(word, &region)| word.store(region, Ordering::SeqCst));
        words[at].store(made.len().min(63) as u64, Ordering::SeqCst);
        wait_until(|| words[0].load(Ordering::SeqCst) != 0);
        i32::from(pipe.is_none() || socket.is_none() || !read)
    };
    let _ = fs::remove_file(HELPER);
    let child = libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 100;
        }
        let child = libc::spawn(|| make(64));
        let made = make(1);
        libc::wait(child) | made
    });
    wait_until(|| [1, 64].iter().all(|&at| words[at].load(Ordering::SeqCst) != 0));
    let count = |at: usize| words[at].load(Ordering::SeqCst) as usize;
    let seen = [1, 64].map(|at| attaches(door, &words[at + 1..][..count(at)]));
    words[0].store(1, Ordering::SeqCst);
    let status = libc::wait(child);
    let _ = fs::remove_file(HELPER);
    expect(seen == [0, 0] && status == 0, || format!("attached {seen:x?}, status {status:#x}"))?;
    Ok(format!("{} regions", count(1) + count(64)))
}

/// What such a process executes has the pipes that were made before it, a set-id program too, and
/// is its user's like others.
fn programs_of_who_stepped_down_are_as_others(_: door::Door) -> Seen {
    use std::os::unix::process::CommandExt;
    let _ = fs::remove_file(GO);
    set_id::copy_program(HELPER).map_err(failed)?;
    libc::set_mode(HELPER, 0o4755);
    let words = libc::words(libc::shared(1), 2);
    let child = libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 100;
        }
        let own = "/tmp/stepped-own";
        if set_id::copy_program(own).is_err() {
            return 101;
        }
        libc::set_mode(own, 0o755);
        let says = |program: &str, what: &str| {
            let output = Command::new(program).arg0(SAYS).output();
            output.is_ok_and(|output| output.stdout == what.as_bytes())
        };
        let (plain, raised) = (says(own, &format!("for {NOBODY}")), says(HELPER, "for 0"));
        let Ok(mut waits) = Command::new(own).arg0(WAITS).env(MARK, "1").spawn() else {
            return 102;
        };
        words[0].store(waits.id().into(), Ordering::SeqCst);
        let ended = waits.wait().is_ok_and(|status| status.success());
        let _ = fs::remove_file(own);
        i32::from(!plain) | i32::from(!raised) << 1 | i32::from(!ended) << 2
    });
    wait_until(|| words[0].load(Ordering::SeqCst) != 0);
    let other = libc::wait(libc::spawn(|| {
        let path = format!("/proc/{}/environ", words[0].load(Ordering::SeqCst));
        let is_shown = || {
            let text = fs::read(&path).unwrap_or_default();
            text.windows(MARK.len()).any(|part| part == MARK.as_bytes())
        };
        if !libc::become_user(NOBODY) {
            return 100;
        }
        let shown = (0..400).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            is_shown()
        });
        i32::from(!shown)
    }));
    fs::write(GO, "").map_err(failed)?;
    let status = libc::wait(child);
    expect(status == 0 && other == 0, || format!("status {status:#x}, another {other:#x}"))?;
    Ok(String::new())
}

/// A daemon of user 0's that becomes one user and acts for another executes a program, which
/// forks: no process of either user enters any of them.
fn programs_with_two_users_stay_closed(door: door::Door) -> Seen {
    set_id::copy_program(HELPER).map_err(failed)?;
    libc::set_mode(HELPER, 0o755);
    for path in PIDS.iter().chain(&[GO]) {
        let _ = fs::remove_file(path);
    }
    let daemon = libc::spawn(|| {
        if !two_users::become_two(ANN, NOBODY) {
            return 100;
        }
        libc::execute(HELPER, &[FORKS.to_string()], &[]);
        101
    });
    let said = |path: &&str| fs::read_to_string(path).ok()?.parse::<u64>().ok();
    wait_until(|| PIDS.iter().all(|path| said(path).is_some()) || !libc::is_alive(daemon));
    let pids: Vec<u64> = PIDS.iter().filter_map(said).collect();
    let words = libc::words(libc::shared(1), 1);
    let mut ends = Vec::new();
    for user in [NOBODY, ANN] {
        ends.push(libc::wait(libc::spawn(|| {
            if !libc::become_user(user) {
                return 100;
            }
            for &pid in pids.iter().filter(|&&pid| enters(door, pid)) {
                println!("user {user} enters process {pid}");
                words[0].fetch_add(1, Ordering::SeqCst);
            }
            0
        })));
    }
    fs::write(GO, "").map_err(failed)?;
    ends.push(libc::wait(daemon));
    let entered = words[0].load(Ordering::SeqCst);
    expect(pids.len() == PIDS.len() && ends == [0; 3], || format!("{pids:?}, {ends:x?}"))?;
    expect(entered == 0, || format!("{entered} of 2 times {} were entered", pids.len()))?;
    Ok(String::new())
}
