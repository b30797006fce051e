//! Circular lists threaded through environment records, and the heap of deadlines.
//!
//! A record is in at most one list of each kind; a head is the index of the first member, 0 when
//! the list is empty (index 0 is never an environment). The heap's slot `n` is stored in record
//! `n`, so it needs no memory of its own.

use crate::count::Count;
use crate::env::Env;
use crate::index::{EnvIndex, Slots, kind};

/// The table that they are threaded through.
type Envs = Slots<kind::Env, Env>;

/// The lists a record can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Those that take turns at a slice position.
    Ring = 0,
    /// Those an event has woken, who may borrow.
    Front = 1,
    /// Sleepers with a predicate.
    Watch = 2,
}

/// How many kinds there are.
pub const KINDS: usize = 3;

/// Neighbours in one list; both 0: not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The one after.
    pub next: u16,
    /// The one before.
    pub previous: u16,
}

/// Is the environment in a list of this kind?
#[inline]
pub fn contains(envs: &Envs, kind: Kind, index: EnvIndex) -> bool {
    envs[index].links[kind as usize].next != 0
}

/// The member after this one.
#[inline]
pub fn next(envs: &Envs, kind: Kind, index: EnvIndex) -> EnvIndex {
    EnvIndex::from(envs[index].links[kind as usize].next)
}

/// Appends an environment that is in no list of this kind.
#[inline(always)]
pub fn push(envs: &mut Envs, head: &mut u16, kind: Kind, index: EnvIndex) {
    let kind = kind as usize;
    debug_assert_eq!(envs[index].links[kind], Link::default());
    let this = index.link();
    if *head == 0 {
        envs[index].links[kind] = Link { next: this, previous: this };
        *head = this;
        return;
    }
    let first = *head;
    let last = envs[EnvIndex::from(first)].links[kind].previous;
    envs[index].links[kind] = Link { next: first, previous: last };
    envs[EnvIndex::from(last)].links[kind].next = this;
    envs[EnvIndex::from(first)].links[kind].previous = this;
}

/// Takes an environment out of the list with this head; nothing if it is in none.
#[inline(always)]
pub fn remove(envs: &mut Envs, head: &mut u16, kind: Kind, index: EnvIndex) {
    let kind = kind as usize;
    let link = core::mem::take(&mut envs[index].links[kind]);
    if link.next == 0 {
        return;
    }
    if EnvIndex::from(link.next) == index {
        *head = 0;
        return;
    }
    envs[EnvIndex::from(link.previous)].links[kind].next = link.next;
    envs[EnvIndex::from(link.next)].links[kind].previous = link.previous;
    if EnvIndex::from(*head) == index {
        *head = link.next;
    }
}

/// A binary heap of environments by `Env::alarm`, the earliest first; slots begin at 1.
#[derive(Clone, Copy, Debug)]
pub struct Heap {
    len: u16,
    soonest: u64,
}

impl Default for Heap {
    fn default() -> Self {
        Self { len: 0, soonest: u64::MAX }
    }
}

impl Heap {
    /// The environment with the earliest alarm.
    pub fn first(&self, envs: &Envs) -> Option<EnvIndex> {
        (self.len > 0).then(|| EnvIndex::from(envs[of(1)].heap_entry))
    }

    /// The earliest alarm, `u64::MAX`: none.
    #[inline]
    pub fn soonest(&self) -> u64 {
        self.soonest
    }

    /// Gives an environment another alarm; `u64::MAX` is none.
    pub fn set(&mut self, envs: &mut Envs, index: EnvIndex, alarm: u64) {
        self.place(envs, index, alarm);
        self.soonest = self.first(envs).map_or(u64::MAX, |first| envs[first].alarm);
    }

