//! The one lock of a space: of its threads, one at a time is inside ExOS.
//!
//! ```text
//!  upcall ──► enter ──► … ──► leave ──► way back          a sleep is `released(…)`: the others
//!             (nested: the lock is ours already)          go on meanwhile
//!
//!  LOCK   the owner's id, a bit for each thread number that sleeps (`lockfree::awaited`)
//!  NAMES  whom to post to
//! ```
//! Taken with events masked, which is the critical section that the kernel lets run on for a
//! while. A space of one thread takes no lock at all. Who finds it taken spins for as long as most
//! calls take, then sleeps until the owner's post. Whoever enters a second time, by a fault
//! in a copy from or to the program, has it already. An owner that has died leaves what it was
//! changing half done, so the others end with it instead of waiting for it.

use crate::capabilities::USER_SLOT;
use crate::fs::at_once::{self, THREADS};
use crate::layout::THREADS_MAX;
use crate::process::Process;
use crate::signal::{bit, sender};
use crate::thread;
use abi::error::Error;
use abi::id::EnvId;
use abi::published::{EnvRecord, EnvState};
use abi::upcall::woken;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use linux_raw_sys::general::SIGKILL;
use lockfree::awaited::Awaited;
use xok::call;
use xok::upcall;

/// What one thread posts to another: look at what we share. No signal is ever sent as this bit, as
/// SIGKILL is not posted.
pub const DOORBELL: u64 = bit(SIGKILL);

/// Looks at a taken lock before sleeping: as long as most calls take.
const SPINS: usize = 500;
/// Threads that are rung at when the lock is given back.
const LATER_MAX: usize = 4;
/// Nanoseconds after which a sleeper looks whether the owner lives.
const LOOK_NS: u64 = 20_000_000;

const WORDS: usize = THREADS_MAX / 64;

static SHARED: AtomicBool = AtomicBool::new(false);
/// The pages of what follows are there.
static TOUCHED: AtomicBool = AtomicBool::new(false);
static LOCK: Awaited<AtomicU64, WORDS> =
    Awaited::new(AtomicU64::new(0), [const { AtomicU64::new(0) }; WORDS]);
static NAMES: [AtomicU32; THREADS_MAX] = [const { AtomicU32::new(0) }; THREADS_MAX];

/// Whom the owner rings at when it gives the lock back; more are rung at at once.
static LATER: [AtomicU32; LATER_MAX] = [const { AtomicU32::new(0) }; LATER_MAX];
static LATER_COUNT: AtomicUsize = AtomicUsize::new(0);

fn own_name() -> u64 {
    u64::from(thread::own().id.0)
}

/// Takes the lock; false if it is ours already, or the space has one thread.
pub fn enter() -> bool {
    if !SHARED.load(Ordering::Relaxed) {
        return false;
    }
    let own = own_name();
    if LOCK.is_of(own) {
        return false;
    }
    acquire(own);
    true
}

fn acquire(own: u64) {
    if !LOCK.try_take(own) {
        contend(own);
    }
}

fn leave() {
    let later = LATER_COUNT.load(Ordering::Relaxed);
    let mut rung = [EnvId::NONE; LATER_MAX];
    if later > 0 {
        LATER_COUNT.store(0, Ordering::Relaxed);
        for (thread, name) in rung.iter_mut().zip(&LATER) {
            *thread = EnvId(name.load(Ordering::Relaxed));
        }
    }
    if LOCK.give_back() {
        wake_one();
    }
    for thread in rung.into_iter().take(later) {
        ring_now(thread);
    }
}

/// Gives it back if it is ours.
pub fn leave_if_ours() {
    if SHARED.load(Ordering::Relaxed) && LOCK.is_of(own_name()) {
        leave();
    }
}

