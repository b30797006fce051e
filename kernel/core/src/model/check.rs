//! What must be true after every step, and what a walk through all tables must find.

use super::{ACCOUNTS, FRAMES, Model};
use crate::chain::{self, Place};
use crate::fake::{FakeMachine, IMAGE_FRAMES, KERNEL_FRAMES};
use crate::machine::Machine;
use crate::{domain, frame};
use abi::id::Frame;
use abi::layout::{LIBRARY_SLOT, OWN_TABLES_SLOT, PROGRAM_SLOTS, table_index};
use abi::limits::Resource;
use abi::memory::{ACCESSED, ADDRESS, ENTRY_CHOICE, NO_EXECUTE, PRESENT, USER, WRITABLE};
use abi::published::FrameType;
use std::collections::{HashMap, HashSet};

/// The frame at an address and whether it may be written, read from the tables alone.
pub(super) fn effective(machine: &FakeMachine, root: Frame, address: u64) -> Option<(Frame, bool)> {
    if !abi::layout::is_user(address) {
        return None;
    }
    let (mut table, mut writable) = (root, true);
    for level in [4, 3, 2, 1] {
        let entry = machine.entry(table, table_index(address, level));
        if entry & (PRESENT | USER) != PRESENT | USER {
            return None;
        }
        writable &= entry & WRITABLE != 0;
        table = Frame::containing(entry & ADDRESS);
    }
    Some((table, writable))
}

/// What a walk from all roots and dying tables has seen.
#[derive(Default)]
struct Seen {
    references: HashMap<Frame, u32>,
    leaves: HashMap<Frame, HashSet<(Frame, usize)>>,
    tables: HashSet<Frame>,
}

impl Model {
    /// Cheap: no table is walked but for what processors remember.
    pub(super) fn check_step(&mut self) {
        self.check_translations();
        for (record, last) in self.state.published.frames.iter().zip(&mut self.last) {
            match frame::kind_of(record.kind) {
                FrameType::Free | FrameType::Limbo => {}
                FrameType::Vector => *last = 0,
                _ => *last = usize::from(record.account),
            }
        }
        let frames = &self.state.frames;
        let directory = &self.state.published.directory;
        assert_eq!(u64::from(frames.free_count()), directory.frames_free);
        if let Some(&stale) = self.stale.last() {
            assert!(domain::find(&self.state, stale).is_err(), "{stale:?} is found again");
        }
    }

    /// Everything.
    pub(super) fn check_all(&mut self) {
        let mut seen = Seen::default();
        for known in &self.domains {
            let root = domain::root(&self.state, known.index);
            *seen.references.entry(root).or_default() += 1;
            self.walk(&mut seen, root, 4);
            self.check_kernel_half(root);
        }
        for table in self.dying() {
            let level = match self.kind(table) {
                FrameType::Table1 => 1,
                FrameType::Table2 => 2,
                FrameType::Table3 => 3,
                FrameType::Table4 => 4,
                kind => panic!("{table:?} of type {kind:?} is dying"),
            };
            self.walk(&mut seen, table, level);
        }
        self.check_frames(&seen);
        self.check_writers();
        self.check_accounts();
        self.check_lists();
        for known in &self.domains {
            let list = &self.state.domains.record(known.index).capabilities;
            assert_eq!(list, &known.capabilities, "capabilities of {:?}", known.id);
        }
        for stale in &self.stale {
            assert!(domain::find(&self.state, *stale).is_err(), "{stale:?} is found again");
        }
    }

    fn kind(&self, frame: Frame) -> FrameType {
        frame::kind(&self.state, frame).unwrap()
    }

    fn dying(&self) -> Vec<Frame> {
        let mut list = Vec::new();
        let mut at = self.state.frames.dying;
        while at != 0 {
            assert!(list.len() < FRAMES, "the list of dying tables is a circle");
            list.push(Frame(at));
            at = self.state.frames.record(Frame(at)).next();
        }
        list
    }

    /// Entries in `table` and below: their form, what they lead to, what they count for.
    fn walk(&self, seen: &mut Seen, table: Frame, level: u8) {
        if !seen.tables.insert(table) {
            return;
        }
        let mut present = 0;
        let forced = self.state.published.directory.payload_forced;
        for index in 0..512 {
            if level == 4 && index >= PROGRAM_SLOTS && index != LIBRARY_SLOT {
                continue;
            }
            let entry = self.machine.entry(table, index);
            if entry & PRESENT == 0 {
                assert!(entry == 0 || entry & forced == forced, "payload {entry:#x} names memory");
                continue;
            }
            present += 1;
            let target = Frame::containing(entry & ADDRESS);
            let kind = self.kind(target);
            *seen.references.entry(target).or_default() += 1;
            assert_ne!(entry & USER, 0);
            if level == 1 {
                assert_eq!(entry & !(ADDRESS | PRESENT | USER | ENTRY_CHOICE), 0, "{entry:#x}");
                assert!(matches!(kind, FrameType::Data | FrameType::Image), "{kind:?} is mapped");
                assert!(kind != FrameType::Image || entry & WRITABLE == 0, "image writable");
                seen.leaves.entry(target).or_default().insert((table, index));
                continue;
            }
            assert_eq!(entry & !(ADDRESS | PRESENT | USER | WRITABLE | ACCESSED), 0);
            assert_eq!(kind as u8, FrameType::Table1 as u8 + level - 2, "level {level}: {kind:?}");
            let references = self.state.published.frames[target.0 as usize].references;
            assert!(references <= 1 || entry & WRITABLE == 0, "shared {target:?} is not frozen");
            self.walk(seen, target, level - 1);
        }
        assert_eq!(self.state.frames.record(table).entries(), present, "entries of {table:?}");
    }

