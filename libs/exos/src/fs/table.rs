//! The Linux calls about files: one row for each.

use crate::errno::{Answer, Errno};
use crate::process::Process;

/// Does the call `number` for `process`, if it is one about files; else `ENOSYS`.
pub fn call(process: &mut Process, number: u32, words: [u64; 6]) -> Answer {
    let _ = (process, number, words);
    Err(Errno::ENOSYS)
}
