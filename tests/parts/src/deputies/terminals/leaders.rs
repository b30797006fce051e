//! The end of a session's leader: told to its foreground when it has come, and not before.

use super::numbers::{
    GOES_ON, NUMBERED, THERE, await_word, leader, regions_of, settle, with_number,
};
use super::{FOREGROUND, PATIENCE, SEEN, SIGNALS, Terminal, count};
use crate::deputies::{NOBODY, look, operate, say, store};
use crate::{Seen, expect, libc};
use abi::region::{RegionOperation, WordAt};
use std::io::Write;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use unix::process_page::ProcessPage;
use unix::tty::shared::TERMINALS;

/// Offset of the last word of the settings, and in it the state's bit that says that the session's
/// leader has ended.
const STATE: u64 = 56;
const HAS_LEFT: u64 = 1 << (7 * 8 + 4);
/// Ends of leaders that a terminal names, one after the other, and the first group there: more than
/// the settings' changes before.
const NAMED: u64 = 6 * TERMINALS as u64;
const FIRST: u64 = 1000;
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

/// What a process of another user, which has a session's terminal, says there of the session: that
/// the terminal is no session's, or that the leader of one that there is not has ended.
fn disown(door: door::Door, own: &mut Terminal, has_left: bool) -> i32 {
    let Some([_, _, control, _]) = regions_of(own) else { return 1 };
    if !libc::become_user(NOBODY) {
        return 2;
    }
    let said = match has_left {
        false => settle(door, control, WordAt { offset: FOREGROUND, value: 0 }),
        true => word_of(door, control, STATE)
            .is_some_and(|state| say_left(door, control, 1 << 32 | 1, state, FIRST)),
    };
    // What is typed later is read: the server has looked at the settings.
    if said && own.serves() { 0 } else { 3 }
}

/// Loses the terminal of its session by its end, or by that of its master, after another one has
/// `disowned` it: what its child in the foreground, or itself, hears.
fn lose(door: door::Door, (ends, has_left): (bool, bool), words: &[AtomicU64]) -> i32 {
    SEEN.store(0, Ordering::SeqCst);
    SIGNALS.iter().for_each(|&signal| libc::handle(signal, count));
    let leads = libc::lead_session();
    let Some(mut own) = Terminal::open(true).filter(|_| leads) else { return 1 };
    // The server has seen the session.
    if !own.serves() {
        return 2;
    }
    if ends {
        // It has the master, too.
        libc::spawn(|| child(words));
        await_word(words, CHILD);
    }
    if ends && has_left {
        // As one that ends, and has not said so in the settings.
        say(offset_of!(ProcessPage, terminal), 0);
    }
    let attacker = libc::wait(libc::spawn(|| disown(door, &mut own, has_left)));
    if attacker != 0 {
        return attacker >> 8 << 4;
    }
    if !ends {
        drop(own.master);
        child(words);
    }
    0
}

/// A session hears that it has lost its terminal, whatever a program of another user's that has the
/// terminal open says there of the session.
pub fn disowned_sessions_are_hung_up(door: door::Door) -> Seen {
    for (ends, has_left) in [(false, false), (false, true), (true, false), (true, true)] {
        let words = libc::words(libc::shared(1), 7);
        let status = libc::wait(libc::spawn(|| lose(door, (ends, has_left), words)));
        await_word(words, HEARD);
        let heard = words[HEARD].load(Ordering::SeqCst) == 2;
        let told = || format!("{ends} {has_left}: status {status:#x}, heard: {heard}");
        expect(status == 0 && heard, told)?;
    }
    Ok(String::new())
}

