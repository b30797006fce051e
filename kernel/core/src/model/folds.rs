//! Large pages in the model: a block of frames that every domain may get and fold.

use super::{FRAMES_LARGE, Model};
use crate::chain::Place;
use crate::index::AccountIndex;
use crate::machine::Machine;
use crate::{domain, fold, frame, table};
use abi::error::Error;
use abi::id::Frame;
use abi::layout::PAGE_SIZE;
use abi::limits::Resource;
use abi::memory::{
    ANY_FRAME, DIRTY, Item, LARGE, NO_EXECUTE, Operation, PRESENT, TYPE, USER, WRITABLE,
};
use abi::published::FrameType;

/// Where the block is mapped: in the first region's level-2 table.
pub(super) const BLOCK: u64 = 0x80_0000;

impl Model {
    /// The first domain takes the block; the model refers to its frames, so that they stay.
    pub(super) fn take_block(&mut self) {
        let account = domain::account(&self.state, self.domains[0].index);
        let name = self.domains[0].capabilities[0].name;
        for number in FRAMES_LARGE as u32 - 512..FRAMES_LARGE as u32 {
            let (state, machine) = (&mut self.state, &mut self.machine);
            let which = abi::word::Which::This(number);
            let taken = frame::allocate(state, machine, which, account, name, FrameType::Data);
            assert_eq!(taken, Ok(Frame(number)));
            self.last[number as usize] = account;
        }
        self.block = FRAMES_LARGE as u32 - 512..FRAMES_LARGE as u32;
    }

    /// The first domain, which has the root name, maps the block into some space and folds it.
    pub(super) fn map_block(&mut self) {
        let target = self.some_domain();
        let (caller, index) = (self.domains[0].index, self.domains[target].index);
        let name = self.domains[0].capabilities[1];
        let choice = NO_EXECUTE | self.random.pick(&[0, WRITABLE, WRITABLE]);
        let map = Operation::Map as u8;
        let (first, value) = (self.block.start, choice);
        let item =
            Item { operation: map, level: 1, more: 511, frame: first, address: BLOCK, value };
        let mut done = 0;
        while done < 512 {
            self.state.spent = 0;
            let (state, machine) = (&mut self.state, &mut self.machine);
            let (after, answer) =
                table::update_alone(state, machine, (caller, index), &name, &item, done);
            for page in done..after {
                let address = BLOCK + u64::from(page) * PAGE_SIZE;
                let known = &mut self.domains[target].writable;
                match choice & WRITABLE {
                    0 => known.remove(&address),
                    _ => known.insert(address, Frame(first + page)),
                };
            }
            if let Err(refusal) = answer {
                self.note(&answer);
                if refusal.error == Error::NoTable {
                    self.grow(target, refusal.value as u8, BLOCK);
                }
                return;
            }
            done = after;
        }
        let operation = Operation::Fold as u8;
        let item =
            Item { operation, level: 2, more: 0, frame: ANY_FRAME, address: BLOCK, value: 0 };
        let (state, machine) = (&mut self.state, &mut self.machine);
        let (_, answer) = table::update_alone(state, machine, (caller, index), &name, &item, 0);
        if let Err(refusal) = answer {
            // The account that pays for the table may be ending, or have a limit that is reached.
            let root = domain::root(&self.state, index);
            let place = table::place(&self.machine, root, BLOCK, 1, table::Way::Any);
            let table = place.map_or(Frame(0), |place| place.table);
            let payer = self.state.published.frames[table.0 as usize].account.into();
            let refused = match refusal.error {
                Error::NoSuchAccount => self.state.accounts.dying != 0,
                Error::OverQuota => self.is_at_its_limit(payer, Resource::Folds),
                _ => false,
            };
            assert!(refused, "a whole table is not folded: {refusal:?}");
            return;
        }
        self.folded += 1;
    }

    /// Is a limit of this resource reached, of this account or of one above it?
    fn is_at_its_limit(&self, account: AccountIndex, resource: Resource) -> bool {
        let (mut account, at) = (account, resource as usize);
        while account != AccountIndex::NONE {
            let record = &self.state.published.accounts[account];
            if record.used[at] >= record.limit[at] {
                return true;
            }
            account = self.state.accounts.records[account].parent.into();
        }
        false
    }

    /// A large entry says what all entries of its table say; the table behind it.
    pub(super) fn check_folded(&self, place: Place, large: u64) -> Frame {
        let behind = fold::behind(&self.state, large);
        assert_eq!(frame::kind(&self.state, behind), Some(FrameType::Table1));
        assert_eq!(fold::place(&self.state, behind), place, "the way back from {behind:?}");
        assert_eq!(self.state.published.frames[behind.0 as usize].references, 1);
        let first = table::target(large);
        assert!(first.0.is_multiple_of(512) && large & NO_EXECUTE != 0, "{large:#x}");
        let rights = PRESENT | USER | WRITABLE | NO_EXECUTE | TYPE;
        for at in 0..512 {
            let entry = self.machine.entry(behind, at);
            assert_eq!(table::target(entry).0, first.0 + at as u32, "frame of {at}");
            assert_eq!((entry ^ large) & rights, 0, "{at}: {entry:#x} in {large:#x}");
            assert!(entry & DIRTY & !large == 0 && large & LARGE != 0, "{at}: {entry:#x}");
        }
        behind
    }
}
