//! The server as `xok::server` drives it.

use abi::call::Call;
use abi::capability::NAME_USER;
use abi::domain::Property;
use abi::id::{AccountId, DomainId, EnvId};
use abi::limits::{ACCOUNTS, RESOURCES, Resource};
use abi::word::Word;
use xok::accounts::{self, JOIN, MADE, NO_ROOM, NOT_ITS_USER, PREPARE, WHOSE};
use xok::call::{self, Message, Refused};
use xok::clock;
use xok::published;
use xok::server::Serve;
use xok::services::{self, Service};

use crate::notes::{Note, Notes, record};
use crate::shares::share;

/// Index of the capability over the first account and those below it.
const ACCOUNT: u8 = 1;
/// Nanoseconds between two looks for users that have nothing any more.
const LOOK_NS: u64 = 1_000_000_000;
/// What a process needs to begin, of frames, domains and environments each.
const LEAST: u32 = 1;

/// Which user has which account.
pub struct Server {
    notes: Notes,
}

/// What a user's account is given of each resource.
fn shares(user: u32) -> impl Fn(usize, u32) -> (u32, u32) {
    move |resource, all| share(user, resource, all)
}

/// Does the domain act for this user?
fn acts_for(domain: DomainId, user: u32) -> bool {
    call::domain_holds(domain, NAME_USER, user).is_ok()
}

impl Server {
    /// Goes on with what the former life has noted. An account that it has made and not noted has
    /// no limits yet: of it a place in the table is lost.
    pub fn new(notes: Notes) -> Self {
        for note in notes.iter() {
            // It may have ended in the middle of this; an account that dies meanwhile is found.
            let _ = accounts::limit(ACCOUNT, note.account, shares(note.user));
        }
        Self { notes }
    }

    /// The user's account, made if there is none.
    fn make(&mut self, user: u32) -> Result<AccountId, Refused> {
        if let Some(account) = self.notes.of(user) {
            return Ok(account);
        }
        let account = accounts::alloc(ACCOUNT)?;
        let noted = self.notes.add(Note { user, account });
        if let Err(refused) = noted.and_then(|()| accounts::limit(ACCOUNT, account, shares(user))) {
            self.end(account);
            return Err(refused);
        }
        Ok(account)
    }

    /// Ends an account to which nothing is charged.
    fn end(&mut self, account: AccountId) {
        // It may have gone by itself.
        let _ = call::make(Call::AccountDestroy { account }, ACCOUNT);
        self.notes.remove(account);
    }

    /// May the user have one more process, the caller, with the attachments that it has?
    fn prepare(&mut self, caller: EnvId, user: u32) -> u64 {
        let Ok(account) = self.make(user) else { return NO_ROOM };
        let record = record(account).unwrap_or_default();
        let has_room = |(resource, needed): (Resource, u32)| {
            let at = resource as usize;
            record.limit[at].saturating_sub(record.used[at]) >= needed
        };
        let domain = published::env_domain(caller).and_then(published::domain);
        let attached = domain.map_or(0, |domain| domain.attachments);
        let needed = [
            (Resource::Envs, LEAST),
            (Resource::Domains, LEAST),
            (Resource::Frames, LEAST),
            (Resource::Attachments, attached.saturating_add(LEAST)),
        ];
        if needed.into_iter().all(has_room) { MADE } else { NO_ROOM }
    }

    /// How much is charged to the user, of what its dead leave for a while.
    fn charged(&self, user: u64) -> u64 {
        let account = u32::try_from(user).ok().and_then(|user| self.notes.of(user));
        let used = account.and_then(record).unwrap_or_default().used;
        [Resource::Frames, Resource::Envs, Resource::Domains, Resource::Attachments]
            .into_iter()
            .map(|resource| u64::from(used[resource as usize]))
            .sum()
    }

    /// Has the domain be paid for by a user that it acts for, if the caller may be that one, and
    /// user 0 where the domain acts for that one too; the set-id server says which user is to pay
    /// for what it builds.
    fn join(
        &mut self,
        (caller, domain): (EnvId, DomainId),
        asked: u32,
        may_be: impl Fn(u32) -> bool,
    ) -> u64 {
        let says = u64::from(caller.0) == services::get(Service::SetId)
            || acts_for(domain, asked) && (may_be(0) || !acts_for(domain, 0));
        if !says {
            return NOT_ITS_USER;
        }
        let Ok(account) = self.make(asked) else { return NO_ROOM };
        match call::domain_set(ACCOUNT, domain, Property::Account, account.0) {
            Ok(_) => MADE,
            Err(_) => NO_ROOM,
        }
    }

    /// Users that have nothing any more have no account any more.
    fn look(&mut self) {
        for index in 0..ACCOUNTS {
            let note = self.notes.at(index).filter(|note| note.user != 0);
            let Some(Note { account, .. }) = note else { continue };
            let used = record(account).map(|record| record.used);
            let (gone, empty) = (used.is_none(), used == Some([0; RESOURCES]));
            if gone || empty {
                self.end(account);
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
        // A processor that keeps no two users apart has one account, which is user 0's.
        let alone = !accounts::takes(u32::MAX);
        if what == WHOSE {
            // Who pays for what is published by account, and names are no secret.
            let whose = self.notes.whose(AccountId(user)).filter(|_| !alone);
            *message = whose.map_or([NOT_ITS_USER; 6], |user| [MADE, user.into(), 0, 0, 0, 0]);
            return;
        }
        let answer = match (what, u32::try_from(user), DomainId::from_word(domain)) {
            (PREPARE | JOIN, Ok(user), _) if alone && user == 0 => MADE,
            _ if alone => NOT_ITS_USER,
            (PREPARE, Ok(user), _) if may_be(user) => self.prepare(caller, user),
            (JOIN, Ok(user), Some(domain)) if may_be(user) => {
                self.join((caller, domain), user, may_be)
            }
            _ => NOT_ITS_USER,
        };
        let charged = if answer == NO_ROOM { self.charged(user) } else { 0 };
        *message = [answer, charged, 0, 0, 0, 0];
    }

    fn events(&mut self) -> u64 {
        // Before looking, so that what arrives from now on ends the next sleep.
        xok::upcall::take_events();
        xok::upcall::take_pending();
        self.look();
        let users = self.notes.iter().any(|note| note.user != 0);
        if users { clock::now_ns() + LOOK_NS } else { 0 }
    }
}
