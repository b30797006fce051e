//! Items of `TableUpdate`: each is checked, which changes nothing, then applied, which cannot fail.
//!
//! Who may enter what (decisions 2): a capability that dominates the frame's guard, or an entry
//! effective in the caller's own space, whose address the item names. Rights are copied, never
//! widened. One case more, for the last holder after copy-on-write: the only reference to a frame
//! that the target's account pays for may become writable in place ([`alone`]); the frame then
//! takes the name of the capability used as its guard, so that a former holder has no way back. An
//! entry may keep the right to be written while stores are not allowed ([`KEEPS_WRITE`]): it gets
//! that as it gets `WRITABLE`, which it has again without another right, and loses both together.
//! The capability's name guards frames that are allocated, too; but what a builder enters into a
//! domain that is not to be its own afterwards is guarded by that domain's name.
//!
//! An item for several pages is as many items: each page is checked and applied before the next.
//! What is done once for all of them is finding the tables, and forgetting translations.

use self::pages::{Lost, Pages, open};
use self::whole::{
    check_reach, check_share, check_split, check_thaw, copy, enter_table, make_table, share, split,
    thaw,
};
use crate::answer::{Answer, Refusal};
use crate::chain::{self, Place};
use crate::frame::Contents;
use crate::index::{AccountIndex, DomainIndex};
use crate::machine::{Flush, Machine};
use crate::state::State;
use crate::table::{Leaf, Way, place, target};
use crate::work::{self, cost};
use crate::{account, alone, domain, fold, frame, revoke};
use abi::capability::{Capability, Name, READ, WRITE};
use abi::error::Error;
use abi::id::Frame;
use abi::layout::{PAGE_SIZE, is_user, table_index};
use abi::limits::{Resource, SHARE_COPIES};
use abi::memory::{
    ACCESSED, ANY_FRAME, CLEARED, DIRTY, ENTRY_CHOICE, Item, KEEPS_WRITE, LARGE, NO_EXECUTE,
    Operation, PRESENT, SOURCE, USER, WRITABLE,
};
use abi::published::FrameType;
use abi::word::{Which, Word};

mod memory_type;
mod pages;
#[cfg(test)]
mod tests;
mod whole;

/// Position of the items among the call's arguments: an item of a wrong form is the call's.
const ITEMS: u64 = 1;
/// What the kernel sets in an entry that leads to a table that is not frozen.
pub(crate) const TABLE_ENTRY: u64 = PRESENT | WRITABLE | USER | ACCESSED;
/// An entry with one of these has the right to be written.
const MAY_WRITE: u64 = WRITABLE | KEEPS_WRITE;

/// A checked item.
#[derive(Clone, Copy, Debug)]
enum Plan {
    /// Enter this free frame, with a copy of what is in `copied`.
    Allocate { place: Place, number: u32, choice: u64, contents: Contents, copied: Option<Frame> },
    /// Enter this frame.
    Map { place: Place, frame: Frame, choice: u64 },
    /// Leave a payload.
    Unmap { place: Place, level: u8, payload: u64 },
    /// Change choice bits; `adopt`: the frame's guard becomes the capability's name.
    Protect { place: Place, old: u64, choice: u64, adopt: bool },
    /// Enter an empty table made of this free frame and, at level 2, these links.
    Table { place: Place, level: u8, number: u32, links: u32 },
    /// Enter the table that `source` leads to.
    Share { place: Place, source: Place },
    /// Enter a copy of `shared`, with copies of what is writable in it, made of this free frame and
    /// these links.
    Copy { place: Place, shared: Frame, number: u32, links: u32 },
    /// Replace the frozen table by a copy made of these free frames.
    Split { place: Place, number: u32, links: u32 },
    /// Make the table changeable again.
    Thaw { place: Place },
    /// Put this large entry in the table's place.
    Fold { place: Place, large: u64 },
    /// Put this table back.
    Unfold { table: Frame },
    /// Give the frame that this entry maps another memory type.
    Type { place: Place, entry: u64 },
}

/// Who asks, for whom: the same for all items of a call.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    caller: DomainIndex,
    target: DomainIndex,
    root: Frame,
    capability: &'a Capability,
    /// What guards frames that are taken ([`domain::guard_of_frames`]).
    guard: Name,
    /// The item for one page.
    item: Item,
    /// What the item's source leads to.
    found: Option<Leaf>,
    /// Does the target keep its frames secret ([`frame::keep_secret`])?
    secret: bool,
}

