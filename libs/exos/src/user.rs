//! Program memory: copied in and out, never referenced; a bad address answers EFAULT.
//!
//! Copies may fault: absent and copy-on-write pages are resolved below (a nested upcall), what
//! cannot be resolved ends the copy. Never call these while `memory::space()` is borrowed.
//!
//! # Safety
//! Holds the copy loop and the one atomic exchange, which touch the lower half only: the range is
//! checked first, and a fault in them goes to their fix-up address.
#![allow(unsafe_code)]

use crate::errno::Errno;
use crate::layout::{SHOWN, SHOWN_END};
use abi::error::Error;
use abi::layout::{PAGE_SIZE, PROGRAM_END};
use alloc::vec::Vec;
use core::mem::MaybeUninit;
use unix::bytes;
use xok::call::Refused;

/// A type whose bytes may come from a program: no padding that matters, every pattern valid.
///
/// # Safety
/// Every bit pattern must be a value, and reading its padding must be harmless.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($ty:ty)+) => { $(
        // SAFETY: integers (and structs of them) take every pattern.
        unsafe impl Plain for $ty {}
    )+ };
}

plain! {
    u8 u16 u32 u64 i8 i16 i32 i64 usize isize
    linux_raw_sys::general::timespec
    linux_raw_sys::general::timeval
    linux_raw_sys::general::stat
    linux_raw_sys::general::statx
    linux_raw_sys::general::statfs
    linux_raw_sys::general::iovec
    linux_raw_sys::general::pollfd
    linux_raw_sys::general::termios
    linux_raw_sys::general::winsize
    linux_raw_sys::general::rusage
    linux_raw_sys::general::flock
    crate::signal::frame::Context
    crate::signal::frame::Frame
}

// SAFETY: arrays of plain values are plain.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Is `[address, address + len)` in the program's half?
pub fn in_program(address: u64, len: u64) -> bool {
    address.checked_add(len).is_some_and(|end| end <= PROGRAM_END - PAGE_SIZE)
}

/// Copies from the program.
pub fn read_bytes(address: u64, into: &mut [u8]) -> Result<(), Errno> {
    if !in_program(address, into.len() as u64) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the source is in the program's half, the destination is ours.
    copy(unsafe { copy_with_fix_up(into.as_mut_ptr(), address as *const u8, into.len()) })
}

/// Copies to the program.
pub fn write_bytes(address: u64, from: &[u8]) -> Result<(), Errno> {
    if !in_program(address, from.len() as u64) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the destination is in the program's half, the source is ours.
    copy(unsafe { copy_with_fix_up(address as *mut u8, from.as_ptr(), from.len()) })
}

fn is_shown(address: u64, len: u64) -> bool {
    let end = address.checked_add(len);
    address >= SHOWN && end.is_some_and(|end| end <= SHOWN_END)
}

/// Copies from pages that a server shows, and may take back meanwhile, to the program.
pub fn copy_shown(from: u64, to: u64, len: u64) -> Result<(), Errno> {
    if !in_program(to, len) || !is_shown(from, len) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the destination is in the program's half; the source is nobody's variable, and a
    // fault in it goes to the fix-up.
    copy(unsafe { copy_with_fix_up(to as *mut u8, from as *const u8, len as usize) })
}

/// Copies from pages that a server shows to a buffer of ours.
pub fn read_shown(from: u64, into: &mut [u8]) -> Result<(), Errno> {
    if !is_shown(from, into.len() as u64) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the destination is ours; the source as above.
    copy(unsafe { copy_with_fix_up(into.as_mut_ptr(), from as *const u8, into.len()) })
}

/// Reads one value from the program.
pub fn read_value<T: Plain>(address: u64) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::uninit();
    read_into(address, &mut value).copied()
}

/// The same for a large one, which stays in the place given.
#[inline]
pub fn read_into<T: Plain>(address: u64, place: &mut MaybeUninit<T>) -> Result<&T, Errno> {
    let size = size_of::<T>();
    if !in_program(address, size as u64) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the source is in the program's half, the destination is `place`.
    copy(unsafe { copy_with_fix_up(place.as_mut_ptr().cast(), address as *const u8, size) })?;
    // SAFETY: `T` is plain, and all its bytes were copied.
    Ok(unsafe { place.assume_init_ref() })
}

