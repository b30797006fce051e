//! Each processor's own half of the kernel's lock: what entry code takes for its fast path.
//!
//! ```text
//!              its own half          others' halves                 the lock
//!  entry code  takes, gives back     -                              -
//!  a hold      (it is in the kernel) takes those that are open      takes first
//! ```
//! So processors on the fast path don't meet, and who holds the lock has everything to himself, as
//! with Linux's lglock. Entry code waits a while for a half that a hold has. One that is shut costs
//! nobody anything, until somebody goes the short way on its processor.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::cpu::{self, Cpu};

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
#[repr(transparent)]
pub struct Half(AtomicU32);

impl Half {
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
    fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) & SHUT == 0
    }

    /// Waits until entry code has given it back, some sixty instructions at most, and takes it.
    fn take(&self) {
        while self.0.fetch_or(TAKEN, Ordering::Acquire) & TAKEN != 0 {
            core::hint::spin_loop();
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
    fn others(&self) -> impl Iterator<Item = &'static Cpu> + use<> {
        let bits = self.0.load(Ordering::Relaxed) >> OTHERS;
        (0..abi::limits::CPUS).filter(move |cpu| bits >> cpu & 1 != 0).map(Cpu::of)
    }
}

/// Takes what others have open; has entry code done anything since this was asked?
#[cold]
#[inline(never)]
pub fn take_all(own: &Cpu) -> bool {
    own.half.others().for_each(|cpu| cpu.half.take());
    own.half.others().fold(own.half.was_entrys(), |any, cpu| any | cpu.half.was_entrys())
}

/// Gives back what was open, at the end of a hold; if the fast path may not be gone, shuts all.
#[cold]
#[inline(never)]
pub fn give_all_back(own: &Cpu, may: bool) {
    if may {
        own.half.others().for_each(|cpu| cpu.half.give_back());
    } else {
        cpu::all().for_each(|cpu| cpu.half.begin());
    }
}

/// Opens this processor's half, within a hold, and tells all others.
#[inline(always)]
pub fn open(own: &Cpu) {
    if !own.half.is_open() {
        open_anew(own);
    }
}

#[cold]
#[inline(never)]
fn open_anew(own: &Cpu) {
    let bit = 1 << (OTHERS as usize + own.index.get());
    for cpu in cpu::all().filter(|cpu| !core::ptr::eq(*cpu, own)) {
        cpu.half.0.fetch_or(bit, Ordering::Relaxed);
    }
    own.half.0.fetch_and(!(TAKEN | SHUT), Ordering::Release);
}
