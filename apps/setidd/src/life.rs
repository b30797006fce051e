//! A domain in which a set-id program begins: library, capabilities, a prepared environment.
//!
//! What guards it is a name below that of all users that is no user's, and no other set-id
//! program's: `[NAME_USER, all ones, all ones, life of this server, number]`. User 0 and the
//! servers dominate it; the asker's user, and the file's owner, do not. The program holds that
//! name, and guards by it what it makes.

use abi::capability::{DERIVE, READ, USER_RIGHTS, WRITE};
use abi::domain::Property;
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId, Frame};
use abi::layout::PAGE_SIZE;
use abi::memory::NO_EXECUTE;
use exos::capabilities::{
    ALL_GROUPS_SLOT, GROUP_SLOTS, LOG_SLOT, NETWORK_GROUP, NETWORK_SLOT, POWER_SLOT, PRIVATE_SLOT,
    REAL_SLOT, SAVED_SLOT, USER_SLOTS,
};
use exos::layout::TEXT;
use exos::page::ProcessPage;
use exos::{library, page, said, start};
use image::archive::Archive;
use image::elf::Plan;
use unix::Errno;
use unix::set_id::Ids;
use xok::call::{self, OWN, Refused};
use xok::memory::Space;
use xok::{accounts, published};

use crate::files;

/// Init's gift: the boot image.
const IMAGE: u8 = 1;
/// Init's gift: all users.
pub const USERS: u8 = 2;
/// Init's gift: the log.
pub const LOG: u8 = LOG_SLOT;
/// Init's gift: all groups.
const GROUPS: u8 = ALL_GROUPS_SLOT;
/// Init's gift: below it lies what guards the domains that are built.
pub const PRIVATE: u8 = PRIVATE_SLOT;
/// Where the name of the domain that is being built lies.
const GUARD: u8 = 14;

/// What the server leaves with that has built as many as it has numbers for.
const SPENT: u64 = 2 << 8;

/// What is the same for all that are built.
#[derive(Debug)]
pub struct Builder {
    /// ExOS's entry point.
    entry: u64,
    /// How many of these servers there were before.
    life: u16,
    /// Domains built so far.
    built: u32,
}

/// A domain that is ready for its guest.
#[derive(Clone, Copy, Debug)]
pub struct Built {
    /// The domain.
    pub domain: DomainId,
    /// The environment that the guest takes the place of.
    pub prepared: EnvId,
}

impl Builder {
    /// Maps the boot image and, of it, the library, where every process has them.
    pub fn open(life: u64) -> Result<Self, Errno> {
        let bytes = xok::boot_image::map(IMAGE).map_err(files::refused)?;
        let archive = Archive::open_checked(bytes).map_err(|_| Errno::ENOEXEC)?;
        let file = archive.lookup("/xok/exos").ok_or(Errno::ENOENT)?;
        let plan = Plan::parse_in(archive.data(&file), 0x1000..u64::MAX);
        let plan = plan.map_err(|_| Errno::ENOEXEC)?;
        let mut space = Space::of(DomainId::NONE, IMAGE);
        for segment in plan.segments().iter().filter(|segment| !segment.write) {
            let pages = segment.pages();
            let (first, _) = xok::boot_image::place();
            let offset = file.data_offset + segment.file_offset;
            let first = Frame(first.0 + (offset / PAGE_SIZE) as u32);
            let choice = if segment.execute { 0 } else { NO_EXECUTE };
            let count = (pages.end - pages.start) / PAGE_SIZE;
            space.map(pages.start, first, count, choice).map_err(files::refused)?;
        }
        let life = u16::try_from(life).map_err(|_| Errno::EAGAIN)?;
        Ok(Self { entry: plan.entry, life, built: 0 })
    }

