//! Ends of pipes in shared pages (`xok::pipe`): honest ones, and one that writes garbage.
//!
//! # Safety
//! The pages are mapped by whoever started the program, and used as these ends alone.
#![allow(unsafe_code)]

use super::mirror::set_application_word;
use crate::random::Random;
use abi::id::EnvId;
use abi::layout::PAGE_SIZE;
use core::sync::atomic::{AtomicU64, Ordering};
use xok::call;
use xok::pipe::{Reader, Writer};

/// Sends back, by the pipe in the page behind, what comes by the one at its second word from the
/// environment in its first, a word at a time, until that has died or said 0.
pub const ECHO: u64 = 42;
/// Reads as many bytes from the pipe at its second word as its third says; its report is their sum.
pub const SUM: u64 = 43;
/// Stores random words into the pipes' own words, its third word times.
pub const GARBAGE: u64 = 44;

/// Both ends of two pipes: what is read from, what is written to.
pub fn ends(partner: EnvId, from: u64, to: u64) -> (Reader, Writer) {
    // SAFETY: see the head of the file.
    unsafe { (Reader::at(from, partner), Writer::at(to, partner)) }
}

/// Echoes words.
pub fn echo(partner: EnvId, address: u64) -> u64 {
    let (mut reader, mut writer) = ends(partner, address, address + PAGE_SIZE);
    set_application_word(1);
    let mut word = [0; 8];
    let mut count = 0;
    while reader.read_all_inlined(&mut word) == Ok(true) && writer.write(&word).is_ok() {
        if word == [0; 8] {
            break;
        }
        count += 1;
    }
    count
}

/// Sums bytes.
pub fn sum(partner: EnvId, address: u64, total: u64) -> u64 {
    let (mut reader, _) = ends(partner, address, address + PAGE_SIZE);
    let mut bytes = [0; 1000];
    let (mut sum, mut left) = (0, total as usize);
    while left > 0 {
        match reader.read(&mut bytes) {
            Ok(count) if count != 0 => {
                sum += bytes[..count].iter().map(|&byte| u64::from(byte)).sum::<u64>();
                left = left.saturating_sub(count);
            }
            _ => return u64::MAX,
        }
    }
    sum
}

/// Scribbles over the positions of both pipes, and lets the other end look.
pub fn garbage(partner: EnvId, address: u64, rounds: u64) -> u64 {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for _ in 0..rounds {
        for place in [0, 64, PAGE_SIZE, PAGE_SIZE + 64] {
            // SAFETY: see the head of the file; the words are atomics to everybody.
            let word = unsafe { &*((address + place) as *const AtomicU64) };
            let value = random.next();
            // As often small and almost right as absurd.
            let value = if value & 1 == 0 { value } else { value >> 32 & 0xfff };
            word.store(value, Ordering::Relaxed);
        }
        let _ = call::yield_to(partner);
    }
    0
}
