//! The vector of slices as the run trace shows it, on a machine on which time is instructions.

use super::roles;
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground};
use abi::error::Error;
use abi::id::EnvId;
use abi::limits::{SLICE_NS, SLICES};
use abi::published::{EnvRecord, SliceRecord, Table};
use abi::setup::{EnvSetup, FLAG_SLICE_END, field};
use abi::trace::{Kind, Read};
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xok::call::{self, OWN, Refused};
use xok::clock::{now_ns, reading};
use xok::published;
use xok::spawn::Spawned;
use xok::trace::Follower;

/// What the beginning of a slice may be off by, nanoseconds: the timer, and the way to the program.
pub const LATE_NS: u64 = 100_000;
/// The first position used: the judge's home is before it.
pub const FIRST: u32 = 4;
/// Slices that may be taken beyond the end before an environment is destroyed.
const EXCESS_MAX: u64 = 8;

fn said(refused: Refused) -> Failure {
    format!("{refused:?}")
}

/// An environment's time on the processor, without a switch in between.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Whose.
    pub env: EnvId,
    begin: u64,
    end: u64,
}

impl Run {
    /// In nanoseconds.
    pub fn length(&self) -> u64 {
        self.end - self.begin
    }

    /// Is it so many slices long?
    fn is_slices(&self, slices: u64) -> bool {
        near(self.length(), slices * SLICE_NS)
    }
}

fn near(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= LATE_NS
}

/// What ran while the judge slept so many slices, as the trace has it; the first and last runs,
/// which it cuts, are left out.
pub fn watch(slices: u64) -> Result<Vec<Run>, Failure> {
    let mut follower = Follower::newest(0).ok_or("no trace")?;
    call::trace_set(OWN, Kind::Switch.bit()).map_err(said)?;
    let _ = call::sleep(now_ns() + slices * SLICE_NS, 0, 0, 0);
    call::trace_set(OWN, 0).map_err(said)?;
    let clock = published::clock();
    let mut runs: Vec<Run> = Vec::new();
    loop {
        match follower.read() {
            Read::Record(_, tsc, event) => {
                let now = reading(&clock, tsc);
                if let Some(last) = runs.last_mut() {
                    last.end = now;
                }
                runs.push(Run { env: EnvId(event.env), begin: now, end: now });
            }
            Read::Lost(count) => return Err(format!("{count} records lost")),
            Read::End => break,
        }
    }
    runs.pop();
    Ok(runs.into_iter().skip(1).collect())
}

/// Gives it these positions of processor 0.
pub fn give(env: EnvId, positions: impl IntoIterator<Item = u32>) -> Result<(), Failure> {
    for position in positions {
        let got = call::slice_alloc(OWN, 0, Which::This(position), env).map_err(said)?;
        expect!(got == u64::from(position), "asked for {position}, got {got}");
    }
    Ok(())
}

/// Ends it and forgets it.
pub fn end(env: EnvId) -> Result<(), Failure> {
    call::env_destroy(OWN, env, 0).map_err(said)?;
    assistant::wait(env).map(|_| ())
}

/// Two hogs at these positions, watched for three rounds of `PERIOD` positions.
fn contest(ground: &Ground, of_one: &[u32], of_other: &[u32]) -> Result<[Vec<Run>; 2], Failure> {
    let one = assistant::spawn(ground.image, roles::HOG, [0; 6], &[])?;
    let other = assistant::spawn(ground.image, roles::HOG, [0; 6], &[])?;
    give(one.env, of_one.iter().copied())?;
    give(other.env, of_other.iter().copied())?;
    let taken = call::slice_alloc(OWN, 0, Which::This(of_one[1]), other.env);
    expect!(matches!(taken, Err((Error::Taken, _))), "a position taken: {taken:?}");
    assistant::start(one)?;
    assistant::start(other)?;
    let runs = watch(3 * u64::from(PERIOD))?;
    end(one.env)?;
    end(other.env)?;
    let of = |env| runs.iter().copied().filter(|run| run.env == env).collect();
    let both: [Vec<Run>; 2] = [of(one.env), of(other.env)];
    // First the kernel may work off what has died in a contest before; that moment is nobody's.
    let mut contest = runs.iter().skip_while(|run| run.env == EnvId::NONE);
    let strangers = contest.any(|run| ![one.env, other.env].contains(&run.env));
    expect!(!strangers, "somebody else ran: {runs:?}");
    Ok(both)
}

/// Positions of a round in the contests.
const PERIOD: u32 = 12;

/// The longest time that it had to wait for its next slice.
fn latency(runs: &[Run]) -> u64 {
    runs.windows(2).map(|pair| pair[1].begin - pair[0].end).max().unwrap_or(0)
}

