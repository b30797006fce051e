//! Leaders that live have their terminal, whatever its settings say of them.

use super::numbers::{regions_of, settle};
use super::{FOREGROUND, SEEN, SIGNALS, Terminal, count};
use crate::deputies::{NOBODY, look, store};
use crate::{Seen, expect, libc};
use abi::region::WordAt;
use std::sync::atomic::Ordering;
use unix::tty::shared::TERMINALS;

/// Offset of the last word of the settings, and in it the state's bit that says that the session's
/// leader has ended.
const STATE: u64 = 56;
const HAS_LEFT: u64 = 1 << (7 * 8 + 4);
/// Ends that are said, of as many groups: more than there may be terminals.
const SAID: u64 = TERMINALS as u64 + 8;

/// Says in the settings of a terminal that the leader of its session has ended, with its own group
/// in the foreground, and then with others.
fn say_that_it_ended(door: door::Door, leader: u32, own: &mut Terminal) -> i32 {
    let control = regions_of(own).map_or(0, |[_, _, control, _]| control);
    if !libc::become_user(NOBODY) {
        return 1;
    }
    let state = (0..2).find_map(|role| look(door, control, role, STATE, 8));
    let Some(Ok(state)) = state.map(|bytes| bytes.try_into()) else { return 2 };
    let value = u64::from_le_bytes(state) | HAS_LEFT;
    if !store(door, control, WordAt { offset: STATE, value }) {
        return 3;
    }
    for said in 0..SAID {
        let value = u64::from(leader) << 32 | (u64::from(leader) + said);
        // What is typed later is read: the server has looked at the settings.
        if !settle(door, control, WordAt { offset: FOREGROUND, value }) || !own.serves() {
            return 4;
        }
    }
    0
}

/// A process that has a session's terminal, of another user, says that the session's leader has
/// ended: the leader's group, in the foreground, hears no hang-up.
pub fn living_leaders_are_not_hung_up(door: door::Door) -> Seen {
    let status = libc::wait(libc::spawn(|| {
        SEEN.store(0, Ordering::SeqCst);
        SIGNALS.iter().for_each(|&signal| libc::handle(signal, count));
        let leads = libc::lead_session();
        let Some(mut own) = Terminal::open(true).filter(|_| leads) else { return 1 };
        let leader = std::process::id();
        match libc::wait(libc::spawn(|| say_that_it_ended(door, leader, &mut own))) {
            0 if own.serves() => i32::from(SEEN.load(Ordering::SeqCst) != 0) * 2,
            0 => 3,
            said => said >> 8 << 4,
        }
    }));
    expect(status == 0, || format!("user 0's leader ended with {status:#x}"))?;
    Ok(String::new())
}
