//! Environments that are no process by what they show of themselves.
//!
//! A program that makes kernel calls of its own writes what it likes into its page of the process
//! table, and makes environments that have none. SIGKILL finds them all the same: by the kernel's
//! table of environments, whose word nobody writes but the kernel.

use crate::process::Process;
use crate::said;
use abi::id::{DomainId, EnvId};
use abi::published::{EnvRecord, EnvState, Table};
use alloc::vec::Vec;
use xok::{accounts, published};

/// The domains that a living process says it is in, by their index.
fn told() -> Vec<DomainId> {
    let mut told = alloc::vec![DomainId::NONE; published::table(Table::Domains).count as usize];
    let living = said::all().filter(|process| !process.dead);
    for domain in living.filter_map(|process| published::env_domain(process.id)) {
        if let Some(place) = told.get_mut(domain.index()) {
            *place = domain;
        }
    }
    told
}

/// Is it alive, and tells no process of it: neither itself, nor one whose thread it might be?
fn is_hidden(record: &EnvRecord, told: &[DomainId]) -> bool {
    let domain = DomainId(record.domain);
    let lives = record.id != 0 && record.state != EnvState::Dead as u32;
    lives && said::brief_of(record).is_none() && told.get(domain.index()) != Some(&domain)
}

/// Is the environment with this id one, and a user's program? Servers have accounts that are no
/// user's: they are not ended by a number that is wrong.
pub fn is_program(id: EnvId) -> bool {
    published::env(id).is_some_and(|record| {
        is_hidden(&record, &told()) && accounts::payer(DomainId(record.domain)).is_some()
    })
}

/// All of them that are not where this process is.
pub fn all(process: &Process) -> impl Iterator<Item = EnvId> {
    let (told, own) = (told(), published::env_domain(process.id));
    let count = published::table(Table::Envs).count as usize;
    let records = (1..count).filter_map(|index| published::record(Table::Envs, index));
    let hidden = records.filter(move |record: &EnvRecord| {
        is_hidden(record, &told) && Some(DomainId(record.domain)) != own
    });
    hidden.map(|record| EnvId(record.id))
}
