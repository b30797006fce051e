//! The way out of the kernel: who runs next, what is switched, when the next interrupt comes.
//!
//! # Safety
//! The context of what is loaded is used by its own processor only.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

use kernel_core::context::{Context, USER_CS, USER_SS};
use kernel_core::index::{EnvIndex, RegionIndex};
use kernel_core::machine::Machine;
use kernel_core::state::State;
use kernel_core::timer::{Setting, ticks};
use kernel_core::{alone, exit, frame, handover, relay, sched, upcall, work};

use abi::call::CALLS_MAX;
use abi::id::EnvId;
use abi::limits::Resource;
use abi::published::{Category, CpuRecord, STRETCHES};
use abi::upcall::offset;

use crate::cpu::{Cpu, NO_CALL};
use crate::hardware::{self, Hardware};
use crate::locked::{Locked, STATE};
use crate::platform::{apic, clock};
use crate::registers::{interrupts_enabled, let_interrupts_in, rdtsc, wait_for_interrupt};
use crate::{delay, devices, half, load, power, shootdown, stretch, trace};

/// What a processor counts by itself is published when it becomes idle or ceases to be, and this
/// often.
const NOTE_NS: u64 = 1_000_000;
/// How `entry_leave` leaves: by `iretq` or by `sysret` with every register from the context, or by
/// `sysret` with the answer from there and what no call changes as it is.
const BY_IRET: u64 = 0;
pub const BY_SYSRET: u64 = 1;
const ANSWERED: u64 = 2;

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
        let state = Locked::new(cpu, STATE.lock_serving(|| shootdown::serve(cpu)));
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
        cpu.loaded(),
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
            unsafe { *(hardware::context_address(EnvId(record.id).index()) as *const Context) };
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
    unsafe { &mut *(cpu.context() as *mut Context) }
}

/// Delivers a fault to what runs, then leaves.
pub fn fault(mut hold: Hold, cause: u8, error: u64, address: u64) -> u64 {
    let Some(index) = hold.cpu.loaded() else { panic!("a fault of nobody: cause {cause}") };
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
        crate::provoke::be_late(|| shootdown::serve(cpu));
    }
    cpu.entered_tsc.set(rdtsc());
    let hold = Hold::take(cpu);
    // Only `entry` uses it, and only its counts.
    let own = &raw const hold.state.published.cpus[cpu.place()];
    cpu.cpu_record.set(own.expose_provenance() as u64);
    leave(hold)
}

/// Has nothing happened that the way out would look at, so that `index` goes on?
#[inline(always)]
fn undisturbed(hold: &mut Hold, index: EnvIndex) -> bool {
    let Hold { state, cpu, .. } = hold;
    let still = !cpu.ticked.get()
        && !cpu.look.get()
        && !work::due(state, cpu.place())
        && sched::undisturbed(state, cpu.place(), index);
    if still {
        work::end(state);
    }
    still
}

/// The short way out, back to who entered, if nothing speaks against it.
#[inline(never)]
pub fn leave_to(mut hold: Hold, index: EnvIndex) -> u64 {
    if !undisturbed(&mut hold, index) {
        return leave(hold);
    }
    let Hold { state, hardware, cpu } = &mut hold;
    let cpu = *cpu;
    upcall::deliver_events(state, hardware, index);
    if !exit::settle(state, hardware, index) {
        return leave(hold);
    }
    finish(hold);
    go(cpu, index)
}

/// The shortest: to the caller, of whose registers only those of the answer have changed.
#[inline(always)]
pub fn leave_with(mut hold: Hold, caller: EnvIndex, error: u64, value: u64) -> u64 {
    let Hold { state, hardware, cpu } = &mut hold;
    let cpu = *cpu;
    if upcall::event_waits(state, hardware, caller) || !undisturbed(&mut hold, caller) {
        hold.hardware.context(caller.at()).answer(error, value);
        return leave_to(hold, caller);
    }
    finish(hold);
    answer(cpu, error, value)
}

/// To the caller whose call has changed nothing but the answer's registers. The lock is not held:
/// what others want of the caller comes by interrupts. Where it goes on was looked at when it came
/// (`kernel_core::exit`).
#[inline(always)]
pub fn answer(cpu: &'static Cpu, error: u64, value: u64) -> u64 {
    let context = own_context(cpu);
    (context.rax, context.rdx) = (error, value);
    stretch::note(cpu);
    trace::leave(cpu);
    ANSWERED
}

