//! The trace and the calls' counters: what was done shows, in order; what is lost is told.

use super::roles;
use super::sched::{counter, until};
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground};
use abi::call::number;
use abi::capability::{CONTROL, DEVICE_TRACE, NAME_DEVICE, READ};
use abi::error::Error;
use abi::id::{DomainId, EnvId};
use abi::published::{CpuRecord, Table};
use abi::trace::{ALL_KINDS, Event, Kind, Read};
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xok::call::{self, OWN};
use xok::clock::now_ns;
use xok::published;
use xok::trace::{self, Follower};

/// The page fault.
const PAGE_FAULT: u16 = 14;
/// An id that nobody has.
const NOBODY: EnvId = EnvId(0x3fff_ffff);

pub(super) fn own() -> EnvId {
    EnvId(
        published::record::<abi::published::EnvRecord>(abi::published::Table::Envs, 1)
            .unwrap_or_default()
            .id,
    )
}

/// Followers of all processors, from now on.
fn followers() -> Vec<Follower> {
    (0..published::directory().cpus as usize).filter_map(Follower::newest).collect()
}

fn set(kinds: u64) -> Result<(), Failure> {
    call::trace_set(OWN, kinds).map(drop).map_err(|why| format!("TraceSet: {why:?}"))
}

/// Calls, a refusal and a fault of a known program are there, in order, each with its way out.
pub fn in_order(_: &Ground) -> Result<String, Failure> {
    let me = own().0;
    let mut followers = followers();
    set(ALL_KINDS)?;
    let _ = call::capability_drop(9);
    let _ = call::timer_set(0);
    let refused = call::post(OWN, NOBODY, 1);
    let loaded = faults::load(8);
    set(0)?;
    let _ = call::capability_drop(9);
    expect!(refused.is_err() && loaded.is_none(), "{refused:?}, {loaded:?}");
    let mut seen = Vec::new();
    let mut last = 0;
    for follower in &mut followers {
        loop {
            match follower.read() {
                Read::Record(_, tsc, event) if event.env == me => {
                    expect!(tsc >= last, "time runs backwards: {event:?}");
                    last = tsc;
                    let event_upcall = event.detail == abi::upcall::Cause::Event as u16;
                    match event.kind {
                        Kind::Upcall if event_upcall => {}
                        Kind::Switch => {}
                        _ => seen.push(event),
                    }
                }
                Read::Record(..) => {}
                Read::Lost(count) => return Err(format!("{count} lost")),
                Read::End => break,
            }
        }
    }
    // An interrupt between two instructions leads back by one more way out.
    seen.dedup_by(|next, before| next.kind == Kind::Leave && before.kind == Kind::Leave);
    let event = |kind, detail| Event::new(kind, detail, me);
    let leave = event(Kind::Leave, 0);
    let no_such = Error::NoSuchEnv as u64;
    let expected = [
        leave,
        event(Kind::Call, number::CapabilityDrop),
        leave,
        event(Kind::Call, number::TimerSet),
        leave,
        event(Kind::Call, number::Post),
        Event { argument: no_such, ..event(Kind::Refused, number::Post) },
        leave,
        event(Kind::Upcall, PAGE_FAULT),
        leave,
        event(Kind::Call, number::TraceSet),
    ];
    let shown: Vec<_> = seen.iter().map(|event| (event.kind.name(), event.detail)).collect();
    expect!(seen == expected, "{shown:?}");
    Ok(format!("({} records)", seen.len()))
}

/// Only who may write the trace sets it, and to known kinds.
pub fn refused(_: &Ground) -> Result<String, Failure> {
    let kinds = || trace::ring(0).map_or(!0, |ring| ring.kinds);
    expect!(kinds() == 0, "kinds {:#x} before anybody asked", kinds());
    let name = [NAME_DEVICE, DEVICE_TRACE];
    call::capability_derive(OWN, DomainId::NONE, 5, &name, READ | CONTROL)
        .map_err(|why| format!("derive: {why:?}"))?;
    let reader = call::trace_set(5, ALL_KINDS);
    expect!(matches!(reader, Err((Error::NotPermitted, _))), "without WRITE: {reader:?}");
    let unknown = call::trace_set(OWN, ALL_KINDS + 2);
    expect!(matches!(unknown, Err((Error::BadArgument, 0))), "an unknown kind: {unknown:?}");
    expect!(kinds() == 0, "kinds {:#x} after refusals", kinds());
    call::capability_drop(5).map_err(|why| format!("{why:?}"))?;
    Ok(String::new())
}

