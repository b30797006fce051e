//! Frames that a program lent to the kernel and their owner takes back.

use crate::index::EnvIndex;

use super::*;
use crate::upcall;
use abi::capability::{DEVICE_CONSOLE, NAME_DEVICE};

/// Where the owner and the borrower have the frame.
const OWN: u64 = 0x5000_0000;
const LENT: u64 = 0xa0_0000;

/// A frame of the first domain's that another one may write, by an entry.
struct Loan {
    world: World,
    frame: Frame,
    borrower: usize,
    domain: DomainId,
}

impl Loan {
    fn new() -> Self {
        let mut world = World::new();
        let domain = world.domain();
        let own = env::domain(&world.state, EnvIndex::new(1)).index();
        let frame = world.map(own, OWN);
        let borrower = world.spawn_masked(domain);
        world.map(domain.index(), LENT);
        let mut loan = Self { world, frame, borrower, domain };
        loan.enter(domain.index(), LENT);
        loan
    }

    /// The owner maps its frame somewhere.
    fn enter(&mut self, domain: usize, address: u64) {
        let (operation, value) = (Operation::Map as u8, WRITABLE | NO_EXECUTE);
        let frame = self.frame.0;
        let item = Item { operation, level: 1, more: 0, frame, address, value };
        let own = env::domain(&self.world.state, EnvIndex::new(1)).index();
        self.world.update((own, domain), ROOT, &item).expect("mapped");
    }

    /// A thread of the borrower's that has lent the page in one way.
    fn thread(&mut self, fields: u64) -> usize {
        let index = self.world.spawn_new(self.borrower, self.domain);
        let setup = EnvSetup { save_area: LENT, application_page: LENT, ..EnvSetup::default() };
        let id = self.world.id(index);
        assert_eq!(self.world.set_by(self.borrower, id, fields, &setup), OK);
        let release = Call::EnvRelease { env: id };
        assert_eq!(self.world.by(self.borrower, release), OK);
        index
    }

    /// The owner takes it back, and has it to itself.
    fn revoke(&mut self) {
        let frame = self.frame;
        assert_eq!(self.world.by(1, Call::FrameRevoke { frame, flags: 0 }), OK);
        let record = self.world.state.published.frames[frame.0 as usize];
        assert_eq!((record.references, record.pins), (0, 0), "bound still: {record:?}");
    }
}

#[test]
fn revoked_frame_stays_shown() {
    let mut loan = Loan::new();
    let shower = loan.thread(field::APPLICATION_PAGE);
    assert_eq!(loan.world.machine.application_pages[shower], Some(loan.frame));
    loan.revoke();
    assert_eq!(loan.world.machine.application_pages[shower], None);
    assert_eq!(loan.world.state.envs.slots[EnvIndex::new(shower)].application, Frame::default());
}

#[test]
fn revoked_frame_stays_written() {
    let mut loan = Loan::new();
    let writer = loan.thread(field::SAVE_AREA);
    let frame = loan.frame;
    // It stays the owner's, to be looked at.
    frame::reference(&mut loan.world.state, frame);
    assert_eq!(loan.world.by(1, Call::FrameRevoke { frame, flags: 0 }), OK);
    loan.world.on(0, writer);
    loan.world.machine.context(writer).rdi = 0x4141_4141;
    let (state, machine) = (&mut loan.world.state, &mut loan.world.machine);
    assert!(
        !upcall::deliver_fault(state, machine, EnvIndex::new(writer), 14, 0, 0x4242),
        "it has a handler"
    );
    assert_eq!(loan.world.state_of(writer), EnvState::Stopped);
    let slots = (0..4).map(|slot| frame.address() + 0x118 + slot * 0x100);
    let stored: Vec<u64> = slots.map(|at| loan.world.machine.word(at)).collect();
    assert!(!stored.contains(&0x4141_4141), "stored into the owner's frame: {stored:x?}");
    frame::release(&mut loan.world.state, frame);
}

/// Its processor lets go of the save area when it enters the kernel, and the call waits for that.
#[test]
fn save_area_of_one_that_runs_elsewhere() {
    let mut loan = Loan::new();
    let writer = loan.thread(field::SAVE_AREA);
    loan.world.on(1, writer);
    let frame = loan.frame;
    assert_eq!(loan.world.by(1, Call::FrameRevoke { frame, flags: 0 }), Outcome::Again);
    assert_eq!(
        loan.world.state.envs.slots[EnvIndex::new(writer)].save,
        frame,
        "while it may be written to"
    );
    assert_eq!(loan.world.pick(1), writer, "it runs on");
    assert_eq!(loan.world.state.envs.slots[EnvIndex::new(writer)].save, Frame::default());
    assert!(!loan.world.state.envs.slots[EnvIndex::new(writer)].prepared);
    loan.revoke();
}

#[test]
fn save_area_of_who_revokes_it() {
    let mut world = World::new();
    let own = world.state.envs.slots[EnvIndex::new(1)].save;
    assert_eq!(world.by(1, Call::FrameRevoke { frame: own, flags: 0 }), Outcome::Again);
    assert_eq!(world.pick(0), 1);
    assert_eq!(world.by(1, Call::FrameRevoke { frame: own, flags: 0 }), OK);
    assert_eq!(world.state.envs.slots[EnvIndex::new(1)].save, Frame::default());
}

#[test]
fn revoked_frame_stays_the_consoles_ring() {
    let mut loan = Loan::new();
    let console = Name::of(&[NAME_DEVICE, DEVICE_CONSOLE]);
    loan.world.state.domains.records[loan.domain.into()].capabilities[5] =
        Capability { rights: ALL, zero: 0, name: console };
    let ring = Call::ConsoleRing { page: LENT };
    assert_eq!(loan.world.with(loan.borrower, 5, ring), OK);
    loan.revoke();
    let (state, machine) = (&mut loan.world.state, &mut loan.world.machine);
    assert!(!crate::console::input(state, machine, b'x'), "typed into the owner's frame");
}

/// Who replies without a save area is not written to, wherever that would be.
#[test]
fn reply_without_a_save_area() {
    let mut world = World::new();
    let domain = world.domain();
    let (client, server) = (world.spawn_masked(domain), world.spawn_masked(domain));
    let accept = Call::Sleep { deadline: 0, posted: 0, events: 0, flags: 1 };
    assert_eq!(world.by(server, accept), Outcome::Left);
    let number = u64::from(abi::call::number::TransferSync);
    let to = |world: &World, index: usize| u64::from(world.id(index).0) << 32;
    world.on(0, client);
    let word = number | to(&world, server);
    assert_eq!(
        world.raw(0, client, Call::TransferSync {}, word),
        Outcome::Enter(EnvIndex::new(server))
    );
    let word = number | to(&world, client) | abi::call::TRANSFER_REPLY;
    let plan = |world: &World| {
        let known = u64::from(world.id(client).0);
        let caller = (CpuIndex::new(0), EnvIndex::new(server));
        crate::handover::check(&world.state, &world.machine, caller, word, known)
    };
    // The hold of the lock ends: short ways are open.
    crate::work::end(&mut world.state);
    assert!(plan(&world).is_some(), "by the short way");
    crate::lent::drop_save(&mut world.state, EnvIndex::new(server));
    // In the frame that has no number there is nothing that would call it away.
    for at in [offset::PENDING, offset::EVENTS] {
        world.machine.word_set(at as u64, 0);
    }
    assert_eq!(plan(&world), None, "which writes to its save area");
    assert_eq!(
        world.raw(0, server, Call::TransferSync {}, word),
        Outcome::Enter(EnvIndex::new(client))
    );
}
