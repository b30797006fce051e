//! The calls the model makes, and what it expects of their answers.

use super::{DOMAINS, Model};
use crate::answer::{Answer, Refusal};
use crate::capability::{self, Derivation};
use crate::index::AccountIndex;
use crate::machine::Machine;
use crate::{domain, dying, fold, frame, table};
use abi::capability::{Capability, DERIVE, READ, WRITE};
use abi::error::Error;
use abi::id::{DomainId, Frame};
use abi::layout::{LIBRARY, PAGE_SIZE, table_index};
use abi::memory::{
    ACCESSED, ANY_FRAME, DIRTY, Item, KEEPS_WRITE, NO_EXECUTE, Operation, SOFTWARE, SOURCE, TYPE,
    TYPE_SHIFT, WRITABLE, WRITE_THROUGH,
};
use abi::published::FrameType;
use abi::word::Which;
use std::vec::Vec;

/// First pages of the regions used: two in one level-2 table, one in the next, one in another
/// slot of the root, one of the library; where there is one, that of the large page.
pub(super) const PAGES: [u64; 6] =
    [0x40_0000, 0x60_0000, 0x4000_0000, 1 << 39, LIBRARY, super::folds::BLOCK];
/// Pages of each region.
pub(super) const OFFSETS: [u64; 5] = [0, 0x1000, 0x2000, 0x3000, 0x1f_f000];

const LEAF: [Operation; 7] = [
    Operation::Type,
    Operation::Allocate,
    Operation::Allocate,
    Operation::Map,
    Operation::Map,
    Operation::Protect,
    Operation::Unmap,
];
const TABLES: [Operation; 9] = [
    Operation::Table,
    Operation::Table,
    Operation::Share,
    Operation::Share,
    Operation::Split,
    Operation::Thaw,
    Operation::Unmap,
    Operation::Fold,
    Operation::Unfold,
];

/// Is `rights` over `guard` what this capability gives? Written down a second time.
pub(super) fn gives(capability: &Capability, guard: &[u16], rights: u8) -> bool {
    let name = &capability.name.components[..usize::from(capability.name.length)];
    guard.starts_with(name) && capability.rights & rights == rights && capability.rights != 0
}

/// Where the right that an item asks for comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    /// From nowhere.
    Missing,
    /// A name or an own entry gives it, or none is needed.
    Held,
    /// Nobody else refers to the frame.
    LastHolder,
}

impl Model {
    pub(super) fn act(&mut self) {
        self.choose_actor();
        match self.random.below(160) {
            100..160 => self.call(),
            0..=33 => self.leaf_item(),
            34..=57 => self.table_item(),
            58..=61 => self.wild_item(),
            62..=79 => self.touch(),
            80..=81 => self.early_item(),
            82..=84 => self.pin(),
            85..=86 => self.unpin(),
            87 => self.refer(),
            88..=89 => self.vector(),
            90..=91 => self.derive(),
            92 => self.drop_capability(),
            93 if self.random.one_in(2) => self.revoked_item(),
            93 => self.revoke(),
            94 => self.begin_domain(),
            95 => self.end_domain(),
            96 => self.clear_stray(),
            97 if !self.block.is_empty() => self.map_block(),
            _ => {
                dying::work(&mut self.state, &mut self.machine, crate::account::FIRST);
            }
        }
    }

    /// Account 1, or another one that lives.
    fn payer(&mut self) -> AccountIndex {
        let index = 1 + self.random.below(4);
        let id = abi::id::AccountId(self.state.published.accounts[index].id);
        crate::account::find(&self.state, id).unwrap_or(1.into())
    }

    pub(super) fn some_domain(&mut self) -> usize {
        self.random.below(self.domains.len())
    }

    pub(super) fn some_page(&mut self) -> u64 {
        let regions = if self.block.is_empty() { PAGES.len() - 1 } else { PAGES.len() };
        self.random.pick(&PAGES[..regions]) + self.random.pick(&OFFSETS)
    }

