//! Where programs may go on: nothing leads behind the last page, and who is there is told so.

use crate::index::EnvIndex;

use super::*;
use crate::exit;
use abi::layout::{LIBRARY, LIBRARY_END, PROGRAM_END, is_user, table_index};
use abi::memory::PRESENT;
use abi::upcall::Cause;

/// The first page of the last 2 MiB of the lower half, and its last one, which no program may name.
const TOP: u64 = PROGRAM_END - (2 << 20);
const LAST: u64 = PROGRAM_END - PAGE_SIZE;
/// 2 MiB somewhere else.
const SOURCE: u64 = 0x6000_0000;
/// The last page of the library's slot: a program may name it.
const LIBRARY_TOP: u64 = LIBRARY_END - (2 << 20);

impl World {
    fn own(&self) -> usize {
        env::domain(&self.state, EnvIndex::new(1)).index()
    }

    /// One item of the first environment's for its own space.
    fn item(
        &mut self,
        operation: Operation,
        level: u8,
        frame: u32,
        address: u64,
        value: u64,
    ) -> Result<u64, Error> {
        let item = Item { operation: operation as u8, level, more: 0, frame, address, value };
        let own = self.own();
        self.update((own, own), ROOT, &item).map_err(|no| no.error)
    }

    fn tables_to(&mut self, address: u64, lowest: u8) {
        for level in (lowest..=4).rev() {
            let done = self.item(Operation::Table, level, ANY_FRAME, address, ANY_FRAME.into());
            assert!(matches!(done, Ok(_) | Err(Error::NotEmpty)), "{level}: {done:?}");
        }
    }

    fn share(&mut self, to: u64, from: u64) -> Result<u64, Error> {
        self.tables_to(to, 3);
        self.item(Operation::Share, 2, 0, to, from)
    }

    /// The entry of level 1 as a processor finds it, if it finds one.
    fn found(&self, address: u64) -> Option<u64> {
        let mut table = domain::root(&self.state, DomainIndex::new(self.own()));
        for level in (2..=4).rev() {
            let entry = self.machine.entry(table, table_index(address, level));
            if entry & PRESENT == 0 {
                return None;
            }
            table = table::target(entry);
        }
        let entry = self.machine.entry(table, table_index(address, 1));
        (entry & PRESENT != 0).then_some(entry)
    }

    /// Enters a page behind the last one by force, where no item may: in the table that is there.
    fn force(&mut self, entry: u64) {
        let mut table = domain::root(&self.state, DomainIndex::new(self.own()));
        for level in (2..=4).rev() {
            table = table::target(self.machine.entry(table, table_index(LAST, level)));
        }
        self.machine.entry_swap(table, table_index(LAST, 1), entry);
    }
}

#[test]
fn page_behind_the_last_is_not_mapped() {
    let mut world = World::new();
    let frame = world.map(world.own(), SOURCE);
    world.tables_to(TOP, 2);
    for operation in [Operation::Map, Operation::Allocate, Operation::Protect] {
        assert_eq!(world.item(operation, 1, frame.0, LAST, 0), Err(Error::BadAddress));
    }
    assert_eq!(world.item(Operation::Map, 1, frame.0, LAST - PAGE_SIZE, 0), Ok(0));
    assert!(world.found(LAST).is_none() && world.found(LAST - PAGE_SIZE).is_some());
}

#[test]
fn page_behind_the_last_is_not_shared() {
    for copies in [0, 8] {
        let mut world = World::new();
        world.map(world.own(), SOURCE + 511 * PAGE_SIZE);
        world.tables_to(TOP, 3);
        let before = world.state.frames.free_count();
        assert_eq!(world.share(TOP, SOURCE + copies), Err(Error::BadAddress));
        assert_eq!(world.found(LAST), None);
        assert_eq!(world.state.frames.free_count(), before, "something was taken");
        // It is the place that is wrong: elsewhere it may be, at the library's end, too.
        assert!(world.share(SOURCE + (2 << 20), SOURCE + copies).is_ok());
        assert!(world.share(LIBRARY_TOP, SOURCE + copies).is_ok());
        assert!(world.found(LIBRARY_END - PAGE_SIZE).is_some());
    }
}

