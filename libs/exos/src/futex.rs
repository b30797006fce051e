//! `futex` for processes with one thread: nobody waits there but for a child in the same memory.

use crate::errno::{Answer, Errno};
use crate::process::Process;
use crate::user;
use crate::wait::{Wait, Woken, sleep_until};
use linux_raw_sys::general as linux;
use xok::clock;

/// Nanoseconds between looks at the word.
const LOOK_NS: u64 = 2_000_000;

/// `futex(word, operation, value, timeout)`
pub fn futex(process: &mut Process, words: [u64; 6]) -> Answer {
    let [word, operation, value, timeout, ..] = words;
    if !word.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    let operation = operation as u32;
    let kind = operation & !(linux::FUTEX_PRIVATE_FLAG | linux::FUTEX_CLOCK_REALTIME);
    match kind {
        linux::FUTEX_WAKE | linux::FUTEX_WAKE_BITSET => {
            user::read_value::<u32>(word)?;
            Ok(0)
        }
        linux::FUTEX_WAIT | linux::FUTEX_WAIT_BITSET => {
            let deadline = match timeout {
                0 => 0,
                address => {
                    let length = user::read_value(address)?;
                    if kind == linux::FUTEX_WAIT {
                        crate::time::deadline_after(length)?
                    } else {
                        let until = crate::time::from_timespec(length)?;
                        let real = operation & linux::FUTEX_CLOCK_REALTIME != 0;
                        let now = if real { crate::time::wall() } else { clock::now_ns() };
                        (clock::now_ns() + until.saturating_sub(now)).max(1)
                    }
                }
            };
            wait(process, word, value as u32, deadline)
        }
        _ => Err(Errno::ENOSYS),
    }
}

fn wait(process: &mut Process, word: u64, value: u32, deadline: u64) -> Answer {
    if user::read_value::<u32>(word)? != value {
        return Err(Errno::EAGAIN);
    }
    loop {
        let look = clock::now_ns() + LOOK_NS;
        let until = if deadline == 0 { look } else { look.min(deadline) };
        match sleep_until(process, &Wait::new(), until)? {
            Woken::TimedOut if deadline != 0 && clock::now_ns() >= deadline => {
                return Err(Errno::ETIMEDOUT);
            }
            _ => {}
        }
        if user::read_value::<u32>(word)? != value {
            return Ok(0);
        }
    }
}
