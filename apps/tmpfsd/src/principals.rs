//! Whom a client may act for: the kernel says, the client only chooses.
//!
//! A request names a user and a group. The kernel is asked whether the client's domain holds them
//! (`DomainHolds`), and the answer is kept as long as the domain's published count of changes to
//! what it holds stands still. Further groups are asked for when a file's group makes a difference.

use abi::capability::{NAME_GROUP, NAME_USER};
use abi::id::DomainId;
use abi::published::{DomainRecord, Table};
use unix::Errno;
use unix::attributes::{Credentials, Membership};
use xok::{call, published};

/// Answers kept: for the clients that ask most.
const KEPT: usize = 64;

/// An answer: this domain, while its count stands so, acts for these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    domain: DomainId,
    holdings: u64,
    user: u32,
    group: u32,
}

/// The answers kept.
#[derive(Debug)]
pub struct Principals {
    known: [Known; KEPT],
    next: usize,
}

impl Default for Principals {
    fn default() -> Self {
        Self { known: [Known::default(); KEPT], next: 0 }
    }
}

impl Principals {
    /// The user and group that a request names, if the client's domain may act for them, with its
    /// further groups. EPERM: it may not.
    pub fn check(&mut self, domain: DomainId, who: &Credentials) -> Result<Credentials, Errno> {
        let record: Option<DomainRecord> = published::record(Table::Domains, domain.index());
        let record = record.filter(|record| record.id == domain.0).ok_or(Errno::ESRCH)?;
        let asked = Known { domain, holdings: record.holdings, user: who.uid, group: who.gid };
        if !self.known.contains(&asked) {
            for (kind, number) in [(NAME_USER, who.uid), (NAME_GROUP, who.gid)] {
                call::domain_holds(domain, kind, number).map_err(|_| Errno::EPERM)?;
            }
            self.known[self.next] = asked;
            self.next = (self.next + 1) % KEPT;
        }
        let more = Some(Membership { of: domain.0, asks: is_in });
        Ok(Credentials { more, ..Credentials::of(who.uid, who.gid) })
    }
}

fn is_in(domain: u64, group: u32) -> bool {
    call::domain_holds(DomainId(domain), NAME_GROUP, group).is_ok()
}
