//! What each item does and refuses, one rule a test.

use super::*;
use crate::fake::{self, FakeMachine};
use crate::table::look_up;
use crate::{domain, dying, revoke};
use abi::capability::{ALL, Name};
use abi::id::AccountId;
use abi::memory::{KEEPS_WRITE, SOFTWARE, TYPE, from_source};
use abi::published::FrameRecord;

mod alone;
mod memory_types;
mod revoked;
mod sources;

const PAGE: u64 = 0x40_0000;

/// Two domains of account 1, each with its own name in slot 0, and one that holds the root name.
struct World {
    state: State,
    machine: FakeMachine,
    parent: DomainIndex,
    child: DomainIndex,
}

impl World {
    fn new() -> Self {
        let (mut state, mut machine) = fake::new(256);
        let mut make = |guard| {
            let asked = domain::Request {
                which: Which::Any,
                account: AccountId::NONE,
                root: Which::Any,
                window: 0,
                bytes: u64::MAX,
            };
            domain::create(&mut state, &mut machine, 1.into(), guard, &asked).unwrap().into()
        };
        let parent = make(Name::ROOT);
        let child = make(Name::ROOT);
        Self { state, machine, parent, child }
    }

    fn capability(&self, domain: DomainIndex) -> Capability {
        self.state.domains.records[domain].capabilities[0]
    }

    /// `caller` changes `target` with its own name.
    fn item(&mut self, caller: DomainIndex, target: DomainIndex, item: Item) -> Answer {
        let capability = self.capability(caller);
        update_alone(&mut self.state, &mut self.machine, (caller, target), &capability, &item, 0).1
    }

    fn own(&mut self, domain: DomainIndex, operation: Operation, value: u64) -> Answer {
        self.item(domain, domain, leaf(operation, ANY_FRAME, PAGE, value))
    }

    fn tables(&mut self, domain: DomainIndex, address: u64, lowest: u8) {
        for level in (lowest..=4).rev() {
            let item = at_level(Operation::Table, level, address, u64::from(ANY_FRAME));
            match self.item(domain, domain, item) {
                Ok(_) => {}
                Err(refusal) => assert_eq!(refusal.error, Error::NotEmpty),
            }
        }
    }

    /// A page of the domain's at [`PAGE`], writable.
    fn page(&mut self, domain: DomainIndex) -> Frame {
        self.tables(domain, PAGE, 2);
        self.own(domain, Operation::Allocate, WRITABLE).unwrap();
        self.leaf(domain, PAGE).unwrap().frame
    }

    fn leaf(&self, domain: DomainIndex, address: u64) -> Option<Leaf> {
        look_up(&self.machine, domain::root(&self.state, domain), address)
    }

    /// The child gets the parent's table for [`PAGE`], as `fork` does.
    fn fork(&mut self) {
        self.tables(self.child, PAGE, 3);
        let item = at_level(Operation::Share, 2, PAGE, PAGE);
        let (parent, child) = (self.parent, self.child);
        let capability = Capability { rights: ALL, zero: 0, name: Name::ROOT };
        let (state, machine) = (&mut self.state, &mut self.machine);
        update_alone(state, machine, (parent, child), &capability, &item, 0).1.unwrap();
    }

    fn split(&mut self, domain: DomainIndex) -> Answer {
        self.item(domain, domain, at_level(Operation::Split, 2, PAGE, u64::from(ANY_FRAME)))
    }

    fn record(&self, frame: Frame) -> FrameRecord {
        self.state.published.frames[frame.0 as usize]
    }

    /// All that is dying is worked off and every processor has flushed.
    fn settle(&mut self) {
        while dying::work(&mut self.state, &mut self.machine, crate::account::FIRST) {
            crate::work::begin(&mut self.state);
        }
        let ticket = frame::ticket(&mut self.state);
        frame::limbo_release(&mut self.state, &mut self.machine, ticket);
    }
}

fn leaf(operation: Operation, frame: u32, address: u64, value: u64) -> Item {
    Item { operation: operation as u8, level: 1, more: 0, frame, address, value }
}

fn at_level(operation: Operation, level: u8, address: u64, value: u64) -> Item {
    Item { operation: operation as u8, level, more: 0, frame: ANY_FRAME, address, value }
}

fn refused(error: Error, value: u64) -> Answer {
    Err(Refusal::new(error, value))
}

