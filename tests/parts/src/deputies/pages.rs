//! What a page of the process table says of threads, of environments and of groups.
//!
//! The group of a set-id program is its starter's word.

use super::processes::{HANG_UP, await_stop};
use super::{ANN, NOBODY, end, failed, nobody, say};
use crate::{Seen, Test, expect, libc, limits, set_id};
use abi::id::EnvId;
use std::fs;
use std::mem::offset_of;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use unix::process_page::{ProcessPage, THREAD_MAGIC};
use xok::published::{self, ApplicationPage};

/// What holds.
pub const TESTS: [Test; 4] = [
    ("strangers_are_no_threads_of_others", strangers_are_no_threads_of_others),
    ("environments_are_their_processes", environments_are_their_processes),
    ("set_id_programs_keep_no_group_stopped", set_id_programs_keep_no_group_stopped),
    ("strangers_are_in_no_group_of_ours", strangers_are_in_no_group_of_ours),
];

/// Sets a word of the own page.
fn say_word(offset: usize, value: u64) {
    say(offset, value as u32);
    say(offset + 4, (value >> 32) as u32);
}

/// Another user's program says that it is a thread of user 0's process: what that one does to the
/// program it does not do to itself.
fn strangers_are_no_threads_of_others(_: door::Door) -> Seen {
    let status = libc::wait(libc::spawn(|| {
        let own = std::process::id();
        let before = limits::own();
        let attacker = nobody(|| {
            say_word(8, own.into());
            say_word(0, THREAD_MAGIC);
            0
        });
        let Ok(attacker) = attacker else { return 1 };
        let done = limits::set(attacker.0, 5);
        let after = limits::own();
        if end(attacker).is_err() {
            return 2;
        }
        i32::from(after != before) * 3 + i32::from(done) * 4
    }));
    expect(status != 0x700, || "user 0's process has limited itself".into())?;
    expect(status == 0, || format!("user 0's process ended with {status:#x}"))?;
    Ok(String::new())
}

/// In /proc the environment of another user's program is none of user 0's, whatever region the
/// program names: user 0's programs would tell it as that user's.
fn environments_are_their_processes(_: door::Door) -> Seen {
    const SECRET: &str = "DEPUTY=secret";
    let (name, value) = SECRET.split_once('=').ok_or("no name")?;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "read line"]).env(name, value).stdin(Stdio::piped());
    let mut victim = command.spawn().map_err(failed)?;
    let told = |pid: u32| fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let has = |text: &[u8]| text.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
    while !has(&told(victim.id())) {
        std::thread::yield_now();
    }
    let page = published::application(EnvId(victim.id()).index()).ok_or("no page")?;
    let [region, len] = named(page);
    let attacker = nobody(|| {
        say_word(offset_of!(ProcessPage, environment), region);
        say(offset_of!(ProcessPage, environment_len), len as u32);
        0
    })?;
    let text = told(attacker.0 as u32);
    end(attacker)?;
    drop(victim.stdin.take());
    victim.wait().map_err(failed)?;
    expect(!has(&text), || "what user 0's program was told is shown as nobody's".into())?;
    Ok(String::new())
}

/// The region of an environment, and the bytes that it has there.
fn named(page: ApplicationPage) -> [u64; 2] {
    let len = page.half(offset_of!(ProcessPage, environment_len));
    [page.word(offset_of!(ProcessPage, environment)), len.into()]
}

/// A parent and its stopped child in a group of its own, whose number it tells; it ends when it is
/// told to.
fn stopped_group(told: &AtomicU64, go: &AtomicU64) -> i32 {
    libc::spawn(|| {
        let child = libc::spawn(|| {
            let is_put = libc::set_group(0, 0);
            libc::send(std::process::id() as i32, 19);
            i32::from(!is_put)
        });
        await_stop(child);
        told.store(child as u64, Ordering::SeqCst);
        while go.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        i32::from(!libc::is_alive(child))
    })
}

/// Executes a set-id program of user 0's that waits: it has done so if it is told to, and has
/// become user 0 wholly before if `what` is [`set_id::STAYS`].
pub(super) fn wait_as_root(program: &str, what: &str) -> i32 {
    libc::execute(program, &[set_id::NAME.into(), what.into()], &[]);
    9
}

