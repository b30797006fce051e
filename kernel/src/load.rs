//! What a processor has loaded: registers, space, and what entry code needs of who runs.
//!
//! # Safety
//! Loads roots that `kernel_core` says are live domains' roots, each with the kernel's own half.
#![allow(unsafe_code)]

use kernel_core::context::FRAME_END;
use kernel_core::index::EnvIndex;
use kernel_core::machine::Machine;
use kernel_core::state::State;
use kernel_core::{domain, env, gate};

use abi::id::DomainId;

use crate::cpu::Cpu;
use crate::hardware::{self, EntryData, FAULTS_AT_LENGTH, Hardware, Slot};
use crate::registers::{read_cr3, write_cr3};
use crate::{bases, mitigate, physical, shootdown, trace, vector};

/// Loads a space: of what runs, or of what is about to.
#[inline(always)]
pub fn load_root(cpu: &Cpu, root: u64) {
    // What is loaded is asked of the processor: entry code loads others, too.
    if read_cr3() != root {
        // SAFETY: see the file's head.
        unsafe { write_cr3(root) }
        cpu.cr3_loads.set(cpu.cr3_loads.get().wrapping_add(1));
        shootdown::loaded(cpu.index.get(), root);
    }
}

/// Makes `index` the environment that is loaded, whatever was before.
#[inline(never)]
pub fn activate(cpu: &'static Cpu, state: &mut State, hardware: &mut Hardware, index: EnvIndex) {
    if cpu.loaded() != Some(index) {
        put_away(cpu, state, hardware);
        if let Some(area) = env::vector(state, index) {
            let flags = state.envs.slots[index].flags;
            vector::give(cpu, vector::place(flags, area.address()));
        }
        load(cpu, state, hardware, index);
    } else if !state.envs.slots[index].prepared {
        // It goes on, in another space or without its save area.
        reload(cpu, state, hardware, index);
    }
}

/// Makes `index`, which is alive and not loaded, the environment that is loaded instead of one that
/// is. For the short ways.
#[inline(always)]
pub fn exchange(cpu: &'static Cpu, state: &mut State, index: EnvIndex) {
    let mut hardware = Hardware::new(cpu);
    let (fs, gs) = bases::read();
    let old = hardware.own_slot();
    (old.context.fs_base, old.context.gs_base) = (fs, gs);
    // It lives, so this is where they go still.
    vector::take(cpu, old.entry.vector);
    let slot = hardware.slot(index.at());
    prepare_slot(state, &mut slot.entry, index);
    vector::give(cpu, slot.entry.vector);
    load_registers(cpu, slot);
    // Nothing is traced where this is used, so who runs is only noted.
    cpu.traced.set(load_slot(cpu, state, &slot.entry, index));
}

/// Control was transferred: the vector registers are the callee's already.
#[inline]
pub fn enter(cpu: &'static Cpu, state: &mut State, hardware: &mut Hardware, index: EnvIndex) {
    if let Some(old) = cpu.loaded() {
        let (fs, gs) = bases::read();
        let context = hardware.context(old.at());
        (context.fs_base, context.gs_base) = (fs, gs);
    }
    vector::carry(cpu, state.envs.slots[index].flags);
    load(cpu, state, hardware, index);
}

/// The environment that is loaded has changed what its record says of it.
pub fn reload(cpu: &'static Cpu, state: &mut State, hardware: &mut Hardware, index: EnvIndex) {
    vector::carry(cpu, state.envs.slots[index].flags);
    load_entry_data(cpu, state, hardware, index);
}

/// All of an environment but its vector registers.
#[inline(always)]
fn load(cpu: &'static Cpu, state: &mut State, hardware: &mut Hardware, index: EnvIndex) {
    let slot = hardware.slot(index.at());
    load_registers(cpu, slot);
    prepare_slot(state, &mut slot.entry, index);
    trace::switch(cpu, load_slot(cpu, state, &slot.entry, index));
}

/// Where its registers are, and its bases.
#[inline(always)]
fn load_registers(cpu: &'static Cpu, slot: &Slot) {
    bases::write(slot.context.fs_base, slot.context.gs_base);
    let address = core::ptr::from_ref(slot) as u64;
    let end = address.wrapping_add(FRAME_END as u64);
    cpu.set_frame_end(end);
}

/// What `entry` looks at, and the space: they change by calls, too.
#[inline(always)]
fn load_entry_data(cpu: &'static Cpu, state: &mut State, hardware: &mut Hardware, index: EnvIndex) {
    let data = &mut hardware.slot(index.at()).entry;
    prepare_slot(state, data, index);
    load_slot(cpu, state, data, index);
}

#[inline(always)]
fn prepare_slot(state: &mut State, data: &mut EntryData, index: EnvIndex) {
    if !state.envs.slots[index].prepared {
        *data = prepare(state, index);
        state.envs.slots[index].prepared = true;
    }
}

/// Its id.
#[inline(always)]
fn load_slot(cpu: &'static Cpu, state: &State, data: &EntryData, index: EnvIndex) -> u32 {
    mitigate::turn_of(cpu, state.published.envs[index].user);
    load_root(cpu, data.root);
    state.published.envs[index].id
}

/// What entry code needs of an environment.
#[cold]
fn prepare(state: &State, index: EnvIndex) -> EntryData {
    let own = DomainId(state.published.envs[index].domain).into();
    let (window, window_end) = domain::window(state, own);
    let root = domain::root(state, own).address();
    let entries = &state.envs.slots[index].entries;
    let (save_area, foreign_entry) = match env::save_area(state, index) {
        Some((_, physical)) => (physical::virtual_address(physical), entries.foreign),
        None => (0, 0),
    };
    let faults = if entries.fault != 0 && save_area != 0 { 0 } else { FAULTS_AT_LENGTH };
    let env = &state.envs.slots[index];
    EntryData {
        root,
        window,
        window_end,
        foreign_entry,
        save_area,
        vector: vector::place(env.flags, env.vector.address()),
        // Only `entry` uses it, and only its counts.
        record: (&raw const state.published.envs[index]).expose_provenance() as u64 | faults,
        reply_name: gate::reply_name(env::id(state, index)),
        ticks: 0,
    }
}

/// Stores what is loaded where another processor can find it.
#[inline(always)]
fn put_away(cpu: &'static Cpu, state: &State, hardware: &mut Hardware) {
    let Some(old) = cpu.loaded() else { return };
    let (fs, gs) = bases::read();
    if let Some(area) = env::vector(state, old) {
        let flags = state.envs.slots[old].flags;
        vector::take(cpu, vector::place(flags, area.address()));
        let context = hardware.context(old.at());
        (context.fs_base, context.gs_base) = (fs, gs);
    }
}

/// Nothing is loaded any more, no program's space either.
pub fn park(cpu: &'static Cpu, state: &State, hardware: &mut Hardware) {
    put_away(cpu, state, hardware);
    load_root(cpu, hardware::master());
    cpu.park();
    trace::switch(cpu, 0);
}