#[test]
fn a_missing_table_is_named_by_its_level() {
    let mut world = World::new();
    let parent = world.parent;
    for lowest in [4, 3, 2] {
        let answer = world.own(parent, Operation::Allocate, 0);
        assert_eq!(answer, refused(Error::NoTable, u64::from(lowest)));
        world.tables(parent, PAGE, lowest);
    }
    assert_eq!(world.own(parent, Operation::Allocate, 0), Ok(0));
}

#[test]
fn what_a_program_may_choose_and_no_more() {
    let mut world = World::new();
    let parent = world.parent;
    world.tables(parent, PAGE, 2);
    let all = ENTRY_CHOICE;
    world.own(parent, Operation::Allocate, all).unwrap();
    let frame = world.leaf(parent, PAGE).unwrap().frame;
    let old = world.own(parent, Operation::Protect, SOFTWARE).unwrap();
    assert_eq!(old, frame.address() | PRESENT | USER | all);
    for bit in [0, 2, 3, 4, 7, 51] {
        let answer = world.own(parent, Operation::Allocate, 1 << bit);
        assert_eq!(answer, refused(Error::BadArgument, ITEMS), "bit {bit}");
    }
}

#[test]
fn a_payload_cannot_name_memory() {
    let mut world = World::new();
    let parent = world.parent;
    world.page(parent);
    let forced = world.state.published.directory.payload_forced;
    assert_ne!(forced, 0);
    assert_eq!(world.own(parent, Operation::Unmap, 1), refused(Error::BadArgument, ITEMS));
    world.own(parent, Operation::Unmap, 0x1234_5000 | USER).unwrap();
    let old = world.own(parent, Operation::Unmap, 0).unwrap();
    assert_eq!(old, 0x1234_5000 | USER | forced);
}

#[test]
fn rights_come_from_the_name_or_from_an_own_entry() {
    let mut world = World::new();
    let (parent, child) = (world.parent, world.child);
    let frame = world.page(parent);
    world.tables(child, PAGE, 2);
    let map = |value| leaf(Operation::Map, frame.0, PAGE, value);
    assert_eq!(world.item(child, child, map(0)), refused(Error::NotPermitted, 0));
    // The parent copies its own right to the child, for reading; the child cannot widen it.
    world.own(parent, Operation::Protect, 0).unwrap();
    let capability = world.capability(child);
    let item = map(from_source(PAGE, WRITABLE));
    let answer =
        update_alone(&mut world.state, &mut world.machine, (parent, child), &capability, &item, 0)
            .1;
    assert_eq!(answer, refused(Error::NotPermitted, 0));
    let item = map(from_source(PAGE, 0));
    let (state, machine) = (&mut world.state, &mut world.machine);
    update_alone(state, machine, (parent, child), &capability, &item, 0).1.unwrap();
    assert!(!world.leaf(child, PAGE).unwrap().writable);
    assert_eq!(world.own(child, Operation::Protect, WRITABLE), refused(Error::NotPermitted, 0));
    assert_eq!(world.record(frame).references, 2);
    // What it holds it may map a second time, by any number or by this one.
    let second = leaf(Operation::Map, ANY_FRAME, PAGE + PAGE_SIZE, from_source(PAGE, 0));
    world.item(child, child, second).unwrap();
    assert_eq!(world.record(frame).references, 3);
}

#[test]
fn a_forked_child_cannot_write_what_its_parent_refers_to() {
    let mut world = World::new();
    let (parent, child) = (world.parent, world.child);
    let frame = world.page(parent);
    world.fork();
    for domain in [parent, child] {
        assert!(!world.leaf(domain, PAGE).unwrap().writable);
        let answer = world.own(domain, Operation::Protect, WRITABLE);
        assert_eq!(answer, refused(Error::NoTable, 2), "a frozen table");
    }
    world.split(child).unwrap();
    assert_eq!(world.record(frame).references, 2);
    let answer = world.own(child, Operation::Protect, WRITABLE);
    assert_eq!(answer, refused(Error::NotPermitted, 0));
    // Nor by way of a second mapping of its own.
    let again = leaf(Operation::Map, ANY_FRAME, PAGE + PAGE_SIZE, from_source(PAGE, WRITABLE));
    assert_eq!(world.item(child, child, again), refused(Error::NotPermitted, 0));
    // The parent goes: the child is the last holder and keeps it as its own.
    domain::end(&mut world.state, &mut world.machine, parent);
    world.settle();
    assert_eq!(world.record(frame).references, 1);
    world.own(child, Operation::Protect, WRITABLE).unwrap();
    assert!(world.leaf(child, PAGE).unwrap().writable);
    assert_eq!(*frame::guard(&world.state, frame), world.capability(child).name);
}

