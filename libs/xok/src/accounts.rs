//! Asking for the account of a user: `accountd` gives each one its own.

use crate::call::{self, Refused};
use crate::clock;
use crate::published;
use crate::services::{self, Service};
use abi::call::Call;
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId};
use abi::limits::RESOURCES;
use abi::published::{AccountRecord, FEATURE_USERS, Table};
use abi::word::{Which, Word};

/// Index of the first account, which all others are below.
const FIRST: usize = 1;

/// First word of a request: may the user in the second word have one more process?
pub const PREPARE: u64 = 1;
/// Have the domain in the third word be paid for by the user in the second word, for which it acts.
/// For a domain that acts for user 0 too the caller must be able to become that one.
pub const JOIN: u64 = 2;
/// Which user has the account in the second word?
pub const WHOSE: u64 = 3;
/// First word of a reply: it is so; in the second word, whose an account is.
pub const MADE: u64 = 0;
/// There is no room; in the second word, how much is charged to the user.
pub const NO_ROOM: u64 = 1;
/// The domain does not act for the user.
pub const NOT_ITS_USER: u64 = 2;

/// Nanoseconds that a user without room is waited for while nothing of it comes back, at most in
/// all, and between two questions.
const STANDSTILL_NS: u64 = 200_000_000;
/// See [`STANDSTILL_NS`].
const PATIENCE_NS: u64 = 1_000_000_000;
/// See [`STANDSTILL_NS`].
const NAP_NS: u64 = 2_000_000;

/// Asks; where nobody serves accounts there is one for all. An error: there is no room, and so much
/// is charged to the user.
fn ask(what: u64, user: u32, domain: DomainId) -> Result<(), u64> {
    match transfer([what, user.into(), domain.0, 0, 0, 0]) {
        Some([MADE, ..]) => Ok(()),
        Some([_, charged, ..]) => Err(charged),
        // It has ended, and is started again: whoever comes meanwhile stays where it is.
        None => Ok(()),
    }
}

/// May a process act for this user? A processor that keeps no two users apart has user 0 alone, but
/// where the machine's owner says that it may have others (`mitigations=off`).
pub fn takes(user: u32) -> bool {
    user == 0 || published::directory().features & FEATURE_USERS != 0
}

/// The server's reply; `None`: nobody serves accounts.
fn transfer(request: [u64; 6]) -> Option<[u64; 6]> {
    let server = EnvId(services::get(Service::Accounts) as u32);
    if server.is_none() {
        return None;
    }
    call::transfer_when_free(server, request).ok()
}

/// The user whose account this is, as far as that is known.
pub fn whose(account: AccountId) -> Option<u32> {
    match transfer([WHOSE, account.0, 0, 0, 0, 0]) {
        Some([MADE, user, ..]) => u32::try_from(user).ok(),
        _ => None,
    }
}

/// The user that pays for this domain, as far as that is known: servers' accounts are no user's.
pub fn payer(domain: DomainId) -> Option<u32> {
    whose(AccountId(published::domain(domain)?.account))
}

/// Makes the user's account, if it has none; may it have one more process? What its dead have left
/// comes back in pieces, in its account's turns: as long as less and less is charged to it, that is
/// waited for.
pub fn prepare(user: u32) -> bool {
    let began = clock::now_ns();
    let (mut least, mut since) = (u64::MAX, began);
    loop {
        let Err(charged) = ask(PREPARE, user, DomainId::NONE) else { return true };
        let now = clock::now_ns();
        if charged < least {
            (least, since) = (charged, now);
        }
        if now - since >= STANDSTILL_NS || now - began >= PATIENCE_NS {
            return false;
        }
        // A deadline is an answer, too; a predicate that holds already is none.
        let _ = call::sleep(now + NAP_NS, 0, 0, 0);
        let _ = call::yield_to(EnvId::NONE);
    }
}

/// The domain has become the user's, which pays from now on.
pub fn join(domain: DomainId, user: u32) -> bool {
    ask(JOIN, user, domain).is_ok()
}

/// Makes an account below the first one, by the capability in this slot. It may have nothing yet.
pub fn alloc(capability: u8) -> Result<AccountId, Refused> {
    let make = Call::AccountAlloc { which: Which::Any, parent: AccountId(first().id) };
    AccountId::from_word(call::make(make, capability)?).ok_or((Error::NoSuchAccount, 0))
}

fn first() -> AccountRecord {
    published::record(Table::Accounts, FIRST).unwrap_or_default()
}

/// Limits an account: `share` says the limit and the reserve of each resource, of which the first
/// account may have so much. Where less is left than is to be kept, the limit alone stands.
pub fn limit(
    capability: u8,
    account: AccountId,
    share: impl Fn(usize, u32) -> (u32, u32),
) -> Result<(), Refused> {
    for (resource, &all) in (0..RESOURCES).zip(&first().limit) {
        let (limit, reserve) = share(resource, all);
        let resource = resource as u16;
        let set = |reserve| {
            call::make(Call::AccountLimit { account, resource, limit, reserve }, capability)
        };
        set(reserve).or_else(|_| set(0))?;
    }
    Ok(())
}

/// Both.
pub fn make(
    capability: u8,
    share: impl Fn(usize, u32) -> (u32, u32),
) -> Result<AccountId, Refused> {
    let account = alloc(capability)?;
    if let Err(refused) = limit(capability, account, share) {
        // Nothing is charged to it: it ends at once.
        let _ = call::make(Call::AccountDestroy { account }, capability);
        return Err(refused);
    }
    Ok(account)
}
