//! Wakeup predicates as compiled code: in cells of the kernel's, for as many as there are.
//!
//! A predicate that finds no cell, fits none, or whose account may have no more of them is
//! interpreted ([`crate::predicate`]), and says the same: the interpreter is the reference. One
//! whose frame is revoked gives its cell back.
//!
//! ```text
//!  PredicateSet ── checks, translates ──► atoms in the environment's frame ──► a cell's code
//!  a look       ── a cell? ── yes: runs it: no atom is read, no address translated
//!                         └── no: atom by atom
//! ```

use crate::account;
use crate::count::Count;
use crate::index::{AccountIndex, EnvIndex};
use crate::machine::Machine;
use crate::predicate;
use crate::region;
use crate::state::State;
use abi::id::{AccountId, RegionId};
use abi::limits::{PREDICATE_ATOMS, Resource};
use abi::predicate::{Atom, Operator, Source};
use abi::published::Category;
use code::watch::{COMPARISONS_MAX, Comparison, Compiler, How, Side};

/// Bytes of a cell: five comparisons of the longest form, ten of the usual ones.
pub const CELL_BYTES: usize = 512;

const _: () = assert!(PREDICATE_ATOMS <= COMPARISONS_MAX);

/// Bit of an environment's cell: its predicate asks for the time.
const CLOCK: u16 = 1 << 15;

/// The cells, each the next free one's number; cell 0 is nobody's.
pub struct Cells {
    next: &'static mut [u16],
    free: u16,
}

impl Cells {
    /// All free.
    pub fn new(next: &'static mut [u16]) -> Self {
        let count = next.len();
        for (at, place) in next.iter_mut().enumerate() {
            *place = if at + 1 < count { at as u16 + 1 } else { 0 };
        }
        let free = u16::from(count > 1);
        Self { next, free }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.next.len().saturating_sub(1)
    }
}

/// Compiles the predicate of the environment at `index`, if its account may have a cell.
pub(crate) fn compile<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) {
    let cell = state.downloads.cells.free;
    let count = usize::from(state.envs.slots[index].atoms);
    let Some(key) = machine.watch_key().filter(|_| cell != 0 && count > 0) else { return };
    let mut code = [0; CELL_BYTES];
    let mut compiler = Compiler::new(&mut code, key);
    let mut clock = 0;
    for at in 0..count {
        let atom = predicate::load(state, machine, index, at);
        let comparison = comparison(state, machine, &atom);
        if [comparison.left, comparison.right].contains(&Side::Now) {
            clock = CLOCK;
        }
        compiler.compare(&comparison);
    }
    let Some(length) = compiler.finish() else { return };
    if account::charge(state, payer(state, index), Resource::Cells, 1).is_err() {
        return;
    }
    machine.watch_store(cell.into(), &code[..length]);
    state.downloads.cells.free = state.downloads.cells.next[usize::from(cell)];
    state.envs.slots[index].cell = cell | clock;
    state.published.census[Category::Code as usize].objects += 1;
}

/// Gives the environment's cell back, if it has one: its predicate is interpreted from now on.
pub(crate) fn forget(state: &mut State, index: EnvIndex) {
    let cell = core::mem::take(&mut state.envs.slots[index].cell) & !CLOCK;
    if cell != 0 {
        let cells = &mut state.downloads.cells;
        cells.next[usize::from(cell)] = core::mem::replace(&mut cells.free, cell);
        state.published.census[Category::Code as usize].objects.less(1);
        account::uncharge(state, payer(state, index), Resource::Cells, 1);
    }
}

fn payer(state: &State, index: EnvIndex) -> AccountIndex {
    AccountId(state.published.envs[index].account).into()
}

/// The environment at `index` becomes another account's. Its cell does, too, if that account may
/// have it, and else is given back.
pub(crate) fn change_account(state: &mut State, index: EnvIndex, to: AccountIndex) {
    let from = payer(state, index);
    let has = state.envs.slots[index].cell != 0;
    if has && account::transfer(state, (from, to), &[(Resource::Cells, 1)]).is_err() {
        forget(state, index);
    }
}

/// Has the environment at `index` a cell?
#[cfg(test)]
pub(crate) fn has(state: &State, index: EnvIndex) -> bool {
    state.envs.slots[index].cell != 0
}

/// What the compiled predicate of the environment at `index` says; `None`: it has none.
#[inline]
pub(crate) fn holds<M: Machine>(state: &State, machine: &mut M, index: EnvIndex) -> Option<bool> {
    let cell = state.envs.slots[index].cell;
    if cell == 0 {
        return None;
    }
    machine.watch_holds((cell & !CLOCK).into(), cell & CLOCK != 0)
}

/// A translated atom, its words where the kernel sees them.
pub(crate) fn comparison<M: Machine>(state: &State, machine: &M, atom: &Atom) -> Comparison {
    let side = |source: u8, value: u64| match Source::from_number(source) {
        Some(Source::Memory | Source::Region) => Side::Word(machine.address(value)),
        Some(Source::Memory32) => Side::Half(machine.address(value)),
        Some(Source::Clock) => Side::Now,
        Some(Source::Constant) | None => Side::Constant(value),
    };
    let how = match Operator::from_number(atom.operator) {
        Some(Operator::NotEqual) => How::NotEqual,
        Some(Operator::Below) => How::Below,
        Some(Operator::AtLeast) => How::AtLeast,
        Some(Operator::Equal) | None => How::Equal,
    };
    // A region that has ended counts as true: its record has another id then.
    let ended = region::find(state, RegionId(atom.region)).ok().map(|index| {
        let id = &state.published.regions[index].id;
        (core::ptr::from_ref(id).expose_provenance() as u64, *id)
    });
    let mask = if atom.mask == 0 { u64::MAX } else { atom.mask };
    let (left, right) = (side(atom.left, atom.left_value), side(atom.right, atom.right_value));
    Comparison { left, right, how, mask, unless: ended, last: atom.last != 0 }
}
