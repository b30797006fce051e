//! Attachments of the file server's to regions of a user's, which the server pays for.
//!
//! A client says of its regions what they are: a way to the server, an open file, a socket's port.
//! One that says all of each has the server attached three times as often as it has regions.

use super::{ANN, NOBODY, PATH_ONLY, ask_by, end, nobody, node_of, store};
use crate::{Seen, Test, expect, forgers, libc};
use abi::call::Call;
use abi::id::{AccountId, DomainId, EnvId, RegionId};
use abi::limits::{REGION_ROLES, Resource};
use abi::memory::ANY_FRAME;
use abi::published::{AccountRecord, DomainRecord, Table};
use abi::region::WordAt;
use abi::word::UserAddress;
use std::time::{Duration, Instant};
use unix::protocol::{DATA, NO_NODE, Operation};
use xok::published;
use xok::services::{self, Service};

/// What holds.
pub const TESTS: [Test; 1] = [("regions_are_one_thing_to_the_server", regions_are_one_thing)];

/// Frames of what may be a way to the server.
const FRAMES: usize = 2;
/// Regions that a user has at most.
const REGIONS: usize = 1 << 12;
/// How long the server may take, and what others may have meanwhile.
const PATIENCE: Duration = Duration::from_secs(20);
const SLACK: u32 = 8;
/// A file of the user's.
const PLACE: &str = "/tmp/deputies-own";
/// Index of the capability for a process's user (`exos::capabilities`).
const USER: u8 = 2;
const STREAM: u64 = 1;
const NAME_BYTES: u64 = 8;

/// How many attachments the file server pays for, and how many there are in all.
fn of_the_server() -> [u32; 2] {
    let at = Resource::Attachments as usize;
    let account = |index| published::record::<AccountRecord>(Table::Accounts, index);
    let server = EnvId(services::get(Service::Files) as u32);
    let domain = published::env_domain(server).unwrap_or(DomainId::NONE);
    let record: DomainRecord =
        published::record(Table::Domains, domain.index()).unwrap_or_default();
    let own = account(AccountId(record.account).index()).unwrap_or_default();
    [own.used[at], account(1).unwrap_or_default().limit[at]]
}

/// Has the server attached to a region as often as it lets itself be.
fn say_all(door: door::Door, whole: u64, node: u64, region: RegionId) {
    let way = whole as u32;
    let ask = |way, operation, arguments| ask_by(door, way, NOBODY, operation, arguments);
    let low = region.0 & u64::from(u32::MAX);
    // Refused or not: what counts is how often it is attached then.
    let _ = ask(low as u32, Operation::Space, [0; 4]);
    let _ = ask(way, Operation::Open, [node, PATH_ONLY, region.0, 0]);
    // An abstract name of the region's own.
    let name = WordAt { offset: DATA, value: low << 8 };
    let _ = store(door, whole, name)
        && ask(way, Operation::SocketBind, [NO_NODE, low | STREAM << 32, NAME_BYTES, 0]).is_ok();
}

/// Takes all attachments that it gets, of its own and of the server's.
fn take_all(door: door::Door) -> i32 {
    if std::fs::write(PLACE, b"").is_err() {
        return 1;
    }
    let Some(node) = node_of(door, NOBODY, PLACE) else { return 1 };
    let Some(way) = forgers::transport() else { return 2 };
    let Some(whole) = crate::peers::regions().into_iter().find(|&id| id as u32 == way) else {
        return 3;
    };
    let frames = [ANY_FRAME; FRAMES];
    let (frames, count) = (UserAddress(frames.as_ptr() as u64), FRAMES as u64);
    let mut regions = Vec::with_capacity(REGIONS);
    while let Ok(region) = libc::kernel_by(door, Call::RegionAlloc { frames, count }, USER) {
        regions.push(RegionId(region));
    }
    let attach = |region, role| {
        libc::kernel(door, Call::RegionAttach { region, role, domain: DomainId::NONE }).is_ok()
    };
    for &region in &regions {
        if attach(region, 0) && attach(region, 1) {
            say_all(door, whole, node, region);
        }
    }
    for (&region, role) in
        regions.iter().flat_map(|one| (2..REGION_ROLES as u16).map(move |role| (one, role)))
    {
        attach(region, role);
    }
    println!("({} regions, the server's attachments {:?})", regions.len(), of_the_server());
    0
}

/// What anybody does with files: a child that asks for one.
fn lives() -> i32 {
    let path = format!("/tmp/deputies-life-{}", std::process::id());
    let child = libc::try_spawn(|| {
        let same = std::fs::write(&path, b"life").and_then(|()| std::fs::read(&path));
        let removed = std::fs::remove_file(&path);
        i32::from(!same.is_ok_and(|bytes| bytes == b"life") || removed.is_err())
    });
    child.map_or(-1, libc::wait)
}

/// A region of a client's is one thing to the file server, which then has attachments for all.
fn regions_are_one_thing(door: door::Door) -> Seen {
    let before = of_the_server();
    let attacker = nobody(|| take_all(door))?;
    let during = of_the_server();
    let root = lives();
    let other = libc::wait(libc::spawn(|| if libc::become_user(ANN) { lives() >> 8 } else { 64 }));
    let ended = end(attacker);
    let _ = std::fs::remove_file(PLACE);
    ended?;
    // What the dead have left the server lets go of, at the latest when init wakes it.
    let begun = Instant::now();
    while of_the_server()[0] > before[0] + SLACK && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let after = of_the_server();
    expect(after[0] <= before[0] + SLACK, || {
        format!("attachments {before:?}, {during:?}, and {after:?} when the user has ended")
    })?;
    // A user has half of the regions.
    let most = during[1] / (2 * REGION_ROLES as u32);
    expect(during[0] <= before[0] + most + SLACK, || {
        format!("attachments {before:?}, {during:?}: more than one for each region")
    })?;
    expect(root == 0 && other == 0, || {
        format!("user 0 {root:#x}, another user {other:#x}; attachments {before:?}, {during:?}")
    })?;
    Ok(format!("({before:?}, {during:?})"))
}
