//! Vector registers: stored and loaded by the kernel, never left to another environment.
//!
//! For who says that it saves them itself, or has none, nothing is stored or loaded; it gets them
//! in the initial state, or switched off. While they are off they are in the initial state, so
//! that nothing of others can be guessed from them (decisions 11).
//!
//! # Safety
//! Areas are frames of type `Vector`, which no program can write: what is loaded is what was
//! stored, or the initial state. The kernel itself uses no vector register.
#![allow(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::Ordering;

use abi::layout::PAGE_SIZE;
use abi::setup::{FLAG_NO_VECTOR, FLAG_OWN_VECTOR};

use crate::cpu::Cpu;
use crate::features;
use crate::physical::{virtual_address, word, word32, zero};
use crate::registers::{read_cr0, write_cr0};

/// Bytes of the area in a `Vector` frame; what is kept of who is away follows, and the predicate.
pub const VECTOR_BYTES: u64 = kernel_core::visit::OFFSET;

/// x87 control word and MXCSR after reset (SDM 1 §8.1.5, §10.2.3).
const CONTROL: u32 = 0x37f;
const MXCSR: u32 = 0x1f80;

/// Writes the initial state into an area.
pub fn initialize(area: u64) {
    zero(area, VECTOR_BYTES);
    word(area).store(u64::from(CONTROL), Ordering::Relaxed);
    word32(area + 24).store(MXCSR, Ordering::Relaxed);
}

/// The initial state where XRSTOR and FXRSTOR look for it: the header after the first 512 bytes
/// says that everything is as after reset, but for MXCSR, which is always loaded.
#[repr(C, align(64))]
struct Initial([u32; 144]);

static INITIAL: Initial = {
    let mut words = [0; 144];
    words[0] = CONTROL;
    words[6] = MXCSR;
    Initial(words)
};

/// CR0.TS: what uses the registers is a fault.
const TASK_SWITCHED: u64 = 1 << 3;
/// Either of them, and the kernel neither stores nor loads.
const NOT_KEPT: u64 = FLAG_OWN_VECTOR | FLAG_NO_VECTOR;

/// Where those of an environment with these flags are stored: the area, a page, as the kernel sees
/// it, and which of these two flags it has.
pub fn place(flags: u8, area: u64) -> u64 {
    virtual_address(area) | u64::from(flags) & NOT_KEPT
}

const _: () = assert!(NOT_KEPT < PAGE_SIZE);

/// Takes the registers from an environment whose place this is.
#[inline(always)]
pub fn take(cpu: &Cpu, place: u64) {
    if place & NOT_KEPT == 0 {
        store(place);
        moved(cpu);
    }
}

/// Gives them to one whose place this is.
#[inline(always)]
pub fn give(cpu: &Cpu, place: u64) {
    if place & NOT_KEPT == 0 {
        switch_on(cpu);
        load(place);
        moved(cpu);
    } else if place & FLAG_NO_VECTOR != 0 {
        switch_off(cpu);
    } else {
        clear(cpu);
        switch_on(cpu);
    }
}

/// Those on this processor get the initial state.
#[inline(always)]
pub fn clear(cpu: &Cpu) {
    // While they are off they are in it.
    if !cpu.vectors_off.get() {
        load(&raw const INITIAL as u64);
    }
}

/// They travel to one with these flags, or stay with it: it has them, or none.
#[inline(always)]
pub fn carry(cpu: &Cpu, flags: u8) {
    if u64::from(flags) & FLAG_NO_VECTOR != 0 {
        switch_off(cpu);
    } else {
        switch_on(cpu);
    }
}

#[inline(always)]
fn moved(cpu: &Cpu) {
    cpu.vector_moves.set(cpu.vector_moves.get().wrapping_add(1));
}

#[inline(always)]
fn switch_on(cpu: &Cpu) {
    if cpu.vectors_off.get() {
        cpu.vectors_off.set(false);
        // SAFETY: what programs do with their registers breaks nothing here.
        unsafe { asm!("clts", options(nomem, nostack)) }
    }
}

#[cold]
fn switch_off(cpu: &Cpu) {
    if !cpu.vectors_off.replace(true) {
        load(&raw const INITIAL as u64);
        // SAFETY: only TS changes; no memory is seen otherwise.
        unsafe { write_cr0(read_cr0() | TASK_SWITCHED) }
    }
}

/// Stores what this processor's registers hold for the environment that they travel with.
pub fn put(cpu: &Cpu, area: u64) {
    if cpu.vectors_off.get() {
        initialize(area);
    } else {
        store(virtual_address(area));
    }
}

#[inline(always)]
fn store(at: u64) {
    // SAFETY: see the file's head; the frame is aligned and large enough (checked at boot).
    unsafe {
        if features::xcr0() != 0 {
            asm!("xsave64 [{}]", in(reg) at, in("eax") u32::MAX, in("edx") u32::MAX,
                 options(nostack));
        } else {
            asm!("fxsave64 [{}]", in(reg) at, options(nostack));
        }
    }
}

#[inline(always)]
fn load(at: u64) {
    // SAFETY: as above, or it is `INITIAL`, which has all that is read of it.
    unsafe {
        if features::xcr0() != 0 {
            asm!("xrstor64 [{}]", in(reg) at, in("eax") u32::MAX, in("edx") u32::MAX,
                 options(nostack));
        } else {
            asm!("fxrstor64 [{}]", in(reg) at, options(nostack));
        }
    }
}
