//! What others have a user, or a server, pay for.

use super::{NOBODY, node_of};
use crate::{Seen, Test, expect, libc, set_id};
use abi::call::Call;
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId, RegionId};
use abi::limits::{REGION_FRAMES, Resource};
use abi::memory::{ANY_FRAME, Item, NO_EXECUTE, Operation, WRITABLE};
use abi::published::{AccountRecord, DomainRecord, EnvRecord, EnvState, Table};
use abi::word::{UserAddress, Which};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use unix::set_id::{File, IMAGE, MEMORY, Request};
use xok::accounts::JOIN;
use xok::memory::item;
use xok::published;
use xok::services::{self, INIT_INDEX, Service};

/// What holds.
pub const TESTS: [Test; 6] = [
    ("set_id_programs_are_paid_for_by_their_starters", paid_for_by_their_starters),
    ("set_id_programs_go_on_at_their_starters_cost", go_on_at_their_starters_cost),
    ("prepared_programs_are_not_begun_by_signals", prepared_programs_are_not_begun_by_signals),
    ("starters_find_nothing_in_freed_frames", starters_find_nothing_in_freed_frames),
    ("servers_stay_in_their_accounts", servers_stay_in_their_accounts),
    ("a_full_account_gets_no_process_of_others", a_full_account_gets_no_process_of_others),
];

/// A set-id program of user 0's.
const JOB: &str = "/tmp/payers-job";
/// How many domains are asked for: as many as wait for nobody else.
const DOMAINS: usize = 40;

/// Set-id programs that wait where they write.
const WAITING: usize = 12;

fn account_of(env: EnvId) -> (u64, u64) {
    published::env(env).map_or((0, 0), |env| (env.account, env.user))
}

/// What user 0 has of a resource.
fn used(resource: Resource) -> u32 {
    used_by(EnvId(std::process::id()), resource)
}

/// What the account in whose turns an environment runs has of a resource.
fn used_by(env: EnvId, resource: Resource) -> u32 {
    let account = AccountId(account_of(env).1);
    let record: AccountRecord =
        published::record(Table::Accounts, account.index()).unwrap_or_default();
    record.used[resource as usize]
}

/// Asks a server of the machine's until it has time.
fn ask(door: door::Door, server: Service, words: [u64; 6]) -> Option<[u64; 6]> {
    loop {
        match libc::transfer(door, EnvId(services::get(server) as u32), words) {
            Err((Error::Busy, _)) => std::thread::yield_now(),
            answer => return answer.ok(),
        }
    }
}

/// Regions, each attached in all of its roles, as many as the user may have.
fn attachments(door: door::Door) -> Vec<[u64; 2]> {
    let mut places = Vec::new();
    loop {
        let make = Call::RegionAlloc { frames: UserAddress(0), count: 0 };
        let Ok(region) = libc::kernel_by(door, make, 2) else { return places };
        for role in 0..4 {
            let (id, domain) = (RegionId(region), DomainId::NONE);
            if libc::kernel(door, Call::RegionAttach { region: id, role, domain }).is_err() {
                return places;
            }
            places.push([region, role.into()]);
        }
    }
}

/// Domains of a set-id program that never begins: as many, each attached to all that there is.
fn hoard(door: door::Door) -> Option<usize> {
    // A request of the library's makes the way.
    std::fs::metadata(JOB).ok()?;
    let job = node_of(door, NOBODY, JOB)?;
    let places = attachments(door);
    let request = Request {
        process: std::process::id(),
        file: File { kind: MEMORY, number: job },
        directory: File { kind: IMAGE, number: 0 },
        users: [NOBODY; 2],
        groups: [NOBODY; 2],
        region: places.first()?[0],
        bytes: 0,
    };
    let mut built = 0;
    for _ in 0..DOMAINS {
        let [0, domain, ..] = ask(door, Service::SetId, request.to_words())? else { break };
        built += 1;
        for part in places.chunks(abi::limits::REGION_PLACES) {
            let (domain, places) = (DomainId(domain), UserAddress(part.as_ptr() as u64));
            let pass = Call::RegionPass { domain, places, count: part.len() as u64 };
            if libc::kernel(door, pass).is_err() {
                break;
            }
        }
    }
    Some(built)
}

