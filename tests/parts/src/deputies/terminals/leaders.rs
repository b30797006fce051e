//! Leaders that live have their terminal, whatever its settings say of them.

use super::numbers::{regions_of, settle};
use super::{SEEN, SIGNALS, Terminal, count};
use crate::deputies::{NOBODY, look};
use crate::{Seen, expect, libc};
use abi::region::WordAt;
use std::sync::atomic::Ordering;

/// Offset of the last word of the settings, and in it the state's bit that says that the session's
/// leader has ended.
const STATE: u64 = 56;
const HAS_LEFT: u64 = 1 << (7 * 8 + 4);

/// Says in the settings of a terminal that the leader of its session has ended.
fn say_that_it_ended(door: door::Door, control: u64) -> i32 {
    if !libc::become_user(NOBODY) {
        return 1;
    }
    let state = (0..2).find_map(|role| look(door, control, role, STATE, 8));
    let Some(Ok(state)) = state.map(|bytes| bytes.try_into()) else { return 2 };
    let value = u64::from_le_bytes(state) | HAS_LEFT;
    i32::from(!settle(door, control, WordAt { offset: STATE, value })) * 3
}

/// A process that has a session's terminal, of another user, says that the session's leader has
/// ended: the leader's group, in the foreground, hears no hang-up.
pub fn living_leaders_are_not_hung_up(door: door::Door) -> Seen {
    let status = libc::wait(libc::spawn(|| {
        SEEN.store(0, Ordering::SeqCst);
        SIGNALS.iter().for_each(|&signal| libc::handle(signal, count));
        let leads = libc::lead_session();
        let Some(mut own) = Terminal::open(true).filter(|_| leads) else { return 1 };
        let Some([_, _, control, _]) = regions_of(&own) else { return 2 };
        let said = libc::wait(libc::spawn(|| say_that_it_ended(door, control)));
        // What is typed later is read: the server has looked at the settings.
        match said {
            0 if own.serves() => (SEEN.load(Ordering::SeqCst) != 0).into(),
            0 => 3,
            said => said >> 8 << 4,
        }
    }));
    expect(status == 0, || format!("user 0's leader ended with {status:#x}"))?;
    Ok(String::new())
}
