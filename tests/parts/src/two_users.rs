//! A process that is one user's and acts for another.
//!
//! # Safety
//! Declares functions of the C library as their manual pages have them.
#![allow(unsafe_code)]

unsafe extern "C" {
    fn setgroups(count: usize, groups: *const u32) -> i32;
    fn setgid(group: u32) -> i32;
    fn setresuid(real: u32, effective: u32, saved: u32) -> i32;
}

/// setgid(2), setresuid(2): the process has the first user as its real one, and acts for the other.
pub fn become_two(real: u32, effective: u32) -> bool {
    // SAFETY: they touch no memory; of the list nothing is read.
    unsafe {
        setgroups(0, std::ptr::null()) == 0
            && setgid(effective) == 0
            && setresuid(real, effective, effective) == 0
    }
}