fn lives(pid: i32) -> bool {
    published::env_lives(EnvId(pid as u32))
}

/// Waits until a word is there, unless the process has ended; the word.
pub(super) fn await_word(word: &AtomicU64, of: i32) -> i32 {
    while word.load(Ordering::SeqCst) == 0 && lives(of) {
        std::thread::yield_now();
    }
    word.load(Ordering::SeqCst) as i32
}

/// Waits until the process acts for user 0 as far as it is to, by its page, which it has not
/// written then.
pub(super) fn await_root(pid: i32, what: &str) {
    let wholly = what == set_id::STAYS;
    let effective = offset_of!(ProcessPage, effective_user);
    let at = if wholly { offset_of!(ProcessPage, user) } else { effective };
    let page = || published::application(EnvId(pid as u32).index());
    while lives(pid) && page().is_some_and(|page| page.half(at) != 0) {
        std::thread::yield_now();
    }
}

/// A stopped group that no process can continue any more is hung up, also if a set-id program of
/// user 0's says that it is in that group, as its starter has said, and so does not its parent;
/// also if they have become user 0 wholly.
fn set_id_programs_keep_no_group_stopped(_: door::Door) -> Seen {
    const PROGRAM: &str = "/tmp/deputies-link";
    set_id::copy_program(PROGRAM).map_err(failed)?;
    libc::set_mode(PROGRAM, 0o4755);
    let seen = [set_id::TELLS, set_id::STAYS].map(|what| keep_stopped(PROGRAM, what));
    fs::remove_file(PROGRAM).map_err(failed)?;
    seen.into_iter().find(Result::is_err).unwrap_or(Ok(String::new()))
}

fn keep_stopped(program: &str, what: &str) -> Seen {
    let words = libc::words(libc::shared(1), 3);
    let status = libc::wait(libc::spawn(|| {
        if !libc::lead_session() {
            return 1;
        }
        let parent = stopped_group(&words[0], &words[1]);
        let group = await_word(&words[0], parent);
        let link = libc::spawn(|| {
            if !libc::become_user(NOBODY) {
                return 1;
            }
            let member = libc::spawn(|| {
                say(offset_of!(ProcessPage, group), group as u32);
                wait_as_root(program, what)
            });
            words[2].store(member as u64, Ordering::SeqCst);
            wait_as_root(program, what)
        });
        let member = await_word(&words[2], link);
        [link, member].into_iter().for_each(|pid| await_root(pid, what));
        words[1].store(1, Ordering::SeqCst);
        let ended = libc::wait(parent);
        let began = Instant::now();
        while lives(group) && began.elapsed() < HANG_UP {
            std::thread::yield_now();
        }
        let stays = lives(group);
        let waited = lives(link) && lives(member);
        let there = [group, member, link].into_iter().filter(|&pid| pid > 0);
        there.for_each(|pid| libc::send(pid, 9));
        libc::wait(link);
        i32::from(ended != 0 || !waited) * 2 + i32::from(stays) * 4
    }));
    expect(status != 0x400, || {
        format!("user 0's stopped group stays stopped for ever: a program that {what}")
    })?;
    expect(status == 0, || format!("the leader of the session ended with {status:#x}"))?;
    Ok(String::new())
}

/// A user sets the priority of its group, and of its processes, as far as they are that: not of who
/// says so, for which it would be refused.
fn strangers_are_in_no_group_of_ours(_: door::Door) -> Seen {
    let words = libc::words(libc::shared(1), 2);
    let victim = libc::spawn(|| {
        if !libc::become_user(ANN) || !libc::set_group(0, 0) {
            return 1;
        }
        words[0].store(1, Ordering::SeqCst);
        await_word(&words[1], std::process::id() as i32);
        2 * i32::from(!limits::set_nice_of_group(3)) + 4 * i32::from(!limits::set_nice_of_user(4))
    });
    await_word(&words[0], victim);
    let attacker = nobody(|| {
        say(offset_of!(ProcessPage, group), victim as u32);
        say(offset_of!(ProcessPage, user), ANN);
        0
    })?;
    words[1].store(1, Ordering::SeqCst);
    let status = libc::wait(victim);
    end(attacker)?;
    expect(status == 0, || format!("status {status:#x} (0x200: its group, 0x400: itself)"))?;
    Ok(String::new())
}
