//! What a process keeps of those whose child it is when it has become another user.
//!
//! In the library a child and its parent share names that guard their sockets, and those of a
//! set-id program its domain. A child that steps down, or that runs its starter's command, must
//! have none of them: whoever it becomes may execute any program, which makes kernel calls.

use super::{NOBODY, failed, look};
use crate::peers::regions;
use crate::{Seen, Test, expect, libc, set_id};
use abi::call::Call;
use abi::id::{AccountId, DomainId, EnvId, FilterId, RegionId, RingId};
use abi::published::{EnvRecord, EnvState, FilterRecord, RegionRecord, Table};
use abi::ring::RingEntry;
use abi::word::{UserAddress, Which};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use xok::published;
use xok::services::INIT_INDEX;

/// What holds.
pub const TESTS: [Test; 4] = [
    ("commands_do_not_enter_set_id_programs", commands_do_not_enter_set_id_programs),
    ("starters_take_no_rights_back", starters_take_no_rights_back),
    ("heirs_of_another_user_have_no_sockets", heirs_of_another_user_have_no_sockets),
    ("listeners_are_shared_with_other_users", listeners_are_shared_with_other_users),
];

const PLACE: &str = "/tmp/heirs";
/// A set-id program of user 0's, and a plain one.
const JOB: &str = "/tmp/heirs/job";
const COMMAND: &str = "/tmp/heirs/command";
/// Files by which a set-id program and its starter wait for each other, and one of user 0's.
const READY: &str = "/tmp/heirs/ready";
const GO: &str = "/tmp/heirs-go";
const OUT: &str = "/tmp/heirs/out";
/// What [`role`] is, by the program's name.
const RUNS_A_COMMAND: &str = "heirs-runs-a-command";
const IS_THE_COMMAND: &str = "heirs-is-the-command";
const GIVES_UP: &str = "heirs-gives-up";
/// What the command answers that has no right over the program that runs it.
const HAS_NONE: u8 = 42;
/// Slots that a library's process may have: all of its list.
const SLOTS: std::ops::Range<u8> = 0..16;
/// What user 0 sends and nobody else is to see.
const SECRET: &[u8] = b"a datagram of user 0's that nobody was given";
const FIRST_PORT: u16 = 5701;
const SECOND_PORT: u16 = 5702;
const OTHER_PORT: u16 = 5799;
const LISTENED: u16 = 5703;
/// How long timers of TCP's may run after what has come: acknowledgements are delayed.
const QUIET: Duration = Duration::from_millis(700);
/// Milliseconds for which an answer is waited for.
const PATIENCE: i32 = 20_000;

/// One of the programs that these tests execute, if that is what it is called.
pub fn role(door: Option<door::Door>, words: &[String]) -> Option<u8> {
    match words.first()?.as_str() {
        RUNS_A_COMMAND => Some(run_a_command()),
        IS_THE_COMMAND => Some(door.map_or(99, |door| be_the_command(door, words))),
        GIVES_UP => Some(give_up()),
        _ => None,
    }
}

fn prepare() -> Result<(), String> {
    let _ = fs::remove_dir_all(PLACE);
    let _ = fs::remove_file(GO);
    fs::create_dir(PLACE).map_err(failed)?;
    libc::set_mode(PLACE, 0o755);
    for (path, mode) in [(JOB, 0o4755), (COMMAND, 0o755)] {
        set_id::copy_program(path).map_err(failed)?;
        libc::set_mode(path, mode);
    }
    Ok(())
}

fn wait_until(is: impl Fn() -> bool) {
    while !is() {
        std::thread::yield_now();
    }
}

/// As nobody, executes a program of these words' and answers its status.
fn as_nobody(path: &str, words: &[&str]) -> i32 {
    libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 100;
        }
        let words: Vec<String> = words.iter().map(|word| (*word).into()).collect();
        libc::execute(path, &words, &[]);
        101
    }))
}

/// A set-id program of user 0's that runs its starter's command as its starter, as many do.
fn run_a_command() -> u8 {
    let own = std::process::id().to_string();
    let pid = libc::spawn(|| {
        if !libc::become_user(NOBODY) || libc::try_root() {
            return 102;
        }
        libc::execute(COMMAND, &[IS_THE_COMMAND.into(), own], &[]);
        103
    });
    (libc::wait(pid) >> 8) as u8
}

