//! Members of a gang that spin for each other, and who gives them time.

use super::mirror::{set_application_word, set_word};
use abi::id::EnvId;
use abi::limits::SLICE_NS;
use alloc::vec::Vec;
use xok::call;
use xok::clock::now_ns;
use xok::gang::Gangs;
use xok::published::application_word;

/// How long a turn of a gang is, in nanoseconds.
pub const TURN_NS: u64 = 8 * SLICE_NS;
/// Members of each gang.
pub const WIDTH: usize = 2;
/// Slices that a leader tells of at most: as many as its application page holds.
const GIVEN_MAX: usize = 255;
/// Nobody could run.
const NO_GANG: u64 = u64::MAX;

/// Leads at the place in its sixth word; the first four are the members, gang after gang. A fifth
/// of 1 has this leader take the gangs in the other order.
pub fn lead(words: [u64; 6]) -> u64 {
    let [first, second, third, fourth, reversed, place] = words;
    let mut pairs = [[first, second], [third, fourth]];
    if reversed == 1 {
        pairs.reverse();
    }
    let mut gangs = Gangs::new(TURN_NS);
    for pair in pairs {
        gangs.add(&pair.map(|id| EnvId(id as u32)));
    }
    for given in 0.. {
        let (begins, who) = (now_ns(), gangs.slice(place as usize));
        if given < GIVEN_MAX {
            let gang = pairs
                .iter()
                .position(|pair| who.is_some_and(|who| pair[place as usize] == u64::from(who.0)));
            let gang = gang.map_or(NO_GANG, |at| (at as u64) ^ reversed);
            set_word(1 + 2 * given, begins);
            set_word(2 + 2 * given, gang);
            set_application_word(given as u64 + 1);
        }
        if who.is_none() {
            let _ = call::yield_to(EnvId::NONE);
        }
    }
    0
}

/// What a leader has given: when, by the clock, and to which gang.
pub fn given(leader: EnvId) -> Vec<(u64, u64)> {
    let word = |at: usize| application_word(leader.index(), 8 * at).unwrap_or(0);
    (0..word(0) as usize).map(|at| (word(1 + 2 * at), word(2 + 2 * at))).collect()
}

/// Where the first environment's application page tells a member's index, by what it was told.
pub const fn told_at(member: usize) -> usize {
    8 * (1 + member)
}

/// Counts as soon as its partner has: the members of even number begin.
pub fn keep_step(member: usize) -> u64 {
    let partner = loop {
        match application_word(1, told_at(member ^ 1)) {
            Some(index) if index != 0 => break index as usize,
            _ => core::hint::spin_loop(),
        }
    };
    let ahead = 1 - (member % WIDTH) as u64;
    for step in 0.. {
        while application_word(partner, 0).unwrap_or(0) + ahead <= step {
            core::hint::spin_loop();
        }
        set_application_word(step + 1);
    }
    0
}
