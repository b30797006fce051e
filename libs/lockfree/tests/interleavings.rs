//! Every order in which the parties of a structure can meet, by loom.

use lockfree::Word;
use lockfree::board::Board;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Notify};
use loom::thread;
use std::cell::Cell;
use std::collections::BTreeSet;

loom::thread_local! {
    /// How many more words this thread changes before it is gone.
    static CHANGES: Cell<u32> = Cell::new(u32::MAX);
}

/// Does this thread live to make this change?
fn lives() -> bool {
    CHANGES.with(|left| left.replace(left.get().saturating_sub(1)) > 0)
}

/// A word of loom's.
struct Tried(AtomicU64);

impl Tried {
    fn zero() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Word for Tried {
    fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn store(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    fn swap(&self, value: u64) -> u64 {
        self.0.swap(value, Ordering::AcqRel)
    }

    fn set_bits(&self, bits: u64) -> u64 {
        if lives() { self.0.fetch_or(bits, Ordering::AcqRel) } else { 0 }
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }
}

type Small = Board<Tried, 1, 2>;

/// The owner, as a program is it: takes until it has been told of all `wanted`; a post is
/// remembered, as the kernel remembers one.
fn owner(board: &Small, post: &Notify, wanted: &BTreeSet<usize>) {
    let mut told = BTreeSet::new();
    while !told.is_superset(wanted) {
        board.take(|condition| _ = told.insert(condition));
        if !told.is_superset(wanted) && board.fall_asleep() {
            post.wait();
            board.wake();
        }
    }
}

/// A thread that makes conditions true, and is gone after so many changes.
fn notifier(board: &Arc<Small>, post: &Arc<Notify>, condition: usize, changes: u32) {
    let (board, post) = (board.clone(), post.clone());
    thread::spawn(move || {
        CHANGES.with(|left| left.set(changes));
        if board.set(condition) && lives() {
            post.notify();
        }
    });
}

/// Tries every way in which threads meet with so many switches that none of them asked for.
fn try_all(switches: usize, parties: impl Fn(Arc<Small>, Arc<Notify>) + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.check(move || parties(Arc::new(Small::new(Tried::zero)), Arc::new(Notify::new())));
}

/// A lost wake-up would leave the owner waiting for ever, which loom calls a deadlock.
#[test]
fn a_board_loses_nothing_of_one_notifier() {
    try_all(4, |board, post| {
        notifier(&board, &post, 64, u32::MAX);
        owner(&board, &post, &BTreeSet::from([64]));
    });
}

#[test]
fn a_board_loses_nothing_of_two_that_share_a_word() {
    try_all(2, |board, post| {
        notifier(&board, &post, 3, u32::MAX);
        notifier(&board, &post, 5, u32::MAX);
        owner(&board, &post, &BTreeSet::from([3, 5]));
    });
}

/// Whoever set a word's first bit may die before it comes to the summary, or before its post: the
/// next one makes up for both.
#[test]
fn a_board_does_without_those_who_die() {
    for changes in 0..3 {
        try_all(2, move |board, post| {
            notifier(&board, &post, 3, changes);
            notifier(&board, &post, 5, u32::MAX);
            owner(&board, &post, &BTreeSet::from([5]));
        });
    }
}
