//! Limits of open files, of this process or of another one, and priorities.
//!
//! # Safety
//! Declares functions of the C library as their manual pages have them.
#![allow(unsafe_code)]

use std::ffi::c_int;

unsafe extern "C" {
    fn prlimit(pid: c_int, which: c_int, new: *const [u64; 2], old: *mut [u64; 2]) -> c_int;
    fn setpriority(which: c_int, who: u32, nice: c_int) -> c_int;
}

/// `RLIMIT_NOFILE`
const FILES: c_int = 7;

/// Limits the descriptors of `pid`; was it done?
pub fn set(pid: i32, most: u64) -> bool {
    let limits = [most; 2];
    // SAFETY: reads the two limits.
    unsafe { prlimit(pid, FILES, &raw const limits, std::ptr::null_mut()) == 0 }
}

/// How many descriptors this process may have.
pub fn own() -> u64 {
    let mut limits = [0; 2];
    // SAFETY: writes the two limits.
    unsafe { prlimit(0, FILES, std::ptr::null(), &raw mut limits) };
    limits[0]
}

/// Sets the nice value of this process's group.
pub fn set_nice_of_group(nice: i32) -> bool {
    // SAFETY: no memory.
    unsafe { setpriority(1, 0, nice) == 0 }
}

/// Sets that of all processes of this one's user.
pub fn set_nice_of_user(nice: i32) -> bool {
    // SAFETY: no memory.
    unsafe { setpriority(2, 0, nice) == 0 }
}