/// The command: has it a right over the domain of the one that runs it?
fn be_the_command(door: door::Door, words: &[String]) -> u8 {
    let parent = words.get(1).and_then(|word| word.parse().ok()).map_or(EnvId::NONE, EnvId);
    let Some(domain) = published::env_domain(parent) else { return 104 };
    let (which, vector, account) = (Which::Any, Which::Any, AccountId::NONE);
    let make = Call::EnvAlloc { which, domain, account, vector };
    let enters = SLOTS.clone().any(|slot| libc::kernel_by(door, make, slot).is_ok());
    let destroy = Call::DomainDestroy { domain };
    let ends = SLOTS.clone().any(|slot| libc::kernel_by(door, destroy, slot).is_ok());
    if enters || ends { 106 } else { HAS_NONE }
}

/// The command of a set-id program's starter makes no environment in that one's domain.
fn commands_do_not_enter_set_id_programs(_: door::Door) -> Seen {
    prepare()?;
    let status = as_nobody(JOB, &[RUNS_A_COMMAND]);
    // If its domain was ended, it did not answer.
    expect(status == i32::from(HAS_NONE) << 8, || format!("the program's status {status:#x}"))?;
    Ok(String::new())
}

/// A set-id program that gives its rights up before it does what its starter wants.
fn give_up() -> u8 {
    let starter = libc::users()[0];
    if fs::write(READY, "").is_err() {
        return 105;
    }
    wait_until(|| fs::metadata(GO).is_ok());
    let gave_up = libc::become_user(starter);
    // As one that does not look at the answer.
    u8::from(!gave_up) | u8::from(fs::write(OUT, "x").is_ok()) << 1
}

/// Nobody takes a user's name back from a set-id program, or a group's from another user.
fn starters_take_no_rights_back(door: door::Door) -> Seen {
    prepare()?;
    fs::write(OUT, "").map_err(failed)?;
    libc::set_mode(OUT, 0o600);
    let taken = libc::words(libc::shared(1), 1);
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 100;
        }
        let pid = libc::spawn(|| {
            libc::execute(JOB, &[GIVES_UP.into()], &[]);
            101
        });
        wait_until(|| fs::metadata(READY).is_ok() || !libc::is_alive(pid));
        let retract = Call::CapabilityRetract { extend: 0, components: 0 };
        // Users and groups: slots of the library's list.
        for slot in [2, 6, 8, 9, 10, 11] {
            if libc::kernel_by(door, retract, slot).is_ok() {
                libc::count(&taken[0]);
            }
        }
        let _ = fs::write(GO, "");
        let status = libc::wait(pid);
        if status & 0xff == 0 { status >> 8 } else { 102 }
    }));
    let (status, taken) = (status >> 8, taken[0].load(Ordering::SeqCst));
    expect(status == 0 && taken == 0, || {
        format!("{taken} names taken back; the program answered {status}: 1 kept its rights")
    })?;
    Ok(String::new())
}

/// Environments that keep sockets which processes share: init has their records.
pub fn keepers() -> impl Iterator<Item = EnvId> {
    let init = published::record::<EnvRecord>(Table::Envs, INIT_INDEX).map_or(0, |init| init.id);
    let count = published::table(Table::Envs).count as usize;
    let all = (1..count).filter_map(|index| published::record::<EnvRecord>(Table::Envs, index));
    let kept = all.filter(move |env| env.holder == init && env.state != EnvState::Dead as u32);
    kept.map(|env| EnvId(env.id))
}

