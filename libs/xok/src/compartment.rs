//! A second protection domain of this program: code in it sees only what it is shown.
//!
//! ```text
//!   home        compartment      run(body): DomainSwitch there ── body ── DomainSwitch home
//!   code   ───  code
//!   stack  ───  stack            one environment: its slices, events, save area and registers
//!   keys        (nothing)        go along
//! ```
//! It holds mistakes in: what a wild store of a parser does not find it does not destroy. Whoever
//! takes it over may still come home at an address of its choice, or end the program: code that is
//! hostile gets an environment of its own, and is called by control transfer.

use crate::call::{self, OWN, Refused};
use crate::memory::{Space, item};
use crate::{own, published};
use abi::capability::CONTROL;
use abi::error::Error;
use abi::id::{AccountId, DomainId};
use abi::layout::{LIBRARY, OWN_TABLES_SLOT, PAGE_SIZE, PROGRAM_SLOTS};
use abi::memory::{ADDRESS, ANY_FRAME, NO_EXECUTE, Operation, PRESENT, WRITABLE, from_source};
use abi::published::{DomainRecord, Table};
use core::ops::Range;

/// Where the compartment's list has the name to come home by.
const HOME: u8 = 1;

/// A domain that this program goes to and comes back from.
pub struct Compartment {
    domain: DomainId,
    home: DomainId,
    space: Space,
}

impl Compartment {
    /// One that sees, with the rights that they have here, all pages that there are now, but for
    /// those in `hidden`. Pages mapped later are seen only in the domain that they are mapped in.
    pub fn but_for(hidden: &[Range<u64>]) -> Result<Self, Refused> {
        let home = home().ok_or((Error::NoSuchDomain, 0))?;
        let domain = call::domain_alloc(OWN, AccountId::NONE, 0, u64::MAX)?;
        // From here on it goes with this value.
        let mut made = Self { domain, home, space: Space::of(domain, OWN) };
        call::capability_derive(OWN, domain, HOME.into(), &[], CONTROL)?;
        let slots = (0..PROGRAM_SLOTS as u64).map(|slot| slot << 39);
        for first in slots.chain([LIBRARY]) {
            show(&mut made.space, first, 4, true, hidden)?;
        }
        made.space.flush()?;
        Ok(made)
    }

    /// Its space, to show it more or something else.
    pub fn space(&mut self) -> &mut Space {
        &mut self.space
    }

    /// Its id.
    pub fn domain(&self) -> DomainId {
        self.domain
    }

    /// Runs `body` there, and comes home.
    pub fn run<R>(&self, body: impl FnOnce() -> R) -> Result<R, Refused> {
        call::domain_switch(OWN, self.domain)?;
        let result = body();
        call::domain_switch(HOME, self.home)?;
        Ok(result)
    }
}

impl Drop for Compartment {
    fn drop(&mut self) {
        // Nobody is in it: who has it is at home.
        let _ = call::domain_destroy(OWN, self.domain);
    }
}

/// Shows what the entry of `level` for `address` leads to; `writable`: so are those above.
fn show(
    space: &mut Space,
    address: u64,
    level: u8,
    writable: bool,
    hidden: &[Range<u64>],
) -> Result<(), Refused> {
    let Ok(entry) = own::entry(address, level) else { return Ok(()) };
    if entry & PRESENT == 0 || hidden.iter().any(|range| level == 1 && range.contains(&address)) {
        return Ok(());
    }
    let writable = writable && entry & WRITABLE != 0;
    if level == 1 {
        space.tables_to(address, 1)?;
        let choice = entry & NO_EXECUTE | if writable { WRITABLE } else { 0 };
        let source = from_source(address, choice);
        return space.push(item(Operation::Map, 1, address, ANY_FRAME, source));
    }
    let below = PAGE_SIZE << (9 * (level - 2));
    (0..512).try_for_each(|at| show(space, address + at * below, level - 1, writable, hidden))
}

/// The domain that this program is in: the one with the root table that it reads.
fn home() -> Option<DomainId> {
    let tables = (OWN_TABLES_SLOT as u64) << 39 | 0xffff << 48;
    let root = own::entry(tables, 4).ok()? & ADDRESS;
    let count = published::table(Table::Domains).count as usize;
    let mut all = (0..count).filter_map(|at| published::record::<DomainRecord>(Table::Domains, at));
    let found = all.find(|record| record.id != 0 && u64::from(record.root) * PAGE_SIZE == root)?;
    Some(DomainId(found.id))
}