/// Sets the timer anew: the call has changed when it is due, and nothing else.
pub fn rearm(hold: &Hold) {
    let deadline = sched::next_deadline(&hold.state, hold.cpu.place());
    arm_timer(hold.cpu, deadline, clock::now_ns());
}

/// Decides who runs and makes it so; idles until somebody does. Answers how to leave.
#[inline(never)]
pub fn leave(mut hold: Hold) -> u64 {
    let cpu = hold.cpu;
    loop {
        let Hold { state, hardware, .. } = &mut hold;
        if state.sched.cpus[cpu.place()].current == 0 {
            // Who has left may have made room.
            devices::resume(state, hardware);
        }
        work::first(state, hardware, cpu.place());
        let next = sched::pick(state, hardware, cpu.place());
        let before = cpu.loaded();
        match next {
            Some(index) => {
                load::activate(cpu, state, hardware, index);
                if !exit::settle(state, hardware, index) {
                    // It has stopped there: somebody else runs, in a hold of its own, as the next
                    // one may stop as well.
                    load::park(cpu, state, hardware);
                    work::end(state);
                    finish(hold);
                    breathe(cpu);
                    hold = again(cpu);
                    continue;
                }
            }
            None => load::park(cpu, state, hardware),
        }
        // The time that `pick` has read will do: the timer's count is reckoned from a new one. Work
        // that is done here takes longer, and the clock is read again.
        let mut now = state.sched.picked_ns;
        let mut more = false;
        if work::is_here(state, cpu.place()) {
            more = work::step(state, hardware, cpu.place());
            now = clock::now_ns();
        }
        let switched = before != next;
        if now - cpu.noted_ns.get() > NOTE_NS
            || switched && (before.is_none() || next.is_none() || cpu.stretched.get())
        {
            cpu.noted_ns.set(now);
            note_counters(cpu, state, now);
        } else if switched {
            note_switch(cpu, state);
        }
        let deadline = sched::next_deadline(state, cpu.place());
        work::end(state);
        finish(hold);
        arm_timer(cpu, deadline, now);
        if let Some(index) = next {
            return go(cpu, index);
        }
        // What is due already is gone on with: its interrupt would only say so.
        let due = deadline.is_some_and(|at| at <= now);
        if more || due || cpu.ticked.get() || cpu.look.get() {
            breathe(cpu);
        } else {
            idle(cpu);
        }
        hold = again(cpu);
    }
}

/// Takes the lock again, as an entry does.
fn again(cpu: &'static Cpu) -> Hold {
    cpu.entered_tsc.set(rdtsc());
    // Nobody else lets them in: entries clear the flag.
    assert!(!interrupts_enabled(), "interrupts are on in the kernel");
    let mut hold = Hold::take(cpu);
    look(&mut hold);
    hold
}

/// How often a short way looks whether the lock is free: longer than most have it, also where a
/// `pause` takes no longer than another instruction. Who went the long way at once would make the
/// next one wait, and so on for ever.
pub const LOOKS: u32 = 256;

/// The short way of a call that hands the processor to somebody else, if it may go it: nobody waits
/// long for the lock, nothing is traced, and the longest stretch does not see it.
#[inline(always)]
pub fn hand_over(cpu: &'static Cpu, word: u64, to: u64) -> Option<u64> {
    if trace::any() {
        return None;
    }
    delay::point();
    let caller = cpu.loaded()?;
    let mut state = Locked::new(cpu, STATE.try_lock_for(LOOKS)?);
    let mut hardware = Hardware::new(cpu);
    let who = (cpu.place(), caller);
    let plan = handover::check(&state, &hardware, who, word, to)?;
    handover::apply(&mut state, &mut hardware, who, word as u16, &plan);
    if state.open {
        half::open(cpu);
    }
    if plan.carries_vectors() {
        load::enter(cpu, &mut state, &mut hardware, plan.target);
    } else {
        load::exchange(cpu, &mut state, plan.target);
    }
    let record = note_switch(cpu, &mut state);
    record.short_ways = record.short_ways.wrapping_add(1);
    drop(state);
    Some(switched(cpu))
}

