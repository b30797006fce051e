//! What goes with a user, a group or an id: it is not kept beyond them, left, forged, or come by.

use super::{NOBODY, ask, failed};
use crate::{Seen, Test, expect, libc, set_id};
use abi::call::Call;
use abi::capability::NAME_USER;
use abi::domain::SET_OF_GROUPS;
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId, RegionId};
use abi::limits::REGION_ROLES;
use abi::published::{RegionRecord, Table};
use abi::word::{UserAddress, Which};
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use unix::Errno;
use unix::protocol::{LOCK_EXCLUSIVE, LOCK_PROCESS, LOCK_TEST, LOCK_UNLOCK, Operation};

/// What holds.
pub const TESTS: [Test; 7] = [
    ("devices_do_not_come_back_by_tokens", devices_do_not_come_back_by_tokens),
    ("groups_that_are_shut_out_stay_out", groups_that_are_shut_out_stay_out),
    ("starters_do_not_say_who_has_sent_signals", starters_do_not_say_who_has_sent_signals),
    ("locks_do_not_go_with_an_id", locks_do_not_go_with_an_id),
    ("locks_are_their_processes", locks_are_their_processes),
    ("starters_hide_no_groups", starters_hide_no_groups),
    ("groups_of_a_set_are_no_ids", groups_of_a_set_are_no_ids),
];

/// The slots of network, log and power.
const DEVICES: std::ops::Range<u8> = 3..6;
/// The slot of the effective user, and of its group.
const USER: u8 = 2;
const GROUP: u8 = 9;

/// As which a domain holds groups.
const HOLDS_GROUPS: u64 = 2;

/// Its own domain.
fn own_domain() -> DomainId {
    xok::published::env_domain(EnvId(std::process::id())).unwrap_or(DomainId::NONE)
}

/// Has the library make the region by which it asks the file server.
pub(super) fn connect() {
    let _ = fs::read_dir("/tmp").map(Iterator::count);
}

/// A token that user 0 has written down would give the device to whoever reads it, until reboot.
fn devices_do_not_come_back_by_tokens(door: door::Door) -> Seen {
    for slot in DEVICES {
        for word in 0..3 {
            let told = libc::kernel_by(door, Call::CapabilityToken { word }, slot);
            let refused = matches!(told, Err((Error::NotPermitted, _)));
            expect(refused, || format!("word {word} of slot {slot}'s token: {told:?}"))?;
        }
    }
    Ok(String::new())
}

/// What a member of the group that the file shuts out finds: a bit each.
fn member(door: door::Door, path: &str, group: u32) -> i32 {
    if !libc::become_user_of(NOBODY, &[group]) {
        return 64;
    }
    let read = |bit: i32| if fs::read(path).is_ok() { bit } else { 0 };
    let mut found = read(1);
    // A domain that it has made, and that acts for its user.
    let (which, root, account) = (Which::Any, Which::Any, AccountId::NONE);
    let made = Call::DomainAlloc { which, account, root, window: 0, bytes: u64::MAX };
    let Ok(domain) = libc::kernel_by(door, made, USER).map(DomainId) else { return 65 };
    let slots = 1 << USER | 1 << GROUP;
    let passed = libc::kernel_by(door, Call::CapabilityPass { domain, slots }, 0).is_ok();
    let holds = |domain, kind, number| {
        libc::kernel(door, Call::DomainHolds { domain, kind, number }).is_ok()
    };
    if !passed || !holds(domain, NAME_USER, NOBODY) {
        return 66;
    }
    if !holds(domain, SET_OF_GROUPS, group) {
        found |= 2;
    }
    // Regions that it has made, and that nobody could write to: one is its set of groups.
    let own = own_domain();
    let count = xok::published::table(Table::Regions).count as usize;
    let all = (0..count)
        .filter_map(|at| xok::published::record::<RegionRecord>(Table::Regions, at))
        .filter(|record| record.domain == own.0 && record.attached[..2] == [0, 0]);
    for record in all {
        for role in 2..REGION_ROLES as u16 {
            let _ = libc::kernel(door, Call::RegionDetach { region: RegionId(record.id), role });
        }
    }
    if !holds(own, SET_OF_GROUPS, group) {
        found |= 4;
    }
    found | read(8)
}

