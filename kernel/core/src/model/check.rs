//! What must be true after every step, and what a walk through all tables must find.

use super::calls::FIRST;
use super::{Model, STILL};
use crate::chain::{self, Place};
use crate::fake::{FakeMachine, IMAGE_FRAMES};
use crate::index::{AccountIndex, DomainIndex, EnvIndex};
use crate::left::Left;
use crate::machine::Machine;
use crate::{domain, fold, frame};
use abi::id::{AccountId, EnvId, Frame};
use abi::layout::{LIBRARY_SLOT, OWN_TABLES_SLOT, PROGRAM_SLOTS, table_index};
use abi::limits::{RESOURCES, Resource};
use abi::memory::{
    ACCESSED, ADDRESS, ENTRY_CHOICE, KEEPS_WRITE, LARGE, NO_EXECUTE, PRESENT, TYPE_SHIFT, USER,
    WRITABLE,
};
use abi::published::{AccountRecord, EnvState, FrameType};
use std::collections::{HashMap, HashSet};

/// The frame at an address and whether it may be written, read from the tables alone.
pub(super) fn effective(machine: &FakeMachine, root: Frame, address: u64) -> Option<(Frame, bool)> {
    look(machine, root, address, WRITABLE)
}

/// The frame at an address and whether its entry has the right to be written, in use or not.
pub(super) fn entitled(machine: &FakeMachine, root: Frame, address: u64) -> Option<(Frame, bool)> {
    look(machine, root, address, WRITABLE | KEEPS_WRITE)
}

fn look(machine: &FakeMachine, root: Frame, address: u64, rights: u64) -> Option<(Frame, bool)> {
    if !abi::layout::is_user(address) {
        return None;
    }
    let (mut table, mut writable) = (root, true);
    for level in [4, 3, 2, 1] {
        let entry = machine.entry(table, table_index(address, level));
        if entry & (PRESENT | USER) != PRESENT | USER {
            return None;
        }
        writable &= entry & if level == 1 { rights } else { WRITABLE } != 0;
        table = Frame::containing(entry & ADDRESS);
        if level == 2 && entry & LARGE != 0 {
            return Some((Frame(table.0 + table_index(address, 1) as u32), writable));
        }
    }
    Some((table, writable))
}

/// What a walk from all roots and dying tables has seen.
#[derive(Default)]
struct Seen {
    references: HashMap<Frame, u32>,
    leaves: HashMap<Frame, HashSet<(Frame, usize)>>,
    tables: HashSet<Frame>,
    folded: usize,
}

impl Model {
    /// Cheap: no table is walked but for what processors remember.
    pub(super) fn check_step(&mut self) {
        self.check_translations();
        self.check_names();
        self.check_kept();
        assert_eq!(self.state.published.accounts[1].id, AccountId::new(1, 0).0);
        self.check_quotas();
        for (record, last) in self.state.published.frames.iter().zip(&mut self.last) {
            match frame::kind_of(record.kind) {
                FrameType::Free | FrameType::Limbo => {}
                FrameType::Vector | FrameType::Region | FrameType::Code => {
                    *last = AccountIndex::NONE
                }
                _ => *last = AccountIndex::from(record.account),
            }
        }
        let frames = &self.state.frames;
        let directory = &self.state.published.directory;
        assert_eq!(u64::from(frames.free_count()), directory.frames_free);
        if let Some(&stale) = self.stale.last() {
            assert!(domain::find(&self.state, stale).is_err(), "{stale:?} is found again");
        }
    }

    /// No account is charged more than its limit, but for what it was charged when the limit was
    /// set below that.
    fn check_quotas(&mut self) {
        let accounts = &self.state.published.accounts;
        self.charged.resize(accounts.len(), AccountRecord::default());
        for (index, (now, before)) in accounts.iter().zip(&mut self.charged).enumerate() {
            let known = now.id != 0 && now.id == before.id;
            for resource in (0..RESOURCES).filter(|_| known) {
                let limit = now.limit[resource].max(before.limit[resource]);
                let most = limit.max(before.used[resource]);
                let used = now.used[resource];
                assert!(used <= most, "account {index}: {used} of resource {resource}, not {most}");
            }
            *before = *now;
        }
    }

