//! Waits of every kind that the kernel's table of calls has.

use super::mirror::{enter_at, set_application_word};
use abi::call::SLEEP_ACCEPT;
use abi::error::Error;
use abi::id::EnvId;
use abi::predicate::{Atom, Operator, Source};
use abi::region::{RegionOperation, RegionWait, Step, WordAt};
use abi::upcall::EVENT_TIMER;
use xok::call;

/// Waits once, in the way its first word says, for what its third names, until the time in its
/// second (0: for ever); its report is how that ended.
pub const WAIT: u64 = 46;

/// Asleep until a word in memory changes.
pub const PREDICATE: u64 = 0;
/// The same, accepting transfers.
pub const ACCEPT: u64 = 1;
/// In `RegionAwait`.
pub const AWAIT: u64 = 2;
/// In `RegionStepOrWait`.
pub const STEP: u64 = 3;
/// For a server's reply.
pub const REPLY: u64 = 4;

/// The role that the waiter is attached in, and that of its peer.
pub const OWN_ROLE: u8 = 0;
/// See `OWN_ROLE`.
pub const PEER_ROLE: u8 = 1;
/// What the waiter's server shall do for so many nanoseconds: longer than any test takes.
const LONG: u64 = 60_000_000_000;

/// The report of a call that answered this.
pub const fn answered(value: u64) -> u64 {
    0x1000 | value
}

/// The report of a call that was refused.
pub const fn refused(error: Error) -> u64 {
    0x2000 | error as u64
}

/// Waits.
pub fn wait(kind: u64, deadline: u64, what: u64) -> u64 {
    let answer = match kind {
        PREDICATE | ACCEPT => sleep(kind, deadline, what),
        AWAIT => {
            let mut operation = RegionOperation {
                region: what,
                compares: 1,
                role: OWN_ROLE,
                ..RegionOperation::default()
            };
            // One compare, which fails while the word is 0.
            operation.compare[0] = WordAt { offset: 0, value: 1 };
            let wait = RegionWait {
                operation,
                unchanged: WordAt { offset: 0, value: 0 },
                peer: PEER_ROLE.into(),
            };
            call::region_await(&wait, deadline, 0, 0)
        }
        STEP => {
            let step = Step {
                region: what,
                role: OWN_ROLE,
                peer: PEER_ROLE,
                len: 8,
                offset: 32,
                moves: 0,
                beside: 1,
                events: EVENT_TIMER as u16,
                ..Step::default()
            };
            let place = [0_u64];
            // The event is the call's to see, not a handler's.
            xok::upcall::set_mask(true);
            call::timer_set(deadline)
                .and_then(|_| call::region_step_or_wait(&step, place.as_ptr() as u64, 0, 0))
        }
        _ => call::transfer(EnvId(what as u32), [LONG, 0, 0, 0, 0, 0]).map(|reply| reply[0]),
    };
    match answer {
        Ok(value) => answered(value),
        Err((error, _)) => refused(error),
    }
}

fn sleep(kind: u64, deadline: u64, address: u64) -> Result<u64, call::Refused> {
    let atom = Atom {
        operator: Operator::Equal as u8,
        left: Source::Memory as u8,
        right: Source::Constant as u8,
        last: 1,
        left_value: address,
        right_value: 1,
        ..Atom::default()
    };
    call::predicate_set(&[atom])?;
    let accepts = kind == ACCEPT && enter_at(entry as *const () as u64, 0);
    set_application_word(1);
    call::sleep(deadline, 0, 0, if accepts { SLEEP_ACCEPT } else { 0 })
}

/// Nobody calls: that a transfer is accepted is all that is wanted.
extern "C" fn entry() -> ! {
    call::exit(0xbad)
}
