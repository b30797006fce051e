//! Tables that an item shares or copies: what the model expects of either.

use super::Model;
use super::act::Right;
use crate::machine::Machine;
use crate::{domain, frame, table};
use abi::id::Frame;
use abi::limits::SHARE_LEAVES;
use abi::memory::{Item, WRITABLE};
use abi::published::FrameType;
use std::vec::Vec;

/// A table of the caller's, before an item shares it.
#[derive(Default)]
pub(super) struct Shared {
    /// Leaves that are not the boot image's.
    leaves: usize,
    /// Where the caller can write: offset in the table's span, frame, what is in it.
    writable: Vec<(u64, Frame, Vec<u64>)>,
    /// Is something of that pinned?
    pinned: bool,
}

impl Shared {
    /// Does the item allow a copy, if there are frames for it?
    fn may_be_copied(&self, item: &Item) -> bool {
        let most = item.value as usize & 0xfff;
        most != 0 && self.writable.len() <= most && self.leaves <= SHARE_LEAVES
    }
}

impl Model {
    /// A table through which a pinned page can be written is not to be frozen.
    pub(super) fn expect_share(&self, caller: usize, item: &Item) -> Right {
        let table = self.look(caller, item);
        let copied = !table.writable.is_empty() && table.may_be_copied(item);
        if table.pinned && !copied { Right::Missing } else { Right::Held }
    }

    /// The caller's table that an item is to share.
    pub(super) fn look(&self, caller: usize, item: &Item) -> Shared {
        let root = domain::root(&self.state, self.domains[caller].index);
        let first = item.value & !0x1f_ffff;
        let mut table = Shared::default();
        for page in (0..512).map(|page| page << 12) {
            let found = super::check::entitled(&self.machine, root, first + page);
            let Some((frame, writable)) = found else { continue };
            let kind = frame::kind(&self.state, frame);
            table.leaves += usize::from(kind != Some(FrameType::Image));
            if writable {
                table.pinned |= self.state.published.frames[frame.0 as usize].pins != 0;
                table.writable.push((page, frame, self.words(frame)));
            }
        }
        table
    }

    /// A table has been shared, or copied with what could be written in it.
    pub(super) fn remember_share(
        &mut self,
        caller: usize,
        target: usize,
        item: &Item,
        table: &Shared,
    ) {
        let root = domain::root(&self.state, self.domains[target].index);
        let way = table::place(&self.machine, root, item.address, 2, table::Way::Any).unwrap();
        let first = item.address & !0x1f_ffff;
        self.domains[target].writable.retain(|&page, _| page & !0x1f_ffff != first);
        if self.machine.entry(way.table, way.index) & WRITABLE == 0 {
            assert!(!table.pinned, "a pinned page is frozen: {item:x?}");
            let first = item.value & !0x1f_ffff;
            let writable = &mut self.domains[caller].writable;
            writable.retain(|&page, _| page & !0x1f_ffff != first);
            return;
        }
        assert!(table.may_be_copied(item), "copied what is to be shared: {item:x?}");
        for (page, frame, words) in &table.writable {
            let now = super::check::entitled(&self.machine, root, first + page);
            let Some((copy, writable)) = now else {
                assert!(frame::is_leaving(&self.state, *frame), "{page:#x} is not copied");
                continue;
            };
            assert!(writable && copy != *frame, "{page:#x} is not copied");
            self.check_fresh(target, copy, Some(words.clone()));
            self.domains[target].writable.insert(first + page, copy);
        }
    }
}
