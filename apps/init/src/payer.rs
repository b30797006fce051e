//! Accounts of init's and of the servers': each its own, so that no user takes what they need.

use abi::call::Call;
use abi::capability::{CONTROL, NAME_ACCOUNT};
use abi::domain::Property;
use abi::id::{AccountId, DomainId};
use abi::limits::{RESOURCES, Resource};
use abi::published::{AccountRecord, Table};
use abi::word::{Which, Word};
use xok::call::{self, OWN, Refused};
use xok::published;

/// Where init keeps the right over the first account's name, below which those of all others lie.
const SLOT: u8 = 2;
/// Index of the first account.
const FIRST: usize = 1;
/// What is kept for a server: so much of the machine's part of each resource.
const PART: u32 = 64;

/// An account that may have all, with a reserve; none if the processor keeps no two users apart, or
/// there is none left: then whoever starts it pays.
pub fn account() -> AccountId {
    let first: AccountRecord = published::record(Table::Accounts, FIRST).unwrap_or_default();
    let make = Call::AccountAlloc { which: Which::Any, parent: AccountId(first.id) };
    let made = call::make(make, SLOT).ok().and_then(AccountId::from_word);
    let Some(account) = made else { return AccountId::NONE };
    for resource in 0..RESOURCES {
        let limit = first.limit[resource];
        // Pins are in no table.
        let reserve = if resource == Resource::Pins as usize { 0 } else { limit / PART };
        let resource = resource as u16;
        // It is below an account that has all.
        let _ = call::make(Call::AccountLimit { account, resource, limit, reserve }, SLOT);
    }
    account
}

/// Init's own; before any other.
pub fn own() -> Result<(), Refused> {
    let first = [NAME_ACCOUNT + FIRST as u16];
    call::capability_derive(OWN, DomainId::NONE, SLOT.into(), &first, CONTROL)?;
    let account = account();
    if !account.is_none() {
        call::domain_set(SLOT, DomainId::NONE, Property::Account, account.0)?;
    }
    Ok(())
}
