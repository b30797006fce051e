//! Asking for a page before all processors have forgotten its former holders or its revocation.

use super::Model;
use super::act::{OFFSETS, PAGES};
use super::check::effective;
use crate::domain;
use crate::machine::Machine;
use crate::table::{changeable, target};
use abi::id::Frame;
use abi::layout::table_index;
use abi::memory::{ANY_FRAME, Item, Operation, TYPE, WRITABLE, WRITE_THROUGH};
use std::vec::Vec;

/// A place in a domain's space that leads to a frame.
#[derive(Clone, Copy, Debug)]
struct Held {
    domain: usize,
    page: u64,
    frame: Frame,
    is_table: bool,
}

fn item(operation: Operation, held: &Held, value: u64) -> Item {
    let level = 1 + u8::from(held.is_table);
    let (operation, address) = (operation as u8, held.page);
    Item { operation, level, more: 0, frame: ANY_FRAME, address, value }
}

impl Model {
    /// One of the two holders of a frame or a table, which other processors remember by its space,
    /// gives it up; the other one asks for it at once.
    pub(super) fn early_item(&mut self) {
        let Some((from, to)) = self.two_holders() else { return self.second_holder() };
        for _ in 0..2 {
            self.translate(self.root_of(from.domain), from.page);
        }
        let operation = match self.random.below(3) {
            0 if from.is_table => Operation::Split,
            _ => Operation::Unmap,
        };
        let value = if operation == Operation::Split { u64::from(ANY_FRAME) } else { 0 };
        self.item_by(from.domain, from.domain, item(operation, &from, value));
        self.settle();
        self.choose_actor();
        let single = self.state.published.frames[to.frame.0 as usize].references == 1;
        let known = single && self.is_known(self.root_of(to.domain), to.frame);
        let (operation, value) = match self.random.below(8) {
            _ if to.is_table => (Operation::Thaw, 0),
            0 => (Operation::Type, self.random.pick(&[0, WRITE_THROUGH, TYPE])),
            _ => (Operation::Protect, WRITABLE),
        };
        self.item_by(to.domain, to.domain, item(operation, &to, value));
        self.early += u64::from(known);
    }

    /// Has another domain hold a table or a page of a domain's.
    fn second_holder(&mut self) {
        let mut all = Vec::new();
        for (from, to) in (0..self.domains.len() * self.domains.len())
            .map(|pair| (pair / self.domains.len(), pair % self.domains.len()))
        {
            let (caller, target) = (&self.domains[from], &self.domains[to]);
            let name = &caller.capabilities[0];
            if from == to || changeable(&self.state, caller.index, name, target.id).is_err() {
                continue;
            }
            let held = self.places(from).filter(|held| !held.is_table);
            all.extend(held.map(|held| (from, Held { domain: to, ..held })));
        }
        if all.is_empty() {
            return;
        }
        let (from, mut held) = self.random.pick(&all);
        held.is_table = self.random.one_in(2);
        let operation = if held.is_table { Operation::Share } else { Operation::Map };
        self.item_by(from, held.domain, item(operation, &held, held.page));
    }

    /// A page that processors remember is taken by a revocation, and entered anew at once.
    pub(super) fn revoked_item(&mut self) {
        let all = (0..self.domains.len()).flat_map(|domain| self.places(domain));
        let all: Vec<Held> = all.filter(|held| !held.is_table).collect();
        if all.is_empty() {
            return;
        }
        let held = self.random.pick(&all);
        for _ in 0..3 {
            self.translate(self.root_of(held.domain), held.page);
        }
        let named = self.domains[held.domain].capabilities[0];
        self.revoke_page(self.root_of(held.domain), held.page, &named);
        self.settle();
        self.choose_actor();
        self.item_by(held.domain, held.domain, item(Operation::Allocate, &held, WRITABLE));
    }

    /// The places of two domains that lead to one frame with two references, in either order.
    fn two_holders(&mut self) -> Option<(Held, Held)> {
        let all = (0..self.domains.len()).flat_map(|domain| self.places(domain));
        let mut held: Vec<Held> = all.collect();
        held.retain(|held| self.state.published.frames[held.frame.0 as usize].references == 2);
        let is_other = |a: &Held, b: &Held| a.frame == b.frame && a.domain != b.domain;
        held.retain({
            let all = held.clone();
            move |one| all.iter().any(|other| is_other(one, other))
        });
        if held.is_empty() {
            return None;
        }
        let from = self.random.pick(&held);
        let to = held.iter().find(|other| is_other(&from, other))?;
        Some((from, *to))
    }

    /// Where the pages that the model knows lead in a domain's space: to a frame, and to a table if
    /// that is frozen.
    fn places(&self, domain: usize) -> impl Iterator<Item = Held> {
        let root = self.root_of(domain);
        PAGES.iter().flat_map(|first| OFFSETS.map(|at| first + at)).flat_map(move |page| {
            let frozen = self.way(root, page).filter(|way| !way.writable);
            let leaf = effective(&self.machine, root, page).map(|leaf| (leaf.0, false));
            let frames = [frozen.map(|way| (way.table, true)), leaf];
            let held = move |(frame, is_table)| Held { domain, page, frame, is_table };
            frames.into_iter().flatten().map(held)
        })
    }

    fn root_of(&self, domain: usize) -> Frame {
        domain::root(&self.state, self.domains[domain].index)
    }

    /// No processor remembers by another space the frame that is this one's alone.
    pub(super) fn check_alone(&self, root: Frame, frame: Frame) {
        assert!(!self.is_known(root, frame), "{frame:?} is one space's alone, and remembered");
    }

    /// The same of what an accepted item asks to be alone, whatever its right.
    pub(super) fn check_taken(&self, root: Frame, item: &Item) {
        match Operation::from_number(item.operation) {
            Some(Operation::Thaw) => {
                let way = self.way(root, item.address).expect("what is thawed is there");
                self.check_alone(root, way.table);
            }
            Some(Operation::Type) => {
                let table = self.way(root, item.address).expect("what has a type is there").table;
                let entry = self.machine.entry(table, table_index(item.address, 1));
                self.check_alone(root, target(entry));
            }
            _ => {}
        }
    }
}
