//! The fast path of switches: entry code makes a transfer, its reply or a yield by itself.
//!
//! ```text
//!  entry_syscall ─ a switch ─► gate open? ─ yes ─► gates, count, time, space ─► iretq
//!                                   └ no ─► `entry_switch`: the short way, or the long one
//! ```
//! `kernel_core::gate` says when a gate is open, and works out afterwards what has happened; its
//! test has these steps once more in Rust. Of an environment, slot and record lie at fixed
//! distances from where its frame ends (`hardware`).
//!
//! # Safety
//! As for `entry`. The lock is held while anything but the caller's own context is changed.
#![allow(unsafe_code)]

use core::arch::global_asm;
use core::mem::offset_of;

use abi::id::INDEX_BITS;
use abi::upcall::offset;
use kernel_core::context::{Context, FIXED_FLAGS, FRAME_END};
use kernel_core::env::{CONTEXT_BYTES, Entries, Env};
use kernel_core::gate::{Gate, MAY_YIELD, NAME_SHIFT, YIELDED};
use kernel_core::state::State;

use crate::cpu::{Cpu, DATA, Entered, RSP0};
use crate::hardware::{BLOCKS_BYTES, EntryData, SLOTS, Slot};
use crate::lock::{FREE_BY_ENTRY, Lock};

