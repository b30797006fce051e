//! The end of a process, and what its parent hears of it.

use crate::page::{self, ProcessPage};
use crate::process::Process;
use crate::signal::sender::NOBODY;
use crate::{group_list, groups, lock, thread, threads, trace};
use abi::id::{DomainId, EnvId};
use linux_raw_sys::general as linux;
use xok::call::{self, OWN};

/// Wait status of a process that exited (`W_EXITCODE`).
pub const fn exited(code: u64) -> u64 {
    (code & 0xff) << 8
}

/// Wait status of a process that a signal ended.
pub const fn signalled(signal: u32) -> u64 {
    (signal & 0x7f) as u64
}

/// Wait status of a stopped process.
pub const fn stopped(signal: u32) -> u64 {
    0x7f | ((signal & 0xff) as u64) << 8
}

/// Wait status of a process that goes on.
pub const CONTINUED: u64 = 0xffff;

/// Bits of the word a process leaves that are its wait status (no memory is ever dumped: that bit
/// is free). The others say what its page, gone with it, no longer tells. 0: another one ended it.
const STATUS: u64 = 0xff7f;
/// It has executed a program.
const EXECUTED: u64 = 0x80;
/// Shift of its real user: 16 bits, one more than its number; 0 and all ones: it does not say.
const USER_SHIFT: u32 = 16;
/// Shift of the group it was in.
const GROUP_SHIFT: u32 = 32;

/// The word that a process with this page leaves.
pub fn word(status: u64, page: &ProcessPage) -> u64 {
    let executed = if page.executed != 0 { EXECUTED } else { 0 };
    let user = u64::from(page.user.saturating_add(1).min(u16::MAX.into())) << USER_SHIFT;
    status & STATUS | executed | user | u64::from(page.group) << GROUP_SHIFT
}

/// The wait status of a process with this word, which that has chosen itself: it has exited, or a
/// signal has ended it. Of any other word it is told that it was killed: its parent would take it
/// for stopped, and wait for what is not there.
pub fn status_of(word: u64) -> u64 {
    match word as u32 & 0x7f {
        0 => word & STATUS,
        signal @ 1..=64 => signalled(signal),
        _ => signalled(linux::SIGKILL),
    }
}

/// The group that a process with this word was in, 0: it does not say.
pub fn group_of(word: u64) -> u32 {
    (word >> GROUP_SHIFT) as u32
}

/// The real user of a process with this word, as it says.
pub fn user_of(word: u64) -> u32 {
    match (word >> USER_SHIFT) as u16 {
        0 | u16::MAX => NOBODY,
        user => u32::from(user) - 1,
    }
}

/// Has a process with this word executed a program?
pub fn has_executed(word: u64) -> bool {
    word & EXECUTED != 0
}

/// `exit_group(code)`
pub fn exit_group(process: &mut Process, code: u64) -> ! {
    end(process, exited(code))
}

/// Ends the process because one of its threads died inside ExOS and left the lock taken.
pub fn with_the_dead() -> ! {
    let own = xok::published::env(thread::own().id).unwrap_or_default();
    let word = signalled(linux::SIGKILL);
    loop {
        let _ = call::env_destroy(OWN, thread::process().id, word);
        let _ = call::domain_destroy(OWN, DomainId(own.domain));
    }
}

/// Ends the process by `signal`.
pub fn by_signal(process: &mut Process, signal: u32) -> ! {
    let dumps = [
        linux::SIGQUIT,
        linux::SIGILL,
        linux::SIGTRAP,
        linux::SIGABRT,
        linux::SIGBUS,
        linux::SIGFPE,
        linux::SIGSEGV,
        linux::SIGSYS,
    ];
    if dumps.contains(&signal) && crate::start::wants_reports() {
        crate::start::report_signal(process, signal);
    }
    end(process, signalled(signal))
}

/// Ends the process with this word, from any of its threads.
pub fn end(process: &mut Process, word: u64) -> ! {
    if process.traced {
        trace::ended(word);
    }
    threads::stop_others(process);
    threads::give_up(process);
    crate::net::finish(process);
    crate::fs::pty::leave_session(process);
    crate::orphans::hang_up(process);
    if process.borrows_space {
        group_list::leave(process);
        // The domain lives on in the vfork parent, so what this process attached must be given
        // back.
        process.files.detach();
    }
    groups::follow(process);
    let word = self::word(word, page::own());
    // Children lose their holder with the first thread, and with it their zombies.
    if !thread::own().is_first() {
        let _ = call::env_destroy(OWN, process.id, word);
    }
    // A vfork child's space lives on, and so may that of a vfork parent.
    lock::leave_if_ours();
    loop {
        let _ = call::env_destroy(OWN, EnvId::NONE, word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_those_of_wait_2() {
        assert_eq!(exited(3), 0x300);
        assert_eq!(exited(256 + 3), 0x300);
        assert_eq!(signalled(9), 9);
        assert_eq!(stopped(19), 0x137f);
    }

    #[test]
    fn a_word_is_an_exit_or_a_signal_that_there_is() {
        let ends = [(0x300, 0x300), (64, 64), (0x130f, 15), (65, 9), (0x137f, 9), (!0, 9)];
        assert_eq!(ends.map(|(word, _)| status_of(word)), ends.map(|(_, status)| status));
    }

    #[test]
    fn a_word_says_what_the_page_said() {
        let page =
            ProcessPage { group: 0x4000_0005, executed: 1, user: 1000, ..ProcessPage::EMPTY };
        let left = word(exited(3), &page);
        assert_eq!((status_of(left), group_of(left), user_of(left)), (0x300, 0x4000_0005, 1000));
        assert!(has_executed(left) && !has_executed(word(signalled(9), &ProcessPage::EMPTY)));
        let told = |user| user_of(word(0, &ProcessPage { user, ..ProcessPage::EMPTY }));
        assert_eq!([0, 1000, 65533, 65534].map(told), [0, 1000, 65533, 65534]);
        assert_eq!([65535, 100_000, u32::MAX].map(told), [NOBODY; 3]);
        assert_eq!(user_of(0), NOBODY, "of one that another one has ended");
    }
}