    pub(super) fn some_frame(&mut self) -> u32 {
        match self.random.below(8) {
            0 => self.random.below(self.frames + 8) as u32,
            1 => {
                let page = self.some_page();
                let root = self.some_root();
                table::look_up(&self.machine, root, page).map_or(ANY_FRAME, |leaf| leaf.frame.0)
            }
            _ => ANY_FRAME,
        }
    }

    pub(super) fn some_root(&mut self) -> Frame {
        let domain = self.some_domain();
        domain::root(&self.state, self.domains[domain].index)
    }

    fn some_choice(&mut self) -> u64 {
        let mut choice = 0;
        for bits in [WRITABLE, WRITABLE, KEEPS_WRITE, ACCESSED | DIRTY, NO_EXECUTE, SOFTWARE] {
            if self.random.one_in(2) {
                choice |= bits;
            }
        }
        choice
    }

    /// Any one of a domain's capabilities, mostly the first.
    pub(super) fn some_capability(&mut self, domain: usize) -> Capability {
        let list = &self.domains[domain].capabilities;
        let index = if self.random.one_in(3) { self.random.below(list.len()) } else { 0 };
        list[index]
    }

    fn leaf_item(&mut self) {
        let operation = self.random.pick(&LEAF);
        let mut value = match operation {
            Operation::Unmap => self.random.next() & !1 & self.random.next(),
            Operation::Type => self.random.pick(&[0, WRITE_THROUGH, TYPE, TYPE]),
            _ => self.some_choice(),
        };
        let sourced = match operation {
            Operation::Map | Operation::Protect => !self.random.one_in(4),
            Operation::Allocate => self.random.one_in(4),
            _ => false,
        };
        if sourced {
            value |= self.some_page() & SOURCE;
        }
        let mut frame = self.some_frame();
        if operation == Operation::Map && frame == ANY_FRAME && self.random.one_in(3) {
            frame = self.random.below(self.frames) as u32;
        }
        let address = self.some_page();
        self.item(Item { operation: operation as u8, level: 1, more: 0, frame, address, value });
    }

    fn table_item(&mut self) {
        let operation = self.random.pick(&TABLES);
        let level = match operation {
            Operation::Table => self.random.pick(&[2, 2, 3, 4]),
            Operation::Unmap if self.random.one_in(8) => self.random.pick(&[3, 4]),
            _ => 2,
        };
        let value = match operation {
            Operation::Share => self.some_page() | self.random.pick(&[0, 0, 1, 3, 16]),
            Operation::Unmap => 0,
            Operation::Fold | Operation::Unfold if !self.random.one_in(8) => 0,
            _ => u64::from(self.some_frame()),
        };
        let frame = self.some_frame();
        let address = self.some_page();
        self.item(Item { operation: operation as u8, level, more: 0, frame, address, value });
    }

    /// Anything at all.
    fn wild_item(&mut self) {
        let mut address = self.some_page();
        if self.random.one_in(2) {
            address ^= 1 << self.random.below(64);
        }
        let level = self.random.below(6) as u8;
        let item = Item {
            operation: self.random.below(13) as u8,
            level,
            more: if level == 1 { 0 } else { u16::from(self.random.one_in(8)) },
            frame: self.some_frame(),
            address,
            value: self.random.next() >> self.random.below(64),
        };
        // A page outside of those the model knows is given back at once by nobody: keep to them.
        let known = PAGES.iter().any(|&page| OFFSETS.iter().any(|&at| page + at == address));
        if known || item.level != 1 {
            self.item(item);
        }
    }

    /// Takes the tables away that were entered at a wild address last.
    fn clear_stray(&mut self) {
        let domain = self.some_domain();
        let Some((level, address)) = self.domains[domain].strays.pop() else { return };
        let (index, name) = (self.domains[domain].index, self.domains[domain].capabilities[0]);
        let operation = Operation::Unmap as u8;
        let item = Item { operation, level, more: 0, frame: ANY_FRAME, address, value: 0 };
        let (state, machine) = (&mut self.state, &mut self.machine);
        let (_, answer) = table::update_alone(state, machine, (index, index), &name, &item, 0);
        self.note(&answer);
    }

