//! Slice positions: who owns which, where an environment is at home (aegis95 S28, thesis98 C-1).
//!
//! A position belongs to one environment; those of its account that are made by it share its turn
//! until they are given a position of their own. Those of another account are in that one's common
//! place ([`crate::turns`]). An environment's first position becomes its home, where its ring is;
//! more are turns of its own. When an owner dies its home passes to one of those who share it.

use crate::account;
use crate::answer::{Answer, Refusal};
use crate::count::Count;
use crate::env;
use crate::gate;
use crate::index::{AccountIndex, CpuIndex, EnvIndex};
use crate::list::{self, Kind};
use crate::machine::Machine;
use crate::sched;
use crate::state::State;
use crate::sweep;
use crate::turns::{self, COMMON, account_of};
use crate::work::cost;
use abi::error::Error;
use abi::id::EnvId;
use abi::limits::{CPUS, Resource, SLICES};
use abi::published::EnvState;
use abi::word::Which;

/// The first environment's index: whoever of its account has no position shares its home.
const FIRST: EnvIndex = EnvIndex::new(1);

fn slot(cpu: CpuIndex, position: usize) -> usize {
    cpu.at() * SLICES + position
}

/// All positions of all processors.
fn all_positions() -> impl Iterator<Item = (CpuIndex, usize)> {
    (0..CPUS * SLICES).map(|at| (CpuIndex::new(at / SLICES), at % SLICES))
}

/// Tells the scheduler of a processor that has arrived: its slices may be given out.
pub fn start_cpu(state: &mut State, cpu: CpuIndex) {
    if !core::mem::replace(&mut state.sched.cpus[cpu].online, true) {
        state.sched.online += 1;
        account::add(state, Resource::Slices, SLICES as u32);
    }
}

/// The index of the environment that owns a position, 0: it is free.
pub fn owner(state: &State, cpu: CpuIndex, position: usize) -> EnvIndex {
    if position == COMMON {
        return EnvIndex::NONE;
    }
    EnvId(state.published.slices[slot(cpu, position)].env).into()
}

/// As [`owner`], but 0 where the owner is at home, as its turn is in the ring.
pub fn extra_owner(state: &State, cpu: CpuIndex, position: usize) -> EnvIndex {
    let index = owner(state, cpu, position);
    if at_home(state, index, cpu, position) { EnvIndex::NONE } else { index }
}

fn at_home(state: &State, index: EnvIndex, cpu: CpuIndex, position: usize) -> bool {
    let env = &state.envs.slots[index];
    CpuIndex::from(env.cpu) == cpu && usize::from(env.position) == position
}

/// Lets a new environment share the home of another one, if that is of the same account.
pub fn share(state: &mut State, index: EnvIndex, with: EnvIndex) {
    let (cpu, position) = (state.envs.slots[with].cpu, state.envs.slots[with].position);
    let same = account_of(state, index) == account_of(state, with);
    let position = if same { position } else { COMMON as u8 };
    let env = &mut state.envs.slots[index];
    (env.cpu, env.position) = (cpu, position);
    if usize::from(position) == COMMON {
        return;
    }
    state.published.slices[slot(cpu.into(), usize::from(position))].sharers += 1;
    if is_ownerless(state, index) {
        // It may have been passed already by who looks for an heir.
        sweep::look_for_bereaved(state, account_of(state, index));
    }
}

/// Makes a free position, paid for, the home of an environment that has none or shares one.
pub fn settle(state: &mut State, index: EnvIndex, cpu: CpuIndex, position: usize) {
    rehome(state, index, |state| {
        let env = &mut state.envs.slots[index];
        (env.cpu, env.position) = (cpu.at() as u8, position as u8);
        let id = env::id(state, index).0;
        let record = &mut state.published.slices[slot(cpu, position)];
        if record.env != id {
            state.envs.slots[index].owned += 1;
        }
        record.env = id;
        record.sharers = 1;
        // Its turn is in the ring from now on.
        vacate_if_empty(state, index, cpu, position);
    });
}

/// A position without an owner further than at home is in the round while its ring has members.
fn vacate_if_empty(state: &mut State, index: EnvIndex, cpu: CpuIndex, position: usize) {
    if state.sched.cpus[cpu].rings[position] == 0 {
        let account = account_of(state, index);
        turns::vacate(state, cpu, account, position);
    }
}

