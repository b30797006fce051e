//! What a user takes of the processor beyond the ends of its slices.

mod handed_on;

use super::{ANN, NOBODY, end, nobody};
use crate::{Seen, Test, expect, libc};
use abi::call::Call;
use abi::id::{AccountId, DomainId, EnvId};
use abi::published::{EnvRecord, Table};
use abi::setup::{EnvSetup, FLAG_SLICE_END, field};
use abi::word::{UserAddress, Which};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use xok::published;

/// What holds.
pub const TESTS: [Test; 3] = [
    ("ends_of_slices_that_are_handed_on_cost_others_nothing", handed_on::cost_others_nothing),
    ("ends_of_slices_that_are_ignored_cost_others_nothing", ignored_ends_cost_others_nothing),
    ("sleepers_keep_nobody_from_running", sleepers_keep_nobody_from_running),
];

/// Environments that ignore the ends of their slices; each may take eight more.
const CROWD: usize = 40;
const KILL: i32 = 9;
/// How long the other user computes beside them.
const WINDOW: Duration = Duration::from_millis(1_500);
/// Of a hundred parts of the time: what one of two users has at least.
const LEAST_SHARE: u64 = 45;

extern "C" fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

/// Makes the crowd in a domain of one's own; the status, if that fails.
fn make_crowd(door: door::Door) -> Result<(), i32> {
    let rip = spin as *const () as u64;
    // Both pages are there: none of the crowd has a handler of faults.
    let code = libc::words(rip & !7, 1)[0].load(Ordering::Relaxed);
    std::hint::black_box(code);
    let rsp = libc::private(1) + 4096;
    libc::bytes(rsp - 4096, 1)[0] = 1;
    let setup = EnvSetup { rip, rsp, flags: FLAG_SLICE_END, ..EnvSetup::default() };
    let fields = field::RIP | field::RSP | field::FLAGS;
    for _ in 0..CROWD {
        let (which, vector) = (Which::Any, Which::Any);
        let (domain, account) = (DomainId::NONE, AccountId::NONE);
        let make = Call::EnvAlloc { which, domain, account, vector };
        let env = EnvId(libc::kernel(door, make).map_err(|_| 101)? as u32);
        let setup = UserAddress(&raw const setup as u64);
        libc::kernel(door, Call::EnvSet { env, fields, setup }).map_err(|_| 102)?;
        libc::kernel(door, Call::EnvRelease { env }).map_err(|_| 103)?;
    }
    Ok(())
}

/// How long the environments of a domain have run.
fn run_ns(domain: DomainId) -> u64 {
    let all = 1..published::table(Table::Envs).count as usize;
    let records = all.filter_map(|index| published::record::<EnvRecord>(Table::Envs, index));
    records.filter(|one| one.id != 0 && one.domain == domain.0).map(|one| one.run_ns).sum()
}

fn domain_of(process: i32) -> DomainId {
    published::env_domain(EnvId(process as u32)).unwrap_or(DomainId::NONE)
}

fn wait_for(word: &AtomicU64, process: i32) {
    while word.load(Ordering::SeqCst) == 0 && libc::is_alive(process) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a user that computes had of the processor beside another one.
struct Beside {
    /// Of a hundred parts of the time that both ran.
    share: u64,
    /// From the beginning of the attack to the end of the watch.
    took: Duration,
}

/// The share of a user that computes while another one attacks and `watch` passes the time.
fn beside(
    attack: impl FnOnce() -> Result<(), i32>,
    watch: impl FnOnce(),
) -> Result<Beside, String> {
    let words = libc::words(libc::shared(1), 2);
    let [computes, attacks] = [&words[0], &words[1]];
    let victim = libc::spawn(|| {
        if !libc::become_user(ANN) {
            return 100;
        }
        computes.store(1, Ordering::SeqCst);
        spin()
    });
    wait_for(computes, victim);
    let begin = Instant::now();
    let attacker = libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 100;
        }
        let made = attack();
        attacks.store(1, Ordering::SeqCst);
        made.map_or_else(
            |status| status,
            |()| loop {
                std::thread::sleep(Duration::from_secs(1));
            },
        )
    });
    wait_for(attacks, attacker);
    let domains = [victim, attacker].map(domain_of);
    let before = domains.map(run_ns);
    watch();
    let after = domains.map(run_ns);
    let took = begin.elapsed();
    let alive = [victim, attacker].map(libc::is_alive);
    for process in [attacker, victim] {
        libc::send(process, KILL);
        libc::wait(process);
    }
    // Those that died took their counts along: what is left of the processor is not the victim's.
    let ran = after[0].saturating_sub(before[0]);
    let others = after[1].saturating_sub(before[1]);
    expect(alive == [true; 2], || format!("alive: {alive:?}"))?;
    Ok(Beside { share: ran * 100 / (ran + others).max(1), took })
}

/// Two users have a processor each half, whatever one of them does at the ends of its slices.
fn ignored_ends_cost_others_nothing(door: door::Door) -> Seen {
    let Beside { share, .. } = beside(|| make_crowd(door), || std::thread::sleep(WINDOW))?;
    expect(share >= LEAST_SHARE, || format!("{share} % of the time for the other user"))?;
    Ok(format!("({share} % of the time for the other user)"))
}

/// More than one hold of the kernel's lock walks past.
const SLEEPERS: usize = 100;

/// How long a fixed piece of work takes, of some twenty slices.
fn work() -> Duration {
    let begin = Instant::now();
    (0..200_000_000_u32).for_each(|step| {
        std::hint::black_box(step);
    });
    begin.elapsed()
}

/// A process computes as fast beside another user's sleepers, however many they are.
fn sleepers_keep_nobody_from_running(_: door::Door) -> Seen {
    let alone = work();
    let sleepers = libc::words(libc::shared(1), SLEEPERS);
    let (own, others) = UnixStream::pair().map_err(|error| error.to_string())?;
    let attacker = nobody(|| {
        for sleeper in sleepers {
            let process = libc::spawn(|| {
                let _ = (&others).read(&mut [0]);
                0
            });
            if process <= 0 {
                return 1;
            }
            sleeper.store(process as u64, Ordering::SeqCst);
        }
        0
    })?;
    // The server of pipes and all others have seen them.
    std::thread::sleep(Duration::from_millis(100));
    let beside = work();
    for sleeper in sleepers {
        match sleeper.load(Ordering::SeqCst) {
            0 => {}
            process => libc::send(process as i32, KILL),
        }
    }
    end(attacker)?;
    drop(own);
    expect(beside < 4 * alone, || format!("{beside:?} beside them, {alone:?} alone"))?;
    Ok(format!("({beside:?} beside them, {alone:?} alone)"))
}