    /// One item, its answer checked against the rules as the model reads them.
    fn item(&mut self, item: Item) {
        let caller = self.some_domain();
        let target = if self.random.one_in(3) { self.some_domain() } else { caller };
        self.item_by(caller, target, item);
    }

    pub(super) fn item_by(&mut self, caller: usize, target: usize, item: Item) {
        let named = self.some_capability(caller);
        let (caller_index, target_index) = (self.domains[caller].index, self.domains[target].index);
        let id = if target == caller { DomainId::NONE } else { self.domains[target].id };
        let guard = *domain::guard(&self.state, target_index);
        let over = gives(&named, &guard.components[..usize::from(guard.length)], WRITE);
        let may = table::changeable(&self.state, caller_index, &named, id);
        let builds = domain::is_builder(&self.state, caller_index, target_index);
        assert_eq!(may.is_ok(), over || builds || caller == target);
        if may.is_err() {
            return;
        }
        // Now and then it is the last page of an item for several.
        let (whole, done) = if self.random.one_in(4) { self.within_more(item) } else { (item, 0) };
        let expected = self.expect(caller, target, &named, &item);
        let copied = self.to_copy(caller, &item);
        let shared = (item.operation == Operation::Share as u8).then(|| self.look(caller, &item));
        let (state, machine) = (&mut self.state, &mut self.machine);
        let (after, answer) =
            table::update_alone(state, machine, (caller_index, target_index), &named, &whole, done);
        self.note(&answer);
        if answer.is_ok() && after == done {
            // There is no room to unfold a table in this hold of the lock.
            return;
        }
        match answer {
            Err(Refusal { error: Error::NotPermitted, .. }) => {
                let early = expected == Right::LastHolder && self.is_asked();
                assert!(expected == Right::Missing || early, "refused what is allowed: {item:x?}");
            }
            Err(Refusal { error: Error::NoTable, value }) if value >= 2 => {
                self.grow(target, value as u8, item.address);
            }
            _ => {}
        }
        if answer.is_ok() {
            assert!(expected != Right::Missing, "allowed what is not: {item:x?}");
            if expected == Right::LastHolder {
                let root = domain::root(&self.state, target_index);
                let held = super::check::effective(&self.machine, root, item.address);
                let guard = frame::guard(&self.state, held.unwrap().0);
                let name = domain::guard_of_frames(&self.state, caller_index, target_index, &named);
                assert_eq!(*guard, name, "what it writes is another's: {item:x?}");
                self.check_alone(root, held.unwrap().0);
            }
            self.check_taken(domain::root(&self.state, target_index), &item);
            match shared {
                Some(shared) => self.remember_share(caller, target, &item, &shared),
                None => self.remember(target, &item, copied),
            }
        }
    }

    /// An item for several pages whose last one is `item`, with all the others done.
    fn within_more(&mut self, item: Item) -> (Item, u32) {
        let before = self.random.below(1 + table_index(item.address, 1).min(3)) as u16;
        let bytes = u64::from(before) * PAGE_SIZE;
        let Some(Operation::Allocate | Operation::Map | Operation::Unmap | Operation::Protect) =
            Operation::from_number(item.operation)
        else {
            return (item, 0);
        };
        let mut first = Item { more: before, address: item.address.wrapping_sub(bytes), ..item };
        let source = item.value & SOURCE;
        let has_source = source != 0 && item.operation != Operation::Unmap as u8;
        let no_frame = item.frame < u32::from(before);
        if item.level != 1 || item.more != 0 || no_frame || has_source && source <= bytes {
            return (item, 0);
        }
        if has_source {
            first.value = item.value & !SOURCE | (source - bytes);
        }
        if item.frame != ANY_FRAME {
            first.frame = item.frame.wrapping_sub(u32::from(before));
        }
        (first, u32::from(before))
    }