    /// The first environment, for which there is always something to do, runs now and then.
    pub(super) fn check_alive(&mut self, step: u64) {
        if self.state.sched.cpus.iter().any(|cpu| usize::from(cpu.current) == FIRST) {
            self.ran = step;
        }
        let env = &self.state.envs.slots[EnvIndex::new(FIRST)];
        assert!(step - self.ran < STILL, "has not run since step {}: {env:?}", self.ran);
    }

    /// Everything.
    pub(super) fn check_all(&mut self) {
        self.check_structure();
        self.check_writers();
        for known in &self.domains {
            let list = &self.state.domains.record(known.index).capabilities;
            assert_eq!(list, &known.capabilities, "capabilities of {:?}", known.id);
        }
    }

    /// What can be said of tables, frames and accounts by themselves.
    pub(super) fn check_structure(&mut self) {
        let mut seen = Seen::default();
        // Those that are dying with environments still in them, too.
        for index in self.domains_in_use() {
            let root = domain::root(&self.state, DomainIndex::new(index));
            *seen.references.entry(root).or_default() += 1;
            self.walk(&mut seen, root, 4, true);
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
            self.walk(&mut seen, table, level, false);
        }
        self.check_frames(&seen);
        assert_eq!(self.state.folds.used(), seen.folded, "records of folded tables");
        self.check_accounts();
        self.check_dying_accounts();
        self.check_homes();
        self.check_builders();
        self.check_lists();
        for stale in &self.stale {
            assert!(domain::find(&self.state, *stale).is_err(), "{stale:?} is found again");
        }
    }

    fn domains_in_use(&self) -> impl Iterator<Item = usize> {
        let all = self.state.published.domains.iter().enumerate();
        all.filter(|(_, record)| record.id != 0).map(|(index, _)| index)
    }

    /// References that are no entry of a table, and how many of them are pins.
    fn held(&self) -> HashMap<Frame, (u32, u32)> {
        let mut held: HashMap<Frame, (u32, u32)> = HashMap::new();
        let mut hold = |frame: Frame, pins: u32| {
            if frame.0 != 0 {
                let count = held.entry(frame).or_default();
                *count = (count.0 + 1, count.1 + pins);
            }
        };
        self.pins.iter().for_each(|&frame| hold(frame, 1));
        self.references.iter().chain(&self.vectors).for_each(|&frame| hold(frame, 0));
        self.block.clone().for_each(|number| hold(Frame(number), 0));
        for (index, env) in self.state.envs.slots.iter().enumerate() {
            hold(env.vector, 0);
            hold(env.save, 1);
            hold(env.application, 1);
            for frame in crate::predicate::held(&self.state, &self.machine, EnvIndex::new(index)) {
                hold(frame, 0);
            }
        }
        self.check_revocations();
        self.listed(|left| left.revoking).into_iter().for_each(|frame| hold(frame, 0));
        if let Some(ring) = self.state.console.ring() {
            hold(ring, 1);
        }
        for (frame, _) in crate::net::pins(&self.state) {
            hold(frame, 1);
        }
        for (region, record) in
            self.state.regions.slots.iter().zip(self.state.published.regions.iter())
        {
            assert!(region.count == 0 || record.id != 0);
            region.frames[..usize::from(region.count)].iter().for_each(|&frame| hold(frame, 0));
        }
        for table in self.method_tables() {
            let (frames, _) = crate::method::held(&self.state, &self.machine, table);
            frames.into_iter().for_each(|frame| hold(frame, 0));
        }
        held
    }

    /// Tables of methods: of regions, and of regions that have ended.
    fn method_tables(&self) -> Vec<Frame> {
        let regions = self.state.regions.slots.iter().map(|region| region.methods);
        let mut tables: Vec<Frame> = regions.filter(|table| table.0 != 0).collect();
        tables.extend(self.listed(|left| left.methods));
        tables
    }

