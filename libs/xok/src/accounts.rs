//! Asking for the account of a user: `accountd` gives each one its own.

use crate::call;
use crate::services::{self, Service};
use abi::error::Error;
use abi::id::{DomainId, EnvId};

/// First word of a request: may the user in the second word have one more process?
pub const PREPARE: u64 = 1;
/// Have the domain in the third word be paid for by the user that it acts for: user 0 if it acts
/// for that one, else the user in the second word.
pub const JOIN: u64 = 2;
/// First word of a reply: it is so.
pub const MADE: u64 = 0;
/// There is no room.
pub const NO_ROOM: u64 = 1;
/// The domain does not act for the user.
pub const NOT_ITS_USER: u64 = 2;

/// Asks; where nobody serves accounts there is one for all. `false`: there is no room.
fn ask(what: u64, user: u32, domain: DomainId) -> bool {
    let server = EnvId(services::get(Service::Accounts) as u32);
    if server.is_none() {
        return true;
    }
    loop {
        match call::transfer(server, [what, user.into(), domain.0, 0, 0, 0]) {
            Ok([answer, ..]) => return answer == MADE,
            Err((Error::Busy, _)) => {
                // It serves somebody else: give it the processor to finish.
                let _ = call::yield_to(server);
            }
            // It has ended, and is started again: whoever comes meanwhile stays where it is.
            Err(_) => return true,
        }
    }
}

/// Makes the user's account, if it has none; may it have one more process?
pub fn prepare(user: u32) -> bool {
    ask(PREPARE, user, DomainId::NONE)
}

/// The domain has become the user's, which pays from now on.
pub fn join(domain: DomainId, user: u32) -> bool {
    ask(JOIN, user, domain)
}
