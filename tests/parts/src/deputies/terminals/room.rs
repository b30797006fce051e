//! Room for the terminals and named pipes of others, whatever a user takes.
//!
//! The file server pays for their regions. A user that has all attachments but one that it may have
//! is attached to the first region of a new terminal, and not to the next: that one lasts, though
//! there is no terminal.

use super::{ANOTHER, LOCK, NO_TERMINAL, NUMBER, THIRD};
use crate::deputies::{NOBODY, another, ask_by, end, nobody};
use crate::{Seen, expect, forgers, libc};
use abi::call::Call;
use abi::id::{AccountId, DomainId, RegionId};
use abi::limits::REGION_ROLES;
use abi::word::{UserAddress, Which};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering;
use unix::protocol::Operation;

/// Regions that the user has at most.
const REGIONS: usize = 1 << 12;
/// Whoever is refused a terminal that often has taken what there is.
const TRIES: usize = 1000;

/// Takes all attachments that the user may have; the process's own, each with a region's role.
fn all_attachments(door: door::Door) -> Vec<(RegionId, u16)> {
    let mut regions = Vec::with_capacity(REGIONS);
    let (frames, which, account) = (UserAddress(0), Which::Any, AccountId::NONE);
    while let Ok(region) = libc::kernel(door, Call::RegionAlloc { frames, count: 0 }) {
        regions.push(RegionId(region));
    }
    let domain = Call::DomainAlloc { which, account, root: which, window: 0, bytes: u64::MAX };
    let other = libc::kernel(door, domain).map(DomainId);
    let mut own = Vec::with_capacity(REGIONS * REGION_ROLES);
    let domains = [DomainId::NONE].into_iter().chain(other);
    for (domain, region) in domains.flat_map(|it| regions.iter().map(move |&one| (it, one))) {
        for role in 0..REGION_ROLES as u16 {
            let attached = libc::kernel(door, Call::RegionAttach { region, role, domain });
            if attached.is_ok() && domain.is_none() {
                own.push((region, role));
            }
        }
    }
    own
}

/// Asks for terminals, each time with room for one attachment more.
fn take_halves(door: door::Door) -> i32 {
    if std::fs::metadata("/tmp").is_err() {
        return 1;
    }
    let Some(transport) = forgers::transport() else { return 2 };
    let own = all_attachments(door);
    if own.len() < TRIES {
        return 3;
    }
    let tries = own.into_iter().take(TRIES).filter(|&(region, role)| {
        let room = libc::kernel(door, Call::RegionDetach { region, role }).is_ok();
        room && ask_by(door, transport, NOBODY, Operation::TerminalMake, [0; 4]).is_err()
    });
    // Once there is nothing left to make one of, there is room for more than one.
    if tries.count() > TRIES / 4 { 0 } else { 4 }
}

/// What is left of terminals that a user had no room for is its own, as terminals are: others open
/// terminals and named pipes.
pub fn terminals_half_made_are_their_users(door: door::Door) -> Seen {
    let said = libc::words(libc::shared(1), 1);
    let taker = another(NOBODY, || {
        let status = take_halves(door);
        said[0].store(status as u64 + 1, Ordering::Release);
        0
    })?;
    let root = open_both(0);
    let other = libc::wait(libc::spawn(|| match libc::become_user(ANOTHER) {
        true => open_both(1),
        false => 64,
    }));
    end(taker)?;
    let status = said[0].load(Ordering::Acquire);
    expect(status == 1 && root == 0 && other == 0, || {
        format!("{status}; no terminal (1), no named pipe (2): user 0 {root}, another {other:#x}")
    })?;
    Ok(String::new())
}

fn both_ways(path: &str) -> Option<File> {
    OpenOptions::new().read(true).write(true).open(path).ok()
}

fn pipe_path(number: usize) -> String {
    format!("/tmp/deputies-pipe-{number}")
}

/// A new named pipe, open.
fn named_pipe(number: usize) -> Option<File> {
    let path = pipe_path(number);
    libc::make_pipe(&path).then(|| both_ways(&path)).flatten()
}

/// Opens a terminal and a named pipe: 1 without the one, 2 without the other.
fn open_both(number: usize) -> i32 {
    let (terminal, pipe) = (both_ways("/dev/ptmx").is_some(), named_pipe(number).is_some());
    // It may be another one's to end.
    let _ = std::fs::remove_file(pipe_path(number));
    i32::from(!terminal) | i32::from(!pipe) << 1
}

/// The file server makes the regions of pseudo-terminals and named pipes: a user has no more than
/// it leaves, so that two of them leave some, too.
pub fn terminals_and_named_pipes_leave_others_room(_: door::Door) -> Seen {
    const PIPES: usize = 300;
    // Those whose master is closed are no terminals any more, and keep their regions.
    let slave = || {
        let master = both_ways("/dev/ptmx")?;
        libc::control(master.as_raw_fd(), LOCK, 0)?;
        let number = libc::control(master.as_raw_fd(), NUMBER, 0)?;
        let path = format!("/dev/pts/{number}");
        OpenOptions::new().read(true).custom_flags(NO_TERMINAL).open(path).ok()
    };
    let kept = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 255;
        }
        (0..100).map_while(|_| slave()).collect::<Vec<File>>().len() as i32
    }));
    expect((1..=32).contains(&(kept >> 8)), || format!("{kept:#x} terminals without a master"))?;
    let take = |first: usize, (least_terminals, least_pipes): (usize, usize)| {
        let terminals: Vec<File> = (0..100).map_while(|_| both_ways("/dev/ptmx")).collect();
        let pipes: Vec<File> = (first..first + PIPES).map_while(named_pipe).collect();
        println!("({} terminals, {} pipes)", terminals.len(), pipes.len());
        let few = terminals.len() < least_terminals || pipes.len() < least_pipes;
        std::mem::forget((terminals, pipes));
        i32::from(few)
    };
    let one = nobody(|| take(0, (8, 32)))?;
    let other = another(ANOTHER, || take(PIPES, (4, 16)))?;
    let root = open_both(2 * PIPES);
    let third = libc::wait(libc::spawn(|| match libc::become_user(THIRD) {
        true => open_both(2 * PIPES + 1),
        false => 64,
    }));
    // It has the first one's end, too.
    end(other)?;
    end(one)?;
    (0..2 * PIPES + 2).for_each(|at| drop(std::fs::remove_file(pipe_path(at))));
    expect(root == 0 && third == 0, || {
        format!("no terminal (1), no named pipe (2): user 0 {root}, a third user {third:#x}")
    })?;
    Ok(String::new())
}
