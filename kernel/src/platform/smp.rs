//! Starting the other processors, one at a time.
//!
//! # Safety
//! The trampoline is copied to a page below 1 MiB that the map calls usable and nobody else has;
//! it ends in `boot::start` with the boot stack, which no other processor uses then.
#![allow(unsafe_code)]

use core::arch::global_asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::{Platform, apic, clock};
use crate::physical::fill;

global_asm!(
    r#"
    .section .rodata
    .code16
    .global trampoline, trampoline_gdt_pointer, trampoline_jump, trampoline_32, trampoline_end
trampoline:
    cli
    cld
    mov ax, cs
    mov ds, ax
    .byte 0x0f, 0x01, 0x16              # lgdt [disp16]
    .word trampoline_gdt_pointer - trampoline
    mov eax, cr0
    or al, 1
    mov cr0, eax
    .byte 0x66, 0xea
trampoline_jump:
    .long 0
    .word 8
    .code32
trampoline_32:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor ebp, ebp
    mov eax, offset enter_long_mode - 0xffffffff80000000
    jmp eax
    .balign 8
trampoline_gdt:
    .quad 0, 0x00cf9b000000ffff, 0x00cf93000000ffff
trampoline_gdt_pointer:
    .word 23
    .long 0
trampoline_end:
    .code64
    .text
    "#
);

unsafe extern "C" {
    static trampoline: u8;
    static trampoline_gdt_pointer: u8;
    static trampoline_jump: u8;
    static trampoline_32: u8;
    static trampoline_end: u8;
}

/// The processor being started, and how many have arrived.
static STARTING: AtomicUsize = AtomicUsize::new(0);
static ARRIVED: AtomicUsize = AtomicUsize::new(1);

/// The index of the processor that has just come out of the trampoline.
pub fn starting() -> usize {
    STARTING.load(Ordering::Acquire)
}

/// This processor has left the boot stack.
pub fn arrived() {
    ARRIVED.fetch_add(1, Ordering::Release);
}

/// Starts all processors but the first with the trampoline at `page`; answers how many run.
pub fn start(platform: &Platform, page: u64) -> usize {
    let offset = |symbol: *const u8| symbol as u64 - &raw const trampoline as u64;
    let len = offset(&raw const trampoline_end) as usize;
    // SAFETY: both symbols are in one section.
    fill(page, unsafe { core::slice::from_raw_parts(&raw const trampoline, len) });
    let patch = |at: u64, value: u32| fill(page + at, &value.to_le_bytes());
    patch(offset(&raw const trampoline_jump), (page + offset(&raw const trampoline_32)) as u32);
    let pointer = offset(&raw const trampoline_gdt_pointer);
    patch(pointer + 2, (page + pointer - 24) as u32);

    let mut running = 1;
    for index in 1..platform.cpu_count {
        STARTING.store(index, Ordering::Release);
        apic::start(platform.cpus[index], page);
        let deadline = clock::now_ns() + 500_000_000;
        while ARRIVED.load(Ordering::Acquire) <= index && clock::now_ns() < deadline {
            crate::registers::pause();
        }
        if ARRIVED.load(Ordering::Acquire) <= index {
            crate::log!("processor {index} (APIC {}) did not start", platform.cpus[index]);
            break;
        }
        running += 1;
    }
    running
}
