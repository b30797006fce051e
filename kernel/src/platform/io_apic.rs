//! The I/O APICs: which interrupt of a device goes where (82093AA data sheet §3).
//!
//! # Safety
//! Registers are reached where `map` mapped them; none of them reads or writes memory.
#![allow(unsafe_code)]

use super::{IoApic, Platform};

/// One with its registers mapped.
#[derive(Clone, Copy, Default)]
pub struct Mapped {
    registers: u64,
    first: u32,
    count: u32,
}

/// All of them.
#[derive(Clone, Copy, Default)]
pub struct IoApics {
    mapped: [Mapped; super::IO_APICS],
}

const VERSION: u32 = 1;
const REDIRECTION: u32 = 0x10;
const ACTIVE_LOW: u32 = 1 << 13;
const LEVEL: u32 = 1 << 15;
const MASKED: u32 = 1 << 16;

impl Mapped {
    fn read(&self, register: u32) -> u32 {
        // SAFETY: see the file's head.
        unsafe {
            (self.registers as *mut u32).write_volatile(register);
            ((self.registers + 0x10) as *const u32).read_volatile()
        }
    }

    fn write(&self, register: u32, value: u32) {
        // SAFETY: see the file's head.
        unsafe {
            (self.registers as *mut u32).write_volatile(register);
            ((self.registers + 0x10) as *mut u32).write_volatile(value);
        }
    }
}

impl IoApics {
    /// Maps the registers and masks everything.
    pub fn map(platform: &Platform, mut map: impl FnMut(u64, u64) -> u64) -> Self {
        let mut all = Self::default();
        let found = &platform.io_apics[..platform.io_apic_count];
        for (slot, &IoApic { address, first }) in all.mapped.iter_mut().zip(found) {
            *slot = Mapped { registers: map(address, 0x20), first, count: 0 };
            slot.count = (slot.read(VERSION) >> 16 & 0xff) + 1;
            for pin in 0..slot.count {
                slot.write(REDIRECTION + 2 * pin, MASKED);
            }
        }
        all
    }

    /// Sends a global interrupt to `target` (APIC id) as `vector`. `flags` as in MADT overrides.
    pub fn route(&self, global: u32, flags: u16, target: u32, vector: u8) {
        let holds = |at: &&Mapped| (at.first..at.first + at.count).contains(&global);
        let Some(at) = self.mapped.iter().find(holds) else { return };
        let pin = global - at.first;
        let polarity = if flags & 3 == 3 { ACTIVE_LOW } else { 0 };
        let trigger = if flags >> 2 & 3 == 3 { LEVEL } else { 0 };
        at.write(REDIRECTION + 2 * pin + 1, target << 24);
        at.write(REDIRECTION + 2 * pin, u32::from(vector) | polarity | trigger);
    }
}
