//! What servers do for one user takes the turns of others: a program that computes beside it.

use super::{Measured, as_user, now, terminals};
use crate::deputies::{ANN, NOBODY};
use crate::{expect, libc};
use abi::call::Call;
use abi::id::{AccountId, DomainId, EnvId};
use abi::published::{EnvRecord, Table};
use abi::word::Which;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use xok::{published, services};

/// Instructions in which the program computes, and the most that it lacks of half of them: it has
/// 0.45 of the processor.
const WINDOW: u64 = 400_000_000;
pub const BOUND: u64 = WINDOW / 20;
/// Terminals at which ^C is typed.
const TERMINALS: usize = 8;
/// Environments that are entrusted to init before the program begins.
const AT_LEAST: u64 = 100;

/// What the user does, beside computing.
#[derive(Clone, Copy)]
struct Storm {
    types: bool,
    entrusts: bool,
}

/// The program's lack beside each storm.
pub fn all(door: door::Door) -> Measured {
    let mut all = Vec::new();
    for (what, types, entrusts) in [
        ("beside ^C", true, false),
        ("beside what is left to init", false, true),
        ("beside both", true, true),
    ] {
        let lack = beside(door, Storm { types, entrusts })?;
        all.extend(lack.into_iter().map(|(who, lack)| (format!("{who} {what}"), lack)));
    }
    Ok(all)
}

fn beside(door: door::Door, storm: Storm) -> Measured {
    let words = libc::words(libc::shared(1), 2 + TERMINALS);
    let (done, told) = (&words[0], &words[1..=TERMINALS]);
    let mut pids = Vec::new();
    let begins = |word: &AtomicU64, least: u64, act: &dyn Fn() -> Option<i32>| {
        let pid = libc::spawn(|| {
            // What is left of the storm before may be all that the user may have.
            while !libc::become_user(NOBODY) {
                std::thread::yield_now();
            }
            act().unwrap_or(1)
        });
        while word.load(Ordering::SeqCst) < least && libc::is_alive(pid) {
            std::thread::sleep(Duration::from_millis(1));
        }
        pid
    };
    // First: what is left to init may be all environments that the user may have.
    let begun = &words[1 + TERMINALS];
    pids.push(begins(begun, 1, &|| {
        begun.store(1, Ordering::SeqCst);
        loop {
            std::hint::spin_loop();
        }
    }));
    if storm.types {
        pids.extend(told.iter().map(|told| begins(told, 1, &|| terminals::type_on(told))));
    }
    if storm.entrusts {
        pids.push(begins(done, AT_LEAST, &|| entrust_on(door, done)));
    }
    let victim = as_user(ANN, || {
        let own = EnvId(std::process::id());
        let ran = || published::env(own).map_or(0, |env| env.run_ns);
        let (begun, before) = (now(), ran());
        while now() - begun < WINDOW {
            std::hint::spin_loop();
        }
        let lack = (WINDOW / 2).saturating_sub(ran() - before);
        Ok(vec![("lacks".into(), lack)])
    });
    pids.iter().for_each(|&pid| libc::send(pid, 9));
    let ends: Vec<i32> = pids.into_iter().map(libc::wait).collect();
    // All of them by the signal.
    expect(ends.iter().all(|&end| end == 9), || format!("the others ended with {ends:x?}"))?;
    victim
}

/// Makes environments, leaves their records to init, and ends them.
fn entrust_on(door: door::Door, done: &AtomicU64) -> Option<i32> {
    let init: EnvRecord = published::record(Table::Envs, services::INIT_INDEX)?;
    loop {
        let (which, vector) = (Which::Any, Which::Any);
        let (domain, account) = (DomainId::NONE, AccountId::NONE);
        let make = Call::EnvAlloc { which, domain, account, vector };
        let Ok(env) = libc::kernel(door, make) else {
            std::thread::yield_now();
            continue;
        };
        let env = EnvId(env as u32);
        libc::kernel(door, Call::EnvEntrust { env, holder: EnvId(init.id) }).ok()?;
        libc::kernel(door, Call::EnvDestroy { env, word: 0 }).ok()?;
        done.fetch_add(1, Ordering::SeqCst);
    }
}
