//! A notification board: which of thousands of conditions hold, and one post for who waits.
//!
//! ```text
//!              a page                                       condition 4097
//!  byte 0      asleep                                            │
//!  byte 8      7 summaries, a bit for each word of theirs   summary 1, bit 0
//!  byte 64     448 words, a bit for each condition          word 64, bit 1
//! ```
//! Whoever makes a condition true sets its bit and the word's bit in the summary; if the owner says
//! that it sleeps, a post wakes it. The owner looks through seven words, whatever their number of
//! conditions: what a notification costs does not grow with the conditions there are, where a
//! predicate grows with each of them.
//!
//! Nobody waits for anybody, and nothing is lost if a notifier dies or stops between two steps: the
//! next one looks at the summary and at the owner's word again, whoever set what before.
//!
//! The page is shared with those who notify; all that one of them can do by storing anything at
//! all is to make conditions seem true that are not, or to have its own forgotten. So the owner
//! looks whether what it is told is so.

use abi::atomic::{Atomic, Ordering};

/// Conditions of a word.
const BITS: usize = 64;

/// `SUMMARIES` times `WORDS` words of conditions; `WORDS` is 64 at most.
#[derive(Debug)]
#[repr(C)]
pub struct Board<W, const SUMMARIES: usize, const WORDS: usize> {
    asleep: W,
    summaries: [W; SUMMARIES],
    words: [[W; WORDS]; SUMMARIES],
}

/// A board that fits a page.
pub type Page = Board<core::sync::atomic::AtomicU64, 7, BITS>;

const _: () = assert!(core::mem::size_of::<Page>() <= 4096);

impl<W: Atomic<Value = u64>, const SUMMARIES: usize, const WORDS: usize>
    Board<W, SUMMARIES, WORDS>
{
    /// How many conditions there are.
    pub const CONDITIONS: usize = SUMMARIES * WORDS * BITS;

    /// No condition holds, and the owner is awake; `zero` makes words of zero.
    pub fn new(mut zero: impl FnMut() -> W) -> Self {
        const { assert!(WORDS <= BITS, "a summary has a bit for each of its words") };
        Self {
            asleep: zero(),
            summaries: core::array::from_fn(|_| zero()),
            words: core::array::from_fn(|_| core::array::from_fn(|_| zero())),
        }
    }

    /// The condition holds. Must the owner be posted to? One that there is not holds never.
    #[inline]
    pub fn set(&self, condition: usize) -> bool {
        let (summary, word) = (condition / BITS / WORDS, condition / BITS % WORDS);
        let Some(words) = self.words.get(summary) else { return false };
        words[word].fetch_or(1 << (condition % BITS), Ordering::AcqRel);
        // Looked at each time: who set the word's first bit may be gone before it came here.
        if self.summaries[summary].load(Ordering::Acquire) >> word & 1 == 0 {
            self.summaries[summary].fetch_or(1 << word, Ordering::AcqRel);
        }
        // The owner says that it sleeps and then looks; we set and then look whether it sleeps.
        W::fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Acquire) != 0
    }

    /// The owner's: takes the conditions that hold, in order, and tells `each` of them.
    #[inline]
    pub fn take(&self, mut each: impl FnMut(usize)) {
        for (number, (summary, words)) in self.summaries.iter().zip(&self.words).enumerate() {
            if summary.load(Ordering::Acquire) == 0 {
                continue;
            }
            // The summary before its words: a bit that is set between the two is set again there.
            for word in ones(summary.swap(0, Ordering::AcqRel)).filter(|&word| word < WORDS) {
                let first = (number * WORDS + word) * BITS;
                ones(words[word].swap(0, Ordering::AcqRel)).for_each(|bit| each(first + bit));
            }
        }
    }

    /// The owner's: says that it sleeps, if no condition holds; may it?
    #[inline]
    pub fn fall_asleep(&self) -> bool {
        self.asleep.store(1, Ordering::Release);
        W::fence(Ordering::SeqCst);
        let nothing = self.summaries.iter().all(|word| word.load(Ordering::Acquire) == 0);
        if !nothing {
            self.wake();
        }
        nothing
    }

    /// The owner's: it does not sleep any more. Posts may still come, of those who saw it asleep.
    #[inline]
    pub fn wake(&self) {
        self.asleep.store(0, Ordering::Release);
    }
}

/// The places of the ones, lowest first.
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (place < BITS).then_some(place)
    })
}
