//! Local sockets, and what the file server keeps for them.

use super::{ANN, NOBODY, PATH_ONLY, ask, ask_by, end, failed, look, nobody, node_of, store};
use crate::peers::regions;
use crate::{Seen, Test, expect, forgers, libc};
use abi::id::{EnvId, RegionId};
use abi::limits::REGION_ROLES;
use abi::published::{RegionRecord, Table};
use abi::region::WordAt;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use unix::handles;
use unix::local::INBOX_FRAMES;
use unix::protocol::{Operation, WATCHER};
use xok::services::{self, Service};

const EINVAL: u16 = 22;
/// `SOCK_DGRAM`.
const DATAGRAM: u64 = 2;

/// What holds.
pub const TESTS: [Test; 7] = [
    ("datagrams_are_read_by_who_is_sent_them", datagrams_are_read_by_who_is_sent_them),
    ("spoilt_inboxes_begin_anew", spoilt_inboxes_begin_anew),
    ("connections_leave_others_room", connections_leave_others_room),
    ("opens_delay_nobody", opens_delay_nobody),
    ("a_port_has_one_name", a_port_has_one_name),
    ("ports_end_no_server", ports_end_no_server),
    ("names_of_sockets_are_their_makers", names_of_sockets_are_their_makers),
];

/// The regions that the own domain has made.
fn made() -> impl Iterator<Item = (u64, RegionRecord)> {
    let own = xok::published::env_domain(EnvId(std::process::id())).map_or(0, |own| own.0);
    regions().into_iter().filter_map(move |id| {
        let record = xok::published::record::<RegionRecord>(Table::Regions, RegionId(id).index())?;
        (record.domain == own).then_some((id, record))
    })
}

/// A client's open files delay no other client: the file server notes each of its regions once.
fn opens_delay_nobody(door: door::Door) -> Seen {
    const OPENS: usize = 1000;
    const PLACES: [&str; 2] = ["/tmp/deputies-orphan", "/tmp/deputies-other"];
    let attacker = nobody(|| {
        let files = PLACES.map(File::create);
        if files.iter().any(Result::is_err) {
            return 1;
        }
        let [Some(node), Some(other)] = PLACES.map(|place| node_of(door, NOBODY, place)) else {
            return 1;
        };
        let pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().ok()).collect();
        let Some(way) = forgers::transport() else { return 2 };
        let open = |node, own| {
            ask_by(door, way, NOBODY, Operation::Open, [node, PATH_ONLY, own, 0]).is_ok()
        };
        let own: Vec<u64> = made().map(|(id, _)| id).filter(|&id| open(node, id)).collect();
        let opened = (0..OPENS).filter(|at| open(node, own[at % own.len()])).count();
        let others = own.iter().filter(|&&id| open(other, id)).count();
        let most = made().map(|(_, record)| record.attached[usize::from(WATCHER)]).max();
        std::mem::forget(pairs);
        println!("({opened} opens by {} regions, {others} of another file: {most:?})", own.len());
        i32::from(most != Some(1)) * 4 + i32::from(others > 0) * 8
    })?;
    let ended = end(attacker);
    PLACES.iter().for_each(|place| drop(fs::remove_file(place)));
    ended.map(|()| String::new())
}

/// A socket has one name: the file server looks at all of them at each request.
fn a_port_has_one_name(door: door::Door) -> Seen {
    const PLACES: [&str; 2] = ["/tmp/deputies-first", "/tmp/deputies-second"];
    const STREAM: u64 = 1;
    let attacker = nobody(|| {
        let Ok(_listener) = UnixListener::bind(PLACES[0]) else { return 1 };
        let ports: Vec<u64> = made().filter(|one| one.1.bytes == 4096).map(|one| one.0).collect();
        if UnixListener::bind(PLACES[1]).is_err() {
            return 2;
        }
        let Some(second) = node_of(door, NOBODY, PLACES[1]) else { return 3 };
        let bind = |&port: &u64| {
            let words = [second, u64::from(port as u32) | STREAM << 32, 0, 0];
            ask(door, NOBODY, Operation::SocketBind, words)
        };
        let answers: Vec<_> = ports.iter().map(bind).collect();
        println!("({answers:?})");
        i32::from(!answers.contains(&Err(EINVAL)) || answers.iter().any(|answer| answer.is_ok()))
            * 4
    })?;
    let ended = end(attacker);
    PLACES.iter().for_each(|place| drop(fs::remove_file(place)));
    ended.map(|()| String::new())
}

