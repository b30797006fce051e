//! Numbers of pseudo-terminals come again: what one says leads to no other terminal of the number.
//!
//! A process whose terminal was hung up goes on with its number, in its page and in what it has
//! open. Behind that is another user's terminal by now, by which it would act on that user, or that
//! one on it.

use super::{FOREGROUND, NUMBER, SEEN, Terminal, bytes_of, count, load, misdirect_from};
use crate::deputies::{NOBODY, store};
use crate::{Seen, expect, libc};
use abi::region::WordAt;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use unix::local::CONNECTION_FRAMES;
use unix::tty::shared::{CONTROL_BYTES, INPUT_FRAMES, OUTPUT_FRAMES};

/// `ENXIO`
const NO_TERMINAL_OPEN: i32 = 6;
/// `SIGTTOU`, `SIGWINCH`
const OUTPUT_STOPS: i32 = 22;
const RESIZED: i32 = 28;
/// How long a number takes to be free again.
const SOON: Duration = Duration::from_secs(20);

/// Opens for reading and writing.
pub fn open(path: &str, flags: i32) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

/// The number of a master's terminal.
pub fn number_of(master: i32) -> Option<u32> {
    libc::control(master, NUMBER, 0).map(|number| number as u32)
}

/// Is it the device of the pseudo-terminal `number`?
pub fn is_terminal(file: &File, number: u32) -> bool {
    file.metadata().is_ok_and(|found| found.rdev() == 136 << 8 | u64::from(number))
}

/// Owner, and mode, of a terminal by name.
pub fn whose(number: u32) -> (u32, u32) {
    let found = fs::metadata(format!("/dev/pts/{number}"));
    found.map_or((u32::MAX, 0), |found| (found.uid(), found.mode() & 0o777))
}

/// Input, output, settings and master of a terminal, by their sizes.
pub fn regions_of(terminal: &Terminal) -> Option<[u64; 4]> {
    let find =
        |bytes| terminal.regions.iter().copied().find(|&one| bytes_of(one) as usize == bytes);
    let [input, output, master] =
        [INPUT_FRAMES, OUTPUT_FRAMES, CONNECTION_FRAMES].map(|n| n * 4096);
    Some([find(input)?, find(output)?, find(CONTROL_BYTES)?, find(master)?])
}

/// Stores a word in a terminal's settings, and has the server look at them.
pub fn settle(door: door::Door, control: u64, word: WordAt) -> bool {
    let stored = store(door, control, word);
    let sequence = load(door, control).map_or(0, |[sequence, _]| sequence);
    stored && store(door, control, WordAt { offset: 0, value: sequence + 1 })
}

