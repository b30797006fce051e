//! The functions, with Linux's names and meanings.
//!
//! # Safety
//! Pointers are the program's: as on Linux a bad one is a fault of the program's own. What is not
//! served here is made as a system call, which goes where the program's own calls go.
#![allow(unsafe_code)]

use crate::clock;
use core::arch::asm;

const CLOCK_GETTIME: u64 = 228;
const CLOCK_GETRES: u64 = 229;
const GETCPU: u64 = 309;
const SECOND: u64 = 1_000_000_000;

/// `struct timespec` and `struct timeval`: two words.
#[repr(C)]
pub struct Time {
    seconds: u64,
    fraction: u64,
}

fn call(number: u64, first: u64, second: u64) -> i32 {
    let answer: i64;
    // SAFETY: see the head of the file.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as i64 => answer,
            in("rdi") first, in("rsi") second, in("rdx") 0_u64,
            lateout("rcx") _, lateout("r11") _, options(nostack),
        );
    }
    answer as i32
}

/// clock_gettime(2)
// SAFETY: one definition; the name is Linux's.
#[unsafe(no_mangle)]
pub extern "C" fn __vdso_clock_gettime(which: i32, time: *mut Time) -> i32 {
    let (boot, wall) = clock::now();
    // REALTIME and its coarse form; MONOTONIC, its raw and coarse forms, BOOTTIME.
    let now = match which {
        0 | 5 if wall != 0 => boot.wrapping_add(wall),
        1 | 4 | 6 | 7 => boot,
        _ => return call(CLOCK_GETTIME, which as u64, time as u64),
    };
    // SAFETY: see the head of the file.
    unsafe { time.write(Time { seconds: now / SECOND, fraction: now % SECOND }) }
    0
}

/// clock_getres(2)
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn __vdso_clock_getres(which: i32, time: *mut Time) -> i32 {
    call(CLOCK_GETRES, which as u64, time as u64)
}

/// gettimeofday(2); the time zone is UTC.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn __vdso_gettimeofday(time: *mut Time, zone: *mut [i32; 2]) -> i32 {
    let (boot, wall) = clock::now();
    let now = boot.wrapping_add(wall);
    if !time.is_null() {
        // SAFETY: see the head of the file.
        unsafe { time.write(Time { seconds: now / SECOND, fraction: now % SECOND / 1000 }) }
    }
    if !zone.is_null() {
        // SAFETY: as above.
        unsafe { zone.write([0, 0]) }
    }
    0
}

/// time(2)
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn __vdso_time(time: *mut u64) -> u64 {
    let (boot, wall) = clock::now();
    let seconds = boot.wrapping_add(wall) / SECOND;
    if !time.is_null() {
        // SAFETY: see the head of the file.
        unsafe { time.write(seconds) }
    }
    seconds
}

/// getcpu(2)
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn __vdso_getcpu(cpu: *mut u32, node: *mut u32) -> i32 {
    call(GETCPU, cpu as u64, node as u64)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
