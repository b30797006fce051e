//! Seals of what is open (`unix::seals`): when they are asked for, and what goes with ids.
//!
//! A seal is one domain's, while that acts for one user and one group. So whoever gets a descriptor
//! gets a seal of its own with it: the server turns one into the other, asked by who has it.
//!
//! ```text
//!   fork, exec       Files::attach asks for the new domain; the heap, or the start block, has it
//!   set-id program   its domain is not there yet: for whoever acts for its ids, then for its own
//!   change of ids    Files::seal_for asks for the next ids; Files::adopt when they are there
//! ```
//! A process that has given an id up wipes what it was told as that one ([`Files::forget`]), and
//! the next program does not begin in its memory.

use abi::id::{DomainId, RegionId};
use alloc::rc::Rc;
use core::cell::Cell;
use linux_raw_sys::general as raw;
use unix::protocol::CLIENT;
use unix::seals::SETTLED;
use unix::tree::Id;

use super::description::Description;
use super::memory_files::{Client, Transport, own_domain};
use super::node::Node;
use super::open_file::OpenFile;
use super::region::Region;
use super::{Files, lookups::Lookups};
use crate::errno::Errno;
use crate::identity;
use crate::layout::{SHOWN, SHOWN_END};
use crate::library::TABLE_SPAN;
use crate::memory::tables::{Batch, has_leaf_table};
use crate::thread;

/// User and group.
type Both = [u32; 2];

/// Who gets a seal: a domain (none: whichever), acting for these.
pub type Heir = (DomainId, Both);

/// What says that something is open.
#[derive(Debug, Default)]
pub struct Seal {
    now: Cell<u64>,
    /// For whom its domain acts when it is good.
    ids: Cell<Both>,
    /// For another domain that is being made, or for other ids.
    next: Cell<u64>,
    /// It came from somebody else: by its own ids the process might not open the file.
    carried: Cell<bool>,
}

impl Seal {
    /// 0: there is none.
    #[inline]
    pub fn get(&self) -> u64 {
        self.now.get()
    }

    /// The server has given it to us.
    #[inline]
    pub fn set(&self, seal: u64) {
        self.set_for(seal, identity::for_files(thread::process()));
    }

    /// The same, where it is known who we are.
    #[inline]
    pub fn set_for(&self, seal: u64, ids: Both) {
        self.now.set(seal);
        self.ids.set(ids);
    }

    /// What the one has that it was passed to.
    pub fn next(&self) -> u64 {
        self.next.get()
    }

    /// Was it opened by somebody else, or before the process was who it is?
    #[inline]
    pub fn is_carried(&self) -> bool {
        self.carried.get()
    }

    /// It was.
    pub fn set_carried(&self) {
        self.carried.set(true);
    }

    /// Is it good already where it is to be good?
    fn is_for(&self, (domain, ids): Heir) -> bool {
        let stays = self.ids.get() == ids && self.get() & SETTLED == 0;
        stays && domain == own_domain()
    }

    /// Has the server make one for another asker; none, if the own one says nothing.
    pub fn pass(&self, client: &Client, file: Id, (domain, ids): Heir) {
        let passed = match self.get() {
            0 => 0,
            seal => client.acting_for(self.ids.get()).pass((file, seal), domain, ids).unwrap_or(0),
        };
        self.next.set(passed);
    }

    /// One that a further group has given is void when anything changes of what the domain holds,
    /// though the group is there still: has the server make another one, if it would open the file.
    fn renew(&self, client: &Client, file: Id, access: u32) {
        let ids = self.ids.get();
        let opened = access & raw::O_ACCMODE;
        let seal = client.acting_for(ids).open_node(file, opened, RegionId::NONE).unwrap_or(0);
        if seal != 0 {
            self.set_for(seal, ids);
        }
    }

    /// The one that it was passed to is us: these.
    pub fn adopt(&self, ids: Both) {
        if self.ids.replace(ids) != ids {
            self.carried.set(true);
        }
        self.now.set(self.next.take());
    }
}

impl Drop for Seal {
    #[inline]
    fn drop(&mut self) {
        // What is freed is read by others of the user.
        if self.now.take() | self.next.take() != 0 {
            core::hint::black_box(&*self);
        }
    }
}

impl Description {
    /// What the file server knows it by, and its seal: a file's, or that of the inbox that the
    /// socket's datagrams go to.
    fn sealed(&self) -> Option<(Id, &Seal)> {
        match &self.file {
            OpenFile::Node(Node::Memory(id)) if self.access & raw::O_PATH == 0 => {
                Some((*id, &self.seal))
            }
            OpenFile::UnixSocket(socket) => socket.sealed(),
            _ => None,
        }
    }

