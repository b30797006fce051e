//! What other users' processes say of their groups keeps no session from its terminal.

use super::super::ANN;
use super::*;

/// `TIOCSCTTY`, `TIOCSPGRP`
const TAKE: u64 = 0x540e;
const SET_FOREGROUND: u64 = 0x5410;
/// `SIGKILL`, `SIGTTOU`
const KILL: i32 = 9;
const OUTPUT_IN_BACKGROUND: i32 = 22;

/// Opens a master, and says where its terminal is.
fn open_master() -> Option<(File, String)> {
    let master = open("/dev/ptmx", NO_TERMINAL)?;
    libc::control(master.as_raw_fd(), LOCK, 0)?;
    let number = libc::control(master.as_raw_fd(), NUMBER, 0)?;
    Some((master, format!("/dev/pts/{number}")))
}

fn open(path: &str, flags: i32) -> Option<File> {
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok()
}

/// Waits for a word that another process stores.
fn await_word(word: &AtomicU64) -> u64 {
    loop {
        match word.load(Ordering::SeqCst) {
            0 => std::thread::yield_now(),
            word => return word,
        }
    }
}

/// A shell has its terminal again when its job is over, also if a process of another session says
/// that it is in the shell's group.
pub fn strangers_keep_no_shell_in_the_background(_: door::Door) -> Seen {
    let words = libc::words(libc::shared(1), 1);
    let status = libc::wait(libc::spawn(|| {
        libc::block(OUTPUT_IN_BACKGROUND);
        let leads = libc::lead_session();
        let Some((master, path)) = open_master().filter(|_| leads) else { return 1 };
        // Its end would be the session's, too.
        std::mem::forget(master);
        let Some(terminal) = open(&path, 0) else { return 2 };
        let shell = std::process::id();
        let attacker = nobody(|| {
            say(offset_of!(ProcessPage, group), shell);
            say(offset_of!(ProcessPage, session), std::process::id());
            0
        });
        let Ok(attacker) = attacker else { return 3 };
        let job = libc::spawn(|| {
            let is_put = libc::set_group(0, 0);
            await_word(&words[0]);
            i32::from(!is_put)
        });
        let put = |group| libc::control(terminal.as_raw_fd(), SET_FOREGROUND, group).is_some();
        let begun = libc::set_group(job, job) && put(job);
        words[0].store(1, Ordering::SeqCst);
        let done = libc::wait(job) == 0;
        let is_back = put(shell as i32);
        match end(attacker) {
            Ok(()) if begun && done => i32::from(!is_back) * 5,
            _ => 4,
        }
    }));
    expect(status != 0x500, || "user 0's shell stays in the background of its terminal".into())?;
    expect(status == 0, || format!("user 0's shell ended with {status:#x}"))?;
    Ok(String::new())
}

/// A terminal whose session's leader was killed is the next leader's that takes it, also if a
/// process of another user says that it is in the former session.
pub fn strangers_keep_no_terminal_taken(_: door::Door) -> Seen {
    let words = libc::words(libc::shared(1), 3);
    let victim = libc::spawn(|| {
        let is_ann = libc::become_user(ANN);
        let Some((_master, path)) = open_master().filter(|_| is_ann) else { return 1 };
        let first = libc::spawn(|| {
            let leads = libc::lead_session();
            let _terminal = open(&path, 0);
            words[0].store(if leads { std::process::id().into() } else { 1 }, Ordering::SeqCst);
            await_word(&words[2]);
            0
        });
        await_word(&words[1]);
        libc::send(first, KILL);
        libc::wait(first);
        let next = |flags| {
            libc::wait(libc::spawn(|| {
                let leads = libc::lead_session();
                let Some(terminal) = open(&path, flags).filter(|_| leads) else { return 2 };
                if flags == NO_TERMINAL {
                    return i32::from(libc::control(terminal.as_raw_fd(), TAKE, 0).is_none()) * 3;
                }
                i32::from(open("/dev/tty", 0).is_none()) * 4
            }))
        };
        next(NO_TERMINAL) >> 8 | next(0) >> 8
    });
    let former = await_word(&words[0]) as u32;
    let attacker = nobody(|| {
        say(offset_of!(ProcessPage, session), former);
        0
    })?;
    words[1].store(1, Ordering::SeqCst);
    let status = libc::wait(victim);
    end(attacker)?;
    expect(status == 0, || format!("the next leader has no terminal: {status:#x}"))?;
    Ok(String::new())
}
