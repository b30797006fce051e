//! All states that small tables reach by any call: each is reached, looked at, and cleared away.
//!
//! ```text
//!   cleared ──move──► state ──move──► state ──move──► ...      breadth first; what a state is
//!      ▲                │               │                      known by is its `key`
//!      └────clear───────┴───────────────┘                      and every way back is gone
//! ```
//! Random calls (`model`) go far and see little of what is near; here nothing near is left out. A
//! world has three accounts, domains, regions or lists, and the calls that change them. A state is
//! reached by the calls that lead to it, made anew from the cleared world, so that each of them is
//! destroyed in its midst, too: the census has to be what it was.

mod accounts;
mod capabilities;
mod gates;
mod regions;

use crate::boot::Sizes;
use crate::tests::World;
use std::collections::HashSet;
use std::fmt::Debug;
use std::vec;
use std::vec::Vec;

/// Frames of a world: tables of three domains, and what is charged.
const FRAMES: usize = 128;
/// Ways that a build without optimisation goes on from: the nearest ones. It checks at the same
/// time what it counts.
const NEAR: usize = match cfg!(debug_assertions) {
    true => 200,
    false => usize::MAX,
};

/// A small world, and the moves that change it.
trait Ground {
    /// A call, or a piece of the work that calls leave behind.
    type Move: Copy + Debug;
    /// All moves, whether or not they are allowed where they are made.
    fn moves(&self) -> Vec<Self::Move>;
    /// Makes a move; a refusal is an answer like others.
    fn make(&mut self, step: Self::Move);
    /// What the state is known by: no serials, no counts of what has been.
    fn key(&self) -> Vec<u64>;
    /// What is true in every state.
    fn check(&mut self);
    /// Destroys all that moves have made, by calls.
    fn clear(&mut self);
}

/// Tells the moves that led to a state in which something is wrong.
struct Told<'a, Step: Debug>(&'a [Step]);

impl<Step: Debug> Drop for Told<'_, Step> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::println!("the way there: {:?}", self.0);
        }
    }
}

/// Goes everywhere. There are `states`: one less has not been reached, one more is new.
fn exhaust<G: Ground>(ground: &mut G, states: usize) {
    let moves = ground.moves();
    ground.clear();
    ground.check();
    let start = ground.key();
    let mut known = HashSet::from([start.clone()]);
    let mut ways: Vec<Vec<G::Move>> = vec![vec![]];
    let mut at = 0;
    while let Some(before) = ways.get(at).cloned() {
        at += 1;
        for &step in &moves {
            let way: Vec<_> = before.iter().copied().chain([step]).collect();
            let told = Told(&way);
            way.iter().for_each(|&step| ground.make(step));
            let is_new = known.insert(ground.key());
            ground.check();
            ground.clear();
            ground.check();
            assert_eq!(ground.key(), start, "is left");
            drop(told);
            if is_new {
                ways.push(way);
            }
        }
        if at == NEAR {
            return;
        }
    }
    assert_eq!(known.len(), states);
}

/// A world with tables of three entries, as place 0 is no object's, but of environments and frames.
fn world() -> World {
    let large = Sizes::for_frames(FRAMES);
    let attachments = 4 + 3 * 4;
    World::sized(Sizes { accounts: 4, domains: 4, regions: 4, attachments, folds: 4, ..large })
}

/// A piece of the work that calls leave behind: as much as a long call leaves room for.
fn work(world: &mut World) {
    crate::work::begin(&mut world.state);
    crate::work::spend(&mut world.state, crate::work::PIECE - 10_000);
    crate::work::anybodys(&mut world.state, &mut world.machine);
}