    /// What is in these lists of all accounts.
    pub(super) fn listed(&self, first: impl Fn(&Left) -> u32) -> Vec<Frame> {
        let mut list = Vec::new();
        for record in self.state.accounts.records.iter() {
            let mut at = first(&record.left);
            while at != 0 {
                assert!(list.len() < self.frames, "a list of what is left is a circle");
                list.push(Frame(at));
                at = self.state.frames.record(Frame(at)).next();
            }
        }
        list
    }

    fn kind(&self, frame: Frame) -> FrameType {
        frame::kind(&self.state, frame).unwrap()
    }

    fn dying(&self) -> Vec<Frame> {
        self.listed(|left| left.tables)
    }

    /// Entries in `table` and below: their form, what they lead to, what they count for.
    fn walk(&self, seen: &mut Seen, table: Frame, level: u8, used: bool) {
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
            let group = 1 << (index / frame::GROUP);
            assert!(self.state.frames.record(table).groups() & group != 0, "group of {index}");
            present += 1;
            let target = Frame::containing(entry & ADDRESS);
            let kind = self.kind(target);
            *seen.references.entry(target).or_default() += 1;
            assert_ne!(entry & USER, 0);
            if level == 1 {
                let bits = entry & !(ADDRESS | PRESENT | USER | ENTRY_CHOICE);
                let record = &self.state.published.frames[target.0 as usize];
                assert_eq!(bits, u64::from(record.memory_type) << TYPE_SHIFT, "{entry:#x}");
                assert!(matches!(kind, FrameType::Data | FrameType::Image), "{kind:?} is mapped");
                assert!(kind != FrameType::Image || entry & WRITABLE == 0, "image writable");
                let chained = self.state.frames.chained(table) >> (index / frame::LINE) & 1 != 0;
                assert!(chained || kind == FrameType::Image, "chained line of {index}");
                seen.leaves.entry(target).or_default().insert((table, index));
                continue;
            }
            if level == 2 && entry & LARGE != 0 {
                let behind = self.check_folded(Place { table, index }, entry);
                *seen.references.entry(target).or_default() -= 1;
                *seen.references.entry(behind).or_default() += 1;
                seen.folded += 1;
                self.walk(seen, behind, 1, true);
                continue;
            }
            assert_eq!(entry & !(ADDRESS | PRESENT | USER | WRITABLE | ACCESSED), 0);
            assert!(!fold::is_folded(&self.state, target), "no large entry stands for {target:?}");
            assert_eq!(kind as u8, FrameType::Table1 as u8 + level - 2, "level {level}: {kind:?}");
            let references = self.state.published.frames[target.0 as usize].references;
            assert!(references <= 1 || entry & WRITABLE == 0, "shared {target:?} is not frozen");
            self.walk(seen, target, level - 1, true);
        }
        // Of leaves that die only those are taken which something hangs on.
        let counted = self.state.frames.record(table).entries() == present;
        assert!(counted || !used && level == 1, "entries of {table:?}");
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
        let held = self.held();
        let mut links: HashMap<Frame, u32> = HashMap::new();
        for table in seen.tables.iter().filter(|&&table| self.kind(table) == FrameType::Table1) {
            let frame = Frame(self.state.frames.record(*table).links);
            assert_eq!(self.kind(frame), FrameType::Links);
            *links.entry(frame).or_default() += 1;
        }
        for number in 0..self.frames as u32 {
            let frame = Frame(number);
            let record = &self.state.published.frames[number as usize];
            let walked = seen.references.get(&frame).copied().unwrap_or(0)
                + links.get(&frame).copied().unwrap_or(0)
                + held.get(&frame).map_or(0, |held| held.0);
            // Of the boot image nobody counts them.
            let counted = if self.kind(frame) == FrameType::Image { 0 } else { walked };
            assert_eq!(record.references, counted, "references of {frame:?}: {record:?}");
            let pins = held.get(&frame).map_or(0, |held| held.1);
            assert_eq!(record.pins, pins, "pins of {frame:?}");
            let idle = matches!(
                self.kind(frame),
                FrameType::Free | FrameType::Limbo | FrameType::Kernel | FrameType::Image
            );
            let dying = seen.tables.contains(&frame);
            assert!(walked > 0 || idle || dying, "{frame:?} is lost: {record:?}");
            self.check_chain(frame, seen.leaves.get(&frame));
            let has_domain = matches!(
                self.kind(frame),
                FrameType::Table1 | FrameType::Table2 | FrameType::Table3
            );
            let in_chain = seen.leaves.contains_key(&frame) && self.kind(frame) != FrameType::Image;
            assert_eq!(record.chain != 0, has_domain || in_chain, "{frame:?}: {record:?}");
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
        let leaves = leaves.filter(|_| self.kind(frame) != FrameType::Image);
        assert_eq!(&found, leaves.unwrap_or(&none), "the chain of {frame:?}");
    }