    fn place(&mut self, envs: &mut Envs, index: EnvIndex, alarm: u64) {
        envs[index].alarm = alarm;
        let slot = usize::from(envs[index].heap_slot);
        match (slot, alarm) {
            (0, u64::MAX) => {}
            (0, _) => {
                self.len += 1;
                let slot = usize::from(self.len);
                place(envs, slot, index);
                rise(envs, slot);
            }
            (_, u64::MAX) => self.take_out(envs, slot),
            _ => {
                rise(envs, slot);
                let slot = usize::from(envs[index].heap_slot);
                self.sink(envs, slot);
            }
        }
    }

    fn take_out(&mut self, envs: &mut Envs, slot: usize) {
        let gone = EnvIndex::from(envs[of(slot)].heap_entry);
        let last = usize::from(self.len);
        self.len.less(1);
        envs[gone].heap_slot = 0;
        let moved = EnvIndex::from(core::mem::take(&mut envs[of(last)].heap_entry));
        if last != slot {
            place(envs, slot, moved);
            rise(envs, slot);
            let slot = usize::from(envs[moved].heap_slot);
            self.sink(envs, slot);
        }
    }

    fn sink(&self, envs: &mut Envs, mut slot: usize) {
        let len = usize::from(self.len);
        loop {
            let mut least = slot;
            for child in [2 * slot, 2 * slot + 1] {
                if child <= len && alarm_at(envs, child) < alarm_at(envs, least) {
                    least = child;
                }
            }
            if least == slot {
                return;
            }
            exchange(envs, slot, least);
            slot = least;
        }
    }
}

/// The record that a slot is stored in.
#[inline(always)]
fn of(slot: usize) -> EnvIndex {
    EnvIndex::new(slot)
}

fn place(envs: &mut Envs, slot: usize, index: EnvIndex) {
    envs[of(slot)].heap_entry = index.link();
    envs[index].heap_slot = slot as u16;
}

fn alarm_at(envs: &Envs, slot: usize) -> u64 {
    envs[EnvIndex::from(envs[of(slot)].heap_entry)].alarm
}

fn exchange(envs: &mut Envs, one: usize, other: usize) {
    let (first, second) = (envs[of(one)].heap_entry, envs[of(other)].heap_entry);
    place(envs, one, second.into());
    place(envs, other, first.into());
}

fn rise(envs: &mut Envs, mut slot: usize) {
    while slot > 1 && alarm_at(envs, slot) < alarm_at(envs, slot / 2) {
        exchange(envs, slot, slot / 2);
        slot /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heap_gives_alarms_in_order() {
        let mut envs = Envs::new(vec![Env::default(); 64].leak());
        let mut heap = Heap::default();
        let mut seed = 7u64;
        for round in 0..2000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let index = 1 + (seed >> 33) as usize % 63;
            let alarm = if round % 3 == 0 { u64::MAX } else { seed >> 40 };
            heap.set(&mut envs, EnvIndex::new(index), alarm);
            let least =
                envs.iter().skip(1).filter(|env| env.heap_slot != 0).map(|env| env.alarm).min();
            assert_eq!(heap.first(&envs).map(|first| envs[first].alarm), least);
            assert_eq!(heap.soonest(), least.unwrap_or(u64::MAX));
        }
    }

    #[test]
    fn lists_keep_order_and_lose_nobody() {
        let mut envs = Envs::new(vec![Env::default(); 8].leak());
        let mut head = 0;
        for index in 1..6 {
            push(&mut envs, &mut head, Kind::Ring, EnvIndex::new(index));
        }
        remove(&mut envs, &mut head, Kind::Ring, EnvIndex::new(1));
        remove(&mut envs, &mut head, Kind::Ring, EnvIndex::new(4));
        remove(&mut envs, &mut head, Kind::Ring, EnvIndex::new(4));
        let mut seen = vec![];
        let mut at = usize::from(head);
        loop {
            seen.push(at);
            at = next(&envs, Kind::Ring, EnvIndex::new(at)).at();
            if at == usize::from(head) {
                break;
            }
        }
        assert_eq!(seen, [2, 3, 5]);
    }
}
