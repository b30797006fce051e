//! Clients in turn: one that asks for much lets others in before it goes on.
//!
//! The reply to a transfer runs the client, also on time that another client gave the server when
//! it found it busy. So clients whose requests follow each other closely would keep all others out
//! for good. When requests have taken [`QUANTUM_US`], the next answer waits: the server sleeps for
//! [`PAUSE_NS`], accepting, and serves whoever comes but for the account whose request it was; of
//! that one requests are kept, too, and each that comes lengthens the pause. So everybody else who
//! wants in has had a chance to come, whoever's turn it was. Then what is kept is answered, first
//! come, first served, until the next pause.
//!
//! Requests of others put that off, as the server does not wake for what is kept while it is asked:
//! so an account that asks again and again gives way to it ([`Turns::gives_way`]).

use crate::call::Message;
use abi::id::EnvId;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// Microseconds that requests may take between two pauses.
const QUANTUM_US: u64 = 3_000;
/// Ticks of the counter in a microsecond where that is not known.
const TICKS: u64 = 1_000;
/// How long a pause is.
pub const PAUSE_NS: u64 = 50_000;
/// How much longer it is at most for all that come meanwhile.
const LONGER_NS: u64 = 1_000_000;
/// Votes that an account has at most: what one has asked for in the past must not let others ask as
/// often before they give way.
const VOTES: u32 = 64;
/// What a client sends, or gets, and what it finds kept.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Frame {
    /// rbp, rbx, r12 to r15.
    registers: [u64; 6],
    /// The message.
    pub message: Message,
}

/// A request that waits to be served, or the answer to one that was.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Who has asked.
    pub caller: EnvId,
    /// Which environment that was of all that there have been: another one may get its id.
    pub serial: Option<u64>,
    /// The request or the answer.
    pub frame: Frame,
    /// It is the answer.
    pub answered: bool,
    /// Since when it waits.
    pub since_ns: u64,
}

impl Kept {
    /// Does the environment with this serial, which has the caller's id now, wait for the answer?
    /// To another one it would be no answer but a call, which the server would wait for.
    pub fn is_for(&self, serial: Option<u64>) -> bool {
        serial.is_some() && serial == self.serial
    }
}

const NOTHING: Kept = Kept {
    caller: EnvId(0),
    serial: None,
    frame: Frame { registers: [0; 6], message: [0; 6] },
    answered: false,
    since_ns: 0,
};

/// What was spent since the last pause, and what waits.
#[derive(Debug)]
pub struct Turns {
    /// Ticks of the time-stamp counter, which is read by one instruction.
    spent: u64,
    /// How many requests may take.
    quantum: u64,
    /// The account that lets others in, and until when; and when that is over, whoever comes.
    payer: u64,
    until_ns: u64,
    latest_ns: u64,
    /// As many as there may be environments: each waits for one answer.
    kept: Vec<Kept>,
    first: usize,
    count: usize,
    /// The account that has been served most while something was kept, and by how many requests
    /// more than all others (Boyer and Moore's vote): what is kept waits for that one.
    most: (u64, u32),
    /// What is kept next: its caller, that one's serial, and whether it is an answer.
    next: (EnvId, Option<u64>, bool),
}

impl Turns {
    /// Nobody has asked yet.
    pub const fn new() -> Self {
        let kept = Vec::new();
        let (spent, quantum, payer, until_ns, latest_ns) = (0, TICKS * QUANTUM_US, 0, 0, 0);
        let (first, count, most, next) = (0, 0, (0, 0), (EnvId(0), None, false));
        Self { spent, quantum, payer, until_ns, latest_ns, kept, first, count, most, next }
    }

    /// There may be so many environments.
    pub fn make_room(&mut self, environments: usize) -> Result<(), TryReserveError> {
        self.kept.try_reserve_exact(environments)?;
        self.kept.resize(environments, NOTHING);
        Ok(())
    }

    /// So many ticks are a microsecond; 0: that is not known.
    pub fn set_ticks(&mut self, ticks: u32) {
        self.quantum = if ticks == 0 { TICKS } else { ticks.into() } * QUANTUM_US;
    }

    /// Does nothing wait?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// When the pause ends, if there is one.
    pub fn pause(&self, now: u64) -> Option<u64> {
        (now < self.until_ns).then_some(self.until_ns)
    }

    /// Is a request to be kept, as its account lets others in? `false`: it is to be served.
    pub fn keeps(&mut self, now: u64, payer: u64) -> bool {
        if self.pause(now).is_none() || payer != self.payer || !self.has_room() {
            return false;
        }
        self.until_ns = (now + PAUSE_NS).min(self.latest_ns).max(self.until_ns);
        true
    }

