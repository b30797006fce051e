//! Local sockets, and what the file server keeps for them.

use super::{ANN, NOBODY, PATH_ONLY, ask, ask_by, end, failed, look, nobody, store};
use crate::peers::regions;
use crate::{Seen, Test, expect, forgers, libc};
use abi::id::{EnvId, RegionId};
use abi::published::{RegionRecord, Table};
use abi::region::WordAt;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::time::{Duration, Instant};
use unix::protocol::Operation;
use xok::services::{self, Service};

/// What holds.
pub const TESTS: [Test; 2] = [
    ("ports_end_no_server", ports_end_no_server),
    ("names_of_sockets_are_their_makers", names_of_sockets_are_their_makers),
];
/// What does not hold yet: run by name alone.
pub const OPEN: [Test; 3] = [
    ("opens_delay_nobody", opens_delay_nobody),
    ("datagrams_are_read_by_who_is_sent_them", datagrams_are_read_by_who_is_sent_them),
    ("connections_leave_others_room", connections_leave_others_room),
];

/// How long the server takes for a request that is nothing, at least.
fn answers(door: door::Door) -> Duration {
    let once = || {
        let begun = Instant::now();
        let _ = ask(door, 0, Operation::Space, [0; 4]);
        begun.elapsed()
    };
    (0..20).map(|_| once()).min().unwrap_or_default()
}

/// A client's open files delay no other client.
fn opens_delay_nobody(door: door::Door) -> Seen {
    const OPENS: u32 = 1_500_000;
    const PLACE: &str = "/tmp/deputies-orphan";
    let before = answers(door);
    let begun = Instant::now();
    let attacker = nobody(|| {
        let Ok(file) = File::create(PLACE) else { return 1 };
        let Some(node) = file.metadata().ok().map(|data| data.ino() - 1) else { return 2 };
        let pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().ok()).collect();
        let Some(way) = forgers::transport() else { return 3 };
        let open =
            |own| ask_by(door, way, NOBODY, Operation::Open, [node, PATH_ONLY, own, 0]).is_ok();
        let own: Vec<u64> = regions().into_iter().filter(|&id| open(id)).collect();
        let opened = (0..OPENS).take_while(|&at| open(own[at as usize % own.len()])).count();
        std::mem::forget(pairs);
        println!("({opened} opens of one file by {} regions)", own.len());
        i32::from(fs::remove_file(PLACE).is_err())
    })?;
    let took = begun.elapsed();
    let after = answers(door);
    end(attacker)?;
    expect(after < before + Duration::from_millis(10), || {
        format!("each request of user 0 takes {after:?}, {before:?} before (made in {took:?})")
    })?;
    Ok(String::new())
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
            let bytes = look(door, region, 0, 4096, 4096).unwrap_or_default();
            bytes.windows(TEXT.len()).any(|part| part == TEXT)
        });
        let spoils =
            made.iter().any(|&region| store(door, region, WordAt { offset: 8, value: u64::MAX }));
        i32::from(reads) * 16 + i32::from(spoils) * 32
    }));
    inbox.set_nonblocking(true).map_err(failed)?;
    let mut bytes = [0; 64];
    let got = inbox.recv(&mut bytes).map(|len| bytes[..len].to_vec());
    fs::remove_file(PLACE).map_err(failed)?;
    expect(ann == 0 && status & 0x7f == 0, || format!("ann {ann:#x}, attacker {status:#x}"))?;
    expect(status == 0 && got.as_ref().is_ok_and(|bytes| bytes == TEXT), || {
        format!("attacker {status:#x} (0x1000: it read, 0x2000: it stored), user 0 got {got:?}")
    })?;
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
        let own = xok::published::env_domain(EnvId(std::process::id())).map_or(0, |own| own.0);
        let of_own = |id: u64| {
            xok::published::record::<RegionRecord>(Table::Regions, RegionId(id).index())
                .is_some_and(|record| record.domain == own)
        };
        // The head of the ring of offers.
        let word = WordAt { offset: 0, value: u64::MAX };
        let fresh: Vec<u64> = regions().difference(&before).copied().collect();
        let stored = fresh.iter().filter(|&&id| of_own(id) && store(door, id, word)).count();
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

/// Nobody listens behind a name that another user has made.
fn names_of_sockets_are_their_makers(door: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-daemon";
    const OWN: &str = "/tmp/deputies-forger";
    const STREAM: u64 = 1;
    drop(UnixListener::bind(PLACE).map_err(failed)?);
    // The daemon has ended; its name is there, with its mode.
    libc::set_mode(PLACE, 0o700);
    let node = fs::metadata(PLACE).map_err(failed)?.ino() - 1;
    let attacker = nobody(|| {
        let before = regions();
        let Ok(listener) = UnixListener::bind(OWN) else { return 1 };
        let own = xok::published::env_domain(EnvId(std::process::id())).map_or(0, |own| own.0);
        let is_port = |&id: &u64| {
            xok::published::record::<RegionRecord>(Table::Regions, RegionId(id).index())
                .is_some_and(|record| record.domain == own && record.bytes == 4096)
        };
        let ports = regions().difference(&before).copied().filter(is_port).collect::<Vec<_>>();
        for port in ports {
            let words = [node, u64::from(port as u32) | STREAM << 32, 0, 0];
            _ = ask(door, NOBODY, Operation::SocketBind, words);
        }
        libc::spawn(move || {
            i32::from(
                !listener
                    .accept()
                    .is_ok_and(|(mut stream, _)| stream.write_all(b"not the daemon").is_ok()),
            )
        });
        0
    })?;
    let heard = UnixStream::connect(PLACE).and_then(|mut stream| {
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    });
    end(attacker)?;
    let _ = fs::remove_file(OWN);
    fs::remove_file(PLACE).map_err(failed)?;
    expect(heard.is_err(), || format!("behind user 0's name, mode 0700, is: {heard:?}"))?;
    Ok(String::new())
}
