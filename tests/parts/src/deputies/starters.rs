//! What the starter of a set-id program says of itself.
//!
//! The program acts for its owner on the files that it begins with, and takes the place of a
//! process. The starter has to have opened those files, and to be that process.

use super::ids::{block_with, connect, start_with};
use super::{NOBODY, failed, node_of};
use crate::{Seen, Test, expect, libc, set_id};
use abi::id::RegionId;
use std::fs;
use std::time::Duration;

/// What holds.
pub const TESTS: [Test; 2] = [
    ("starters_open_no_files", starters_open_no_files),
    ("starters_name_no_other_process", starters_name_no_other_process),
];

/// `O_WRONLY`
const WRITES: u64 = 1;
/// Words at the end of a block: no files, the most descriptors, no descriptor.
const NO_FILES: [u64; 3] = [0, u64::MAX, 0];

/// A block for the program at [`set_id::JOB`] whose descriptor 1 is open for writing: the file of
/// this handle. Its offset is in this region.
fn block_with_file((node, path): (u64, &str), offset: RegionId) -> Vec<u8> {
    let mut block = block_with([10, 1, 0], [0; 4], "");
    block.truncate(block.len() - size_of_val(&NO_FILES));
    let mut words = |words: &[u64]| {
        words.iter().for_each(|word| block.extend(word.to_le_bytes()));
    };
    // One file: access, no seal, its offset; a handle of the file server's.
    words(&[1, WRITES, 0, offset.0, 2, node, path.len() as u64]);
    block.extend(path.as_bytes());
    // It is a file like any; one descriptor.
    block.extend([0, u64::MAX, 1, 1, 0].map(u64::to_le_bytes).concat());
    block
}

/// A set-id program of user 0's does not write to a file of user 0's because its starter says that
/// it has it open.
fn starters_open_no_files(door: door::Door) -> Seen {
    set_id::prepare().map_err(failed)?;
    let node = node_of(door, 0, set_id::DATA).ok_or("no such file")?;
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 1;
        }
        connect();
        let Some(offset) = set_id::offer(door, &[0; 64], libc::shared(1)) else { return 2 };
        let block = block_with_file((node, set_id::DATA), offset);
        start_with(door, &block, &[[offset.0, 0]])
    }));
    let [ledger, data] = [set_id::LEDGER, set_id::DATA].map(fs::read_to_string);
    let (ledger, data) = (ledger.map_err(failed)?, data.map_err(failed)?);
    // Others' programs end differently where there is one.
    fs::remove_file(set_id::LEDGER).map_err(failed)?;
    let ran = status == 0 && ledger == format!("{NOBODY} 0 0\n");
    expect(ran && data == set_id::UNTOUCHED, || {
        format!("status {status:#x}, it ran as {ledger:?}, and the file is {data:?}")
    })?;
    Ok(String::new())
}

/// A process that is there until it is ended.
fn sleeper() -> i32 {
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// A domain is built for the process that asks, and for no other one: not for another user's, and
/// not for another one of its user.
fn starters_name_no_other_process(door: door::Door) -> Seen {
    set_id::prepare().map_err(failed)?;
    let theirs = libc::spawn(sleeper);
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 100;
        }
        connect();
        let sibling = libc::spawn(sleeper);
        let (page, block) = (libc::shared(1), block_with([10, 1, 0], [0; 4], ""));
        let all = [theirs as u32, sibling as u32, std::process::id()];
        let built = (0..).zip(all).map(|(bit, process)| {
            let who = (process, [NOBODY; 2]);
            let domain = set_id::domain_for(door, who, &block, page, set_id::JOB);
            i32::from(domain.is_some()) << bit
        });
        let built = built.sum();
        libc::send(sibling, 9);
        libc::wait(sibling);
        built
    }));
    libc::send(theirs, 9);
    libc::wait(theirs);
    // Others' programs end differently where there is one.
    fs::remove_file(set_id::LEDGER).map_err(failed)?;
    expect(status == 4 << 8, || {
        format!("built for user 0's, its own user's, its own process, a bit each: {status:#x}")
    })?;
    Ok(String::new())
}
