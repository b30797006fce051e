//! Which branches an input takes: the counters that the compiler puts there if it is asked to.
//!
//! `-C passes=sancov-module` with 8-bit counters makes each edge of control flow count in a byte.
//! The bytes of all packages lie one behind the other; each object says at start where they are.
//!
//! # Safety
//! The counters are written by whatever code runs. They are read and cleared byte by byte, by
//! volatile accesses, from the one thread there is.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicPtr, Ordering};

static FIRST: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static END: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// Called at start, by name, with where the counters begin and end.
// SAFETY: the name is the one that the compiler's pass calls, with these arguments.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(first: *mut u8, end: *mut u8) {
    FIRST.store(first, Ordering::Relaxed);
    END.store(end, Ordering::Relaxed);
}

/// What all inputs so far have reached.
pub struct Seen {
    /// For each counter the magnitudes that it has had, a bit each.
    magnitudes: Vec<u8>,
    first: *mut u8,
    /// How many counters were ever other than 0.
    pub edges: usize,
}

impl Seen {
    pub fn new() -> Self {
        let first = FIRST.load(Ordering::Relaxed);
        let count = END.load(Ordering::Relaxed).addr() - first.addr();
        Self { magnitudes: vec![0; count], first, edges: 0 }
    }

    /// How many counters there are: none if the compiler was not asked for them.
    pub fn counters(&self) -> usize {
        self.magnitudes.len()
    }

    /// What is counted from now on is the next input's.
    pub fn begin(&mut self) {
        for word in 0..self.magnitudes.len() / 8 {
            // SAFETY: eight counters within those there are; any alignment will do.
            unsafe { self.first.add(8 * word).cast::<u64>().write_unaligned(0) };
        }
        for at in self.magnitudes.len() / 8 * 8..self.magnitudes.len() {
            // SAFETY: a counter.
            unsafe { self.first.add(at).write_volatile(0) };
        }
    }

    /// Did the input come where none has come before, or there so often?
    pub fn end(&mut self) -> bool {
        let mut new = false;
        // Most were not counted: eight at a time.
        for (word, known) in self.magnitudes.chunks_mut(8).enumerate() {
            let at = 8 * word;
            // SAFETY: eight counters within those there are; any alignment will do.
            let all = || unsafe { self.first.add(at).cast::<u64>().read_unaligned() };
            if known.len() == 8 && all() == 0 {
                continue;
            }
            for (beside, known) in known.iter_mut().enumerate() {
                // SAFETY: a counter.
                let count = unsafe { self.first.add(at + beside).read_volatile() };
                let magnitude = MAGNITUDES[usize::from(count)];
                if magnitude & !*known != 0 {
                    self.edges += usize::from(*known == 0);
                    *known |= magnitude;
                    new = true;
                }
            }
        }
        new
    }
}

/// The class of each count, a bit: 1, 2, 3, a few, many.
const MAGNITUDES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut count = 1;
    while count < 256 {
        classes[count] = match count {
            1 => 1,
            2 => 2,
            3 => 4,
            4..=7 => 8,
            8..=15 => 16,
            16..=31 => 32,
            32..=127 => 64,
            _ => 128,
        };
        count += 1;
    }
    classes
};
