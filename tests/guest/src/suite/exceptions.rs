//! Exceptions: all reach the program, with pc, address and cause; the way back needs no kernel.

use super::roles;
use super::sched::{until, until_accepts};
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::limits::UPCALL_DEPTH;
use abi::published::{CpuRecord, EnvRecord, EnvState, Table};
use abi::trace::Kind;
use abi::upcall::{Cause, offset};
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN};
use xok::{published, upcall};

/// Sum over the processors of a counter.
fn total(counter: fn(&CpuRecord) -> u64) -> u64 {
    let cpus = published::table(Table::Cpus).count as usize;
    (0..cpus).filter_map(|cpu| published::record(Table::Cpus, cpu)).map(|cpu| counter(&cpu)).sum()
}

/// aegis95 T11: divide, illegal, protection.
pub fn reach_the_program(_: &Ground) -> Result<String, Failure> {
    let at = faults::divide();
    let seen = faults::seen();
    expect!(seen.cause == Cause::Divide as u64 && seen.rip == at, "divide: {seen:?}, at {at:#x}");
    let at = faults::illegal();
    let seen = faults::seen();
    expect!(seen.cause == Cause::IllegalInstruction as u64, "illegal: {seen:?}");
    expect!(seen.rip == at, "illegal: {seen:?}, at {at:#x}");
    let at = faults::privileged();
    let seen = faults::seen();
    expect!(seen.cause == Cause::Protection as u64 && seen.rip == at, "hlt: {seen:?}, {at:#x}");
    expect!(faults::load(SCRATCH + 5).is_none(), "a load from nothing worked");
    let seen = faults::seen();
    expect!(seen.cause == Cause::PageFault as u64, "page fault: {seen:?}");
    expect!(seen.address == SCRATCH + 5 && seen.error & 3 == 0, "page fault: {seen:?}");
    expect!(!faults::store(xok::abi::layout::PUBLISHED, 1), "a store to a read-only page worked");
    let seen = faults::seen();
    expect!(seen.address == xok::abi::layout::PUBLISHED && seen.error & 2 != 0, "{seen:?}");
    Ok(String::new())
}

/// aegis95 T10, thesis98 Z-49: one kernel entry for each exception, not two.
pub fn return_without_the_kernel(_: &Ground) -> Result<String, Failure> {
    const COUNT: u64 = 100_000;
    let before = (total(|cpu| cpu.faults), total(|cpu| cpu.calls), faults::seen().count);
    faults::illegal_many(COUNT);
    let after = (total(|cpu| cpu.faults), total(|cpu| cpu.calls), faults::seen().count);
    expect!(after.2 - before.2 == COUNT, "handled {} of {COUNT}", after.2 - before.2);
    expect!(after.0 - before.0 == COUNT, "{} faults entered", after.0 - before.0);
    expect!(after.1 == before.1, "{} calls were made", after.1 - before.1);
    Ok(format!("({COUNT} exceptions, {COUNT} entries)"))
}

/// aegis95 T21: the kernel faulted on nothing but wild user pointers; without those, never.
pub fn no_kernel_faults(ground: &Ground) -> Result<String, Failure> {
    let before = total(|cpu| cpu.kernel_faults);
    faults::illegal_many(1000);
    super::memory::silent_allocation(ground)?;
    super::memory::update_batched(ground)?;
    super::transfer::storm(ground)?;
    let after = total(|cpu| cpu.kernel_faults);
    expect!(after == before, "{} faults in kernel mode", after - before);
    Ok(String::new())
}

/// Slot 0 as the last fault at depth 1 left it, and the header of the save area.
fn delivered() -> [u64; 15] {
    let header = [offset::MASK, offset::DEPTH, offset::RETURNING];
    core::array::from_fn(|at| match at.checked_sub(header.len()) {
        None => upcall::word(header[at]),
        Some(word) => upcall::word(offset::SLOTS + 8 * word),
    })
}