impl<'a> Request<'a> {
    /// Items for the domain at index `target`; `capability` is the one the call names, `caller` the
    /// index of the caller's domain, which may change the target ([`domain::may_write`]).
    pub fn new(
        state: &State,
        caller: DomainIndex,
        target: DomainIndex,
        capability: &'a Capability,
    ) -> Self {
        let root = domain::root(state, target);
        let secret = state.domains.records[target].is_secret;
        let guard = domain::guard_of_frames(state, caller, target, capability);
        let item = Item::default();
        Self { caller, target, root, capability, guard, item, found: None, secret }
    }
}

/// Does one item of `TableUpdate`, for the pages behind the first `done` ones, as far as this hold
/// of the lock has room. Answers how many pages are done now (all: `more` + 1), and the old entry
/// of the last of them.
pub fn update_item<M: Machine>(
    state: &mut State,
    machine: &mut M,
    request: &mut Request,
    item: &Item,
    done: u32,
) -> (u32, Answer) {
    let mut lost = Lost::default();
    (request.item, request.found) = (*item, None);
    let updated = update_pages(state, machine, request, &mut lost, done);
    lost.forget(machine, request.root);
    updated
}

/// Does an item as the only one of its call.
pub fn update_alone<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (caller, target): (DomainIndex, DomainIndex),
    capability: &Capability,
    item: &Item,
    done: u32,
) -> (u32, Answer) {
    let mut request = Request::new(state, caller, target, capability);
    update_item(state, machine, &mut request, item, done)
}

fn update_pages<M: Machine>(
    state: &mut State,
    machine: &mut M,
    request: &mut Request,
    lost: &mut Lost,
    done: u32,
) -> (u32, Answer) {
    let begun = check_form(&request.item, done).and_then(|operation| {
        let Item { address, more, .. } = request.item;
        let last = address + u64::from(more) * PAGE_SIZE;
        if !is_user(address) || !is_user(last) {
            return Err(Error::BadAddress.into());
        }
        Ok(operation)
    });
    let operation = match begun {
        Ok(operation) => operation,
        Err(refusal) => return (done, Err(refusal)),
    };
    let Item { address, level, .. } = request.item;
    let address = address + u64::from(done) * PAGE_SIZE;
    let place = match place(machine, request.root, address, level, Way::Thawed) {
        Ok(place) => place,
        Err(refusal) => match open(state, machine, *request, operation, done, refusal) {
            Ok(Some(place)) => place,
            Ok(None) => return (done, Ok(0)),
            Err(refusal) => return (done, Err(refusal)),
        },
    };
    // One loop for each, in which the operation is known.
    let pages = Pages { next: place, done };
    match operation {
        Operation::Allocate => pages.update(state, machine, request, lost, Operation::Allocate),
        Operation::Map => pages.update(state, machine, request, lost, Operation::Map),
        Operation::Protect => pages.update(state, machine, request, lost, Operation::Protect),
        Operation::Unmap => pages.update(state, machine, request, lost, Operation::Unmap),
        above => pages.update(state, machine, request, lost, above),
    }
}

/// What an item costs at most ([`crate::work`]).
pub fn cost(item: &Item) -> u32 {
    match Operation::from_number(item.operation) {
        Some(Operation::Allocate) => cost::ENTRY + cost::ZERO,
        Some(Operation::Table) => cost::ENTRY + 2 * cost::ZERO,
        Some(Operation::Share) => {
            let copies = (item.value % PAGE_SIZE).min(SHARE_COPIES as u64);
            cost::SCAN + copies as u32 * (cost::ZERO + cost::LEAF)
        }
        Some(Operation::Thaw) => cost::SCAN,
        Some(Operation::Fold) => cost::FOLD,
        Some(Operation::Unfold) => cost::UNFOLD,
        Some(Operation::Split) => cost::COPY,
        Some(Operation::Map | Operation::Unmap | Operation::Protect | Operation::Type) | None => {
            cost::ENTRY
        }
    }
}

fn malformed() -> Refusal {
    Refusal::new(Error::BadArgument, ITEMS)
}

/// What an item asks for, if that can be, also of pages behind the first `done` ones.
fn check_form(item: &Item, done: u32) -> Result<Operation, Refusal> {
    let Item { operation, level, more, address, .. } = *item;
    let operation = Operation::from_number(operation).ok_or(malformed())?;
    let levels = match operation {
        Operation::Allocate | Operation::Map | Operation::Protect | Operation::Type => 1..=1,
        Operation::Unmap => 1..=4,
        Operation::Table => 2..=4,
        Operation::Share | Operation::Split | Operation::Thaw => 2..=2,
        Operation::Fold | Operation::Unfold => 2..=2,
    };
    let last = table_index(address, 1) + usize::from(more);
    let too_many = more != 0 && (level != 1 || last >= 512) || done > u32::from(more);
    if too_many || !levels.contains(&level) || !address.is_multiple_of(PAGE_SIZE) {
        return Err(malformed());
    }
    Ok(operation)
}