/// Writes one value to the program.
pub fn write_value<T: Plain>(address: u64, value: &T) -> Result<(), Errno> {
    let size = size_of::<T>();
    // SAFETY: the bytes of a plain value.
    let bytes =
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast::<u8>(), size) };
    write_bytes(address, bytes)
}

/// Reads a string up to its NUL, without it; `ENAMETOOLONG` beyond `most` bytes.
pub fn read_string(address: u64, most: usize) -> Result<Vec<u8>, Errno> {
    let mut string = Vec::new();
    let mut at = address;
    let mut buffer = [0; 256];
    while string.len() <= most {
        // Never across the end of what may be the last page mapped.
        let within = (PAGE_SIZE - at % PAGE_SIZE).min(buffer.len() as u64) as usize;
        let part = buffer.get_mut(..within).ok_or(Errno::EFAULT)?;
        read_bytes(at, part)?;
        match bytes::position(part, 0) {
            Some(end) => {
                string.extend_from_slice(&part[..end]);
                return if string.len() <= most { Ok(string) } else { Err(Errno::ENAMETOOLONG) };
            }
            None => string.extend_from_slice(part),
        }
        at += within as u64;
    }
    Err(Errno::ENAMETOOLONG)
}

/// Bytes of a path that need no room on the heap.
const SHORT_PATH: usize = 256;

/// A path of the program's.
#[derive(Debug)]
pub struct Path {
    short: [u8; SHORT_PATH],
    len: usize,
    /// All of it, if it is longer.
    long: Vec<u8>,
}

impl Path {
    /// No name at all.
    pub const EMPTY: Self = Self { short: [0; SHORT_PATH], len: 0, long: Vec::new() };
}

impl core::ops::Deref for Path {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.long.is_empty() { &self.short[..self.len] } else { &self.long }
    }
}

/// Reads a path (`PATH_MAX` with its NUL).
pub fn read_path(address: u64) -> Result<Path, Errno> {
    let mut path = Path::EMPTY;
    let within = (PAGE_SIZE - address % PAGE_SIZE).min(SHORT_PATH as u64) as usize;
    read_bytes(address, &mut path.short[..within])?;
    match bytes::position(&path.short[..within], 0) {
        Some(end) => path.len = end,
        None => path.long = read_string(address, 4095)?,
    }
    Ok(path)
}

/// Makes every page of the range present (and private, when `write`) so that the kernel may read
/// or write it in a native call such as `RegionOperate`.
pub fn probe(address: u64, len: u64, write: bool) -> Result<(), Errno> {
    if len == 0 {
        return Ok(());
    }
    if !in_program(address, len) {
        return Err(Errno::EFAULT);
    }
    let last = address + len - 1;
    let mut at = address;
    loop {
        let mut byte = [0];
        read_bytes(at, &mut byte)?;
        if write {
            write_bytes(at, &byte)?;
        }
        let next = (at & !(PAGE_SIZE - 1)) + PAGE_SIZE;
        if next > last {
            return Ok(());
        }
        at = next;
    }
}

/// Puts `new` in place of `old` in a 32-bit word of the program's, in one step; what was there.
pub fn compare_exchange(address: u64, old: u32, new: u32) -> Result<u32, Errno> {
    unsafe extern "sysv64" {
        fn exos_compare_exchange(place: *mut u32, old: u32, new: u32, found: *mut u32) -> usize;
    }
    if !in_program(address, 4) {
        return Err(Errno::EFAULT);
    }
    let mut found = 0;
    // SAFETY: the place is in the program's half; a fault there goes to the fix-up.
    copy(unsafe { exos_compare_exchange(address as *mut u32, old, new, &raw mut found) })?;
    Ok(found)
}

