//! What the starter of a set-id program says that it has open, and has not: ids can be guessed.
//!
//! The program makes regions of its own, such as its way to the file server, in which lies what it
//! has read last. Their ids are the next ones of the lowest free places, so the starter can say
//! beforehand that a descriptor is one of them. What a process has open its children have, too, and
//! programs run their starters' commands.

use super::ids::{block_with, connect, start_with};
use super::{NOBODY, failed, look};
use crate::{Seen, Test, expect, libc, set_id};
use abi::id::{EnvId, RegionId};
use abi::published::{RegionRecord, Table};
use std::fs;
use unix::protocol::{CLIENT, DATA};
use xok::published;

/// What holds.
pub const TESTS: [Test; 1] = [("starters_guess_no_regions", starters_guess_no_regions)];

/// The command, which nobody may run.
const COMMAND: &str = "/tmp/set-id/command";
const IS_THE_COMMAND: &str = "guesses-is-the-command";
/// Where it tells which regions the program that runs it has made, and their bytes.
const REPORT: &str = "/tmp/set-id/report";
/// What the command answers: it saw what the program has read, or nothing of it.
const SAW: u8 = 50;
const SAW_NOTHING: u8 = 51;
/// How often a guess is tried.
const TRIES: usize = 3;
/// The wait status of a program that did not begin.
const KILLED: i32 = 9;
/// An event counter, as a block of files has it.
const COUNTER: u64 = 6;

/// One of the programs that the test executes, if that is what it is called.
pub fn role(door: Option<door::Door>, words: &[String]) -> Option<u8> {
    let is_it = words.first().is_some_and(|name| name == IS_THE_COMMAND);
    is_it.then(|| door.map_or(99, |door| be_the_command(door, words)))
}

/// What the set-id program does: it reads a file of user 0's, and runs its starter's command as its
/// starter.
pub fn run_a_command() -> u8 {
    if fs::read_to_string(set_id::DATA).ok().as_deref() != Some(set_id::UNTOUCHED) {
        return 60;
    }
    let own = std::process::id().to_string();
    let run = libc::try_spawn(|| {
        if !libc::become_user(NOBODY) {
            return 61;
        }
        libc::execute(COMMAND, &[IS_THE_COMMAND.into(), own], &[]);
        62
    });
    run.map_or(63, |pid| (libc::wait(pid) >> 8) as u8)
}

/// The wait status of a program that ended with this.
fn ended(status: u8) -> i32 {
    i32::from(status) << 8
}

/// The regions that the domain of this process has made.
fn made_by(process: EnvId) -> Vec<RegionRecord> {
    let Some(domain) = published::env_domain(process) else { return Vec::new() };
    let count = published::table(Table::Regions).count as usize;
    let all = (0..count).filter_map(|at| published::record::<RegionRecord>(Table::Regions, at));
    all.filter(|record| record.id != 0 && record.domain == domain.0).collect()
}

/// The command: what does it see of the regions of the program that runs it?
fn be_the_command(door: door::Door, words: &[String]) -> u8 {
    let parent = words.get(1).and_then(|word| word.parse().ok()).map_or(EnvId::NONE, EnvId);
    let made = made_by(parent);
    let lines = made.iter().map(|record| format!("{} {}\n", record.id, record.bytes));
    if fs::write(REPORT, lines.collect::<String>()).is_err() {
        return 64;
    }
    let secret = set_id::UNTOUCHED.as_bytes();
    let sees = |record: &RegionRecord| {
        let seen = look(door, record.id, CLIENT as u8, DATA, secret.len());
        seen.is_some_and(|bytes| bytes == secret)
    };
    if made.iter().any(sees) { SAW } else { SAW_NOTHING }
}

/// A block for the program at [`set_id::JOB`] whose descriptor 5 is an event counter; its flags lie
/// in the one region, its count in the other.
fn block_with_counter(flags: RegionId, count: u64) -> Vec<u8> {
    let mut block = block_with([10, 1, 0], [0; 4], set_id::RUNS_A_COMMAND);
    block.truncate(block.len() - 3 * 8);
    // One file: access, no seal, its region; it is in no place.
    let file = [1, 2, 0, flags.0, 1, 0, 1];
    block.extend(file.map(u64::to_le_bytes).concat());
    block.push(b'/');
    block.extend([COUNTER, count, u64::MAX, 1, 5, 0].map(u64::to_le_bytes).concat());
    block
}

/// Starts the program as nobody, with a counter in its own region or in the one that is guessed;
/// the program's status.
fn start(door: door::Door, guess: Option<u64>) -> i32 {
    libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 1;
        }
        connect();
        let Some(own) = set_id::offer(door, &[0; 64], libc::shared(1)) else { return 2 };
        let block = block_with_counter(own, guess.unwrap_or(own.0));
        start_with(door, &block, &[[own.0, 0], [own.0, 0]])
    }))
}

/// Has the program run with nothing that it has not got; its way to the file server then.
fn way_of_one(door: door::Door) -> Result<u64, String> {
    let status = start(door, None);
    let report = fs::read_to_string(REPORT).map_err(failed)?;
    let lines = report.lines().filter_map(|line| line.split_once(' '));
    let ways = lines.filter_map(|(id, bytes)| Some((bytes.parse().ok()?, id.parse().ok()?)));
    let way: Option<(u64, u64)> = ways.max();
    expect(status == ended(SAW_NOTHING), || {
        format!("a starter that guesses nothing: status {status:#x}, regions {report:?}")
    })?;
    way.map(|(_, id)| id).ok_or(format!("no region in {report:?}"))
}

/// A starter's command has none of the regions that the starter's set-id program makes, whatever
/// the starter has said of descriptors: a program that is to have another one's does not begin.
fn starters_guess_no_regions(door: door::Door) -> Seen {
    set_id::prepare().map_err(failed)?;
    set_id::copy_program(COMMAND).map_err(failed)?;
    libc::set_mode(COMMAND, 0o755);
    fs::write(REPORT, "").map_err(failed)?;
    libc::set_mode(REPORT, 0o666);
    for _ in 0..TRIES {
        // Two places take turns.
        let mut ways = [0; 4];
        for way in &mut ways {
            *way = way_of_one(door)?;
        }
        let guess = ways[2].wrapping_add(ways[2].wrapping_sub(ways[0]));
        let status = start(door, Some(guess));
        expect(status == KILLED, || {
            let ran = "the program ran";
            let what = if status == ended(SAW) { "the command saw what it had read" } else { ran };
            format!("status {status:#x}, {what}: ways {ways:x?}, guess {guess:#x}")
        })?;
    }
    // Others' programs end differently where there is one.
    fs::remove_file(set_id::LEDGER).map_err(failed)?;
    Ok(String::new())
}
