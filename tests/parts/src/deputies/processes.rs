//! What processes say of themselves and of their groups, and what they share.

use super::terminals::{FOREGROUND, LOCK, NUMBER};
use super::{NOBODY, end, failed, look, nobody, say, store};
use crate::peers::regions;
use crate::{Seen, Test, expect, libc, set_id};
use abi::call::Call;
use abi::error::Error;
use abi::id::{DomainId, EnvId};
use abi::published::{EnvRecord, EnvState, InterfaceRecord, Table};
use abi::region::WordAt;
use abi::ring::Piece;
use abi::word::UserAddress;
use std::fs::{self, OpenOptions};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use unix::process_page::ProcessPage;
use xok::services::{self, Service};

/// What holds.
pub const TESTS: [Test; 12] = [
    ("processes_do_not_say_whose_they_are", processes_do_not_say_whose_they_are),
    ("pages_end_no_readers", pages_end_no_readers),
    ("shared_sockets_are_their_own_trouble", shared_sockets_are_their_own_trouble),
    ("shared_listeners_are_their_own_trouble", shared_listeners_are_their_own_trouble),
    ("children_do_not_say_whom_to_hang_up", children_do_not_say_whom_to_hang_up),
    ("leaders_hang_up_their_own", leaders_hang_up_their_own),
    ("strangers_keep_no_group_stopped", strangers_keep_no_group_stopped),
    ("set_id_programs_hang_up_nobody", set_id_programs_hang_up_nobody),
    ("addresses_are_resolved_for_all", addresses_are_resolved_for_all),
    ("neighbours_are_not_the_wires_stations", neighbours_are_not_the_wires_stations),
    ("servers_keep_no_records_of_others", servers_keep_no_records_of_others),
    ("senders_do_not_say_whose_they_are", senders_do_not_say_whose_they_are),
];

/// `TIOCNOTTY`
const GIVE_UP: u64 = 0x5422;
/// A group is hung up within this.
pub(super) const HANG_UP: Duration = Duration::from_secs(2);

/// What a process says of itself ends nobody who reads it: `ps` of user 0.
fn pages_end_no_readers(_: door::Door) -> Seen {
    let attacker = nobody(|| {
        say(offset_of!(ProcessPage, nice), i32::MAX as u32);
        0
    })?;
    let path = format!("/proc/{}/stat", attacker.0);
    let status = libc::wait(libc::spawn(|| i32::from(fs::read(&path).is_err())));
    end(attacker)?;
    expect(status == 0, || format!("reading {path} ends user 0's process: {status:#x}"))?;
    Ok(String::new())
}

/// In /proc a process is its user's, its group's and its parent's, whatever it says of itself: by
/// that user 0 finds all processes of a user's.
fn processes_do_not_say_whose_they_are(_: door::Door) -> Seen {
    let said = [
        [offset_of!(ProcessPage, user), offset_of!(ProcessPage, group_id)],
        [offset_of!(ProcessPage, effective_user), offset_of!(ProcessPage, effective_group_id)],
        [offset_of!(ProcessPage, saved_user), offset_of!(ProcessPage, saved_group_id)],
        [offset_of!(ProcessPage, file_user), offset_of!(ProcessPage, file_group_id)],
    ];
    for (at, offsets) in said.into_iter().enumerate() {
        let attacker = nobody(|| {
            offsets.into_iter().for_each(|offset| say(offset, 0));
            say(offset_of!(ProcessPage, parent), 1);
            say(offset_of!(ProcessPage, groups_len), 1);
            say(offset_of!(ProcessPage, groups), 0);
            say(offset_of!(ProcessPage, stop_signal), 19);
            0
        })?;
        let path = format!("/proc/{}", attacker.0);
        let owner = fs::metadata(&path).map(|found| [found.uid(), found.gid()]);
        let status = fs::read_to_string(format!("{path}/status")).map_err(failed)?;
        end(attacker)?;
        let owner = owner.map_err(failed)?;
        expect(owner == [NOBODY; 2], || format!("{path} is of user and group {owner:?}"))?;
        for name in ["Uid:", "Gid:"] {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            let are_its = line.split_whitespace().all(|id| id.parse() == Ok(NOBODY));
            expect(!line.is_empty() && are_its, || format!("word {at} said 0, {name}{line}"))?;
        }
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
        let has_none = groups.is_some_and(|line| line.trim().is_empty());
        expect(has_none, || format!("it said that it is in group 0, Groups: {groups:?}"))?;
        let is_stopped = status.contains("State:\tT");
        expect(!is_stopped, || "it said that it is stopped, and is shown so".into())?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t"));
        let is_its = parent.map(str::parse) == Some(Ok(std::process::id()));
        expect(is_its, || format!("it said that its parent is 1, PPid: {parent:?}"))?;
    }
    Ok(String::new())
}

