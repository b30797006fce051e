//! What processes say of the group that they are in, and of how they have stopped.

use super::pages::{await_root, await_word, wait_as_root};
use super::{ANN, NOBODY, end, failed, nobody, say};
use crate::{Seen, Test, expect, kin, libc, set_id};
use abi::call::Call;
use abi::id::EnvId;
use std::fs;
use std::mem::offset_of;
use std::os::unix::process::parent_id;
use std::sync::atomic::{AtomicU64, Ordering};
use unix::process_page::ProcessPage;

/// What holds.
pub const TESTS: [Test; 4] = [
    ("set_id_programs_keep_nobody_from_a_session", set_id_programs_keep_nobody_from_a_session),
    ("children_stop_by_a_stop_signal", children_stop_by_a_stop_signal),
    ("children_end_by_an_end", children_end_by_an_end),
    ("strangers_keep_no_group_there", strangers_keep_no_group_there),
];

/// Where the user's capability lies.
const USER: u8 = 2;
/// `ESRCH`
const NO_PROCESS: i32 = 3;

fn own() -> i32 {
    std::process::id() as i32
}

/// A process of user 0's that has led a group, and left it, begins a session, also if a set-id
/// program of user 0's says that it is in that group, as its starter has said.
fn set_id_programs_keep_nobody_from_a_session(_: door::Door) -> Seen {
    const PROGRAM: &str = "/tmp/deputies-member";
    set_id::copy_program(PROGRAM).map_err(failed)?;
    libc::set_mode(PROGRAM, 0o4755);
    let seen = [set_id::TELLS, set_id::STAYS].map(|what| keep_from_a_session(PROGRAM, what));
    fs::remove_file(PROGRAM).map_err(failed)?;
    seen.into_iter().find(Result::is_err).unwrap_or(Ok(String::new()))
}

fn keep_from_a_session(program: &str, what: &str) -> Seen {
    let words = libc::words(libc::shared(1), 3);
    let status = libc::wait(libc::spawn(|| {
        if !libc::lead_session() {
            return 1;
        }
        let session = own();
        let led = libc::spawn(|| {
            let has_led = libc::set_group(0, 0) && libc::set_group(0, session);
            words[0].store(own() as u64, Ordering::SeqCst);
            await_word(&words[1], session);
            2 * i32::from(!has_led) + 4 * i32::from(!libc::lead_session())
        });
        let group = await_word(&words[0], led);
        let member = libc::spawn(|| {
            let is_nobody = libc::become_user(NOBODY);
            say(offset_of!(ProcessPage, group), group as u32);
            words[2].store(1, Ordering::SeqCst);
            if is_nobody { wait_as_root(program, what) } else { 1 }
        });
        await_word(&words[2], member);
        await_root(member, what);
        words[1].store(1, Ordering::SeqCst);
        let status = libc::wait(led) >> 8;
        let waited = xok::published::env_lives(EnvId(member as u32));
        libc::send(member, 9);
        libc::wait(member);
        status + 8 * i32::from(!waited)
    }));
    expect(status == 0, || {
        format!("a program that {what}: status {status:#x} (0x400: no session of its own)")
    })?;
    Ok(String::new())
}

/// A child says that it has stopped by some number: its parent is told of SIGSTOP, unless that is a
/// signal that stops.
fn children_stop_by_a_stop_signal(door: door::Door) -> Seen {
    const STOPS: [(u32, u32); 6] = [(19, 19), (20, 20), (22, 22), (18, 19), (255, 19), (!0, 19)];
    for (said, told) in STOPS {
        let child = libc::spawn(|| {
            let is_nobody = libc::become_user(NOBODY);
            say(offset_of!(ProcessPage, stop_signal), said);
            say(offset_of!(ProcessPage, stop_count), 1);
            let _ = libc::kernel_by(door, Call::EnvHold { env: EnvId(own() as u32) }, USER);
            i32::from(!is_nobody)
        });
        let seen = kin::await_stop_signal(child);
        libc::send(child, 9);
        libc::wait(child);
        expect(seen == Some(told), || format!("it said {said}, and was stopped by {seen:?}"))?;
    }
    Ok(String::new())
}

