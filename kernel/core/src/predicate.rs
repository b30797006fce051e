//! Wakeup predicates: checked and pinned at download, evaluated without the space (xok97 XK-5).
//!
//! The translated atoms lie behind the vector state in the environment's own frame: each source
//! that is memory names a physical address, and the frame there has one more reference until the
//! next predicate has been accepted. Nothing in it is computed at evaluation. Most are compiled as
//! well ([`crate::compiled`]); what is here is the reference.

use crate::answer::{Answer, Refusal};
use crate::index::{AccountIndex, CpuIndex, DomainIndex, EnvIndex, RegionIndex};
use crate::machine::Machine;
use crate::region;
use crate::state::State;
use crate::work::{self, cost};
use crate::{account, compiled, domain, env, frame, gate, operate, table, visit};
use abi::error::Error;
use abi::id::{AccountId, Frame, RegionId};
use abi::layout::{PAGE_SIZE, PUBLISHED, PUBLISHED_SLOT, table_index};
use abi::limits::{PREDICATE_ATOMS, Resource};
use abi::memory::{ADDRESS, LARGE, PRESENT};
use abi::predicate::{Atom, Operator, Source};
use abi::published::{FrameType, Table};

/// Where the atoms begin in the environment's vector frame.
pub const OFFSET: u64 = 2816;
/// Bytes of an atom.
pub const ATOM_BYTES: usize = core::mem::size_of::<Atom>();
const _: () = assert!(OFFSET as usize + PREDICATE_ATOMS * ATOM_BYTES == PAGE_SIZE as usize);

/// The class that words of a frame fall into.
pub fn frame_bit(frame: Frame) -> u64 {
    1 << (frame.0.wrapping_mul(0x9e37_79b9) >> 26)
}

/// The class of a record of a published table that the kernel writes word by word.
pub fn published_bit(table: Table, index: usize) -> u64 {
    let number = index as u32 * 32 + table as u32;
    1 << (number.wrapping_mul(0x85eb_ca6b) >> 26)
}

/// One side of a translated atom: where the word is, whose frame it pins, what may change it.
#[derive(Clone, Copy, Debug, Default)]
struct Operand {
    value: u64,
    watched: u64,
}

/// `PredicateSet`: `bytes` holds `count` atoms.
pub fn set<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    count: u64,
    bytes: &[u8],
) -> Answer {
    visit::at_home(state, caller)?;
    if count > PREDICATE_ATOMS as u64 {
        return Err(Refusal::new(Error::TooLarge, PREDICATE_ATOMS as u64));
    }
    let count = count as usize;
    work::spend(state, cost::ATOM * (count as u32).max(state.envs.slots[caller].atoms.into()));
    let mut atoms = [Atom::default(); PREDICATE_ATOMS];
    let mut watched = 0;
    let mut pins = 0;
    for (at, chunk) in bytes.chunks_exact(ATOM_BYTES).take(count).enumerate() {
        let (atom, classes) = translate(state, machine, caller, read_atom(chunk))?;
        atoms[at] = atom;
        watched |= classes;
        pins += frames_of(state, &atom).into_iter().flatten().count() as u32;
    }
    let account = AccountId(state.published.envs[caller].account).into();
    account::charge(state, account, Resource::Pins, pins)?;
    bytes.chunks_exact(ATOM_BYTES).take(count).for_each(|chunk| note_records(state, chunk));
    for atom in &atoms[..count] {
        if let Ok(region) = region::find(state, RegionId(atom.region)) {
            state.regions.slots[region].watched = true;
        }
        for frame in frames_of(state, atom).into_iter().flatten() {
            frame::reference(state, frame);
            state.frames.records[frame.0 as usize].marks |= frame::WATCHED;
        }
    }
    clear(state, machine, caller);
    let base = state.envs.slots[caller].vector.address() + OFFSET;
    for (at, atom) in atoms[..count].iter().enumerate() {
        store(machine, base + (at * ATOM_BYTES) as u64, atom);
    }
    gate::close(state, caller);
    let env = &mut state.envs.slots[caller];
    env.atoms = count as u8;
    env.watched = watched;
    compiled::compile(state, machine, caller);
    Ok(0)
}

/// References of an environment's predicate, each of which is charged as a pin.
pub(crate) fn pins<M: Machine>(state: &State, machine: &M, index: EnvIndex) -> u32 {
    let atoms = 0..usize::from(state.envs.slots[index].atoms);
    let of = |at| frames_of(state, &load(state, machine, index, at)).into_iter().flatten().count();
    atoms.map(of).sum::<usize>() as u32
}

