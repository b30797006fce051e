//! Environments that never run and show a page: what it says, each of them says of itself.

use crate::libc;
use abi::call::Call;
use abi::id::{AccountId, DomainId, EnvId};
use abi::setup::{EnvSetup, field};
use abi::word::{UserAddress, Which};

/// One that shows this page of the caller's; `None`: the account may have no more.
pub fn one(door: door::Door, page: u64) -> Option<EnvId> {
    let (which, vector) = (Which::Any, Which::Any);
    let (domain, account) = (DomainId::NONE, AccountId::NONE);
    let make = Call::EnvAlloc { which, domain, account, vector };
    let env = EnvId(libc::kernel(door, make).ok()? as u32);
    let setup = EnvSetup { application_page: page, ..EnvSetup::default() };
    let (fields, setup) = (field::APPLICATION_PAGE, UserAddress(&raw const setup as u64));
    libc::kernel(door, Call::EnvSet { env, fields, setup }).expect("a page of one's own is shown");
    Some(env)
}

/// As many as there may be; how many.
pub fn all(door: door::Door, page: u64) -> u64 {
    std::iter::from_fn(|| one(door, page)).count() as u64
}