/// What others send to a socket of user 0's is read by user 0 alone, and arrives.
fn datagrams_are_read_by_who_is_sent_them(door: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-inbox";
    const TEXT: &[u8] = b"ann's word to user 0";
    let _ = fs::remove_file(PLACE);
    let before = regions();
    let inbox = UnixDatagram::bind(PLACE).map_err(failed)?;
    libc::set_mode(PLACE, 0o777);
    let made: Vec<u64> = regions().difference(&before).copied().collect();
    let ann = libc::wait(libc::spawn(|| {
        let sent = libc::become_user(ANN)
            && UnixDatagram::unbound().is_ok_and(|socket| socket.send_to(TEXT, PLACE).is_ok());
        i32::from(!sent)
    }));
    let status = libc::wait(libc::spawn(|| {
        let Ok(socket) = UnixDatagram::unbound() else { return 2 };
        libc::close(inbox.as_raw_fd());
        if !libc::become_user(NOBODY) || socket.connect(PLACE).is_err() {
            return 3;
        }
        let reads = made.iter().any(|&region| {
            let roles =
                (0..REGION_ROLES as u8).filter_map(|role| look(door, region, role, 4096, 4096));
            roles.flatten().collect::<Vec<u8>>().windows(TEXT.len()).any(|part| part == TEXT)
        });
        let spoils =
            made.iter().any(|&region| store(door, region, WordAt { offset: 8, value: u64::MAX }));
        let connect = |node| ask(door, NOBODY, Operation::SocketConnect, [node, DATAGRAM, 0, 0]);
        let Some(Ok([.., handle])) = node_of(door, NOBODY, PLACE).map(connect) else { return 4 };
        let send = |handle, user: u64| {
            let arguments = [handle, 0, 8, user | user << 32];
            ask(door, NOBODY, Operation::SocketSend, arguments).is_ok()
        };
        let forges = send(handle, 0);
        let guesses = (0..64).any(|number| send(handles::inbox(number), NOBODY.into()));
        [reads, spoils, forges, guesses].iter().zip(4..).map(|(&is, at)| i32::from(is) << at).sum()
    }));
    inbox.set_nonblocking(true).map_err(failed)?;
    let mut bytes = [0; 64];
    let got = inbox.recv(&mut bytes).map(|len| bytes[..len].to_vec());
    fs::remove_file(PLACE).map_err(failed)?;
    expect(ann == 0 && status & 0x7f == 0, || format!("ann {ann:#x}, attacker {status:#x}"))?;
    expect(status == 0 && got.as_ref().is_ok_and(|bytes| bytes == TEXT), || {
        let means = "0x1000: it read, 0x2000 stored, 0x4000 sent as user 0, 0x8000 by no right";
        format!("attacker {status:#x} ({means}), user 0 got {got:?}")
    })?;
    Ok(String::new())
}

/// What the other socket of a pair stores in an inbox is gone with what waits; later datagrams
/// arrive.
fn spoilt_inboxes_begin_anew(door: door::Door) -> Seen {
    const TEXT: &[u8] = b"sent later";
    const SKIPPED: u64 = u32::MAX as u64;
    // Head, tail and the first word behind them.
    const WORDS: [[u64; 3]; 5] =
        [[0, u64::MAX, 0], [32, 5, 0], [7, 0, 0], [u64::MAX; 3], [32, 0, SKIPPED]];
    let before: Vec<u64> = made().map(|(id, _)| id).collect();
    let (inbox, other) = UnixDatagram::pair().map_err(failed)?;
    let fresh: Vec<u64> = made().map(|(id, _)| id).filter(|id| !before.contains(id)).collect();
    inbox.set_nonblocking(true).map_err(failed)?;
    for [head, tail, first] in WORDS {
        let words = [(4096, first), (8, tail), (0, head)];
        let all = |&id: &u64| {
            words.iter().all(|&(offset, value)| store(door, id, WordAt { offset, value }))
        };
        let spoilt = !fresh.is_empty() && fresh.iter().all(all);
        let mut bytes = [0; 64];
        let nothing = inbox.recv(&mut bytes).map_err(|error| error.kind());
        let sent = other.send(TEXT);
        let got = inbox.recv(&mut bytes).map(|len| bytes[..len].to_vec());
        let empty = nothing == Err(std::io::ErrorKind::WouldBlock);
        let arrived = got.as_ref().is_ok_and(|bytes| bytes == TEXT);
        expect(spoilt && empty && arrived, || {
            let words = format!("{head:#x}, {tail:#x}, {first:#x} (stored: {spoilt})");
            format!("{words}: first {nothing:?}, sent {sent:?}, then {got:?}")
        })?;
    }
    Ok(String::new())
}

