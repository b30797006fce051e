//! Gangs of two on two processors: members that spin for each other make progress together.

use super::roles::gang::{TURN_NS, WIDTH, given, told_at};
use super::roles::mirror::set_word;
use super::roles::{KEEP_STEP, LEAD_GANGS};
use super::sched::counter;
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground};
use abi::setup::{EnvSetup, FLAG_GIVEN_TIME, field};
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xok::call::{self, OWN};
use xok::clock::now_ns;
use xok::published;
use xok::spawn::Spawned;

const MEMBERS: usize = 2 * WIDTH;
/// How long the gangs run each time, in nanoseconds: three turns of each.
const LENGTH_NS: u64 = 6 * TURN_NS;

/// Part 3 of the plan for processor time, thesis98 M-19: each gang runs at once on both processors
/// by `xok::gang`; where the leaders take the gangs in different orders, hardly ever.
pub fn in_step(ground: &Ground) -> Result<String, Failure> {
    if published::directory().cpus < 2 {
        return Ok(String::from("(one processor)"));
    }
    let (together, steps) = percent_together(ground, false)?;
    let (apart, missed) = percent_together(ground, true)?;
    // Slices of two processors do not begin at the same time, but a turn has eight.
    expect!(together >= 70, "one gang on both processors for {together} % of the time");
    expect!(apart <= 30, "out of step, for {apart} % of the time");
    Ok(format!("({together} % and {steps:?} steps; out of step {apart} % and {missed:?})"))
}

/// In how much of the time both processors were given to the same gang, and the steps of each;
/// `apart`: with leaders that do not agree.
fn percent_together(ground: &Ground, apart: bool) -> Result<(u64, [u64; 2]), Failure> {
    let said = |why: call::Refused| format!("{why:?}");
    let mut all: Vec<Spawned> = Vec::new();
    for member in 0..MEMBERS {
        set_word(told_at(member) / 8, 0);
        let spawned =
            assistant::spawn(ground.image, KEEP_STEP, [member as u64, 0, 0, 0, 0, 0], &[])?;
        let setup = EnvSetup { flags: FLAG_GIVEN_TIME, ..EnvSetup::default() };
        call::env_set(OWN, spawned.env, field::FLAGS, &setup).map_err(said)?;
        all.push(spawned);
    }
    for (member, spawned) in all.iter().enumerate() {
        set_word(told_at(member) / 8, spawned.env.index() as u64);
    }
    let ids: Vec<u64> = all.iter().map(|spawned| spawned.env.0.into()).collect();
    let [first, second, third, fourth] = ids[..] else { return Err("members".into()) };
    for place in 0..WIDTH {
        let reversed = u64::from(apart && place == 1);
        let words = [first, second, third, fourth, reversed, place as u64];
        let leader = assistant::spawn(ground.image, LEAD_GANGS, words, &[])?;
        call::slice_alloc(OWN, place as u16, Which::Any, leader.env).map_err(said)?;
        all.push(leader);
    }
    for spawned in &all {
        assistant::start(*spawned)?;
    }
    let _ = call::sleep(now_ns() + LENGTH_NS, 0, 0, 0);
    let made = [0, WIDTH].map(|member| all.get(member).map_or(0, |spawned| counter(spawned.env)));
    let leaders = all.split_at(MEMBERS).1;
    let logs = [0, 1].map(|place| leaders.get(place).map_or(Vec::new(), |one| given(one.env)));
    for spawned in all.iter().rev() {
        call::env_destroy(OWN, spawned.env, 0).map_err(said)?;
        assistant::wait(spawned.env)?;
    }
    Ok((percent(&logs), made))
}

/// Of the time that two logs share, the part in which both tell of the same gang.
fn percent(logs: &[Vec<(u64, u64)>; WIDTH]) -> u64 {
    let at = |log: &[(u64, u64)], now: u64| {
        log.iter().rev().find(|&&(begins, _)| begins <= now).map(|&(_, gang)| gang)
    };
    let [first, second] = logs.each_ref().map(Vec::as_slice);
    let mut times: Vec<u64> = logs.iter().flatten().map(|&(begins, _)| begins).collect();
    times.sort_unstable();
    let (mut same, mut all) = (0, 0);
    for pair in times.windows(2) {
        if let (&[begins, ends], Some(one), Some(other)) =
            (pair, at(first, pair[0]), at(second, pair[0]))
        {
            all += ends - begins;
            same += if one == other { ends - begins } else { 0 };
        }
    }
    100 * same / all.max(1)
}