/// What waits for a set-id program is its starter's to pay, whoever it will act for: what is kept
/// for user 0 is there for user 0, and what is kept for the server for the server.
fn paid_for_by_their_starters(door: door::Door) -> Seen {
    set_id::copy_program(JOB).map_err(super::failed)?;
    libc::set_mode(JOB, 0o4755);
    let words = libc::words(libc::shared(1), 3);
    let resources = [Resource::Attachments, Resource::Domains, Resource::Envs, Resource::Frames];
    let alone = resources.map(used);
    // What a process is made of is user 0's until it has become nobody.
    let idle = super::nobody(|| 0)?;
    let before = resources.map(used);
    let server = EnvId(services::get(Service::SetId) as u32);
    let servers = used_by(server, Resource::Frames);
    let attacker = libc::spawn(|| {
        libc::silence();
        if !libc::become_user(NOBODY) {
            return 100;
        }
        let built = hoard(door);
        words[1].store(built.unwrap_or(0) as u64, Ordering::SeqCst);
        words[0].store(1, Ordering::SeqCst);
        while words[2].load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        0
    });
    while words[0].load(Ordering::SeqCst) == 0 && libc::is_alive(attacker) {
        std::thread::yield_now();
    }
    let during = resources.map(used);
    let servers = i64::from(used_by(server, Resource::Frames)) - i64::from(servers);
    let forked = libc::try_spawn(|| 0).map(libc::wait);
    words[2].store(1, Ordering::SeqCst);
    let ended = libc::wait(attacker);
    let built = words[1].load(Ordering::SeqCst);
    let _ = std::fs::remove_file(JOB);
    super::end(idle)?;
    let grew = (0..resources.len()).any(|at| {
        let process = before[at].saturating_sub(alone[at]);
        during[at] > before[at] + process + 48
    });
    expect(forked == Some(0) && ended == 0 && built > 0 && !grew, || {
        format!("{built} domains; user 0 had {before:?}, then {during:?}, and forked: {forked:?}")
    })?;
    // Each has one frame of the server's until its guest comes: the prepared environment's.
    expect(servers < 2 * built as i64, || {
        format!("{built} domains; the server that builds them has {servers} frames more")
    })?;
    Ok(format!("({built} domains)"))
}

/// A pipe that takes nothing more: a program that writes there waits.
fn full_pipe() -> Option<(OwnedFd, OwnedFd)> {
    let (reads, writes) = std::io::pipe().ok()?;
    let (reads, writes) = (OwnedFd::from(reads), OwnedFd::from(writes));
    libc::set_waits(writes.as_raw_fd(), false);
    while libc::write(writes.as_raw_fd(), &[0; 4096]) > 0 {}
    while libc::write(writes.as_raw_fd(), &[0]) > 0 {}
    libc::set_waits(writes.as_raw_fd(), true);
    Some((reads, writes))
}

/// Starts the job, which waits at the pipe; its pid once it acts for user 0 and sleeps.
fn start_job(writes: &OwnedFd, word: &str) -> Option<i32> {
    let words = [set_id::NAME.to_string(), word.to_string()];
    // It waits until it is known in which domain it has been before.
    let known = libc::words(libc::shared(1), 1);
    let pid = libc::try_spawn(|| {
        libc::set_output(writes);
        while known[0].load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        libc::execute(JOB, &words, &[]);
        7
    })?;
    let env = EnvId(pid as u32);
    let before = published::env_domain(env);
    known[0].store(1, Ordering::SeqCst);
    loop {
        let now = published::env(env)?;
        let begun = Some(DomainId(now.domain)) != before;
        if begun && now.state == EnvState::Sleeping as u32 {
            return Some(pid);
        }
        // It has ended, or could not begin.
        if !libc::is_alive(pid) {
            return None;
        }
        std::thread::yield_now();
    }
}