    /// Builds a domain for `asker`, which becomes `ids` there, with what `block` makes for it to
    /// begin with. Until it is there, and afterwards as long as it has that id, the user `payer`
    /// pays.
    pub fn build<'a>(
        &mut self,
        asker: EnvId,
        from: DomainId,
        (ids, payer): (&Ids, u32),
        block: impl FnOnce(DomainId) -> Result<&'a [u8], Errno>,
    ) -> Result<Built, Errno> {
        let page = said::of_index(asker.index()).ok_or(Errno::ESRCH)?;
        // A number that is used again would be another program's guard: the next one of these
        // servers, which init starts, has numbers of its own.
        let Some(built) = self.built.checked_add(1) else { call::exit(SPENT) };
        self.built = built;
        let name = [self.life, (self.built >> 16) as u16, self.built as u16];
        call::capability_derive(PRIVATE, DomainId::NONE, GUARD.into(), &name, USER_RIGHTS)
            .map_err(files::refused)?;
        let bytes = start::text_bytes();
        let domain = call::domain_alloc(GUARD, AccountId::NONE, TEXT, bytes);
        let domain = domain.map_err(files::refused)?;
        let prepared = block(domain).and_then(|block| {
            let page = page_of(page.own_word(), ids);
            let prepared = self.prepare(domain, (asker, from), (ids, payer), &page, block);
            prepared.map_err(files::refused)
        });
        match prepared {
            Ok(prepared) => Ok(Built { domain, prepared }),
            Err(errno) => {
                // Nothing has been in it: by the builder's right it goes as it came.
                let _ = call::domain_destroy(OWN, domain);
                Err(errno)
            }
        }
    }

    fn prepare(
        &self,
        domain: DomainId,
        (asker, from): (EnvId, DomainId),
        (ids, payer): (&Ids, u32),
        page: &ProcessPage,
        block: &[u8],
    ) -> Result<EnvId, Refused> {
        give(domain, from, ids)?;
        // The starter pays, and must not read what the program leaves in its frames.
        call::domain_set(OWN, domain, Property::Secret, 1)?;
        // Before anything is charged to it: the asker, which adds to it until it is there itself.
        if !accounts::join(domain, payer) {
            return Err((Error::OverQuota, 0));
        }
        library::build_fresh(domain, page::bytes_of(page), block)?;
        let prepared = call::env_alloc(GUARD, domain, AccountId::NONE)?;
        let (setup, fields) = library::fresh_setup(self.entry, block.len());
        let admitted = call::env_set(GUARD, prepared, fields, &setup).and_then(|_| {
            let value = u64::from(asker.0) | u64::from(prepared.0) << 32;
            call::domain_set(OWN, domain, Property::Admits, value)
        });
        if let Err(refused) = admitted {
            let _ = call::env_destroy(GUARD, prepared, 0);
            let _ = call::env_forget(prepared);
            return Err(refused);
        }
        Ok(prepared)
    }
}

/// What a process of these ids holds (`exos::capabilities`), and who signals it.
fn give(domain: DomainId, from: DomainId, ids: &Ids) -> Result<(), Refused> {
    let derive = |slot: u8, to: u8, extend: &[u16], rights: u8| {
        call::capability_derive(slot, domain, to.into(), extend, rights)
    };
    for (all, slots, numbers) in [(USERS, USER_SLOTS, ids.users), (GROUPS, GROUP_SLOTS, ids.groups)]
    {
        for (slot, number) in slots.into_iter().zip(numbers) {
            let parts = [(number >> 16) as u16, number as u16];
            // User 0 dominates all users; group 0 is a group like others.
            let parts = if all == USERS && number == 0 { &[][..] } else { &parts[..] };
            derive(all, slot, parts, USER_RIGHTS)?;
        }
    }
    derive(IMAGE, 1, &[], READ | DERIVE)?;
    derive(GUARD, PRIVATE_SLOT, &[], USER_RIGHTS)?;
    let root = ids.users.contains(&0);
    let member = || ids.groups.contains(&NETWORK_GROUP) || files::is_in(from.0, NETWORK_GROUP);
    if root || member() {
        derive(NETWORK_SLOT, NETWORK_SLOT, &[], WRITE | DERIVE)?;
    }
    if root {
        derive(LOG_SLOT, LOG_SLOT, &[], WRITE | DERIVE)?;
        derive(POWER_SLOT, POWER_SLOT, &[], WRITE | DERIVE)?;
        derive(GROUPS, ALL_GROUPS_SLOT, &[], USER_RIGHTS)?;
    }
    let signals = u64::from(REAL_SLOT) | u64::from(SAVED_SLOT) << 8;
    call::domain_set(OWN, domain, Property::Signals, signals)?;
    Ok(())
}

/// The page of the next life: of the asker's what the process goes on being in the process table.
fn page_of(asker: &ProcessPage, ids: &Ids) -> ProcessPage {
    ProcessPage {
        parent: asker.parent,
        group: asker.group,
        session: asker.session,
        terminal: asker.terminal,
        terminal_settings: asker.terminal_settings,
        nice: asker.nice,
        stop_count: asker.stop_count,
        continue_count: asker.continue_count,
        // Its children have followed orders of up to this number. So few that it does not wrap.
        orders: asker.orders.min(u32::MAX / 2),
        // Who descends from another set-id program is where the starter of that one has said; but
        // user 0's programs alone are believed that they do.
        told_by: match (ids.users[0], asker.told_by) {
            (0, before @ 1..) => before,
            (starter, _) => starter.saturating_add(1),
        },
        user: ids.users[0],
        effective_user: ids.users[1],
        group_id: ids.groups[0],
        effective_group_id: ids.groups[1],
        saved_user: ids.users[2],
        file_user: ids.users[1],
        saved_group_id: ids.groups[2],
        file_group_id: ids.groups[1],
        groups_len: asker.groups_len,
        groups: asker.groups,
        executed: 1,
        // Until it says otherwise itself.
        undumpable: 1,
        ..page::empty()
    }
}

/// Is there such a process still?
pub fn lives(env: EnvId) -> bool {
    published::env_lives(env)
}
