//! One row: samples between two markers, with the time-stamp counter read beside.
//!
//! # Safety
//! Holds the marker instructions, which do nothing, and rdtsc.
#![allow(unsafe_code)]

use alloc::string::String;
use alloc::vec::Vec;
use core::arch::asm;
use core::fmt::Write;

/// What a failed preparation says.
pub type Failure = String;

/// Samples that are asked for.
pub struct Samples {
    count: usize,
    wanted: Option<Vec<u8>>,
}

impl Samples {
    /// `count` samples of the rows in the list, which commas separate; of all without one.
    pub fn new(count: usize, wanted: Option<Vec<u8>>) -> Self {
        Self { count, wanted }
    }

    fn wants(&self, name: &str) -> bool {
        let names = self.wanted.as_deref().map(|list| list.split(|&byte| byte == b','));
        names.is_none_or(|mut names| names.any(|wanted| wanted == name.as_bytes()))
    }

    /// Measures a row: `prepare` runs once, `before` each sample, `operations` of `run` in each.
    pub fn measure<T>(
        &self,
        name: &str,
        operations: u64,
        prepare: impl FnOnce() -> Result<T, Failure>,
        before: impl Fn(&mut T),
        run: impl Fn(&mut T, u64),
    ) -> Option<T> {
        if !self.wants(name) {
            return None;
        }
        xok::log!(0, "start {name}");
        let mut state = match prepare() {
            Ok(state) => state,
            Err(reason) => {
                xok::log!(0, "dash {name} {reason}");
                return None;
            }
        };
        let mut ticks = Vec::with_capacity(self.count);
        for _ in 0..self.count {
            before(&mut state);
            begin();
            let begun = now();
            run(&mut state, operations);
            ticks.push(now() - begun);
            end();
        }
        let mut line = String::new();
        for ticks in ticks {
            // Writing to a String cannot fail.
            let _ = write!(line, " {ticks}");
        }
        xok::log!(0, "row {name} operations {operations} ticks{line}");
        Some(state)
    }
}

/// The plugin's markers: `nopl 0x584f0000(%rax)`, see xtask/src/bench/plugin/count.c.
#[inline(always)]
fn begin() {
    // SAFETY: a NOP.
    unsafe { asm!(".byte 0x0f, 0x1f, 0x80, 0x00, 0x00, 0x4f, 0x58") }
}

#[inline(always)]
fn end() {
    // SAFETY: a NOP.
    unsafe { asm!(".byte 0x0f, 0x1f, 0x80, 0x01, 0x00, 0x4f, 0x58") }
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: the kernel lets programs read the counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}
