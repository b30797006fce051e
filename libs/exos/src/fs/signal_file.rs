//! `signalfd`: signals that are read (signalfd(2)); the set of them is the word of a small region.
//!
//! A read takes signals that wait for whoever reads, so a fork child that inherits the descriptor
//! reads its own; only the set is shared. Signals are to be blocked, or their handlers take them
//! first.

use abi::region::WordAt;
use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use unix::Errno;
use unix::path::Canonical;

use super::description::Description;
use super::open_file::OpenFile;
use super::region::Region;
use super::transfer::Memory;
use crate::errno::Answer;
use crate::process::Process;
use crate::signal::{Info, UNMASKABLE, deliver};
use crate::thread;
use crate::user;
use crate::wait::{Wait, sleep_until};

/// Bytes of `struct signalfd_siginfo`.
const RECORD: usize = 128;
/// `SI_TIMER`: of a timer of `timer_create`.
const CODE_TIMER: i32 = -2;

/// Signals that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalFile {
    /// Its words: the set.
    pub words: Region,
}

/// `signalfd4(fd, set, size, flags)`
pub fn signalfd(process: &mut Process, fd: i32, set: u64, size: u64, flags: u32) -> Answer {
    if size != 8 {
        return Err(Errno::EINVAL);
    }
    let set: u64 = user::read_value(set)?;
    if flags & !(raw::O_CLOEXEC | raw::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let write = [WordAt { offset: 0, value: set & !UNMASKABLE }];
    if fd != -1 {
        let description = process.files.get(fd)?;
        let OpenFile::Signals(file) = &description.file else { return Err(Errno::EINVAL) };
        file.words.copy_in(0, &[], &[], &write)?;
        process.look_again();
        return Ok(fd as u64);
    }
    let file = SignalFile { words: Region::make_held()? };
    file.words.copy_in(0, &[], &[], &write)?;
    let access = flags & raw::O_NONBLOCK | raw::O_RDWR;
    let path = Canonical::default();
    let description = Description::new(OpenFile::Signals(file), path, access, None);
    let limit = process.limit(raw::RLIMIT_NOFILE);
    process.files.enter(description, flags & raw::O_CLOEXEC != 0, 0, limit)
}

/// What is read of one signal.
fn record(signal: u32, info: &Info) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    let mut put = |at: usize, value: u64, len: usize| {
        bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
    };
    put(0, signal.into(), 4);
    put(8, info.code as u32 as u64, 4);
    if info.code == CODE_TIMER {
        put(24, info.first, 4);
        put(32, info.first >> 32, 4);
    } else {
        put(12, info.first, 4);
        put(16, info.first >> 32, 4);
    }
    if signal == raw::SIGCHLD && info.code > 0 {
        put(40, info.second, 4);
    } else {
        put(44, info.second, 4);
        put(48, info.second, 8);
    }
    bytes
}

impl SignalFile {
    /// The set.
    fn set(&self) -> Result<u64, Errno> {
        Ok(self.words.pair()?.0)
    }

    /// Does one of the set wait for us? If not, `wait` gets what to wait for.
    pub fn ready(&self, wait: &mut Wait) -> Result<bool, Errno> {
        let set = self.set()?;
        let waiting = thread::process().signals.pending.set() | thread::own().directed.set();
        wait.signals(set);
        Ok((waiting | xok::upcall::pending()) & set != 0)
    }

    /// Takes signals of the set, as many as there is room for.
    pub fn read(
        &self,
        process: &mut Process,
        description: &Description,
        memory: &mut Memory<'_>,
    ) -> Answer {
        let room = memory.left() as usize / RECORD;
        if room == 0 {
            return Err(Errno::EINVAL);
        }
        loop {
            deliver::collect(process);
            let set = self.set()?;
            let mut records = Vec::new();
            while records.len() < room * RECORD {
                // The thread's own come before the process's.
                let own = thread::own().directed.set() & set;
                let all = process.signals.pending.set() & set;
                let waiting = if own != 0 { own } else { all };
                if waiting == 0 {
                    break;
                }
                let signal = waiting.trailing_zeros() + 1;
                let info = process.take_signal(signal);
                records.extend(record(signal, &info));
            }
            if !records.is_empty() {
                return Ok(memory.put(&records)? as u64);
            }
            if description.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            sleep_until(process, Wait::new().signals(set), 0)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn records_are_those_of_signalfd_2() {
        let sent = Info { code: -1, first: 7 | 8 << 32, second: 9, ..Info::default() };
        let bytes = record(raw::SIGUSR1, &sent);
        assert_eq!((word(&bytes, 0), word(&bytes, 8) as i32), (raw::SIGUSR1, -1));
        assert_eq!((word(&bytes, 12), word(&bytes, 16), word(&bytes, 44)), (7, 8, 9));
        let timer = record(raw::SIGALRM, &Info { code: CODE_TIMER, ..sent });
        assert_eq!((word(&timer, 12), word(&timer, 24), word(&timer, 32)), (0, 7, 8));
        let child = Info { code: raw::CLD_EXITED as i32, ..sent };
        let child = record(raw::SIGCHLD, &child);
        assert_eq!((word(&child, 12), word(&child, 40), word(&child, 44)), (7, 9, 0));
    }
}
