//! Numbers of pseudo-terminals in the block of a set-id program: they are its starter's word.
//!
//! The program acts on its terminals with its owner's rights, by their numbers: mode and owner, the
//! master's other end, who is stopped that writes in the background. A starter says that a terminal
//! of its own has the number of another user's.

use super::numbers::{
    GOES_ON, NUMBERED, SETTINGS, THERE, await_word, is_terminal, leader, number_of, open,
    regions_of, settle, whose,
};
use super::{FOREGROUND, Terminal};
use crate::deputies::{NOBODY, failed, look, say};
use crate::{Seen, expect, libc, set_id};
use abi::call::Call;
use abi::region::WordAt;
use abi::word::UserAddress;
use std::fs::{self, File};
use std::io::Write;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, fchown};
use std::sync::atomic::Ordering;
use std::time::Duration;
use unix::process_page::ProcessPage;
use unix::protocol::WATCHER;

/// The set-id program, what it writes, and the name by which it is started.
const PROGRAM: &str = "/tmp/numbers-job";
const REPORT: &str = "/tmp/numbers-said";
const NAME: &str = "numbers-job";
/// `TIOCGPTPEER`; its flags are an address of the stack here: it opens for reading.
const PEER: u64 = 0x5441;

/// What a set-id program finds of its terminals, a bit each: descriptor 0 is the terminal of the
/// number, as fstat(2) has it, and the name in /proc; mode and owner could be set; descriptor 1 is
/// its master, and opens it; so does /dev/tty.
const IS: u32 = 1;
const IS_CALLED: u32 = 2;
const CHANGED: u32 = 4;
const IS_MASTER: u32 = 8;
const OPENS: u32 = 16;
const OWN: u32 = 32;
const ALL: u32 = 63;

/// The set-id program, if these are its words: what it finds goes into a file that is user 0's.
pub fn role(words: &[String]) -> Option<u8> {
    let [name, number] = words else { return None };
    if name != NAME {
        return None;
    }
    let number = number.parse().ok()?;
    // Another descriptor of it.
    let slave = File::from(libc::descriptor(libc::duplicate(0)));
    let path = format!("/dev/pts/{number}");
    let path_of = |fd: i32| fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    let mut found = 0;
    let mut note = |bit: u32, is: bool| found |= if is { bit } else { 0 };
    note(IS, is_terminal(&slave, number));
    note(IS_CALLED, path_of(0).as_os_str() == path.as_str());
    let owned = fchown(&slave, Some(NOBODY), None);
    let set = slave.set_permissions(fs::Permissions::from_mode(0o606));
    note(CHANGED, owned.is_ok() || set.is_ok());
    note(IS_MASTER, number_of(1) == Some(number));
    note(OPENS, libc::control(1, PEER, 0).is_some());
    note(OWN, open("/dev/tty", 0).is_ok_and(|own| is_terminal(&own, number)));
    // What is said there is said in the background, should it be the session's terminal.
    let _ = (&slave).write_all(b"said\n");
    let told = fs::write(REPORT, format!("{found}"));
    Some(u8::from(told.is_err()))
}

/// Words as the library writes them in a block.
#[derive(Default)]
struct Block(Vec<u8>);

impl Block {
    fn words(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.0.extend(word.to_le_bytes()));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.words(&[bytes.len() as u64]);
        self.0.extend(bytes);
    }

    fn list(&mut self, list: &[&str]) {
        self.words(&[list.len() as u64]);
        list.iter().for_each(|one| self.bytes(one.as_bytes()));
    }

    /// One whose descriptors 0 and 1 are a terminal of these regions, and its master, and say that
    /// their number is this.
    fn of(number: u32, regions: [u64; 4]) -> Vec<u8> {
        let [input, output, control, _] = regions;
        let text = number.to_string();
        let mut block = Self::default();
        block.words(&[u64::from_le_bytes(*b"EXOSLIFE"), 1]);
        // Ids, payer, groups, signals, timers, what it is.
        block.words(&[0; 7]);
        block.words(&[0; 5]);
        block.words(&[0; 3]);
        block.words(&[0; 2]);
        block.words(&[0; 4]);
        block.words(&[0; 2]);
        (0..16).for_each(|_| block.words(&[u64::MAX; 2]));
        // No children; the program.
        block.words(&[0; 5]);
        block.bytes(PROGRAM.as_bytes());
        block.bytes(PROGRAM.as_bytes());
        block.list(&[NAME, &text]);
        block.list(&[]);
        block.words(&[0o22]);
        for _ in 0..2 {
            block.words(&[1, 0]);
            block.bytes(b"/");
        }
        block.words(&[2]);
        for is_master in [false, true] {
            // Access, seal, region of its own, and no node.
            block.words(&[2, 0, 0, 0, 0]);
            block.bytes(format!("/dev/pts/{number}").as_bytes());
            if is_master {
                block.words(&[11, number.into()]);
                block.words(&regions);
            } else {
                block.words(&[3 | u64::from(number + 2) << 8, input, output, control, 0]);
            }
        }
        block.words(&[u64::MAX, 2]);
        (0..2_u64).for_each(|fd| block.words(&[fd | fd << 32, 0]));
        block.0
    }
}

