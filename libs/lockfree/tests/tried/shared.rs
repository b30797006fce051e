//! Memory that the kernel shares with a program, in loom's words: each reaches it by its own means.
#![allow(dead_code, reason = "each test has a use for some of it")]

use crate::tried::Tried;
use abi::atomic::{Atomic, Ordering};
use abi::shared::{LOAD, Memory, STEP, STORE};
use loom::cell::Cell;
use loom::sync::atomic::{AtomicU8, AtomicU64};

/// A word or a byte.
pub enum Place<A: Atomic> {
    /// Who may change it does, at any time.
    Common(A),
    /// Others say when one may touch it: loom complains if two are at it.
    Handed(Cell<A::Value>),
}

impl<A: Atomic> Place<A> {
    fn common(&self) -> &A {
        meet();
        match self {
            Place::Common(word) => word,
            Place::Handed(_) => unreachable!("a step on what only one may touch"),
        }
    }
}

loom::lazy_static! {
    static ref MEETING: AtomicU8 = AtomicU8::new(0);
}

/// Loom tries another order of two steps on a word only if nobody has had it between them, and
/// takes what happens between two steps for a part of the first. So each access here is a step on
/// one and the same word, which orders nothing; with fences it would, and nobody here has any.
fn meet() {
    MEETING.fetch_add(0, Ordering::Relaxed);
}

impl<A: Atomic> Atomic for Place<A> {
    type Value = A::Value;

    fn load(&self, order: Ordering) -> A::Value {
        meet();
        match self {
            Place::Common(word) => word.load(order),
            Place::Handed(cell) => cell.get(),
        }
    }

    fn store(&self, value: A::Value, order: Ordering) {
        meet();
        match self {
            Place::Common(word) => word.store(value, order),
            Place::Handed(cell) => cell.set(value),
        }
    }

    fn swap(&self, value: A::Value, order: Ordering) -> A::Value {
        self.common().swap(value, order)
    }

    fn fetch_add(&self, value: A::Value, order: Ordering) -> A::Value {
        self.common().fetch_add(value, order)
    }

    fn fetch_or(&self, value: A::Value, order: Ordering) -> A::Value {
        self.common().fetch_or(value, order)
    }

    fn fetch_and(&self, value: A::Value, order: Ordering) -> A::Value {
        self.common().fetch_and(value, order)
    }

    fn fetch_max(&self, value: A::Value, order: Ordering) -> A::Value {
        self.common().fetch_max(value, order)
    }

    fn compare_exchange(
        &self,
        from: A::Value,
        to: A::Value,
        done: Ordering,
        otherwise: Ordering,
    ) -> Result<A::Value, A::Value> {
        self.common().compare_exchange(from, to, done, otherwise)
    }

    fn fence(order: Ordering) {
        A::fence(order);
    }

    fn pause() {
        A::pause();
    }
}

/// Words from address 0 on, and bytes behind them.
pub struct Page {
    words: Vec<Place<Tried<AtomicU64>>>,
    bytes: Vec<Place<Tried<AtomicU8>>>,
}

impl Page {
    /// Zeros: so many words, of which those are `handed` over by others, and as many bytes, all of
    /// which are.
    pub fn new(words: u64, handed: impl Fn(u64) -> bool, bytes: usize) -> Self {
        let word = |at| {
            if handed(8 * at) {
                Place::Handed(Cell::new(0))
            } else {
                Place::Common(Tried::default())
            }
        };
        let bytes = (0..bytes).map(|_| Place::Handed(Cell::new(0)));
        Self { words: (0..words).map(word).collect(), bytes: bytes.collect() }
    }

    /// A word.
    pub fn word(&self, at: u64) -> &Place<Tried<AtomicU64>> {
        &self.words[at as usize / 8]
    }

    /// A byte behind them.
    pub fn byte(&self, at: u64) -> &Place<Tried<AtomicU8>> {
        &self.bytes[at as usize - 8 * self.words.len()]
    }
}

/// The page as the kernel has it, by the orders that the machine layer has.
pub struct Kernel<'a>(pub &'a Page);

impl Memory for Kernel<'_> {
    fn word(&self, at: u64) -> u64 {
        self.0.word(at).load(LOAD)
    }

    fn word_set(&mut self, at: u64, value: u64) {
        self.0.word(at).store(value, STORE);
    }

    fn word_or(&mut self, at: u64, bits: u64) -> u64 {
        self.0.word(at).fetch_or(bits, STEP)
    }

    fn word_add(&mut self, at: u64, value: u64) -> u64 {
        self.0.word(at).fetch_add(value, STEP)
    }

    fn fill(&mut self, at: u64, bytes: &[u8]) {
        for (at, &byte) in (at..).zip(bytes) {
            self.0.byte(at).store(byte, Ordering::Relaxed);
        }
    }
}
