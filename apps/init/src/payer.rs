//! Accounts of init's and of the servers': each its own, so that no user takes what they need.

use abi::capability::{CONTROL, NAME_ACCOUNT};
use abi::domain::Property;
use abi::id::{AccountId, DomainId};
use abi::limits::Resource;
use xok::accounts;
use xok::call::{self, OWN, Refused};

/// Where init keeps the right over the first account's name, below which those of all others lie.
const SLOT: u8 = 2;
/// Index of the first account.
const FIRST: usize = 1;
/// What is kept for a server: so much of the machine's part of each resource.
const PART: u32 = 64;
/// There are so many attachments for each region. Of these one is the file server's, whoever has
/// made the region: that is kept for it.
const ATTACHMENTS: u32 = 4;

/// An account that may have all, with a reserve; none if the processor keeps no two users apart, or
/// there is none left: then whoever starts it pays. `files`: is it the file server's?
pub fn account(files: bool) -> AccountId {
    let kept = |resource, all| match resource {
        // In no table.
        _ if resource == Resource::Pins as usize => 0,
        _ if files && resource == Resource::Attachments as usize => all / ATTACHMENTS,
        _ => all / PART,
    };
    accounts::make(SLOT, |resource, all| (all, kept(resource, all))).unwrap_or(AccountId::NONE)
}

/// Init's own; before any other.
pub fn own() -> Result<(), Refused> {
    let first = [NAME_ACCOUNT + FIRST as u16];
    call::capability_derive(OWN, DomainId::NONE, SLOT.into(), &first, CONTROL)?;
    let account = account(false);
    if !account.is_none() {
        call::domain_set(SLOT, DomainId::NONE, Property::Account, account.0)?;
    }
    Ok(())
}