/// Drops the predicate of an environment that is not asleep on it, with its references.
pub fn clear<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) {
    let mut pins = 0;
    for at in 0..usize::from(state.envs.slots[index].atoms) {
        let atom = load(state, machine, index, at);
        for frame in frames_of(state, &atom).into_iter().flatten() {
            frame::release(state, frame);
            pins += 1;
        }
    }
    compiled::forget(state, index);
    let env = &mut state.envs.slots[index];
    env.atoms = 0;
    env.watched = 0;
    let account = AccountId(state.published.envs[index].account).into();
    account::uncharge(state, account, Resource::Pins, pins);
}

/// The frames that an environment's predicate refers to, one for each reference.
#[cfg(test)]
pub(crate) fn held<M: Machine>(state: &State, machine: &M, index: EnvIndex) -> Vec<Frame> {
    let atoms = 0..usize::from(state.envs.slots[index].atoms);
    atoms
        .flat_map(|at| frames_of(state, &load(state, machine, index, at)).into_iter().flatten())
        .collect()
}

/// A frame is revoked: what the predicate of the environment at `index` reads there counts as true.
pub fn revoke<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex, target: Frame) {
    work::spend(state, cost::LOOK);
    let class = frame_bit(target);
    if state.envs.slots[index].watched & class == 0 {
        return;
    }
    work::spend(state, cost::HOLDER);
    for at in 0..usize::from(state.envs.slots[index].atoms) {
        let atom = load(state, machine, index, at);
        let held = frames_of(state, &atom).into_iter().flatten();
        let reads = held.clone().any(|frame| frame == target);
        if !reads {
            continue;
        }
        let account = AccountId(state.published.envs[index].account).into();
        for frame in held {
            frame::release(state, frame);
            account::uncharge(state, account, Resource::Pins, 1);
        }
        compiled::forget(state, index);
        let base = state.envs.slots[index].vector.address() + OFFSET;
        let always = Atom { operator: Operator::Equal as u8, last: atom.last, ..Atom::default() };
        store(machine, base + (at * ATOM_BYTES) as u64, &always);
    }
    crate::sched::touched(state, class);
}

/// What a look at a sleeper costs at most: at its predicate, or at the region that it waits for.
pub(crate) fn cost(state: &State, index: EnvIndex) -> u32 {
    let env = &state.envs.slots[index];
    let (look, each) = match env.cell {
        0 => (cost::PREDICATE, cost::COMPARISON),
        _ => (cost::COMPILED, cost::COMPILED / 5),
    };
    look + each * u32::from(env.atoms)
}

/// Does the predicate of an environment hold?
pub fn holds<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) -> bool {
    let cpu = CpuIndex::from(state.published.envs[index].cpu);
    state.published.cpus[cpu].predicates += 1;
    compiled::holds(state, machine, index).unwrap_or_else(|| interpret(state, machine, index))
}

/// As [`holds`], atom by atom.
#[cold]
#[inline(never)]
fn interpret<M: Machine>(state: &State, machine: &M, index: EnvIndex) -> bool {
    let env = &state.envs.slots[index];
    let base = env.vector.address() + OFFSET;
    // One time for all comparisons, asked for by the first.
    let mut now = None;
    let mut term = true;
    for at in 0..usize::from(env.atoms) {
        let place = base + (at * ATOM_BYTES) as u64;
        if term {
            let atom = load_from(machine, place);
            term = compare(state, machine, &atom, &mut now);
        }
        let [_, _, _, last, ..] = machine.word(place).to_le_bytes();
        if last != 0 {
            if term {
                return true;
            }
            term = true;
        }
    }
    false
}

/// When a comparison with the clock may next change the predicate, 0: never.
pub fn next_edge<M: Machine>(state: &State, machine: &M, index: EnvIndex) -> u64 {
    let now = machine.now_ns();
    let mut soonest = u64::MAX;
    for at in 0..usize::from(state.envs.slots[index].atoms) {
        let atom = load(state, machine, index, at);
        let other = match (Source::from_number(atom.left), Source::from_number(atom.right)) {
            (Some(Source::Clock), right) => (right, atom.right_value),
            (left, Some(Source::Clock)) => (left, atom.left_value),
            _ => continue,
        };
        let edge = match other {
            (Some(Source::Constant), value) if atom.mask == 0 => value,
            // What the clock is compared with may change: look again at the next slice's distance.
            _ => now + abi::limits::SLICE_NS,
        };
        // Equality with one nanosecond ends right behind it.
        if edge > now {
            soonest = soonest.min(edge);
        }
    }
    if soonest == u64::MAX { 0 } else { soonest }
}