    /// Mostly, a missing table is entered, as a program would.
    pub(super) fn grow(&mut self, domain: usize, level: u8, address: u64) {
        if self.random.one_in(4) {
            return;
        }
        let (value, operation) = (u64::from(ANY_FRAME), Operation::Table as u8);
        let item = Item { operation, level, more: 0, frame: ANY_FRAME, address, value };
        let (index, name) = (self.domains[domain].index, self.domains[domain].capabilities[0]);
        let (state, machine) = (&mut self.state, &mut self.machine);
        let (_, answer) = table::update_alone(state, machine, (index, index), &name, &item, 0);
        self.note(&answer);
        if answer.is_ok() {
            self.remember_stray(domain, &item);
        }
    }

    /// A table in which none of the model's own pages lie is to be taken away again.
    fn remember_stray(&mut self, domain: usize, item: &Item) {
        let span = 12 + 9 * (u32::from(item.level) - 1);
        if PAGES.iter().all(|page| page >> span != item.address >> span) {
            self.domains[domain].strays.push((item.level, item.address));
        }
    }

    pub(super) fn note(&mut self, answer: &Answer) {
        let number = answer.err().map_or(0, |refusal| refusal.error as usize);
        self.answers[number] += 1;
    }

    /// Where the right that the item asks for would come from.
    fn expect(&self, caller: usize, target: usize, named: &Capability, item: &Item) -> Right {
        let root = |domain: usize| domain::root(&self.state, self.domains[domain].index);
        let entitled = |domain, page| super::check::entitled(&self.machine, root(domain), page);
        let sign = if item.value >> 47 & 1 != 0 { !0 << 48 } else { 0 };
        let source = (item.value & SOURCE != 0)
            .then(|| entitled(caller, item.value & SOURCE | sign))
            .flatten();
        let write = item.value & (WRITABLE | KEEPS_WRITE) != 0;
        let mut last_holder = false;
        let frame = match Operation::from_number(item.operation) {
            Some(Operation::Map) if item.frame == ANY_FRAME => match source {
                Some((frame, _)) => frame,
                None => return Right::Missing,
            },
            Some(Operation::Map) => Frame(item.frame),
            Some(Operation::Protect) if self.keeps_folded(root(target), item) => {
                return Right::Held;
            }
            Some(Operation::Protect) if write => match entitled(target, item.address) {
                Some((_, true)) => return Right::Held,
                Some((frame, false)) => {
                    let record = &self.state.published.frames[frame.0 as usize];
                    let payer = domain::account(&self.state, self.domains[target].index);
                    last_holder = record.references == 1
                        && usize::from(record.account) == payer.at()
                        && named.rights & WRITE != 0;
                    frame
                }
                None => return Right::Missing,
            },
            Some(Operation::Type) => return self.expect_type(target, named, item),
            Some(Operation::Share) => return self.expect_share(caller, item),
            Some(Operation::Allocate) if item.value & SOURCE != 0 => {
                return match source {
                    Some((frame, _)) if !frame::is_leaving(&self.state, frame) => Right::Held,
                    _ => Right::Missing,
                };
            }
            _ => return Right::Held,
        };
        if frame.0 as usize >= self.frames || frame::is_leaving(&self.state, frame) {
            return Right::Missing;
        }
        let guard = frame::guard(&self.state, frame);
        let guard = &guard.components[..usize::from(guard.length)];
        let rights = READ | if write { WRITE } else { 0 };
        let copied = source.is_some_and(|(of, may)| of == frame && (may || !write));
        if copied || gives(named, guard, rights) {
            Right::Held
        } else if last_holder {
            Right::LastHolder
        } else {
            Right::Missing
        }
    }

    /// Does the entry behind a large one have the right to be written?
    fn keeps_folded(&self, root: Frame, item: &Item) -> bool {
        let place = fold::page(&self.state, &self.machine, root, item.address);
        place.is_some_and(|at| self.machine.entry(at.table, at.index) & KEEPS_WRITE != 0)
    }

