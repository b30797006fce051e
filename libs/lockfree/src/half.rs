//! Each processor's own half of a lock: what its entry code takes for a path without the lock.
//!
//! ```text
//!              its own half          others' halves                 the lock
//!  entry code  takes, gives back     -                              -
//!  a hold      (it is in the kernel) takes those that are open      takes first
//! ```
//! So processors on the fast path don't meet, and who holds the lock has everything to himself, as
//! with Linux's lglock. Entry code waits a while for a half that a hold has. One that is shut costs
//! nobody anything, until somebody goes the short way on its processor.
//!
//! ```text
//!  bit 0 taken, 1 shut, 8 entry code has had it, 16… whose halves are open but this one
//! ```

use abi::atomic::{Atomic, Ordering};

/// Entry code or a hold has it, which is not for long.
pub const TAKEN: u32 = 1;
/// Set with `TAKEN`: the fast path may not be gone.
pub const SHUT: u32 = 2;
/// Entry code has had it since this was asked.
const BY_ENTRY: u32 = 1 << 8;
/// The first of the bits for other processors whose halves are open.
const OTHERS: u32 = 16;

const _: () = assert!(OTHERS as usize + abi::limits::CPUS <= u32::BITS as usize);

/// What entry code gives it back with: the first two bytes.
pub const FREE_BY_ENTRY: u16 = BY_ENTRY as u16;

/// A processor's half. Entry code takes it by its lowest bit, and changes the two lower bytes only.
/// All else is changed under the lock.
#[derive(Debug)]
#[repr(transparent)]
pub struct Half<W>(pub W);

impl<W: Atomic<Value = u32>> Half<W> {
    /// Nobody goes the fast path here yet.
    pub fn begin(&self) {
        self.0.store(TAKEN | SHUT, Ordering::Relaxed);
    }

    /// Need a hold of the lock by this processor not look at any half?
    #[inline(always)]
    pub fn is_quiet(&self) -> bool {
        self.0.load(Ordering::Relaxed) < BY_ENTRY
    }

    /// May such a hold leave everything as it is? `may`: the fast path may be gone behind it.
    #[inline(always)]
    pub fn may_stay(&self, may: impl FnOnce() -> bool) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        word == TAKEN | SHUT || word == 0 && may()
    }

    /// Is it open, while this processor itself is in the kernel?
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) & SHUT == 0
    }

    /// Waits until entry code has given it back, some sixty instructions at most, and takes it.
    fn take(&self) {
        while self.0.fetch_or(TAKEN, Ordering::Acquire) & TAKEN != 0 {
            W::pause();
        }
    }

    fn give_back(&self) {
        self.0.fetch_and(!TAKEN, Ordering::Release);
    }

    /// Has entry code had it since this was asked? Of one that entry code can't take now.
    fn was_entrys(&self) -> bool {
        self.0.fetch_and(!BY_ENTRY, Ordering::Relaxed) & BY_ENTRY != 0
    }

    /// The processors whose halves are open but this one.
    fn others(&self) -> impl Iterator<Item = usize> + use<W> {
        let bits = self.0.load(Ordering::Relaxed) >> OTHERS;
        (0..abi::limits::CPUS).filter(move |cpu| bits >> cpu & 1 != 0)
    }

    /// For this processor's hold, takes what others have open; has entry code done anything since
    /// this was asked? `of`: a processor's half.
    #[inline(always)]
    pub fn take_all<'a>(&self, of: impl Fn(usize) -> &'a Self) -> bool
    where
        W: 'a,
    {
        self.others().for_each(|cpu| of(cpu).take());
        self.others().fold(self.was_entrys(), |any, cpu| any | of(cpu).was_entrys())
    }

    /// Gives back what was open, at the end of a hold.
    #[inline(always)]
    pub fn give_all_back<'a>(&self, of: impl Fn(usize) -> &'a Self)
    where
        W: 'a,
    {
        self.others().for_each(|cpu| of(cpu).give_back());
    }

    /// Opens this half, processor `own`'s, within a hold, and tells all `others`.
    #[inline(always)]
    pub fn open<'a>(&self, own: usize, others: impl Iterator<Item = &'a Self>)
    where
        W: 'a,
    {
        let bit = 1 << (OTHERS as usize + own);
        for other in others {
            other.0.fetch_or(bit, Ordering::Relaxed);
        }
        self.0.fetch_and(!(TAKEN | SHUT), Ordering::Release);
    }
}