/// Runs `run`, which sleeps, without the lock. What the others change in `process` meanwhile is
/// seen afterwards.
pub fn released<T>(process: &mut Process, run: impl FnOnce() -> T) -> T {
    black_box(core::ptr::from_mut(process));
    if !SHARED.load(Ordering::Relaxed) {
        return run();
    }
    let own = own_name();
    if !LOCK.is_of(own) {
        return run();
    }
    leave();
    let answer = run();
    acquire(own);
    answer
}

/// A second thread is about to begin: from now on there is a lock, and it is ours.
pub fn share() {
    if !SHARED.load(Ordering::Relaxed) {
        // The pages of these come on touch, which is nobody else's business yet.
        if !TOUCHED.swap(true, Ordering::Relaxed) {
            for name in &NAMES {
                name.store(0, Ordering::Relaxed);
            }
        }
        LOCK.forget_sleepers();
        LOCK.set(own_name());
        at_once::set_detour(THREADS, true);
        SHARED.store(true, Ordering::Release);
    }
}

/// The running thread is the only one of the space, and has the lock: it needs none any more.
pub fn alone() {
    LOCK.set(0);
    LATER_COUNT.store(0, Ordering::Relaxed);
    SHARED.store(false, Ordering::Relaxed);
    at_once::set_detour(THREADS, false);
}

/// Has the space several threads?
pub fn is_shared() -> bool {
    SHARED.load(Ordering::Relaxed)
}

/// Rings at another thread of the space, as soon as the lock is free: it runs at once, and wants
/// the lock first of all.
pub fn ring(thread: EnvId) {
    let ours = SHARED.load(Ordering::Relaxed) && LOCK.is_of(own_name());
    let count = LATER_COUNT.load(Ordering::Relaxed);
    match LATER.get(count) {
        Some(place) if ours => {
            place.store(thread.0, Ordering::Relaxed);
            LATER_COUNT.store(count + 1, Ordering::Relaxed);
        }
        _ => ring_now(thread),
    }
}

fn ring_now(thread: EnvId) {
    // One that has died needs nothing any more.
    let _ = call::post(USER_SLOT, thread, DOORBELL);
}

#[cold]
fn contend(own: u64) {
    let number = thread::own().number as usize;
    let Some(name) = NAMES.get(number) else { return };
    name.store(own as u32, Ordering::Relaxed);
    // On one processor nothing changes while we look.
    let spins = if xok::published::directory().cpus > 1 { SPINS } else { 1 };
    LOCK.contend(own, number, spins, |owner| sleep_for(EnvId(owner as u32)));
}

fn sleep_for(owner: EnvId) {
    let ready = |record: EnvRecord| record.state == EnvState::Ready as u32;
    if xok::published::env(owner).is_some_and(ready) && call::yield_to(owner).is_ok() {
        // It had lost its processor; now it has had ours.
        return;
    }
    match call::sleep(xok::clock::now_ns() + LOOK_NS, DOORBELL, 0, 0) {
        // What we waited for before is true: no sleep helps, but the owner's progress does.
        Ok(woken::PREDICATE) => {
            // Refused when it runs already, elsewhere.
            let _ = call::yield_to(owner);
        }
        Err((Error::TimedOut, _)) if is_dead(owner) => crate::exit::with_the_dead(),
        _ => {}
    }
    // It may have been for something else: that is looked at with the lock.
    let set = sender::posts_set();
    thread::own().rung |= upcall::take_pending_of(DOORBELL) != 0;
    let is_all = upcall::pending() == 0;
    if is_all {
        thread::own().posts_taken = set;
    }
    thread::own().is_taken_exact = is_all && sender::is_exact(set);
}

fn is_dead(owner: EnvId) -> bool {
    LOCK.owner() == u64::from(owner.0) && !xok::published::env_lives(owner)
}

#[cold]
fn wake_one() {
    if let Some(name) = LOCK.next().and_then(|number| NAMES.get(number)) {
        ring_now(EnvId(name.load(Ordering::Relaxed)));
    }
}