#[test]
fn a_last_holder_of_another_account_copies() {
    let mut world = World::new();
    let (parent, child) = (world.parent, world.child);
    let frame = world.page(parent);
    world.fork();
    world.split(child).unwrap();
    domain::end(&mut world.state, &mut world.machine, parent);
    world.settle();
    world.state.published.frames[frame.0 as usize].account = 0;
    let answer = world.own(child, Operation::Protect, WRITABLE);
    assert_eq!(answer, refused(Error::NotPermitted, 0));
}

#[test]
fn a_table_thaws_for_its_last_reference_only() {
    let mut world = World::new();
    let (parent, child) = (world.parent, world.child);
    let frame = world.page(parent);
    world.fork();
    let thaw = at_level(Operation::Thaw, 2, PAGE, 0);
    assert_eq!(world.item(parent, parent, thaw), refused(Error::WrongState, 0));
    world.split(child).unwrap();
    world.settle();
    world.item(parent, parent, thaw).unwrap();
    let leaf = world.leaf(parent, PAGE).unwrap();
    assert_eq!((leaf.frame, leaf.writable), (frame, false), "the leaves are still shared");
    // The parent's name dominates the guard: it may, though the child looks on.
    world.own(parent, Operation::Protect, WRITABLE).unwrap();
    assert_eq!(world.split(parent), refused(Error::WrongState, 0));
}

#[test]
fn pinned_frames_keep_a_table_from_freezing() {
    let mut world = World::new();
    let frame = world.page(world.parent);
    frame::pin(&mut world.state, frame);
    world.tables(world.child, PAGE, 3);
    let share = at_level(Operation::Share, 2, PAGE, PAGE);
    let answer = world.item(world.parent, world.parent, share);
    assert_eq!(answer, refused(Error::NotEmpty, 0));
    let (parent, child) = (world.parent, world.child);
    let answer = world.item(parent, child, share);
    assert_eq!(answer, refused(Error::Pinned, 0));
    frame::unpin(&mut world.state, frame);
    world.item(parent, child, share).unwrap();
}

#[test]
fn a_table_with_few_writable_pages_is_copied_if_asked() {
    let mut world = World::new();
    let (parent, child) = (world.parent, world.child);
    let frame = world.page(parent);
    let next = PAGE + PAGE_SIZE;
    world.item(parent, parent, leaf(Operation::Allocate, ANY_FRAME, next, 0)).unwrap();
    let kept = world.leaf(parent, next).unwrap().frame;
    world.machine.word_set(frame.address(), 7);
    world.tables(child, PAGE, 3);
    let too_many = SHARE_COPIES as u64 + 1;
    let answer = world.item(parent, child, at_level(Operation::Share, 2, PAGE, PAGE | too_many));
    assert_eq!(answer, Err(malformed()));
    // What is pinned can be copied, but not frozen.
    frame::pin(&mut world.state, frame);
    world.item(parent, child, at_level(Operation::Share, 2, PAGE, PAGE | 1)).unwrap();
    frame::unpin(&mut world.state, frame);
    let copy = world.leaf(child, PAGE).unwrap();
    assert!(copy.writable && copy.frame != frame);
    assert_eq!(world.machine.word(copy.frame.address()), 7);
    assert_eq!(*frame::guard(&world.state, copy.frame), world.capability(child).name);
    let shared = world.leaf(child, next).unwrap();
    assert_eq!((shared.frame, shared.writable), (kept, false));
    assert!(world.leaf(parent, PAGE).unwrap().writable, "the parent's table stays as it is");
    // Two are writable now, one may be copied: the table is shared.
    world.item(parent, parent, leaf(Operation::Protect, ANY_FRAME, next, WRITABLE)).unwrap();
    world.item(child, child, at_level(Operation::Unmap, 2, PAGE, 0)).unwrap();
    world.item(parent, child, at_level(Operation::Share, 2, PAGE, PAGE | 1)).unwrap();
    assert_eq!(world.leaf(child, PAGE).unwrap().frame, frame);
    assert!(!world.leaf(parent, PAGE).unwrap().writable, "both are frozen");
}

