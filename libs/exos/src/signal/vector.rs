//! The vector registers in a signal frame: written and read where they lie, by one instruction.
//!
//! ```text
//!  area + 0     FXSAVE's part
//!       + 464   48 bytes that are software's: magic, how far the area goes, which parts it has
//!       + 512   XSAVE's header: parts that are there        (none of this and below if the
//!         …     the parts                                    processor has only FXSAVE)
//!       + n     magic again: all of it is there
//! ```
//! As on Linux (`struct _fpx_sw_bytes`), also on the way back: an area without its magic words is
//! FXSAVE's part alone, one that the processor refuses (#GP) is a bad frame.
//!
//! # Safety
//! Holds the instructions that touch the program's area. Its range is checked first; a fault in
//! them goes to their fix-up (`crate::user::fix_ups`). What a program has put into the area is its
//! own: it could load the same by the same instruction.
#![allow(unsafe_code)]

use crate::errno::Errno;
use crate::thread::{INITIAL, Initial, VectorState};
use crate::user;

const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
/// Bytes of the second magic word.
const MAGIC2_BYTES: u64 = 4;
/// Bytes of FXSAVE's part and the header.
const LEAST: u32 = 576;

/// Bytes of the area in a frame.
#[inline]
pub fn area_bytes(state: VectorState) -> u64 {
    if state.features == 0 { state.bytes } else { state.bytes + MAGIC2_BYTES }
}

core::arch::global_asm!(
    ".global exos_vector_first, exos_vector_last, exos_vector_landing",
    ".global exos_vector_save, exos_vector_load",
    "exos_vector_first:",
    // (area, bytes, features)
    "exos_vector_save:",
    "xor eax, eax",
    "lea ecx, [rsi + {magic2_bytes}]",
    "mov dword ptr [rdi + 464], {magic1}",
    "mov [rdi + 468], ecx",
    "mov [rdi + 472], rdx",
    "mov [rdi + 480], rsi",
    "mov [rdi + 488], rax",
    "mov [rdi + 496], rax",
    "mov [rdi + 504], rax",
    "test edx, edx",
    "jz 2f",
    // XSAVE writes the header's first word only.
    "mov [rdi + 512], rax",
    "mov [rdi + 520], rax",
    "mov [rdi + 528], rax",
    "mov [rdi + 536], rax",
    "mov [rdi + 544], rax",
    "mov [rdi + 552], rax",
    "mov [rdi + 560], rax",
    "mov [rdi + 568], rax",
    "mov eax, -1",
    "mov edx, -1",
    "xsave64 [rdi]",
    // FXSAVE's part always counts, for those who look at nothing else.
    "or dword ptr [rdi + 512], 3",
    "mov dword ptr [rdi + rsi], {magic2}",
    "xor eax, eax",
    "ret",
    "2:",
    "fxsave64 [rdi]",
    "ret",
    // (area, bytes, features, the initial state)
    "exos_vector_load:",
    "mov r8d, edx",
    "xor edx, edx",
    "test r8d, r8d",
    "jz 3f",
    "cmp dword ptr [rdi + 464], {magic1}",
    "jne 2f",
    "mov eax, [rdi + 480]",
    "cmp eax, {least}",
    "jb 2f",
    "cmp eax, esi",
    "ja 2f",
    "cmp eax, [rdi + 468]",
    "ja 2f",
    "cmp dword ptr [rdi + rax], {magic2}",
    "jne 2f",
    "mov eax, [rdi + 472]",
    "and eax, r8d",
    "xrstor64 [rdi]",
    // What it does not have begins anew.
    "xor eax, r8d",
    "jz 4f",
    "xrstor64 [rcx]",
    "xor eax, eax",
    "ret",
    "2:",
    "fxrstor64 [rdi]",
    "mov eax, r8d",
    "and eax, -4",
    "xrstor64 [rcx]",
    "xor eax, eax",
    "ret",
    "3:",
    "fxrstor64 [rdi]",
    "xor eax, eax",
    "4:",
    "ret",
    "exos_vector_last:",
    "exos_vector_landing:",
    "mov eax, 1",
    "ret",
    magic1 = const MAGIC1,
    magic2 = const MAGIC2,
    magic2_bytes = const MAGIC2_BYTES,
    least = const LEAST,
);

unsafe extern "sysv64" {
    fn exos_vector_save(area: u64, bytes: u64, features: u64) -> u64;
    fn exos_vector_load(area: u64, bytes: u64, features: u64, initial: *const Initial) -> u64;
}

fn answer(failed: u64) -> Result<(), Errno> {
    if failed == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Writes the program's vector registers to its 64-byte aligned `area`.
#[inline]
pub fn save(area: u64, state: VectorState) -> Result<(), Errno> {
    if !user::in_program(area, area_bytes(state)) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the area is in the program's half.
    answer(unsafe { exos_vector_save(area, state.bytes, state.features.into()) })
}

/// Loads them from there; what is wrong with the area is an error, and then they are undefined.
#[inline]
pub fn load(area: u64, state: VectorState) -> Result<(), Errno> {
    if !user::in_program(area, area_bytes(state)) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: as above; ExOS itself has nothing in these registers.
    answer(unsafe {
        exos_vector_load(area, state.bytes, state.features.into(), &raw const INITIAL)
    })
}