/// Files of modes 0604 and 0704 are open to all but the members of a group.
fn groups_that_are_shut_out_stay_out(door: door::Door) -> Seen {
    const SHUT_OUT: u32 = 27;
    let path = "/tmp/shut-out";
    fs::write(path, "not for members").map_err(failed)?;
    std::os::unix::fs::chown(path, Some(0), Some(SHUT_OUT)).map_err(failed)?;
    for mode in [0o604, 0o704] {
        libc::set_mode(path, mode);
        let other = libc::spawn(|| {
            let becomes = libc::become_user_of(NOBODY, &[SHUT_OUT + 1]);
            i32::from(!becomes || fs::read(path).is_err())
        });
        let other = libc::wait(other);
        expect(other == 0, || format!("another one does not read {path}: {other:#x}"))?;
        let status = libc::wait(libc::spawn(|| member(door, path, SHUT_OUT)));
        let what = "read, left by a domain, left by detaching, read then";
        expect(status == 0, || format!("a member, mode {mode:o} ({what}): {status:#x}"))?;
    }
    let _ = fs::remove_file(path);
    Ok(String::new())
}

/// A block in which a signal waits that somebody else is said to have sent, and in which the
/// groups of the set are said to lie in these regions; for the program at [`set_id::JOB`].
pub(super) fn block_with(sender: [u64; 3], groups: [u64; 4], word: &str) -> Vec<u8> {
    let ([signal, pid, user], path) = (sender, set_id::JOB);
    let mut block = Vec::new();
    let mut words = |words: &[u64]| {
        words.iter().for_each(|word| block.extend(word.to_le_bytes()));
    };
    words(&[u64::from_le_bytes(*b"EXOSLIFE"), 1]);
    // Ids, the payer, groups.
    words(&[0; 6 + 1 + 1]);
    words(&groups);
    // Blocked, and waiting.
    words(&[1 << (signal - 1), 1, signal, pid | user << 32, 0]);
    // Ignored, timers, what was told; limits; no children, no image.
    words(&[0; 1 + 2 + 4 + 1 + 1]);
    words(&[u64::MAX; 32]);
    words(&[0; 1 + 4]);
    let mut bytes = |bytes: &[u8]| {
        block.extend((bytes.len() as u64).to_le_bytes());
        block.extend(bytes);
    };
    bytes(path.as_bytes());
    bytes(path.as_bytes());
    // One argument after the name; nothing in the environment.
    block.extend(2_u64.to_le_bytes());
    for text in [set_id::NAME, word] {
        block.extend((text.len() as u64).to_le_bytes());
        block.extend(text.as_bytes());
    }
    block.extend([0_u64, 0o22].map(u64::to_le_bytes).concat());
    for _ in 0..2 {
        block.extend([1_u64, 0, 1].map(u64::to_le_bytes).concat());
        block.push(b'/');
    }
    // No files.
    block.extend([0, u64::MAX, 0].map(u64::to_le_bytes).concat());
    block
}

/// Becomes the set-id program with such a block, to which it passes these regions, each in a role.
/// It comes back if that fails.
pub(super) fn start_with(door: door::Door, block: &[u8], places: &[[u64; 2]]) -> i32 {
    let page = libc::shared(1);
    // The server has none to give while it waits for what others' have left.
    let ask = || set_id::domain_of(door, block, page, set_id::JOB);
    let again = |_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        ask()
    };
    let Some(domain) = ask().or_else(|| (0..100).find_map(again)) else { return 41 };
    let (count, places) = (places.len() as u64, UserAddress(places.as_ptr() as u64));
    if count != 0 && libc::kernel(door, Call::RegionPass { domain, places, count }).is_err() {
        return 42;
    }
    let setup = UserAddress(page);
    let _ = libc::kernel(door, Call::EnvMove { domain, fields: u64::MAX >> 49, setup });
    44
}

/// A signal that waits for a set-id program from its beginning has no sender: pid 0, user 65534.
fn starters_do_not_say_who_has_sent_signals(door: door::Door) -> Seen {
    set_id::prepare().map_err(failed)?;
    let block = block_with([10, 1, 0], [0; 4], set_id::TELLS);
    let starter = libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 1;
        }
        connect();
        start_with(door, &block, &[])
    });
    let status = libc::wait(starter);
    let ledger = fs::read_to_string(set_id::LEDGER).map_err(failed)?;
    // Others' programs end differently where there is one.
    fs::remove_file(set_id::LEDGER).map_err(failed)?;
    let expected = format!("{:?}", Some([0, NOBODY]));
    expect(status == 0 && ledger == expected, || {
        format!("status {status:#x}, sender [pid, user]: {ledger} in place of {expected}")
    })?;
    Ok(String::new())
}