#[test]
fn pages_before_the_last_are_shared() {
    for copies in [0, 8] {
        let mut world = World::new();
        world.map(world.own(), SOURCE + 510 * PAGE_SIZE);
        assert!(world.share(TOP, SOURCE + copies).is_ok());
        assert!(world.found(LAST - PAGE_SIZE).is_some() && world.found(LAST).is_none());
    }
}

/// Whatever works on a whole table refuses one that reaches out, however it came there.
#[test]
fn table_that_reaches_out_stays_as_it_is() {
    let mut world = World::new();
    world.map(world.own(), SOURCE);
    assert!(world.share(TOP, SOURCE).is_ok());
    let entry = world.found(SOURCE).unwrap();
    world.force(entry);
    let split = world.item(Operation::Split, 2, ANY_FRAME, TOP, ANY_FRAME.into());
    assert_eq!(split, Err(Error::BadAddress));
    // The last reference.
    assert!(world.item(Operation::Unmap, 2, 0, SOURCE, 0).is_ok());
    assert_eq!(world.item(Operation::Thaw, 2, 0, TOP, 0), Err(Error::BadAddress));
    world.force(0);
    world.settle();
    assert!(world.item(Operation::Thaw, 2, 0, TOP, 0).is_ok());
}

#[test]
fn large_page_does_not_reach_out() {
    let mut world = World::new();
    world.tables_to(TOP, 2);
    // 512 frames in a row, in a table that would be whole with the last entry.
    let mut first = 0;
    for page in 0..511 {
        let (address, value) = (TOP + page * PAGE_SIZE, WRITABLE | NO_EXECUTE);
        let frame = if page == 0 { 1024 } else { first + page as u32 };
        assert!(world.item(Operation::Allocate, 1, frame, address, value).is_ok(), "{page}");
        first = 1024;
    }
    world.tables_to(SOURCE, 2);
    let (frame, value) = (first + 511, WRITABLE | NO_EXECUTE);
    assert!(world.item(Operation::Allocate, 1, frame, SOURCE, value).is_ok());
    assert_eq!(world.item(Operation::Fold, 2, 0, TOP, 0), Err(Error::BadAddress));
    let entry = world.found(SOURCE).unwrap();
    world.force(entry);
    assert_eq!(world.item(Operation::Fold, 2, 0, TOP, 0), Err(Error::BadAddress));
    world.force(0);
}

/// Calls are served where the program may go on behind them, and nowhere else.
#[test]
fn windows_end_where_programs_do() {
    let served = |(first, bytes): (u64, u64), rip: u64| {
        let (begin, end) = exit::window(first, bytes);
        (begin..end).contains(&rip)
    };
    let edges = [0, LAST, PROGRAM_END, LIBRARY, LIBRARY_END, 1 << 63, u64::MAX];
    let near = |at: u64| (0..5).map(move |n| at.wrapping_add(n).wrapping_sub(2));
    let rips: Vec<u64> = edges.into_iter().flat_map(near).collect();
    for first in edges.into_iter().flat_map(near).collect::<Vec<_>>() {
        for bytes in [0, 1, 2, PAGE_SIZE, PROGRAM_END, 1 << 63, u64::MAX - 1, u64::MAX] {
            for &rip in &rips {
                let inside = rip >= first && rip - first < bytes;
                if served((first, bytes), rip) {
                    assert!(inside, "{first:#x} {bytes:#x} {rip:#x}");
                    assert!(exit::may_run_at(rip), "{rip:#x}");
                    // A call that begins anew.
                    assert!(exit::may_run_at(rip.wrapping_sub(2)), "{rip:#x}");
                }
            }
        }
    }
    assert!(served((0, u64::MAX), RIP) && served((0, u64::MAX), LAST - 1));
    assert!(!served((0, u64::MAX), LAST) && !served((0, u64::MAX), PROGRAM_END));
    assert!(served((LIBRARY, 1 << 20), LIBRARY + 2) && !served((0, u64::MAX), LIBRARY + 2));
    assert!(served((LIBRARY, u64::MAX), LIBRARY_END - 1) && !served((LIBRARY, u64::MAX), !0));
}

