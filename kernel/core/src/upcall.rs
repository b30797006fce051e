//! Delivery of faults and events into the save area (decisions 4, aegis95 S29, S32).
//!
//! Delivery writes the save area, by physical address, and the context, nothing else. The words
//! of the save area are the program's: each is read once, and used only where any value is safe.

use crate::context::{FIXED_FLAGS, USER_FLAGS};
use crate::env;
use crate::exit::CLEARED_FLAGS;
use crate::index::{CpuIndex, EnvIndex};
use crate::machine::Machine;
use crate::sched;
use crate::state::State;
use crate::visit;
use abi::limits::UPCALL_DEPTH;
use abi::published::EnvState;
use abi::trace::{Event, Kind};
use abi::upcall::{Cause, Slot, offset};

/// Flags of the program's that its handler starts with, and those that are always set.
pub const HANDLER_FLAGS: u32 = (USER_FLAGS & !CLEARED_FLAGS | FIXED_FLAGS) as u32;
const SLOT_BYTES: u64 = core::mem::size_of::<Slot>() as u64;

/// What is delivered.
#[derive(Clone, Copy, Debug)]
struct Upcall {
    entry: u64,
    cause: u64,
    error: u64,
    address: u64,
}

/// Delivers a synchronous fault to the environment at `index`, running on this processor: its
/// context is rewritten to enter the fault handler. `false`: no handler could be entered; it has
/// stopped, or was away and has come home. `error` is the processor's error code, `address` the
/// faulting one of a page fault. `pick` follows.
pub fn deliver_fault<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: EnvIndex,
    cause: u8,
    error: u64,
    address: u64,
) -> bool {
    let cpu = CpuIndex::from(state.published.envs[index].cpu);
    state.published.envs[index].entries += 1;
    state.published.cpus[cpu].faults += 1;
    if visit::is_away(state, index) {
        visit::end_by_fault(state, machine, index, cause);
        return false;
    }
    let entry = state.envs.slots[index].entries.fault;
    let upcall = Upcall { entry, cause: u64::from(cause), error, address };
    let delivered = match env::save_area(state, index) {
        Some(area) => deliver(machine, index, area, &upcall),
        None => false,
    };
    if delivered {
        state.published.envs[index].upcalls += 1;
        let env = state.published.envs[index].id;
        machine.trace(Event::new(Kind::Upcall, u16::from(cause), env));
    } else {
        stop(state, machine, cpu, index, cause);
    }
    delivered
}

/// Enters the event handler if an event waits and none is masked. `sched::pick` does this for whom
/// it picks.
pub fn deliver_events<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) -> bool {
    let entry = state.envs.slots[index].entries.event;
    let Some((address, physical)) = env::save_area(state, index) else { return false };
    let word = |at: usize| machine.word(physical + at as u64);
    let waiting = word(offset::PENDING) | word(offset::EVENTS);
    if entry == 0 || waiting == 0 || word(offset::MASK) != 0 {
        return false;
    }
    let upcall = Upcall { entry, cause: Cause::Event as u64, error: 0, address: 0 };
    // With all slots in use the bits stay where they are.
    if usable_slot(machine, physical).is_none()
        && chained(machine, index, address, physical).is_none()
    {
        return false;
    }
    let delivered = deliver(machine, index, (address, physical), &upcall);
    let cpu = CpuIndex::from(state.published.envs[index].cpu);
    state.published.envs[index].upcalls += u64::from(delivered);
    state.published.cpus[cpu].events += u64::from(delivered);
    if delivered {
        let env = state.published.envs[index].id;
        machine.trace(Event::new(Kind::Upcall, Cause::Event as u16, env));
    }
    delivered
}

/// Is there a bit that [`deliver_events`] may have to deliver?
#[inline(always)]
pub fn event_waits<M: Machine>(state: &State, machine: &M, index: EnvIndex) -> bool {
    env::save_area(state, index).is_some_and(|(_, physical)| {
        let word = |at: usize| machine.word(physical + at as u64);
        word(offset::PENDING) | word(offset::EVENTS) != 0
    })
}

