//! The trace's rings and the calls' counters: words that one at a time writes and all may read.
//!
//! The layouts are those of `abi::trace` and `abi::published::CallRecord`, in atomic words: a ring
//! is written by its own processor, with interrupts off, without the lock.

use crate::capability;
use crate::index::DomainIndex;
use crate::machine::Machine;
use crate::state::State;
use abi::call::CALLS_MAX;
use abi::capability::{DEVICE_TRACE, NAME_DEVICE, Name, WRITE};
use abi::published::{CallRecord, count, raise};
use abi::trace::{self, ALL_KINDS, Event, Kind, TraceRecord, TraceRing, WORDS};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::answer::{Answer, Refusal};
use abi::error::Error;

/// Records of a processor's ring unless the command line says more.
pub const FEW: u64 = 256;
/// Records of a processor's ring with `trace=`.
pub const MANY: u64 = 1 << 16;
/// At most this part of memory is rings.
const SHARE: u64 = 16;

/// Guards what is recorded.
const GUARD: Name = Name::of(&[NAME_DEVICE, DEVICE_TRACE]);

/// What the command line asks for: `trace=WORD[,WORD]...`, each a kind's name, `all`, or a number
/// of records for each processor's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Kinds recorded from the beginning.
    pub kinds: u64,
    /// Records of each ring, a power of two.
    pub records: u64,
}

impl Asked {
    /// Reads the value of `trace=`, if it is there. Words that mean nothing are left out.
    pub fn parse(value: Option<&str>) -> Self {
        let Some(value) = value else { return Self { kinds: 0, records: FEW } };
        let mut asked = Self { kinds: 0, records: MANY };
        for word in value.split(',') {
            if let Ok(records) = word.parse::<u32>() {
                asked.records = u64::from(records);
            } else if word == "all" {
                asked.kinds = ALL_KINDS;
            } else {
                let kind = Kind::ALL.iter().find(|kind| kind.name() == word);
                asked.kinds |= kind.map_or(0, |kind| kind.bit());
            }
        }
        asked
    }

    /// With rings that leave room in `memory` bytes for what the machine is there for.
    pub fn within(self, memory: u64, cpus: usize) -> Self {
        let room = memory / SHARE / (cpus as u64 * size_of::<TraceRecord>() as u64);
        let records = self.records.min(room).max(FEW);
        Self { records: 1 << records.ilog2(), ..self }
    }
}

/// Serves `TraceSet`.
pub fn set<M: Machine>(
    state: &State,
    machine: &mut M,
    domain: DomainIndex,
    named: u8,
    kinds: u64,
) -> Answer {
    capability::check(state, domain, named, &GUARD, WRITE)?;
    if kinds & !ALL_KINDS != 0 {
        return Err(Refusal::new(Error::BadArgument, 0));
    }
    machine.trace_set(kinds);
    Ok(0)
}

/// A [`TraceRing`] in atomic words.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Head {
    next: AtomicU64,
    records: AtomicU64,
    kinds: AtomicU64,
    zero: [AtomicU64; 5],
}

/// A [`TraceRecord`] in atomic words.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Slot([AtomicU64; WORDS]);

impl Head {
    /// Says how many records the ring has, once, and which kinds are recorded.
    pub fn describe(&self, records: u64, kinds: u64) {
        self.records.store(records, Ordering::Relaxed);
        self.kinds.store(kinds, Ordering::Relaxed);
    }
}

/// A processor's ring.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    /// What everybody reads first.
    pub head: &'a Head,
    /// The records, a power of two of them.
    pub slots: &'a [Slot],
}

impl Ring<'_> {
    /// Overwrites the oldest record. Its processor calls this, one call at a time.
    pub fn record(&self, tsc: u64, event: &Event) {
        let number = self.head.next.load(Ordering::Relaxed);
        let place = number.checked_rem(self.slots.len() as u64);
        let Some(Slot(record)) = place.and_then(|place| self.slots.get(place as usize)) else {
            return;
        };
        trace::write(&self.head.next, record, number, tsc, event);
    }
}

/// A [`CallRecord`] in atomic words. All are counted with the lock, on whatever processor; but
/// `ticks` without, by its own processor alone.
#[derive(Debug, Default)]
#[repr(C)]
pub struct CallCounters {
    count: AtomicU64,
    errors: AtomicU64,
    longest_ns: AtomicU64,
    ticks: AtomicU64,
}

impl CallCounters {
    /// It was made.
    #[inline]
    pub fn made(&self) {
        count(&self.count, 1);
    }

    /// It was made so often.
    pub(crate) fn made_often(&self, times: u64) {
        count(&self.count, times);
    }

    /// It was answered by an error.
    pub fn refused(&self) {
        count(&self.errors, 1);
    }

    /// It took so many TSC ticks.
    pub fn took(&self, ticks: u64) {
        count(&self.ticks, ticks);
    }

    /// Interrupts were off for so many nanoseconds.
    pub fn stretched(&self, ns: u64) {
        raise(&self.longest_ns, ns);
    }

    /// What readers see.
    pub fn read(&self) -> CallRecord {
        let [count, errors, longest_ns, ticks] =
            [&self.count, &self.errors, &self.longest_ns, &self.ticks]
                .map(|word| word.load(Ordering::Relaxed));
        CallRecord { count, errors, longest_ns, ticks }
    }
}

/// Where the counters of call `number` on processor `cpu` are.
#[inline]
pub const fn counters(cpu: usize, number: usize) -> usize {
    cpu * CALLS_MAX + number
}

