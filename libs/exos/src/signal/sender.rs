//! Who has sent a signal, as its receiver is told (`si_pid`, `si_uid`).
//!
//! The kernel notes which environments have posted last, not what each of them has. So one is named
//! if all that may have set the bits in hand are that one, or if what they have set is one and the
//! same bit: then it is the first that is still noted, as on Linux. Else nobody is.
//!
//! As which user it acts is its own word, in its page; so the kernel is asked whether it may be
//! that one, as `SO_PEERCRED` is. Of one that has died, a sender or a child, the kernel still says
//! whose account it was of, and that is a user's that it acted for.

use super::{CODE_KERNEL, CODE_USER, Info};
use crate::process::Process;
use crate::{belief, exit, said, thread};
use abi::id::{AccountId, DomainId, EnvId};
use abi::limits::SENDERS;
use abi::published::{EnvRecord, EnvState};
use abi::upcall::SaveArea;
use core::mem::offset_of;
use xok::services::{self, Service};
use xok::{accounts, published, upcall};

/// The user that is told where none can be (the `overflowuid` of user_namespaces(7)).
pub const NOBODY: u32 = 65534;

/// What signals are told with of which nobody is named.
pub const UNNAMED: Info = Info {
    code: CODE_USER,
    first: (NOBODY as u64) << 32,
    second: 0,
    trap: 0,
    error: 0,
    address: 0,
};

/// Posts whose bits have been set: to be read before the bits are taken.
pub fn posts_set() -> u64 {
    upcall::word(offset_of!(SaveArea, posts_set))
}

/// Of the posts up to the present ones nobody is named, if any waits: they may be older than the
/// save area, which a life begins with.
pub fn begin() {
    let set = posts_set();
    thread::own().posts_taken = if upcall::pending() == 0 { set } else { UNKNOWN };
    thread::own().is_taken_exact = false;
}

/// In place of a number of posts: those that came before are not counted.
pub const UNKNOWN: u64 = 1 << 63;

/// Are the bits that have just been taken those of the first `set` posts, and no later one's? So
/// it is if no other post has begun.
pub fn is_exact(set: u64) -> bool {
    upcall::word(offset_of!(SaveArea, sender_count)) == set
}

/// What the signals are told with that are these bits, which have just been taken: all that the
/// posts up to `set` have set.
pub fn info(process: &mut Process, bits: u64, set: u64) -> Info {
    let thread = thread::own();
    let all_sent_it = bits.count_ones() == 1 && thread.is_taken_exact && is_exact(set);
    let taken = thread.posts_taken;
    let first = || all_sent_it.then(|| earliest(taken, set)).flatten();
    let Some(sender) = only(taken).or_else(first) else { return UNNAMED };
    if services::get(Service::Terminal) == u64::from(sender.0) {
        // ^C and its kin: on Linux its terminals are the kernel's.
        return Info { code: CODE_KERNEL, ..Info::default() };
    }
    let record = published::env(sender).unwrap_or_default();
    let pid = belief::process_of(sender, &record);
    let user = user(process, pid, &record).unwrap_or(NOBODY);
    let first = u64::from(pid.0) | u64::from(user) << 32;
    Info { code: CODE_USER, first, ..Info::default() }
}

/// The one environment that all posts after the first `taken` are from. What our own threads have
/// rung at each other with counts only if nobody else has posted.
fn only(taken: u64) -> Option<EnvId> {
    let count = || upcall::word(offset_of!(SaveArea, sender_count));
    let end = count();
    let fresh = end.wrapping_sub(taken);
    if fresh > SENDERS as u64 {
        return None;
    }
    let own = published::env_domain(thread::own().id);
    let (mut others, mut ours) = (One::None, One::None);
    for number in 0..fresh {
        let sender = sender_at(taken.wrapping_add(number));
        let is_ours = published::env_domain(sender) == own;
        if is_ours { ours.add(sender) } else { others.add(sender) }
    }
    // Their places may have been taken by later ones meanwhile.
    if count().wrapping_sub(taken) > SENDERS as u64 {
        return None;
    }
    match others {
        One::None => ours.get(),
        _ => others.get(),
    }
}

/// The first that is noted of the posts after the first `taken`, up to `set`.
fn earliest(taken: u64, set: u64) -> Option<EnvId> {
    let post = taken.max(set.saturating_sub(SENDERS as u64));
    let sender = sender_at(post);
    // Its place may have been taken by a later one meanwhile.
    let count = upcall::word(offset_of!(SaveArea, sender_count));
    (post < set && count.wrapping_sub(post) <= SENDERS as u64).then_some(sender)
}

/// Whom the kernel has noted at this post.
fn sender_at(post: u64) -> EnvId {
    let at = (post % SENDERS as u64) as usize;
    let pair = upcall::word(offset_of!(SaveArea, senders) + (at & !1) * 4);
    EnvId(if at & 1 == 0 { pair as u32 } else { (pair >> 32) as u32 })
}

/// None, one, or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum One {
    None,
    Just(EnvId),
    Several,
}

impl One {
    fn add(&mut self, id: EnvId) {
        *self = match *self {
            One::None => One::Just(id),
            One::Just(before) if before == id => One::Just(id),
            _ => One::Several,
        };
    }

    fn get(self) -> Option<EnvId> {
        if let One::Just(id) = self { Some(id) } else { None }
    }
}

/// The real user of the process `id`, which may have died, as its parent is told.
pub fn of_child(process: &mut Process, id: EnvId) -> u32 {
    let record = published::env(id).unwrap_or_default();
    user(process, id, &record).unwrap_or(NOBODY)
}

/// The real user of the sender with this record, which is the process `pid` or a thread of it, if
/// the kernel bears it out.
fn user(process: &mut Process, pid: EnvId, record: &EnvRecord) -> Option<u32> {
    if record.id == 0 {
        return None;
    }
    if record.state == EnvState::Dead as u32 {
        return of_dead(process, record);
    }
    let domain = DomainId(if record.home != 0 { record.home } else { record.domain });
    let page = said::of_index(pid.index())?;
    page.fact(|page| belief::acts_for(domain, page.user)).map(|page| page.user)
}

/// The same of one that has died: who has paid for it was one of its users. If that is user 0, it
/// may have been any other one, too.
fn of_dead(process: &mut Process, record: &EnvRecord) -> Option<u32> {
    match payer(process, record.user)? {
        0 => Some(exit::user_of(record.word)),
        payer => Some(payer),
    }
}

/// The user whose account this is.
fn payer(process: &mut Process, account: u64) -> Option<u32> {
    if process.known_account.0 != account {
        process.known_account = (account, accounts::whose(AccountId(account))?);
    }
    Some(process.known_account.1)
}
