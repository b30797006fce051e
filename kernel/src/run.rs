//! The way out of the kernel: who runs next, what is switched, when the next interrupt comes.
//!
//! # Safety
//! Loads roots that `kernel_core` says are live domains' roots, each with the kernel's own half;
//! the context of what is loaded is used by its own processor only.
#![allow(unsafe_code)]

use core::ptr::NonNull;

use kernel_core::context::{Context, FIXED_FLAGS, FRAME_END, USER_CS, USER_FLAGS, USER_SS};
use kernel_core::machine::Machine;
use kernel_core::state::State;
use kernel_core::timer::{Setting, ticks};
use kernel_core::trace::counters;
use kernel_core::{domain, env, frame, sched, sweep, upcall, work};

use abi::call::CALLS_MAX;
use abi::id::DomainId;
use abi::limits::Resource;
use abi::published::Category;
use abi::setup::FLAG_OWN_VECTOR;

use crate::cpu::{Cpu, NO_CALL};
use crate::hardware::{self, EntryData, Hardware};
use crate::lock::{Guard, Lock};
use crate::platform::{apic, clock};
use crate::registers::{
    interrupts_enabled, let_interrupts_in, rdtsc, wait_for_interrupt, write_cr3,
};
use crate::{bases, delay, descriptors, devices, physical, power, shootdown, trace, vector};

static STATE: Lock<Option<State>> = Lock::new(None);

/// While destruction waits to be worked off, a running program is interrupted this often.
const WORK_NS: u64 = 200_000;
/// What a processor counts by itself is published when it becomes idle or ceases to be, and this
/// often.
const NOTE_NS: u64 = 1_000_000;
/// How `entry_leave` leaves: by `iretq` or by `sysret` with every register from the context, or by
/// `sysret` with the answer from there and what no call changes as it is.
const BY_IRET: u64 = 0;
pub const BY_SYSRET: u64 = 1;
const ANSWERED: u64 = 2;

/// Everything behind the lock, while this processor has it.
pub struct Locked {
    state: NonNull<State>,
    _guard: Guard<'static, Option<State>>,
}

impl Locked {
    #[inline]
    fn new(mut guard: Guard<'static, Option<State>>) -> Self {
        let state = guard.as_mut().expect("the state is set before anything is locked");
        Self { state: NonNull::from(state), _guard: guard }
    }
}

impl core::ops::Deref for Locked {
    type Target = State;
    #[inline]
    fn deref(&self) -> &State {
        // SAFETY: what the guard guards, which nobody else names while it is here.
        unsafe { self.state.as_ref() }
    }
}

impl core::ops::DerefMut for Locked {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: as above.
        unsafe { self.state.as_mut() }
    }
}

/// One hold of the lock.
pub struct Hold {
    /// What the kernel knows.
    pub state: Locked,
    /// What the machine is asked meanwhile.
    pub hardware: Hardware,
    /// The processor that holds.
    pub cpu: &'static Cpu,
}

impl Hold {
    /// Takes the lock; meanwhile others' requests are served.
    #[inline(always)]
    pub fn take(cpu: &'static Cpu) -> Self {
        delay::point();
        let state = Locked::new(STATE.lock_serving(|| shootdown::serve(cpu)));
        let mut hold = Self { state, hardware: Hardware::new(cpu), cpu };
        work::begin(&mut hold.state);
        hold
    }
}

/// Sets the first state, once.
pub fn set_state(state: State) {
    *STATE.lock() = Some(state);
}

/// Says in the log what this processor does, and who is there: an operator's NMI asks for it.
pub fn report(cpu: &'static Cpu) {
    crate::log::unlocked_line(format_args!(
        "processor {} runs {:?}, rip {:#x}, call {}; longest {} ns in call {}, stack {} bytes",
        cpu.index.get(),
        cpu.loaded.get(),
        own_context(cpu).rip,
        cpu.call.get(),
        clock::ticks_to_ns(cpu.longest.get().0),
        cpu.longest.get().1,
        cpu.stack_used(),
    ));
    let Some(state) = STATE.try_lock() else { return };
    let Some(state) = state.as_ref() else { return };
    if cpu.index.get() != 0 {
        return;
    }
    for record in state.published.envs.iter().filter(|record| record.id != 0) {
        // SAFETY: only read, to be printed; whatever it is, it is words.
        let context =
            unsafe { *(hardware::context_address(record.id as usize & 0xfff) as *const Context) };
        crate::log::unlocked_line(format_args!(
            "env {:#x} state {} domain {:#x} rip {:#x} rsp {:#x} rax {:#x} cause {} run {} us, \
             {} entries, {} upcalls",
            record.id,
            record.state,
            record.domain,
            context.rip,
            context.rsp,
            context.rax,
            record.cause,
            record.run_ns / 1000,
            record.entries,
            record.upcalls,
        ));
    }
}

