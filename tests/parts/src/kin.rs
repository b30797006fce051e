//! Children that have stopped, and groups that are there.
//!
//! # Safety
//! Declares functions of the C library as their manual pages have them.
#![allow(unsafe_code)]

use std::ffi::c_int;

unsafe extern "C" {
    fn waitid(kind: c_int, id: u32, info: *mut [u32; 32], options: c_int) -> c_int;
    fn kill(pid: c_int, number: c_int) -> c_int;
    fn getpriority(which: c_int, who: u32) -> c_int;
}

/// By which signal a child has stopped, or will, as waitid(2) tells its parent.
pub fn await_stop_signal(pid: i32) -> Option<u32> {
    const PID: c_int = 1;
    const STOPPED: c_int = 2;
    let mut info = [0; 32];
    // SAFETY: a `siginfo` has 128 bytes.
    let found = unsafe { waitid(PID, pid as u32, &raw mut info, STOPPED) };
    (found == 0).then_some(info[6])
}

fn error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or_default()
}

/// Is this group there? Else the error.
pub fn ask_group(group: i32) -> Result<(), i32> {
    // SAFETY: no memory.
    if unsafe { kill(-group, 0) } == 0 { Ok(()) } else { Err(error()) }
}

/// The nice value of this group, which is not -1, or the error.
pub fn nice_of_group(group: i32) -> Result<i32, i32> {
    // SAFETY: no memory.
    match unsafe { getpriority(1, group as u32) } {
        -1 => Err(error()),
        nice => Ok(nice),
    }
}
