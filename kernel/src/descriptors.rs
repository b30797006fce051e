//! Segments, task state and interrupt table of a processor.
//!
//! ```text
//!  0x10 kernel code   0x18 kernel data   0x28 user data (0x2b)   0x30 user code (0x33)
//!  0x40 task state (16 bytes)            0x08, 0x20 absent: no 32-bit code
//! ```
//!
//! # Safety
//! Writes the tables in the processor's own area, then loads them; segments are flat, and each
//! gate leads to a stub of `entry`.
#![allow(unsafe_code)]

use core::arch::asm;

use kernel_core::exit::MASKED_FLAGS;

use crate::cpu::{self, Cpu, EXCEPTION_STACKS, area};
use crate::entry;
use crate::registers::{msr, wrmsr};

const KERNEL_CS: u64 = 0x10;
const TSS_SELECTOR: u16 = 0x40;

/// Flat segments (SDM 3A §3.4.5): kernel code, kernel data, user data, user code.
const SEGMENTS: [u64; 8] = [
    0,
    0,
    0x00af_9b00_0000_ffff,
    0x00cf_9300_0000_ffff,
    0,
    0x00cf_f300_0000_ffff,
    0x00af_fb00_0000_ffff,
    0,
];

/// TSS (SDM 3A §8.7): RSP0 at 4 (`cpu::RSP0`), IST1 at 36, map base at 102.
const TSS_BYTES: u64 = 104;
const TSS_IST: u64 = 36;
const TSS_MAP: u64 = 102;

fn exception_stack(vector: u8) -> u64 {
    match vector {
        1 => 1,
        2 => 2,
        18 => 3,
        8 => 4,
        _ => 0,
    }
}

/// Fills in and loads everything for this processor, and where `syscall` enters.
pub fn load(cpu: &Cpu) {
    let index = cpu.index.get();
    let base = area(index);
    let gdt = (base + cpu::GDT) as *mut u64;
    let tss = base + cpu::TSS;
    // SAFETY: the pages are mapped and ours.
    unsafe {
        for (n, segment) in SEGMENTS.into_iter().enumerate() {
            gdt.add(n).write(segment);
        }
        let low = (TSS_BYTES - 1) | (tss & 0xff_ffff) << 16 | 0x89 << 40 | (tss >> 24 & 0xff) << 56;
        gdt.add(8).write(low);
        gdt.add(9).write(tss >> 32);
        ((tss + TSS_MAP) as *mut u16).write_unaligned(TSS_BYTES as u16);
        for (n, top) in EXCEPTION_STACKS.into_iter().enumerate() {
            ((tss + TSS_IST + 8 * n as u64) as *mut u64).write_unaligned(base + top);
        }
    }
    let idt = (base + cpu::IDT) as *mut u64;
    for (stub, vector) in entry::stubs() {
        let handler = entry::stub_address(index, stub);
        // Breakpoint and overflow may be raised by a program's own instruction.
        let level = if vector == 3 || vector == 4 { 3 } else { 0 };
        let low = handler & 0xffff
            | KERNEL_CS << 16
            | exception_stack(vector) << 32
            | (0x8e | level << 5) << 40
            | (handler >> 16 & 0xffff) << 48;
        // SAFETY: as above; 256 gates fit the page.
        unsafe {
            idt.add(2 * usize::from(vector)).write(low);
            idt.add(2 * usize::from(vector) + 1).write(handler >> 32);
        }
    }
    load_tables(base + cpu::GDT, 80 - 1, base + cpu::IDT);
    // SAFETY: selectors as in the table above; entry code as in `entry`.
    unsafe {
        wrmsr(msr::STAR, 0x23 << 48 | KERNEL_CS << 32);
        wrmsr(msr::LSTAR, entry::syscall_address(index));
        wrmsr(msr::FMASK, MASKED_FLAGS);
    }
}

fn load_tables(gdt: u64, gdt_limit: u16, idt: u64) {
    let pointer = |limit: u16, base: u64| {
        let mut bytes = [0u8; 10];
        bytes[..2].copy_from_slice(&limit.to_le_bytes());
        bytes[2..].copy_from_slice(&base.to_le_bytes());
        bytes
    };
    let (gdt, idt) = (pointer(gdt_limit, gdt), pointer(4095, idt));
    // SAFETY: the tables are filled in; CS and SS become the kernel's, the others null.
    unsafe {
        asm!(
            "lgdt [{gdt}]",
            "lidt [{idt}]",
            "push {cs}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "mov ss, {ss:e}",
            "ltr {tss:x}",
            gdt = in(reg) &gdt,
            idt = in(reg) &idt,
            cs = const KERNEL_CS,
            ss = in(reg) 0x18,
            tss = in(reg) TSS_SELECTOR,
            scratch = out(reg) _,
        );
    }
}