/// A process of user 0 in a session of its own, that SIGHUP would end, until `words[0]`.
fn daemon(words: &[std::sync::atomic::AtomicU64]) -> i32 {
    if !libc::lead_session() {
        return 1;
    }
    while words[0].load(Ordering::SeqCst) == 0 {
        // It takes what it was sent on the way out of a call.
        std::thread::yield_now();
        words[1].fetch_add(1, Ordering::SeqCst);
    }
    0
}

/// Waits until a process is stopped, or has ended.
pub(super) fn await_stop(pid: i32) {
    let state = || xok::published::env(EnvId(pid as u32)).map(|record| record.state);
    let is_over = |state| state == EnvState::Held as u32 || state == EnvState::Dead as u32;
    while !state().is_none_or(is_over) {
        std::thread::yield_now();
    }
}

/// Runs `misled`, a process of user 0 that does nothing but end; what became of a daemon of user 0.
fn beside_daemon(misled: impl FnOnce(i32) -> i32) -> Result<(), String> {
    let words = libc::words(libc::shared(1), 2);
    let victim = libc::spawn(|| daemon(words));
    let goes_round = |times| {
        let before = words[1].load(Ordering::SeqCst);
        while words[1].load(Ordering::SeqCst) < before + times && libc::is_alive(victim) {
            std::thread::yield_now();
        }
    };
    goes_round(1);
    let status = libc::wait(libc::spawn(|| misled(victim)));
    goes_round(3);
    words[0].store(1, Ordering::SeqCst);
    let victims = libc::wait(victim);
    expect(status == 0 && victims == 0, || {
        format!("user 0's process ended with {status:#x}, its daemon elsewhere with {victims:#x}")
    })
}

/// A process that ends hangs up its own stopped children's groups: not those that they name.
fn children_do_not_say_whom_to_hang_up(_: door::Door) -> Seen {
    beside_daemon(|victim| {
        // It leads a session, as a login shell does; the attacker is in it.
        if !libc::lead_session() {
            return 1;
        }
        let attacker = nobody(|| {
            say(offset_of!(ProcessPage, group), victim as u32);
            0
        });
        let Ok((pid, end)) = attacker else { return 2 };
        libc::send(pid, 19);
        await_stop(pid);
        // It ends while the attacker lives.
        std::mem::forget(end);
        0
    })?;
    Ok(String::new())
}

/// The leader of a session that ends, or gives its terminal up, hangs up who is in the foreground
/// there: not whom a program that has the terminal, too, says to be there.
fn leaders_hang_up_their_own(door: door::Door) -> Seen {
    lose_terminal(door, false).map_err(|what| format!("the leader ends: {what}"))?;
    lose_terminal(door, true).map_err(|what| format!("the leader lives on: {what}"))?;
    Ok(String::new())
}

