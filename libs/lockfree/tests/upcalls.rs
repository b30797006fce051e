//! Every order in which bits that the kernel sets meet their owner on another processor.
//!
//! No bit is lost: a sleeper is woken, and who runs, and lets events in, is told of all of them.
//! The kernel's part is under its lock; here it is a model of `kernel_core::sleep::{post, notify,
//! told}` and `kernel_core::upcall::deliver_events`, whose steps on bits and mask are the same. The
//! owner's ways out are assembly (`libs/xok/src/upcall.rs`), with which
//! `ways_out_do_what_is_tried` compares what is here.

mod tried;

use abi::atomic::{Atomic, Ordering};
use abi::shared::{LOAD, STEP, STORE};
use abi::upcall;
use loom::sync::atomic::AtomicU64;
use loom::sync::{Arc, Mutex, Notify};
use loom::thread;
use tried::{Tried, try_all};

type Word = Tried<AtomicU64>;

/// An environment's words, and what the kernel knows of it.
struct Environment {
    bits: Word,
    mask: Word,
    /// The kernel's lock; does it sleep?
    sleeps: Mutex<bool>,
    /// A sleeper is made ready, and runs.
    woken: Notify,
    /// An interrupt has been sent to the processor on which it runs.
    interrupt: Word,
    /// A mistake: who runs is interrupted only if it lets events in, as far as one sees.
    asks_first: bool,
}

impl Environment {
    fn new(masked: bool, asks_first: bool) -> Self {
        let mask = Word::default();
        mask.store(masked.into(), Ordering::Relaxed);
        let (bits, interrupt) = (Word::default(), Word::default());
        let (sleeps, woken) = (Mutex::new(false), Notify::new());
        Self { bits, mask, sleeps, woken, interrupt, asks_first }
    }

    /// `sleep::post`, then `sleep::notify`, by another processor.
    fn post(&self, bits: u64) {
        let mut sleeps = self.sleeps.lock().expect("the lock");
        self.bits.fetch_or(bits, STEP);
        if std::mem::take(&mut *sleeps) {
            self.woken.notify();
        } else if !self.asks_first || self.mask.load(LOAD) == 0 {
            self.interrupt.swap(1, Ordering::SeqCst);
        }
    }

    /// `Sleep`: looks at the bits (`sleep::told`) under the same lock.
    fn sleep(&self) {
        let mut sleeps = self.sleeps.lock().expect("the lock");
        if self.bits.load(LOAD) == 0 {
            *sleeps = true;
            drop(sleeps);
            self.woken.wait();
        }
    }

    /// Between two instructions: an interrupt enters the kernel, which enters the handler if
    /// something waits and is let in (`upcall::deliver_events`).
    fn between(&self, seen: &mut u64) {
        if self.interrupt.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        let lock = self.sleeps.lock().expect("the lock");
        if self.bits.load(LOAD) == 0 || self.mask.load(LOAD) != 0 {
            return;
        }
        self.mask.store(1, STORE);
        drop(lock);
        self.handle(seen);
    }

    /// The handler, and its way out.
    fn handle(&self, seen: &mut u64) {
        let taken = upcall::take_all(&self.bits);
        assert_eq!(*seen & taken, 0, "taken twice");
        *seen |= taken;
        self.leave(seen);
    }

    /// The way out of the handler, and of a call that needs none.
    fn leave(&self, seen: &mut u64) {
        self.mask.store(0, Ordering::Release);
        self.between(seen);
        if self.bits.load(Ordering::Acquire) != 0 {
            self.between(seen);
            self.mask.store(1, Ordering::Release);
            self.between(seen);
            self.handle(seen);
        }
    }
}

fn running(switches: usize, asks_first: bool) {
    try_all(switches, move || {
        let env = Arc::new(Environment::new(true, asks_first));
        let there = env.clone();
        let poster = thread::spawn(move || {
            there.post(1);
            there.post(2);
        });
        let mut seen = 0;
        env.leave(&mut seen);
        env.between(&mut seen);
        poster.join().expect("who posts");
        // It computes on: whatever interrupt was sent comes.
        env.between(&mut seen);
        assert_eq!(seen, 3, "it was not told");
    });
}

#[test]
fn who_runs_is_told_of_every_bit() {
    running(3, false);
}

#[test]
#[should_panic]
fn who_asks_for_the_mask_first_is_found_out() {
    running(3, true);
}

#[test]
fn who_sleeps_is_woken_for_every_bit() {
    try_all(2, || {
        let env = Arc::new(Environment::new(true, false));
        let posters = [1, 2].map(|bit| {
            let there = env.clone();
            thread::spawn(move || there.post(bit))
        });
        let mut seen = 0;
        while seen != 3 {
            // One of them by its name, to begin with, as who waits for a doorbell takes it.
            seen |= upcall::take(&env.bits, 1);
            seen |= upcall::take_all(&env.bits);
            if seen != 3 {
                env.sleep();
            }
        }
        posters.into_iter().for_each(|poster| poster.join().expect("who posts"));
    });
}

/// What ways out do with the bits and the mask, in order.
#[test]
fn ways_out_do_what_is_tried() {
    let text = include_str!("../../xok/src/upcall.rs");
    let between = |from: &str, to: &str| {
        let begin = text.find(from).expect("a label") + from.len();
        let piece = &text[begin..begin + text[begin..].find(to).expect("a label")];
        let shared = ["{mask}", "{pending}", "{events}"];
        let steps = piece.lines().filter(|line| shared.iter().any(|word| line.contains(word)));
        steps.map(|line| line.trim().trim_matches([',', '"'])).collect::<Vec<_>>()
    };
    let looks = ["mov r11, gs:[{pending}]", "or r11, gs:[{events}]"];
    let again = "mov qword ptr gs:[{mask}], 1";
    let of_a_call = ["mov qword ptr gs:[{mask}], 0", looks[0], looks[1], again];
    assert_eq!(between("\"xok_call_leave:\",", "\"xok_leave_last:\""), of_a_call);
    let of_a_handler = ["mov gs:[{mask}], r11", looks[0], looks[1], again];
    assert_eq!(between("\"xok_return_first:\",", "\"xok_return_last:\""), of_a_handler);
}