/// The account that pays for what a process takes.
fn payer_of(pid: u32) -> u64 {
    let domain = published::env_domain(EnvId(pid)).map_or(0, |domain| domain.index());
    let record: DomainRecord = published::record(Table::Domains, domain).unwrap_or_default();
    record.account
}

/// What a set-id program takes while it runs is its starter's to pay as well, until it has become
/// another user wholly.
fn go_on_at_their_starters_cost(_: door::Door) -> Seen {
    set_id::copy_program(JOB).map_err(super::failed)?;
    libc::set_mode(JOB, 0o4755);
    let users = payer_of(std::process::id());
    let words = libc::words(libc::shared(1), 8);
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 100;
        }
        let Some((_reads, writes)) = full_pipe() else { return 101 };
        let words_of = |number| if number % 2 == 0 { "" } else { set_id::FOR_A_TIME };
        let started: Vec<i32> =
            (0..WAITING).map_while(|number| start_job(&writes, words_of(number))).collect();
        let mine = payer_of(std::process::id());
        let stayed = started.iter().filter(|&&pid| payer_of(pid as u32) == mine).count();
        let Some(wholly) = start_job(&writes, set_id::WHOLLY) else { return 102 };
        // Its account changes when it has become user 0.
        while libc::is_alive(wholly) && payer_of(wholly as u32) != users {
            std::thread::yield_now();
        }
        let moved = payer_of(wholly as u32) == users;
        let figures = [stayed as u64, moved.into(), u64::from(mine != users)];
        words.iter().zip(figures).for_each(|(word, figure)| word.store(figure, Ordering::SeqCst));
        // Nobody reads, and those that wait end.
        0
    }));
    let _ = std::fs::remove_file(JOB);
    let [stayed, moved, apart] = [0, 1, 2].map(|at| words[at].load(Ordering::SeqCst));
    expect(status == 0 && stayed == WAITING as u64 && moved == 1 && apart == 1, || {
        format!("status {status:#x}: {stayed} stayed, {moved} moved, {apart} has its own account")
    })?;
    Ok(format!("({stayed} programs)"))
}

/// SIGNAL, which its starter has over a set-id program, does not begin what `setidd` has prepared;
/// and what the starter ends leaves no record behind that `setidd` would pay for.
fn prepared_programs_are_not_begun_by_signals(door: door::Door) -> Seen {
    set_id::copy_program(JOB).map_err(super::failed)?;
    libc::set_mode(JOB, 0o4755);
    let server = EnvId(services::get(Service::SetId) as u32);
    let before = used_by(server, Resource::Envs);
    let words = libc::words(libc::shared(1), 8);
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 100;
        }
        let Some(built) = hoard(door) else { return 101 };
        let envs = published::table(Table::Envs).count as usize;
        let prepared = (1..envs)
            .filter_map(|at| published::record::<EnvRecord>(Table::Envs, at))
            .filter(|env| env.state == EnvState::New as u32 && env.holder == server.0)
            .map(|env| EnvId(env.id));
        let (mut found, mut begun, mut ended) = (0, 0, 0);
        for env in prepared {
            found += 1;
            let release = libc::kernel_by(door, Call::EnvRelease { env }, 2);
            begun += u64::from(release != Err((Error::NotPermitted, 0)));
            if found % 2 == 0 {
                let destroy = libc::kernel_by(door, Call::EnvDestroy { env, word: 9 }, 2);
                ended += u64::from(destroy.is_ok());
            }
        }
        let figures = [built as u64, found, begun, ended];
        words.iter().zip(figures).for_each(|(word, figure)| word.store(figure, Ordering::SeqCst));
        0
    }));
    let _ = std::fs::remove_file(JOB);
    let [built, found, begun, ended] = [0, 1, 2, 3].map(|at| words[at].load(Ordering::SeqCst));
    // The server looks once in a second.
    let since = std::time::Instant::now();
    while used_by(server, Resource::Envs) > before && since.elapsed().as_secs() < 60 {
        std::thread::yield_now();
    }
    let after = used_by(server, Resource::Envs);
    let as_expected = status == 0 && found == built && begun == 0 && ended == built / 2;
    expect(as_expected && built > 0 && after <= before, || {
        let seen = format!("status {status:#x}, {built} built, {found} found, {begun} begun");
        format!("{seen}, {ended} ended; the server's environments {before}, then {after}")
    })?;
    Ok(format!("({built} prepared)"))
}

