//! The same work on one processor and on two, by environments that share nothing.
//!
//! ```text
//!  one   processor 1: a worker                               operations in a time
//!  two   processor 0: a worker    processor 1: a worker      all operations in the same time
//! ```
//! Asked for by `cpus=MILLISECONDS`. We sleep meanwhile.
//!
//! # Safety
//! A worker writes the first word of its own application page, which nobody else writes.
#![allow(unsafe_code)]

use abi::id::{AccountId, EnvId};
use abi::limits::CPUS;
use abi::published::{CpuRecord, STRETCHES, Table};
use abi::word::Which;
use alloc::format;
use xok::call::{self, OWN, Refused};
use xok::clock::now_ns;
use xok::memory::{DATA, Space};
use xok::published;
use xok::spawn::Spawned;

use crate::faults;
use crate::memory::{AREA, NOTHING};
use crate::partner::{self, Role};
use crate::row::Failure;
use crate::sibling;

/// What a worker does. The first, a thousand steps of its own, is the control: what two of the
/// host's processors do more than one. The second enters the kernel by `syscall` and is refused: a
/// fault's way in and out is as long, but for the exception.
const KINDS: [&str; 6] = ["control", "call", "fault", "page", "transfer", "fork"];
/// No call has this number.
const NO_CALL: u64 = 0xffff;

/// Does the work of this kind until it is destroyed.
pub fn work(kind: u8) {
    let outcome = match kind {
        0 => repeat(|| {
            (0..1000).for_each(|step: u64| {
                core::hint::black_box(step);
            });
            Ok(())
        }),
        1 => repeat(|| {
            let _ = call::raw(NO_CALL, [0; 6]);
            Ok(())
        }),
        2 => {
            faults::install(u64::MAX);
            repeat(|| {
                faults::load(NOTHING);
                Ok(())
            })
        }
        3 => repeat(|| {
            Space::own().allocate(AREA, 1, DATA)?;
            Space::own().unmap(AREA, 1)
        }),
        4 => sibling::start().and_then(|server| {
            partner::meet(server)?;
            repeat(|| call::transfer(server, [0; 6]).map(drop))
        }),
        _ => Space::own().allocate(AREA, 100, DATA).map_err(said).and_then(|()| repeat(fork)),
    };
    if let Err(why) = outcome {
        xok::log!(0, "fatal worker: {why}");
    }
}

fn said(why: Refused) -> Failure {
    format!("{why:?}")
}

/// What of a fork is the kernel's: a domain with a hundred shared pages, and its end.
fn fork() -> Result<(), Refused> {
    let child = call::domain_alloc(OWN, AccountId::NONE, 0, u64::MAX)?;
    let mut space = Space::of(child, OWN);
    space.share(AREA, 2)?;
    space.flush()?;
    call::domain_destroy(OWN, child).map(drop)
}

/// Counts operations in the application page.
fn repeat(mut operation: impl FnMut() -> Result<(), Refused>) -> Result<(), Failure> {
    let mut count = 0_u64;
    loop {
        operation().map_err(said)?;
        count += 1;
        // SAFETY: see the file's head.
        unsafe { (xok::start::APPLICATION_PAGE as *mut u64).write_volatile(count) }
    }
}

/// Measures each kind, for so many milliseconds on one processor and, if so many may work, on two.
pub fn measure(image: &'static [u8], length_ms: u64, workers: usize) {
    for (kind, name) in KINDS.iter().enumerate() {
        for cpus in [&[1][..], &[0, 1]].into_iter().filter(|cpus| cpus.len() <= workers) {
            match operations(image, kind as u8, cpus, length_ms * 1_000_000) {
                Ok([count, ns, kernel]) => {
                    let number = cpus.len();
                    xok::log!(0, "cpus {name} {number} {count} {ns} {kernel}");
                }
                Err(why) => xok::log!(0, "fatal {name}: {why}"),
            }
        }
    }
}

/// Operations, in how many nanoseconds, and nanoseconds that their processors were in the kernel.
fn operations(
    image: &'static [u8],
    kind: u8,
    cpus: &[u16],
    length: u64,
) -> Result<[u64; 3], Failure> {
    let start = |&cpu: &u16| -> Result<Spawned, Failure> {
        let worker = partner::start_block(image, [Role::Work as u8, kind, 0, 0, 0], |_| Ok(()))?;
        call::slice_alloc(OWN, cpu, Which::Any, worker.env).map_err(said)?;
        Ok(worker)
    };
    let mut workers = [None; CPUS];
    for (place, cpu) in workers.iter_mut().zip(cpus) {
        *place = Some(start(cpu)?);
    }
    let all = || workers.iter().flatten().map(|worker| counter(worker.env)).sum::<u64>();
    // They begin, and what is translated first is translated.
    let waits = |worker: &Spawned| counter(worker.env) == 0 && published::env_lives(worker.env);
    while workers.iter().flatten().any(waits) {
        let _ = call::sleep(now_ns() + 1_000_000, 0, 0, 0);
    }
    let _ = call::sleep(now_ns() + length / 4, 0, 0, 0);
    let (began, before, kernel) = (now_ns(), all(), in_the_kernel(cpus));
    let _ = call::sleep(began + length, 0, 0, 0);
    let (ended, after, kernel) = (now_ns(), all(), in_the_kernel(cpus) - kernel);
    for worker in workers.iter().flatten() {
        let ran = published::env(worker.env).map_or(0, |env| env.cpu);
        if !cpus.contains(&(ran as u16)) {
            return Err(format!("a worker ran on processor {ran}"));
        }
        call::domain_destroy(OWN, worker.domain).map_err(said)?;
        while call::env_forget(worker.env).is_err() {
            let _ = call::sleep(now_ns() + 1_000_000, 0, 0, 0);
        }
    }
    Ok([after - before, ended - began, kernel])
}

fn counter(env: EnvId) -> u64 {
    published::application_word(env.index(), 0).unwrap_or(0)
}

/// Nanoseconds with interrupts off, by the classes that the kernel publishes: a stretch counts as
/// what the middle of its class is.
fn in_the_kernel(cpus: &[u16]) -> u64 {
    let of = |cpu: &u16| -> u64 {
        let record: CpuRecord =
            published::record(Table::Cpus, usize::from(*cpu)).unwrap_or_default();
        (0..STRETCHES).map(|class| record.stretches[class] * (192 << class)).sum()
    };
    let ticks: u64 = cpus.iter().map(of).sum();
    ticks * 1000 / u64::from(published::clock().tsc_mhz.max(1))
}
