//! The pages of an item, one after the other.
//!
//! What is done once for all of them: finding the tables, and having translations forgotten.

use super::{
    Request, apply, check, check_allocate, check_map, check_protect, check_unmap, memory_type,
    source,
};
use crate::answer::{Answer, Refusal};
use crate::chain::Place;
use crate::domain;
use crate::fold;
use crate::machine::{Flush, Machine};
use crate::state::State;
use crate::table::{self, Leaf};
use crate::work::{self, cost};
use abi::id::Frame;
use abi::layout::PAGE_SIZE;
use abi::memory::{ANY_FRAME, Item, Operation, SOURCE};

/// The table that an item's sources lie in, found once for all pages that it has entries for.
#[derive(Clone, Copy, Default)]
struct Sources {
    /// Number of its 2 MiB of the address space.
    region: Option<u64>,
    way: Option<table::LeafTable>,
}

impl Sources {
    #[inline(always)]
    fn look_up<M: Machine>(&mut self, machine: &M, root: Frame, address: u64) -> Option<Leaf> {
        let region = Some(address >> 21);
        if self.region != region {
            *self = Self { region, way: far_table(machine, root, address) };
        }
        match self.way {
            Some(table) => table.leaf(machine, address),
            None => table::large_leaf(machine, root, address),
        }
    }
}

/// Out of the way of those that stay in one table.
#[inline(never)]
fn far_table<M: Machine>(machine: &M, root: Frame, address: u64) -> Option<table::LeafTable> {
    table::leaf_table(machine, root, address)
}

/// Translations to be forgotten: pages from the first that lost something to the last.
#[derive(Clone, Copy, Default)]
pub(super) struct Lost {
    first: u64,
    pages: u64,
}

impl Lost {
    pub(super) fn add(&mut self, page: u64) {
        if self.pages == 0 {
            self.first = page;
        }
        self.pages = (page - self.first) / PAGE_SIZE + 1;
    }

    pub(super) fn forget<M: Machine>(&self, machine: &mut M, root: Frame) {
        match self.pages {
            0 => {}
            1 => machine.flush(Flush::Page(root, self.first)),
            pages => machine.flush(Flush::Pages(root, self.first, pages)),
        }
    }
}

/// The pages of an item that are still to be done.
pub(super) struct Pages {
    /// The entry of the next one.
    pub(super) next: Place,
    /// How many are done.
    pub(super) done: u32,
}

impl Pages {
    #[inline(always)]
    pub(super) fn update<M: Machine>(
        self,
        state: &mut State,
        machine: &mut M,
        request: &mut Request,
        lost: &mut Lost,
        operation: Operation,
    ) -> (u32, Answer) {
        let Self { next: mut place, mut done } = self;
        let pages = 1 + u32::from(request.item.more);
        advance(&mut request.item, operation, done);
        let cost = page_cost(operation);
        let stored = if operation == Operation::Allocate { cost::ZERO } else { 0 };
        let own = domain::root(state, request.caller);
        let mut sources = Sources::default();
        loop {
            if takes_source(operation) {
                let from = source(request.item.value);
                request.found = from.and_then(|from| sources.look_up(machine, own, from));
            }
            let old = match check(state, machine, request, operation, place) {
                Ok(plan) => apply(state, machine, request, lost, plan),
                Err(refusal) => return (done, Err(refusal)),
            };
            done += 1;
            if done == pages || !work::room(state, cost + stored) {
                return (done, Ok(old));
            }
            work::spend(state, cost);
            advance(&mut request.item, operation, 1);
            place.index += 1;
        }
    }
}

/// The walk to the next page has been refused: if it lies in a folded table, that is unfolded,
/// unless the item is refused; its entry then, or `None`: in another hold of the lock.
#[cold]
#[inline(never)]
pub(super) fn open<M: Machine>(
    state: &mut State,
    machine: &mut M,
    mut next: Request,
    operation: Operation,
    done: u32,
    refusal: Refusal,
) -> Result<Option<Place>, Refusal> {
    let address = next.item.address + u64::from(done) * PAGE_SIZE;
    advance(&mut next.item, operation, done);
    let place = match fold::page(state, machine, next.root, address) {
        Some(place) if next.item.level == 1 => place,
        _ => return Err(refusal),
    };
    if takes_source(operation) {
        let own = domain::root(state, next.caller);
        let from = source(next.item.value);
        next.found = from.and_then(|from| table::look_up(machine, own, from));
    }
    match operation {
        Operation::Allocate => check_allocate(state, &next, place),
        Operation::Map => check_map(state, machine, &next, place),
        Operation::Protect => check_protect(state, machine, &next, place),
        Operation::Unmap => check_unmap(&next, place),
        Operation::Type => memory_type::check(state, machine, &next, place),
        // Not of level 1.
        _ => Err(refusal),
    }?;
    if !work::room(state, cost::UNFOLD) {
        return Ok(None);
    }
    fold::unfold_own(state, machine, next.root, place.table);
    Ok(Some(place))
}

fn takes_source(operation: Operation) -> bool {
    matches!(operation, Operation::Allocate | Operation::Map | Operation::Protect)
}

/// The item for the page so many pages on.
#[inline(always)]
fn advance(item: &mut Item, operation: Operation, pages: u32) {
    let bytes = u64::from(pages) * PAGE_SIZE;
    item.address = item.address.wrapping_add(bytes);
    if !takes_source(operation) {
        return;
    }
    if operation != Operation::Protect && item.frame != ANY_FRAME {
        item.frame = item.frame.wrapping_add(pages);
    }
    if item.value & SOURCE != 0 {
        let from = (item.value & SOURCE).wrapping_add(bytes) & SOURCE;
        item.value = item.value & !SOURCE | from;
    }
}

/// What a further page of an item costs at most, but for what is stored in its frame.
fn page_cost(operation: Operation) -> u32 {
    if operation == Operation::Allocate { cost::ENTRY } else { cost::PAGE }
}
