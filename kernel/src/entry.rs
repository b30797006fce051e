//! Where programs and interrupts enter the kernel, and where it leaves.
//!
//! One page of code, copied for each processor, so that its data is found relative to the
//! instruction and GS stays the program's.
//!
//! ```text
//!  syscall ─ rcx in the window? ─ yes ─► frame into the Context, stack, `any_call` ─► leave
//!                  │                └ a switch, gates open ─► iretq to the other one
//!                  └ no ─► rcx, r11 to the save area, mask, sysret to the foreign entry
//!  exception, interrupt ─ from a program ─► frame is in the Context already (TSS.RSP0) ─► `trap`
//!                  └ from the kernel ─► stays on the stack ─► `kernel_trap` ─► back
//! ```
//!
//! # Safety
//! No push happens before rsp is the kernel's. Offsets are those that `cpu` and `kernel_core`'s
//! context assert. Only NMI, #MC and #DB can come while rsp is the program's; they have stacks of
//! their own.
#![allow(unsafe_code)]

use core::arch::global_asm;
use core::mem::offset_of;

use abi::call::number;
use abi::limits::UPCALL_DEPTH;
use abi::published::{CpuRecord, EnvRecord};
use abi::upcall::{Slot, offset};
use kernel_core::context::{Context, FRAME_END, USER_CS, USER_SS};
use kernel_core::env::{Entries, Env};
use kernel_core::exit::CLEARED_FLAGS;
use kernel_core::upcall::HANDLER_FLAGS;

use crate::cpu::{CODE, Cpu, Entered, RSP0, STACK_BYTES, UNUSED, area};
use crate::fast::{cpu, data, env, slot};
use crate::hardware::{EntryData, FAULTS_AT_LENGTH};
use crate::patch::{CLAC, VERW, jump};

unsafe extern "C" {
    static entry_start: u8;
    static entry_end: u8;
    static entry_syscall: u8;
    static entry_first: u8;
    static entry_stubs: u8;
    static entry_leave: u8;
    static entry_poison: u8;
}

/// Vectors that have stubs: exceptions, devices, then the processor's own.
pub const DEVICE_VECTOR: u8 = 0x20;
/// How many vectors devices share.
pub const DEVICE_VECTORS: u8 = 0x40;
/// Bytes of a stub: two pushes, of which one may take a whole word, and a jump.
const STUB_BYTES: u64 = 12;
/// The local APIC's timer.
pub const TIMER_VECTOR: u8 = 0xf0;
/// "Look at requests and run the scheduler."
pub const LOOK_VECTOR: u8 = 0xf1;
/// "Look into your mailbox": flushes.
pub const FLUSH_VECTOR: u8 = 0xf2;
/// The local APIC had nothing after all.
pub const SPURIOUS_VECTOR: u8 = 0xff;

