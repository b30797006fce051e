//! How processes of two users meet: whom a signal is from, and whose a child was.

use super::processes::await_stop;
use super::{ANN, another, end, failed, say};
use crate::{Seen, Test, expect, libc, set_id};
use abi::call::Call;
use abi::id::EnvId;
use std::io::{BufRead, BufReader, Write};
use std::mem::offset_of;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use unix::process_page::{Placed, ProcessPage};

/// What holds.
pub const TESTS: [Test; 6] = [
    ("signals_that_come_together_have_no_sender", signals_that_come_together_have_no_sender),
    ("children_do_not_say_whose_they_were", children_do_not_say_whose_they_were),
    ("starters_keep_no_child_from_a_session", starters_keep_no_child_from_a_session),
    ("orders_go_on_after_set_id_programs", orders_go_on_after_set_id_programs),
    ("orders_do_not_reach_set_id_programs", orders_do_not_reach_set_id_programs),
    ("starters_give_no_console", starters_give_no_console),
];

const CHILD: i32 = 17;
const STOP: i32 = 19;
const CONTINUE: i32 = 18;
/// Two signals that are waited for.
const SIGNALS: [i32; 2] = [10, 12];
/// Who sends them: the user that is signalled, root.
type Turn = [bool; 2];

/// Stops itself before each turn, and keeps who is told to have sent its signals.
fn keep(turns: &[Turn], words: &[std::sync::atomic::AtomicU64]) -> i32 {
    SIGNALS.into_iter().for_each(libc::block);
    if !libc::become_user(ANN) {
        return 1;
    }
    for turn in 0..turns.len() {
        libc::send(std::process::id() as i32, STOP);
        for (at, signal) in SIGNALS.iter().enumerate() {
            let Some([pid, user]) = libc::await_signal(*signal) else { return 2 };
            words[2 * turn + at].store(u64::from(pid) | u64::from(user) << 32, Ordering::SeqCst);
        }
    }
    0
}

/// Signals that come together have the sender that all of them have, or none.
fn signals_that_come_together_have_no_sender(_: door::Door) -> Seen {
    let turns = [[true, false], [false, true], [false, false], [true, true]];
    let words = libc::words(libc::shared(1), 2 * turns.len());
    let victim = libc::spawn(|| keep(&turns, words));
    let mut expected = Vec::new();
    for turn in turns {
        await_stop(victim);
        let mut senders = Vec::new();
        for (signal, is_anns) in SIGNALS.into_iter().zip(turn) {
            if is_anns {
                let attacker = another(ANN, || {
                    libc::send(victim, signal);
                    0
                })?;
                senders.push((attacker.0 as u64 | u64::from(ANN) << 32, Some(attacker)));
            } else {
                libc::send(victim, signal);
                senders.push((std::process::id().into(), None));
            }
        }
        // Who lets it go on posts, too.
        libc::send(victim, CONTINUE);
        let own = u64::from(std::process::id());
        let all_are_own = senders.iter().all(|sender| sender.0 == own);
        expected.extend([if all_are_own { own } else { 65534 << 32 }; 2]);
        // Later ones have inherited the ends of those before them.
        senders.into_iter().rev().filter_map(|sender| sender.1).try_for_each(end)?;
    }
    let status = libc::wait(victim);
    let told: Vec<u64> = words.iter().map(|word| word.load(Ordering::SeqCst)).collect();
    expect(status == 0 && told == expected, || {
        format!("who was signalled ended with {status:#x}: {told:x?} instead of {expected:x?}")
    })?;
    Ok(String::new())
}

/// The parent of a child that has become another user, and says that it has not, is told what the
/// kernel knows: nobody while it is stopped, and its user at its end.
fn children_do_not_say_whose_they_were(_: door::Door) -> Seen {
    let parent = libc::spawn(|| {
        libc::block(CHILD);
        let child = libc::spawn(|| {
            if !libc::become_user(ANN) {
                return 1;
            }
            say(offset_of!(ProcessPage, user), 0);
            libc::send(std::process::id() as i32, STOP);
            0
        });
        let stopped = libc::await_signal(CHILD);
        libc::send(child, CONTINUE);
        let of_it = |told: Option<[u32; 2]>, user| told == Some([child as u32, user]);
        let mut ended = libc::await_signal(CHILD);
        if of_it(ended, 65534) {
            // That it goes on was told first.
            ended = libc::await_signal(CHILD);
        }
        if !of_it(stopped, 65534) {
            println!("(its stop: {stopped:?})");
            return 2;
        }
        if !of_it(ended, ANN) {
            println!("(its end: {ended:?})");
            return 3;
        }
        libc::wait(child) >> 8
    });
    let status = libc::wait(parent);
    expect(status == 0, || format!("the parent ended with {status:#x}"))?;
    Ok(String::new())
}

/// A set-id program of user 0's.
const PROGRAM: &str = "/tmp/meetings-job";