/// The context of what runs on this processor: its own processor's to use without the lock.
#[expect(clippy::mut_from_ref, reason = "the context is apart from the cells")]
pub fn own_context(cpu: &'static Cpu) -> &'static mut Context {
    // SAFETY: see the file's head; no `Hold` of this processor exists where this is used.
    unsafe { &mut *(cpu.context.get() as *mut Context) }
}

/// Delivers a fault to what runs, then leaves.
pub fn fault(mut hold: Hold, cause: u8, error: u64, address: u64) -> u64 {
    let Some(index) = hold.cpu.loaded.get() else { panic!("a fault of nobody: cause {cause}") };
    let Hold { state, hardware, .. } = &mut hold;
    // If it can't be entered, it has stopped: somebody else runs.
    if upcall::deliver_fault(state, hardware, index, cause, error, address) {
        return leave_to(hold, index);
    }
    leave(hold)
}

/// A processor's first time here, on its own stack.
pub extern "C" fn first(cpu: &'static Cpu) -> u64 {
    if cpu.index.get() == 0 {
        crate::second_half(cpu);
    } else {
        crate::platform::smp::arrived();
        while !crate::everything_is_ready() {
            crate::registers::pause();
            shootdown::serve(cpu);
        }
    }
    cpu.entered_tsc.set(rdtsc());
    let mut hold = Hold::take(cpu);
    sched::start_cpu(&mut hold.state, cpu.index.get());
    // Only `entry` uses it, and only its counts.
    let own = &raw const hold.state.published.cpus[cpu.index.get()];
    cpu.cpu_record.set(own.expose_provenance() as u64);
    leave(hold)
}

/// Has nothing happened that the way out would look at, so that `index` goes on?
#[inline(always)]
fn undisturbed(hold: &Hold, index: usize) -> bool {
    let Hold { state, cpu, .. } = hold;
    !cpu.ticked.get()
        && !cpu.look.get()
        && !work::waiting(state)
        && sched::undisturbed(state, cpu.index.get(), index)
}

/// The short way out, back to who entered, if nothing speaks against it.
#[inline(never)]
pub fn leave_to(mut hold: Hold, index: usize) -> u64 {
    if !undisturbed(&hold, index) {
        return leave(hold);
    }
    let Hold { state, hardware, cpu } = &mut hold;
    let cpu = *cpu;
    upcall::deliver_events(state, hardware, index);
    finish(hold);
    exit(cpu, index)
}

/// The shortest: to the caller, of whose registers only those of the answer have changed.
#[inline(always)]
pub fn leave_with(mut hold: Hold, caller: usize, error: u64, value: u64) -> u64 {
    let Hold { state, hardware, cpu } = &mut hold;
    let cpu = *cpu;
    if upcall::event_waits(state, hardware, caller) || !undisturbed(&hold, caller) {
        hold.hardware.context(caller).answer(error, value);
        return leave_to(hold, caller);
    }
    finish(hold);
    answer(cpu, error, value)
}

/// To the caller whose call has changed nothing but the answer's registers. The lock is not held:
/// what others want of the caller comes by interrupts.
#[inline(always)]
pub fn answer(cpu: &'static Cpu, error: u64, value: u64) -> u64 {
    let context = own_context(cpu);
    if !is_canonical(context.rip) {
        context.answer(error, value);
        context.rip = 0;
        return BY_IRET;
    }
    (context.rax, context.rdx) = (error, value);
    note_stretch(cpu);
    trace::leave(cpu);
    ANSWERED
}

/// Sets the timer anew: the call has changed when it is due, and nothing else.
pub fn rearm(hold: &Hold) {
    let deadline = sched::next_deadline(&hold.state, hold.cpu.index.get());
    arm_timer(hold.cpu, deadline, clock::now_ns());
}

/// Decides who runs and makes it so; idles until somebody does. Answers how to leave.
#[inline(never)]
pub fn leave(mut hold: Hold) -> u64 {
    let cpu = hold.cpu;
    loop {
        let Hold { state, hardware, .. } = &mut hold;
        if state.sched.cpus[cpu.index.get()].current == 0 {
            // Who has left may have made room.
            devices::resume(state, hardware);
        }
        let waiting = work::waiting(state);
        let condemned = waiting && sweep::work(state, hardware, cpu.index.get());
        let next = sched::pick(state, hardware, cpu.index.get());
        let before = cpu.loaded.get();
        match next {
            Some(index) => activate(cpu, state, hardware, index),
            None => park(cpu, state, hardware),
        }
        let more = condemned | ((waiting || work::waiting(state)) && work::step(state, hardware));
        let now = clock::now_ns();
        let switched = before != next;
        if now - cpu.noted_ns.get() > NOTE_NS
            || switched && (before.is_none() || next.is_none() || cpu.stretched.get())
        {
            cpu.noted_ns.set(now);
            note_counters(cpu, state, now);
        } else if switched {
            note_switch(cpu, state);
        }
        let mut deadline = sched::next_deadline(state, cpu.index.get());
        if more {
            deadline = Some(deadline.map_or(now + WORK_NS, |at| at.min(now + WORK_NS)));
        }
        finish(hold);
        arm_timer(cpu, deadline, now);
        if let Some(index) = next {
            return exit(cpu, index);
        }
        if more || cpu.ticked.get() || cpu.look.get() {
            breathe(cpu);
        } else {
            idle(cpu);
        }
        cpu.entered_tsc.set(rdtsc());
        // Nobody else lets them in: entries clear the flag.
        assert!(!interrupts_enabled(), "interrupts are on in the kernel");
        hold = Hold::take(cpu);
        look(&mut hold);
    }
}

/// Does what interrupts have noted.
pub fn look(hold: &mut Hold) {
    let Hold { state, hardware, cpu } = hold;
    if cpu.ticked.replace(false) | cpu.look.replace(false) {
        devices::poll(state, hardware);
        devices::resume(state, hardware);
        sched::tick(state, hardware, cpu.index.get());
    }
}

/// Gives the lock back.
#[inline(always)]
fn finish(hold: Hold) {
    let Hold { state, hardware, .. } = &hold;
    if hardware.targets != 0 || hardware.ending.is_some() || frame::limbo_waiting(state) {
        finish_slowly(hold);
    }
}

/// Gives the lock back. What was given up is released when everybody has flushed.
#[cold]
fn finish_slowly(mut hold: Hold) {
    let Hold { state, hardware, cpu } = &mut hold;
    let cpu = *cpu;
    let targets = hardware.targets;
    let ending = hardware.ending;
    let mut ticket = None;
    if targets != 0 || frame::limbo_waiting(state) {
        let number = frame::ticket(state);
        if targets == 0 {
            frame::limbo_release(state, hardware, number);
        } else {
            ticket = Some(number);
        }
    }
    drop(hold);
    match ending {
        Some((0, status)) => power::end(status as u8),
        Some((_, status)) => power::reset(status as u8),
        None => {}
    }
    if let Some(number) = ticket {
        shootdown::ask(cpu, targets);
        let mut hold = Hold::take(cpu);
        let Hold { state, hardware, .. } = &mut hold;
        frame::limbo_release(state, hardware, number);
    }
}

/// Interrupts were off from the entry until now.
#[inline]
fn note_stretch(cpu: &Cpu) {
    let stretch = rdtsc() - cpu.entered_tsc.get();
    let call = cpu.call.get();
    if stretch > cpu.stretches[call].get() {
        note_longest(cpu, stretch, call);
    }
}

#[cold]
fn note_longest(cpu: &Cpu, stretch: u64, call: usize) {
    cpu.stretches[call].set(stretch);
    cpu.stretched.set(true);
    if stretch > cpu.longest.get().0 {
        cpu.longest.set((stretch, call));
    }
}

/// Lets interrupts in between two pieces of work.
fn breathe(cpu: &'static Cpu) {
    note_stretch(cpu);
    let_interrupts_in();
    cpu.call.set(NO_CALL);
}

fn idle(cpu: &'static Cpu) {
    note_stretch(cpu);
    let begin = rdtsc();
    wait_for_interrupt();
    let end = rdtsc();
    cpu.idle.set(cpu.idle.get() + (end - begin));
    // The stack is looked through once in a second at most.
    if end - cpu.measured_tsc.get() > clock::hz() {
        cpu.measured_tsc.set(end);
        cpu.stack_bytes.set(cpu.stack_used());
    }
    cpu.call.set(NO_CALL);
}

/// Sets the timer if the deadline isn't the one it is set for.
fn arm_timer(cpu: &'static Cpu, deadline: Option<u64>, now: u64) {
    let mut timer = cpu.timer.get();
    match timer.want(deadline, now) {
        Setting::Unchanged => return,
        Setting::Off => apic::set_timer(0),
        Setting::After(ns) => apic::set_timer(ticks(ns, apic::timer_hz())),
    }
    cpu.timer.set(timer);
}

fn is_canonical(address: u64) -> bool {
    (address as i64) << 16 >> 16 == address as i64
}

/// How to leave to the environment that is loaded.
fn exit(cpu: &'static Cpu, index: usize) -> u64 {
    let context = own_context(cpu);
    context.cs = USER_CS;
    context.ss = USER_SS;
    context.rflags = context.rflags & USER_FLAGS | FIXED_FLAGS;
    if !is_canonical(context.rip) {
        // No processor takes it; the program gets a page fault where it went.
        context.rip = 0;
    }
    debug_assert_eq!(cpu.loaded.get(), Some(index));
    note_stretch(cpu);
    trace::leave(cpu);
    // `sysret` takes rip and rflags from rcx and r11: right after a call and for an upcall.
    let by_sysret = context.rcx == context.rip && context.r11 == context.rflags;
    if by_sysret { BY_SYSRET } else { BY_IRET }
}

fn load_root(cpu: &Cpu, root: u64) {
    if cpu.root.get() != root {
        // SAFETY: see the file's head.
        unsafe { write_cr3(root) }
        cpu.root.set(root);
        cpu.cr3_loads.set(cpu.cr3_loads.get() + 1);
        shootdown::loaded(cpu.index.get(), root);
    }
}

/// Makes `index` the environment that is loaded, whatever was before.
fn activate(cpu: &'static Cpu, state: &mut State, hardware: &mut Hardware, index: usize) {
    if cpu.loaded.get() != Some(index) {
        put_away(cpu, state, hardware);
        if let Some(area) = env::vector(state, index) {
            if state.envs.slots[index].entries.flags & FLAG_OWN_VECTOR != 0 {
                vector::initialize(area.address());
            }
            vector::load(area.address());
        }
        load(cpu, state, hardware, index);
    }
}

/// Control was transferred: the vector registers are the callee's already.
pub fn enter(hold: &mut Hold, index: usize) {
    let Hold { state, hardware, cpu } = hold;
    if let Some(old) = cpu.loaded.get() {
        let (fs, gs) = bases::read();
        let context = hardware.context(old);
        (context.fs_base, context.gs_base) = (fs, gs);
    }
    load(cpu, state, hardware, index);
}

/// All of an environment but its vector registers.
#[inline]
fn load(cpu: &'static Cpu, state: &mut State, hardware: &mut Hardware, index: usize) {
    let context = hardware.context(index);
    bases::write(context.fs_base, context.gs_base);
    let address = core::ptr::from_mut(context) as u64;
    cpu.context.set(address);
    cpu.context_end.set(address + FRAME_END as u64);
    descriptors::set_rsp0(cpu, address + FRAME_END as u64);
    cpu.loaded.set(Some(index));
    load_entry_data(cpu, state, hardware, index);
    trace::switch(cpu, state, Some(index));
}

/// What `entry` looks at, and the space: they change by calls, too.
pub fn load_entry_data(
    cpu: &'static Cpu,
    state: &mut State,
    hardware: &mut Hardware,
    index: usize,
) {
    if !state.envs.slots[index].prepared {
        *hardware.entry_data(index) = prepare(state, index);
        state.envs.slots[index].prepared = true;
    }
    let data = hardware.entry_data(index);
    load_root(cpu, data.root);
    cpu.window.set(data.window);
    cpu.window_bytes.set(data.window_bytes);
    cpu.foreign_entry.set(data.foreign_entry);
    cpu.save_area.set(data.save_area);
    cpu.save_address.set(data.save_address);
    cpu.fault_area.set(data.fault_area);
    cpu.fault_entry.set(data.fault_entry);
    // Only `entry` uses it, and only its counts.
    cpu.env_record.set((&raw const state.published.envs[index]).expose_provenance() as u64);
}

/// What entry code needs of an environment.
#[cold]
fn prepare(state: &State, index: usize) -> EntryData {
    let own = DomainId(state.published.envs[index].domain).index();
    let (window, window_bytes) = domain::window(state, own);
    let root = domain::root(state, own).address();
    let entries = &state.envs.slots[index].entries;
    let (save_address, save_area, foreign_entry) = match env::save_area(state, index) {
        Some((address, physical)) => {
            (address, physical::virtual_address(physical), entries.foreign)
        }
        None => (0, 0, 0),
    };
    // What `sysret` would fault at goes the long way.
    let enters = entries.fault != 0 && is_canonical(entries.fault);
    EntryData {
        root,
        window,
        window_bytes,
        foreign_entry,
        save_area,
        save_address,
        fault_area: if enters { save_area } else { 0 },
        fault_entry: entries.fault,
    }
}

/// Stores what is loaded where another processor can find it.
fn put_away(cpu: &'static Cpu, state: &State, hardware: &mut Hardware) {
    let Some(old) = cpu.loaded.get() else { return };
    let (fs, gs) = bases::read();
    if let Some(area) = env::vector(state, old) {
        vector::store(area.address());
        let context = hardware.context(old);
        (context.fs_base, context.gs_base) = (fs, gs);
    }
}

/// Nothing is loaded any more, no program's space either.
fn park(cpu: &'static Cpu, state: &State, hardware: &mut Hardware) {
    put_away(cpu, state, hardware);
    load_root(cpu, hardware::master());
    cpu.park();
    trace::switch(cpu, state, None);
    descriptors::set_rsp0(cpu, cpu.context_end.get());
}

/// Publishes what programs change, who may see it as soon as they run again.
#[inline(always)]
fn note_switch(cpu: &'static Cpu, state: &mut State) {
    let record = &mut state.published.cpus[cpu.index.get()];
    record.foreign = record.foreign.wrapping_add(cpu.foreign_calls.take());
    record.cr3_loads = cpu.cr3_loads.get();
}

/// Publishes all that this processor counted by itself.
fn note_counters(cpu: &'static Cpu, state: &mut State, now: u64) {
    note_switch(cpu, state);
    let record = &mut state.published.cpus[cpu.index.get()];
    record.interrupts = cpu.interrupts.get();
    record.shootdowns = cpu.shootdowns.get();
    record.kernel_faults = cpu.kernel_faults.get();
    record.idle_ns = clock::ticks_to_ns(cpu.idle.get());
    let (longest, call) = cpu.longest.get();
    record.longest_ns = clock::ticks_to_ns(longest);
    record.longest_call = if call == NO_CALL { u64::MAX } else { call as u64 };
    record.stack_bytes = cpu.stack_bytes.get();
    if cpu.stretched.take() {
        let own = &state.published.calls[counters(cpu.index.get(), 0)..];
        for (counters, longest) in own.iter().zip(&cpu.stretches[..CALLS_MAX]) {
            counters.stretched(clock::ticks_to_ns(longest.get()));
        }
    }
    // The first account has the sums of all.
    let used = state.published.accounts[1].used;
    let sum = |resources: &[Resource]| {
        resources.iter().map(|&resource| u64::from(used[resource as usize])).sum()
    };
    for (category, objects) in [
        (Category::Envs, sum(&[Resource::Envs])),
        (Category::Domains, sum(&[Resource::Domains])),
        (Category::Regions, sum(&[Resource::Regions])),
        (Category::Network, sum(&[Resource::Filters, Resource::Rings])),
    ] {
        state.published.census[category as usize].objects = objects;
    }
    if cpu.index.get() == 0 {
        state.published.clock.tick_ns = now;
    }
}