fn lose_terminal(door: door::Door, gives_up: bool) -> Result<(), String> {
    use std::os::unix::fs::OpenOptionsExt;
    beside_daemon(|victim| {
        let before = regions();
        let open = |path: &str, flags| {
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok()
        };
        let leads = libc::lead_session();
        let Some(master) = open("/dev/ptmx", 0o400).filter(|_| leads) else { return 1 };
        let Some(_) = libc::control(master.as_raw_fd(), LOCK, 0) else { return 2 };
        let Some(number) = libc::control(master.as_raw_fd(), NUMBER, 0) else { return 3 };
        let Some(slave) = open(&format!("/dev/pts/{number}"), 0) else { return 4 };
        let fresh: Vec<u64> = regions().difference(&before).copied().collect();
        let own = std::process::id();
        // As after `su nobody`: it has the terminal's descriptors.
        let attacker = nobody(|| {
            let word = u64::from(victim as u32) | u64::from(own) << 32;
            let stored = fresh.iter().filter(|&&region| {
                let is_control = look(door, region, 0, FOREGROUND, 8)
                    .is_some_and(|bytes| bytes[4..8] == own.to_le_bytes());
                is_control && store(door, region, WordAt { offset: FOREGROUND, value: word })
            });
            i32::from(stored.count() != 1)
        });
        if attacker.map(std::mem::forget).is_err() {
            return 5;
        }
        let given_up = !gives_up || libc::control(slave.as_raw_fd(), GIVE_UP, 0).is_some();
        i32::from(!given_up) * 6
    })
}

/// A stopped group that no process can continue any more is hung up, also if another user's process
/// of the session says that it is in that group, and so that its own parent could.
fn strangers_keep_no_group_stopped(_: door::Door) -> Seen {
    let words = libc::words(libc::shared(1), 2);
    let status = libc::wait(libc::spawn(|| {
        if !libc::lead_session() {
            return 1;
        }
        let parent = libc::spawn(|| {
            let child = libc::spawn(|| {
                let is_put = libc::set_group(0, 0);
                libc::send(std::process::id() as i32, 19);
                i32::from(!is_put)
            });
            await_stop(child);
            words[0].store(child as u64, Ordering::SeqCst);
            while words[1].load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            i32::from(!libc::is_alive(child))
        });
        while words[0].load(Ordering::SeqCst) == 0 && libc::is_alive(parent) {
            std::thread::yield_now();
        }
        let group = words[0].load(Ordering::SeqCst) as i32;
        let attacker = nobody(|| {
            say(offset_of!(ProcessPage, group), group as u32);
            0
        });
        let Ok(attacker) = attacker else { return 2 };
        words[1].store(1, Ordering::SeqCst);
        if libc::wait(parent) != 0 {
            return 3;
        }
        let began = Instant::now();
        let is_there = || xok::published::env_lives(EnvId(group as u32));
        while is_there() && began.elapsed() < HANG_UP {
            std::thread::sleep(Duration::from_millis(1));
        }
        let stays = is_there();
        libc::send(group, 9);
        if end(attacker).is_err() { 4 } else { i32::from(stays) * 5 }
    }));
    expect(status != 0x500, || "user 0's stopped group stays stopped for ever".into())?;
    expect(status == 0, || format!("the leader of the session ended with {status:#x}"))?;
    Ok(String::new())
}

/// Who shares a socket with a process of user 0 ends neither that nor its other sockets.
fn shared_sockets_are_their_own_trouble(door: door::Door) -> Seen {
    use std::net::UdpSocket;
    let status = libc::wait(libc::spawn(|| {
        let before = regions();
        let make = |port| UdpSocket::bind(("0.0.0.0", port)).ok();
        let (Some(shared), Some(other)) = (make(5601), make(5602)) else { return 1 };
        let both = [&shared, &other].map(|socket| socket.set_nonblocking(true).is_ok());
        let target = "10.0.2.2:9";
        if both != [true; 2] || other.send_to(b"before", target).is_err() {
            return 2;
        }
        let attacker = libc::wait(libc::spawn(|| {
            libc::close(other.as_raw_fd());
            if !libc::become_user(NOBODY) {
                return 1;
            }
            let fresh: Vec<u64> = regions().difference(&before).copied().collect();
            // Sixteen bytes are there, the last ones that there ever are.
            let words = [(8, u64::MAX - 7), (0, 8)];
            let stored = fresh.iter().filter(|&&region| {
                words.iter().all(|&(offset, value)| store(door, region, WordAt { offset, value }))
            });
            if stored.count() == 0 { 2 } else { 0 }
        }));
        if attacker != 0 {
            return 3;
        }
        // The keeper of both has looked at what the attacker left before it brings this back.
        let own = ("127.0.0.1", 5602);
        let all = [other.set_nonblocking(false), other.send_to(b"after", own).map(|_| ())];
        let came = other.recv(&mut [0; 64]);
        if all.iter().any(Result::is_err) || !matches!(came, Ok(5)) {
            println!("(user 0's other socket: {all:?} {came:?})");
            return 4;
        }
        // What is wrong with the shared one is an error of its own, and no wait.
        let failed = shared.recv(&mut [0; 64]).is_err_and(|error| error.raw_os_error() == Some(5));
        if failed { 0 } else { 5 }
    }));
    expect(status == 0, || format!("user 0's process ended with {status:#x}"))?;
    Ok(String::new())
}

