//! A traced process tells its Linux calls: records of the kernel's log, with strace's words.
//!
//! ```text
//!  strace: 17>openat(AT_FDCWD, "/etc/passwd", O_RDONLY     thread 17 begins a call
//!  strace: 17<)                                  = 3       and has ended it: with a tab
//!  strace: 17=--- SIGINT {si_signo=SIGINT, ...} ---        a whole line
//!  strace: 17+...                                          a piece; the next one goes on
//! ```
//! `cargo xtask run` makes a trace of them (`target/xok/strace.txt`). A program is traced if its
//! environment says `XOK_STRACE=1`, and so are its children and what it executes, until one says
//! `XOK_STRACE=0`. Nobody else looks at any of this: a traced process has another handler and no
//! trivial calls (`start::set_traced`). Call sites are rewritten as always: what comes by a jump is
//! told as what comes through the kernel.

use crate::capabilities::LOG_SLOT;
use crate::errno::Answer;
use crate::process::Process;
use crate::signal::Info;
use crate::{start, thread, user};
use alloc::vec::Vec;
use linux_raw_sys::{auxvec, general as linux};
use strace::signals::{self, Information};
use strace::{Call, Memory, Outcome};
use xok::call;
use xok::print::LOG;
use xok::upcall::Slot;

/// What in an environment switches it on, and off.
const SWITCHES: [(&[u8], bool); 2] = [(b"XOK_STRACE=1", true), (b"XOK_STRACE=0", false)];
/// What each record begins with.
const PREFIX: &str = "strace: ";
/// Bytes of a record at most: those that the kernel writes in one go.
const RECORD_BYTES: usize = 256;

/// The running program's memory.
struct Program;

impl Memory for Program {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        user::read_bytes(address, into).is_ok()
    }
}

/// A call under way.
pub struct Begun {
    number: u64,
    words: [u64; 6],
}

impl Begun {
    fn call(&self, outcome: Option<Outcome>) -> Call<'static> {
        Call { number: self.number, words: self.words, outcome, memory: &Program }
    }
}

/// Tells that the call in `slot` begins.
pub fn begin(slot: &Slot) -> Begun {
    let mut words = [slot.rdi, slot.rsi, slot.rdx, slot.r10, slot.r8, slot.r9];
    if slot.rax == u64::from(linux::__NR_rt_sigreturn) {
        // It has no arguments: the frame is on the stack.
        words[0] = slot.rsp;
    }
    let begun = Begun { number: slot.rax, words };
    tell('>', &strace::begin(&begun.call(None)));
    if [linux::__NR_exit, linux::__NR_exit_group].map(u64::from).contains(&slot.rax) {
        tell('<', &strace::end(&begun.call(Some(Outcome::Gone))));
    }
    begun
}

/// Tells how it ended.
pub fn end(begun: &Begun, answer: Answer) {
    let outcome = match answer {
        Ok(value) => outcome_of(value),
        Err(errno) => Outcome::Failed(errno.0),
    };
    tell('<', &strace::end(&begun.call(Some(outcome))));
}

/// What a register says, as a return from a signal handler restores it.
fn outcome_of(value: u64) -> Outcome {
    const ERRORS: i64 = 4095;
    let signed = value as i64;
    if (-ERRORS..0).contains(&signed) {
        Outcome::Failed(-signed as u16)
    } else {
        Outcome::Value(value)
    }
}

/// A program is about to begin, its stack pointer at `rsp`: tells of the `execve` that made it, in
/// whole, or the end of it if the life before was traced, too.
pub fn begin_life(process: &mut Process, environment: &[Vec<u8>], rsp: u64) {
    let before = process.traced;
    let said = |text: &Vec<u8>| SWITCHES.iter().find(|(word, _)| word == text);
    if let Some((_, wanted)) = environment.iter().rev().find_map(said) {
        process.traced = *wanted;
    }
    start::set_traced(process.traced);
    if !process.traced && !before {
        return;
    }
    let words = arguments(rsp).unwrap_or_default();
    let begun = Begun { number: linux::__NR_execve.into(), words };
    if !before {
        tell('>', &strace::begin(&begun.call(None)));
    }
    tell('<', &strace::end(&begun.call(Some(Outcome::Value(0)))));
}

/// Does this call, if it answers nothing wrong, begin another program?
pub fn is_execution(number: u64) -> bool {
    [linux::__NR_execve, linux::__NR_execveat].map(u64::from).contains(&number)
}

/// The arguments of `execve` as they stand on the new program's stack (`crate::stack`).
fn arguments(rsp: u64) -> Result<[u64; 6], crate::errno::Errno> {
    let count: u64 = user::read_value(rsp)?;
    let list = rsp + 8;
    let variables = list + 8 * (count + 1);
    let mut at = variables;
    while user::read_value::<u64>(at)? != 0 {
        at += 8;
    }
    at += 8;
    loop {
        let [kind, value]: [u64; 2] = user::read_value(at)?;
        if kind == u64::from(auxvec::AT_EXECFN) || kind == 0 {
            return Ok([value, list, variables, 0, 0, 0]);
        }
        at += 16;
    }
}

/// Tells that the running thread takes `signal`, or that it arrived in vain.
pub fn signal(signal: u32, info: Info) {
    let Info { code, first, second, .. } = info;
    tell('=', &signals::taken(&Information { signal: signal.into(), code, first, second }));
}

/// Tells that the running thread ends with this wait status.
pub fn ended(status: u64) {
    tell('=', &signals::ended(status));
}

/// Writes a record, in pieces if it is long.
fn tell(mark: char, text: &str) {
    let tid = thread::own().id.0;
    let mut rest = text.as_bytes();
    loop {
        let head = alloc::format!("{PREFIX}{tid}{mark}");
        let room = RECORD_BYTES - head.len() - 1;
        let last = rest.len() <= room;
        let (piece, behind) = rest.split_at(rest.len().min(room));
        let head = if last { head } else { alloc::format!("{PREFIX}{tid}+") };
        let mut record = head.into_bytes();
        record.extend_from_slice(piece);
        record.push(b'\n');
        // The log never refuses; without the right to write to it there is nowhere to say so.
        let _ = call::console_write(LOG_SLOT, LOG, &record);
        rest = behind;
        if last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_negative_register_is_an_error() {
        assert_eq!(super::outcome_of(-4_i64 as u64), strace::Outcome::Failed(4));
        assert_eq!(super::outcome_of(0x7fff_0000_0000), strace::Outcome::Value(0x7fff_0000_0000));
    }
}