/// Does the environment keep asynchronous events waiting?
pub fn masked<M: Machine>(state: &State, machine: &M, index: EnvIndex) -> bool {
    env::save_area(state, index)
        .is_some_and(|(_, physical)| machine.word(physical + offset::MASK as u64) != 0)
}

fn usable_slot<M: Machine>(machine: &M, physical: u64) -> Option<u64> {
    let depth = machine.word(physical + offset::DEPTH as u64);
    (depth < UPCALL_DEPTH as u64).then_some(depth)
}

/// The slot whose way back was interrupted, if the program is in the return sequence.
fn chained<M: Machine>(
    machine: &mut M,
    index: EnvIndex,
    address: u64,
    physical: u64,
) -> Option<u64> {
    let rip = machine.context(index.at()).rip;
    let word = |at: usize| machine.word(physical + at as u64);
    let returning = word(offset::RETURNING);
    let inside = rip >= word(offset::RETURN_FIRST) && rip < word(offset::RETURN_LAST);
    if !inside || returning & 1 == 0 {
        return None;
    }
    let first = address + offset::SLOTS as u64;
    let distance = (returning - 1).checked_sub(first)?;
    let slot = distance / SLOT_BYTES;
    (distance.is_multiple_of(SLOT_BYTES) && slot < UPCALL_DEPTH as u64).then_some(slot)
}

/// Writes the slot and turns the context to the handler; `false` if there is no entry or no slot
/// (the frame is then in the last slot).
fn deliver<M: Machine>(
    machine: &mut M,
    index: EnvIndex,
    (address, physical): (u64, u64),
    upcall: &Upcall,
) -> bool {
    let chained = chained(machine, index, address, physical);
    let slot = match chained {
        Some(slot) => slot,
        None => {
            let usable = usable_slot(machine, physical);
            let slot = usable.unwrap_or(UPCALL_DEPTH as u64 - 1);
            write_slot(machine, index, physical, slot, upcall);
            if usable.is_none() || upcall.entry == 0 {
                return false;
            }
            machine.word_set(physical + offset::RETURNING as u64, 0);
            slot
        }
    };
    if upcall.entry == 0 {
        return false;
    }
    machine.word_set(physical + offset::DEPTH as u64, slot + 1);
    machine.word_set(physical + offset::MASK as u64, 1);
    let context = machine.context(index.at());
    context.rdi = address + offset::SLOTS as u64 + slot * SLOT_BYTES;
    context.rsi = upcall.cause;
    context.rdx = upcall.address;
    context.rip = upcall.entry;
    context.rflags = clean(context.rflags) & !CLEARED_FLAGS;
    context.rcx = context.rip;
    context.r11 = context.rflags;
    true
}

fn write_slot<M: Machine>(
    machine: &mut M,
    index: EnvIndex,
    physical: u64,
    slot: u64,
    upcall: &Upcall,
) {
    let at = physical + offset::SLOTS as u64 + slot * SLOT_BYTES;
    let mask = machine.word(physical + offset::MASK as u64);
    let context = machine.context(index.at());
    let words = [
        context.rip,
        context.rflags,
        context.rsp,
        context.rdi,
        context.rsi,
        context.rdx,
        context.rcx,
        context.r11,
        upcall.cause,
        upcall.error,
        upcall.address,
        mask,
    ];
    machine.words_set(at, &words);
}

/// The flags as a program may have them.
pub fn clean(flags: u64) -> u64 {
    flags & USER_FLAGS | FIXED_FLAGS
}

/// No handler can be entered: the environment stops, for whoever holds it to repair or destroy.
fn stop<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex, index: EnvIndex, cause: u8) {
    if EnvIndex::from(state.sched.cpus[cpu].current) == index {
        sched::leave(state, machine, cpu);
    }
    sched::dequeue(state, index);
    state.published.envs[index].cause = u32::from(cause);
    env::set_state(state, index, EnvState::Stopped);
    env::tell_holder(state, machine, index);
}
