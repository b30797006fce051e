//! `futex`: sleeping until another thread says that a word has changed (futex(2)).
//!
//! Those who sleep stand in one queue, in the order of their coming. The word is compared and the
//! sleeper queued under the lock; so is whoever wakes. No wake-up is lost, and nobody looks at
//! the word again: who is taken off the queue is rung at, and sleeps no more.
//!
//! A word that several processes share (`MAP_SHARED`) has no queue, as nobody could be trusted with
//! it. Who sleeps for one says so in its own published page, by the word's physical address; who
//! wakes rings at all who say so, and they look again. Both fence: the sleeper between saying so
//! and reading the word, the waker between writing it and looking for sleepers. The bell of another
//! user's process nobody may ring: so who sleeps has the kernel look at the word as well.

use crate::errno::{Answer, Errno, RESTART_UNLESS_HANDLED};
use crate::lock;
use crate::memory::areas::Kind;
use crate::memory::space::space;
use crate::page;
use crate::process::Process;
use crate::said;
use crate::thread;
use crate::user;
use crate::wait::{Wait, Woken, sleep_until};
use abi::id::EnvId;
use abi::layout::PAGE_SIZE;
use abi::memory::ADDRESS;
use abi::predicate::Operator;
use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};
use linux_raw_sys::general as linux;
use xok::{clock, published};

/// Bytes of `struct robust_list_head`.
pub const HEAD_BYTES: u64 = 24;
/// Robust futexes of one thread that are looked at (`ROBUST_LIST_LIMIT`).
const ROBUST_MAX: usize = 2048;

/// Threads of other accounts that one wake rings at: most of them may not be signalled.
const STRANGERS: usize = 256;

/// Who sleeps for a futex of this space.
#[derive(Clone, Debug, Default)]
pub struct Queue(Vec<Sleeper>);

#[derive(Clone, Copy, Debug)]
struct Sleeper {
    word: u64,
    bits: u32,
    thread: EnvId,
}