/// A reader that comes too late is told how many records it has missed, and goes on.
pub fn loss_is_told(_: &Ground) -> Result<String, Failure> {
    let records = trace::ring(0).ok_or("processor 0 has no ring")?.records;
    let mut followers = followers();
    let before: Vec<u64> =
        followers.iter().map(|at| trace::ring(at.cpu()).map_or(0, |ring| ring.next)).collect();
    set(Kind::Call.bit())?;
    for _ in 0..2 * records {
        let _ = call::capability_drop(9);
    }
    set(0)?;
    let (mut seen, mut lost, mut all) = (0, 0, 0);
    for (follower, before) in followers.iter_mut().zip(before) {
        loop {
            match follower.read() {
                Read::Record(..) => seen += 1,
                Read::Lost(count) => lost += count,
                Read::End => break,
            }
        }
        all += trace::ring(follower.cpu()).map_or(0, |ring| ring.next) - before;
    }
    expect!(seen + lost == all, "{seen} seen and {lost} lost of {all}");
    expect!(all > 2 * records, "{all} records for {} calls", 2 * records);
    expect!(lost >= records && seen > 0, "{seen} seen, {lost} lost with {records} records");
    Ok(format!("({seen} seen, {lost} told lost)"))
}

/// Each call is counted on the processor that made it; ticks while calls are traced.
pub fn calls_are_counted(_: &Ground) -> Result<String, Failure> {
    const TIMES: u64 = 100;
    let now = || published::call_record(number::CapabilityDrop.into());
    let make = || {
        for _ in 0..TIMES {
            let _ = call::capability_drop(9);
        }
    };
    let before = now();
    make();
    let untraced = now();
    set(Kind::Call.bit())?;
    make();
    set(0)?;
    let traced = now();
    let counted = (untraced.count - before.count, traced.count - untraced.count);
    expect!(counted == (TIMES, TIMES), "{counted:?} of {TIMES} each");
    expect!(untraced.ticks == before.ticks, "ticks were counted while nothing was traced");
    let ticks = traced.ticks - untraced.ticks;
    expect!(ticks >= TIMES, "{ticks} ticks for {TIMES} calls");
    Ok(format!("({} ticks a call)", ticks / TIMES))
}

/// Who reads another processor's counters while it counts never sees one go back.
pub fn counters_only_go_up(ground: &Ground) -> Result<String, Failure> {
    const NANOSECONDS: u64 = 300_000_000;
    if published::directory().cpus < 2 {
        return Ok(String::from("(one processor)"));
    }
    let remote = assistant::spawn(ground.image, roles::COUNT_AND_YIELD, [0; 6], &[])?;
    let said = |refused| format!("{refused:?}");
    call::slice_alloc(OWN, 1, Which::Any, remote.env).map_err(said)?;
    assistant::start(remote)?;
    until(|| counter(remote.env) > 0, "it to run elsewhere")?;
    let counters = || {
        let cpu = published::record::<CpuRecord>(Table::Cpus, 1).unwrap_or_default();
        let [first, .., last] = cpu.stretches;
        (cpu.stretches, [first, last, cpu.interrupts, cpu.calls, cpu.switches, cpu.vector_moves])
    };
    let (mut looks, mut backwards, mut before) = (0, 0, counters());
    let (begin, end) = (before, now_ns() + NANOSECONDS);
    while now_ns() < end {
        let now = counters();
        let pairs = now.0.iter().zip(before.0).chain(now.1.iter().zip(before.1));
        backwards += u32::from(pairs.into_iter().any(|(now, before)| *now < before));
        (looks, before) = (looks + 1, now);
    }
    call::env_destroy(OWN, remote.env, 0).map_err(said)?;
    assistant::wait(remote.env)?;
    expect!(before.0 != begin.0 && before.1 != begin.1, "nothing was counted in {looks} looks");
    expect!(backwards == 0, "{backwards} of {looks} looks saw a counter go back");
    Ok(format!("({looks} looks)"))
}