#[test]
fn frames_that_are_not_memory_of_programs_are_not_mapped() {
    let mut world = World::new();
    let parent = world.parent;
    world.page(parent);
    let root_table = domain::root(&world.state, parent);
    let root = Capability { rights: ALL, zero: 0, name: Name::ROOT };
    let mut map = |frame: Frame, value| {
        let item = leaf(Operation::Map, frame.0, PAGE, value);
        update_alone(&mut world.state, &mut world.machine, (parent, parent), &root, &item, 0).1
    };
    assert_eq!(map(root_table, 0), refused(Error::WrongType, 0), "a table");
    assert_eq!(map(Frame(0), 0), refused(Error::NoSuchFrame, 0), "the kernel's");
    assert_eq!(map(Frame(1 << 20), 0), refused(Error::NoSuchFrame, 0), "beyond memory");
    let image = Frame(fake::KERNEL_FRAMES);
    assert_eq!(map(image, WRITABLE), refused(Error::WrongType, 0));
    map(image, 0).unwrap();
}

#[test]
fn a_frame_is_free_when_all_tickets_up_to_its_own_are_back() {
    let mut world = World::new();
    let parent = world.parent;
    let frame = world.page(parent);
    let first = frame::ticket(&mut world.state);
    world.own(parent, Operation::Unmap, 0).unwrap();
    assert!(frame::limbo_waiting(&world.state));
    let second = frame::ticket(&mut world.state);
    frame::limbo_release(&mut world.state, &mut world.machine, second);
    assert_eq!(frame::kind(&world.state, frame), Some(FrameType::Limbo));
    let take = leaf(Operation::Allocate, frame.0, PAGE, 0);
    assert_eq!(world.item(parent, parent, take), refused(Error::Taken, 0));
    frame::limbo_release(&mut world.state, &mut world.machine, first);
    assert_eq!(frame::kind(&world.state, frame), Some(FrameType::Free));
    world.item(parent, parent, take).unwrap();
}

#[test]
fn revoking_breaks_entries_in_frozen_tables_too() {
    let mut world = World::new();
    let (parent, child) = (world.parent, world.child);
    let frame = world.page(parent);
    world.fork();
    world.split(child).unwrap();
    assert!(revoke::check(&world.state, &world.capability(child), frame).is_err());
    revoke::check(&world.state, &world.capability(parent), frame).unwrap();
    crate::work::begin(&mut world.state);
    revoke::begin(&mut world.state, frame, crate::account::FIRST);
    assert!(!revoke::work(&mut world.state, &mut world.machine, crate::account::FIRST));
    assert_eq!(world.leaf(parent, PAGE), None);
    assert_eq!(world.leaf(child, PAGE), None);
    assert!(world.machine.flushes.contains(&Flush::Everything));
    world.settle();
    assert_eq!(frame::kind(&world.state, frame), Some(FrameType::Free));
}

/// A frame that is being taken away is not copied: its page is forgotten with the old table, or
/// the frame could be read there when it is another account's.
#[test]
fn split_forgets_pages_that_are_not_copied() {
    let mut world = World::new();
    let (parent, child) = (world.parent, world.child);
    let frame = world.page(parent);
    world.fork();
    revoke::begin(&mut world.state, frame, crate::account::FIRST);
    world.machine.flushes.clear();
    world.split(child).unwrap();
    assert_eq!(world.leaf(child, PAGE), None);
    let space = Flush::Space(domain::root(&world.state, child));
    assert_eq!(world.machine.flushes, [space]);
    // Where all is copied, one page tells processors to forget the way.
    let mut world = World::new();
    let (parent, child) = (world.parent, world.child);
    let frame = world.page(parent);
    world.fork();
    world.machine.flushes.clear();
    world.split(child).unwrap();
    assert_eq!(world.leaf(child, PAGE).map(|leaf| leaf.frame), Some(frame));
    assert!(matches!(world.machine.flushes[..], [Flush::Page(..)]));
}

#[test]
fn memory_comes_back_when_domains_end() {
    let mut world = World::new();
    let free =
        |world: &World| (world.state.frames.free_count(), world.state.published.accounts[1].used);
    let (parent, child) = (world.parent, world.child);
    let before = free(&world);
    world.page(parent);
    world.fork();
    world.split(child).unwrap();
    domain::end(&mut world.state, &mut world.machine, child);
    world.settle();
    world.item(parent, parent, at_level(Operation::Unmap, 4, PAGE, 0)).unwrap();
    world.settle();
    let after = free(&world);
    assert_eq!(after.0, before.0 + 1, "all but the child's root");
    assert_eq!(after.1[Resource::Frames as usize], before.1[Resource::Frames as usize] - 1);
    assert_eq!(after.1[Resource::Domains as usize], before.1[Resource::Domains as usize] - 1);
}