/// What an heir has done: words of memory that it shares with the test.
struct Heir(&'static [AtomicU64]);

impl Heir {
    /// It is nobody; go on; it has attached and redirected; go on; attached, redirected, ended,
    /// and the secret seen.
    const IS: usize = 0;
    const BEGIN: usize = 1;
    const TRIED: usize = 2;
    const FINISH: usize = 3;
    const ATTACHED: usize = 4;
    const REDIRECTED: usize = 5;
    const ENDED: usize = 6;
    const SEEN: usize = 7;

    fn set(&self, at: usize) {
        self.0[at].store(1, Ordering::SeqCst);
    }

    fn wait(&self, at: usize) {
        wait_until(|| self.0[at].load(Ordering::SeqCst) != 0);
    }

    fn note(&self, at: usize, happened: bool) {
        if happened {
            libc::count(&self.0[at]);
        }
    }
}

/// Tries everything that the names of its relatives may be good for.
fn inherit(door: door::Door, heir: &Heir, known: &BTreeSet<u64>) -> i32 {
    libc::silence();
    if !libc::become_user(NOBODY) {
        return 100;
    }
    heir.set(Heir::IS);
    heir.wait(Heir::BEGIN);
    let own = published::env_domain(EnvId(std::process::id())).unwrap_or(DomainId::NONE);
    let made_here = |region: u64| {
        let record: Option<RegionRecord> =
            published::record(Table::Regions, RegionId(region).index());
        record.is_some_and(|record| record.domain == own.0)
    };
    for &region in regions().difference(known).filter(|&&region| !made_here(region)) {
        for role in 0..4 {
            let attach =
                Call::RegionAttach { region: RegionId(region), role, domain: DomainId::NONE };
            let attached = SLOTS.clone().any(|slot| libc::kernel_by(door, attach, slot).is_ok());
            heir.note(Heir::ATTACHED, attached);
            let shows = |page: u64| {
                let bytes = look(door, region, role as u8, page * 4096, 4096).unwrap_or_default();
                bytes.windows(SECRET.len()).any(|part| part == SECRET)
            };
            heir.note(Heir::SEEN, attached && (0..17).any(shows));
        }
    }
    let page = libc::shared(2);
    let entry = RingEntry { owner: page, buffer: page + 4096, capacity: 4096, zero: 0 };
    let entries = UserAddress(&raw const entry as u64);
    if let Ok(ring) = libc::kernel(door, Call::RingAlloc { entries, count: 1 }) {
        let count = published::table(Table::Filters).count as usize;
        let all = (0..count).filter_map(|at| published::record::<FilterRecord>(Table::Filters, at));
        for filter in all.filter(|filter| filter.id != 0) {
            let filter = FilterId(filter.id);
            let redirect = Call::FilterRing { filter, ring: RingId(ring) };
            let done = SLOTS.clone().any(|slot| libc::kernel_by(door, redirect, slot).is_ok());
            heir.note(Heir::REDIRECTED, done);
        }
    }
    heir.set(Heir::TRIED);
    heir.wait(Heir::FINISH);
    for env in keepers() {
        let destroy = Call::EnvDestroy { env, word: 77 };
        let done = SLOTS.clone().any(|slot| libc::kernel_by(door, destroy, slot).is_ok());
        heir.note(Heir::ENDED, done);
    }
    0
}

/// A child that has become nobody has none of its parent's sockets: neither those that it was not
/// given, nor the packets for them, nor the environments that keep them.
fn heirs_of_another_user_have_no_sockets(door: door::Door) -> Seen {
    let heir = Heir(libc::words(libc::shared(1), 8));
    let status = libc::wait(libc::spawn(|| {
        let known = regions();
        let Ok(_first) = UdpSocket::bind(("0.0.0.0", FIRST_PORT)) else { return 100 };
        let pid = libc::spawn(|| inherit(door, &heir, &known));
        heir.wait(Heir::IS);
        // Made after the heir has become nobody, and shared with another child.
        let Ok(second) = UdpSocket::bind(("0.0.0.0", SECOND_PORT)) else { return 101 };
        let end = libc::words(libc::shared(1), 1);
        let worker = libc::spawn(|| {
            let sent = second.send_to(SECRET, "10.0.2.2:9").is_ok();
            wait_until(|| end[0].load(Ordering::SeqCst) != 0);
            i32::from(!sent)
        });
        heir.set(Heir::BEGIN);
        heir.wait(Heir::TRIED);
        let sender = libc::spawn(|| {
            let socket = UdpSocket::bind(("0.0.0.0", OTHER_PORT));
            let sent = socket.and_then(|socket| socket.send_to(SECRET, ("10.0.2.15", SECOND_PORT)));
            i32::from(sent.is_err())
        });
        let sent = libc::wait(sender);
        // It is user 0's that gets what is sent there.
        let mut bytes = [0; 128];
        let arrived = second.recv(&mut bytes).is_ok_and(|len| &bytes[..len] == SECRET);
        heir.set(Heir::FINISH);
        let ended = libc::wait(pid);
        end[0].store(1, Ordering::SeqCst);
        let worked = libc::wait(worker);
        i32::from(sent | ended | worked != 0 || !arrived)
    }));
    let of = |at: usize| heir.0[at].load(Ordering::SeqCst);
    let done = [Heir::ATTACHED, Heir::REDIRECTED, Heir::ENDED, Heir::SEEN].map(of);
    expect(status == 0 && done == [0; 4], || {
        format!("status {status:#x}; attached, redirected, ended, seen: {done:?}")
    })?;
    Ok(String::new())
}

/// How a process that accepts as another user has come to its listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Had {
    /// It made it itself, as user 0.
    Own,
    /// Its parent has it, too.
    Parents,
    /// So have its parent's other children: one of them accepts.
    Siblings,
}