#[inline(always)]
fn check<M: Machine>(
    state: &State,
    machine: &M,
    request: &Request,
    operation: Operation,
    place: Place,
) -> Result<Plan, Refusal> {
    match operation {
        Operation::Allocate => check_allocate(state, request, place),
        Operation::Map => check_map(state, machine, request, place),
        Operation::Unmap => check_unmap(request, place),
        Operation::Protect => check_protect(state, machine, request, place),
        Operation::Table => check_table(state, machine, request, place),
        Operation::Share => check_share(state, machine, request, place),
        Operation::Split => check_split(state, machine, request, place),
        Operation::Thaw => check_thaw(state, machine, request, place),
        Operation::Fold | Operation::Unfold if request.item.value != 0 => Err(malformed()),
        Operation::Fold => {
            let large = fold::check(state, machine, place)?;
            let table = target(machine.entry(place.table, place.index));
            check_reach(machine, table, request.item.address)?;
            Ok(Plan::Fold { place, large })
        }
        Operation::Unfold => check_unfold(state, machine, place),
        Operation::Type => memory_type::check(state, machine, request, place),
    }
}

fn which(number: u32) -> Which {
    if number == ANY_FRAME { Which::Any } else { Which::This(number) }
}

fn payer(state: &State, request: &Request) -> AccountIndex {
    domain::account(state, request.target)
}

/// Takes a free frame for a page of the target's.
#[inline(always)]
fn take_page<M: Machine>(
    state: &mut State,
    machine: &mut M,
    request: &Request,
    number: u32,
    contents: Contents,
) -> Frame {
    let (account, name) = (payer(state, request), request.guard);
    let frame = frame::take(state, machine, number, account, name, FrameType::Data, contents);
    if request.secret {
        frame::keep_secret(state, frame);
    }
    frame
}

#[inline(always)]
fn check_allocate(state: &State, request: &Request, place: Place) -> Result<Plan, Refusal> {
    let Item { frame, value, .. } = request.item;
    if value & !(ENTRY_CHOICE | CLEARED | SOURCE) != 0 {
        return Err(malformed());
    }
    let copied = match source(value) {
        Some(_) => Some(request.found.ok_or(Error::BadAddress)?.frame),
        None => None,
    };
    if copied.is_some_and(|frame| frame::is_leaving(state, frame)) {
        return Err(Error::NotPermitted.into());
    }
    account::check(state, payer(state, request), Resource::Frames, 1)?;
    let number = frame::check_free(state, which(frame))?;
    let contents = match copied {
        Some(_) => Contents::Given,
        None if value & CLEARED != 0 => Contents::Zeros,
        None => Contents::Any,
    };
    Ok(Plan::Allocate { place, number, choice: value & ENTRY_CHOICE, contents, copied })
}

/// The address in an item's value, as the processor wants it: bit 47 repeated upwards.
fn source(value: u64) -> Option<u64> {
    let address = value & SOURCE;
    let sign = if address >> 47 != 0 { !0 << 48 } else { 0 };
    (address != 0).then_some(address | sign)
}

#[inline(always)]
fn check_map<M: Machine>(
    state: &State,
    machine: &M,
    request: &Request,
    place: Place,
) -> Result<Plan, Refusal> {
    let Item { frame: number, value, .. } = request.item;
    if value & !(ENTRY_CHOICE | SOURCE) != 0 {
        return Err(malformed());
    }
    let found = request.found;
    let frame = match (number, source(value)) {
        (ANY_FRAME, None) => return Err(malformed()),
        (ANY_FRAME, Some(_)) => found.ok_or(Error::BadAddress)?.frame,
        (number, _) => frame::named(state, number),
    };
    let write = value & MAY_WRITE != 0;
    check_mappable(state, frame, write)?;
    let copied = found.is_some_and(|leaf| leaf.frame == frame)
        && (!write || source_may_write(state, machine, request));
    let rights = if write { READ | WRITE } else { READ };
    if !copied && !request.capability.dominates(frame::guard(state, frame), rights) {
        return Err(Error::NotPermitted.into());
    }
    let choice = value & ENTRY_CHOICE | memory_type::of(state, frame);
    Ok(Plan::Map { place, frame, choice })
}

