//! What a terminal shows: who may write there puts in, and who may read alone does not.
//!
//! A program makes kernel calls of its own on the regions that the file server has attached it to.
//! mesg(1) lets others write to a terminal: they see nothing of what its own programs show there,
//! and change nothing of it.

use super::numbers::{number_of, open, regions_of};
use super::{NO_TERMINAL, PATIENCE, Terminal, load};
use crate::deputies::pipes::{TAKEN, THERE, attack, told};
use crate::deputies::{NOBODY, failed, look, store};
use crate::{Seen, expect, libc};
use abi::limits::REGION_ROLES;
use abi::region::WordAt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use unix::ring::TAIL;
use unix::tty::shared::OUTPUT_FRAMES;
use xok::services::{self, Service};

/// ^S and ^Q: between them nothing is shown.
const STOP: u8 = 0x13;
const GO_ON: u8 = 0x11;
/// `TCSBRK`, with anything but 0 as its argument: tcdrain(3).
const DRAIN: u64 = 0x5409;
/// `EIO`: of a master whose terminal nobody has.
const LEFT: i32 = 5;

/// Opens a terminal for reading alone, or for writing alone.
fn open_one_way(path: &str, reads: bool) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(reads).write(!reads).custom_flags(NO_TERMINAL).open(path)
}

/// Has what is written wait, from now on.
fn stop(own: &mut Terminal) -> Result<(), String> {
    own.master.write_all(&[STOP]).map_err(failed)?;
    // What is typed behind it is read: it has come to the line.
    expect(own.serves(), || "no line".into())
}

/// A terminal at which `TAKEN` was shown, and `THERE` waits to be.
fn filled() -> Result<Terminal, String> {
    let mut own = Terminal::open(false).ok_or("no terminal")?;
    own.slave.write_all(TAKEN).map_err(failed)?;
    own.master.read_exact(&mut [0; TAKEN.len()]).map_err(failed)?;
    stop(&mut own)?;
    own.slave.write_all(THERE).map_err(failed)?;
    Ok(own)
}

/// What nobody's program gets of a terminal that it opens one way; then all is shown as it was
/// written.
fn attacked(door: door::Door, (reads, mode): (bool, u32)) -> Result<(), String> {
    let Terminal { mut master, slave, regions } = filled()?;
    let own = Terminal { master: master.try_clone().map_err(failed)?, slave, regions };
    let [_, output, _, _] = regions_of(&own).ok_or("no regions")?;
    let number = number_of(master.as_raw_fd()).ok_or("no number")?;
    let path = format!("/dev/pts/{number}");
    libc::set_mode(&path, mode);
    let status = libc::wait(libc::spawn(|| {
        libc::silence();
        if !libc::become_user(NOBODY) {
            return 1 << 6;
        }
        let Ok(_end) = open_one_way(&path, reads) else { return 1 << 5 };
        attack(door, output, (!reads).then_some(0))
    }));
    libc::set_waits(master.as_raw_fd(), false);
    master.write_all(&[GO_ON]).map_err(failed)?;
    let (mut shown, begun) = (Vec::new(), Instant::now());
    // A while longer than it takes, as more might be shown.
    while begun.elapsed() < Duration::from_millis(300) {
        let mut piece = [0; 256];
        let count = libc::read(master.as_raw_fd(), &mut piece).max(0);
        shown.extend_from_slice(&piece[..count as usize]);
        std::thread::sleep(Duration::from_millis(10));
    }
    expect(status == 0 && shown == THERE, || {
        let shown = String::from_utf8_lossy(&shown);
        format!("attacker {}; then it shows {shown:?}", told(status))
    })
}

/// Who may only write to a terminal sees nothing of what others show there, and changes none.
pub fn writers_to_a_terminal_see_nothing_shown(door: door::Door) -> Seen {
    attacked(door, (false, 0o622)).map(|()| String::new())
}

