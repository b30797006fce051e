//! The rows, in order.

use abi::call::number;
use abi::id::{DomainId, EnvId};
use abi::memory::ANY_FRAME;
use abi::method::Binding;
use alloc::format;
use alloc::vec::Vec;
use xok::call::{self, OWN};
use xok::compartment::Compartment;
use xok::memory::Space;
use xok::published;
use xok::threads::{self, Fate, Fault, Program, Threads};

use crate::faults;
use crate::memory::{self, Area, NOTHING, PAGES};
use crate::partner::{self, Role};
use crate::row::Samples;
use crate::shared::{self, Pair};
use crate::sibling;

/// No call has this number.
const NO_CALL: u64 = 0xffff;
/// Samples of each row unless told otherwise.
const SAMPLES: usize = 7;
/// Environments asleep on predicates that do not hold.
const SLEEPERS: u64 = 1000;
/// A step through all hundred pages without a pattern: it and a hundred have no common divisor.
const STEP: u64 = 37;

/// Runs those that are wanted, and ends the machine.
pub fn run() {
    let mut line = [0; abi::published::COMMAND_LINE];
    let line = published::command_line(&mut line);
    let count = value(line, b"samples").and_then(|text| core::str::from_utf8(text).ok());
    let count = count.and_then(|text| text.parse().ok()).unwrap_or(SAMPLES);
    let samples = Samples::new(count, value(line, b"rows").map(<[u8]>::to_vec));
    let number = |text| core::str::from_utf8(text).ok()?.parse::<u64>().ok();
    if let Some(length) = value(line, b"cpus").and_then(number) {
        match xok::boot_image::map(OWN) {
            Ok(image) => {
                let workers = value(line, b"workers").and_then(number).unwrap_or(2);
                crate::cpus::measure(image, length, workers as usize);
            }
            Err(why) => xok::log!(0, "fatal boot image: {why:?}"),
        }
        let _ = call::machine_end(OWN, 0, 0);
    }
    calls(&samples);
    methods(&samples);
    traps(&samples);
    protection(&samples);
    match xok::boot_image::map(OWN) {
        Ok(image) => {
            partners(&samples, image);
            pages_of_both(&samples, image);
            visits(&samples);
            boards(&samples, image);
            threads_of_one(&samples);
        }
        Err(why) => xok::log!(0, "fatal boot image: {why:?}"),
    }
    xok::log!(0, "done");
    let _ = call::machine_end(OWN, 0, 0);
}

/// The value of a word of the command line.
fn value<'a>(line: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    line.split(|&byte| byte == b' ').find_map(|word| word.strip_prefix(key)?.strip_prefix(b"="))
}

fn calls(samples: &Samples) {
    let repeat = |number: u64| {
        move |_: &mut (), operations| {
            for _ in 0..operations {
                // Refused, or done without an effect: both are what is measured.
                let _ = call::raw(number, [0; 6]);
            }
        }
    };
    samples.measure("n_null", 1000, || Ok(()), |_| (), repeat(NO_CALL));
    let timer = u64::from(number::TimerSet);
    samples.measure("n_timer", 1000, || Ok(()), |_| (), repeat(timer));
}

/// A call that downloaded code answers: eight instructions, one of which reads the region.
fn methods(samples: &Samples) {
    let bind = || {
        let load = 0x2079_u64;
        let exit = 0x95_u64;
        let add = |number: u64| number << 32 | 0x07;
        let program = [load, add(1), add(2), add(3), add(4), add(5), add(6), exit];
        let binding = Binding { roles: 1, length: 8, ..Binding::default() };
        let program: Vec<u8> = program.iter().flat_map(|slot| slot.to_le_bytes()).collect();
        let bytes = [&binding.to_bytes()[..], &program].concat();
        let region = call::region_alloc(OWN, &[ANY_FRAME])?;
        call::method_bind(OWN, region, &bytes)?;
        call::region_attach(OWN, region, 0, DomainId::NONE)?;
        Ok(region)
    };
    samples.measure(
        "n_method",
        1000,
        || bind().map_err(|why: call::Refused| format!("{why:?}")),
        |_| (),
        |region, operations| {
            repeat(operations, || call::method_call(*region, 0, 0, [0; 3]) == Ok(21));
        },
    );
}