/// `SliceAlloc`.
pub fn allocate<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    capability: u8,
    cpu: CpuIndex,
    which: Which,
    id: EnvId,
) -> Answer {
    if cpu.at() >= CPUS || !state.sched.cpus[cpu].online {
        return Err(Error::NoSuchDevice.into());
    }
    let index = env::controlled(state, caller, capability, id)?;
    if state.envs.slots[index].state == EnvState::Dead {
        return Err(Error::NoSuchEnv.into());
    }
    let position = free_position(state, cpu, which)?;
    account::charge(state, account_of(state, index), Resource::Slices, 1)?;
    let env = &state.envs.slots[index];
    let (home_cpu, home) = (CpuIndex::from(env.cpu), usize::from(env.position));
    if owner(state, home_cpu, home) == index {
        let id = env::id(state, index).0;
        let record = &mut state.published.slices[slot(cpu, position)];
        (record.env, record.sharers) = (id, 1);
        state.envs.slots[index].owned += 1;
        let account = account_of(state, index);
        turns::occupy(state, cpu, account, position);
    } else {
        leave_home(state, home_cpu, home);
        settle(state, index, cpu, position);
    }
    if state.sched.cpus[cpu].current == 0 {
        machine.interrupt(cpu);
    }
    Ok(position as u64)
}

fn free_position(state: &State, cpu: CpuIndex, which: Which) -> Result<usize, Refusal> {
    match which {
        Which::This(position) if position as usize >= SLICES => Err(Error::NoSuchDevice.into()),
        Which::This(position) if is_taken(state, cpu, position as usize) => {
            Err(Error::Taken.into())
        }
        Which::This(position) => Ok(position as usize),
        Which::Any => (0..SLICES)
            .find(|&position| !is_taken(state, cpu, position))
            .ok_or(Error::Exhausted.into()),
    }
}

/// Is there an owner, or somebody who may become it?
fn is_taken(state: &State, cpu: CpuIndex, position: usize) -> bool {
    let record = &state.published.slices[slot(cpu, position)];
    record.env != 0 || record.sharers != 0
}

/// `SliceFree`. A home goes to one of those who share it; who has no other position shares the
/// first environment's, which cannot give up its last one.
pub fn free(
    state: &mut State,
    caller: EnvIndex,
    capability: u8,
    cpu: CpuIndex,
    position: usize,
) -> Answer {
    if cpu.at() >= CPUS || position >= SLICES || !state.sched.cpus[cpu].online {
        return Err(Error::NoSuchDevice.into());
    }
    let index = owner(state, cpu, position);
    if index == EnvIndex::NONE {
        return Err(Error::NoSuchDevice.into());
    }
    env::controlled(state, caller, capability, env::id(state, index))?;
    if !at_home(state, index, cpu, position) {
        release(state, index, cpu, position);
        return Ok(0);
    }
    match another_home(state, index) {
        Some((cpu_next, position_next)) => settle(state, index, cpu_next, position_next),
        None if index == FIRST => return Err(Refusal::new(Error::BadArgument, 1)),
        None => rehome(state, index, |state| share(state, index, FIRST)),
    }
    pass_on(state, index, cpu, position);
    Ok(0)
}

fn home_owned(state: &State, index: EnvIndex) -> u16 {
    let env = &state.envs.slots[index];
    u16::from(owner(state, env.cpu.into(), env.position.into()) == index)
}

/// What [`drop_all`] costs at most, beside the end of an environment that has no more than a home.
pub(crate) fn cost(state: &State, index: EnvIndex) -> u32 {
    let more = state.envs.slots[index].owned > home_owned(state, index);
    if more { cost::LOOK * (CPUS * SLICES) as u32 } else { 0 }
}