/// Environments that have the place of one that has ended, until one has its id; and that one.
fn come_by(door: door::Door, id: EnvId) -> Option<EnvId> {
    let which = Which::This(id.index() as u32);
    // There are 16 bits that tell those of one place apart.
    for _ in 0..70_000 {
        let (domain, account, vector) = (DomainId::NONE, AccountId::NONE, Which::Any);
        let made = Call::EnvAlloc { which, domain, account, vector };
        let env = EnvId(libc::kernel_by(door, made, USER).ok()? as u32);
        if env == id {
            return Some(env);
        }
        libc::kernel_by(door, Call::EnvDestroy { env, word: 0 }, USER).ok()?;
        libc::kernel_by(door, Call::EnvForget { env }, USER).ok()?;
    }
    None
}

/// Who has come by the id of a process that has ended has none of its locks.
fn locks_do_not_go_with_an_id(door: door::Door) -> Seen {
    let path = "/tmp/locked-by-id";
    fs::write(path, "").map_err(failed)?;
    libc::set_mode(path, 0o600);
    let node = super::node_of(door, 0, path).ok_or("no such file")?;
    let lock = |how: u64| ask(door, 0, Operation::Lock, [node, how, 0, u64::MAX]);
    let words: &[AtomicU64] = libc::words(libc::shared(1), 3);
    let wait_for = |at: usize| {
        while words[at].load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        words[at].load(Ordering::SeqCst)
    };
    // It is there before, and so takes no place that gets free.
    let attacker = libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 1;
        }
        let id = EnvId(wait_for(2) as u32);
        let came = come_by(door, id);
        words[0].store(1 + u64::from(came == Some(id)), Ordering::SeqCst);
        wait_for(1);
        0
    });
    let holder = libc::spawn(|| {
        connect();
        i32::from(!matches!(lock(LOCK_EXCLUSIVE), Ok([0, ..])))
    });
    let locked = libc::wait(holder);
    words[2].store(holder as u64, Ordering::SeqCst);
    while words[0].load(Ordering::SeqCst) == 0 && libc::is_alive(attacker) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let came = words[0].load(Ordering::SeqCst) == 2;
    let told = lock(LOCK_EXCLUSIVE | LOCK_TEST);
    words[1].store(1, Ordering::SeqCst);
    let status = libc::wait_for_end(attacker);
    let _ = fs::remove_file(path);
    expect(locked == 0, || format!("the lock: {locked:#x}"))?;
    expect(came && status == 0, || format!("the id did not come again: {status:#x}"))?;
    expect(matches!(told, Ok([0, ..])), || format!("it has the dead one's lock: {told:?}"))?;
    Ok(String::new())
}

/// A process names another one as the owner of a lock: it is refused, whoever it acts for, and the
/// other one's thread is not.
fn locks_are_their_processes(door: door::Door) -> Seen {
    let path = "/tmp/locked-by-own";
    fs::write(path, "").map_err(failed)?;
    libc::set_mode(path, 0o666);
    let node = super::node_of(door, 0, path).ok_or("no such file")?;
    let owner = std::process::id();
    let lock = |user: u32, how: u64| {
        let how = how | LOCK_PROCESS | u64::from(owner) << 32;
        ask(door, user, Operation::Lock, [node, how, 0, u64::MAX])
    };
    let refused = |answer: Result<[u64; 4], u16>| answer == Err(Errno::EPERM.0);
    let mine = std::thread::scope(|scope| scope.spawn(|| lock(0, LOCK_EXCLUSIVE)).join());
    let others = [0, NOBODY].map(|user| {
        libc::wait(libc::spawn(|| {
            if user != 0 && !libc::become_user(user) {
                return 100;
            }
            connect();
            [LOCK_UNLOCK, 0, LOCK_TEST].iter().filter(|&&how| !refused(lock(user, how))).count()
                as i32
        }))
    });
    let held = libc::wait(libc::spawn(|| {
        connect();
        let told = ask(door, 0, Operation::Lock, [node, LOCK_EXCLUSIVE | LOCK_TEST, 0, u64::MAX]);
        let owners = told.is_ok_and(|[found, ..]| found == 3 | u64::from(owner) << 32);
        i32::from(!owners)
    }));
    let given = lock(0, LOCK_UNLOCK);
    let _ = fs::remove_file(path);
    expect(matches!(mine, Ok(Ok([0, ..]))), || format!("a thread's own process: {mine:?}"))?;
    expect(others == [0; 2], || format!("another one's lock: {others:x?}"))?;
    expect(held == 0 && given.is_ok(), || format!("it is gone: {held:#x}, {given:?}"))?;
    Ok(String::new())
}