global_asm!(
    crate::patch::macros!(),
    r#"
    .section .entry, "ax"
    # A program may have set AC, which lets the kernel touch its memory; no gate clears it.
    .macro forbid_programs_memory
901: .byte 0x0f, 0x1f, 0x00              # becomes clac
    site {clac}, 0
    .endm

    .macro push_all
    push rax
    push rbx
    push rcx
    push rdx
    push rsi
    push rdi
    push rbp
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    .endm

    # A `syscall`: the frame as the processor would push it, without vector and error code. rsp:
    # where it ends.
    .macro enter_call function
    push {user_ss}
    push [rip + entry_start + {user_rsp}]
    push r11
    push {user_cs}
    push rcx
    sub rsp, 16
    push_all
    mov rsp, [rip + entry_start + {stack_top}]
    mov rcx, r10
    xor ebp, ebp
    mov rax, offset \function
    call rax
    jmp entry_leave
    .endm

    # Of what runs everything is found by where its frame ends (`cpu::RSP0`).
    .global entry_syscall
    .balign 16
entry_syscall:
    mov [rip + entry_start + {user_rsp}], rsp
    mov rsp, [rip + entry_start + {rsp0}]
    cmp rcx, [rsp + {window}]
    jb 4f
    cmp rcx, [rsp + {window_end}]
    jae 4f
    # Steps along a ring and switches have ways of their own.
    cmp ax, {transfer}
    je entry_transfer
    cmp ax, {step}
    je 21f
    cmp ax, {step_or_wait}
    je 22f
    test ax, ax
    jne 24f
    # To nobody by name: the long way.
    test rdi, rdi
    jne entry_yield
24: enter_call {any_call}
21: enter_call {step_call}
22: enter_call {step_or_wait_call}
    .global entry_switch
entry_switch:
    enter_call {switching_call}
    # Foreign: back into the program's own space.
4:  cmp qword ptr [rsp + {foreign_entry}], 0
    je 3f
    mov rsp, [rsp + {save_area}]
    mov [rsp + 0x40], rcx
    mov [rsp + 0x48], r11
    mov qword ptr [rsp], 1
    inc qword ptr [rip + entry_start + {foreign_calls}]
    mov rcx, [rip + entry_start + {rsp0}]
    mov rcx, [rcx + {foreign_entry}]
    and r11, {cleared}
    last_two "mov rsp, [rip + entry_start + {user_rsp}]", "sysretq"
3:  enter_call {foreign_call}

    .global entry_leave
entry_leave:
    mov rsp, [rip + entry_start + {rsp0}]
entry_leave_behind:
    cmp eax, {by_sysret}
    ja 8f
    je 5f
    sub rsp, {frame_end}
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rbp
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rbx
    pop rax
    last_two "add rsp, 16", "iretq"
    # Answered: what Rust keeps is as it was, the answer and where to go are in the context.
8:  mov rax, [rsp + {rax}]
    mov rdx, [rsp + {rdx}]
    mov rbp, [rsp + {rbp}]
    mov rcx, [rsp + {rip}]
    mov r11, [rsp + {rflags}]
    xor edi, edi
    xor esi, esi
    xor r8d, r8d
    xor r9d, r9d
    xor r10d, r10d
    last_two "mov rsp, [rsp + {rsp}]", "sysretq"
5:  mov r15, [rsp + {r15}]
    mov r14, [rsp + {r14}]
    mov r13, [rsp + {r13}]
    mov r12, [rsp + {r12}]
    mov r10, [rsp + {r10}]
    mov r9, [rsp + {r9}]
    mov r8, [rsp + {r8}]
    mov rbp, [rsp + {rbp}]
    mov rdi, [rsp + {rdi}]
    mov rsi, [rsp + {rsi}]
    mov rdx, [rsp + {rdx}]
    mov rbx, [rsp + {rbx}]
    mov rax, [rsp + {rax}]
    mov rcx, [rsp + {rip}]
    mov r11, [rsp + {rflags}]
    last_two "mov rsp, [rsp + {rsp}]", "sysretq"

    # On a machine that poisons, `entry_leave` begins with a jump here: nothing on the stack means
    # anything any more.
    .global entry_poison
entry_poison:
    mov rsi, rax
    mov rdi, [rip + entry_start + {stack_top}]
    sub rdi, {stack_bytes}
    mov ecx, {stack_bytes} / 8
    movabs rax, {unused}
    rep stosq
    mov rax, rsi
    mov rsp, [rip + entry_start + {rsp0}]
    jmp entry_leave_behind

    # The processor's first entry into its scheduler loop.
    .global entry_first
entry_first:
    mov rsp, [rip + entry_start + {stack_top}]
    lea rdi, [rip + entry_start + {cpu}]
    xor ebp, ebp
    mov rax, offset {first}
    call rax
    jmp entry_leave

    # A fault that the program takes itself: from the processor's frame into a slot of the save
    # area and up, as `kernel_core::upcall` decides it, which takes all else: no handler, no slot
    # left, rip in the return sequence, an event to be traced. Nobody is asked and no lock is taken:
    # what is written is the program's, or counted by this processor alone; each word of the save
    # area is read once. rsp: at the context's vector, in the environment's `Slot`.
    .macro deliver is_page_fault
    forbid_programs_memory
    test byte ptr [rsp + 24], 3
    jz entry_forbidden
    mov [rsp + {r11} + {at_vector}], r11
    mov [rsp + {rcx} + {at_vector}], rcx
    mov [rsp + {rsi} + {at_vector}], rsi
    .if \is_page_fault
    # Whether the kernel has a page somewhere is nobody's business.
    mov rsi, cr2
    test rsi, rsi
    js 9f
    .endif
    test byte ptr [rsp + {record} + {at_vector}], {faults_at_length}
    jnz 9f
    mov r11, [rsp + {save_area} + {at_vector}]
    cmp qword ptr [{traced}], 0
    jne 9f
    mov rcx, [r11 + {depth}]
    cmp rcx, {depths}
    jae 9f
    mov rsi, [rsp + {rip} + {at_vector}]
    cmp rsi, [r11 + {return_first}]
    jb 8f
    cmp rsi, [r11 + {return_last}]
    jb 9f
8:  inc ecx
    mov [r11 + {depth}], rcx
    # Slots have as many bytes as there are before the first one.
    shl ecx, 8
    mov [r11 + rcx + {slot_rip}], rsi
    mov rsi, [r11 + {mask}]
    mov [r11 + rcx + {slot_mask}], rsi
    mov qword ptr [r11 + {mask}], 1
    mov qword ptr [r11 + {returning}], 0
    mov [r11 + rcx + {slot_rdi}], rdi
    mov [r11 + rcx + {slot_rdx}], rdx
    mov rdi, [rsp + {rsi} + {at_vector}]
    mov [r11 + rcx + {slot_rsi}], rdi
    mov rdi, [rsp + {rcx} + {at_vector}]
    mov [r11 + rcx + {slot_rcx}], rdi
    mov rdi, [rsp + {r11} + {at_vector}]
    mov [r11 + rcx + {slot_r11}], rdi
    mov rdi, [rsp + {rsp} + {at_vector}]
    mov [r11 + rcx + {slot_rsp}], rdi
    mov rdi, [rsp + {rflags} + {at_vector}]
    mov [r11 + rcx + {slot_rflags}], rdi
    mov rsi, [rsp]
    mov [r11 + rcx + {slot_cause}], rsi
    mov rdi, [rsp + {error} + {at_vector}]
    .if \is_page_fault
    and edi, {page_fault_bits}
    mov rdx, cr2
    .else
    xor edx, edx
    .endif
    mov [r11 + rcx + {slot_error}], rdi
    mov [r11 + rcx + {slot_address}], rdx
    mov rdi, [rsp + {save_address} + {at_vector}]
    add rdi, rcx
    mov r11, [rsp + {record} + {at_vector}]
    inc qword ptr [r11 + {env_entries}]
    inc qword ptr [r11 + {env_upcalls}]
    mov r11, [rip + entry_start + {cpu_record}]
    inc qword ptr [r11 + {cpu_faults}]
    mov rcx, [rsp + {fault_entry} + {at_vector}]
    mov r11, [rsp + {rflags} + {at_vector}]
    and r11d, {handler_flags}
    last_two "mov rsp, [rsp + {rsp} + {at_vector}]", "sysretq"
9:  mov r11, [rsp + {r11} + {at_vector}]
    mov rcx, [rsp + {rcx} + {at_vector}]
    mov rsi, [rsp + {rsi} + {at_vector}]
    jmp entry_forbidden
    .endm

entry_fault:
    deliver 0
entry_page_fault:
    deliver 1

entry_common:
    forbid_programs_memory
entry_forbidden:
    test byte ptr [rsp + 24], 3
    jz 6f
    push_all
7:  mov rsp, [rip + entry_start + {stack_top}]
    lea rdi, [rip + entry_start + {cpu}]
    xor ebp, ebp
    cld
    mov rax, offset {trap}
    call rax
    jmp entry_leave
6:  push_all
    mov rdi, rsp
    lea rsi, [rip + entry_start + {cpu}]
    cld
    mov rax, offset {kernel_trap}
    call rax
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rbp
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rbx
    pop rax
    add rsp, 16
    iretq

    # For `verw`: any selector that may be written.
    .global entry_selector
entry_selector:
    .word {user_ss}

    # On an exception stack: a program's frame is copied to where it belongs.
entry_exception_stack:
    forbid_programs_memory
    test byte ptr [rsp + 24], 3
    jz 6b
    push_all
    cld
    mov rsi, rsp
    mov rdi, [rip + entry_start + {rsp0}]
    sub rdi, {frame_end}
    mov ecx, 22
    rep movsq
    jmp 7b

    .balign 16
    .global entry_stubs
entry_stubs:
    .set vector, 0
    .rept 0x60
    .org entry_stubs + {stub_bytes} * vector
    # Those of these vectors come with an error code.
    .if vector >= 32 || ((0x60227d00 >> vector) & 1) == 0
    push 0
    .endif
    push vector
    .if vector == 1 || vector == 2 || vector == 8 || vector == 18
    jmp entry_exception_stack
    .elseif vector == 14
    jmp entry_page_fault
    .elseif vector < 32 && (({delivered} >> vector) & 1) != 0
    jmp entry_fault
    .else
    jmp entry_common
    .endif
    .set vector, vector + 1
    .endr
    .irp own, 0xf0, 0xf1, 0xf2, 0xff
    .org entry_stubs + {stub_bytes} * vector
    push 0
    push \own
    jmp entry_common
    .set vector, vector + 1
    .endr
    .purgem site
    .purgem last_two
    .text
    "#,
    clac = const CLAC,
    verw = const VERW,
    stub_bytes = const STUB_BYTES,
    stack_bytes = const STACK_BYTES,
    unused = const UNUSED,
    cleared = const !(CLEARED_FLAGS as i32),
    user_ss = const USER_SS,
    user_cs = const USER_CS,
    by_sysret = const crate::run::BY_SYSRET,
    cpu = const cpu(0),
    user_rsp = const cpu(offset_of!(Cpu, entered) + offset_of!(Entered, rsp)),
    stack_top = const cpu(offset_of!(Cpu, stack_top)),
    foreign_calls = const cpu(offset_of!(Cpu, foreign_calls)),
    cpu_record = const cpu(offset_of!(Cpu, cpu_record)),
    rsp0 = const RSP0,
    frame_end = const FRAME_END,
    rax = const slot(offset_of!(Context, rax)),
    rbx = const slot(offset_of!(Context, rbx)),
    rcx = const slot(offset_of!(Context, rcx)),
    rdx = const slot(offset_of!(Context, rdx)),
    rsi = const slot(offset_of!(Context, rsi)),
    rdi = const slot(offset_of!(Context, rdi)),
    rbp = const slot(offset_of!(Context, rbp)),
    rsp = const slot(offset_of!(Context, rsp)),
    r8 = const slot(offset_of!(Context, r8)),
    r9 = const slot(offset_of!(Context, r9)),
    r10 = const slot(offset_of!(Context, r10)),
    r11 = const slot(offset_of!(Context, r11)),
    r12 = const slot(offset_of!(Context, r12)),
    r13 = const slot(offset_of!(Context, r13)),
    r14 = const slot(offset_of!(Context, r14)),
    r15 = const slot(offset_of!(Context, r15)),
    rip = const slot(offset_of!(Context, rip)),
    rflags = const slot(offset_of!(Context, rflags)),
    error = const slot(offset_of!(Context, error)),
    at_vector = const -slot(offset_of!(Context, vector)),
    window = const data(offset_of!(EntryData, window)),
    window_end = const data(offset_of!(EntryData, window_end)),
    foreign_entry = const data(offset_of!(EntryData, foreign_entry)),
    save_area = const data(offset_of!(EntryData, save_area)),
    record = const data(offset_of!(EntryData, record)),
    save_address = const env(offset_of!(Env, save_address)),
    fault_entry = const env(offset_of!(Env, entries) + offset_of!(Entries, fault)),
    faults_at_length = const FAULTS_AT_LENGTH,
    traced = sym crate::trace::KINDS,
    depths = const UPCALL_DEPTH,
    depth = const offset::DEPTH,
    mask = const offset::MASK,
    returning = const offset::RETURNING,
    return_first = const offset::RETURN_FIRST,
    return_last = const offset::RETURN_LAST,
    slot_rip = const offset_of!(Slot, rip),
    slot_rflags = const offset_of!(Slot, rflags),
    slot_rsp = const offset_of!(Slot, rsp),
    slot_rdi = const offset_of!(Slot, rdi),
    slot_rsi = const offset_of!(Slot, rsi),
    slot_rdx = const offset_of!(Slot, rdx),
    slot_rcx = const offset_of!(Slot, rcx),
    slot_r11 = const offset_of!(Slot, r11),
    slot_cause = const offset_of!(Slot, cause),
    slot_error = const offset_of!(Slot, error),
    slot_address = const offset_of!(Slot, address),
    slot_mask = const offset_of!(Slot, mask),
    env_entries = const offset_of!(EnvRecord, entries),
    env_upcalls = const offset_of!(EnvRecord, upcalls),
    cpu_faults = const offset_of!(CpuRecord, faults),
    handler_flags = const HANDLER_FLAGS,
    page_fault_bits = const crate::traps::PAGE_FAULT_BITS,
    delivered = const crate::traps::DELIVERED,
    foreign_call = sym crate::syscall::foreign_call,
    any_call = sym crate::syscall::any_call,
    switching_call = sym crate::syscall::switching_call,
    step_call = sym crate::syscall::step_call::<{ number::RegionStep }>,
    step_or_wait_call = sym crate::syscall::step_call::<{ number::RegionStepOrWait }>,
    step = const number::RegionStep,
    step_or_wait = const number::RegionStepOrWait,
    transfer = const number::TransferSync,
    trap = sym crate::traps::trap,
    kernel_trap = sym crate::traps::kernel_trap,
    first = sym crate::run::first,
);