/// Becomes the set-id program, with a terminal of its own that says that it is `number`.
fn become_program(door: door::Door, number: u32, own: &Terminal) -> i32 {
    let Some(regions) = regions_of(own) else { return 40 };
    let [input, output, control, master] = regions;
    let block = Block::of(number, regions);
    let page = libc::shared(1);
    let Some(domain) = set_id::domain_of(door, &block, page, PROGRAM) else { return 41 };
    let watcher = u64::from(WATCHER);
    let places = [(input, 1), (output, 0), (control, 0), (control, 0), (master, 0)];
    for (region, role) in places.into_iter().chain([(input, watcher), (output, watcher)]) {
        libc::bytes(page, 16)[..8].copy_from_slice(&region.to_le_bytes());
        libc::bytes(page, 16)[8..].copy_from_slice(&role.to_le_bytes());
        let pass = Call::RegionPass { domain, places: UserAddress(page), count: 1 };
        if libc::kernel(door, pass).is_err() {
            return 44;
        }
    }
    let setup = UserAddress(page);
    let _ = libc::kernel(door, Call::EnvMove { domain, fields: u64::MAX >> 49, setup });
    45
}

/// Says in the own page whose session and group, and which terminal, one's own are.
fn say_session(leader: u32, number: u32, control: u64) {
    say(offset_of!(ProcessPage, session), leader);
    say(offset_of!(ProcessPage, group), leader);
    say(offset_of!(ProcessPage, terminal), number + 2);
    let settings = offset_of!(ProcessPage, terminal_settings);
    say(settings, control as u32);
    say(settings + 4, (control >> 32) as u32);
}

/// The wait status of a set-id program, which is ended if it stops without end.
fn outcome(program: i32) -> i32 {
    let limit = libc::spawn(|| {
        std::thread::sleep(Duration::from_secs(5));
        libc::send(program, 9);
        0
    });
    let status = libc::wait_for_end(program);
    libc::send(limit, 9);
    libc::wait(limit);
    status
}

fn prepare() -> Result<(), String> {
    set_id::copy_program(PROGRAM).map_err(failed)?;
    libc::set_mode(PROGRAM, 0o4755);
    fs::write(REPORT, "").map_err(failed)?;
    libc::set_mode(REPORT, 0o600);
    Ok(())
}

/// What the set-id program has found.
fn reported() -> Option<u32> {
    fs::read_to_string(REPORT).ok()?.parse().ok()
}

/// A set-id program takes its starter's terminals for what they are: it acts on them by their
/// numbers, and on no other terminal that its starter says they are.
pub fn set_id_programs_believe_no_number(door: door::Door) -> Seen {
    prepare()?;
    let words = libc::words(libc::shared(1), 5);
    let pid = libc::spawn(|| leader(words, false, |_, _| 0));
    await_word(words, THERE);
    let [number, control] = [NUMBERED, SETTINGS].map(|at| words[at].load(Ordering::SeqCst));
    let number = number as u32;
    let before = whose(number);
    let run = |lies: bool| {
        let status = outcome(libc::spawn(|| {
            if !libc::become_user(NOBODY) || !libc::lead_session() {
                return 1;
            }
            let Some(own) = Terminal::open(true) else { return 2 };
            if !lies {
                let Some(own_number) = number_of(own.master.as_raw_fd()) else { return 3 };
                return become_program(door, own_number, &own);
            }
            let leader = std::process::id();
            say_session(leader, number, control);
            become_program(door, number, &own)
        }));
        (status, reported())
    };
    let honest = run(false);
    let lied = run(true);
    let now = whose(number);
    words[GOES_ON].store(1, Ordering::SeqCst);
    let victim = libc::wait(pid);
    expect(honest == (0, Some(ALL)), || format!("its own: {honest:?}"))?;
    expect(lied == (0, Some(0)) && now == before && victim == 0, || {
        format!("number {number}: {lied:?}, {before:?} is {now:?}, user 0's process {victim:#x}")
    })?;
    Ok(String::new())
}

/// Runs a starter whose parent says that it is in this session, outside of the starter's group:
/// members of an orphaned group are not stopped, and so its group is none. 0: the program has ended
/// well.
fn run_linked(session: u32, starter: impl FnOnce() -> i32) -> i32 {
    libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 1;
        }
        say(offset_of!(ProcessPage, session), session);
        match outcome(libc::spawn(starter)) {
            status if status & 0x7f != 0 => 100 + (status & 0x7f),
            status => status >> 8,
        }
    })) >> 8
}

/// What a set-id program says at its starter's terminal stops nobody at another one.
pub fn set_id_programs_stop_nobody_elsewhere(door: door::Door) -> Seen {
    prepare()?;
    let words = libc::words(libc::shared(1), 5);
    let pid = libc::spawn(|| leader(words, false, |_, _| 0));
    await_word(words, THERE);
    let [number, theirs] = [NUMBERED, SETTINGS].map(|at| words[at].load(Ordering::SeqCst));
    let number = number as u32;
    let run = |told: Option<u64>| {
        run_linked(pid as u32, || {
            let Some(own) = Terminal::open(false) else { return 2 };
            let Some([_, _, control, _]) = regions_of(&own) else { return 3 };
            // TOSTOP, and another group in the foreground of that session.
            let Some(bytes) = look(door, control, 0, 32, 8) else { return 4 };
            let flags = u64::from_le_bytes(bytes.try_into().unwrap_or_default()) | 0o400 << 32;
            let away = u64::from(pid as u32) << 32 | 1;
            let stored = settle(door, control, WordAt { offset: 32, value: flags })
                && settle(door, control, WordAt { offset: FOREGROUND, value: away });
            if !stored {
                return 5;
            }
            say_session(pid as u32, number, told.unwrap_or(control));
            become_program(door, number, &own)
        })
    };
    let ended = [run(Some(theirs)), run(None)];
    words[GOES_ON].store(1, Ordering::SeqCst);
    let victim = libc::wait(pid);
    expect(ended == [0; 2] && victim == 0, || {
        format!("number {number}: programs {ended:?}, user 0's process {victim:#x}")
    })?;
    Ok(String::new())
}
