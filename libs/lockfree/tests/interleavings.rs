//! Every order in which the parties of a structure can meet, by loom.

mod tried;

use abi::atomic::{Atomic, Ordering};
use lockfree::board::Board;
use loom::sync::atomic::AtomicU64;
use loom::sync::{Arc, Notify};
use loom::thread;
use std::cell::Cell;
use std::collections::BTreeSet;
use tried::{Tried, try_all};

loom::thread_local! {
    /// How many more words this thread changes before it is gone.
    static CHANGES: Cell<u32> = Cell::new(u32::MAX);
}

/// Does this thread live to make this change?
fn lives() -> bool {
    CHANGES.with(|left| left.replace(left.get().saturating_sub(1)) > 0)
}

/// A word of loom's, whose bits are set by those who live.
#[derive(Default)]
struct Mortal(Tried<AtomicU64>);

impl Atomic for Mortal {
    type Value = u64;

    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }

    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        if lives() { self.0.fetch_or(bits, order) } else { 0 }
    }

    fn fetch_add(&self, _: u64, _: Ordering) -> u64 {
        unreachable!("a board counts nothing")
    }

    fn fetch_and(&self, _: u64, _: Ordering) -> u64 {
        unreachable!("a board's bits are taken all at once")
    }

    fn fetch_max(&self, _: u64, _: Ordering) -> u64 {
        unreachable!("a board compares nothing")
    }

    fn compare_exchange(&self, _: u64, _: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
        unreachable!("a board compares nothing")
    }

    fn fence(order: Ordering) {
        Tried::<AtomicU64>::fence(order);
    }

    fn pause() {
        Tried::<AtomicU64>::pause();
    }
}

type Small = Board<Mortal, 1, 2>;

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

/// Parties around a board that is empty, and a post for its owner.
fn meet(switches: usize, parties: impl Fn(Arc<Small>, Arc<Notify>) + Sync + Send + 'static) {
    try_all(switches, move || {
        parties(Arc::new(Small::new(Mortal::default)), Arc::new(Notify::new()));
    });
}

/// A lost wake-up would leave the owner waiting for ever, which loom calls a deadlock.
#[test]
fn a_board_loses_nothing_of_one_notifier() {
    meet(4, |board, post| {
        notifier(&board, &post, 64, u32::MAX);
        owner(&board, &post, &BTreeSet::from([64]));
    });
}

#[test]
fn a_board_loses_nothing_of_two_that_share_a_word() {
    meet(2, |board, post| {
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
        meet(2, move |board, post| {
            notifier(&board, &post, 3, changes);
            notifier(&board, &post, 5, u32::MAX);
            owner(&board, &post, &BTreeSet::from([5]));
        });
    }
}