    /// Has the server make a seal for another asker. If the own one is void that is mended once.
    fn pass_seal(&self, client: &Client, (file, seal): (Id, &Seal), heir: Heir) {
        seal.pass(client, file, heir);
        let is_void = seal.next.get() == 0 && seal.get() & SETTLED != 0;
        if is_void && matches!(self.file, OpenFile::Node(_)) {
            seal.renew(client, file, self.access);
            seal.pass(client, file, heir);
        }
    }
}

impl Files {
    /// The way to the server to do something with an open file. In its parent's space a vfork child
    /// has that one's seals, whoever it has become.
    pub fn client_of(&self, description: &Description, bytes: u64) -> Result<Client, Errno> {
        let client = self.client_to_move(bytes)?;
        let lent = thread::process().borrows_space && description.seal.get() != 0;
        Ok(if lent { client.acting_for(description.seal.ids.get()) } else { client })
    }

    /// Before the process acts for others than now: has the server watch its files, and make seals
    /// for the next ones of what is open. With [`Files::adopt`] they are good.
    pub fn seal_for(&self, ids: Both) {
        let client = self.client().ok();
        let process = thread::process();
        for description in self.descriptions() {
            // Refused for want of room: the page still says it, which counts where modes permit it.
            let _ = self.entrust(&description);
            let Some((file, seal)) = description.sealed() else { continue };
            // A vfork child's descriptions are its parent's, who stays who it is.
            if process.borrows_space {
                continue;
            }
            let Some(client) = &client else {
                // Nor is a seal of a former heir's taken for one of these.
                seal.next.set(0);
                continue;
            };
            if seal.get() == 0 && matches!(description.file, OpenFile::Node(_)) {
                // Refused if the mode has changed: it then decides at each request.
                let opened = description.access & raw::O_ACCMODE;
                seal.set(client.open_node(file, opened, RegionId::NONE).unwrap_or(0));
            }
            let heir = (own_domain(), ids);
            match seal.is_for(heir) {
                true => seal.next.set(seal.get()),
                false => description.pass_seal(client, (file, seal), heir),
            }
        }
    }

    /// The process is the one that the seals were made for.
    pub fn adopt(&self, ids: Both) {
        for description in self.descriptions() {
            if let Some((_, seal)) = description.sealed() {
                seal.adopt(ids);
            }
        }
    }

    /// Has an heir of this description have a seal of its own.
    pub(super) fn pass(&self, description: &Rc<Description>, heir: Heir) {
        let Some((file, seal)) = description.sealed() else { return };
        match self.client() {
            Ok(client) => description.pass_seal(&client, (file, seal), heir),
            Err(_) => seal.next.set(0),
        }
    }

    /// The seals that came with a block are for whoever acts for our ids: has them be ours alone.
    pub(super) fn make_own(&self) {
        let ids = identity::for_files(thread::process());
        for description in self.descriptions() {
            self.pass(&description, (own_domain(), ids));
            if let Some((_, seal)) = description.sealed() {
                seal.adopt(ids);
                seal.set_carried();
            }
        }
    }

    /// Might the library's memory tell the next program what the process may not do any more, if it
    /// began there?
    pub fn is_stale(&self) -> bool {
        let mut ending = self.table.iter().flatten().filter(|slot| slot.ends_with_program());
        let carried = |one: &Description| one.sealed().is_some_and(|(_, seal)| seal.is_carried());
        self.stale.get() || ending.any(|slot| carried(&slot.description))
    }

    /// It begins in fresh memory.
    pub fn set_fresh(&self) {
        self.stale.set(false);
    }

    /// A descriptor is closed that the process could perhaps not open itself.
    #[inline]
    pub(super) fn note_end(&self, description: &Description) {
        let carried = match &description.file {
            OpenFile::UnixSocket(_) => description.sealed().is_some_and(|one| one.1.is_carried()),
            _ => description.seal.is_carried(),
        };
        if carried {
            self.stale.set(true);
        }
    }

    /// The process has given an id up: nothing is left of what it was told as that one, of pages
    /// that it was shown, of bytes on their way. A child that borrows its parent's space goes on in
    /// one of its own.
    pub fn forget(&mut self) {
        self.stale.set(true);
        if thread::process().borrows_space {
            return;
        }
        self.lookups = Rc::new(Lookups::default());
        self.shown.forget();
        if has_leaf_table(SHOWN) {
            let mut batch = Batch::own();
            // An entry that stays is the server's to revoke.
            let _ = batch.unmap(2, SHOWN).and_then(|()| batch.send());
        }
        let before = self.transport.replace(Transport::default());
        if let Some(id) = before.region_of(own_domain()) {
            Region { id, role: CLIENT }.detach();
        }
        crate::heap::wipe();
        crate::library::wipe_stack();
    }
}

const _: () = assert!(SHOWN.is_multiple_of(TABLE_SPAN) && SHOWN_END - SHOWN <= TABLE_SPAN);