const _: () = assert!(size_of::<Head>() == size_of::<TraceRing>());
const _: () = assert!(size_of::<Slot>() == size_of::<TraceRecord>());
const _: () = assert!(size_of::<CallCounters>() == size_of::<CallRecord>());

#[cfg(test)]
mod tests {
    use super::*;
    use abi::trace::{Read, Reader};
    use core::cell::RefCell;
    use std::vec::Vec;

    fn slots(count: usize) -> Vec<Slot> {
        (0..count).map(|_| Slot::default()).collect()
    }

    /// What is recorded under a number: every word tells it.
    fn told(number: u64) -> (u64, Event) {
        let kind = Kind::ALL[number as usize % Kind::ALL.len()];
        let event = Event { kind, detail: number as u16, env: number as u32, argument: !number };
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15), event)
    }

    fn write(ring: Ring<'_>) {
        let (tsc, event) = told(ring.head.next.load(Ordering::Relaxed));
        ring.record(tsc, &event);
    }

    /// Reads until there is nothing more: each record whole, in order, none counted twice.
    struct Follower {
        reader: Reader,
        seen: u64,
        lost: u64,
    }

    impl Follower {
        fn new() -> Self {
            Self { reader: Reader::default(), seen: 0, lost: 0 }
        }

        fn step(&mut self, ring: Ring<'_>, between: &mut dyn FnMut()) -> bool {
            let between = RefCell::new(between);
            let word = |place: u64, at: usize| {
                (between.borrow_mut())();
                ring.slots[place as usize].0[at].load(Ordering::Acquire)
            };
            let next = || {
                (between.borrow_mut())();
                ring.head.next.load(Ordering::Acquire)
            };
            match self.reader.read(ring.slots.len() as u64, word, next) {
                Read::Record(number, tsc, event) => {
                    assert_eq!((tsc, event), told(number), "record {number} is torn");
                    assert_eq!(number, self.seen + self.lost);
                    self.seen += 1;
                    true
                }
                Read::Lost(count) => {
                    assert!(count > 0);
                    self.lost += count;
                    true
                }
                Read::End => false,
            }
        }
    }

    #[test]
    fn what_fits_is_read_in_order() {
        let (head, slots) = (Head::default(), slots(8));
        let ring = Ring { head: &head, slots: &slots };
        let mut follower = Follower::new();
        assert!(!follower.step(ring, &mut || {}), "an empty ring has a record");
        for round in 0..5 {
            (0..5).for_each(|_| write(ring));
            while follower.step(ring, &mut || {}) {}
            assert_eq!((follower.seen, follower.lost), (5 * (round + 1), 0));
        }
        // Seventeen more: nine at least are gone, and told so.
        (0..17).for_each(|_| write(ring));
        while follower.step(ring, &mut || {}) {}
        assert_eq!(follower.seen + follower.lost, 25 + 17);
        assert!(follower.lost >= 9 && follower.seen > 25, "{} lost", follower.lost);
        let empty = Ring { head: &head, slots: &[] };
        write(empty);
        assert_eq!(Reader::from(9).read(0, |_, _| 7, || 8), Read::End);
    }

    /// A writer that comes between any two loads of the reader's, from a seed.
    #[test]
    fn a_record_overwritten_while_it_is_read_is_lost() {
        for seed in 1..200_u64 {
            let (head, slots) = (Head::default(), slots(8));
            let ring = Ring { head: &head, slots: &slots };
            let mut random = seed.wrapping_mul(0x2545_f491_4f6c_dd1d);
            let mut follower = Follower::new();
            let mut step = || {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let burst = if random.is_multiple_of(3) { random >> 60 } else { 0 };
                (0..burst).for_each(|_| write(ring));
            };
            for _ in 0..500 {
                follower.step(ring, &mut step);
            }
            while follower.step(ring, &mut || {}) {}
            let all = head.next.load(Ordering::Relaxed);
            assert_eq!(follower.seen + follower.lost, all, "seed {seed}");
            assert!(follower.seen > 0 && follower.lost > 0, "seed {seed}");
        }
    }

    /// Two processors: one writes as fast as it can, the other reads.
    #[test]
    fn a_concurrent_reader_sees_whole_records() {
        const ALL: u64 = 400_000;
        let (head, slots) = (Head::default(), slots(16));
        let ring = Ring { head: &head, slots: &slots };
        std::thread::scope(|scope| {
            scope.spawn(|| (0..ALL).for_each(|_| write(ring)));
            let mut follower = Follower::new();
            while follower.seen + follower.lost < ALL {
                follower.step(ring, &mut || {});
            }
            assert_eq!(follower.seen + follower.lost, ALL);
        });
    }

    #[test]
    fn the_command_line_says_how_much() {
        assert_eq!(Asked::parse(None), Asked { kinds: 0, records: FEW });
        let both = Kind::Call.bit() | Kind::PacketIn.bit();
        assert_eq!(Asked::parse(Some("call,packet-in")), Asked { kinds: both, records: MANY });
        assert_eq!(Asked::parse(Some("all,5000,x")), Asked { kinds: ALL_KINDS, records: 5000 });
        let records =
            |asked, memory, cpus| Asked { kinds: 0, records: asked }.within(memory, cpus).records;
        assert_eq!(records(5000, 1 << 30, 1), 4096);
        assert_eq!(records(0, 1 << 30, 1), FEW);
        assert_eq!(records(1 << 20, 256 << 20, 2), 1 << 18);
        assert_eq!(records(1 << 20, 16 << 20, 8), 4096);
    }
}