/// Nor does who shares a listening local socket with it: nobody waits there, and that is all.
fn shared_listeners_are_their_own_trouble(door: door::Door) -> Seen {
    use std::os::unix::net::UnixListener;
    const NAME: &str = "/tmp/deputies-listener";
    let _ = fs::remove_file(NAME);
    let status = libc::wait(libc::spawn(|| {
        let before = regions();
        let Ok(listener) = UnixListener::bind(NAME) else { return 1 };
        if listener.set_nonblocking(true).is_err() {
            return 2;
        }
        let attacker = libc::wait(libc::spawn(|| {
            if !libc::become_user(NOBODY) {
                return 1;
            }
            // One connection is there, the last one that there ever is.
            let tail = WordAt { offset: unix::ring::TAIL, value: u64::MAX };
            let fresh: Vec<u64> = regions().difference(&before).copied().collect();
            let stored = fresh.iter().filter(|&&region| store(door, region, tail));
            if stored.count() == 0 { 2 } else { 0 }
        }));
        if attacker != 0 { 3 } else { i32::from(listener.accept().is_ok()) }
    }));
    let _ = fs::remove_file(NAME);
    expect(status == 0, || format!("user 0's process ended with {status:#x}"))?;
    Ok(String::new())
}

/// What the starter of a set-id program has said of itself: who is in the foreground of its
/// terminal, or a stopped child of its own.
fn mislead_set_id(door: door::Door, program: &str, victim: u32, by_terminal: bool) -> i32 {
    use std::os::unix::fs::OpenOptionsExt;
    let before = regions();
    if !libc::become_user(NOBODY) || !libc::lead_session() {
        return 11;
    }
    let own = std::process::id();
    let open = |path: &str, flags| {
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok()
    };
    if by_terminal {
        let Some(master) = open("/dev/ptmx", 0o400) else { return 12 };
        let Some(_) = libc::control(master.as_raw_fd(), LOCK, 0) else { return 13 };
        let Some(number) = libc::control(master.as_raw_fd(), NUMBER, 0) else { return 14 };
        let Some(slave) = open(&format!("/dev/pts/{number}"), 0) else { return 15 };
        // It goes on having them.
        let ends = [&master, &slave].map(|end| libc::duplicate(end.as_raw_fd()));
        let word = WordAt { offset: FOREGROUND, value: u64::from(victim) | u64::from(own) << 32 };
        let fresh: Vec<u64> = regions().difference(&before).copied().collect();
        let stored = fresh.iter().filter(|&&region| {
            let is_control = look(door, region, 0, FOREGROUND, 8)
                .is_some_and(|bytes| bytes[4..8] == own.to_le_bytes());
            is_control && store(door, region, word)
        });
        if stored.count() != 1 || ends.iter().any(|&end| end < 0) {
            return 16;
        }
    } else {
        let child = libc::spawn(|| {
            say(offset_of!(ProcessPage, group), victim);
            libc::send(std::process::id() as i32, 19);
            0
        });
        await_stop(child);
    }
    libc::execute(program, &[set_id::NAME.into()], &[]);
    17
}

