//! The kernel's state, while a processor has the lock.
//!
//! Entry code makes switches without it, with its processor's half (`half`). Who takes the lock
//! takes those halves, too, works out first what entry code has done, and gives them back, if the
//! fast path may be gone behind it.
//!
//! # Safety
//! `Locked` names the state as long as its guard is there, and nobody else does meanwhile.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use abi::limits::CPUS;
use kernel_core::index::{CpuIndex, EnvIndex};
use kernel_core::state::State;
use kernel_core::{env, gate};

use crate::cpu::Cpu;
use crate::hardware::Hardware;
use crate::lock::{Guard, Lock};
use crate::{half, shootdown, trace};

pub static STATE: Lock<Option<State>> = Lock::new(None);

/// Everything behind the lock, while this processor has it.
pub struct Locked {
    state: NonNull<State>,
    cpu: &'static Cpu,
    _guard: Guard<'static, Option<State>>,
}

impl Locked {
    #[inline(always)]
    pub fn new(cpu: &'static Cpu, mut guard: Guard<'static, Option<State>>) -> Self {
        let state = guard.as_mut().expect("the state is set before anything is locked");
        let mut locked = Self { state: NonNull::from(state), cpu, _guard: guard };
        if !cpu.half.is_quiet() && half::take_all(cpu) {
            fold(cpu, &mut locked);
        }
        locked
    }
}

impl Drop for Locked {
    #[inline(always)]
    fn drop(&mut self) {
        let may = || self.open && !trace::any();
        if !self.cpu.half.may_stay(may) {
            half::give_all_back(self.cpu, may());
        }
    }
}

/// Notes what entry code has done by the fast path, on all processors.
#[cold]
#[inline(never)]
fn fold(cpu: &'static Cpu, state: &mut State) {
    let mut hardware = Hardware::new(cpu);
    let cpus = &state.sched.cpus;
    let online = cpus.iter().rposition(|cpu| cpu.online).map_or(0, |last| last + 1);
    let mut runs = [EnvIndex::NONE; CPUS];
    let runs = &mut runs[..online];
    for (cpu, runs) in
        runs.iter_mut().enumerate().filter(|(cpu, _)| cpus[CpuIndex::new(*cpu)].online)
    {
        *runs = Cpu::of(cpu).loaded().unwrap_or(EnvIndex::NONE);
    }
    gate::fold(state, &mut hardware, runs);
    for (cpu, &index) in runs.iter().enumerate().filter(|(_, index)| **index != EnvIndex::NONE) {
        shootdown::loaded(cpu, hardware.slot(index.at()).entry.root);
        let same = Cpu::of(cpu).same_space.swap(0, Ordering::Relaxed);
        let loads = &mut state.published.cpus[cpu].cr3_loads;
        *loads = loads.wrapping_sub(same);
    }
    // The trace, which is off, goes on with who runs here now.
    cpu.traced.set(env::id(state, runs[cpu.index.get()]).0);
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
