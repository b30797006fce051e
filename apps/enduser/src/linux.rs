//! The Linux calls that the program makes, and where it begins and ends.
//!
//! # Safety
//! Makes calls that touch no memory but what a reference names, and declares the entry, as
//! `xok::static_program` says.
#![allow(unsafe_code)]

use xok::static_program::{complain, exit};

xok::static_program!(begin, failed);

/// Numbers of the calls (syscall(2)).
const READ: u64 = 0;
const OPEN: u64 = 2;
const GETPID: u64 = 39;
const KILL: u64 = 62;
const GETEUID: u64 = 107;
const SETRESUID: u64 = 117;
/// kill(2): all that may be signalled.
const ALL: i32 = -1;
const SIGKILL: u64 = 9;

extern "C" fn begin(stack: u64) -> ! {
    // SAFETY: this is the entry point.
    let argument = unsafe { xok::static_program::only_argument(stack) };
    exit(crate::run(argument.unwrap_or_default()))
}

fn failed() -> ! {
    complain("enduser: panic\n");
    exit(101)
}

fn call(number: u64, words: [u64; 3]) -> i64 {
    // SAFETY: see the file's head.
    unsafe { xok::static_program::call(number, words) }
}

/// The beginning of a file, as much as `room` takes, by open(2) and read(2); the end of the program
/// closes it.
pub fn beginning<'a>(path: &core::ffi::CStr, room: &'a mut [u8]) -> &'a [u8] {
    let file = call(OPEN, [path.as_ptr() as u64, 0, 0]);
    let mut len = 0;
    while file >= 0 && len < room.len() {
        let rest = &mut room[len..];
        let done = call(READ, [file as u64, rest.as_mut_ptr() as u64, rest.len() as u64]);
        if done <= 0 {
            break;
        }
        len += (done as usize).min(rest.len());
    }
    &room[..len]
}

/// getpid(2)
pub fn own_id() -> u32 {
    call(GETPID, [0; 3]) as u32
}

/// geteuid(2)
pub fn is_root() -> bool {
    call(GETEUID, [0; 3]) == 0
}

/// setresuid(2): real, effective, saved.
pub fn set_users(users: [u32; 3]) -> bool {
    call(SETRESUID, users.map(u64::from)) == 0
}

/// kill(2) of all that this may signal.
pub fn kill_all() {
    call(KILL, [ALL as u64, SIGKILL, 0]);
}

/// kill(2) without a signal: may it be signalled?
pub fn may_signal(id: u32) -> bool {
    call(KILL, [id.into(), 0, 0]) == 0
}
