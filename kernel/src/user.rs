//! Copying from and to program memory, which may not be there.
//!
//! # Safety
//! One routine touches program memory, between `stac` and `clac`; a page fault inside it is
//! answered by `fix_up`, any other in kernel mode is the kernel's own mistake. Callers of `copy`
//! hand in one kernel range that they own and one that `abi::layout::is_user_range` accepts.
#![allow(unsafe_code)]

use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, Ordering};

use abi::layout::is_user_range;
use kernel_core::machine::UserFault;

use crate::registers::smap_is_lifted;

global_asm!(
    r#"
    .text
    .global user_copy, user_copy_out, user_copy_allow, user_copy_forbid
user_copy:
user_copy_allow:
    .byte 0x0f, 0x1f, 0x00              # becomes stac
    mov rcx, rdx
    shr rcx, 3
    rep movsq
    mov ecx, edx
    and ecx, 7
    rep movsb
    mov rax, -1
user_copy_out:
user_copy_forbid:
    .byte 0x0f, 0x1f, 0x00              # becomes clac
    ret
    "#
);

unsafe extern "C" {
    static user_copy_out: u8;
    static user_copy_allow: u8;
    static user_copy_forbid: u8;
    /// All ones, or the address that faulted.
    fn user_copy(to: u64, from: u64, len: u64) -> u64;
}

/// Whether there is SMAP.
static SMAP: AtomicBool = AtomicBool::new(false);

/// May the kernel touch no program's memory now, if there is SMAP?
pub fn is_forbidden() -> bool {
    !SMAP.load(Ordering::Relaxed) || !smap_is_lifted()
}

/// Lets the routine through SMAP. Only at boot, while the image can be written.
pub fn use_smap() {
    let patch = |at: *const u8, code: [u8; 3]| {
        // SAFETY: three bytes of padding in the routine above; nothing runs it yet.
        unsafe { core::ptr::copy_nonoverlapping(code.as_ptr(), at.cast_mut(), 3) }
    };
    SMAP.store(true, Ordering::Relaxed);
    patch(&raw const user_copy_allow, [0x0f, 0x01, 0xcb]);
    patch(&raw const user_copy_forbid, [0x0f, 0x01, 0xca]);
}

/// Where a page fault at `rip` in kernel mode goes on, if it may happen there.
pub fn fix_up(rip: u64) -> Option<u64> {
    let range = user_copy as *const () as u64..&raw const user_copy_out as u64;
    range.contains(&rip).then_some(range.end)
}

#[inline(always)]
fn copy(to: u64, from: u64, len: usize, user: u64, write: bool) -> Result<(), UserFault> {
    if !is_user_range(user, len as u64) {
        return Err(UserFault { address: user, write });
    }
    // SAFETY: see the file's head.
    match unsafe { user_copy(to, from, len as u64) } {
        u64::MAX => Ok(()),
        address => Err(UserFault { address, write }),
    }
}

/// Reads program memory into a kernel buffer.
pub fn read(from: u64, to: &mut [u8]) -> Result<(), UserFault> {
    copy(to.as_mut_ptr() as u64, from, to.len(), from, false)
}

/// Reads program memory into physical memory that the kernel may write.
#[inline(always)]
pub fn read_physical(from: u64, to: u64, len: usize) -> Result<(), UserFault> {
    copy(crate::physical::virtual_address(to), from, len, from, false)
}

/// Writes physical memory to program memory.
#[inline(always)]
pub fn write_physical(to: u64, from: u64, len: usize) -> Result<(), UserFault> {
    copy(to, crate::physical::virtual_address(from), len, to, true)
}