/// A group that a program's starter is in by its set.
const MEMBER_OF: u32 = 27;
/// Groups in a region that is full.
const IN_REGION: u32 = 17 * 1024;

/// The region that its own set of groups lies in: none that it has made is open to nobody else.
fn region_of_groups() -> Option<u64> {
    let (own, count) = (own_domain(), xok::published::table(Table::Regions).count as usize);
    let mut all =
        (0..count).filter_map(|at| xok::published::record::<RegionRecord>(Table::Regions, at));
    let attached = [0, 0, 1];
    all.find(|one| one.domain == own.0 && one.attached[..3] == attached).map(|one| one.id)
}

/// In which regions a starter says that its groups lie, if they lie in this one alone.
type Claim = fn(u64) -> [u64; 4];

/// A program is in the groups that its starter is in, whatever that says: what decides against a
/// user by getgroups(2) is not deceived. A starter that says something else starts no program.
fn starters_hide_no_groups(door: door::Door) -> Seen {
    set_id::prepare().map_err(failed)?;
    let claims: [(&str, Claim); 6] = [
        ("where they are", |region| [region, 0, 0, 0]),
        ("none", |_| [0; 4]),
        ("elsewhere", |region| [0, region, 0, 0]),
        ("twice", |region| [region, region, 0, 0]),
        ("no region", |_| [77, 0, 0, 0]),
        ("one more", |region| [region, 0, 0, 77]),
    ];
    for (claim, regions) in claims {
        fs::write(set_id::LEDGER, "").map_err(failed)?;
        let status = libc::wait(libc::spawn(|| {
            // A region that is not full ends where it is read as if another one followed.
            let full: Vec<u32> = (1..=IN_REGION).collect();
            let groups = if claim == "twice" { &full[..] } else { &[MEMBER_OF] };
            if !libc::become_user_of(NOBODY, groups) {
                return 1;
            }
            connect();
            let Some(region) = region_of_groups() else { return 2 };
            // What its page shows is its word, too.
            let shown = std::mem::offset_of!(unix::process_page::ProcessPage, groups_len);
            super::say(shown, 0);
            let block = block_with([10, 1, 0], regions(region), set_id::MEMBER);
            start_with(door, &block, &[[region, HOLDS_GROUPS]])
        }));
        let ledger = fs::read_to_string(set_id::LEDGER).map_err(failed)?;
        let honest = claim == "where they are";
        let expected = if honest { (0, "27, 1 shown") } else { (9, "") };
        expect((status, ledger.as_str()) == expected, || {
            format!("claim \"{claim}\": status {status:#x}, groups \"{ledger}\"")
        })?;
    }
    fs::remove_file(set_id::LEDGER).map_err(failed)?;
    Ok(String::new())
}

/// A group that a starter is in by its set is not what its program begins with as its real, or as
/// its effective one.
fn groups_of_a_set_are_no_ids(door: door::Door) -> Seen {
    set_id::prepare().map_err(failed)?;
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user_of(NOBODY, &[MEMBER_OF]) {
            return 100;
        }
        connect();
        let (page, block) = (libc::shared(1), block_with([10, 1, 0], [0; 4], set_id::MEMBER));
        let all = [[NOBODY; 2], [NOBODY, MEMBER_OF], [MEMBER_OF, NOBODY], [MEMBER_OF; 2]];
        let built = (0..).zip(all).map(|(bit, groups)| {
            let who = (std::process::id(), groups);
            let domain = set_id::domain_for(door, who, &block, page, set_id::JOB);
            i32::from(domain.is_some()) << bit
        });
        built.sum()
    }));
    // Others' programs end differently where there is one.
    fs::remove_file(set_id::LEDGER).map_err(failed)?;
    expect(status == 1 << 8, || format!("built, a bit for each of four claims: {status:#x}"))?;
    Ok(String::new())
}