/// A user's own terminal whose number is this, as soon as that is free. The lowest number that is
/// free comes first: it has those below meanwhile.
pub fn with_number(number: u32) -> Option<Terminal> {
    let (begun, mut below) = (Instant::now(), Vec::new());
    while begun.elapsed() < SOON {
        let own = Terminal::open(false)?;
        match number_of(own.master.as_raw_fd()) {
            Some(found) if found == number => return Some(own),
            Some(found) if found < number => below.push(own),
            _ => drop(own),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

/// The words that a victim shares with who attacks it: it is there; its terminal's number; it may
/// go on; its settings' region; it has acted.
pub const THERE: usize = 0;
pub const NUMBERED: usize = 1;
pub const GOES_ON: usize = 2;
pub const SETTINGS: usize = 3;
const ACTED: usize = 4;

/// Waits until the word is there, or long enough.
pub fn await_word(words: &[AtomicU64], at: usize) {
    let begun = Instant::now();
    while words[at].load(Ordering::SeqCst) == 0 && begun.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The leader of a session, which counts the signals of its terminal. Once it may go on, after the
/// terminal was hung up if that is to be, it acts, with what it has open of it and the number.
pub fn leader(words: &[AtomicU64], hangs_up: bool, act: impl FnOnce(File, u32) -> i32) -> i32 {
    if !libc::lead_session() {
        return 1;
    }
    [1, 2, 3, 20, OUTPUT_STOPS, RESIZED].iter().for_each(|&signal| libc::handle(signal, count));
    let Some(mut own) = Terminal::open(true) else { return 2 };
    let Some(number) = number_of(own.master.as_raw_fd()).filter(|_| own.serves()) else {
        return 3;
    };
    let control = regions_of(&own).map_or(0, |[_, _, control, _]| control);
    words[NUMBERED].store(number.into(), Ordering::SeqCst);
    words[SETTINGS].store(control, Ordering::SeqCst);
    let Terminal { master, slave, .. } = own;
    if hangs_up {
        drop(master);
        await_word(std::slice::from_ref(&SEEN), 0);
        SEEN.store(0, Ordering::SeqCst);
    } else {
        std::mem::forget(master);
    }
    words[THERE].store(1, Ordering::SeqCst);
    await_word(words, GOES_ON);
    let found = act(slave, number);
    words[ACTED].store(1, Ordering::SeqCst);
    match found {
        0 if SEEN.load(Ordering::SeqCst) != 0 => 4,
        other => other,
    }
}

/// A process that a hang-up does not end hears nothing of what is typed, or resized, at the next
/// terminal of the number, whatever session the settings there name.
pub fn hung_up_sessions_hear_no_other_terminal(door: door::Door) -> Seen {
    let words = libc::words(libc::shared(1), 5);
    let pid = libc::spawn(|| leader(words, true, |_, _| 0));
    await_word(words, THERE);
    let number = words[NUMBERED].load(Ordering::SeqCst) as u32;
    let attacker = libc::wait(libc::spawn(|| {
        // User 0's, at that terminal: it changes the size.
        let sizes = libc::words(libc::shared(1), 1);
        let sizer = libc::spawn(|| {
            await_word(sizes, 0);
            let path = format!("/dev/pts/{number}");
            let sized = open(&path, super::NO_TERMINAL)
                .is_ok_and(|slave| libc::set_rows(slave.as_raw_fd(), 50));
            i32::from(!sized)
        });
        if !libc::become_user(NOBODY) {
            return 1;
        }
        let Some(own) = with_number(number) else { return 2 };
        let Some([_, _, control, _]) = regions_of(&own) else { return 3 };
        let victims = u64::from(pid as u32) * (1 + (1 << 32));
        if !settle(door, control, WordAt { offset: FOREGROUND, value: victims }) {
            return 4;
        }
        sizes[0].store(1, Ordering::SeqCst);
        let sized = libc::wait(sizer);
        if sized != 0 {
            return 5;
        }
        misdirect_from(door, pid, own) << 4
    }));
    words[GOES_ON].store(1, Ordering::SeqCst);
    let victim = libc::wait(pid);
    expect(attacker == 0 && victim == 0, || {
        format!("number {number}: attacker {attacker:#x}, user 0's process {victim:#x}")
    })?;
    Ok(String::new())
}

/// Nor does it open that terminal as its own, nor is what it had open that terminal: not even for
/// user 0, who may open any.
pub fn hung_up_sessions_have_no_terminal(_: door::Door) -> Seen {
    const OPENED: i32 = 16;
    const TOUCHED: i32 = 32;
    const SEEN_AS: i32 = 64;
    for keeps in [false, true] {
        let words = libc::words(libc::shared(1), 5);
        let pid = libc::spawn(|| {
            leader(words, true, |slave, number| {
                let slave = Some(slave).filter(|_| keeps);
                let own = open("/dev/tty", 0);
                let none = own
                    .as_ref()
                    .is_err_and(|error| keeps || error.raw_os_error() == Some(NO_TERMINAL_OPEN));
                let mut found = if none { 0 } else { OPENED };
                if let Some(slave) = &slave {
                    let owned = fchown(slave, Some(1000), None);
                    let set = slave.set_permissions(fs::Permissions::from_mode(0o600));
                    found |= if owned.is_ok() || set.is_ok() { TOUCHED } else { 0 };
                    found |= if is_terminal(slave, number) { SEEN_AS } else { 0 };
                }
                found
            })
        });
        await_word(words, THERE);
        let number = words[NUMBERED].load(Ordering::SeqCst) as u32;
        let attacker = libc::wait(libc::spawn(|| {
            if !libc::become_user(NOBODY) {
                return 1;
            }
            let Some(_own) = with_number(number) else { return 2 };
            let before = whose(number);
            words[GOES_ON].store(1, Ordering::SeqCst);
            await_word(words, ACTED);
            if whose(number) == before { 0 } else { 3 }
        }));
        words[GOES_ON].store(1, Ordering::SeqCst);
        let victim = libc::wait(pid);
        expect(attacker == 0 && victim == 0, || {
            format!("kept {keeps}, number {number}: attacker {attacker:#x}, victim {victim:#x}")
        })?;
    }
    Ok(String::new())
}