global_asm!(
    r#"
    # From the caller's space and bases to the other one's; the caller keeps what it goes on with.
    # `same`: where it is noted that the space is the same, to come back to `loaded`.
    .macro exchange scratch, same, loaded
    mov \scratch, [r11 + {slots} + {root}]
    cmp \scratch, [rsp + {root}]
    je \same
    mov cr3, \scratch
\loaded:
    rdfsbase \scratch
    mov [rsp + {fs_base}], \scratch
    rdgsbase \scratch
    mov [rsp + {gs_base}], \scratch
    mov \scratch, [r11 + {slots} + {fs_base}]
    wrfsbase \scratch
    mov \scratch, [r11 + {slots} + {gs_base}]
    wrgsbase \scratch
    mov \scratch, [rip + entry_start + {user_rsp}]
    mov [rsp + {rsp}], \scratch
    mov [rsp + {rbx}], rbx
    mov [rsp + {rbp}], rbp
    mov [rsp + {r12}], r12
    mov [rsp + {r13}], r13
    mov [rsp + {r14}], r14
    mov [rsp + {r15}], r15
    .endm

    .section .entry, "ax"
    .global entry_transfer
    # The fast path of a transfer (`kernel_core::gate`): gates say that nothing but the switch would
    # happen, or everything is left to the long way. The registers are the message, and stay where
    # they are; what the caller goes on with later is stored in its context. rsp: the caller's
    # frame, r11: the other one's; of both, slot and record lie at fixed distances. Only rcx and r11
    # are free, then rax in a reply.
entry_transfer:
    mov [rsp + {rip}], rcx
    mov [rsp + {rflags}], r11
    # Its name: bits 30 to 61 of the word. Its index, if the caller may go by this path, and by that
    # its slot.
    shld rcx, rax, 34
    movzx r11d, cx
    and r11w, [rsp + {index_mask}]
    shl r11d, {index_shift}
    # The lock, if it is free and the fast path open.
    lock bts dword ptr [{lock}], 0
    jc 8f
    # Is it asleep and may be called?
    cmp ecx, [r11 + {slots} + {called_as}]
    jne 5f
    # Does it say so itself? From now on it does not.
    mov rcx, [r11 + {slots} + {save_area}]
    btr dword ptr [rcx + {accepting}], 0
    jnc 9f
    # The caller is the only one to whom it may reply by this path; nobody may call it.
    mov ecx, [rsp + {name}]
    mov [r11 + {slots} + {serves}], rcx
    # Who is left counts the turn; time since it came is its own.
    inc dword ptr [rsp + {turns}]
    mov [rsp + {rax}], rax
    mov rcx, rdx
    rdtsc
    mov rdx, rcx
    add [rsp + {ticks}], eax
    sub [r11 + {slots} + {ticks}], eax
    mov rax, [rsp + {rax}]
    exchange rcx, 6f, 1
    # It is entered on the caller's stack, and told who calls.
    mov rcx, [r11 + {slots} + {sync}]
    mov [rip + entry_start + {entered}], rcx
    lea r11, [r11 + {slots}]
    mov [rip + entry_start + {rsp0}], r11
    mov ecx, [rsp + {id}]
    mov word ptr [{lock}], {free}
    lea rsp, [rip + entry_start + {entered}]
    mov r11d, {fixed_flags}
    iretq

    # Is it the one that waits for the caller's reply? Then the caller accepts the next transfer.
5:  cmp ecx, [rsp + {serves}]
    jne 9f
    mov dword ptr [rsp + {serves}], 0
    mov ecx, [rsp + {name}]
    mov [rsp + {called_as}], ecx
    mov rax, [rsp + {save_area}]
    mov qword ptr [rax + {accepting}], 1
    inc dword ptr [rsp + {turns}]
    mov rcx, rdx
    rdtsc
    mov rdx, rcx
    add [rsp + {ticks}], eax
    sub [r11 + {slots} + {ticks}], eax
    exchange rax, 7f, 2
    lea r11, [r11 + {slots}]
    mov [rip + entry_start + {rsp0}], r11
    mov ecx, [rsp + {id}]
    mov word ptr [{lock}], {free}
    # It goes on behind its call, on its own stack.
    lea rsp, [r11 + {rip}]
    mov r11, [rsp + 16]
    xor eax, eax
    iretq

    # The fast path of a yield by name (rdi): the same gates, the caller runs at home and the other
    # one has left so before. All that it then needs of its registers is what a call keeps.
    .global entry_yield
entry_yield:
    mov [rsp + {rip}], rcx
    mov [rsp + {rflags}], r11
    lea ecx, [rdi * {name_scale}]
    movzx r11d, cx
    and r11w, [rsp + {index_mask}]
    shl r11d, {index_shift}
    lock bts dword ptr [{lock}], 0
    jc 8f
    cmp dword ptr [rsp + {called_as}], {may_yield}
    jne 9f
    cmp dword ptr [r11 + {slots} + {called_as}], {yielded}
    jne 9f
    mov ecx, [r11 + {slots} + {id}]
    cmp rcx, rdi
    jne 9f
    # It would not be told of anything.
    mov rcx, [r11 + {slots} + {save_area}]
    cmp qword ptr [rcx + {mask}], 0
    jne 3f
    cmp qword ptr [rcx + {pending}], 0
    jne 9f
    cmp qword ptr [rcx + {events}], 0
    jne 9f
    # It is at home where the caller is.
3:  mov cl, [rsp + {home}]
    cmp cl, [r11 + {slots} + {home}]
    jne 9f
    mov dword ptr [rsp + {called_as}], {yielded}
    mov dword ptr [r11 + {slots} + {called_as}], {may_yield}
    inc dword ptr [rsp + {yields}]
    rdtsc
    add [rsp + {ticks}], eax
    sub [r11 + {slots} + {ticks}], eax
    # Vector registers are stored and loaded, as at every switch that is no transfer.
    mov eax, -1
    mov edx, -1
    mov rcx, [rsp + {vector}]
    xsave64 [rcx]
    mov rcx, [r11 + {slots} + {vector}]
    xrstor64 [rcx]
    add qword ptr [rip + entry_start + {vector_moves}], 2
    exchange rcx, 4f, 5
    lea rsp, [r11 + {slots}]
    mov [rip + entry_start + {rsp0}], rsp
    mov word ptr [{lock}], {free}
    mov rbx, [rsp + {rbx}]
    mov rbp, [rsp + {rbp}]
    mov r12, [rsp + {r12}]
    mov r13, [rsp + {r13}]
    mov r14, [rsp + {r14}]
    mov r15, [rsp + {r15}]
    xor eax, eax
    xor edx, edx
    xor edi, edi
    xor esi, esi
    xor r8d, r8d
    xor r9d, r9d
    xor r10d, r10d
    lea rsp, [rsp + {rip}]
    mov rcx, [rsp]
    mov r11, [rsp + 16]
    iretq

4:  inc qword ptr [rip + entry_start + {same_space}]
    jmp 5b
6:  inc qword ptr [rip + entry_start + {same_space}]
    jmp 1b
7:  inc qword ptr [rip + entry_start + {same_space}]
    jmp 2b

    # Not by the fast path, after all: nothing has changed but the context, which is stored anew.
9:  mov byte ptr [{lock}], {unlocked}
8:  mov rcx, [rsp + {rip}]
    mov r11, [rsp + {rflags}]
    jmp entry_switch
    .purgem exchange
    .text
    "#,
    user_rsp = const cpu(offset_of!(Cpu, entered) + offset_of!(Entered, rsp)),
    entered = const cpu(offset_of!(Cpu, entered)),
    vector_moves = const cpu(offset_of!(Cpu, vector_moves)),
    same_space = const cpu(offset_of!(Cpu, same_space)),
    rsp0 = const RSP0,
    slots = const SLOTS as i64 + FRAME_END as i64,
    rax = const slot(offset_of!(Context, rax)),
    rbx = const slot(offset_of!(Context, rbx)),
    rbp = const slot(offset_of!(Context, rbp)),
    rsp = const slot(offset_of!(Context, rsp)),
    r12 = const slot(offset_of!(Context, r12)),
    r13 = const slot(offset_of!(Context, r13)),
    r14 = const slot(offset_of!(Context, r14)),
    r15 = const slot(offset_of!(Context, r15)),
    rip = const slot(offset_of!(Context, rip)),
    rflags = const slot(offset_of!(Context, rflags)),
    fs_base = const slot(offset_of!(Context, fs_base)),
    gs_base = const slot(offset_of!(Context, gs_base)),
    root = const data(offset_of!(EntryData, root)),
    save_area = const data(offset_of!(EntryData, save_area)),
    vector = const data(offset_of!(EntryData, vector)),
    name = const data(offset_of!(EntryData, name)),
    ticks = const data(offset_of!(EntryData, ticks)),
    called_as = const env(offset_of!(Env, gate) + offset_of!(Gate, called_as)),
    serves = const env(offset_of!(Env, gate) + offset_of!(Gate, serves)),
    turns = const env(offset_of!(Env, gate) + offset_of!(Gate, turns)),
    yields = const env(offset_of!(Env, gate) + offset_of!(Gate, yields)),
    home = const env(offset_of!(Env, cpu)),
    may_yield = const MAY_YIELD,
    yielded = const YIELDED,
    name_scale = const 1 << NAME_SHIFT,
    index_mask = const env(offset_of!(Env, index_mask)),
    id = const env(offset_of!(Env, id)),
    sync = const env(offset_of!(Env, entries) + offset_of!(Entries, sync)),
    index_shift = const 8 - NAME_SHIFT,
    lock = sym crate::locked::STATE,
    free = const FREE_BY_ENTRY,
    unlocked = const FREE_BY_ENTRY as u8,
    accepting = const offset::ACCEPTING,
    mask = const offset::MASK,
    pending = const offset::PENDING,
    events = const offset::EVENTS,
    fixed_flags = const FIXED_FLAGS,
);

const _: () = assert!(CONTEXT_BYTES == 1 << 8 && INDEX_BITS as usize + NAME_SHIFT as usize <= 16);
const _: () = assert!(offset_of!(Lock<Option<State>>, taken) == 0);
// Both are written at once.
const _: () = assert!(offset_of!(Gate, called_as) == offset_of!(Gate, serves) + 4);

/// From the entry code to a word of the processor's own.
pub const fn cpu(offset: usize) -> usize {
    DATA as usize + offset
}

/// From where an environment's frame ends to a word of its slot.
pub const fn slot(offset: usize) -> i64 {
    offset as i64 - FRAME_END as i64
}

/// The same, of what entry code looks at.
pub const fn data(offset: usize) -> i64 {
    slot(offset_of!(Slot, entry) + offset)
}

/// The same, of its private record.
pub const fn env(offset: usize) -> i64 {
    slot(offset) + BLOCKS_BYTES as i64
}
const _: () = assert!(offset::SLOTS == size_of::<Slot>() && size_of::<Slot>() == 1 << 8);