    /// What an accepted item changes of what the model knows.
    pub(super) fn remember(&mut self, target: usize, item: &Item, copied: Option<Vec<u64>>) {
        let root = domain::root(&self.state, self.domains[target].index);
        let write = item.value & (WRITABLE | KEEPS_WRITE) != 0;
        let now = super::check::effective(&self.machine, root, item.address);
        match Operation::from_number(item.operation).unwrap() {
            operation @ (Operation::Allocate | Operation::Map | Operation::Protect) => {
                let (frame, _) = now.expect("what was entered is there");
                self.processors.entered = Some((root, item.address));
                if operation == Operation::Allocate {
                    self.check_fresh(target, frame, copied);
                }
                let writable = &mut self.domains[target].writable;
                if write {
                    writable.insert(item.address, frame);
                } else {
                    writable.remove(&item.address);
                }
            }
            Operation::Unmap | Operation::Split | Operation::Thaw | Operation::Table => {
                let span = 1u64 << (12 + 9 * (u32::from(item.level) - 1));
                let first = item.address & !(span - 1);
                let writable = &mut self.domains[target].writable;
                writable.retain(|&page, _| page < first || page - first >= span);
                if item.operation == Operation::Table as u8 {
                    self.remember_stray(target, item);
                }
            }
            Operation::Fold => self.folded += 1,
            Operation::Type => {
                let (frame, _) = now.expect("what has a type is there");
                let record = &self.state.published.frames[frame.0 as usize];
                assert!(record.references == 1 && record.pins == 0, "{frame:?}: {record:?}");
                assert_eq!(u64::from(record.memory_type) << TYPE_SHIFT, item.value);
                self.typed += u64::from(item.value != 0);
            }
            Operation::Unfold => {}
            Operation::Share => unreachable!("see `remember_share`"),
        }
    }

    /// Memory of another account arrives zeroed, or as the copy that was asked for.
    pub(super) fn check_fresh(&mut self, target: usize, frame: Frame, copied: Option<Vec<u64>>) {
        let payer = domain::account(&self.state, self.domains[target].index);
        if let Some(words) = copied {
            assert_eq!(self.words(frame), words, "{frame:?} is not a copy");
        } else if self.last[frame.0 as usize] != payer {
            let word = |at: u64| self.machine.word(frame.address() + 8 * at);
            assert!((0..512).all(|at| word(at) == 0), "{frame:?} is not zeroed");
        }
        self.last[frame.0 as usize] = payer;
        // Whoever may write it does.
        let at = 8 * self.random.below(512) as u64;
        self.machine.word_set(frame.address() + at, 0x5ec2_e700 + payer.at() as u64);
    }

    pub(super) fn words(&self, frame: Frame) -> Vec<u64> {
        (0..512).map(|at| self.machine.word(frame.address() + 8 * at)).collect()
    }

    /// What is in the page that an item wants a copy of.
    fn to_copy(&self, caller: usize, item: &Item) -> Option<Vec<u64>> {
        if item.operation != Operation::Allocate as u8 || item.value & SOURCE == 0 {
            return None;
        }
        let root = domain::root(&self.state, self.domains[caller].index);
        let sign = if item.value >> 47 & 1 != 0 { !0 << 48 } else { 0 };
        let found = super::check::effective(&self.machine, root, item.value & SOURCE | sign);
        found.map(|(frame, _)| self.words(frame))
    }

    /// A program touches a page.
    fn touch(&mut self) {
        let page = self.some_page();
        let root = self.some_root();
        self.translate(root, page);
    }

    fn pin(&mut self) {
        let (root, page) = (self.some_root(), self.some_page());
        if self.pins.len() < 8
            && let Some(leaf) = table::walk(&self.state, &self.machine, root, page, true)
        {
            frame::pin(&mut self.state, leaf.frame);
            self.pins.push(leaf.frame);
        }
    }

    fn unpin(&mut self) {
        if !self.pins.is_empty() {
            let at = self.random.below(self.pins.len());
            frame::unpin(&mut self.state, self.pins.swap_remove(at));
        }
    }

    /// A predicate reads a word: a reference without a pin.
    fn refer(&mut self) {
        if self.references.len() < 4 && self.random.one_in(2) {
            let (root, page) = (self.some_root(), self.some_page());
            if let Some(leaf) = table::walk(&self.state, &self.machine, root, page, false) {
                frame::reference(&mut self.state, leaf.frame);
                self.references.push(leaf.frame);
            }
        } else if let Some(frame) = self.references.pop() {
            frame::release(&mut self.state, frame);
        }
    }