/// Pages that a starter allocates as the kernel gives them.
const PAGES: u64 = 4096;
/// Pages below a table.
const TABLE: u64 = 512;

/// Allocates pages that are not cleared; how many have the word.
fn pages_with(door: door::Door, word: u64) -> Option<usize> {
    let room = libc::reserved(((PAGES + TABLE) * 4096) as usize).next_multiple_of(TABLE << 12);
    let send = |item: Item| {
        let (domain, items) = (DomainId::NONE, UserAddress(&raw const item as u64));
        libc::kernel(door, Call::TableUpdate { domain, items, count: 1 }).is_ok()
    };
    let any = |operation, level, address, value| item(operation, level, address, ANY_FRAME, value);
    for table in 0..PAGES / TABLE {
        let at = room + ((table * TABLE) << 12);
        // Those above are there, or not.
        for level in (2..=4).rev() {
            send(any(Operation::Table, level, at, ANY_FRAME.into()));
        }
        for page in 0..TABLE {
            let at = at + (page << 12);
            if !send(any(Operation::Allocate, 1, at, WRITABLE | NO_EXECUTE)) {
                return None;
            }
        }
    }
    let has = |page: &u64| {
        let words = libc::words(room + (page << 12), 512);
        words.iter().any(|there| there.load(Ordering::Relaxed) == word)
    };
    Some((0..PAGES).filter(has).count())
}

/// The starter of a set-id program pays for it, and gets its frames when it has ended: cleared.
fn starters_find_nothing_in_freed_frames(door: door::Door) -> Seen {
    set_id::copy_program(JOB).map_err(super::failed)?;
    libc::set_mode(JOB, 0o4755);
    let words = libc::words(libc::shared(1), 2);
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 100;
        }
        // A child, so that this one's memory never has the word in it.
        let ended = libc::wait(libc::spawn(|| {
            libc::execute(JOB, &[set_id::NAME.to_string(), set_id::FILLS.to_string()], &[]);
            103
        }));
        if ended != 0 {
            return 101;
        }
        let looker =
            libc::spawn(|| match pages_with(door, std::hint::black_box(set_id::SECRET_WORD)) {
                Some(found) => {
                    words[0].store(found as u64, Ordering::SeqCst);
                    0
                }
                None => 102,
            });
        libc::wait(looker) >> 8
    }));
    let _ = std::fs::remove_file(JOB);
    let found = words[0].load(Ordering::SeqCst);
    expect(status == 0 && found == 0, || format!("status {status:#x}, in {found} pages"))?;
    Ok(format!("({PAGES} pages)"))
}

/// A stranger does not say for whose account a server's domain counts.
fn servers_stay_in_their_accounts(door: door::Door) -> Seen {
    let init = published::record::<EnvRecord>(Table::Envs, INIT_INDEX).map_or(0, |init| init.id);
    let named = [Service::Files, Service::Terminal, Service::SetId, Service::Accounts];
    let mut servers = vec![EnvId(init)];
    servers.extend(named.map(|server| EnvId(services::get(server) as u32)));
    let accounts = |servers: &[EnvId]| servers.iter().copied().map(account_of).collect::<Vec<_>>();
    let before = accounts(&servers);
    let done = libc::words(libc::shared(1), 1);
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 100;
        }
        for &server in &servers {
            let domain = published::env_domain(server).unwrap_or(DomainId::NONE);
            let words = [JOIN, NOBODY.into(), domain.0, 0, 0, 0];
            if ask(door, Service::Accounts, words).is_none_or(|[answer, ..]| answer == 0) {
                libc::count(&done[0]);
            }
        }
        0
    }));
    let (done, after) = (done[0].load(Ordering::SeqCst), accounts(&servers));
    expect(status == 0 && before == after && done == 0, || {
        format!("status {status:#x}, {done} moved; before {before:x?}, after {after:x?}")
    })?;
    Ok(String::new())
}

