//! The server as `xok::server` drives it.

use abi::call::Call;
use abi::capability::NAME_USER;
use abi::domain::Property;
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId};
use abi::limits::{ACCOUNTS, Resource};
use abi::published::{AccountRecord, Table};
use abi::word::Word;
use xok::accounts::{self, JOIN, MADE, NO_ROOM, NOT_ITS_USER, PREPARE};
use xok::call::{self, Message, Refused};
use xok::clock;
use xok::published;
use xok::server::Serve;

use crate::shares::share;

/// Index of the capability over the first account and those below it.
const ACCOUNT: u8 = 1;
/// Nanoseconds between two looks for users that have nothing any more.
const LOOK_NS: u64 = 1_000_000_000;
/// What a process needs to begin, of frames, domains and environments each.
const LEAST: u32 = 1;

/// A user, and the account that it has.
#[derive(Clone, Copy)]
struct Entry {
    user: u32,
    account: AccountId,
}

/// Which user has which account.
pub struct Server {
    entries: [Option<Entry>; ACCOUNTS],
}

fn record(index: usize) -> AccountRecord {
    published::record(Table::Accounts, index).unwrap_or_default()
}

/// Does the domain act for this user?
fn acts_for(domain: DomainId, user: u32) -> bool {
    call::domain_holds(domain, NAME_USER, user).is_ok()
}

impl Server {
    /// No user has an account.
    pub fn new() -> Self {
        Self { entries: [None; ACCOUNTS] }
    }

    fn of(&self, user: u32) -> Option<AccountId> {
        let mut entries = self.entries.iter().flatten();
        entries.find(|entry| entry.user == user).map(|entry| entry.account)
    }

    /// The user's account, made if there is none.
    fn make(&mut self, user: u32) -> Result<AccountId, Refused> {
        if let Some(account) = self.of(user) {
            return Ok(account);
        }
        let free = self.entries.iter().position(Option::is_none);
        let place = free.ok_or((Error::Exhausted, 0))?;
        let account = accounts::make(ACCOUNT, |resource, all| share(user, resource, all))?;
        self.entries[place] = Some(Entry { user, account });
        Ok(account)
    }

    /// May the user have one more process?
    fn prepare(&mut self, user: u32) -> u64 {
        let Ok(account) = self.make(user) else { return NO_ROOM };
        let record = record(account.index());
        let has_room = |resource: Resource| {
            let at = resource as usize;
            record.limit[at].saturating_sub(record.used[at]) >= LEAST
        };
        let room = [Resource::Envs, Resource::Domains, Resource::Frames].into_iter().all(has_room);
        if room { MADE } else { NO_ROOM }
    }

    /// Has the domain be paid for by the user that it acts for.
    fn join(&mut self, domain: DomainId, asked: u32) -> u64 {
        let user = match acts_for(domain, 0) {
            true => 0,
            false if acts_for(domain, asked) => asked,
            false => return NOT_ITS_USER,
        };
        let Ok(account) = self.make(user) else { return NO_ROOM };
        match call::domain_set(ACCOUNT, domain, Property::Account, account.0) {
            Ok(_) => MADE,
            Err(_) => NO_ROOM,
        }
    }

    /// Users that have nothing any more have no account any more.
    fn look(&mut self) {
        for place in &mut self.entries {
            let Some(entry) = place.filter(|entry| entry.user != 0) else { continue };
            let record = record(entry.account.index());
            let gone = record.id != entry.account.0;
            let empty = record.used.iter().all(|&used| used == 0);
            if gone || empty {
                // Nothing is charged to it.
                let _ = call::make(Call::AccountDestroy { account: entry.account }, ACCOUNT);
                *place = None;
            }
        }
    }
}

impl Serve for Server {
    fn request(&mut self, caller: EnvId, message: &mut Message) {
        // Accounts are few, and what others are to pay for is not the caller's to say: it asks for
        // users that it can become.
        let may_be =
            |user| published::env_domain(caller).is_some_and(|domain| acts_for(domain, user));
        let [what, user, domain, ..] = *message;
        // A processor that keeps no two users apart has one account.
        let alone = published::directory().features & abi::published::FEATURE_USERS == 0;
        let answer = match (what, u32::try_from(user), DomainId::from_word(domain)) {
            (PREPARE | JOIN, ..) if alone => MADE,
            (PREPARE, Ok(user), _) if may_be(user) => self.prepare(user),
            (JOIN, Ok(user), Some(domain)) if may_be(user) => self.join(domain, user),
            _ => NOT_ITS_USER,
        };
        *message = [answer, 0, 0, 0, 0, 0];
    }

    fn events(&mut self) -> u64 {
        // Before looking, so that what arrives from now on ends the next sleep.
        xok::upcall::take_events();
        xok::upcall::take_pending();
        self.look();
        let users = self.entries.iter().flatten().any(|entry| entry.user != 0);
        if users { clock::now_ns() + LOOK_NS } else { 0 }
    }
}
