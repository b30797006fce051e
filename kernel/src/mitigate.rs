//! What is done about processors that run ahead, as `kernel_core::speculation` decides it.
//!
//! # Safety
//! Writes model-specific registers that the plan says are there; the routine that calls compiled
//! code is changed at boot, while the image can be written and nothing runs it.
#![allow(unsafe_code)]

use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, Ordering};

use kernel_core::speculation::{Facts, Plan, Shield};

use crate::cpu::Cpu;
use crate::registers::{cpuid, msr, rdmsr, wrmsr};

global_asm!(
    r#"
    .text
    .global call_compiled, call_compiled_jump, call_compiled_return, call_compiled_restricted
    # rdi, rsi: its arguments; rdx: where it begins.
call_compiled:
call_compiled_jump:
    jmp rdx
    .byte 0x0f, 0x1f, 0x00              # with this one a jump to one of these:
    ud2
    # What is predicted of the return is what the call has left: the loop.
call_compiled_return:
    call 2f
1:  pause
    lfence
    jmp 1b
2:  mov [rsp], rdx
    ret
    # No branch of less privileged code decides from here on.
call_compiled_restricted:
    mov r8, rdx
    mov ecx, {spec_ctrl}
    rdmsr
    or eax, {ibrs}
    wrmsr
    jmp r8
    "#,
    spec_ctrl = const msr::SPEC_CTRL,
    ibrs = const IBRS as u32,
);

unsafe extern "C" {
    static call_compiled_jump: u8;
    static call_compiled_return: u8;
    static call_compiled_restricted: u8;
    /// Calls what was compiled, by the plan's shield.
    ///
    /// # Safety
    /// It must lie there, and take these arguments.
    pub unsafe fn call_compiled(first: u64, second: u64, at: u64) -> u64;
}

/// Bits of SPEC_CTRL and of EFER; the one of PRED_CMD.
const IBRS: u64 = 1;
const STIBP: u64 = 1 << 1;
const AIBRSE: u64 = 1 << 21;
const IBPB: u64 = 1;

/// Whether turns of different users have a barrier between them.
static HAS_BARRIER: AtomicBool = AtomicBool::new(false);

/// Asks the processor what it says of itself; `is_emulator`: it has been recognised as one.
pub fn facts(is_emulator: bool) -> Facts {
    let [max, ebx, ecx, edx] = cpuid(0, 0);
    let mut vendor = [0; 12];
    for (word, place) in [ebx, edx, ecx].into_iter().zip(vendor.chunks_exact_mut(4)) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let [_, ebx7, _, edx7] = if max >= 7 { cpuid(7, 0) } else { [0; 4] };
    let [extended, ..] = cpuid(0x8000_0000, 0);
    let ask = |leaf: u32| if extended >= leaf { cpuid(leaf, 0) } else { [0; 4] };
    let told = edx7 & 1 << 29 != 0;
    Facts {
        vendor,
        signature: cpuid(1, 0)[0],
        leaf7: [ebx7, edx7],
        extended8: ask(0x8000_0008)[1],
        extended21: ask(0x8000_0021)[0],
        capabilities: if told { rdmsr(msr::ARCH_CAPABILITIES) } else { 0 },
        has_siblings: has_siblings(max, ask(0x8000_001e)[1]),
        is_emulator,
    }
}

/// Does a core show itself as several processors? Leaf 11 says so, or AMD's own one.
fn has_siblings(max: u32, amd: u32) -> bool {
    let [_, threads, ..] = if max >= 0xb { cpuid(0xb, 0) } else { [0; 4] };
    match threads & 0xffff {
        0 => amd >> 8 & 0xff != 0,
        threads => threads > 1,
    }
}

/// Uses the plan for all processors, once at boot.
pub fn set(plan: &Plan) {
    HAS_BARRIER.store(plan.has_barrier, Ordering::Relaxed);
    let to = match plan.shield {
        Shield::None => return,
        Shield::Return => &raw const call_compiled_return,
        Shield::Restriction => &raw const call_compiled_restricted,
    };
    let from = &raw const call_compiled_jump;
    let jump = crate::patch::jump(from as u64, to as u64);
    // SAFETY: see the file's head; as many bytes as the jump and the padding have.
    unsafe { core::ptr::copy_nonoverlapping(jump.as_ptr(), from.cast_mut(), jump.len()) }
}

/// Switches on what this processor does by itself.
pub fn enable(plan: &Plan) {
    let when = |on: bool, bit: u64| if on { bit } else { 0 };
    let control = when(plan.restricts_always, IBRS) | when(plan.separates_siblings, STIBP);
    // SAFETY: the plan says that they are there; they only narrow what is guessed.
    unsafe {
        if control != 0 {
            wrmsr(msr::SPEC_CTRL, control);
        }
        if plan.restricts_by_itself {
            wrmsr(msr::EFER, rdmsr(msr::EFER) | AIBRSE);
        }
    }
}

/// From now on this processor runs what this user's domain says. Entry code does the same beside
/// its fast path (`fast`).
#[inline(always)]
pub fn turn_of(cpu: &Cpu, user: u64) {
    if HAS_BARRIER.load(Ordering::Relaxed) && cpu.user.replace(user) != user {
        barrier(cpu);
    }
}

#[cold]
#[inline(never)]
fn barrier(cpu: &Cpu) {
    cpu.barriers.set(cpu.barriers.get().wrapping_add(1));
    // SAFETY: as in `enable`.
    unsafe { wrmsr(msr::PRED_CMD, IBPB) }
}
