//! Byte rings in shared regions: where to read and write next, by two counters that only grow.
//!
//! ```text
//!  0 head u64: bytes ever written   8 tail u64: bytes ever read   data: `capacity` bytes
//! ```
//! Both counters are changed by compare-and-write only, so that nobody's death leaves a lock.

/// Offset of the head word.
pub const HEAD: u64 = 0;
/// Offset of the tail word.
pub const TAIL: u64 = 8;

/// The shape of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Offset of the first data byte in the region.
    pub data: u64,
    /// Bytes that it holds at most.
    pub capacity: u64,
}

/// A contiguous piece of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset in the region.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Ring {
    /// Can that be? A peer may have written nonsense: more than the ring holds, or more than
    /// anybody writes in a lifetime. Of counters that can be, sums with lengths do not overflow.
    #[inline]
    pub fn can_be(&self, head: u64, tail: u64) -> bool {
        tail <= head && head - tail <= self.capacity && head <= i64::MAX as u64
    }

    /// Where both counters of a ring begin anew that held nonsense: elsewhere than the tail was, so
    /// that a program goes on that waits for the tail to move.
    pub fn begin_again(tail: u64) -> u64 {
        u64::from(tail == 0)
    }

    /// Bytes waiting to be read; a peer may have written nonsense, so never more than fit.
    #[inline(always)]
    pub fn used(&self, head: u64, tail: u64) -> u64 {
        head.wrapping_sub(tail).min(self.capacity)
    }

    /// Bytes that may be written.
    #[inline]
    pub fn free(&self, head: u64, tail: u64) -> u64 {
        self.capacity - self.used(head, tail)
    }

    /// The first contiguous piece of `len` bytes that begin `position` bytes from the start of
    /// time.
    #[inline(always)]
    pub fn span(&self, position: u64, len: u64) -> Span {
        let at = position % self.capacity;
        Span { offset: self.data + at, len: len.min(self.capacity - at) }
    }
}

/// How many bytes a pipe with `free` bytes of room takes of a `write` of `len` now, `None` if it
/// must wait: up to `PIPE_BUF` bytes go in together or not at all (pipe(7)).
pub fn writable(free: u64, len: u64) -> Option<u64> {
    if len <= PIPE_BUF { (free >= len).then_some(len) } else { (free > 0).then(|| free.min(len)) }
}

/// Bytes that a pipe takes atomically (limits.h).
pub const PIPE_BUF: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Ring = Ring { data: 64, capacity: 100 };

    #[test]
    fn a_ring_begins_anew_elsewhere() {
        for tail in [0, 1, 99, u64::MAX] {
            let begin = Ring::begin_again(tail);
            assert!(begin != tail && RING.can_be(begin, begin), "tail {tail}");
        }
    }

    #[test]
    fn spans_stop_at_the_end() {
        assert_eq!(RING.span(0, 10), Span { offset: 64, len: 10 });
        assert_eq!(RING.span(95, 10), Span { offset: 159, len: 5 });
        assert_eq!(RING.span(1000, 10), Span { offset: 64, len: 10 });
    }

    #[test]
    fn full_and_empty_differ() {
        assert_eq!((RING.used(7, 7), RING.free(7, 7)), (0, 100));
        assert_eq!((RING.used(107, 7), RING.free(107, 7)), (100, 0));
    }

    #[test]
    fn nonsense_counters_stay_in_range() {
        assert_eq!((RING.used(5, 7), RING.free(5, 7)), (100, 0));
        assert!(RING.can_be(7, 7) && RING.can_be(107, 7) && !RING.can_be(1 << 63, 1 << 63));
        assert!(!RING.can_be(5, 7) && !RING.can_be(108, 7) && !RING.can_be(u64::MAX, u64::MAX));
    }

    #[test]
    fn small_writes_are_whole_or_wait() {
        assert_eq!(writable(192, 193), None);
        assert_eq!(writable(192, 192), Some(192));
        assert_eq!(writable(192, 5000), Some(192));
        assert_eq!(writable(0, 5000), None);
    }
}