#[test]
fn a_quota_refuses_and_changes_nothing() {
    let mut world = World::new();
    let parent = world.parent;
    world.tables(parent, PAGE, 2);
    let used = world.state.published.accounts[1].used[0];
    world.state.published.accounts[1].limit[0] = used;
    let answer = world.own(parent, Operation::Allocate, 0);
    assert_eq!(answer, refused(Error::OverQuota, Resource::Frames as u64));
    assert_eq!(world.leaf(parent, PAGE), None);
    assert_eq!(world.state.published.accounts[1].used[0], used);
}

#[test]
fn a_dying_account_pays_for_nothing_new() {
    let mut world = World::new();
    let parent = world.parent;
    let frame = world.page(parent);
    crate::account::condemn(&mut world.state, 1.into(), abi::id::EnvId::NONE);
    let answer = world.own(parent, Operation::Allocate, 0);
    assert_eq!(answer, refused(Error::NoSuchAccount, 0));
    let again = leaf(Operation::Map, frame.0, PAGE + PAGE_SIZE, 0);
    assert_eq!(world.item(parent, parent, again), refused(Error::NotPermitted, 0));
    crate::work::begin(&mut world.state);
    assert!(!revoke::sweep(&mut world.state, &mut world.machine, crate::account::FIRST));
    assert_eq!(world.leaf(parent, PAGE), None);
}

/// What `item` does to its first `pages` pages, in as many holds of the lock as it takes.
fn run(world: &mut World, domain: DomainIndex, pages: u32, item: Item) -> Answer {
    let capability = world.capability(domain);
    let item = Item { more: pages as u16 - 1, ..item };
    let mut done = 0;
    loop {
        let (state, machine) = (&mut world.state, &mut world.machine);
        crate::work::begin(state);
        let (now, answer) =
            update_alone(state, machine, (domain, domain), &capability, &item, done);
        if now == pages || answer.is_err() {
            return answer;
        }
        assert!(now > done, "a hold of the lock that does nothing");
        done = now;
    }
}

#[test]
fn an_item_for_several_pages_is_as_many_items() {
    const COPY: u64 = PAGE + 100 * PAGE_SIZE;
    let (mut at_once, mut one_by_one) = (World::new(), World::new());
    let (domain, image) = (at_once.parent, fake::KERNEL_FRAMES);
    let steps = [
        (100, leaf(Operation::Allocate, ANY_FRAME, PAGE, WRITABLE)),
        (100, leaf(Operation::Map, ANY_FRAME, COPY, from_source(PAGE, WRITABLE))),
        (16, leaf(Operation::Map, image, PAGE + 0x1_0000, 0)),
        (100, leaf(Operation::Protect, ANY_FRAME, PAGE, NO_EXECUTE)),
        (70, leaf(Operation::Protect, ANY_FRAME, COPY, DIRTY)),
        (50, leaf(Operation::Unmap, ANY_FRAME, PAGE, 0x10)),
        (10, leaf(Operation::Map, ANY_FRAME, PAGE + 0x2000, from_source(COPY, 0))),
    ];
    for world in [&mut at_once, &mut one_by_one] {
        world.tables(domain, PAGE, 2);
        // Image frames are anybody's to read who dominates their guard.
        let name = Name::ROOT;
        world.state.domains.records[domain].capabilities[0] =
            Capability { rights: ALL, zero: 0, name };
    }
    for (pages, item) in steps {
        at_once.machine.flushes.clear();
        run(&mut at_once, domain, pages, item).unwrap();
        one_by_one.machine.flushes.clear();
        for page in 0..u64::from(pages) {
            let mut single = Item { address: item.address + page * PAGE_SIZE, ..item };
            if item.frame != ANY_FRAME {
                single.frame += page as u32;
            }
            if item.operation == Operation::Map as u8 && item.value & SOURCE != 0 {
                single.value += page * PAGE_SIZE;
            }
            one_by_one.item(domain, domain, single).unwrap();
        }
        for index in 0..512 {
            let entry = |world: &World| {
                let root = domain::root(&world.state, domain);
                let place = place(&world.machine, root, PAGE, 1, Way::Any).unwrap();
                world.machine.entry(place.table, index)
            };
            assert_eq!(entry(&at_once), entry(&one_by_one), "{item:x?}, page {index}");
        }
        let forgotten = |world: &World| {
            let mut pages = std::collections::BTreeSet::new();
            for flush in &world.machine.flushes {
                match *flush {
                    Flush::Page(_, page) => pages.extend([page]),
                    Flush::Pages(_, first, count) => {
                        pages.extend((0..count).map(|page| first + page * PAGE_SIZE));
                    }
                    other => panic!("{other:?}"),
                }
            }
            pages
        };
        assert_eq!(forgotten(&at_once), forgotten(&one_by_one), "{item:x?}");
    }
    let frames = |world: &World| world.state.published.frames.to_vec();
    assert_eq!(format!("{:?}", frames(&at_once)), format!("{:?}", frames(&one_by_one)));
}