/// What a listener stores in its port is its own trouble: the file server goes on.
fn ports_end_no_server(door: door::Door) -> Seen {
    const KEPT: &str = "/tmp/deputies-kept";
    const PLACE: &str = "/tmp/deputies-port";
    fs::write(KEPT, b"kept").map_err(failed)?;
    let server = services::get(Service::Files);
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 1;
        }
        let before = regions();
        let Ok(_listener) = UnixListener::bind(PLACE) else { return 2 };
        // The head of the ring of offers.
        let word = WordAt { offset: 0, value: u64::MAX };
        let fresh = made().map(|(id, _)| id).filter(|id| !before.contains(id));
        let stored = fresh.filter(|&id| store(door, id, word)).count();
        let _ = UnixStream::connect(PLACE);
        i32::from(stored == 0)
    }));
    let answer = ask(door, 0, Operation::Space, [0; 4]);
    let now = services::get(Service::Files);
    let kept = fs::read(KEPT);
    expect(status == 0 && answer.is_ok() && now == server && kept.is_ok(), || {
        let servers = format!("server {server:#x}, then {now:#x}: {answer:?}");
        format!("status {status:#x}; {servers}; user 0's file: {kept:?}")
    })?;
    let _ = fs::remove_file(PLACE);
    fs::remove_file(KEPT).map_err(failed)?;
    Ok(String::new())
}

/// What one user has the file server make leaves others room: their sockets still meet.
fn connections_leave_others_room(_: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-listener";
    let path = |number: u32| format!("/tmp/deputies-many-{number}");
    let attacker = nobody(|| {
        let mut made = 0;
        'all: for number in 0..60 {
            let Ok(listener) = UnixListener::bind(path(number)) else { break };
            std::mem::forget(listener);
            // Each is closed at once, and accepted by nobody.
            for _ in 0..100 {
                if UnixStream::connect(path(number)).is_err() {
                    break 'all;
                }
                made += 1;
            }
        }
        println!("({made} connections)");
        0
    })?;
    let listener = UnixListener::bind(PLACE);
    let connected = listener.as_ref().is_ok_and(|_| UnixStream::connect(PLACE).is_ok());
    let terminal = File::open("/dev/ptmx").map(drop);
    end(attacker)?;
    (0..60).for_each(|number| drop(fs::remove_file(path(number))));
    let _ = fs::remove_file(PLACE);
    expect(connected && terminal.is_ok(), || {
        format!(
            "user 0's listener {listener:?}, connected: {connected}; its terminal: {terminal:?}"
        )
    })?;
    Ok(String::new())
}

/// Nobody receives behind a name that another user has made.
fn names_of_sockets_are_their_makers(door: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-daemon";
    const DATAGRAMS: u64 = 2;
    drop(UnixDatagram::bind(PLACE).map_err(failed)?);
    // The daemon has ended; its name is there, with its mode.
    libc::set_mode(PLACE, 0o700);
    let node = node_of(door, 0, PLACE).ok_or("it has no handle")?;
    let attacker = nobody(|| {
        // Inboxes that have no name yet.
        let Ok(pair) = UnixDatagram::pair() else { return 1 };
        let bytes = 4096 * INBOX_FRAMES;
        let (mut tried, mut bound) = (0, 0);
        for (inbox, _) in made().filter(|one| one.1.bytes as usize == bytes) {
            let words = [node, u64::from(inbox as u32) | DATAGRAMS << 32, 0, 0];
            tried += 1;
            bound += i32::from(ask(door, NOBODY, Operation::SocketBind, words).is_ok());
        }
        std::mem::forget(pair);
        // Both ends' inboxes, and none of them behind the name.
        if tried == 2 { bound } else { 2 + tried }
    })?;
    end(attacker)?;
    fs::remove_file(PLACE).map_err(failed)?;
    Ok(String::new())
}