/// The short way of a step along a ring, as far as it goes: to nobody but the caller and the one
/// it wakes or goes back to. As above, it is in no longest stretch.
#[inline(always)]
pub fn relay<const NUMBER: u16>(cpu: &'static Cpu, words: [u64; 6]) -> Option<u64> {
    if !relay::may_serve(words) || !delay::short_way_is_open() {
        return None;
    }
    let caller = cpu.loaded()?;
    let mut state = Locked::new(cpu, STATE.try_lock()?);
    let who = (cpu.place(), caller);
    match relay::call::<_, NUMBER>(&mut state, &mut Hardware::new(cpu), who, words)? {
        relay::Done::Answered if told(cpu) => {
            Some(disturbed(cpu, state, NUMBER, relay::Rest::Nothing))
        }
        relay::Done::Answered => {
            drop(state);
            Some(answer_unseen(cpu))
        }
        relay::Done::Moved(moved) => Some(relay_to_waiter(cpu, state, NUMBER, moved)),
        relay::Done::Nothing(region) => relay_back(cpu, state, NUMBER, region),
        done => Some(after_relay(cpu, state, NUMBER, done)),
    }
}

/// Does a bit wait for what runs?
#[inline(always)]
fn told(cpu: &Cpu) -> bool {
    let area = hardware::save_area(cpu) as *mut u64;
    let bits = |at: usize| {
        // SAFETY: the frame is pinned while its environment runs, and its words are atomic.
        unsafe { AtomicU64::from_ptr(area.wrapping_byte_add(at)) }.load(Ordering::SeqCst)
    };
    !area.is_null() && bits(offset::PENDING) | bits(offset::EVENTS) != 0
}

/// The step of a caller's that somebody waits or watches for.
#[inline(never)]
fn relay_to_waiter(cpu: &'static Cpu, mut state: Locked, number: u16, moved: relay::Moved) -> u64 {
    let who = (cpu.place(), cpu.loaded_now());
    let done = relay::tell(&mut state, &mut Hardware::new(cpu), who, moved);
    after_relay(cpu, state, number, done)
}

/// The step of a caller's that finds nothing there yet.
#[inline(never)]
fn relay_back(
    cpu: &'static Cpu,
    mut state: Locked,
    number: u16,
    region: RegionIndex,
) -> Option<u64> {
    let who = (cpu.place(), cpu.loaded_now());
    let done = relay::wait_for(&mut state, &mut Hardware::new(cpu), who, region)?;
    Some(after_relay(cpu, state, number, done))
}

#[inline(always)]
fn after_relay(cpu: &'static Cpu, mut state: Locked, number: u16, done: relay::Done) -> u64 {
    match done {
        relay::Done::Switched { target, now, deadline } => {
            load::exchange(cpu, &mut state, target);
            drop(state);
            if !cpu.timer.get().covers(deadline, now) {
                arm_timer(cpu, Some(deadline), now);
            }
            switched(cpu)
        }
        relay::Done::Disturbed(rest) => disturbed(cpu, state, number, rest),
        _ => disturbed(cpu, state, number, relay::Rest::Nothing),
    }
}

/// The rest of a step that has been done, but left something to look at.
#[cold]
#[inline(never)]
fn disturbed(cpu: &'static Cpu, state: Locked, number: u16, rest: relay::Rest) -> u64 {
    let mut hold = Hold { state, hardware: Hardware::new(cpu), cpu };
    cpu.entered_tsc.set(rdtsc());
    cpu.call.set(usize::from(number));
    work::begin(&mut hold.state);
    let caller = cpu.loaded_now();
    hold.hardware.context(caller.at()).answer(0, 0);
    let Hold { state, hardware, .. } = &mut hold;
    relay::finish(state, hardware, rest);
    leave_to(hold, caller)
}

/// To whom a short way has switched.
#[inline(always)]
fn switched(cpu: &'static Cpu) -> u64 {
    let context = own_context(cpu);
    if exit::may_run_at(context.rip) { how_to_leave(context) } else { go_astray(cpu) }
}

/// It cannot go on where it was interrupted: the long way, which tells it.
#[cold]
#[inline(never)]
fn go_astray(cpu: &'static Cpu) -> u64 {
    cpu.entered_tsc.set(rdtsc());
    cpu.call.set(NO_CALL);
    leave(Hold::take(cpu))
}

/// Back to what an operator's NMI has interrupted.
pub fn go_back(cpu: &'static Cpu) -> u64 {
    if exit::may_run_at(own_context(cpu).rip) { BY_IRET } else { go_astray(cpu) }
}

/// As `answer` with 0, for who came by a short way.
#[inline(always)]
fn answer_unseen(cpu: &'static Cpu) -> u64 {
    let context = own_context(cpu);
    (context.rax, context.rdx) = (0, 0);
    ANSWERED
}

/// Does what interrupts have noted.
pub fn look(hold: &mut Hold) {
    let Hold { state, hardware, cpu } = hold;
    if cpu.ticked.replace(false) | cpu.look.replace(false) {
        devices::poll(state, hardware);
        devices::resume(state, hardware);
        sched::tick(state, hardware, cpu.place());
    }
}