/// A listener of user 0's from which a process accepts that has become another user: as web servers
/// do, whatever way it came to it.
fn listeners_are_shared_with_other_users(_: door::Door) -> Seen {
    for (port, had) in (LISTENED..).zip([Had::Own, Had::Parents, Had::Siblings]) {
        let status = libc::wait(libc::spawn(|| serve_as_another(port, had)));
        expect(status == 0, || format!("{had:?}: {status:#x}"))?;
    }
    Ok(String::new())
}

/// A server and its clients, in one process of user 0's and its children.
fn serve_as_another(port: u16, had: Had) -> i32 {
    let bind = || TcpListener::bind(("0.0.0.0", port));
    let parents = if had == Had::Own { None } else { bind().ok() };
    let listens = libc::words(libc::shared(1), 1);
    let serves = || {
        let own = if had == Had::Own { bind().ok() } else { None };
        let Some(listener) = own.as_ref().or(parents.as_ref()) else { return 100 };
        libc::count(&listens[0]);
        let accepts = || if libc::become_user(NOBODY) { answer(listener) } else { 101 };
        if had == Had::Siblings { libc::wait(libc::spawn(accepts)) >> 8 } else { accepts() }
    };
    let server = libc::spawn(serves);
    wait_until(|| listens[0].load(Ordering::SeqCst) != 0 || !libc::is_alive(server));
    let clients: Vec<i32> = (0..3).map(|_| libc::spawn(|| ask(port))).collect();
    let answered = clients.into_iter().map(libc::wait).fold(0, |all, one| all | one >> 8);
    libc::wait(server) >> 8 | answered
}

/// Accepts three connections, answers what comes, and looks for a fourth in vain.
fn answer(listener: &TcpListener) -> i32 {
    for _ in 0..3 {
        let Ok((mut connection, _)) = listener.accept() else { return 102 };
        let mut bytes = [0; 5];
        let heard = connection.read_exact(&mut bytes).is_ok() && &bytes == b"hello";
        // By then no timer of TCP's is set: nothing but the bell wakes what keeps the socket.
        std::thread::sleep(QUIET);
        if !heard || connection.write_all(b"world").is_err() {
            return 103;
        }
        // It stays open until the answer has been read: what was written has to go by itself.
        if libc::wait_for(connection.as_raw_fd(), libc::POLLIN, PATIENCE) == 0 {
            return 107;
        }
    }
    let none = listener.set_nonblocking(true).is_ok() && listener.accept().is_err();
    if none { 0 } else { 104 }
}

fn ask(port: u16) -> i32 {
    let Ok(mut connection) = TcpStream::connect(("10.0.2.15", port)) else { return 105 };
    let mut bytes = [0; 5];
    let told = connection.write_all(b"hello").is_ok();
    let comes = libc::wait_for(connection.as_raw_fd(), libc::POLLIN, PATIENCE) != 0;
    let heard = comes && connection.read_exact(&mut bytes).is_ok() && &bytes == b"world";
    if told && heard { 0 } else { 106 }
}
