//! Faults that another environment answers, and software interrupts that are functions.
//!
//! Neither asks anything of the kernel. A fault comes to the environment that has it, whose handler
//! hands it on by a control transfer (l4stack 7.1, "exception IPC"); `int n` is #GP for a gate of
//! the interrupt table (SDM 3A §6.13), as none but those of #BP and #OF is open to programs (xok97
//! XK-21). Which one, the instruction says: QEMU 7.2 names twice the vector in the error code. What
//! is not redirected is the program's as before.
//!
//! ```text
//!  fault ─► handler ─► Redirect::handle ─┬─ cause handed on ─► transfer ─► another environment
//!                                        ├─ `int n` ─► function, behind the instruction
//!                                        └─ false: the program's own
//! ```
//!
//! # Safety
//! Reads the bytes of the instruction that the processor has just decoded.
#![allow(unsafe_code)]

use crate::call::{self, Message, Refused};
use crate::upcall::{self, Slot, block};
use abi::error::Error;
use abi::id::EnvId;
use abi::upcall::Cause;

/// In a reply: the program goes on, with the rip and rax that are its next words.
pub const GO_ON: u64 = 1;
/// The operation code of `int n`.
const INT: u8 = 0xcd;
/// How often a busy environment is given the processor before it is one that does not answer.
const TRIES: u32 = 100_000;
/// Bytes of the longest instruction (SDM 2 §2.3.11).
const LONGEST: u64 = 15;
/// In the error code of #GP: a gate of the interrupt table (SDM 3A §6.13), not by a device.
const GATE: u64 = 2;
const GATE_MASK: u64 = 7;

/// What the other environment is told of a fault: the words of its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// [`Cause`] as a number.
    pub cause: u64,
    /// The processor's error code.
    pub error: u64,
    /// The address it names.
    pub address: u64,
    /// Where.
    pub rip: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// rax.
    pub rax: u64,
}

impl Report {
    /// From a message.
    pub fn of(message: &Message) -> Self {
        let [cause, error, address, rip, rsp, rax] = *message;
        Self { cause, error, address, rip, rsp, rax }
    }

    fn words(&self) -> Message {
        [self.cause, self.error, self.address, self.rip, self.rsp, self.rax]
    }
}

/// The reply by which the program goes on.
pub fn go_on(rip: u64, rax: u64) -> Message {
    [GO_ON, rip, rax, 0, 0, 0]
}

/// Does a software interrupt: changes the registers as it likes.
pub type Interrupt = fn(&mut Slot);

/// Who answers what.
#[derive(Clone, Copy, Debug)]
pub struct Redirect {
    to: EnvId,
    /// A bit for each cause.
    causes: u64,
    interrupts: [Option<Interrupt>; 256],
}

impl Default for Redirect {
    fn default() -> Self {
        Self::new()
    }
}

impl Redirect {
    /// Nobody, nothing.
    pub const fn new() -> Self {
        Self { to: EnvId::NONE, causes: 0, interrupts: [None; 256] }
    }

    /// Faults of these causes are `to`'s to answer.
    pub fn faults_to(&mut self, to: EnvId, causes: &[Cause]) {
        self.to = to;
        self.causes = causes.iter().fold(0, |bits, &cause| bits | 1 << cause as u8);
    }

    /// `int vector` runs `function`; not of the vectors that are faults of their own (3 and 4).
    pub fn interrupt(&mut self, vector: u8, function: Interrupt) {
        self.interrupts[usize::from(vector)] = Some(function);
    }

    /// From a handler: true if the program goes on with what is in the slot now. False, and nothing
    /// has changed, if it is nobody's, or who should answer does not.
    pub fn handle(&self, slot: &mut Slot, cause: u64, address: u64) -> bool {
        if cause == Cause::Protection as u64 && slot.error & GATE_MASK == GATE {
            let (vector, bytes) = int(slot.rip);
            if let Some(function) = self.interrupts[usize::from(vector)] {
                slot.rip += bytes;
                function(slot);
                return true;
            }
        }
        if cause >= u64::from(u64::BITS) || self.causes >> cause & 1 == 0 {
            return false;
        }
        let Slot { rip, rsp, rax, error, .. } = *slot;
        let report = Report { cause, error, address, rip, rsp, rax };
        // The program may have been about to read this word, behind a transfer of its own.
        let kept = upcall::word(block::TRANSFER_RSP);
        let reply = self.ask(&report);
        // SAFETY: the word is the library's, and as it was.
        unsafe { upcall::set_word(block::TRANSFER_RSP, kept) };
        match reply {
            Ok([GO_ON, rip, rax, ..]) => {
                (slot.rip, slot.rax) = (rip, rax);
                true
            }
            _ => false,
        }
    }

    /// The other environment's answer; while it serves others it is given the processor.
    fn ask(&self, report: &Report) -> Result<Message, Refused> {
        for _ in 1..TRIES {
            match call::transfer(self.to, report.words()) {
                Err((Error::Busy, _)) => drop(call::yield_to(self.to)),
                answer => return answer,
            }
        }
        call::transfer(self.to, report.words())
    }
}

/// The vector of the `int n` at this address, and its bytes: prefixes, operation code, vector.
fn int(rip: u64) -> (u8, u64) {
    // SAFETY: the processor has just decoded the instruction, whose bytes end with these two.
    let byte = |at: u64| unsafe { ((rip + at) as *const u8).read_volatile() };
    let prefixes = (0..LONGEST - 2).take_while(|&at| byte(at) != INT).count() as u64;
    (byte(prefixes + 1), prefixes + 2)
}