/// Has the entry at an item's source, which leads to a frame, the right to be written?
#[inline(always)]
fn source_may_write<M: Machine>(state: &State, machine: &M, request: &Request) -> bool {
    request.found.is_some_and(|leaf| leaf.writable || source_keeps(state, machine, request))
}

#[cold]
#[inline(never)]
fn source_keeps<M: Machine>(state: &State, machine: &M, request: &Request) -> bool {
    let root = domain::root(state, request.caller);
    let place = source(request.item.value).map(|from| place(machine, root, from, 1, Way::Thawed));
    place.is_some_and(|place| {
        place.is_ok_and(|at| machine.entry(at.table, at.index) & KEEPS_WRITE != 0)
    })
}

/// Does the frame's type allow it to be mapped?
fn check_mappable(state: &State, frame: Frame, write: bool) -> Result<(), Refusal> {
    match frame::kind(state, frame) {
        Some(FrameType::Data) => {}
        Some(FrameType::Image) if !write => {}
        None | Some(FrameType::Free | FrameType::Limbo | FrameType::Absent | FrameType::Kernel) => {
            return Err(Error::NoSuchFrame.into());
        }
        Some(_) => return Err(Error::WrongType.into()),
    }
    if frame::is_leaving(state, frame) {
        return Err(Error::NotPermitted.into());
    }
    Ok(())
}

#[inline(always)]
fn check_unmap(request: &Request, place: Place) -> Result<Plan, Refusal> {
    let Item { level, value, .. } = request.item;
    if value & PRESENT != 0 {
        return Err(malformed());
    }
    Ok(Plan::Unmap { place, level, payload: value })
}

#[inline(always)]
fn check_protect<M: Machine>(
    state: &State,
    machine: &M,
    request: &Request,
    place: Place,
) -> Result<Plan, Refusal> {
    let value = request.item.value;
    if value & !(ENTRY_CHOICE | SOURCE) != 0 {
        return Err(malformed());
    }
    let old = machine.entry(place.table, place.index);
    if old & PRESENT == 0 {
        return Err(Error::BadAddress.into());
    }
    let choice = value & ENTRY_CHOICE;
    let mut adopt = false;
    if choice & MAY_WRITE != 0 && old & MAY_WRITE == 0 {
        let frame = target(old);
        check_mappable(state, frame, true)?;
        let copied = request.found.is_some_and(|leaf| leaf.frame == frame)
            && source_may_write(state, machine, request);
        let capability = request.capability;
        if !copied && !capability.dominates(frame::guard(state, frame), READ | WRITE) {
            let record = &state.published.frames[frame.0 as usize];
            let alone = alone::is(state, frame)
                && AccountIndex::from(record.account) == payer(state, request)
                && capability.rights & WRITE != 0;
            if !alone {
                return Err(Error::NotPermitted.into());
            }
            adopt = true;
        }
    }
    Ok(Plan::Protect { place, old, choice, adopt })
}

fn check_table<M: Machine>(
    state: &State,
    machine: &M,
    request: &Request,
    place: Place,
) -> Result<Plan, Refusal> {
    if machine.entry(place.table, place.index) & PRESENT != 0 {
        return Err(Error::NotEmpty.into());
    }
    let Item { level, frame, value, .. } = request.item;
    let account = payer(state, request);
    let (number, links) = if level == 2 {
        let links = Which::from_word(value).ok_or(malformed())?;
        frame::check_pair(state, which(frame), links, account)?
    } else {
        account::check(state, account, Resource::Frames, 1)?;
        (frame::check_free(state, which(frame))?, 0)
    };
    Ok(Plan::Table { place, level, number, links })
}

fn check_unfold<M: Machine>(state: &State, machine: &M, place: Place) -> Result<Plan, Refusal> {
    let entry = machine.entry(place.table, place.index);
    if entry & PRESENT == 0 {
        Err(Refusal::new(Error::NoTable, 2))
    } else if entry & LARGE == 0 {
        Err(Error::WrongState.into())
    } else {
        Ok(Plan::Unfold { table: fold::behind(state, entry) })
    }
}