    /// Whoever may write got that right by a call that was allowed to give it.
    fn check_writers(&self) {
        for known in &self.domains {
            let root = domain::root(&self.state, known.index);
            for &page in super::act::PAGES.iter() {
                for offset in super::act::OFFSETS {
                    let page = page + offset;
                    if let Some((frame, true)) = entitled(&self.machine, root, page) {
                        let given = known.writable.get(&page);
                        assert_eq!(given, Some(&frame), "{:?} writes {page:#x}", known.id);
                    }
                }
            }
        }
    }

    /// What accounts are charged for is what there is, each in its payer's and in all above.
    fn check_accounts(&self) {
        let published = &self.state.published;
        let mut used = vec![[0u32; RESOURCES]; published.accounts.len()];
        let mut count = |account: AccountIndex, resource: Resource, n: usize| {
            used[account.at()][resource as usize] += n as u32;
        };
        for record in published.frames.iter() {
            count(record.account.into(), Resource::Frames, 1);
        }
        for index in self.domains_in_use() {
            let payer = domain::account(&self.state, DomainIndex::new(index));
            count(payer, Resource::Domains, 1);
            count(
                payer,
                Resource::Attachments,
                crate::region::records(&self.state, DomainIndex::new(index)),
            );
        }
        for (index, record) in published.envs.iter().enumerate() {
            let payer = AccountId(record.account).into();
            let state = self.state.envs.slots[EnvIndex::new(index)].state;
            if state != EnvState::Free {
                count(payer, Resource::Envs, 1);
            }
            let pins =
                crate::predicate::held(&self.state, &self.machine, EnvIndex::new(index)).len();
            count(payer, Resource::Pins, pins);
            count(
                payer,
                Resource::Cells,
                crate::compiled::has(&self.state, EnvIndex::new(index)).into(),
            );
        }
        for slice in published.slices.iter().filter(|slice| slice.env != 0) {
            let owner = &published.envs[EnvId(slice.env).index()];
            assert_eq!(owner.id, slice.env, "a slice belongs to nobody");
            count(AccountId(owner.account).into(), Resource::Slices, 1);
        }
        for region in published.regions.iter().filter(|region| region.id != 0) {
            count(AccountId(region.account).into(), Resource::Regions, 1);
        }
        for table in self.method_tables() {
            let payer = published.frames[table.0 as usize].account.into();
            let (frames, functions) = crate::method::held(&self.state, &self.machine, table);
            count(payer, Resource::Regions, functions);
            // The first is the table.
            count(payer, Resource::Code, frames.len() - 1);
        }
        for (_, payer) in crate::net::pins(&self.state) {
            count(payer, Resource::Pins, 1);
        }
        let (rings, filters) = crate::net::payers(&self.state);
        rings.into_iter().for_each(|payer| count(payer, Resource::Rings, 1));
        filters.into_iter().for_each(|payer| count(payer, Resource::Filters, 1));
        crate::net::senders(&self.state).into_iter().for_each(|(payer, places)| {
            count(payer, Resource::Sends, places);
        });
        for payer in crate::retract::payers(&self.state) {
            count(payer, Resource::Retractions, 1);
        }
        for table in crate::fold::tables(&self.state) {
            count(published.frames[table.0 as usize].account.into(), Resource::Folds, 1);
        }
        for record in published.accounts.iter().filter(|record| record.parent != 0) {
            count(AccountId(record.parent).into(), Resource::Accounts, 1);
        }
        self.check_used(used);
    }