fn traps(samples: &Samples) {
    let prepare = || {
        faults::install(u64::MAX);
        Ok(())
    };
    samples.measure(
        "n_fault",
        100,
        prepare,
        |_| (),
        |_, operations| {
            for _ in 0..operations {
                faults::undefined();
            }
        },
    );
    samples.measure(
        "n_trap",
        100,
        prepare,
        |_| (),
        |_, operations| {
            for _ in 0..operations {
                faults::load(NOTHING);
            }
        },
    );
}

/// aegis95 Table 10, as a program does it that manages its own memory.
fn protection(samples: &Samples) {
    let unmap = |area: Option<Area>| area.into_iter().for_each(Area::unmap);
    let one = samples.measure("n_prot1", PAGES, Area::map, Area::unprotect, |_, operations| {
        for page in 0..operations {
            memory::protect(memory::address(page * STEP % PAGES));
        }
    });
    unmap(one);
    unmap(samples.measure("n_prot100", 1, Area::map, Area::unprotect, |area, _| area.protect()));
    unmap(samples.measure("n_unprot100", 1, Area::map, Area::protect, |area, _| {
        area.unprotect();
    }));
    unmap(samples.measure("n_appel2", PAGES, Area::map, Area::unprotect, |area, operations| {
        area.protect();
        for page in 0..operations {
            faults::store(memory::address(page * STEP % PAGES));
        }
    }));
    unmap(samples.measure(
        "n_dirty",
        PAGES,
        Area::map,
        |_| (),
        |_, operations| {
            for page in 0..operations {
                core::hint::black_box(xok::own::is_dirty(memory::address(page)));
            }
        },
    ));
    let fill = || {
        let area = Area::map()?;
        faults::fill();
        Ok(area)
    };
    let discard = |_: &mut Area| {
        // Of the first sample all are there, of the others those that were filled.
        let _ = Space::own().unmap(memory::AREA, PAGES);
    };
    unmap(samples.measure("n_pager", PAGES, fill, discard, |_, operations| {
        for page in 0..operations {
            faults::store(memory::address(page));
        }
    }));
    xok::log!(0, "faults {}", faults::count());
}

fn partners(samples: &Samples, image: &'static [u8]) {
    let ask = |env: &mut abi::id::EnvId, operations| {
        for _ in 0..operations {
            if let Err(why) = call::transfer(*env, [1, 2, 3, 4, 5, 6]) {
                xok::log!(0, "fatal transfer: {why:?}");
            }
        }
    };
    let met = |env: abi::id::EnvId| partner::meet(env).map(|()| env);
    let same = samples.measure("n_pct_same", 100, || met(sibling::start()?), |_| (), ask);
    same.into_iter().for_each(partner::end);
    let other = || met(partner::start(image, Role::Echo)?.env);
    let other = samples.measure("n_pct_other", 100, other, |_| (), ask);
    other.into_iter().for_each(partner::end);
    let other = || met(partner::start(image, Role::Echo)?.env);
    let trusted = samples.measure(
        "n_tlrpc",
        100,
        other,
        |_| (),
        |env, operations| {
            repeat(operations, || shared::ask_trusting(*env));
        },
    );
    trusted.into_iter().for_each(partner::end);
    let start = || partner::start(image, Role::YieldBack).map(|spawned| spawned.env);
    let yielding = samples.measure(
        "n_yield",
        100,
        start,
        |_| (),
        |env, operations| {
            for _ in 0..operations {
                if let Err(why) = call::yield_to(*env) {
                    xok::log!(0, "fatal yield: {why:?}");
                }
            }
        },
    );
    yielding.into_iter().for_each(partner::end);
}

