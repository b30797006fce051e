//! Users have accounts of their own: what one of them takes, it takes of its own part.
//!
//! ```text
//!   root ── setuid ─► ann: takes of each table until she is refused, and keeps it
//!     ├─── setuid ─► bob: forks, makes a socket and a file, waits with a predicate   } beside that
//!     └─── the same itself, ends ann's processes; the machine has what it had        }
//! ```

use crate::libc::{self, Pair};
use crate::{Seen, expect};
use abi::call::Call;
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId, RegionId};
use abi::limits::{REGION_FRAMES, Resource};
use abi::memory::ANY_FRAME;
use abi::published::{AccountRecord, DomainRecord, EnvRecord, Table};
use abi::word::{UserAddress, Which};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use xok::accounts::{JOIN, NOT_ITS_USER};
use xok::published;
use xok::services::{self, Service};

const ANN: u32 = 61_000;
const BOB: u32 = 61_001;
const CARL: u32 = 61_002;
/// Index of the first account.
const FIRST: usize = 1;
/// What ends of itself, some while after that by which it does.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a process that stays another account's is waited for, and how often.
const STAYS: Duration = Duration::from_secs(1);
const TRIES: usize = 20;
/// Environments that wait, of the one that takes everything.
const SLEEPERS: usize = 20;
/// Frames of each of its regions, as long as there are any.
const FRAMES: usize = REGION_FRAMES;
/// Its part of the memory that is ordinary memory, which regions alone would not fill.
const MEMORY: usize = 2;
/// Frames that it leaves itself.
const LEFT: u32 = 128;
/// Where it tells how many of each it has got, and how many numbers these are.
const FIRST_COUNT: usize = 4;
const COUNTS: usize = 9;
/// What it writes into.
const FILE: &str = "/tmp/all-of-it";
/// Where it makes names.
const NAMES: &str = "/tmp/all-names";
/// Names that it has otherwise.
const NAMES_OTHERWISE: u64 = 8;
/// How that is refused, ENOSPC.
const NO_SPACE: u64 = 28;
/// Frames that are others' by chance: the servers', and root's own.
const SLACK: u32 = 64;

fn account(id: u64) -> AccountRecord {
    let record: AccountRecord =
        published::record(Table::Accounts, AccountId(id).index()).unwrap_or_default();
    if record.id == id { record } else { AccountRecord::default() }
}

/// The accounts of a process: its own, and its domain's.
fn paid_by(env: u32) -> [u64; 2] {
    let index = EnvId(env).index();
    let env: EnvRecord = published::record(Table::Envs, index).unwrap_or_default();
    let index = DomainId(env.domain).index();
    let domain: DomainRecord = published::record(Table::Domains, index).unwrap_or_default();
    [env.account, domain.account]
}

/// Asks for this user to pay for a domain; the server's answer.
fn ask_for(door: door::Door, user: u32, domain: DomainId) -> Result<u64, (Error, u64)> {
    let server = EnvId(services::get(Service::Accounts) as u32);
    loop {
        match libc::transfer(door, server, [JOIN, user.into(), domain.0, 0, 0, 0]) {
            Ok([answer, ..]) => return Ok(answer),
            // It serves another one.
            Err((Error::Busy, _)) => std::thread::yield_now(),
            Err(refused) => return Err(refused),
        }
    }
}