    fn vector(&mut self) {
        if self.vectors.len() < 4 && self.random.one_in(2) {
            let account = self.payer();
            let name = self.domains[0].capabilities[0].name;
            let (state, machine) = (&mut self.state, &mut self.machine);
            let kind = FrameType::Vector;
            let made = frame::allocate(state, machine, Which::Any, account, name, kind);
            if let Ok(frame) = made {
                self.machine.word_set(frame.address(), 0x5ec2);
                self.last[frame.0 as usize] = AccountIndex::NONE;
                self.vectors.push(frame);
            }
        } else if let Some(frame) = self.vectors.pop() {
            frame::release(&mut self.state, frame);
        }
    }

    fn derive(&mut self) {
        let caller = self.some_domain();
        let target = if self.random.one_in(2) { self.some_domain() } else { caller };
        let index = self.random.pick(&[0, 0, 1, 1, 2, 3, 4]);
        let extend = self.random.pick(&[0, 0, 0, 1, 2, 3, 4]);
        let spill = if self.random.one_in(16) { 1 } else { 0 };
        let bits = (16 * (u32::from(extend) + spill)).min(63);
        let source = self.domains[caller].capabilities[usize::from(index)];
        let own = self.domains[caller].capabilities[0];
        let mut rights = self.random.below(17) as u16;
        if !self.random.one_in(4) {
            rights &= u16::from(source.rights);
        }
        let asked = Derivation {
            domain: self.domains[target].id,
            slot: self.random.below(6) as u16,
            extend,
            components: self.random.next() & ((1 << bits) - 1),
            rights,
        };
        // Its own name stays in slot 0 and the root name in slot 1, or nothing would be allowed.
        if asked.slot < 2 {
            return;
        }
        let answer = capability::derive(&mut self.state, self.domains[caller].index, index, &asked);
        self.note(&answer);
        if answer.is_err() {
            return;
        }
        let record = self.state.domains.record(self.domains[target].index);
        let made = record.capabilities[usize::from(asked.slot)];
        let name = &made.name.components[..usize::from(made.name.length)];
        assert!(gives(&source, name, made.rights), "{made:?} is wider than {source:?}");
        let guard = *domain::guard(&self.state, self.domains[target].index);
        let guard = &guard.components[..usize::from(guard.length)];
        // The right to the receiver's list comes from the capability or from one's own name.
        let (from, to) = (self.domains[caller].index, self.domains[target].index);
        let builds = domain::is_builder(&self.state, from, to);
        let over = builds || gives(&source, guard, WRITE) || gives(&own, guard, WRITE);
        let passed = over && source.rights & DERIVE != 0;
        assert!(target == caller || passed, "not to be given");
        self.domains[target].capabilities[usize::from(asked.slot)] = made;
    }

    fn drop_capability(&mut self) {
        let domain = self.some_domain();
        let slot = 2 + self.random.below(20) as u16;
        let answer = capability::drop(&mut self.state, self.domains[domain].index, slot);
        self.note(&answer);
        if answer.is_ok() {
            self.domains[domain].capabilities[usize::from(slot)] = Capability::default();
        }
    }

    fn begin_domain(&mut self) {
        self.accounts();
        if self.domains.len() < DOMAINS {
            let payer = self.payer();
            self.domain(payer);
        }
    }

    /// The first domain, which has the root name, lives on.
    fn end_domain(&mut self) {
        let at = self.random.below(self.domains.len());
        let index = self.domains[at].index;
        let empty = self.state.published.domains[index].envs == 0;
        if at > 0 && empty && self.random.one_in(4) {
            let known = self.domains.swap_remove(at);
            domain::condemn(&mut self.state, known.index, abi::id::EnvId::NONE);
            assert!(domain::find(&self.state, known.id).is_err());
            self.end_empty(known.index.at());
            self.stale.push(known.id);
        }
        if self.stale.len() > 64 {
            self.stale.remove(0);
        }
    }
}
