//! Whom a client may act for: the kernel says, the client only chooses.
//!
//! A request names a user and a group. The kernel is asked whether the client's domain holds them
//! (`DomainHolds`), and the answer is kept as long as the domain's published count of changes to
//! what it holds stands still. Further groups are asked for when a file's group makes a difference:
//! those of the domain's set. Of user, real and saved groups in its list it acts by those it names.
//! With an answer is kept for whom seals are good that are asked for so (`unix::seals`).

use abi::capability::{NAME_GROUP, NAME_USER};
use abi::domain::SET_OF_GROUPS;
use abi::id::DomainId;
use unix::Errno;
use unix::attributes::{Credentials, Membership};
use unix::seals::{Asker, Seals, ids};
use xok::{call, published};

/// Places for domains; those with the same remainder share one.
const DOMAINS: usize = 128;
/// Answers kept in each.
const ANSWERS: usize = 2;

/// An answer: this domain, while its count stands so, acts for these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    domain: DomainId,
    holdings: u64,
    user: u32,
    group: u32,
    asker: Asker,
}

impl Known {
    /// Does it say so of the same?
    #[inline]
    fn answers(&self, other: &Self) -> bool {
        (self.domain, self.holdings, self.user, self.group)
            == (other.domain, other.holdings, other.user, other.group)
    }
}

/// The answers kept, the last ones first.
#[derive(Debug)]
pub struct Principals {
    known: [[Known; ANSWERS]; DOMAINS],
}

impl Default for Principals {
    fn default() -> Self {
        Self { known: [[Known::default(); ANSWERS]; DOMAINS] }
    }
}

impl Principals {
    /// The user and group that a request names, if the client's domain may act for them, with its
    /// further groups, and whose seals it brings. EPERM: it may not.
    #[inline]
    pub fn check(
        &mut self,
        seals: &Seals,
        domain: DomainId,
        who: &Credentials,
    ) -> Result<(Credentials, Asker), Errno> {
        let holdings = published::domain_holdings(domain).ok_or(Errno::ESRCH)?;
        let (user, group) = (who.uid, who.gid);
        let asked = Known { domain, holdings, user, group, ..Known::default() };
        let known = &mut self.known[domain.index() % DOMAINS];
        let asker = match known.iter().find(|one| one.answers(&asked)) {
            Some(known) => known.asker,
            None => {
                ask(domain, who)?;
                let asker = seals.asker(domain.0, ids(user, group), holdings);
                known.rotate_right(1);
                known[0] = Known { asker, ..asked };
                asker
            }
        };
        let more = Some(Membership { of: domain.0, asks: is_in });
        Ok((Credentials { more, ..Credentials::of(user, group) }, asker))
    }
}

#[cold]
fn ask(domain: DomainId, who: &Credentials) -> Result<(), Errno> {
    for (kind, number) in [(NAME_USER, who.uid), (NAME_GROUP, who.gid)] {
        call::domain_holds(domain, kind, number).map_err(|_| Errno::EPERM)?;
    }
    Ok(())
}

fn is_in(domain: u64, group: u32) -> bool {
    call::domain_holds(DomainId(domain), SET_OF_GROUPS, group).is_ok()
}
