//! A peer that stores nonsense into what it shares with a process of ExOS (xok97 T40, EX-17).
//!
//! The peer uses Linux's calls as anybody does, and between them writes to the shared region by
//! kernel calls of its own: counters, lengths, flags, bytes. Then it ends. The victim reads, writes
//! and polls meanwhile, and must get data, errors, or the end, until the end; a machine whose
//! victim hangs is one that the test's runner ends.

use crate::libc::{Pair, pair};
use crate::random::Random;
use crate::{Seen, expect, libc};
use abi::call::Call;
use abi::id::EnvId;
use abi::published::{RegionRecord, Table};
use abi::region::{COPY_IN, COPY_NONE, RegionOperation, WordAt};
use abi::word::UserAddress;
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};

/// Peers for each kind of channel.
const PEERS: u64 = 24;
/// What one peer does.
const STEPS: u64 = 40;
/// Bytes of one read or write of the victim.
const PIECE: usize = 700;
/// What stands before and behind the victim's buffer.
const CANARY: u8 = 0xc5;
/// Reads after which data counts as endless: a ring holds a hundredth of that.
const READS_MAX: u64 = 20_000;

/// Uses of what has no end, after its peer has ended.
const AFTERWARDS: i32 = 40;

impl Random {
    /// Where heads, tails and flags lie, most often; else anywhere.
    fn offset(&mut self) -> u64 {
        match self.below(8) {
            0..=3 => 8 * self.below(12),
            4 | 5 => 2048 + 8 * self.below(12),
            6 => 4096 + 8 * self.below(64),
            _ => 8 * self.below(17 * 512),
        }
    }

    /// A value that is near something: zero, the largest, a ring's size, what counters are.
    fn value(&mut self) -> u64 {
        let near = self.below(9);
        match self.below(7) {
            0 => near,
            1 => u64::MAX - near,
            2 => (1 << 63) - near,
            3 => 65_536 + near,
            4 => 32_768 - near,
            5 => u64::from(u32::MAX) + near,
            _ => self.word(),
        }
    }
}

/// The regions that there are.
pub fn regions() -> BTreeSet<u64> {
    (0..xok::published::table(Table::Regions).count as usize)
        .filter_map(|index| xok::published::record::<RegionRecord>(Table::Regions, index))
        .map(|record| record.id)
        .filter(|&id| id != 0)
        .collect()
}

/// A kind of channel.
struct Kind {
    name: &'static str,
    /// Makes one, the victim's end first.
    make: fn() -> Option<(OwnedFd, OwnedFd)>,
    /// Does the victim write to it, too?
    writes: bool,
    /// Does it wait for what comes, until the end? Datagrams, say, have none: who waits for one
    /// waits for ever.
    waits: bool,
}

const KINDS: [Kind; 8] = [
    Kind { name: "pipe, reader", make: || pair(Pair::Pipe), writes: false, waits: true },
    Kind { name: "pipe, writer", make: writer_first, writes: true, waits: true },
    Kind { name: "stream", make: || pair(Pair::Stream), writes: true, waits: true },
    Kind { name: "packets", make: || pair(Pair::Packets), writes: true, waits: true },
    Kind { name: "datagrams", make: || pair(Pair::Datagrams), writes: true, waits: false },
    Kind { name: "file", make: file, writes: true, waits: false },
    Kind { name: "event counter", make: || pair(Pair::Counter), writes: true, waits: false },
    Kind { name: "timer", make: || pair(Pair::Timer), writes: false, waits: false },
];

fn writer_first() -> Option<(OwnedFd, OwnedFd)> {
    pair(Pair::Pipe).map(|(from, to)| (to, from))
}

/// A file of a few bytes, whose offset both ends share.
fn file() -> Option<(OwnedFd, OwnedFd)> {
    let path = format!("/tmp/peers-{}", std::process::id());
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).open(&path).ok()?;
    std::fs::remove_file(&path).ok()?;
    Some((file.try_clone().ok()?.into(), file.into()))
}