    /// A request of the account's was answered while something is kept. `true`: what is kept has
    /// waited for that account's requests for as long as a pause; so this answer is kept, and what
    /// has waited longest comes first. Who asks now and then is answered at once.
    pub fn gives_way(&mut self, now: u64, payer: u64) -> bool {
        self.most = match self.most {
            (most, count) if most == payer => (most, (count + 1).min(VOTES)),
            (_, 0) => (payer, 1),
            (most, count) => (most, count - 1),
        };
        let oldest = self.kept.get(self.first).filter(|_| self.count > 0);
        let waits = oldest.is_some_and(|kept| kept.since_ns + PAUSE_NS <= now);
        let asks_again = self.most.0 == payer;
        waits && asks_again && self.pause(now).is_none() && self.has_room()
    }

    /// A request was answered, which took so many ticks. `true`: the answer is to be kept until
    /// others were let in.
    #[inline]
    pub fn spend(&mut self, took: u64) -> bool {
        self.spent = self.spent.wrapping_add(took);
        self.spent >= self.quantum && self.has_room()
    }

    /// The account has asked for so much that it lets others in.
    #[cold]
    pub fn begin_pause(&mut self, now: u64, payer: u64) {
        self.spent = 0;
        self.payer = payer;
        self.until_ns = now + PAUSE_NS;
        self.latest_ns = now + LONGER_NS;
    }

    /// Says whose request or answer [`keep`](Self::keep) keeps; 0, which is no reply's `rax`.
    #[inline]
    pub fn wait(&mut self, caller: EnvId, serial: Option<u64>, answered: bool) -> u64 {
        self.next = (caller, serial, answered);
        0
    }

    /// Keeps it from now on.
    pub fn keep(&mut self, now: u64, frame: &Frame) {
        let (caller, serial, answered) = self.next;
        if self.has_room() {
            let at = (self.first + self.count) % self.kept.len();
            self.kept[at] = Kept { caller, serial, frame: *frame, answered, since_ns: now };
            self.count += 1;
        }
    }

    fn has_room(&self) -> bool {
        self.count < self.kept.len()
    }

    /// What has waited longest.
    pub fn take(&mut self) -> Option<Kept> {
        let kept = self.kept.get(self.first).copied().filter(|_| self.count > 0)?;
        self.first = (self.first + 1) % self.kept.len();
        self.count -= 1;
        if self.count == 0 {
            self.most = (0, 0);
        }
        Some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept for one account waits for another one that asks again and again no longer than
    /// a pause, and who asks once does not wait for what is kept.
    #[test]
    fn who_asks_again_and_again_gives_way() {
        let mut turns = Turns::new();
        turns.make_room(8).unwrap();
        assert!(!turns.gives_way(0, 1), "nothing is kept");
        turns.wait(EnvId(5), Some(7), true);
        turns.keep(0, &NOTHING.frame);
        let asked = |turns: &mut Turns| (0..10).any(|_| turns.gives_way(PAUSE_NS - 1, 1));
        assert!(!asked(&mut turns), "before a pause is over");
        assert!(!turns.gives_way(PAUSE_NS, 2), "one that asks once");
        assert!(turns.gives_way(PAUSE_NS, 1));
        // However often another one had asked before.
        (0..10_000).for_each(|_| _ = turns.gives_way(0, 3));
        let again = (0..=2 * VOTES).position(|_| turns.gives_way(PAUSE_NS, 1));
        assert!(again.is_some(), "it need not give way");
        turns.begin_pause(PAUSE_NS, 2);
        assert!(!turns.gives_way(PAUSE_NS, 1), "in a pause others are let in");
        turns.take();
        assert!(!turns.gives_way(3 * PAUSE_NS, 1), "nothing is kept any more");
        assert_eq!(turns.most, (1, 1), "who asked before is forgotten");
    }

    /// Environments of one domain can have one id, one after the other.
    #[test]
    fn what_is_kept_is_for_who_has_asked_alone() {
        let mut turns = Turns::new();
        turns.make_room(2).unwrap();
        let frame = NOTHING.frame;
        for (serial, answered) in [(Some(7), true), (None, false)] {
            turns.wait(EnvId(5), serial, answered);
            turns.keep(0, &frame);
        }
        let kept = turns.take().unwrap();
        assert_eq!((kept.caller, kept.answered), (EnvId(5), true));
        assert!(kept.is_for(Some(7)));
        assert!(!kept.is_for(Some(65_543)), "the id has come again");
        assert!(!kept.is_for(None), "it has ended");
        let of_nobody = turns.take().unwrap();
        assert!(!of_nobody.is_for(None) && !of_nobody.is_for(Some(7)));
    }
}