fn compare<M: Machine>(state: &State, machine: &M, atom: &Atom, now: &mut Option<u64>) -> bool {
    if atom.region != 0 && region::find(state, RegionId(atom.region)).is_err() {
        return true;
    }
    let mask = if atom.mask == 0 { u64::MAX } else { atom.mask };
    let left = word(machine, atom.left, atom.left_value, now) & mask;
    let right = word(machine, atom.right, atom.right_value, now) & mask;
    match Operator::from_number(atom.operator) {
        Some(Operator::Equal) => left == right,
        Some(Operator::NotEqual) => left != right,
        Some(Operator::Below) => left < right,
        Some(Operator::AtLeast) => left >= right,
        None => true,
    }
}

#[inline]
fn word<M: Machine>(machine: &M, source: u8, value: u64, now: &mut Option<u64>) -> u64 {
    match Source::from_number(source) {
        Some(Source::Memory) | Some(Source::Region) => machine.word(value),
        Some(Source::Memory32) => {
            machine.word(value & !7) >> (8 * (value & 4)) & u64::from(u32::MAX)
        }
        Some(Source::Clock) => *now.get_or_insert_with(|| machine.now_ns()),
        Some(Source::Constant) | None => value,
    }
}

/// The frames that a translated atom keeps: not the kernel's own, and not a region's, which are
/// looked at only while the region is there. They would stay charged to whoever made the region,
/// for as long as somebody else likes.
fn frames_of(state: &State, atom: &Atom) -> [Option<Frame>; 2] {
    let sides = [(atom.left, atom.left_value), (atom.right, atom.right_value)];
    sides.map(|(source, value)| match Source::from_number(source) {
        Some(Source::Memory | Source::Memory32) => {
            let frame = Frame::containing(value);
            let kernel = frame::kind(state, frame) == Some(FrameType::Kernel);
            (!kernel).then_some(frame)
        }
        _ => None,
    })
}

/// Checks an atom and replaces its addresses by physical ones.
fn translate<M: Machine>(
    state: &State,
    machine: &M,
    caller: EnvIndex,
    atom: Atom,
) -> Result<(Atom, u64), Refusal> {
    if Operator::from_number(atom.operator).is_none() {
        return Err(Error::BadArgument.into());
    }
    let left = operand(state, machine, caller, &atom, atom.left, atom.left_value)?;
    let right = operand(state, machine, caller, &atom, atom.right, atom.right_value)?;
    let sources = [Source::from_number(atom.left), Source::from_number(atom.right)];
    let region = if sources.contains(&Some(Source::Region)) { atom.region } else { 0 };
    let translated = Atom { left_value: left.value, right_value: right.value, region, ..atom };
    Ok((translated, left.watched | right.watched))
}

fn operand<M: Machine>(
    state: &State,
    machine: &M,
    caller: EnvIndex,
    atom: &Atom,
    source: u8,
    value: u64,
) -> Result<Operand, Refusal> {
    let at = |physical: u64, watched: u64| Operand { value: physical, watched };
    match Source::from_number(source).ok_or(Error::BadArgument)? {
        Source::Constant | Source::Clock => Ok(at(value, 0)),
        Source::Memory => memory(state, machine, caller, value, 8),
        Source::Memory32 => memory(state, machine, caller, value, 4),
        Source::Region => {
            let index = region::find(state, RegionId(atom.region))?;
            let domain = DomainIndex::from(env::domain(state, caller));
            if !region::attached_any(state, domain, index) {
                return Err(Error::NotPermitted.into());
            }
            operate::check_word(state, index, value)?;
            let physical = region::physical(state, index, value);
            let class = frame_bit(Frame::containing(physical));
            Ok(at(physical, class | published_bit(Table::Regions, index.at())))
        }
    }
}

/// A word of the caller's own space or of the published pages.
fn memory<M: Machine>(
    state: &State,
    machine: &M,
    caller: EnvIndex,
    address: u64,
    align: u64,
) -> Result<Operand, Refusal> {
    if !address.is_multiple_of(align) {
        return Err(Error::BadAddress.into());
    }
    if (PUBLISHED..abi::layout::LIBRARY).contains(&address) {
        let physical = published_physical(machine, address).ok_or(Error::BadAddress)?;
        let frame = Frame::containing(physical);
        may_keep(state, caller, frame)?;
        // The revocation may have passed the caller.
        if frame::is_leaving(state, frame) {
            return Err(Error::BadAddress.into());
        }
        return Ok(Operand { value: physical, watched: published_class(state, address) });
    }
    let root = domain::root(state, env::domain(state, caller).into());
    let leaf = table::walk(state, machine, root, address, false).ok_or(Error::BadAddress)?;
    let physical = leaf.frame.address() + address % PAGE_SIZE;
    Ok(Operand { value: physical, watched: frame_bit(leaf.frame) })
}