/// aegis95 Table 8: a word there and back through a page of both.
fn pages_of_both(samples: &Samples, image: &'static [u8]) {
    let pair = |role| move || Pair::start(image, role);
    let called = samples.measure(
        "n_pipe",
        100,
        pair(Role::Pipe),
        |_| (),
        |pair, operations| {
            repeat(operations, || pair.call());
        },
    );
    called.into_iter().for_each(Pair::end);
    let inlined = pair(Role::PipeInlined);
    let inlined = samples.measure(
        "n_pipe_inlined",
        100,
        inlined,
        |_| (),
        |pair, operations| {
            repeat(operations, || pair.inlined());
        },
    );
    inlined.into_iter().for_each(Pair::end);
    let counted = samples.measure(
        "n_shm",
        100,
        pair(Role::Count),
        |_| (),
        |pair, operations| {
            repeat(operations, || pair.count());
        },
    );
    counted.into_iter().for_each(Pair::end);
}

/// aegis95 S25c: another of the program's own protection domains.
fn visits(samples: &Samples) {
    extern "C" fn nothing(_: u64, _: u64, _: u64) -> u64 {
        0
    }
    let prepare = || Compartment::but_for(&[], &[]).map_err(|why| format!("{why:?}"));
    samples.measure(
        "n_visit",
        100,
        prepare,
        |_| (),
        |compartment, operations| {
            repeat(operations, || compartment.run(nothing, [0; 3]).is_ok());
        },
    );
}

/// Conditions on a board, few and many, and few beside sleepers whose predicates do not hold.
fn boards(samples: &Samples, image: &'static [u8]) {
    for (name, conditions) in [("n_board10", 10), ("n_board10k", 10_000)] {
        let pair = samples.measure(
            name,
            100,
            || Pair::start_board(image),
            |_| (),
            |pair, operations| repeat(operations, || pair.notify(conditions)),
        );
        pair.into_iter().for_each(Pair::end_board);
    }
    let beside = samples.measure(
        "n_board_1k_asleep",
        100,
        || Ok((Pair::start_board(image)?, sibling::start_sleepers(SLEEPERS)?)),
        |_| (),
        |(pair, _), operations| repeat(operations, || pair.notify(10)),
    );
    if let Some((pair, sleepers)) = beside {
        pair.end_board();
        sibling::end_sleepers(sleepers);
    }
    // In turns of their own: each yield looks at the next ones, as many as one exit may.
    let sleepers = samples.measure(
        "n_turns_1k_asleep",
        100,
        || sibling::start_sleepers(SLEEPERS),
        |_| (),
        |_, operations| repeat(operations, || call::yield_to(EnvId::NONE).is_ok()),
    );
    sleepers.into_iter().for_each(sibling::end_sleepers);
}

/// A thread of one's own that lets the other one run. The last row: faults are the threads' now.
fn threads_of_one(samples: &Samples) {
    extern "C" fn give_back(_: u64) {
        loop {
            threads::yield_now();
        }
    }
    let start = || {
        threads::begin(Alone);
        threads::spawn(give_back, 0);
        threads::yield_now();
        Ok(())
    };
    samples.measure(
        "n_thread",
        100,
        start,
        |_| (),
        |_, operations| {
            (0..operations).for_each(|_| threads::yield_now());
        },
    );
}

/// Threads that fault no more, and whom nothing concerns.
struct Alone;

impl Program for Alone {
    fn fault(&mut self, _: &mut Threads, _: &Fault) -> Fate {
        Fate::End
    }

    fn event(&mut self, _: &mut Threads, _: u64, _: u64) {}
}

/// So many times, each of which must succeed: else the figures would be of something else.
#[inline(always)]
fn repeat(operations: u64, mut operation: impl FnMut() -> bool) {
    for _ in 0..operations {
        if !operation() {
            xok::log!(0, "fatal: the partner has gone");
            call::exit(1 << 8);
        }
    }
}