fn copy(left: usize) -> Result<(), Errno> {
    if left == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// First and last address of the copy loop, and where a fault in it goes on.
#[derive(Clone, Copy, Debug)]
pub struct FixUp {
    /// First address that may fault.
    pub first: u64,
    /// First address behind.
    pub last: u64,
    /// Where to go on with rcx as it stands.
    pub landing: u64,
    /// Also if the processor refuses what is there (#GP)?
    pub refused: bool,
}

/// The fix-ups there are: of copies, of native calls that copy, and of vector areas.
pub fn fix_ups() -> [FixUp; 3] {
    unsafe extern "C" {
        static exos_vector_first: u8;
        static exos_vector_last: u8;
        static exos_vector_landing: u8;
        static exos_native_first: u8;
        static exos_native_last: u8;
        static exos_native_landing: u8;
        static exos_copy_first: u8;
        static exos_copy_last: u8;
        static exos_copy_landing: u8;
    }
    [
        FixUp {
            first: (&raw const exos_copy_first) as u64,
            last: (&raw const exos_copy_last) as u64,
            landing: (&raw const exos_copy_landing) as u64,
            refused: false,
        },
        FixUp {
            first: (&raw const exos_native_first) as u64,
            last: (&raw const exos_native_last) as u64,
            landing: (&raw const exos_native_landing) as u64,
            refused: false,
        },
        FixUp {
            first: (&raw const exos_vector_first) as u64,
            last: (&raw const exos_vector_last) as u64,
            landing: (&raw const exos_vector_landing) as u64,
            refused: true,
        },
    ]
}

/// Makes a native call that copies from or to the program's memory. What is not present there is
/// brought; what cannot be is the call's `BadAddress`.
#[inline(always)]
pub fn native(number: u16, words: [u64; 6]) -> Result<u64, Refused> {
    let (error, value) = native_words(number, words);
    match Error::from_number(error) {
        None => Ok(value),
        Some(error) => Err((error, value)),
    }
}

/// The same, if nobody wants to know why it was refused.
#[inline(always)]
pub fn native_done(number: u16, words: [u64; 6]) -> bool {
    native_words(number, words).0 == 0
}

/// What the call leaves in rax and rdx.
#[inline(always)]
fn native_words(number: u16, words: [u64; 6]) -> (u64, u64) {
    let (error, value): (u64, u64);
    // SAFETY: a call changes memory only as its documentation says, and the registers listed; the
    // routine is nothing but the instruction.
    unsafe {
        core::arch::asm!(
            "call exos_native",
            inlateout("rax") u64::from(number) => error,
            inlateout("rdi") words[0] => _,
            inlateout("rsi") words[1] => _,
            inlateout("rdx") words[2] => value,
            inlateout("r10") words[3] => _,
            inlateout("r8") words[4] => _,
            inlateout("r9") words[5] => _,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    (error, value)
}

// Words first, then bytes; answers how many were left (in words or bytes) when a fault ended it.
core::arch::global_asm!(
    ".global exos_copy_bytes",
    ".global exos_copy_first",
    ".global exos_copy_last",
    ".global exos_copy_landing",
    "exos_copy_bytes:",
    "mov r8, rdx",
    "mov rcx, rdx",
    "shr rcx, 3",
    "exos_copy_first:",
    "rep movsq",
    "mov ecx, r8d",
    "and ecx, 7",
    "rep movsb",
    "xor eax, eax",
    "ret",
    // (place, old, new, found): in the same range, so that its faults have the same landing.
    ".global exos_compare_exchange",
    "exos_compare_exchange:",
    "mov eax, esi",
    "lock cmpxchg [rdi], edx",
    "mov [rcx], eax",
    "xor eax, eax",
    "ret",
    "exos_copy_last:",
    "exos_copy_landing:",
    "mov eax, 1",
    "ret",
    // A native call, its registers as they are; a fault of its copy is at the instruction.
    ".global exos_native, exos_native_first, exos_native_last, exos_native_landing",
    "exos_native:",
    "exos_native_first:",
    "syscall",
    "exos_native_last:",
    "ret",
    "exos_native_landing:",
    "mov eax, {bad_address}",
    "xor edx, edx",
    "ret",
    bad_address = const Error::BadAddress as u32,
);

/// # Safety
/// One side is the program's, the other valid for `len` bytes.
unsafe fn copy_with_fix_up(to: *mut u8, from: *const u8, len: usize) -> usize {
    unsafe extern "sysv64" {
        fn exos_copy_bytes(to: *mut u8, from: *const u8, len: usize) -> usize;
    }
    // SAFETY: as the caller promises.
    unsafe { exos_copy_bytes(to, from, len) }
}