#[inline(always)]
fn apply<M: Machine>(
    state: &mut State,
    machine: &mut M,
    request: &Request,
    lost: &mut Lost,
    plan: Plan,
) -> u64 {
    match plan {
        Plan::Allocate { place, number, choice, contents, copied } => {
            // The reference that allocating gives is the entry's.
            let frame = take_page(state, machine, request, number, contents);
            if let Some(from) = copied {
                work::spend(state, cost::ZERO);
                machine.copy(frame.address(), from.address(), PAGE_SIZE as usize);
            }
            enter(state, machine, request, lost, place, frame, choice)
        }
        Plan::Map { place, frame, choice } => {
            frame::reference(state, frame);
            enter(state, machine, request, lost, place, frame, choice)
        }
        Plan::Unmap { place, level, payload } => {
            unmap(state, machine, request, lost, place, level, payload)
        }
        Plan::Protect { place, old, choice, adopt } => {
            if adopt {
                let record = &mut state.frames.records[target(old).0 as usize];
                record.guard = request.guard;
            }
            protect(machine, request, lost, place, old, choice)
        }
        Plan::Table { place, level, number, links } => {
            let table = make_table(state, machine, request, level, number, links);
            enter_table(state, machine, request, place, table.address() | TABLE_ENTRY)
        }
        Plan::Share { place, source } => share(state, machine, request, place, source),
        Plan::Copy { place, shared, number, links } => {
            copy(state, machine, request, place, shared, number, links)
        }
        Plan::Split { place, number, links } => {
            split(state, machine, request, place, number, links)
        }
        Plan::Thaw { place } => thaw(state, machine, place),
        Plan::Fold { place, large } => fold::fold(state, machine, request.root, place, large),
        Plan::Unfold { table } => fold::unfold_own(state, machine, request.root, table),
        Plan::Type { place, entry } => {
            memory_type::change(state, machine, request, lost, place, entry)
        }
    }
}

/// Enters a frame whose reference is already counted, in place of whatever was there.
#[inline(always)]
fn enter<M: Machine>(
    state: &mut State,
    machine: &mut M,
    request: &Request,
    lost: &mut Lost,
    place: Place,
    frame: Frame,
    choice: u64,
) -> u64 {
    let entry = frame.address() | PRESENT | USER | choice;
    let old = machine.entry_swap(place.table, place.index, entry);
    if old & PRESENT != 0 {
        forget(state, machine, request, lost, place, old);
    } else if revoke::is_remembered(state) {
        // Stores would go to what was revoked here.
        lost.add(request.item.address);
    }
    chain::insert(state, machine, place, frame);
    let record = &mut state.published.domains[request.target];
    record.entries = record.entries.wrapping_add(1);
    old
}

/// After a leaf has left its entry: its chain, the translations to it, its reference.
#[inline(always)]
fn forget<M: Machine>(
    state: &mut State,
    machine: &mut M,
    request: &Request,
    lost: &mut Lost,
    place: Place,
    old: u64,
) {
    lost.add(request.item.address);
    chain::remove(state, machine, place, target(old));
    frame::release(state, target(old));
    let record = &mut state.published.domains[request.target];
    record.entries = record.entries.wrapping_sub(1);
}

#[inline(always)]
fn unmap<M: Machine>(
    state: &mut State,
    machine: &mut M,
    request: &Request,
    lost: &mut Lost,
    place: Place,
    level: u8,
    payload: u64,
) -> u64 {
    let forced = if payload == 0 { 0 } else { state.published.directory.payload_forced };
    let old = machine.entry_swap(place.table, place.index, payload | forced);
    if payload != 0 {
        state.frames.records[place.table.0 as usize].mark(place.index);
    }
    if old & PRESENT == 0 {
        return old;
    }
    if level == 1 {
        forget(state, machine, request, lost, place, old);
    } else {
        machine.flush(Flush::Space(request.root));
        state.frames.records[place.table.0 as usize].discount_entry();
        let below = fold::left_by(state, old);
        frame::release(state, below);
        let record = &mut state.published.domains[request.target];
        record.tables = record.tables.saturating_sub(frames_of(level));
    }
    old
}

/// Frames of the table that an entry of `level` leads to.
fn frames_of(level: u8) -> u32 {
    if level == 2 { 2 } else { 1 }
}

#[inline(always)]
fn protect<M: Machine>(
    machine: &mut M,
    request: &Request,
    lost: &mut Lost,
    place: Place,
    old: u64,
    choice: u64,
) -> u64 {
    let entry = old & !ENTRY_CHOICE | choice;
    let old = machine.entry_swap(place.table, place.index, entry);
    let taken = old & !entry & (WRITABLE | ACCESSED | DIRTY) | entry & !old & NO_EXECUTE;
    if taken != 0 {
        lost.add(request.item.address);
    }
    old
}