/// Gives the lock back.
#[inline(always)]
fn finish(mut hold: Hold) {
    let Hold { state, hardware, .. } = &mut hold;
    if hardware.targets != 0 || hardware.ending.is_some() || frame::limbo_waiting(state) {
        finish_slowly(hold);
    } else {
        alone::no_ticket(state);
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

/// The logarithm of the longest stretches that are in the first class (`CpuRecord::stretches`).
const FIRST_CLASS: usize = 7;

/// Lets interrupts in between two pieces of work.
fn breathe(cpu: &'static Cpu) {
    stretch::note(cpu);
    cpu.open.set(true);
    let_interrupts_in();
    cpu.open.set(false);
    cpu.call.set(NO_CALL);
}

fn idle(cpu: &'static Cpu) {
    stretch::note(cpu);
    let begin = rdtsc();
    cpu.open.set(true);
    wait_for_interrupt();
    cpu.open.set(false);
    let end = rdtsc();
    cpu.idle.set(cpu.idle.get() + (end - begin));
    // The stack is looked through once in a second at most.
    if end - cpu.measured_tsc.get() > clock::hz() {
        cpu.measured_tsc.set(end);
        cpu.stack_bytes.set(cpu.stack_used());
    }
    cpu.call.set(NO_CALL);
}

/// Sets the timer if the deadline isn't the one it is set for. `now` may be some time ago.
#[inline(always)]
fn arm_timer(cpu: &'static Cpu, deadline: Option<u64>, now: u64) {
    if !cpu.timer.get().keeps(deadline, now) {
        set_timer(cpu, deadline);
    }
}

#[inline(never)]
fn set_timer(cpu: &'static Cpu, deadline: Option<u64>) {
    let mut timer = cpu.timer.get();
    match timer.want(deadline, clock::now_ns()) {
        Setting::Unchanged => return,
        Setting::Off => apic::set_timer(0),
        Setting::After(ns) => apic::set_timer(ticks(ns, apic::timer_hz())),
    }
    cpu.timer.set(timer);
}

/// How to leave to the environment that is loaded, where it may go (`exit::settle`).
fn go(cpu: &'static Cpu, index: EnvIndex) -> u64 {
    let context = own_context(cpu);
    context.cs = USER_CS;
    context.ss = USER_SS;
    context.rflags = upcall::clean(context.rflags);
    debug_assert!(exit::may_run_at(context.rip));
    debug_assert_eq!(cpu.loaded(), Some(index));
    stretch::note(cpu);
    trace::leave(cpu);
    how_to_leave(context)
}

fn how_to_leave(context: &Context) -> u64 {
    // `sysret` takes rip and rflags from rcx and r11: right after a call and for an upcall.
    let by_sysret = context.rcx == context.rip && context.r11 == context.rflags;
    if by_sysret { BY_SYSRET } else { BY_IRET }
}

/// Publishes what programs change, who may see it as soon as they run again.
#[inline(always)]
fn note_switch<'a>(cpu: &'static Cpu, state: &'a mut State) -> &'a mut CpuRecord {
    let record = &mut state.published.cpus[cpu.place()];
    record.foreign = record.foreign.wrapping_add(cpu.foreign_calls.take());
    record.cr3_loads = record.cr3_loads.wrapping_add(cpu.cr3_loads.take());
    record.vector_moves = cpu.vector_moves.get();
    record.barriers = cpu.barriers.get();
    record
}

/// Publishes all that this processor counted by itself.
fn note_counters(cpu: &'static Cpu, state: &mut State, now: u64) {
    let record = note_switch(cpu, state);
    record.interrupts = cpu.interrupts.get();
    record.shootdowns = cpu.shootdowns.get();
    record.kernel_faults = cpu.kernel_faults.get();
    record.idle_ns = clock::ticks_to_ns(cpu.idle.get());
    let (longest, call) = cpu.longest.get();
    record.longest_ns = clock::ticks_to_ns(longest);
    record.longest_call = if call == NO_CALL { u64::MAX } else { call as u64 };
    record.stack_bytes = cpu.stack_bytes.get();
    let mut stretches = [0_u64; STRETCHES];
    for (log, count) in cpu.classes.iter().enumerate() {
        let class = log.saturating_sub(FIRST_CLASS).min(STRETCHES - 1);
        stretches[class] = stretches[class].wrapping_add(count.get());
    }
    // Each at once: others read meanwhile, and see none go back.
    record.stretches = stretches;
    if cpu.stretched.take() {
        let own = &state.published.calls[cpu.place()];
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