fn with_program(run: impl FnOnce() -> i32) -> Seen {
    set_id::copy_program(PROGRAM).map_err(failed)?;
    libc::set_mode(PROGRAM, 0o4755);
    let status = libc::wait(libc::spawn(run));
    std::fs::remove_file(PROGRAM).map_err(failed)?;
    expect(status == 0, || format!("the starter ended with {status:#x}"))?;
    Ok(String::new())
}

/// The program, which has a child that begins a session once it gets a byte, and that child's
/// number.
fn start_session() -> Option<(Child, i32)> {
    let job = Command::new(PROGRAM)
        .arg0(set_id::NAME)
        .arg(set_id::SESSION)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut job = job.ok()?;
    let mut line = String::new();
    BufReader::new(job.stdout.take()?).read_line(&mut line).ok()?;
    Some((job, line.trim().parse().ok()?))
}

/// Gives it the byte: its status.
fn end_session(mut job: Child) -> i32 {
    let sent = job.stdin.take().map(|mut to| to.write_all(b"g"));
    let status = job.wait().ok().and_then(|status| status.code());
    match (sent, status) {
        (Some(Ok(())), Some(0)) => 0,
        (Some(Ok(())), Some(code)) => 10 + code,
        _ => 7,
    }
}

/// A set-id program's child begins a session, whatever the program's starter says of its own group.
fn starters_keep_no_child_from_a_session(_: door::Door) -> Seen {
    with_program(|| {
        if !libc::become_user(ANN) {
            return 1;
        }
        let Some((job, child)) = start_session() else { return 2 };
        say(offset_of!(ProcessPage, group), child as u32);
        end_session(job)
    })
}

/// What a set-id program's starter says in its page moves neither the program nor its child into
/// another group.
fn orders_do_not_reach_set_id_programs(door: door::Door) -> Seen {
    const BELL: u64 = 1 << 8;
    let group_of = |pid: i32| {
        let at = EnvId(pid as u32).index();
        xok::published::application_word(at, offset_of!(ProcessPage, parent)).map(|two| two >> 32)
    };
    with_program(|| {
        if !libc::become_user(ANN) {
            return 1;
        }
        let Some((job, child)) = start_session() else { return 2 };
        let all = [job.id() as i32, child];
        let before = all.map(group_of);
        for (at, pid) in all.into_iter().enumerate() {
            let first = offset_of!(ProcessPage, placed) + at * size_of::<Placed>();
            let words = [pid as u32, std::process::id(), u32::MAX];
            (0..).zip(words).for_each(|(word, value)| say(first + 4 * word, value));
            let ring = Call::Post { env: EnvId(pid as u32), bits: BELL };
            if libc::kernel_by(door, ring, 2).is_err() {
                return 3;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        let moved = all.map(group_of) != before;
        let status = end_session(job);
        if moved { 4 } else { status }
    })
}

/// A child that has followed its parent's orders follows those, too, that come when the parent has
/// executed a set-id program.
fn orders_go_on_after_set_id_programs(_: door::Door) -> Seen {
    let words = libc::words(libc::shared(1), 2);
    let seen = with_program(|| {
        let group = libc::group() as u64;
        let parent = libc::spawn(|| {
            if !libc::become_user(ANN) {
                return 1;
            }
            let child = libc::spawn(|| {
                while words[0].load(Ordering::SeqCst) == 0 {
                    words[1].store(libc::group() as u64, Ordering::SeqCst);
                    std::thread::yield_now();
                }
                0
            });
            // It follows once, and once more.
            let put = libc::set_group(child, child) && libc::set_group(child, libc::group());
            if !put || !libc::set_group(child, child) {
                return 2;
            }
            while words[1].load(Ordering::SeqCst) != child as u64 {
                std::thread::yield_now();
            }
            let words = [set_id::NAME, set_id::GROUP].map(String::from);
            libc::execute(PROGRAM, &[&words[..], &[child.to_string()]].concat(), &[]);
            3
        });
        let status = libc::wait(parent);
        let is_there = words[1].load(Ordering::SeqCst) == group;
        match status {
            0 if is_there => 0,
            0 => 10,
            _ => status >> 8,
        }
    });
    words[0].store(1, Ordering::SeqCst);
    seen
}

/// What is no starter's terminal is not its set-id program's either: the console.
fn starters_give_no_console(_: door::Door) -> Seen {
    with_program(|| {
        if !libc::lead_session() || !libc::become_user(ANN) {
            return 1;
        }
        let mut job = Command::new(PROGRAM);
        job.arg0(set_id::NAME).arg(set_id::TERMINAL);
        job.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let says = || {
            say(offset_of!(ProcessPage, terminal), 1);
            Ok(())
        };
        libc::before_exec(&mut job, says);
        job.status().ok().and_then(|status| status.code()).map_or(2, |code| 10 * code)
    })
}