/// Nor does who has the console, where user 0's programs show what they do.
pub fn the_console_shows_nothing_to_programs(door: door::Door) -> Seen {
    const DATA: u64 = 4096;
    let output = services::get(Service::TerminalOutput);
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 1;
        }
        let Some([_, tail]) = load(door, output) else { return 2 };
        let sees = (0..REGION_ROLES as u8).any(|role| look(door, output, role, DATA, 64).is_some());
        // A word that is written before it is shown, and the tail as it is: what is told is shown.
        let last = 8 * (512 * OUTPUT_FRAMES as u64 - 1);
        let words = [WordAt { offset: TAIL, value: tail }, WordAt { offset: last, value: 8 }];
        let stores = words.map(|word| store(door, output, word)).contains(&true);
        i32::from(sees) << 2 | i32::from(stores) << 3
    }));
    expect(status == 0, || format!("status {status:#x} (0x400: saw, 0x800: stored)"))?;
    Ok(String::new())
}

/// Who may only read a terminal shows nothing there, and sees nothing shown.
pub fn readers_of_a_terminal_show_nothing(door: door::Door) -> Seen {
    attacked(door, (true, 0o644)).map(|()| String::new())
}

/// Who has a terminal open for reading alone is one of its users: its master waits for more, and it
/// waits itself until all is shown (tcdrain(3)).
pub fn readers_of_a_terminal_are_its_users(_: door::Door) -> Seen {
    let mut own = filled()?;
    let number = number_of(own.master.as_raw_fd()).ok_or("no number")?;
    let reader = open_one_way(&format!("/dev/pts/{number}"), true).map_err(failed)?;
    let drained = libc::words(libc::shared(1), 1);
    let pid = libc::spawn(|| {
        let done = libc::control(reader.as_raw_fd(), DRAIN, 1).is_some();
        drained[0].store(1, Ordering::SeqCst);
        i32::from(!done)
    });
    std::thread::sleep(Duration::from_millis(300));
    let early = drained[0].load(Ordering::SeqCst) != 0;
    own.master.write_all(&[GO_ON]).map_err(failed)?;
    let status = libc::wait(pid);
    let mut shown = [0; THERE.len()];
    own.master.read_exact(&mut shown).map_err(failed)?;
    expect(!early && status == 0, || format!("drained early: {early}; status {status:#x}"))?;
    let Terminal { mut master, slave, .. } = own;
    drop(slave);
    libc::set_waits(master.as_raw_fd(), false);
    let mut end = || master.read(&mut [0; 1]).err().and_then(|error| error.raw_os_error());
    let used = end();
    drop(reader);
    let begun = Instant::now();
    while end() != Some(LEFT) && begun.elapsed() < PATIENCE / 12 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = end();
    expect(used != Some(LEFT) && left == Some(LEFT), || {
        format!("the master's errors: {used:?} with a reader, {left:?} without")
    })?;
    Ok(String::new())
}

/// /dev/tty is written to by who has its session's terminal open twice, one way each, though it may
/// not open it by name.
pub fn two_ways_of_a_terminal_are_dev_tty(_: door::Door) -> Seen {
    let status = libc::wait(libc::spawn(|| {
        let leads = libc::lead_session();
        let Some(own) = Terminal::open(true).filter(|_| leads) else { return 1 };
        // Its end would hang this process up.
        let mut own = ManuallyDrop::new(own);
        let Some(number) = number_of(own.master.as_raw_fd()) else { return 2 };
        let path = format!("/dev/pts/{number}");
        let ways = [true, false].map(|reads| open_one_way(&path, reads));
        libc::set_mode(&path, 0o600);
        libc::close(own.slave.as_raw_fd());
        if ways.iter().any(Result::is_err) || !libc::become_user(NOBODY) {
            return 3;
        }
        let Ok(mut tty) = open("/dev/tty", 0) else { return 4 };
        if tty.write_all(THERE).is_err() {
            return 5;
        }
        let mut shown = [0; THERE.len()];
        let read = own.master.read_exact(&mut shown).is_ok();
        if read && shown == *THERE { 0 } else { 6 }
    }));
    expect(status == 0, || format!("status {status:#x}"))?;
    Ok(String::new())
}