/// Stores nonsense, uses the channel rightly now and then, ends.
fn scribble(door: door::Door, own: &OwnedFd, shared: &[u64], random: &mut Random) -> i32 {
    let mut bytes = [0; PIECE];
    for _ in 0..STEPS {
        bytes.iter_mut().for_each(|byte| *byte = random.word() as u8);
        if random.below(3) == 0 {
            libc::set_waits(own.as_raw_fd(), false);
            libc::write(own.as_raw_fd(), &bytes[..1 + random.below(PIECE as u64) as usize]);
            continue;
        }
        if random.below(5) == 0 {
            std::thread::yield_now();
        }
        let region = shared[random.below(shared.len() as u64) as usize];
        let mut write = [WordAt::default(); 4];
        let writes = 1 + random.below(3) as usize;
        for word in &mut write[..writes] {
            *word = WordAt { offset: random.offset(), value: random.value() };
        }
        let copies = random.below(2) == 0;
        for role in 0..2 {
            let operation = RegionOperation {
                region,
                writes: writes as u8,
                direction: if copies { COPY_IN } else { COPY_NONE },
                role,
                address: bytes.as_ptr() as u64,
                offset: random.offset(),
                len: if copies { 64 } else { 0 },
                write,
                ..RegionOperation::default()
            };
            let operation = UserAddress(&raw const operation as u64);
            // Refused in the role that is the victim's, or behind the region's end.
            let _ = libc::kernel(door, Call::RegionOperate { operation });
        }
    }
    0
}

/// Uses the channel until it ends; what went wrong.
fn endure(own: &OwnedFd, kind: &Kind, peer: EnvId, random: &mut Random) -> Result<(), i32> {
    let mut left = AFTERWARDS;
    let fd = own.as_raw_fd();
    libc::set_waits(fd, kind.waits);
    let mut room = [CANARY; PIECE + 128];
    for _ in 0..READS_MAX {
        if random.below(4) == 0 {
            libc::wait_for(fd, libc::POLLIN, 0);
        }
        let len = 1 + random.below(PIECE as u64) as usize;
        let answer = if kind.writes && random.below(2) == 0 {
            libc::write(fd, &[CANARY; PIECE][..len])
        } else {
            libc::read(fd, &mut room[64..64 + len])
        };
        if answer < 0 {
            std::thread::yield_now();
        }
        let around = |bytes: &[u8]| bytes.iter().all(|&byte| byte == CANARY);
        if answer > len as i64 || !around(&room[..64]) || !around(&room[64 + len..]) {
            return Err(2);
        }
        room.fill(CANARY);
        left -= i32::from(!kind.waits && !xok::published::env_lives(peer));
        if left == 0 {
            return Ok(());
        }
        if kind.waits && answer <= 0 && !libc::is_passing(answer) {
            return Ok(());
        }
    }
    Err(3)
}

/// One victim and its peer; the victim's status.
fn trial(door: door::Door, kind: &Kind, seed: u64) -> i32 {
    libc::handle(13, libc::nothing);
    let aside = pair(Pair::Pipe);
    let before = regions();
    let (Some((own, others)), Some((from, to))) = ((kind.make)(), aside) else { return 4 };
    let mut random = Random(seed);
    libc::write(to.as_raw_fd(), b"what the victim keeps");
    let peer = libc::spawn(|| {
        // It ends without their owners' ends.
        for end in [&own, &from, &to] {
            drop(libc::descriptor(end.as_raw_fd()));
        }
        let shared: Vec<u64> = regions().difference(&before).copied().collect();
        scribble(door, &others, &shared, &mut Random(seed ^ 0x5bd1_e995))
    });
    drop(others);
    if let Err(status) = endure(&own, kind, EnvId(peer as u32), &mut random) {
        return status;
    }
    let mut kept = [0; 64];
    let count = libc::read(from.as_raw_fd(), &mut kept);
    let is_kept = count == 21 && &kept[..21] == b"what the victim keeps";
    i32::from(libc::wait(peer) != 0 || !is_kept)
}

/// Pipes and local sockets of ExOS: whatever a peer stores, the other end gets data, an error or
/// the end, ends itself as it wants, and what it shares with nobody stays.
pub fn peers_that_store_nonsense(door: door::Door) -> Seen {
    let mut trials = 0;
    for kind in &KINDS {
        for peer in 0..PEERS {
            let seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(1 + trials);
            let status = libc::wait(libc::spawn(|| trial(door, kind, seed)));
            expect(status == 0, || format!("{}, peer {peer}: status {status:#x}", kind.name))?;
            trials += 1;
        }
    }
    Ok(format!("({trials} peers)"))
}
