//! Who has sent a signal, as its receiver is told (`si_pid`, `si_uid`).
//!
//! The kernel notes which environment has posted. As which user that acts is its own word, in its
//! page; so the kernel is asked whether it may be that one, as `SO_PEERCRED` is. Of a sender that
//! has died meanwhile the kernel still says whose account it was of.

use super::{CODE_KERNEL, CODE_USER, Info};
use crate::page;
use crate::process::Process;
use abi::capability::NAME_USER;
use abi::id::{DomainId, EnvId};
use abi::published::{EnvRecord, EnvState};
use xok::services::{self, Service};
use xok::{call, published};

/// The user that is told where none can be (the `overflowuid` of user_namespaces(7)).
pub const NOBODY: u32 = 65534;

/// What a signal that has been posted is told with.
pub fn info(process: &Process) -> Info {
    let sender = last();
    if services::get(Service::Terminal) == u64::from(sender.0) {
        // ^C and its kin: on Linux its terminals are the kernel's.
        return Info { code: CODE_KERNEL, ..Info::default() };
    }
    let record = published::env(sender).unwrap_or_default();
    let pid = process_of(sender, &record);
    let first = u64::from(pid.0) | u64::from(user(process, pid, &record)) << 32;
    Info { code: CODE_USER, first, ..Info::default() }
}

/// The environment that posted last.
fn last() -> EnvId {
    let count = xok::upcall::word(0xc0);
    let at = (count.wrapping_sub(1) % 8) as usize;
    let pair = xok::upcall::word(0xc8 + (at & !1) * 4);
    EnvId(if at & 1 == 0 { pair as u32 } else { (pair >> 32) as u32 })
}

/// The process whose thread has sent it, if that is one of its domain.
fn process_of(sender: EnvId, record: &EnvRecord) -> EnvId {
    let word = |offset| published::application_word(sender.index(), offset);
    if word(0) != Some(page::THREAD_MAGIC) {
        return sender;
    }
    let process = EnvId(word(8).unwrap_or(0) as u32);
    let there = published::env_domain(process) == Some(DomainId(record.domain));
    if there { process } else { sender }
}

/// The real user of the sender with this record, which is the process `pid` or a thread of it.
fn user(process: &Process, pid: EnvId, record: &EnvRecord) -> u32 {
    if record.id != 0 && record.state != EnvState::Dead as u32 {
        let said = page::of_index(pid.index()).map(|page| page.user);
        let domain = DomainId(if record.home != 0 { record.home } else { record.domain });
        if let Some(said) = said.filter(|&user| acts_for(domain, user)) {
            return said;
        }
    }
    let ours = published::env(process.id).unwrap_or_default();
    if record.id != 0 && record.user == ours.user {
        return process.payer;
    }
    NOBODY
}

fn acts_for(domain: DomainId, user: u32) -> bool {
    call::domain_holds(domain, NAME_USER, user).is_ok()
}