/// Rips that no program may go on at: canonical ones, and others.
const WILD: [(u64, Cause, u64); 6] = [
    (LAST, Cause::PageFault, LAST),
    (PROGRAM_END, Cause::Protection, 0),
    (1 << 63, Cause::Protection, 0),
    (1 << 62, Cause::Protection, 0),
    (LIBRARY_END, Cause::PageFault, LIBRARY_END),
    (u64::MAX, Cause::PageFault, u64::MAX),
];

#[test]
fn interrupted_out_there_is_a_fault() {
    for (rip, cause, address) in WILD {
        let mut world = World::new();
        world.machine.context(1).rip = rip;
        let (state, machine) = (&mut world.state, &mut world.machine);
        assert!(exit::settle(state, machine, EnvIndex::new(1)));
        let context = *machine.context(1);
        assert_eq!((context.rip, context.rsi, context.rdx), (FAULT, cause as u64, address));
        let save = state.envs.slots[EnvIndex::new(1)].save.address();
        assert_eq!(machine.word(save + offset::SLOTS as u64), rip, "the program sees where it was");
        // Once.
        assert!(exit::settle(state, machine, EnvIndex::new(1)));
        assert_eq!(machine.context(1).rip, FAULT);
    }
    for rip in [0, RIP, LAST - 1, LIBRARY, LIBRARY_END - 1] {
        let mut world = World::new();
        world.machine.context(1).rip = rip;
        assert!(exit::settle(&mut world.state, &mut world.machine, EnvIndex::new(1)));
        assert_eq!(world.machine.context(1).rip, rip);
    }
}

#[test]
fn without_a_handler_it_stops_out_there() {
    for (rip, cause, _) in WILD {
        let mut world = World::new();
        world.state.envs.slots[EnvIndex::new(1)].entries.fault = 0;
        world.machine.context(1).rip = rip;
        assert!(!exit::settle(&mut world.state, &mut world.machine, EnvIndex::new(1)));
        assert_eq!(world.state.published.envs[1].state, EnvState::Stopped as u32);
        assert_eq!(world.state.published.envs[1].cause, cause as u32);
    }
}

#[test]
fn entries_out_there_are_refused() {
    let bits = [
        field::FAULT_ENTRY,
        field::EVENT_ENTRY,
        field::FOREIGN_ENTRY,
        field::SYNC_ENTRY,
        field::ASYNC_ENTRY,
        field::RIP,
    ];
    for (rip, ..) in WILD {
        for bit in bits {
            let mut world = World::new();
            let domain = world.domain();
            let one = world.spawn_new(1, domain);
            let mut setup = EnvSetup::default();
            match bit {
                field::FAULT_ENTRY => setup.fault_entry = rip,
                field::EVENT_ENTRY => setup.event_entry = rip,
                field::FOREIGN_ENTRY => setup.foreign_entry = rip,
                field::SYNC_ENTRY => setup.sync_entry = rip,
                field::ASYNC_ENTRY => setup.async_entry = rip,
                _ => setup.rip = rip,
            }
            let id = world.id(one);
            assert_eq!(world.set_by(1, id, bit, &setup), error(Error::BadAddress, 0), "{rip:#x}");
        }
    }
}

#[test]
fn bases_are_what_processors_take() {
    for (base, taken) in [
        (0, true),
        (PROGRAM_END - 1, true),
        (PROGRAM_END, false),
        (0x7fff_ffff_ffff_ffff, false),
        (1 << 63, false),
        (0xffff_7fff_ffff_ffff, false),
        (0xffff_8000_0000_0000, true),
        (u64::MAX, true),
    ] {
        assert_eq!(exit::is_canonical(base), taken, "{base:#x}");
        assert!(taken || !is_user(base));
        for bit in [field::FS_BASE, field::GS_BASE] {
            let mut world = World::new();
            let domain = world.domain();
            let one = world.spawn_new(1, domain);
            let setup = EnvSetup { fs_base: base, gs_base: base, ..EnvSetup::default() };
            let id = world.id(one);
            let done = world.set_by(1, id, bit, &setup);
            assert_eq!(done == OK, taken, "{base:#x}: {done:?}");
        }
    }
}