const _: () = assert!(number::Yield == 0);

/// Stubs there are, and the vector of each.
pub fn stubs() -> impl Iterator<Item = (usize, u8)> {
    let plain = (0..DEVICE_VECTOR + DEVICE_VECTORS).map(|vector| (usize::from(vector), vector));
    let own = [TIMER_VECTOR, LOOK_VECTOR, FLUSH_VECTOR, SPURIOUS_VECTOR];
    let first = usize::from(DEVICE_VECTOR + DEVICE_VECTORS);
    plain.chain(own.into_iter().enumerate().map(move |(n, vector)| (first + n, vector)))
}

fn offset_of(symbol: *const u8) -> u64 {
    offset_of_address(symbol as u64)
}

/// How far from its beginning a piece of the code is that was linked at this address.
pub fn offset_of_address(address: u64) -> u64 {
    address - &raw const entry_start as u64
}

/// The code to copy.
pub fn template() -> &'static [u8] {
    let len = offset_of(&raw const entry_end) as usize;
    // SAFETY: the linker script puts both symbols around the section.
    unsafe { core::slice::from_raw_parts(&raw const entry_start, len) }
}

/// Where in the copy of a machine that poisons a jump goes, and the jump: from the way out to what
/// fills the stack first.
pub fn poison() -> (u64, [u8; 5]) {
    let (from, to) = (offset_of(&raw const entry_leave), offset_of(&raw const entry_poison));
    (from, jump(from, to))
}

/// Where `syscall` enters on a processor.
pub fn syscall_address(cpu: usize) -> u64 {
    area(cpu) + CODE + offset_of(&raw const entry_syscall)
}

/// Where stub number `n` is on a processor.
pub fn stub_address(cpu: usize, n: usize) -> u64 {
    area(cpu) + CODE + offset_of(&raw const entry_stubs) + STUB_BYTES * n as u64
}

/// Leaves the boot stack for the processor's own and begins its loop.
pub fn begin(cpu: &Cpu) -> ! {
    let address = area(cpu.index.get()) + CODE + offset_of(&raw const entry_first);
    // SAFETY: the area is mapped and set up; nothing on the stack we leave is needed.
    unsafe { core::arch::asm!("jmp {}", in(reg) address, options(noreturn)) }
}
