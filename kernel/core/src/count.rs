//! Counters of what there is: none goes below nothing, whatever a call can bring about.
//!
//! What is taken from a counter has been counted before: that is an invariant of the model's, not
//! of the type's. Where it does not hold, tests end at once; the kernel's counter stays at 0, and
//! the machine goes on.

/// A counter.
pub(crate) trait Count: Sized {
    /// Takes what was counted before.
    fn less(&mut self, by: Self);
}

macro_rules! counts {
    ($($kind:ty)+) => { $(
        impl Count for $kind {
            #[inline(always)]
            #[track_caller]
            fn less(&mut self, by: Self) {
                debug_assert!(*self >= by, "{by} of {self} that were counted");
                *self = self.saturating_sub(by);
            }
        }
    )+ };
}

counts!(u8 u16 u32 u64 usize);

#[cfg(test)]
mod tests {
    use super::Count;

    #[test]
    fn what_was_counted_can_be_taken() {
        let mut count = 3_u16;
        count.less(1);
        count.less(2);
        assert_eq!(count, 0);
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "1 of 0 that were counted")]
    fn more_than_was_counted_is_loud_here() {
        0_u64.less(1);
    }
}
