//! A peer that writes another user into what it shares: `SO_PEERCRED` tells who it is all the same.

use crate::peers::regions;
use crate::{Seen, expect, libc};
use abi::call::Call;
use abi::region::{COPY_NONE, RegionOperation, WordAt};
use abi::word::UserAddress;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};

/// User and group of the peer.
const NOBODY: u32 = 65_534;
/// Where both sides meet.
const PLACE: &str = "/tmp/forgers";
/// Words of a head in which a process, a user or a group could stand.
const WORDS: [u64; 8] = [32, 40, 48, 56, 2048 + 32, 2048 + 40, 2048 + 48, 2048 + 56];

/// Writes "process `pid` of user 0" wherever it may in the regions that came meanwhile.
fn forge(door: door::Door, known: &std::collections::BTreeSet<u64>, pid: u32) -> u64 {
    let mut done = 0;
    for &region in regions().difference(known) {
        for (offset, role) in WORDS.into_iter().flat_map(|at| [(at, 0), (at, 1)]) {
            let mut write = [WordAt::default(); 4];
            write[0] = WordAt { offset, value: if offset % 64 == 32 { pid.into() } else { 0 } };
            let operation = RegionOperation {
                region,
                writes: 1,
                direction: COPY_NONE,
                role,
                write,
                ..RegionOperation::default()
            };
            let operation = UserAddress(&raw const operation as u64);
            done += u64::from(libc::kernel(door, Call::RegionOperate { operation }).is_ok());
        }
    }
    done
}

/// The hostile side, once it has its end: it forges, says so, and waits until it was looked at.
fn hostile(door: door::Door, mut stream: UnixStream, victim: u32) -> i32 {
    let mut byte = [0];
    // All that both ends have is new since nothing was; what is another's is refused.
    let forged = forge(door, &Default::default(), victim);
    let told = stream.write_all(b"f").and_then(|()| stream.read(&mut byte));
    i32::from(told.is_err() || forged == 0)
}

/// What the victim is told of the peer that has said that it is ready.
fn look(mut stream: UnixStream) -> Option<[u32; 3]> {
    stream.read_exact(&mut [0]).ok()?;
    libc::peer_of(stream.as_raw_fd())
}

fn told(who: &str, seen: Option<[u32; 3]>, peer: i32) -> Result<(), String> {
    let status = libc::wait(peer);
    expect(status == 0, || format!("{who} ended with {status:#x}"))?;
    let right = [peer as u32, NOBODY, NOBODY];
    expect(seen == Some(right), || format!("{who} is said to be {seen:?}, not {right:?}"))
}

/// Neither a client nor a server of another user becomes user 0 by what it writes.
pub fn peers_do_not_say_who_they_are(door: door::Door) -> Seen {
    let own = std::process::id();
    let failed = |error: std::io::Error| error.to_string();
    let _ = std::fs::remove_file(PLACE);
    let listener = UnixListener::bind(PLACE).map_err(failed)?;
    libc::set_mode(PLACE, 0o777);
    let client = libc::spawn(|| match libc::become_user(NOBODY) {
        true => UnixStream::connect(PLACE).map_or(2, |stream| hostile(door, stream, own)),
        false => 3,
    });
    let seen = listener.accept().ok().and_then(|(stream, _)| look(stream));
    told("the client", seen, client)?;
    drop(listener);
    std::fs::remove_file(PLACE).map_err(failed)?;
    let (mut ready, readys) = UnixStream::pair().map_err(failed)?;
    let server = libc::spawn(|| {
        let Some(listener) = libc::become_user(NOBODY).then(|| UnixListener::bind(PLACE)) else {
            return 3;
        };
        let Ok(listener) = listener else { return 4 };
        if (&readys).write_all(b"r").is_err() {
            return 5;
        }
        listener.accept().map_or(2, |(stream, _)| hostile(door, stream, own))
    });
    ready.read_exact(&mut [0]).map_err(failed)?;
    let seen = UnixStream::connect(PLACE).ok().and_then(look);
    told("the server", seen, server)?;
    std::fs::remove_file(PLACE).map_err(failed)?;
    Ok("(both ways)".into())
}