/// May the caller's predicate name a word of this published frame? What a program shows stays its
/// account's while a predicate names it, whatever becomes of the program: so no other account's
/// predicate may.
fn may_keep(state: &State, caller: EnvIndex, frame: Frame) -> Result<(), Refusal> {
    let own = AccountIndex::from(AccountId(state.published.envs[caller].account));
    let strange = || state.published.frames[frame.0 as usize].account != own.link();
    if frame::kind(state, frame) == Some(FrameType::Data) && strange() {
        return Err(Error::NotPermitted.into());
    }
    Ok(())
}

/// The class of the published record at an address.
fn published_class(state: &State, address: u64) -> u64 {
    match record_at(state, address) {
        Some((table, index)) => published_bit(table, index),
        None => frame_bit(Frame::containing(address & 0xffff_ffff_ffff)),
    }
}

/// The published record at an address, of a table whose records have classes of their own.
fn record_at(state: &State, address: u64) -> Option<(Table, usize)> {
    [Table::Envs, Table::Regions].into_iter().find_map(|table| {
        let info = &state.published.directory.tables[table as usize];
        let bytes = u64::from(info.stride) * u64::from(info.count);
        let inside = address >= info.address && address - info.address < bytes;
        inside.then(|| (table, ((address - info.address) / u64::from(info.stride)) as usize))
    })
}

/// Notes of which environments and regions an atom of the caller's, checked before, names the
/// published records.
fn note_records(state: &mut State, chunk: &[u8]) {
    let atom = read_atom(chunk);
    for (source, value) in [(atom.left, atom.left_value), (atom.right, atom.right_value)] {
        let memory = [Source::Memory as u8, Source::Memory32 as u8].contains(&source);
        match record_at(state, value).filter(|_| memory) {
            Some((Table::Regions, index)) => {
                state.regions.slots[RegionIndex::new(index)].record_watched = true;
            }
            Some((_, index)) => {
                state.envs.slots[EnvIndex::new(index)].marks |= env::RECORD_WATCHED;
            }
            None => {}
        }
    }
}

/// Walks the kernel's own entry for the published pages (2 MiB ones, or of any size).
fn published_physical<M: Machine>(machine: &M, address: u64) -> Option<u64> {
    let mut entry = machine.kernel_entry(PUBLISHED_SLOT);
    for level in (1..=3u8).rev() {
        if entry & PRESENT == 0 {
            return None;
        }
        entry = machine.entry(Frame::containing(entry & ADDRESS), table_index(address, level));
        let bits = 12 + 9 * (u32::from(level) - 1);
        if level == 1 || entry & LARGE != 0 {
            let offset = address & ((1 << bits) - 1);
            let base = entry & ADDRESS & !((1 << bits) - 1);
            return (entry & PRESENT != 0).then_some(base + offset);
        }
    }
    None
}

fn read_atom(bytes: &[u8]) -> Atom {
    decode([0, 8, 16, 24, 32].map(|at| crate::bytes::u64_at(bytes, at)))
}

#[inline]
fn decode([first, region, left_value, right_value, mask]: [u64; 5]) -> Atom {
    let [operator, left, right, last, ..] = first.to_le_bytes();
    Atom { operator, left, right, last, zero: 0, region, left_value, right_value, mask }
}

pub(crate) fn load<M: Machine>(state: &State, machine: &M, index: EnvIndex, at: usize) -> Atom {
    let base = state.envs.slots[index].vector.address() + OFFSET + (at * ATOM_BYTES) as u64;
    load_from(machine, base)
}

#[inline]
fn load_from<M: Machine>(machine: &M, place: u64) -> Atom {
    decode([0, 8, 16, 24, 32].map(|at| machine.word(place + at)))
}

fn store<M: Machine>(machine: &mut M, at: u64, atom: &Atom) {
    let first = u64::from(atom.operator)
        | u64::from(atom.left) << 8
        | u64::from(atom.right) << 16
        | u64::from(atom.last) << 24;
    let words = [first, atom.region, atom.left_value, atom.right_value, atom.mask];
    for (place, word) in words.into_iter().enumerate() {
        machine.word_set(at + 8 * place as u64, word);
    }
}