/// A child ends with a word of its own choice: its parent is told of an exit, or of a signal that
/// there is, and never that a child has stopped which it will not find any more.
fn children_end_by_an_end(door: door::Door) -> Seen {
    const KILLED: i32 = 9;
    const ENDS: [(u64, i32); 7] = [
        (0x300, 0x300),
        (15, 15),
        (64, 64),
        (0x137f, KILLED),
        (0xffff, KILLED),
        (65, KILLED),
        (0x130f, 15),
    ];
    for (word, told) in ENDS {
        let child = libc::spawn(|| {
            let is_nobody = libc::become_user(NOBODY);
            let call =
                Call::EnvDestroy { env: EnvId::NONE, word: if is_nobody { word } else { 0 } };
            let _ = libc::kernel_by(door, call, USER);
            1
        });
        let status = libc::wait(child);
        expect(status == told, || format!("it ended with {word:#x}, told was {status:#x}"))?;
    }
    Ok(String::new())
}

/// Is the group of a leader there that has ended, but for a member that has become nobody?
fn is_kept_by_nobody(words: &[AtomicU64]) -> bool {
    let own_id = own();
    let leader = libc::spawn(|| {
        let leads = libc::set_group(0, 0);
        words[0].store(1, Ordering::SeqCst);
        await_word(&words[1], own_id);
        i32::from(!leads)
    });
    await_word(&words[0], leader);
    let member = libc::spawn(|| {
        let is_in = libc::set_group(0, leader) && libc::become_user(NOBODY);
        words[2].store(1, Ordering::SeqCst);
        await_word(&words[3], own_id);
        i32::from(!is_in)
    });
    await_word(&words[2], member);
    words[1].store(1, Ordering::SeqCst);
    let before = libc::wait(leader) == 0 && kin::ask_group(leader).is_ok();
    words[3].store(1, Ordering::SeqCst);
    before && libc::wait(member) == 0 && kin::ask_group(leader) == Err(NO_PROCESS)
}

/// Whoever waits for a group to end, and asks again and again whether it is there, is not kept by
/// another user's process that says that it is in it, nor does a child enter such a group.
fn strangers_keep_no_group_there(_: door::Door) -> Seen {
    for user in [0, ANN] {
        let words = libc::words(libc::shared(1), 6);
        let waits = libc::spawn(|| {
            if !libc::become_user(user) || !libc::lead_session() {
                return 1;
            }
            let leader = libc::spawn(|| i32::from(!libc::set_group(0, 0)));
            if libc::wait(leader) != 0 {
                return 2;
            }
            words[0].store(leader as u64, Ordering::SeqCst);
            await_word(&words[1], parent_id() as i32);
            if kin::ask_group(leader) != Err(NO_PROCESS) {
                return 3;
            }
            if kin::nice_of_group(leader) != Err(NO_PROCESS) {
                return 5;
            }
            let enters = libc::spawn(|| i32::from(libc::set_group(0, leader)));
            if libc::wait(enters) != 0 {
                return 6;
            }
            if user == 0 && !is_kept_by_nobody(&words[2..]) { 4 } else { 0 }
        });
        let group = await_word(&words[0], waits);
        let attacker = nobody(|| {
            say(offset_of!(ProcessPage, group), group as u32);
            say(offset_of!(ProcessPage, session), waits as u32);
            0
        })?;
        words[1].store(1, Ordering::SeqCst);
        let status = libc::wait(waits);
        end(attacker)?;
        expect(status != 0x300, || format!("for user {user} a group is there that has ended"))?;
        expect(status == 0, || {
            format!("user {user}'s process: {status:#x} (0x500: a nice value, 0x600: entered)")
        })?;
    }
    Ok(String::new())
}
