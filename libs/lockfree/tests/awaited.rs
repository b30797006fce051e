//! Every order in which threads can meet at a lock for which they sleep.
//!
//! One has it, and nobody sleeps for ever: a lost wake-up would leave one waiting, which loom calls
//! a deadlock.

mod tried;

use lockfree::awaited::Awaited;
use loom::cell::Cell;
use loom::sync::atomic::AtomicU64;
use loom::sync::{Arc, Notify};
use loom::thread;
use tried::{Tried, try_all};

struct Space {
    lock: Awaited<Tried<AtomicU64>, 1>,
    posts: [Notify; 3],
    inside: Cell<u32>,
}

/// A thread of the space: is inside so often.
fn enter(space: &Space, number: usize, times: u32, looks: usize) {
    let own = number as u64 + 1;
    for _ in 0..times {
        if !space.lock.try_take(own) {
            space.lock.contend(own, number, looks, |_| space.posts[number].wait());
        }
        // Loom complains if somebody else is inside.
        space.inside.set(space.inside.get() + 1);
        if space.lock.give_back()
            && let Some(sleeper) = space.lock.next()
        {
            // A post is remembered, as the kernel remembers one.
            space.posts[sleeper].notify();
        }
    }
}

fn threads(switches: usize, times: &'static [u32], looks: usize) {
    try_all(switches, move || {
        let space = Arc::new(Space {
            lock: Awaited::new(Tried::default(), [Tried::default()]),
            posts: [(); 3].map(|()| Notify::new()),
            inside: Cell::new(0),
        });
        let others: Vec<_> = (1..times.len())
            .map(|number| {
                let space = space.clone();
                thread::spawn(move || enter(&space, number, times[number], looks))
            })
            .collect();
        enter(&space, 0, times[0], looks);
        others.into_iter().for_each(|other| other.join().expect("another thread"));
        assert_eq!(space.inside.get(), times.iter().sum());
    });
}

#[test]
fn two_threads_are_inside_in_turn() {
    threads(4, &[2, 2], 1);
}

#[test]
fn nobody_of_three_sleeps_for_ever() {
    threads(2, &[1, 1, 1], 0);
    threads(1, &[1, 2, 1], 1);
}
