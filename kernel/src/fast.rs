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
//! The processor's half of the lock keeps out whoever holds the lock, not other processors on
//! this path. What they might want at the same time is one that accepts: who exchanges its name
//! for something else has it, and it accepts again only after all else has been stored. Whom the
//! caller waits for, serves or yields to, is on its own processor.
//!
//! # Safety
//! As for `entry`. The half is held while anything but the caller's own context is changed.
#![allow(unsafe_code)]

use core::arch::global_asm;
use core::mem::offset_of;

use abi::published::EnvRecord;
use abi::upcall::offset;
use kernel_core::context::{Context, FIXED_FLAGS, FRAME_END};
use kernel_core::env::{CONTEXT_BYTES, ENV_BYTES, Entries, Env};
use kernel_core::gate::{Gate, INDEX_SHIFT, MAY_YIELD, YIELDED};

use crate::cpu::{Cpu, DATA, Entered, RSP0};
use crate::half::{FREE_BY_ENTRY, SHUT, TAKEN};
use crate::hardware::{BLOCKS_BYTES, EntryData, FAULTS_AT_LENGTH, SLOTS, Slot};
use crate::patch::{BARRIER, VERW};
use crate::run::LOOKS;

global_asm!(
    crate::patch::macros!(),
    r#"
    # From the caller's space to the other one's, the end of whose frame is r11. `same`: where it is
    # noted that it is the same.
    .macro load_space scratch, same
901: mov \scratch, [r11 + {root}]
    cmp \scratch, [rsp + {root}]
    je \same
    mov cr3, \scratch
902:
    # Where predictors remember, and another user's turn begins: a barrier first. The caller's rcx
    # and rdx are written anew before anybody reads them.
    .pushsection .entry.beside, "ax"
903: mov \scratch, [r11 + {root}]
    cmp \scratch, [rsp + {root}]
    je \same
    mov [rsp + {rdx}], rdx
    mov rdx, [r11 + {record}]
    and rdx, {record_address}
    mov rdx, [rdx + {user}]
    cmp rdx, [rip + entry_start + {own_user}]
    je 904f
    mov [rip + entry_start + {own_user}], rdx
    mov [rsp + {rcx}], rax
    mov ecx, {pred_cmd}
    mov eax, 1
    xor edx, edx
    wrmsr
    inc dword ptr [rip + entry_start + {barriers}]
    mov rax, [rsp + {rcx}]
904: mov rdx, [rsp + {rdx}]
    mov \scratch, [r11 + {root}]
    mov cr3, \scratch
    jmp 902b
    .popsection
    site {barrier}, 903b
    .endm

    # From the caller's bases to the other one's; the caller keeps what it goes on with.
    .macro exchange scratch
    rdfsbase \scratch
    mov [rsp + {fs_base}], \scratch
    rdgsbase \scratch
    mov [rsp + {gs_base}], \scratch
    mov \scratch, [r11 + {fs_base}]
    wrfsbase \scratch
    mov \scratch, [r11 + {gs_base}]
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

    # How a transfer ends: the other one is entered on the caller's stack, and told who calls.
    .macro enter_callee
    exchange rcx
    mov rcx, [r11 + {sync}]
    mov [rip + entry_start + {entered}], rcx
    mov [rip + entry_start + {rsp0}], r11
    mov ecx, [rsp + {id}]
    mov word ptr [rip + entry_start + {half}], {free}
    lea rsp, [rip + entry_start + {entered}]
    last_two "mov r11d, {fixed_flags}", "iretq"
    .endm

    # How a reply ends: the other one goes on behind its call, on its own stack.
    .macro resume_caller
    exchange rax
    mov [rip + entry_start + {rsp0}], r11
    # Another processor may call who replies from here on.
    mov ecx, [rsp + {id}]
    mov [rsp + {called_as}], ecx
    mov word ptr [rip + entry_start + {half}], {free}
    lea rsp, [r11 + {rip}]
    xor eax, eax
    last_two "mov r11, [rsp + 16]", "iretq"
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
    mov [rsp + {rax}], rax
    # The word's high half: the id of the one that is called, or the reply name of one that waits.
    # Its index, if the caller may go by this path, is how far its slot is.
15: shld rcx, rax, 32
    mov eax, ecx
    imul r11d, ecx, {index_scale}
    and r11d, [rsp + {index_mask}]
    # This processor's half of the lock, if the fast path is open.
    lock bts dword ptr [rip + entry_start + {half}], 0
    jc 13f
    # Is it asleep and may be called? Then it is the caller's, whoever else would like to call.
    lock cmpxchg [r11 + {slots} + {called_as}], r11d
    jne 5f
    # Does it say so itself? From now on it does not.
    lea r11, [r11 + {slots}]
    mov rcx, [r11 + {save_area}]
    btr dword ptr [rcx + {accepting}], 0
    jnc 10f
    # The caller is the only one to whom it may reply by this path; nobody may call it.
    mov ecx, [rsp + {reply_name}]
    mov [r11 + {serves}], rcx
    # Who is left counts the turn; time since it came is its own.
    inc dword ptr [rsp + {turns}]
    mov rcx, rdx
    rdtsc
    mov rdx, rcx
    add [rsp + {ticks}], eax
    sub [r11 + {ticks}], eax
    mov rax, [rsp + {rax}]
    load_space rcx, 6f
    enter_callee

    # Is it the one that waits for the caller's reply? Then the caller accepts the next transfer.
5:  cmp ecx, [rsp + {serves}]
    jne 9f
    lea r11, [r11 + {slots}]
    mov dword ptr [rsp + {serves}], 0
    mov rax, [rsp + {save_area}]
    mov qword ptr [rax + {accepting}], 1
    inc dword ptr [rsp + {turns}]
    mov rcx, rdx
    rdtsc
    mov rdx, rcx
    add [rsp + {ticks}], eax
    sub [r11 + {ticks}], eax
    load_space rax, 7f
    resume_caller

    # The fast path of a yield by name (rdi): the same gates, the caller runs at home and the other
    # one has left so before. All that it then needs of its registers is what a call keeps.
    .global entry_yield
entry_yield:
    mov [rsp + {rip}], rcx
    mov [rsp + {rflags}], r11
16: imul r11d, edi, {index_scale}
    and r11d, [rsp + {index_mask}]
    lock bts dword ptr [rip + entry_start + {half}], 0
    jc 14f
    lea r11, [r11 + {slots}]
    cmp dword ptr [rsp + {called_as}], {may_yield}
    jne 11f
    cmp dword ptr [r11 + {called_as}], {yielded}
    jne 11f
    mov ecx, [r11 + {id}]
    cmp rcx, rdi
    jne 11f
    # It would not be told of anything.
    mov rcx, [r11 + {save_area}]
    cmp qword ptr [rcx + {mask}], 0
    jne 3f
    cmp qword ptr [rcx + {pending}], 0
    jne 11f
    cmp qword ptr [rcx + {events}], 0
    jne 11f
    # It is at home where the caller is.
3:  mov cl, [rsp + {home}]
    cmp cl, [r11 + {home}]
    jne 11f
    mov dword ptr [rsp + {called_as}], {yielded}
    mov dword ptr [r11 + {called_as}], {may_yield}
    inc dword ptr [rsp + {yields}]
    rdtsc
    add [rsp + {ticks}], eax
    sub [r11 + {ticks}], eax
    # Vector registers are stored and loaded, as at every switch that is no transfer.
    mov eax, -1
    mov edx, -1
    mov rcx, [rsp + {vector}]
    xsave64 [rcx]
    mov rcx, [r11 + {vector}]
    xrstor64 [rcx]
    add qword ptr [rip + entry_start + {vector_moves}], 2
    load_space rcx, 4f
2:  exchange rcx
    mov [rip + entry_start + {rsp0}], r11
    mov word ptr [rip + entry_start + {half}], {free}
    mov rbx, [r11 + {rbx}]
    mov rbp, [r11 + {rbp}]
    mov r12, [r11 + {r12}]
    mov r13, [r11 + {r13}]
    mov r14, [r11 + {r14}]
    mov r15, [r11 + {r15}]
    xor eax, eax
    xor edx, edx
    xor edi, edi
    xor esi, esi
    xor r8d, r8d
    xor r9d, r9d
    xor r10d, r10d
    lea rsp, [r11 + {rip}]
    mov rcx, [rsp]
    last_two "mov r11, [rsp + 16]", "iretq"

4:  inc qword ptr [rip + entry_start + {same_space}]
    jmp 2b
    # Without a jump back: within a space there are no more instructions than between two.
6:  inc qword ptr [rip + entry_start + {same_space}]
    enter_callee
7:  inc qword ptr [rip + entry_start + {same_space}]
    resume_caller

    # Not by the fast path, after all: nothing has changed but the context, which is stored anew.
    # Another processor holds the lock, for a while that is short mostly: who went the long way at
    # once would make that one wait, and so on for ever.
    .macro look_again retry, otherwise
    mov ecx, {looks}
8:  test byte ptr [rip + entry_start + {half}], {shut}
    jnz \otherwise
    pause
    test byte ptr [rip + entry_start + {half}], {taken}
    jz \retry
    dec ecx
    jnz 8b
    jmp \otherwise
    .endm
13: mov rax, [rsp + {rax}]
    look_again 15b, 12f
14: look_again 16b, 12f
    .purgem look_again
10: mov [r11 + {called_as}], eax
9:  mov rax, [rsp + {rax}]
11: mov byte ptr [rip + entry_start + {half}], {unlocked}
12: mov rcx, [rsp + {rip}]
    mov r11, [rsp + {rflags}]
    jmp entry_switch
    .purgem load_space
    .purgem exchange
    .purgem enter_callee
    .purgem resume_caller
    .purgem site
    .purgem last_two
    .text
    "#,
    user_rsp = const cpu(offset_of!(Cpu, entered) + offset_of!(Entered, rsp)),
    entered = const cpu(offset_of!(Cpu, entered)),
    vector_moves = const cpu(offset_of!(Cpu, vector_moves)),
    same_space = const cpu(offset_of!(Cpu, same_space)),
    rsp0 = const RSP0,
    slots = const SLOTS as i64 + FRAME_END as i64,
    barrier = const BARRIER,
    verw = const VERW,
    pred_cmd = const crate::registers::msr::PRED_CMD,
    own_user = const cpu(offset_of!(Cpu, user)),
    barriers = const cpu(offset_of!(Cpu, barriers)),
    user = const offset_of!(EnvRecord, user),
    record = const data(offset_of!(EntryData, record)),
    record_address = const !(FAULTS_AT_LENGTH as i32),
    rcx = const slot(offset_of!(Context, rcx)),
    rdx = const slot(offset_of!(Context, rdx)),
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
    reply_name = const data(offset_of!(EntryData, reply_name)),
    ticks = const data(offset_of!(EntryData, ticks)),
    called_as = const env(offset_of!(Env, gate) + offset_of!(Gate, called_as)),
    serves = const env(offset_of!(Env, gate) + offset_of!(Gate, serves)),
    turns = const env(offset_of!(Env, gate) + offset_of!(Gate, turns)),
    yields = const env(offset_of!(Env, gate) + offset_of!(Gate, yields)),
    home = const env(offset_of!(Env, cpu)),
    may_yield = const MAY_YIELD,
    yielded = const YIELDED,
    index_mask = const env(offset_of!(Env, index_mask)),
    id = const env(offset_of!(Env, id)),
    sync = const env(offset_of!(Env, entries) + offset_of!(Entries, sync)),
    index_scale = const 1 << INDEX_SHIFT,
    half = const cpu(offset_of!(Cpu, half)),
    taken = const TAKEN,
    shut = const SHUT,
    looks = const LOOKS,
    free = const FREE_BY_ENTRY,
    unlocked = const FREE_BY_ENTRY as u8,
    accepting = const offset::ACCEPTING,
    mask = const offset::MASK,
    pending = const offset::PENDING,
    events = const offset::EVENTS,
    fixed_flags = const FIXED_FLAGS,
);

const _: () = assert!(CONTEXT_BYTES == ENV_BYTES);
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