/// Takes all that there is left of a resource for the user.
type Take = fn(door::Door);

/// Makes such calls until one is refused; answers what the last one gave.
fn until_refused(door: door::Door, call: Call) -> u64 {
    let mut given = 0;
    loop {
        match libc::kernel(door, call) {
            Ok(id) => given = id,
            Err((Error::WouldBlock, _)) => {}
            Err(_) => return given,
        }
    }
}

fn take_envs(door: door::Door) {
    let (account, which, vector) = (AccountId::NONE, Which::Any, Which::Any);
    let one = Call::DomainAlloc { which, account, root: which, window: 0, bytes: u64::MAX };
    let domain = DomainId(libc::kernel(door, one).unwrap_or(0));
    until_refused(door, Call::EnvAlloc { which, domain, account, vector });
    let _ = libc::kernel(door, Call::DomainDestroy { domain });
}

fn take_domains(door: door::Door) {
    let (account, which) = (AccountId::NONE, Which::Any);
    let one = Call::DomainAlloc { which, account, root: which, window: 0, bytes: u64::MAX };
    until_refused(door, one);
}

fn take_memory(door: door::Door) {
    // There are too few regions for all of it.
    let domain = published::env_domain(EnvId(std::process::id())).and_then(published::domain);
    let account = AccountId(domain.map_or(0, |domain| domain.account));
    let record: AccountRecord =
        published::record(Table::Accounts, account.index()).unwrap_or_default();
    let at = Resource::Frames as usize;
    let left = record.limit[at].saturating_sub(record.used[at]) as usize;
    std::mem::forget(std::hint::black_box(vec![1_u8; left / 4096 * 2048 * 4096]));
    let frames = [ANY_FRAME; REGION_FRAMES];
    let frames = UserAddress(frames.as_ptr() as u64);
    for count in [REGION_FRAMES as u64, 1] {
        until_refused(door, Call::RegionAlloc { frames, count });
    }
}

/// A user that has all it may have of what a process is made of gets no process of user 0's, which
/// user 0 would go on paying for: `setuid` answers EAGAIN.
fn a_full_account_gets_no_process_of_others(door: door::Door) -> Seen {
    let ways: [(&str, Take); 4] = [
        ("attachments", |door| drop(attachments(door))),
        ("environments", take_envs),
        ("domains", take_domains),
        ("memory", take_memory),
    ];
    for (what, take) in ways {
        gets_no_process(door, take).map_err(|why| format!("all {what}: {why}"))?;
    }
    Ok(String::new())
}

/// That while the user has all that `take` takes.
fn gets_no_process(door: door::Door, take: Take) -> Result<(), String> {
    let becomes = |user| libc::wait(libc::spawn(|| i32::from(libc::become_user(user)))) == 0x100;
    let until = |so: &dyn Fn() -> bool| {
        let begun = std::time::Instant::now();
        while !so() && begun.elapsed().as_secs() < 60 {
            std::thread::yield_now();
        }
        so()
    };
    let had = libc::words(libc::shared(1), 1);
    let full = libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 100;
        }
        // What the user's programs before it had comes back in pieces.
        loop {
            take(door);
            had[0].store(1, Ordering::Release);
        }
    });
    let filled = until(&|| had[0].load(Ordering::Acquire) == 1);
    let refused = until(&|| !becomes(NOBODY));
    let (others, lives) = (becomes(super::ANN), published::env(EnvId(full as u32)).is_some());
    libc::send(full, 9);
    libc::wait(full);
    // What the dead one had comes back in pieces, too.
    let afterwards = until(&|| becomes(NOBODY));
    expect(filled && refused && others && lives && afterwards, || {
        let others = format!("another user {others}, it lives {lives}, afterwards {afterwards}");
        format!("filled {filled}, refused {refused}, {others}")
    })
}