/// The same of one that becomes user 0 wholly, as su(1) does: its starter, and its starter's
/// starter, have said in what group and session they are.
fn mislead_a_shell(program: &str, victim: u32) -> i32 {
    if !libc::become_user(NOBODY) {
        return 21;
    }
    let session = offset_of!(ProcessPage, session);
    say(session, victim);
    let shell = libc::spawn(|| {
        let group = offset_of!(ProcessPage, group);
        for word in [session, group] {
            say(word, victim);
        }
        let child = libc::spawn(|| {
            for word in [session, group] {
                say(word, victim);
            }
            libc::send(std::process::id() as i32, 19);
            0
        });
        await_stop(child);
        libc::execute(program, &[set_id::NAME.into(), set_id::WHOLLY.into()], &[]);
        22
    });
    libc::wait(shell) >> 8
}

/// A set-id program of user 0's that ends signals nobody that its starter has named.
fn set_id_programs_hang_up_nobody(door: door::Door) -> Seen {
    const PROGRAM: &str = "/tmp/deputies-job";
    set_id::copy_program(PROGRAM).map_err(failed)?;
    libc::set_mode(PROGRAM, 0o4755);
    // Another test's, which would have the program go on.
    let _ = fs::remove_file(set_id::LEDGER);
    let mut seen = Ok(());
    for by in ["its terminal", "its child", "its group"] {
        let one = beside_daemon(|victim| {
            let victim = victim as u32;
            let program = || match by {
                "its group" => mislead_a_shell(PROGRAM, victim),
                _ => mislead_set_id(door, PROGRAM, victim, by == "its terminal"),
            };
            let status = libc::wait(libc::spawn(program));
            // It has found no ledger.
            if status == 0x100 { 0 } else { status >> 8 | 64 }
        });
        let one = one.map_err(|what| format!("by {by}: {what}. "));
        seen = match (seen, one) {
            (Err(first), Err(second)) => Err(first + &second),
            (Err(what), _) | (_, Err(what)) => Err(what),
            _ => Ok(()),
        };
    }
    fs::remove_file(PROGRAM).map_err(failed)?;
    seen.map(|()| String::new())
}

/// Who has no network sends nothing, and keeps nobody's link addresses from being found out.
fn addresses_are_resolved_for_all(door: door::Door) -> Seen {
    // `xnet::addresses`: what is asked, and its answer.
    const RESOLVE: u64 = u64::from_le_bytes(*b"RESOLVE\0");
    const ASKING: u64 = 1;
    let resolve = |last: u64| loop {
        let server = EnvId(services::get(Service::Addresses) as u32);
        let address = 10 << 24 | 2 << 8 | last;
        match libc::transfer(door, server, [RESOLVE, address, 0, 0, 0, 0]) {
            Err((Error::Busy, _)) => std::thread::yield_now(),
            Ok([answer, ..]) => return answer == ASKING,
            Err(_) => return false,
        }
    };
    expect(resolve(99), || "no network".into())?;
    let attacker = nobody(|| {
        let granted = (100..116).filter(|&last| resolve(last)).count();
        i32::from(granted > 0)
    })?;
    let asked = resolve(200);
    end(attacker)?;
    expect(asked, || "user 0's address is not asked for: nobody's take all places".into())?;
    Ok(String::new())
}

/// A reply of ARP's to the interface itself, in the name of the station with this address.
fn forged(own: [u8; 6], station: [u8; 4]) -> Vec<u8> {
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 99];
    let address = (services::get(Service::Address) as u32).to_le_bytes();
    let parts: [&[u8]; 8] =
        [&own, &OTHER, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &OTHER, &station, &own, &address, &[0; 18]];
    parts.concat()
}