/// `futex(word, operation, value, timeout, word2, value3)`
pub fn futex(process: &mut Process, words: [u64; 6]) -> Answer {
    let [word, operation, value, timeout, second, third] = words;
    let operation = operation as u32;
    let kind = operation & !(linux::FUTEX_PRIVATE_FLAG | linux::FUTEX_CLOCK_REALTIME);
    check_word(word)?;
    let (value, third) = (value as u32, third as u32);
    match kind {
        linux::FUTEX_WAIT | linux::FUTEX_WAIT_BITSET => {
            let bits = if kind == linux::FUTEX_WAIT { !0 } else { third };
            let deadline = deadline(operation, kind, timeout)?;
            wait(process, word, value, bits, deadline)
        }
        linux::FUTEX_WAKE => Ok(wake(word, value, !0)),
        linux::FUTEX_WAKE_BITSET if third == 0 => Err(Errno::EINVAL),
        linux::FUTEX_WAKE_BITSET => Ok(wake(word, value, third)),
        linux::FUTEX_REQUEUE | linux::FUTEX_CMP_REQUEUE => {
            check_word(second)?;
            let most = timeout as u32;
            if (value | most) >> 31 != 0 {
                return Err(Errno::EINVAL);
            }
            if kind == linux::FUTEX_CMP_REQUEUE && user::read_value::<u32>(word)? != third {
                return Err(Errno::EAGAIN);
            }
            let woken = wake_up_to(word, value, !0);
            let moved = requeue(word, second, most);
            Ok(if kind == linux::FUTEX_REQUEUE { woken } else { woken + moved })
        }
        linux::FUTEX_WAKE_OP => {
            check_word(second)?;
            let second_wakes = operate(second, third)?;
            let mut woken = wake(word, value, !0);
            if second_wakes {
                woken += wake(second, timeout as u32, !0);
            }
            Ok(woken)
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// A word of the program's, at a multiple of its size.
fn check_word(word: u64) -> Result<(), Errno> {
    if !word.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    if user::in_program(word, 4) { Ok(()) } else { Err(Errno::EFAULT) }
}

/// When a wait ends; 0: never.
fn deadline(operation: u32, kind: u32, timeout: u64) -> Result<u64, Errno> {
    if timeout == 0 {
        return Ok(0);
    }
    let time = user::read_value(timeout)?;
    if kind == linux::FUTEX_WAIT {
        return crate::time::deadline_after(time);
    }
    let until = crate::time::from_timespec(time)?;
    let real = operation & linux::FUTEX_CLOCK_REALTIME != 0;
    let now = if real { crate::time::wall() } else { clock::now_ns() };
    Ok(clock::now_ns().saturating_add(until.saturating_sub(now)).max(1))
}

fn wait(process: &mut Process, word: u64, value: u32, bits: u32, deadline: u64) -> Answer {
    if bits == 0 {
        return Err(Errno::EINVAL);
    }
    if let Some(key) = shared_key(word) {
        return wait_shared(process, word, value, key, deadline);
    }
    if user::read_value::<u32>(word)? != value {
        return Err(Errno::EAGAIN);
    }
    let own = thread::own().id;
    space().futexes.0.push(Sleeper { word, bits, thread: own });
    loop {
        let woken = sleep_until(process, Wait::new().dequeued(), deadline);
        if !is_queued(own) {
            return Ok(0);
        }
        let answer = match woken {
            Ok(Woken::TimedOut) => Errno::ETIMEDOUT,
            Ok(Woken::Ready) => continue,
            // With a deadline it could not start again as it was.
            Err(_) if deadline != 0 => RESTART_UNLESS_HANDLED,
            Err(errno) => errno,
        };
        leave(own);
        return Err(answer);
    }
}

/// What a word that other processes may share is known by among them.
fn shared_key(word: u64) -> Option<u64> {
    if space().areas.find(word)?.kind != Kind::Shared {
        return None;
    }
    // Brings the page, if it may be read.
    user::read_value::<u32>(word).ok()?;
    Some(xok::own::leaf(word)? & ADDRESS | word & (PAGE_SIZE - 1))
}

/// Sleeps for a word that others share. It may end although nobody meant this thread, as futex(2)
/// allows.
fn wait_shared(process: &mut Process, word: u64, value: u32, key: u64, deadline: u64) -> Answer {
    thread::own().rung = false;
    page::set_futex(key);
    let mut until = Wait::new();
    until.half(word, Operator::NotEqual, value).end_term();
    until.bell();
    let answer = match user::read_value::<u32>(word) {
        Ok(now) if now == value => match sleep_until(process, &until, deadline) {
            Ok(Woken::Ready) => Ok(0),
            Ok(Woken::TimedOut) => Err(Errno::ETIMEDOUT),
            Err(_) if deadline != 0 => Err(RESTART_UNLESS_HANDLED),
            Err(errno) => Err(errno),
        },
        Ok(_) => Err(Errno::EAGAIN),
        Err(errno) => Err(errno),
    };
    page::set_futex(0);
    answer
}

/// Rings at all threads of the same account that sleep for a shared word, and at [`STRANGERS`] of
/// others: any program may say that it sleeps. Answers how many. A thread whose word has changed
/// wakes by itself.
fn wake_shared(key: u64) -> u64 {
    fence(Ordering::SeqCst);
    let own = published::env(thread::own().id).map(|record| record.account);
    let (mut woken, mut strangers) = (0, 0);
    for (sleeper, account) in said::sleepers_for(key) {
        if own != Some(account) {
            strangers += 1;
            if strangers > STRANGERS {
                continue;
            }
        }
        lock::ring(sleeper);
        woken += 1;
    }
    woken
}

/// Does the thread still sleep for a futex?
pub fn is_queued(thread: EnvId) -> bool {
    space().futexes.0.iter().any(|sleeper| sleeper.thread == thread)
}

/// Takes a thread off the queue.
pub fn leave(thread: EnvId) {
    space().futexes.0.retain(|sleeper| sleeper.thread != thread);
}

/// In a fork child: nobody else is there.
pub fn begin_alone() {
    space().futexes.0.clear();
}

/// Wakes up to `most` (at least one, as Linux does) of those who sleep for `word` with one of
/// `bits`; answers how many.
pub fn wake(word: u64, most: u32, bits: u32) -> u64 {
    wake_up_to(word, most.max(1), bits)
}

fn wake_up_to(word: u64, most: u32, bits: u32) -> u64 {
    if let Some(key) = shared_key(word) {
        return wake_shared(key).min(most.into());
    }
    let mut woken = 0;
    space().futexes.0.retain(|sleeper| {
        let is_meant = woken < most && sleeper.word == word && sleeper.bits & bits != 0;
        if is_meant {
            woken += 1;
            lock::ring(sleeper.thread);
        }
        !is_meant
    });
    u64::from(woken)
}

/// Lets up to `most` of those who sleep for `from` sleep for `to` instead; answers how many.
fn requeue(from: u64, to: u64, most: u32) -> u64 {
    let sleepers = space().futexes.0.iter_mut().filter(|sleeper| sleeper.word == from);
    let mut moved = 0;
    for sleeper in sleepers.take(most as usize) {
        sleeper.word = to;
        moved += 1;
    }
    moved
}

/// `FUTEX_WAKE_OP`'s change of the second word; was it before as asked?
fn operate(word: u64, code: u32) -> Result<bool, Errno> {
    let signed = |bits: u32| ((bits << 20) as i32) >> 20;
    let (argument, compared) = (signed(code >> 12), signed(code));
    let shifts = code >> 31 != 0;
    let argument = if shifts { 1 << (argument & 31) } else { argument as u32 };
    let change = |old: u32| -> Option<u32> {
        Some(match code >> 28 & 7 {
            linux::FUTEX_OP_SET => argument,
            linux::FUTEX_OP_ADD => old.wrapping_add(argument),
            linux::FUTEX_OP_OR => old | argument,
            linux::FUTEX_OP_ANDN => old & !argument,
            linux::FUTEX_OP_XOR => old ^ argument,
            _ => return None,
        })
    };
    let mut old = user::read_value::<u32>(word)?;
    loop {
        let new = change(old).ok_or(Errno::ENOSYS)?;
        let found = user::compare_exchange(word, old, new)?;
        if found == old {
            break;
        }
        old = found;
    }
    let old = old as i32;
    Ok(match code >> 24 & 15 {
        linux::FUTEX_OP_CMP_EQ => old == compared,
        linux::FUTEX_OP_CMP_NE => old != compared,
        linux::FUTEX_OP_CMP_LT => old < compared,
        linux::FUTEX_OP_CMP_LE => old <= compared,
        linux::FUTEX_OP_CMP_GT => old > compared,
        linux::FUTEX_OP_CMP_GE => old >= compared,
        _ => return Err(Errno::ENOSYS),
    })
}

/// `get_robust_list(tid, head, bytes)`
pub fn robust_list(process: &mut Process, tid: u64, head: u64, bytes: u64) -> Answer {
    let id = if tid == 0 { thread::own().id } else { EnvId(tid as u32) };
    let robust = process.threads.find(id).ok_or(Errno::ESRCH)?.robust;
    user::write_value(bytes, &HEAD_BYTES)?;
    user::write_value(head, &robust)?;
    Ok(0)
}

/// A thread ends: the futexes on its robust list are marked as a dead owner's, and who waits for
/// one of them is woken. What the program wrote there is believed as far as it can be read.
pub fn leave_robust(head: u64, id: EnvId) {
    if head == 0 {
        return;
    }
    let Ok([first, offset, pending]) = user::read_value::<[u64; 3]>(head) else { return };
    let mut entry = first;
    for _ in 0..ROBUST_MAX {
        if entry & !1 == head {
            break;
        }
        let next = user::read_value::<u64>(entry & !1);
        if entry != pending {
            mark_dead((entry & !1).wrapping_add(offset), id, false);
        }
        let Ok(next) = next else { break };
        entry = next;
    }
    if pending & !1 != 0 {
        mark_dead((pending & !1).wrapping_add(offset), id, true);
    }
}

/// Marks one futex, if the thread has it; `pending`: it was about to take it or let go.
fn mark_dead(word: u64, id: EnvId, pending: bool) {
    if check_word(word).is_err() {
        return;
    }
    let Ok(mut old) = user::read_value::<u32>(word) else { return };
    // Let go, but nobody was woken yet.
    if pending && old == 0 {
        wake(word, 1, !0);
        return;
    }
    loop {
        if old & linux::FUTEX_TID_MASK != id.0 {
            return;
        }
        let new = old & linux::FUTEX_WAITERS | linux::FUTEX_OWNER_DIED;
        match user::compare_exchange(word, old, new) {
            Ok(found) if found == old => break,
            Ok(found) => old = found,
            Err(_) => return,
        }
    }
    if old & linux::FUTEX_WAITERS != 0 {
        wake(word, 1, !0);
    }
}
