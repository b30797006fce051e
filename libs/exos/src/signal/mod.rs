//! Signals: what a process wants done with each, and what waits for it.
//!
//! A signal sent by another process is a `Post` of bit n - 1; its own end up in `pending` directly.
//! They are taken on the way out of ExOS, never inside it ([`deliver`]); a sleep ends by them.

pub mod calls;
pub mod deliver;
pub mod frame;
pub mod hidden;
pub mod pending;
pub mod send;
pub mod sender;
pub mod vector;

use linux_raw_sys::general as linux;
use pending::Pending;

/// Signals there are.
pub const SIGNALS: usize = 64;

/// What a handler is told beside the number (`siginfo`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// `si_code`
    pub code: i32,
    /// The first word behind the header: pid and uid, or the faulting address.
    pub first: u64,
    /// The second word: status, or a value.
    pub second: u64,
    /// Number of the exception, for the context (`REG_TRAPNO`).
    pub trap: u64,
    /// Its error code (`REG_ERR`).
    pub error: u64,
    /// The faulting address (`REG_CR2`).
    pub address: u64,
}

/// `SI_USER`
pub const CODE_USER: i32 = 0;
/// `SI_KERNEL`
pub const CODE_KERNEL: i32 = 0x80;
/// `SI_TKILL`
pub const CODE_THREAD: i32 = -6;

/// What `sigaction` set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// 0 default, 1 ignore, else an address.
    pub handler: u64,
    /// `SA_…`
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// Blocked while it runs.
    pub mask: u64,
}

/// What becomes of a signal now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Ignore,
    /// The process ends (by the signal).
    End,
    /// It stops.
    Stop,
    /// It goes on (it is on, when it can ask).
    Continue,
    /// A handler of the program's runs.
    Handle,
}

/// The bit of a signal, 1..=64.
pub const fn bit(signal: u32) -> u64 {
    if signal >= 1 && signal <= 64 { 1 << (signal - 1) } else { 0 }
}

/// Signals that cannot be blocked, ignored or handled.
pub const UNMASKABLE: u64 = bit(linux::SIGKILL) | bit(linux::SIGSTOP);
/// Signals that stop by default.
pub const STOPS: u64 =
    bit(linux::SIGSTOP) | bit(linux::SIGTSTP) | bit(linux::SIGTTIN) | bit(linux::SIGTTOU);
/// Signals ignored by default.
pub const IGNORED: u64 =
    bit(linux::SIGCHLD) | bit(linux::SIGURG) | bit(linux::SIGWINCH) | bit(linux::SIGCONT);
/// Signals that an instruction causes: they are taken first.
const SYNCHRONOUS: u64 = bit(linux::SIGSEGV)
    | bit(linux::SIGBUS)
    | bit(linux::SIGILL)
    | bit(linux::SIGTRAP)
    | bit(linux::SIGFPE)
    | bit(linux::SIGSYS);

/// The signal half of a process; what each thread blocks is the thread's (`crate::thread`).
#[derive(Clone, Debug)]
pub struct Signals {
    actions: [Action; SIGNALS],
    /// Arrived and not yet taken.
    pub pending: Pending,
}

impl Default for Signals {
    fn default() -> Self {
        Self { actions: [Action::default(); SIGNALS], pending: Pending::default() }
    }
}

impl Signals {
    /// What was asked for `signal` (1..=64).
    pub fn action(&self, signal: u32) -> Action {
        self.actions.get(signal.wrapping_sub(1) as usize).copied().unwrap_or_default()
    }

    /// Sets it.
    pub fn set_action(&mut self, signal: u32, action: Action) {
        if let Some(place) = self.actions.get_mut(signal.wrapping_sub(1) as usize) {
            *place = action;
        }
        if self.effect(signal) == Effect::Ignore {
            self.pending.discard(signal);
        }
    }

    /// What `signal` would do now.
    pub fn effect(&self, signal: u32) -> Effect {
        let mask = bit(signal);
        match self.action(signal).handler {
            1 if mask & UNMASKABLE == 0 => Effect::Ignore,
            0 | 1 if mask & STOPS != 0 => Effect::Stop,
            0 | 1 if signal == linux::SIGCONT => Effect::Continue,
            0 | 1 if mask & IGNORED != 0 => Effect::Ignore,
            0 | 1 => Effect::End,
            _ => Effect::Handle,
        }
    }

    /// Notes that `signal` arrived for a thread that blocks the set `blocked`; false if there is no
    /// room for one more of it.
    pub fn arrive(&mut self, signal: u32, info: Info, blocked: u64) -> bool {
        self.drops(signal, blocked) || self.pending.put(signal, info)
    }