/// aegis95 T15, thesis98 Z-43: when a slice begins is what its position says; those side by side
/// are one run without a switch; the same share spread out waits less.
pub fn pattern(ground: &Ground) -> Result<String, Failure> {
    let all = FIRST..FIRST + PERIOD;
    let is_fourth = |position: &u32| (position - FIRST).is_multiple_of(4);
    let fourth: Vec<u32> = all.clone().filter(is_fourth).collect();
    let between: Vec<u32> = all.clone().filter(|position| !is_fourth(position)).collect();
    let [spread, rest] = contest(ground, &fourth, &between)?;
    expect!(spread.len() >= 6 && rest.len() >= 6, "{spread:?} {rest:?}");
    for pair in spread.windows(2) {
        let distance = pair[1].begin - pair[0].begin;
        expect!(near(distance, 4 * SLICE_NS), "every fourth, begun {distance} ns apart");
    }
    expect!(spread.iter().all(|run| run.is_slices(1)), "not a slice each: {spread:?}");
    expect!(rest.iter().all(|run| run.is_slices(3)), "three side by side: {rest:?}");
    let (side_by_side, others): (Vec<u32>, Vec<u32>) = all.partition(|at| at - FIRST < 3);
    let [together, _] = contest(ground, &side_by_side, &others)?;
    expect!(together.len() >= 2, "{together:?}");
    expect!(together.iter().all(|run| run.is_slices(3)), "side by side: {together:?}");
    let (short, long) = (latency(&spread), latency(&together));
    expect!(near(short, 3 * SLICE_NS), "spread out, it waits {short} ns");
    expect!(near(long, 9 * SLICE_NS), "side by side, it waits {long} ns");
    Ok(format!("(waits {} us spread out, {} us side by side)", short / 1000, long / 1000))
}

fn slice(position: u32) -> SliceRecord {
    published::record(Table::Slices, position as usize).unwrap_or_default()
}

fn record(env: EnvId) -> EnvRecord {
    published::env(env).unwrap_or_default()
}

/// One that asked to hear of the end of its slices, and dawdles for `ticks` of them once.
fn dawdler(ground: &Ground, ticks: u64) -> Result<Spawned, Failure> {
    let spawned = assistant::spawn(ground.image, roles::DAWDLE, [ticks, 0, 0, 0, 0, 0], &[])?;
    let setup = EnvSetup { flags: FLAG_SLICE_END, ..EnvSetup::default() };
    call::env_set(OWN, spawned.env, field::FLAGS, &setup).map_err(said)?;
    Ok(spawned)
}

/// aegis95 T14, thesis98 Z-44: the slices taken beyond the end are forfeited one for one, a part of
/// one shortens the next; who does not stop is destroyed; a neighbour's slices stay what they were.
pub fn excess_forfeited(ground: &Ground) -> Result<String, Failure> {
    for ticks in [1, 3] {
        let slow = dawdler(ground, ticks)?;
        let rival = assistant::spawn(ground.image, roles::HOG, [0; 6], &[])?;
        give(slow.env, [FIRST])?;
        give(rival.env, [FIRST + 1])?;
        assistant::start(slow)?;
        assistant::start(rival)?;
        let runs = watch(9 + 2 * ticks)?;
        let owed = record(slow.env).excess;
        end(slow.env)?;
        end(rival.env)?;
        // Half a slice more than the ticks, which is where it stops.
        let half = SLICE_NS / 2;
        let taken = SLICE_NS + ticks * SLICE_NS + half;
        let stall = runs.iter().position(|run| run.env == slow.env && near(run.length(), taken));
        let Some(stall) = stall else { return Err(format!("no stall of {taken} ns: {runs:?}")) };
        let [paying, short, next, later] = [1, 2, 3, 4].map(|after| runs.get(stall + after));
        let is = |run: Option<&Run>, env: EnvId, length| {
            run.is_some_and(|run| run.env == env && near(run.length(), length))
        };
        let forfeited = is(paying, rival.env, (ticks + 1) * SLICE_NS);
        expect!(forfeited, "{ticks} slices to forfeit: {runs:?}");
        expect!(is(short, slow.env, SLICE_NS - half), "the half slice is not paid: {runs:?}");
        let as_ever = is(next, rival.env, SLICE_NS) && is(later, slow.env, SLICE_NS);
        expect!(as_ever, "not as before afterwards: {runs:?}");
        expect!(owed == 0, "{owed} slices still owed");
    }
    destroyed_at_last(ground)
}

/// The second half: beyond the threshold.
fn destroyed_at_last(ground: &Ground) -> Result<String, Failure> {
    let endless = dawdler(ground, u64::MAX)?;
    let rival = assistant::spawn(ground.image, roles::HOG, [0; 6], &[])?;
    give(endless.env, [FIRST])?;
    give(rival.env, [FIRST + 1])?;
    assistant::start(endless)?;
    assistant::start(rival)?;
    let runs = watch(EXCESS_MAX + 8)?;
    let rivals: Vec<&Run> = runs.iter().filter(|run| run.env == rival.env).collect();
    let word = assistant::wait(endless.env)?;
    let (owner, domain) = (slice(FIRST).env, endless.domain);
    end(rival.env)?;
    expect!(word == u64::MAX, "it died with {word:#x}");
    expect!(owner == 0, "its position is still somebody's: {owner:#x}");
    let left = (0..SLICES as u32).filter(|&at| slice(at).env == endless.env.0).count();
    expect!(left == 0, "{left} positions left");
    let domains = published::table(Table::Domains).count as usize;
    let lives = (0..domains).any(|at| {
        published::record::<abi::published::DomainRecord>(Table::Domains, at)
            .is_some_and(|record| record.id == domain.0)
    });
    expect!(!lives, "its domain lives on");
    let whole = |run: &&&Run| {
        let slices = (run.length() + SLICE_NS / 2) / SLICE_NS;
        run.is_slices(slices)
    };
    let odd = rivals.iter().filter(|run| !whole(run)).count();
    expect!(odd == 0, "the rival's slices were cut: {rivals:?}");
    Ok(String::from("(destroyed at last, all given back)"))
}