#[test]
fn an_item_for_several_pages_stops_at_the_one_refused() {
    let mut world = World::new();
    let parent = world.parent;
    world.tables(parent, PAGE, 2);
    let last = Item { more: 1, ..leaf(Operation::Allocate, ANY_FRAME, PAGE + 511 * PAGE_SIZE, 0) };
    assert_eq!(world.item(parent, parent, last), refused(Error::BadArgument, ITEMS));
    let table = Item { more: 1, ..at_level(Operation::Unmap, 2, PAGE, 0) };
    assert_eq!(world.item(parent, parent, table), refused(Error::BadArgument, ITEMS));
    let edge = abi::layout::PROGRAM_END - 2 * PAGE_SIZE;
    let edge = leaf(Operation::Allocate, ANY_FRAME, edge, 0);
    assert_eq!(run(&mut world, parent, 2, edge), refused(Error::BadAddress, 0));
    let capability = world.capability(parent);
    let item = Item { more: 3, ..leaf(Operation::Allocate, ANY_FRAME, PAGE, 0) };
    let (state, machine) = (&mut world.state, &mut world.machine);
    let past = update_alone(state, machine, (parent, parent), &capability, &item, 4);
    assert_eq!(past, (4, refused(Error::BadArgument, ITEMS)));
    // Three pages are there, the fourth is not.
    run(&mut world, parent, 3, leaf(Operation::Allocate, ANY_FRAME, PAGE, 0)).unwrap();
    let all = leaf(Operation::Protect, ANY_FRAME, PAGE, NO_EXECUTE);
    assert_eq!(run(&mut world, parent, 4, all), refused(Error::BadAddress, 0));
    let executable =
        |page: u64| world.leaf(parent, PAGE + page * PAGE_SIZE).map(|leaf| leaf.executable);
    assert_eq!([0, 2, 3].map(executable), [Some(false), Some(false), None]);
}

#[test]
fn a_frame_is_cleared_if_that_is_asked_for() {
    let mut world = World::new();
    let parent = world.parent;
    let frame = world.page(parent);
    world.machine.word_set(frame.address(), 7);
    world.own(parent, Operation::Unmap, 0).unwrap();
    world.settle();
    let again = |world: &mut World, value| {
        world.item(parent, parent, leaf(Operation::Allocate, frame.0, PAGE, value)).unwrap();
        world.machine.word(frame.address())
    };
    assert_eq!(again(&mut world, 0), 7, "within an account it need not be");
    world.own(parent, Operation::Unmap, 0).unwrap();
    world.settle();
    assert_eq!(again(&mut world, CLEARED), 0);
}

#[test]
fn a_frame_is_a_copy_of_ones_own_page_if_that_is_asked_for() {
    let mut world = World::new();
    let (parent, child) = (world.parent, world.child);
    let old = world.page(parent);
    world.machine.word_set(old.address() + 8, 7);
    world.tables(child, PAGE, 2);
    let copy = leaf(Operation::Allocate, ANY_FRAME, PAGE, from_source(PAGE, WRITABLE));
    // In another's space, of the caller's page; the child has none there.
    assert_eq!(world.item(child, child, copy), refused(Error::BadAddress, 0));
    let capability = Capability { rights: ALL, zero: 0, name: Name::ROOT };
    let (state, machine) = (&mut world.state, &mut world.machine);
    update_alone(state, machine, (parent, child), &capability, &copy, 0).1.unwrap();
    let new = world.leaf(child, PAGE).unwrap();
    assert!(new.writable && new.frame != old);
    assert_eq!(world.machine.word(new.frame.address() + 8), 7);
    // In place of the page itself: what copy-on-write does.
    world.item(parent, parent, copy).unwrap();
    let own = world.leaf(parent, PAGE).unwrap().frame;
    assert_eq!((own != old, world.machine.word(own.address() + 8)), (true, 7));
    world.settle();
    assert_eq!(world.record(old).kind, FrameType::Free as u8);
}