/// Gives up everything a dying environment has of the processors; it is in no ring any more.
pub fn drop_all(state: &mut State, index: EnvIndex) {
    let env = &state.envs.slots[index];
    let (home_cpu, home) = (CpuIndex::from(env.cpu), usize::from(env.position));
    let home_owned = home_owned(state, index);
    for (cpu, position) in all_positions() {
        if state.envs.slots[index].owned <= home_owned {
            break;
        }
        if owner(state, cpu, position) == index && (cpu, position) != (home_cpu, home) {
            release(state, index, cpu, position);
        }
    }
    if owner(state, home_cpu, home) == index {
        pass_on(state, index, home_cpu, home);
    } else {
        leave_home(state, home_cpu, home);
    }
}

/// One fewer shares a position.
fn leave_home(state: &mut State, cpu: CpuIndex, position: usize) {
    if position != COMMON {
        state.published.slices[slot(cpu, position)].sharers.less(1);
    }
}

/// Frees a position that is no ring's.
fn release(state: &mut State, index: EnvIndex, cpu: CpuIndex, position: usize) {
    account::uncharge(state, account_of(state, index), Resource::Slices, 1);
    state.envs.slots[index].owned.less(1);
    let record = &mut state.published.slices[slot(cpu, position)];
    record.env = 0;
    record.sharers = 0;
    vacate_if_empty(state, index, cpu, position);
}

/// The owner leaves its home: the first of those who share it that can pay for it has it from now
/// on. They are looked for one after the other ([`crate::sweep`]); whoever cannot pay and is looked
/// at before moves to the first environment's. Until then nobody else is given the position.
fn pass_on(state: &mut State, index: EnvIndex, cpu: CpuIndex, position: usize) {
    let mut sharers = state.published.slices[slot(cpu, position)].sharers;
    sharers.less(1);
    release(state, index, cpu, position);
    if sharers != 0 {
        state.published.slices[slot(cpu, position)].sharers = sharers;
        sweep::look_for_bereaved(state, account_of(state, index));
    }
}

/// Has the home of an environment no owner any more?
pub(crate) fn is_ownerless(state: &State, index: EnvIndex) -> bool {
    let env = &state.envs.slots[index];
    let position = usize::from(env.position);
    position != COMMON && owner(state, env.cpu.into(), position) == EnvIndex::NONE
}

/// The environment at `index`, which lives, has its home from now on, or another one.
pub(crate) fn inherit(state: &mut State, index: EnvIndex) {
    let env = &state.envs.slots[index];
    let (cpu, position) = (CpuIndex::from(env.cpu), usize::from(env.position));
    let payer = account_of(state, index);
    if account::charge(state, payer, Resource::Slices, 1).is_ok() {
        state.published.slices[slot(cpu, position)].env = env::id(state, index).0;
        state.envs.slots[index].owned += 1;
    } else {
        state.published.slices[slot(cpu, position)].sharers.less(1);
        rehome(state, index, |state| share(state, index, FIRST));
    }
}

/// Has the environment at `index` its home for itself, and no other position?
pub(crate) fn is_alone_at_home(state: &State, index: EnvIndex) -> bool {
    let env = &state.envs.slots[index];
    let (cpu, position) = (CpuIndex::from(env.cpu), usize::from(env.position));
    env.owned == 1
        && owner(state, cpu, position) == index
        && state.published.slices[slot(cpu, position)].sharers == 1
}

/// An environment is another account's from now on, which has been charged for it: its turns are
/// that one's. It `takes` its position along, or leaves what it has to those who shared it.
pub(crate) fn change_account(state: &mut State, index: EnvIndex, to: AccountIndex, takes: bool) {
    rehome(state, index, |state| {
        if !takes {
            drop_all(state, index);
            state.envs.slots[index].position = COMMON as u8;
        }
        state.published.envs[index].account = state.published.accounts[to].id;
    });
}

/// Changes an environment's home without taking it out of the running order.
fn rehome(state: &mut State, index: EnvIndex, change: impl FnOnce(&mut State)) {
    gate::close(state, index);
    let queued = list::contains(&state.envs.slots, Kind::Ring, index);
    sched::dequeue(state, index);
    change(state);
    if queued {
        sched::enqueue(state, index);
        sched::kick(state, index);
    }
}

/// Another position that the environment owns.
fn another_home(state: &State, index: EnvIndex) -> Option<(CpuIndex, usize)> {
    all_positions().find(|&(cpu, position)| {
        owner(state, cpu, position) == index && !at_home(state, index, cpu, position)
    })
}