/// The kernel's entry code delivers faults by itself what it can; the rest of the kernel does when
/// upcalls are traced. A program can't tell which it was.
pub fn by_either_way(_: &Ground) -> Result<String, Failure> {
    let probes: [(&str, fn()); 6] = [
        ("divide", || _ = faults::divide()),
        ("illegal", || _ = faults::illegal()),
        ("protection", || _ = faults::privileged()),
        ("load", || _ = faults::load(SCRATCH + 5)),
        ("store", || _ = faults::store(SCRATCH + 9, 1)),
        ("kernel", || _ = faults::load(xok::abi::layout::DIRECT_MAP)),
    ];
    let ways = [0, Kind::Upcall.bit()];
    for (name, probe) in probes {
        let mut seen = [[0; 15]; 2];
        let mut counted = [(0, 0); 2];
        for (at, kinds) in ways.into_iter().enumerate() {
            call::trace_set(OWN, kinds).map_err(|why| format!("TraceSet: {why:?}"))?;
            let upcalls = || published::record::<EnvRecord>(Table::Envs, 1).map(|own| own.upcalls);
            let before = (total(|cpu| cpu.faults), upcalls().unwrap_or(0));
            probe();
            seen[at] = delivered();
            let after = (total(|cpu| cpu.faults), upcalls().unwrap_or(0));
            counted[at] = (after.0 - before.0, after.1 - before.1);
        }
        let _ = call::trace_set(OWN, 0);
        expect!(seen[0] == seen[1], "{name}: {:x?}", seen);
        expect!(counted == [(1, 1); 2], "{name}: counted {counted:?}");
    }
    Ok(String::new())
}

/// aegis95 T8: a fault whose handler lacks a page ends: it is handled, or the environment stops
/// where whoever holds it sees why, after as many upcalls as there are slots.
pub fn without_pages(ground: &Ground) -> Result<String, Failure> {
    let stack = [roles::MISSING_STACK, 0, 0, 0, 0, 0];
    let supplied = assistant::spawn(ground.image, roles::FAULT_WITHOUT_PAGE, stack, &[])?;
    let left = assistant::finish(supplied)?;
    expect!(left == roles::FAULT_HANDLED, "its stack missing, it left {left:#x}");
    for missing in [roles::MISSING_CODE, roles::MISSING_SAVE_AREA] {
        let words = [missing, 0, 0, 0, 0, 0];
        let child = assistant::spawn(ground.image, roles::FAULT_WITHOUT_PAGE, words, &[])?;
        assistant::start(child)?;
        let record = || published::env(child.env).unwrap_or_default();
        until(|| record().state == EnvState::Stopped as u32, "it to stop")?;
        let stopped = record();
        call::env_destroy(OWN, child.env, 0).map_err(|why| format!("{why:?}"))?;
        assistant::wait(child.env)?;
        expect!(stopped.cause == Cause::PageFault as u32, "stopped by {}", stopped.cause);
        let upcalls = stopped.upcalls;
        expect!(upcalls == UPCALL_DEPTH as u64, "{upcalls} upcalls, without {missing}");
    }
    Ok(String::new())
}

/// xok97 XK-21, l4stack 7.2 "exception IPC": faults of chosen causes are another environment's to
/// answer, chosen software interrupts are functions of the program's; all others are as ever.
pub fn redirected(ground: &Ground) -> Result<String, Failure> {
    let judge = assistant::spawn(ground.image, roles::JUDGE, [0; 6], &[])?;
    assistant::start(judge)?;
    until_accepts(judge.env)?;
    let words = [judge.env.0.into(), 0, 0, 0, 0, 0];
    let program = assistant::spawn(ground.image, roles::REDIRECTED, words, &[])?;
    let left = assistant::finish(program);
    call::env_destroy(OWN, judge.env, 0).map_err(|why| format!("{why:?}"))?;
    assistant::wait(judge.env)?;
    let left = left?;
    expect!(left == roles::redirected::CONTENT, "wrong at its step {left:#x}");
    Ok(String::new())
}