    /// What is in use of each account, its own: counted in it, and in those above as far as it is
    /// more than what is kept for the one below. All of it is no more than there is.
    fn check_used(&self, mut used: Vec<[u32; RESOURCES]>) {
        let accounts = &self.state.published.accounts;
        let depth = |&index: &usize| self.state.accounts.record(AccountIndex::new(index)).depth;
        let mut below: Vec<usize> = (1..accounts.len()).collect();
        below.sort_by_key(|index| core::cmp::Reverse(depth(index)));
        for index in below {
            let record = &accounts[index];
            assert_eq!(record.used, used[index], "charged to account {index}");
            let above = AccountId(record.parent).index();
            let counts = record.used.iter().zip(&record.reserve).map(|(used, kept)| used.max(kept));
            for (above, counts) in used[above].iter_mut().zip(counts) {
                *above += counts;
            }
        }
        let machine = &self.state.accounts.machine;
        for (resource, (&used, &all)) in accounts[1].used.iter().zip(machine).enumerate() {
            assert!(used <= all, "{used} of resource {resource}: there are {all}");
        }
        let frames = &self.state.frames;
        let kept = machine[0] - accounts[1].used[0];
        assert!(frames.free_count() >= kept, "{} free frames, {kept} for all", frames.free_count());
    }

    /// A domain in which an environment has been released is nobody's to build, and one that is
    /// being built admits an environment only in place of one that has not run.
    fn check_builders(&self) {
        for (index, env) in self.state.envs.slots.iter().enumerate().skip(1) {
            if matches!(env.state, EnvState::Free | EnvState::New | EnvState::Dead) {
                continue;
            }
            let home = crate::env::home(&self.state, EnvIndex::new(index)).index();
            let builder = self.state.domains.record(DomainIndex::new(home)).builder;
            assert!(builder.is_none(), "{builder:?} builds where environment {index} runs");
        }
    }

    /// An account that dies pays for less and less, and when the sweep is over nobody maps what it
    /// pays for.
    fn check_dying_accounts(&mut self) {
        let revoked = self.listed(|left| left.revoking).is_empty();
        for (index, record) in self.state.published.accounts.iter().enumerate() {
            if !self.state.accounts.record(AccountIndex::new(index)).dying {
                self.dying.remove(&index);
                continue;
            }
            // The index may have been another dying account's at the last walk.
            let before = self.dying.insert(index, (record.id, record.used));
            let before = before.filter(|(id, _)| *id == record.id).map_or(record.used, |it| it.1);
            let less = record.used.iter().zip(before).all(|(now, then)| *now <= then);
            assert!(less, "account {index} pays for {:?}, then {:?}", before, record.used);
            let swept =
                revoked && self.state.accounts.record(AccountIndex::new(index)).left.frames == 0;
            for number in (0..self.frames as u32).filter(|_| swept) {
                let frame = &self.state.published.frames[number as usize];
                let mapped = usize::from(frame.account) == index
                    && chain::first(&self.state, Frame(number)).is_some();
                assert!(!mapped, "{number} outlives account {index}");
            }
        }
    }

    /// Free and limbo are what their lists hold, and the rest is in use.
    fn check_lists(&self) {
        let frames = &self.state.frames;
        let of = |kind| {
            let all = 0..self.frames as u32;
            all.filter(|&number| self.kind(Frame(number)) == kind).count() as u32
        };
        assert_eq!(frames.free_count(), of(FrameType::Free));
        assert_eq!(frames.limbo_count(), of(FrameType::Limbo));
        assert_eq!(of(FrameType::Kernel), self.kernel_frames);
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