/// Who has the network too says to others on this machine nothing in the name of the wire's
/// stations: where these are is what they say themselves.
fn neighbours_are_not_the_wires_stations(door: door::Door) -> Seen {
    const NETWORK_SLOT: u8 = 3;
    const NETWORK_GROUP: u32 = 3003;
    const STATION: [u8; 4] = [10, 0, 2, 77];
    let interface: InterfaceRecord =
        xok::published::record(Table::Interfaces, 0).ok_or("no interface")?;
    let [own @ .., _, _] = interface.mac.to_le_bytes();
    let frame = forged(own, STATION);
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user_in(NOBODY, NETWORK_GROUP) {
            return 1;
        }
        let pieces = [Piece { address: frame.as_ptr() as u64, len: frame.len() as u64 }];
        let (pending, count) = (std::sync::atomic::AtomicU64::new(1), 1);
        let at = |address: u64| UserAddress(address);
        let [pieces, pending] = [at(pieces.as_ptr() as u64), at(&raw const pending as u64)];
        let call = Call::NetTransmit { interface: 0, pieces, count, pending };
        i32::from(libc::kernel_by(door, call, NETWORK_SLOT).is_err()) * 2
    }));
    expect(status == 0, || format!("the packet is not sent: {status:#x}"))?;
    // The server takes what has come.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let server = EnvId(services::get(Service::Addresses) as u32);
    let page = xok::published::application(server.index()).ok_or("no table")?;
    let known = u64::from(u32::from_be_bytes(STATION)) | 1 << 32;
    let learned = (0..512).any(|word| page.word(8 * word) == known);
    expect(!learned, || "a station is where a neighbour says that it is".into())?;
    Ok(String::new())
}

/// Environments of other domains, and init.
fn strangers() -> impl Iterator<Item = (EnvId, bool)> {
    let own = xok::published::env_domain(EnvId(std::process::id()));
    let count = xok::published::table(Table::Envs).count as usize;
    let all = (1..count)
        .filter_map(|index| xok::published::record::<EnvRecord>(Table::Envs, index))
        .filter(move |record| record.id != 0 && Some(DomainId(record.domain)) != own);
    all.map(|record| (EnvId(record.id), EnvId(record.id).index() == services::INIT_INDEX))
}

/// The record of a dead process, and its account, are there as long as its holder has not forgotten
/// it: only init, which looks, takes those of others.
fn servers_keep_no_records_of_others(door: door::Door) -> Seen {
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 1;
        }
        let child = EnvId(libc::spawn(|| 0) as u32);
        await_stop(child.0 as i32);
        let entrust = |holder| {
            libc::kernel(door, Call::EnvEntrust { env: child, holder }).map_err(|(e, _)| e)
        };
        let taken = strangers().filter(|(_, is_init)| !is_init).any(|(holder, _)| {
            let answer = entrust(holder);
            !matches!(answer, Err(Error::NotPermitted | Error::NoSuchEnv | Error::WrongState))
        });
        if taken {
            return 2;
        }
        let init = strangers().find_map(|(env, is_init)| is_init.then_some(env));
        if init.is_none_or(|init| entrust(init).is_err()) {
            return 3;
        }
        // Init forgets it.
        while xok::published::env(child).is_some() {
            std::thread::yield_now();
        }
        0
    }));
    expect(status == 0, || format!("status {status:#x} (0x200: another one took it)"))?;
    Ok(String::new())
}

/// A signal is told with the user of its sender, as the kernel knows it: a program that says of
/// itself that it is user 0's is believed by nobody.
fn senders_do_not_say_whose_they_are(_: door::Door) -> Seen {
    const SIGNAL: i32 = 10;
    let words = libc::words(libc::shared(1), 1);
    let victim = libc::spawn(|| {
        libc::block(SIGNAL);
        if !libc::become_user(NOBODY) {
            return 1;
        }
        words[0].store(1, Ordering::SeqCst);
        match libc::await_signal(SIGNAL) {
            Some([_, NOBODY]) => 0,
            Some([_, user]) => 10 + i32::from(user == 0),
            None => 2,
        }
    });
    while words[0].load(Ordering::SeqCst) == 0 && libc::is_alive(victim) {
        std::thread::yield_now();
    }
    let attacker = nobody(|| {
        say(offset_of!(ProcessPage, user), 0);
        libc::send(victim, SIGNAL);
        0
    })?;
    let status = libc::wait(victim);
    end(attacker)?;
    expect(status == 0, || format!("who was signalled ended with {status:#x}"))?;
    Ok(String::new())
}
