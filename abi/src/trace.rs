//! The trace: what the kernel did last, in a ring for each processor that everybody may read.
//!
//! ```text
//!  Table::Traces        TraceRing by processor: number of the next record, kinds, size
//!  Table::TraceRecords  the rings one behind the other, `records` records each
//!
//!  record   ┌───────────┬──────┬──────────────────────────────────────┬──────────┐
//!  32 bytes │ number+1  │ TSC  │ kind 0–7, detail 16–31, env 32–63    │ argument │
//!           └───────────┴──────┴──────────────────────────────────────┴──────────┘
//! ```
//! The oldest record is overwritten; while one is written its first word is 0. So a [`Reader`]
//! needs no lock and stops nobody: it takes a record only if the first word was the right one
//! before and after, and else counts it as lost.
//!
//! A record holds numbers of calls and causes, ids and lengths: no address and no byte of a
//! program's, as all may read it.

use crate::atomic::{Atomic, Ordering};
use core::sync::atomic::AtomicU64;

/// Version of the layout (`TableInfo::version` of both tables).
pub const VERSION: u32 = 2;
/// Words of a record.
pub const WORDS: usize = 4;

macro_rules! kinds {
    ($( $(#[doc = $doc:literal])+ $number:literal $name:ident $word:literal; )+) => {
        /// What a record is about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Kind { $( $(#[doc = $doc])+ $name = $number ),+ }

        impl Kind {
            /// All of them.
            pub const ALL: &[Kind] = &[$(Kind::$name),+];

            /// The kind with this number.
            pub const fn from_number(number: u8) -> Option<Kind> {
                match number { $( $number => Some(Kind::$name), )+ _ => None }
            }

            /// Its name, on the command line (`trace=`) and in texts.
            pub const fn name(self) -> &'static str {
                match self { $( Kind::$name => $word ),+ }
            }

            /// The bit that switches it on.
            pub const fn bit(self) -> u64 {
                1 << self as u8
            }
        }
    };
}

kinds! {
    /// `env` entered the kernel for the call whose number is `detail`.
    1 Call "call";
    /// The processor left the kernel for `env`. The call, upcall or interrupt before is over.
    2 Leave "leave";
    /// The call number `detail` of `env` was answered by the error in `argument`.
    3 Refused "refused";
    /// An upcall of cause `detail` (`upcall::Cause`) was delivered to `env`.
    4 Upcall "upcall";
    /// The processor is `env`'s from now on, 0: it idles.
    5 Switch "switch";
    /// Interrupt vector `detail` came, whoever ran.
    6 Interrupt "interrupt";
    /// A packet of `detail` bytes came from interface `argument` >> 56 for the ring whose id has
    /// the other bits of `argument` as its low ones, made by `env`; ring 0: nobody's filter wanted
    /// it.
    7 PacketIn "packet-in";
    /// As `PacketIn`, but the ring had no room.
    8 PacketDropped "packet-dropped";
    /// `env` sent a packet of `detail` bytes by interface `argument` >> 56.
    9 PacketOut "packet-out";
    /// A request to a block device was given to it. Reserved: there is no driver yet.
    10 BlockAsked "block-asked";
    /// A block device has answered a request. Reserved as well.
    11 BlockAnswered "block-answered";
}

/// The bits of all kinds.
pub const ALL_KINDS: u64 = {
    let mut bits = 0;
    let mut at = 0;
    while at < Kind::ALL.len() {
        bits |= Kind::ALL[at].bit();
        at += 1;
    }
    bits
};

/// What happened, without when and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is about.
    pub kind: Kind,
    /// See [`Kind`].
    pub detail: u16,
    /// Id of the environment, 0: none.
    pub env: u32,
    /// See [`Kind`].
    pub argument: u64,
}

impl Event {
    /// An event without an argument.
    pub const fn new(kind: Kind, detail: u16, env: u32) -> Self {
        Self { kind, detail, env, argument: 0 }
    }

    /// The third word of its record.
    pub const fn head(&self) -> u64 {
        self.kind as u64 | (self.detail as u64) << 16 | (self.env as u64) << 32
    }

    /// The event with these words, if its kind is known.
    pub const fn from_words(head: u64, argument: u64) -> Option<Self> {
        match Kind::from_number(head as u8) {
            None => None,
            Some(kind) => {
                Some(Self { kind, detail: (head >> 16) as u16, env: (head >> 32) as u32, argument })
            }
        }
    }
}