    fn check_kernel_half(&self, root: Frame) {
        for slot in (PROGRAM_SLOTS..512).filter(|&slot| slot != LIBRARY_SLOT) {
            let expected = match slot {
                OWN_TABLES_SLOT => root.address() | PRESENT | USER | ACCESSED | NO_EXECUTE,
                _ => self.machine.kernel_entry(slot),
            };
            assert_eq!(self.machine.entry(root, slot), expected, "slot {slot}");
        }
    }

    /// Reference counts and chains say exactly what the walk found.
    fn check_frames(&self, seen: &Seen) {
        let count = |list: &[Frame], frame| list.iter().filter(|&&at| at == frame).count() as u32;
        let mut links: HashMap<Frame, u32> = HashMap::new();
        for table in seen.tables.iter().filter(|&&table| self.kind(table) == FrameType::Table1) {
            let frame = Frame(self.state.frames.record(*table).links);
            assert_eq!(self.kind(frame), FrameType::Links);
            *links.entry(frame).or_default() += 1;
        }
        for number in 0..FRAMES as u32 {
            let frame = Frame(number);
            let record = &self.state.published.frames[number as usize];
            let walked = seen.references.get(&frame).copied().unwrap_or(0)
                + links.get(&frame).copied().unwrap_or(0)
                + count(&self.pins, frame)
                + count(&self.references, frame)
                + count(&self.vectors, frame);
            assert_eq!(record.references, walked, "references of {frame:?}: {record:?}");
            assert_eq!(record.pins, count(&self.pins, frame), "pins of {frame:?}");
            let idle = matches!(
                self.kind(frame),
                FrameType::Free | FrameType::Limbo | FrameType::Kernel | FrameType::Image
            );
            let dying = seen.tables.contains(&frame);
            assert!(walked > 0 || idle || dying, "{frame:?} is lost: {record:?}");
            self.check_chain(frame, seen.leaves.get(&frame));
        }
    }

    fn check_chain(&self, frame: Frame, leaves: Option<&HashSet<(Frame, usize)>>) {
        let mut found = HashSet::new();
        let mut at = chain::first(&self.state, frame);
        while let Some(Place { table, index }) = at {
            assert!(found.insert((table, index)), "the chain of {frame:?} is a circle");
            at = chain::next(&self.state, &self.machine, Place { table, index });
        }
        let none = HashSet::new();
        assert_eq!(&found, leaves.unwrap_or(&none), "the chain of {frame:?}");
    }

    /// Whoever may write got that right by a call that was allowed to give it.
    fn check_writers(&self) {
        for known in &self.domains {
            let root = domain::root(&self.state, known.index);
            for &page in super::act::PAGES.iter() {
                for offset in super::act::OFFSETS {
                    let page = page + offset;
                    if let Some((frame, true)) = effective(&self.machine, root, page) {
                        let given = known.writable.get(&page);
                        assert_eq!(given, Some(&frame), "{:?} writes {page:#x}", known.id);
                    }
                }
            }
        }
    }

    fn check_accounts(&self) {
        let (mut frames, mut domains) = ([0u32; 4], [0u32; 4]);
        for record in self.state.published.frames.iter() {
            if record.account != 0 {
                frames[usize::from(record.account)] += 1;
            }
        }
        for known in &self.domains {
            domains[domain::account(&self.state, known.index)] += 1;
        }
        // 3 is below 2, 2 below 1.
        for account in [3, 2] {
            frames[account - 1] += frames[account];
            domains[account - 1] += domains[account];
        }
        for account in ACCOUNTS {
            let record = &self.state.published.accounts[account];
            assert_eq!(record.used[Resource::Frames as usize], frames[account], "of {account}");
            assert_eq!(record.used[Resource::Domains as usize], domains[account]);
        }
    }

    /// Free and limbo are what their lists hold, and the rest is in use.
    fn check_lists(&self) {
        let frames = &self.state.frames;
        let of = |kind| {
            let all = 0..FRAMES as u32;
            all.filter(|&number| self.kind(Frame(number)) == kind).count() as u32
        };
        assert_eq!(frames.free_count(), of(FrameType::Free));
        assert_eq!(frames.limbo_count(), of(FrameType::Limbo));
        assert_eq!(of(FrameType::Kernel), KERNEL_FRAMES);
        assert_eq!(of(FrameType::Image), IMAGE_FRAMES);
        assert_eq!(of(FrameType::Absent), 0);
        let mut free = 0;
        let (mut at, mut before) = (frames.free_head(), 0);
        while at != 0 {
            assert_eq!(self.kind(Frame(at)), FrameType::Free);
            assert_eq!(frames.record(Frame(at)).previous(), before);
            free += 1;
            assert!(free <= frames.free_count(), "the free list is a circle");
            (before, at) = (at, frames.record(Frame(at)).next());
        }
        assert_eq!(free, frames.free_count());
    }
}