/// Waits until it is so.
fn until(so: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !so() {
        if began.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// A child of `user` that says by a word of the page that it is there, and stays.
fn sleeper(user: u32, said: &'static AtomicU64) -> i32 {
    libc::spawn(move || {
        if !libc::become_user(user) {
            return 1;
        }
        said.store(1, Ordering::Release);
        std::thread::sleep(10 * PATIENCE);
        0
    })
}

/// A process that becomes another user's is that one's account's, and what it forks too; the
/// account goes when it has nothing any more.
pub fn users_pay_for_themselves(door: door::Door) -> Seen {
    let said = libc::words(libc::shared(1), 4);
    let own = paid_by(std::process::id());
    expect(own[0] == own[1] && AccountId(own[0]).index() != FIRST, || {
        format!("root's process is paid for by {own:x?}")
    })?;
    let children: Vec<i32> =
        [ANN, ANN, BOB].into_iter().zip(said).map(|(user, said)| sleeper(user, said)).collect();
    let all_said = || said[..3].iter().all(|word| word.load(Ordering::Acquire) == 1);
    let of = |at: usize| paid_by(children[at] as u32);
    let settled = || all_said() && (0..3).all(|at| of(at)[0] == of(at)[1]);
    let seen = if until(settled) { Ok([of(0), of(1), of(2)]) } else { Err([of(0), of(1), of(2)]) };
    let verdict = seen.map_err(|all| format!("their environments stay behind: {all:x?}"));
    let verdict = verdict.and_then(|[one, other, third]| {
        let [ann, bob] = [one[0], third[0]];
        let differ = ann != bob && ann != own[0] && bob != own[0];
        expect(other[0] == ann && differ, || format!("{one:x?} {other:x?} {third:x?} {own:x?}"))?;
        let (all, part) = (account(paid_by_first()), account(ann));
        for resource in [Resource::Frames, Resource::Envs, Resource::Domains, Resource::Regions] {
            let at = resource as usize;
            let (limit, reserve, most) = (part.limit[at], part.reserve[at], all.limit[at]);
            expect(limit == most / 2 && reserve == most / 128, || {
                format!("{limit} and {reserve} of {most} {resource:?}")
            })?;
        }
        Ok([ann, bob])
    });
    let verdict = verdict.and_then(|accounts| {
        let others = published::env_domain(EnvId(children[2] as u32)).unwrap_or(DomainId::NONE);
        let asker = libc::spawn(|| {
            let asked = libc::become_user(ANN).then(|| ask_for(door, BOB, others));
            i32::from(asked != Some(Ok(NOT_ITS_USER)))
        });
        let refused = libc::wait(asker) == 0;
        expect(refused, || "one user says that another one is to pay".into())?;
        Ok(accounts)
    });
    children.iter().for_each(|&child| libc::send(child, 9));
    children.iter().for_each(|&child| {
        libc::wait(child);
    });
    let [ann, bob] = verdict?;
    expect(until(|| [ann, bob].iter().all(|&id| account(id).id == 0)), || {
        format!("an account that is empty stays: {:?}", account(ann).used)
    })?;
    Ok(String::new())
}

/// A process that its user's account has come to pay for, and that account. One that asks while
/// the server is being started again stays its former payer's: then it is another one's turn.
fn charged(user: u32) -> Result<(i32, u64), String> {
    let said = &libc::words(libc::shared(1), 1)[0];
    let own = paid_by(std::process::id());
    for _ in 0..TRIES {
        said.store(0, Ordering::Release);
        let child = sleeper(user, said);
        let began = Instant::now();
        let moved = until(|| {
            let there = said.load(Ordering::Acquire) == 1;
            let [env, domain] = paid_by(child as u32);
            there && (env == domain && domain != own[1] || began.elapsed() > STAYS)
        });
        let [account, _] = paid_by(child as u32);
        if moved && account != own[0] {
            return Ok((child, account));
        }
        end(child);
    }
    Err(format!("user {user} is never paid for by another account than {own:x?}"))
}

fn end(child: i32) {
    libc::send(child, 9);
    libc::wait(child);
}

/// Waits for the next life of the server that gives users their accounts.
fn next_life() -> Result<(), String> {
    let former = services::get(Service::Accounts);
    let began = until(|| services::get(Service::Accounts) != former);
    expect(began, || "the server of accounts does not end".into())
}

/// The server of accounts ends again and again (`provoke-server=`): each user has one account
/// still, user 0 too, and what is empty goes.
pub fn kept() -> Seen {
    next_life()?;
    let root = paid_by(std::process::id());
    let (first, ann) = charged(ANN)?;
    let (other, bob) = charged(BOB)?;
    next_life()?;
    let (again, same) = charged(ANN)?;
    let third = &libc::words(libc::shared(1), 1)[0];
    let roots = sleeper(0, third);
    let settled = until(|| third.load(Ordering::Acquire) == 1);
    let of_root = paid_by(roots as u32);
    for child in [first, other, again, roots] {
        end(child);
    }
    expect(same == ann, || format!("{ANN} has {ann:#x} and {same:#x}"))?;
    expect(settled && of_root == root, || format!("user 0 has {root:x?} and {of_root:x?}"))?;
    expect(until(|| [ann, bob].iter().all(|&id| account(id).id == 0)), || {
        format!("an account that is empty stays: {:?}, {:?}", account(ann).used, account(bob).used)
    })?;
    Ok(String::new())
}

fn paid_by_first() -> u64 {
    let first: AccountRecord = published::record(Table::Accounts, FIRST).unwrap_or_default();
    first.id
}

fn frames_left() -> u32 {
    let own = account(paid_by(std::process::id())[1]);
    let at = Resource::Frames as usize;
    own.limit[at].saturating_sub(own.used[at])
}

/// Makes such calls until one is refused, or there are no frames left but what the process itself
/// needs to go on; what they gave.
fn until_refused(door: door::Door, call: &dyn Fn() -> Call, given: &mut Vec<u64>) {
    while frames_left() > LEFT || matches!(call(), Call::RegionAlloc { count: 0, .. }) {
        match libc::kernel(door, call()) {
            Ok(id) => given.push(id),
            // What is taken back elsewhere just now.
            Err((Error::WouldBlock, _)) => {}
            Err(_) => return,
        }
    }
}

/// Writes into a file until there is no room; how many mebibytes.
fn fill_files() -> u64 {
    let Ok(mut file) = std::fs::File::create(FILE) else { return 0 };
    let piece = vec![1; 1 << 20];
    let written = (0..).take_while(|_| std::io::Write::write_all(&mut file, &piece).is_ok());
    written.count() as u64
}

/// Gives a file of its own names until that is refused; how many, and with which error.
fn fill_names() -> (u64, u64) {
    let file = format!("{NAMES}/file");
    let made = std::fs::create_dir(NAMES).and_then(|()| std::fs::write(&file, b""));
    let mut linked = 0;
    let refused = made.err().unwrap_or_else(|| {
        loop {
            match std::fs::hard_link(&file, format!("{NAMES}/{linked:0>200}")) {
                Ok(()) => linked += 1,
                Err(refused) => break refused,
            }
        }
    });
    (linked, refused.raw_os_error().unwrap_or(0) as u64)
}

/// Takes all it gets of each table, and stays.
fn take_everything(door: door::Door, said: &'static [AtomicU64]) -> i32 {
    let written = fill_files();
    // Without a name no file can be made.
    let (linked, refused) = fill_names();
    let mut sleepers = 0;
    while sleepers < SLEEPERS && libc::try_spawn(pause).is_some() {
        sleepers += 1;
    }
    let _memory = std::hint::black_box(vec![1_u8; 4096 * frames_left() as usize / MEMORY]);
    let frames = [ANY_FRAME; FRAMES];
    let frames = UserAddress(frames.as_ptr() as u64);
    let (account, which, vector, root) = (AccountId::NONE, Which::Any, Which::Any, Which::Any);
    let all = |call: &dyn Fn() -> Call| {
        // Where it grows there would be no page.
        let mut given = vec![0; 1 << 14];
        given.clear();
        until_refused(door, call, &mut given);
        given
    };
    let slices = all(&|| Call::SliceAlloc { cpu: 0, position: which, env: EnvId::NONE });
    let domains = all(&|| Call::DomainAlloc { which, account, root, window: 0, bytes: u64::MAX });
    let domain = DomainId(domains.last().copied().unwrap_or(0));
    let envs = all(&|| Call::EnvAlloc { which, domain, account, vector });
    let mut regions = all(&|| Call::RegionAlloc { frames, count: FRAMES as u64 });
    for count in [1, 0] {
        until_refused(door, &|| Call::RegionAlloc { frames, count }, &mut regions);
    }
    let mut attached = 0;
    for (&region, role) in regions.iter().flat_map(|id| (0..4).map(move |role| (id, role))) {
        let (region, domain) = (RegionId(region), DomainId::NONE);
        attached +=
            u64::from(libc::kernel(door, Call::RegionAttach { region, role, domain }).is_ok());
    }
    let given = [sleepers, slices.len(), domains.len(), envs.len(), regions.len()];
    let given =
        given.map(|count| count as u64).into_iter().chain([attached, written, linked, refused]);
    for (word, count) in said[FIRST_COUNT..].iter().zip(given) {
        word.store(count, Ordering::Release);
    }
    said[0].store(1, Ordering::Release);
    pause()
}

/// Waits for its end.
fn pause() -> i32 {
    std::thread::sleep(10 * PATIENCE);
    0
}

/// What anybody does: a child, a socket, a file, a wait with a predicate.
fn lives(name: &str) -> Result<(), String> {
    let child = libc::try_spawn(|| 7).ok_or("no child")?;
    expect(libc::wait(child) == 7 << 8, || "its child ended in another way".into())?;
    for kind in [Pair::Stream, Pair::Pipe] {
        let (one, other) = libc::pair(kind).ok_or("no pair of ends")?;
        let (from, to) = if matches!(kind, Pair::Pipe) { (other, one) } else { (one, other) };
        let mut word = [0; 4];
        expect(libc::write(from.as_raw_fd(), b"word") == 4, || "nothing is written".into())?;
        // By ppoll's predicate, with a clock's.
        let came = libc::wait_for(to.as_raw_fd(), libc::POLLIN, 1000);
        expect(came == libc::POLLIN, || format!("poll found {came}"))?;
        expect(libc::read(to.as_raw_fd(), &mut word) == 4 && &word == b"word", || {
            format!("{word:?} came")
        })?;
        let came = libc::wait_for(to.as_raw_fd(), libc::POLLIN, 20);
        expect(came == 0, || format!("poll found {came} where nothing is"))?;
    }
    let file = format!("/tmp/{name}");
    let same = std::fs::write(&file, name).and_then(|()| std::fs::read(&file));
    let same = same.map_err(|error| format!("{file}: {error}"))?;
    std::fs::remove_file(&file).map_err(|error| format!("{file}: {error}"))?;
    expect(same == name.as_bytes(), || format!("{file} holds {same:?}"))
}

/// One user has filled its part of all tables: others fork, make sockets and files, and wait with
/// predicates, root ends that user's processes, and all that they had is there again.
pub fn a_user_at_its_limits(door: door::Door) -> Seen {
    let said = libc::words(libc::shared(1), 64);
    lives("before")?;
    let free = || published::directory().frames_free as u32;
    let before = free();
    let ann = libc::spawn(|| if libc::become_user(ANN) { take_everything(door, said) } else { 1 });
    let filled = until(|| said[0].load(Ordering::Acquire) == 1);
    let part = account(paid_by(ann as u32)[1]);
    let verdict = if filled { beside(&part) } else { Err("it never had all".into()) };
    end_all(&part);
    libc::wait(ann);
    let removed = std::fs::remove_file(FILE).map_err(|error| format!("{FILE}: {error}"));
    let unnamed = std::fs::remove_dir_all(NAMES).map_err(|error| format!("{NAMES}: {error}"));
    let taken: Vec<u64> = said[FIRST_COUNT..FIRST_COUNT + COUNTS]
        .iter()
        .map(|word| word.load(Ordering::Acquire))
        .collect();
    verdict
        .map_err(|why| format!("{why}; the other one has {:?} of {:?}", part.used, part.limit))?;
    removed.and(unnamed)?;
    half_of_the_names(&taken)?;
    expect(until(|| free() + SLACK >= before), || format!("{} frames, not {before}", free()))?;
    lives("afterwards")?;
    Ok(format!("({taken:?} at once)"))
}

/// There are as many names as the file server has pages, which is half of the memory; of these the
/// user got half.
fn half_of_the_names(taken: &[u64]) -> Result<(), String> {
    let &[.., linked, refused] = taken else { return Err("nothing was counted".into()) };
    let half = published::directory().frames_usable / 4;
    let all = (half - NAMES_OTHERWISE..=half).contains(&linked) && refused == NO_SPACE;
    expect(all, || format!("{linked} names, {half} are half, and then error {refused}"))
}

/// Ends all processes that the account pays for.
fn end_all(account: &AccountRecord) {
    for index in 1..published::table(Table::Envs).count as usize {
        let env: EnvRecord = published::record(Table::Envs, index).unwrap_or_default();
        if env.id != 0 && env.account == account.id {
            libc::send(env.id as i32, 9);
        }
    }
}

/// What others do while one has all it may have.
fn beside(part: &AccountRecord) -> Result<(), String> {
    for resource in [
        Resource::Frames,
        Resource::Envs,
        Resource::Domains,
        Resource::Regions,
        Resource::Attachments,
    ] {
        let (used, limit) = (part.used[resource as usize], part.limit[resource as usize]);
        // Where another table ends first there is a little left.
        expect(used >= limit - limit / 4, || format!("it has {used} of {limit} {resource:?}"))?;
    }
    lives("root").map_err(|why| format!("user 0: {why}"))?;
    let said = libc::words(libc::shared(1), 1);
    let root = paid_by(std::process::id())[1];
    let bob = libc::spawn(|| {
        if !libc::become_user(BOB) {
            return 2;
        }
        // What user 0 pays for has room that is kept for user 0.
        if !until(|| paid_by(std::process::id()).iter().all(|&payer| payer != root)) {
            return 3;
        }
        match lives("bob") {
            Ok(()) => 0,
            Err(why) => {
                println!("{why}");
                said[0].store(1, Ordering::Release);
                1
            }
        }
    });
    let status = libc::wait(bob);
    expect(status == 0, || format!("another user ended with {status:#x}"))
}

/// Where a user's regions are taken, fork(2) says that there is no room for one more process.
pub fn forks_without_regions(door: door::Door) -> Seen {
    const AGAIN: i32 = 11;
    let status = libc::wait(libc::spawn(|| {
        let Ok(_open) = std::fs::File::open("/etc/passwd") else { return 1 };
        if !libc::become_user(crate::deputies::NOBODY)
            || libc::try_spawn(|| 0).map(libc::wait) != Some(0)
        {
            return 2;
        }
        // Another one that nobody shares with a child yet.
        let Ok(_second) = std::fs::File::open("/etc/passwd") else { return 3 };
        let frames = UserAddress(0);
        let mut given = Vec::with_capacity(1 << 12);
        until_refused(door, &|| Call::RegionAlloc { frames, count: 0 }, &mut given);
        match libc::try_spawn(|| 0) {
            None => std::io::Error::last_os_error().raw_os_error().unwrap_or(4),
            Some(_) => 5,
        }
    }));
    expect(status == AGAIN << 8, || format!("status {status:#x}, not EAGAIN"))?;
    lives("after").map(|()| String::new())
}

/// Who becomes a user whose last process has just ended for lack of memory is not refused for what
/// that one has left, which comes back in pieces.
pub fn memory_on_its_way_back_is_waited_for(_: door::Door) -> Seen {
    const ROUNDS: usize = 4;
    let pages = account(paid_by_first()).limit[Resource::Frames as usize] as usize;
    for round in 0..ROUNDS {
        let hog = libc::spawn(|| {
            if !libc::become_user(CARL) {
                return 1;
            }
            let place = libc::private(pages);
            for page in 0..pages as u64 {
                libc::words(place + page * 4096, 1)[0].store(1, Ordering::Relaxed);
            }
            0
        });
        let ended = libc::wait(hog);
        expect(ended == 9, || format!("who takes all memory ended with {ended:#x}"))?;
        let next = libc::wait(libc::spawn(|| i32::from(!libc::become_user(CARL))));
        expect(next == 0, || format!("round {round}: root did not become the user: {next:#x}"))?;
    }
    Ok(String::new())
}