/// The head of a processor's ring, as [`Table::Traces`](crate::published::Table) has it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TraceRing {
    /// Number of the next record; the first is 0.
    pub next: u64,
    /// Records of the ring, a power of two; 0: the processor has none.
    pub records: u64,
    /// Bits of the kinds that are recorded now.
    pub kinds: u64,
    /// Zero.
    pub zero: [u64; 5],
}

/// A record.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TraceRecord {
    /// See the head of this file.
    pub words: [u64; WORDS],
}

/// What a [`Reader`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// A whole record: its number, when (TSC) and what.
    Record(u64, u64, Event),
    /// So many records were overwritten before they were read, or are of kinds not known here.
    Lost(u64),
    /// Nothing more yet.
    End,
}

/// Writes the record with this number, in the place of an older one; `next` is the ring's
/// [`TraceRing::next`]. One at a time writes a ring.
#[inline(always)]
pub fn write<W: Atomic<Value = u64>>(
    next: &W,
    record: &[W; WORDS],
    number: u64,
    tsc: u64,
    event: &Event,
) {
    let [stamp, when, head, argument] = record;
    stamp.store(0, Ordering::Relaxed);
    // Nobody sees a word of the new record beside the old stamp.
    W::fence(Ordering::Release);
    when.store(tsc, Ordering::Relaxed);
    head.store(event.head(), Ordering::Relaxed);
    argument.store(event.argument, Ordering::Relaxed);
    stamp.store(number + 1, Ordering::Release);
    next.store(number + 1, Ordering::Release);
}

/// How far somebody has read a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    next: u64,
}

impl Reader {
    /// Reads from this record on.
    pub const fn from(next: u64) -> Self {
        Self { next }
    }

    /// Number of the record read next.
    pub const fn position(&self) -> u64 {
        self.next
    }

    /// Reads on in a ring of `records` records; `word` loads a word of the record at a position of
    /// the ring, `next` the ring's [`TraceRing::next`].
    pub fn read(
        &mut self,
        records: u64,
        mut word: impl FnMut(u64, usize) -> u64,
        mut next: impl FnMut() -> u64,
    ) -> Read {
        self.read_in::<AtomicU64>(records, &mut word, &mut next)
    }

    /// The same of a ring of any words.
    pub fn read_in<W: Atomic<Value = u64>>(
        &mut self,
        records: u64,
        word: &mut impl FnMut(u64, usize) -> u64,
        next: &mut impl FnMut() -> u64,
    ) -> Read {
        let (number, place) = (self.next, self.next.checked_rem(records));
        let Some(place) = place.filter(|_| next() > number) else {
            return Read::End;
        };
        // It has been written, and is seen or gone.
        W::fence(Ordering::Acquire);
        let stamp = number + 1;
        if word(place, 0) == stamp {
            W::fence(Ordering::Acquire);
            let (tsc, head, argument) = (word(place, 1), word(place, 2), word(place, 3));
            W::fence(Ordering::Acquire);
            if word(place, 0) == stamp {
                self.next += 1;
                return match Event::from_words(head, argument) {
                    Some(event) => Read::Record(number, tsc, event),
                    None => Read::Lost(1),
                };
            }
        }
        // Overwritten. The oldest that is left will be soon, too: some distance is kept.
        let next = next();
        let oldest = (next + records / 8).saturating_sub(records).max(number + 1).min(next);
        self.next = oldest;
        Read::Lost(oldest - number)
    }
}

const _: () = assert!(core::mem::size_of::<TraceRing>() == 64);
const _: () = assert!(core::mem::size_of::<TraceRecord>() == 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_its_words() {
        for (at, &kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(kind as usize, at + 1, "numbers are dense");
            let event = Event { kind, detail: 0xfedc, env: 0x89ab_cdef, argument: !1 };
            assert_eq!(Event::from_words(event.head(), event.argument), Some(event));
        }
        assert_eq!(Event::from_words(0, 0), None);
        assert_eq!(Event::from_words(Kind::ALL.len() as u64 + 1, 0), None);
        assert_eq!(ALL_KINDS, (2 << Kind::ALL.len()) - 2);
    }
}