    /// Does nothing come of `signal`, if these are blocked?
    pub fn drops(&self, signal: u32, blocked: u64) -> bool {
        self.effect(signal) == Effect::Ignore && blocked & bit(signal) == 0
    }

    /// Are dead children nobody's, so that they vanish (sigaction(2), `SA_NOCLDWAIT`)?
    pub fn drops_children(&self) -> bool {
        let action = self.action(linux::SIGCHLD);
        action.handler == 1 || action.flags & u64::from(linux::SA_NOCLDWAIT) != 0
    }

    /// The next signal to take: pending or `directed` at the thread, not `blocked`; those of
    /// instructions first.
    pub fn next(&self, directed: u64, blocked: u64) -> Option<u32> {
        let ready = (self.pending.set() | directed) & !(blocked & !UNMASKABLE);
        let first = if ready & SYNCHRONOUS != 0 { ready & SYNCHRONOUS } else { ready };
        (first != 0).then(|| first.trailing_zeros() + 1)
    }

    /// Takes `signal` off the list; what its handler is told.
    pub fn take(&mut self, signal: u32) -> Info {
        self.pending.take(signal).unwrap_or_default()
    }

    /// A signal that the running instruction causes: one that is `blocked` or ignored will end the
    /// process. Answers what is blocked from now on.
    pub fn force(&mut self, signal: u32, blocked: u64) -> u64 {
        if blocked & bit(signal) == 0 && self.action(signal).handler != 1 {
            return blocked;
        }
        self.set_action(signal, Action::default());
        blocked & !bit(signal)
    }

    /// Signals with this effect-by-`sigaction`: handled (true) or ignored (false), as bits.
    pub fn set_of(&self, handled: bool) -> u64 {
        let mut set = 0;
        for (at, action) in self.actions.iter().enumerate() {
            if (handled && action.handler > 1) || (!handled && action.handler == 1) {
                set |= 1 << at;
            }
        }
        set
    }

    /// What `exec` leaves: handlers become the default, what was ignored stays so.
    pub fn for_exec(&mut self) {
        for action in &mut self.actions {
            let handler = u64::from(action.handler == 1);
            *action = Action { handler, ..Action::default() };
        }
    }

    /// Makes the signals of `set` ignored.
    pub fn ignore(&mut self, set: u64) {
        for (at, action) in self.actions.iter_mut().enumerate() {
            if set >> at & 1 != 0 {
                *action = Action { handler: 1, ..Action::default() };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_signal_7() {
        let signals = Signals::default();
        assert_eq!(signals.effect(linux::SIGCHLD), Effect::Ignore);
        assert_eq!(signals.effect(linux::SIGTSTP), Effect::Stop);
        assert_eq!(signals.effect(linux::SIGCONT), Effect::Continue);
        assert_eq!(signals.effect(linux::SIGUSR1), Effect::End);
    }

    #[test]
    fn faults_come_before_others_and_blocked_ones_wait() {
        let mut signals = Signals::default();
        signals.arrive(linux::SIGHUP, Info::default(), 0);
        signals.arrive(linux::SIGSEGV, Info::default(), 0);
        assert_eq!(signals.next(0, 0), Some(linux::SIGSEGV));
        signals.take(linux::SIGSEGV);
        let blocked = bit(linux::SIGHUP) | bit(linux::SIGKILL);
        assert_eq!(signals.next(0, blocked), None);
        assert_eq!(signals.next(bit(linux::SIGUSR1), blocked), Some(linux::SIGUSR1));
        signals.arrive(linux::SIGKILL, Info::default(), blocked);
        assert_eq!(signals.next(0, blocked), Some(linux::SIGKILL));
    }

    #[test]
    fn exec_keeps_what_was_ignored() {
        let mut signals = Signals::default();
        signals.set_action(linux::SIGINT, Action { handler: 1, ..Action::default() });
        signals.set_action(linux::SIGTERM, Action { handler: 0x1000, ..Action::default() });
        signals.for_exec();
        assert_eq!(signals.effect(linux::SIGINT), Effect::Ignore);
        assert_eq!(signals.effect(linux::SIGTERM), Effect::End);
    }

    #[test]
    fn a_forced_signal_gets_through() {
        let mut signals = Signals::default();
        signals.set_action(linux::SIGSEGV, Action { handler: 1, ..Action::default() });
        assert_eq!(signals.force(linux::SIGSEGV, !0), !bit(linux::SIGSEGV));
        assert_eq!(signals.effect(linux::SIGSEGV), Effect::End);
    }
}