/// A word of a terminal's settings.
fn word_of(door: door::Door, control: u64, at: u64) -> Option<u64> {
    let bytes = look(door, control, 0, at, 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// Says in a terminal's settings that a session's leader has ended with this group in the
/// foreground (`left`: both), in one change, which has this version.
fn say_left(door: door::Door, control: u64, left: u64, state: u64, version: u64) -> bool {
    let words = [(FOREGROUND, left), (STATE, state | HAS_LEFT), (0, version)];
    let mut says = RegionOperation { region: control, writes: 3, ..Default::default() };
    for (at, (offset, value)) in words.into_iter().enumerate() {
        says.write[at] = WordAt { offset, value };
    }
    operate(door, &says)
}

/// Says in the settings of its own terminal again and again that a leader has ended, each time with
/// another group in the foreground, and with one that is to go on: that signal waits before those
/// of the end.
fn name_many(door: door::Door) -> i32 {
    if !libc::become_user(NOBODY) {
        return 1;
    }
    // The first has the number of the one that was lost: a signal that waits there is in the way.
    let (other, own) = (Terminal::open(false), Terminal::open(false));
    let own = own.filter(|_| other.is_some());
    let Some([_, _, control, _]) = own.as_ref().and_then(regions_of) else { return 2 };
    let word_at = |at| word_of(door, control, at);
    let Some(state) = word_at(STATE) else { return 3 };
    let session = u64::from(std::process::id()) << 32;
    for group in FIRST..FIRST + NAMED {
        // The server's own changes count on by one.
        let version = group << 1 | 1 << 32;
        if !say_left(door, control, session | group, state, version) {
            return 4;
        }
        // Until the server has asked for the one that is to go on.
        let begun = Instant::now();
        while word_at(0).is_some_and(|word| word >> 32 != 0) {
            if begun.elapsed() > PATIENCE {
                return 5;
            }
            std::thread::yield_now();
        }
    }
    // Where one has its place, the look that it waits for comes.
    std::thread::sleep(Duration::from_millis(50));
    0
}

/// The foreground of a lost terminal, whose leader lives on, hears of that leader's end and of no
/// other, however many ends are said at other terminals.
pub fn ends_are_told_where_they_are_said(door: door::Door) -> Seen {
    beside_lost(|_, _| name_many(door))
}

/// How long a hang-up may take, and what is typed for longer than that: one signal in each look.
const SOON: Duration = Duration::from_secs(2);
const TYPED: [u8; 2048] = [3; 2048];
/// The words that a child in the foreground of a lost terminal has: it is there; and it has heard
/// of its leader's end, or has not.
const CHILD: usize = 5;
const HEARD: usize = 6;

/// A child of the leader's group. Says whether it hears of the leader's end.
fn child(words: &[AtomicU64]) -> i32 {
    words[CHILD].store(1, Ordering::SeqCst);
    let begun = Instant::now();
    while SEEN.load(Ordering::SeqCst) == 0 && begun.elapsed() < 4 * SOON {
        std::thread::sleep(Duration::from_millis(5));
    }
    let is_soon = SEEN.load(Ordering::SeqCst) != 0 && begun.elapsed() < SOON;
    words[HEARD].store(1 + u64::from(is_soon), Ordering::SeqCst);
    0
}

/// Types signals at a terminal of this number, for a group that is there, and lets the leader end.
fn type_signals(door: door::Door, number: u32, words: &[AtomicU64]) -> i32 {
    if !libc::become_user(NOBODY) {
        return 1;
    }
    let Some(mut own) = with_number(number) else { return 2 };
    let Some([_, _, control, _]) = regions_of(&own) else { return 3 };
    let value = u64::from(std::process::id()) * (1 + (1 << 32));
    if !settle(door, control, WordAt { offset: FOREGROUND, value }) {
        return 4;
    }
    libc::set_waits(own.master.as_raw_fd(), false);
    while words[HEARD].load(Ordering::SeqCst) == 0 {
        let _ = own.master.write(&TYPED);
        libc::read(own.master.as_raw_fd(), &mut [0; 4096]);
        words[GOES_ON].store(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(2));
    }
    0
}

/// What the foreground of a lost terminal hears, whose leader lives on until `attack`, which has
/// the number, has ended or let it: of the leader's end, soon, and of nothing before.
fn beside_lost(attack: impl FnOnce(u32, &[AtomicU64]) -> i32) -> Seen {
    let words = libc::words(libc::shared(1), 7);
    let pid = libc::spawn(|| {
        leader(words, true, |_, _| {
            libc::spawn(|| child(words));
            await_word(words, CHILD);
            0
        })
    });
    await_word(words, THERE);
    let number = words[NUMBERED].load(Ordering::SeqCst) as u32;
    let attacker = libc::wait(libc::spawn(|| attack(number, words)));
    words[GOES_ON].store(1, Ordering::SeqCst);
    let victim = libc::wait(pid);
    await_word(words, HEARD);
    let heard = words[HEARD].load(Ordering::SeqCst) == 2;
    expect(attacker == 0 && victim == 0 && heard, || {
        format!("attacker {attacker:#x}, leader {victim:#x}, heard: {heard}")
    })?;
    Ok(String::new())
}

/// The foreground of a lost terminal is told of its leader's end also if another user types signals
/// without end at the next terminal of the number.
pub fn hang_ups_do_not_wait_for_what_is_typed(door: door::Door) -> Seen {
    beside_lost(|number, words| type_signals(door, number, words))
}

/// A leader that says that it ends, with a child in the foreground, and closes its master at once.
fn end_and_close(door: door::Door, pause: Duration, words: &[AtomicU64]) -> i32 {
    SIGNALS.iter().for_each(|&signal| libc::handle(signal, count));
    let leads = libc::lead_session();
    let Some(own) = Terminal::open(true).filter(|_| leads) else { return 1 };
    let Some([_, _, control, _]) = regions_of(&own) else { return 2 };
    let Terminal { master, slave, .. } = own;
    let fd = master.as_raw_fd();
    let child = libc::spawn(|| {
        libc::close(fd);
        if libc::set_group(0, 0) { child(words) } else { 1 }
    });
    await_word(words, CHILD);
    let Some(state) = word_of(door, control, STATE) else { return 3 };
    let left = u64::from(std::process::id()) << 32 | child as u64;
    // The server sleeps for a time when of the groups that are to go on the third waits: the first
    // is told at once, and the second after a pause.
    for version in [1, 2, 3].map(|count| count * FIRST) {
        if !store(door, control, WordAt { offset: 0, value: version | 1 << 32 }) {
            return 4;
        }
        std::thread::sleep(pause);
    }
    say(offset_of!(ProcessPage, terminal), 0);
    let said = say_left(door, control, left, state, 4 * FIRST);
    drop(master);
    drop(slave);
    let status = libc::wait(child);
    if said { status } else { 5 }
}

/// The end of a leader is told that the server sees no earlier than that of the master. The server
/// sleeps by chance: with each pause again.
pub fn ends_before_a_close_are_told(door: door::Door) -> Seen {
    for pause in (0..24).map(|round| Duration::from_micros(100 + 100 * (round % 8))) {
        let words = libc::words(libc::shared(1), 7);
        let status = libc::wait(libc::spawn(|| end_and_close(door, pause, words)));
        let heard = words[HEARD].load(Ordering::SeqCst) == 2;
        let ended = || format!("after {pause:?}: status {status:#x}, heard: {heard}");
        expect(status == 0 && heard, ended)?;
    }
    Ok(String::new())
}
