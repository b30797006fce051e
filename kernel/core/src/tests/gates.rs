//! The fast path of switches, as entry code goes it, ends where the long way ends.

use crate::index::EnvIndex;

use super::random::Random;
use super::ways::note;
use super::*;
use crate::context::{Context, FIXED_FLAGS};
use crate::list::{self, Kind};
use crate::{gate, handover};
use abi::call::{SLEEP_ACCEPT, TRANSFER_REPLY, TRANSFER_SHIFT, number};
use std::string::String;

const ENVS: usize = 6;
const CPU: usize = 0;
/// Steps with each seed; they take less than a slice.
const STEPS: usize = 4_000;

/// A world, who runs there and the registers that it has.
pub(crate) struct Side {
    pub(crate) world: World,
    /// How many environments there are.
    envs: usize,
    /// The one that has the processor; 0: none.
    pub(crate) runs: usize,
    pub(crate) live: Context,
    /// By the fast path: calls, replies, yields.
    pub(crate) taken: [u32; 3],
}

impl Side {
    fn new(fast: bool) -> Self {
        Self::of(World::new(), ENVS, fast)
    }

    /// The first of so many environments runs, the others accept transfers.
    pub(crate) fn of(mut world: World, envs: usize, fast: bool) -> Self {
        world.machine.fast = fast;
        let domain = world.domain();
        for at in 2..=envs {
            let own = if at % 2 == 0 { world.domain() } else { domain };
            assert_eq!(world.spawn(own), at);
        }
        for at in (2..=envs).rev() {
            world.on(CPU, at);
            let accept = Call::Sleep { deadline: 0, posted: 1, events: 2, flags: SLEEP_ACCEPT };
            world.by(at, accept);
            world.pick(CPU);
        }
        let runs = world.pick(CPU);
        let live = *world.machine.context(runs);
        Self { world, envs, runs, live, taken: [0; 3] }
    }

    /// The kernel is entered: registers are stored, and what the fast path did is noted.
    pub(crate) fn enter(&mut self) {
        let mut runs = [0; abi::limits::CPUS];
        runs[CPU] = self.runs;
        gate::fold(&mut self.world.state, &mut self.world.machine, &runs.map(EnvIndex::new));
        if self.runs != 0 {
            *self.world.machine.context(self.runs) = self.live;
        }
        check(&self.world.state);
    }

    /// And left: whoever has the processor goes on.
    pub(crate) fn leave(&mut self) {
        self.runs = self.world.pick(CPU);
        if self.runs != 0 {
            self.live = *self.world.machine.context(self.runs);
        }
        for env in self.world.state.envs.slots.iter_mut() {
            env.prepared = true;
        }
    }

    /// What `entry_transfer` does, step by step; did it?
    fn by_entry_code(&mut self, word: u64) -> bool {
        let World { state, machine, .. } = &mut self.world;
        let (name, own) = ((word >> TRANSFER_SHIFT) as u32, self.runs);
        let at = (name << gate::INDEX_SHIFT) & state.envs.slots[EnvIndex::new(own)].index_mask;
        let target = at as usize / env::ENV_BYTES;
        if !state.open || target == 0 {
            return false;
        }
        let accepting = |index: usize| {
            state.envs.slots[EnvIndex::new(index)].save.address() + offset::ACCEPTING as u64
        };
        let (here, there) = (accepting(own), accepting(target));
        let sender = env::id(state, EnvIndex::new(own));
        let context = machine.context(own);
        let kept = self.live;
        (context.rip, context.rflags, context.rsp) = (kept.rip, kept.rflags, kept.rsp);
        let called = state.envs.slots[EnvIndex::new(target)].gate.called_as == name;
        if called {
            if machine.word(there) & 1 == 0 {
                return false;
            }
            machine.word_set(there, machine.word(there) & !1);
            let own_name = gate::reply_name(state.envs.slots[EnvIndex::new(own)].id);
            let gate = &mut state.envs.slots[EnvIndex::new(target)].gate;
            (gate.serves, gate.called_as) = (own_name, 0);
        } else {
            let env = &mut state.envs.slots[EnvIndex::new(own)];
            if env.gate.serves != name {
                return false;
            }
            (env.gate.serves, env.gate.called_as) = (0, env.id.0);
            machine.word_set(here, 1);
        }
        state.envs.slots[EnvIndex::new(own)].gate.turns += 1;
        machine.ticks[own] = machine.ticks[own].wrapping_add(machine.now);
        machine.ticks[target] = machine.ticks[target].wrapping_sub(machine.now);
        let context = machine.context(own);
        (context.rbx, context.rbp) = (kept.rbx, kept.rbp);
        (context.r12, context.r13, context.r14, context.r15) =
            (kept.r12, kept.r13, kept.r14, kept.r15);
        let waiting = *machine.context(target);
        let live = &mut self.live;
        live.rcx = sender.0.into();
        (live.fs_base, live.gs_base) = (waiting.fs_base, waiting.gs_base);
        if called {
            (live.rip, live.rflags, live.r11) = (SYNC, FIXED_FLAGS, FIXED_FLAGS);
        } else {
            (live.rip, live.rflags, live.r11) = (waiting.rip, waiting.rflags, waiting.rflags);
            (live.rsp, live.rax) = (waiting.rsp, 0);
        }
        self.runs = target;
        self.taken[usize::from(!called)] += 1;
        true
    }

    /// What `entry_yield` does, step by step; did it?
    fn yield_by_entry_code(&mut self, to: EnvId) -> bool {
        let World { state, machine, .. } = &mut self.world;
        let own = self.runs;
        let at = (to.0 << gate::INDEX_SHIFT) & state.envs.slots[EnvIndex::new(own)].index_mask;
        let target = at as usize / env::ENV_BYTES;
        let (this, other) =
            (&state.envs.slots[EnvIndex::new(own)], &state.envs.slots[EnvIndex::new(target)]);
        let save = |at: usize| machine.word(other.save.address() + at as u64);
        if !state.open
            || (this.gate.called_as, other.gate.called_as) != (gate::MAY_YIELD, gate::YIELDED)
            || other.id != to
            || save(offset::MASK) == 0 && save(offset::PENDING) | save(offset::EVENTS) != 0
            || other.cpu != this.cpu
        {
            return false;
        }
        state.envs.slots[EnvIndex::new(own)].gate.called_as = gate::YIELDED;
        state.envs.slots[EnvIndex::new(target)].gate.called_as = gate::MAY_YIELD;
        state.envs.slots[EnvIndex::new(own)].gate.yields += 1;
        machine.ticks[own] = machine.ticks[own].wrapping_add(machine.now);
        machine.ticks[target] = machine.ticks[target].wrapping_sub(machine.now);
        let kept = self.live;
        let context = machine.context(own);
        (context.rip, context.rflags, context.rsp) = (kept.rip, kept.rflags, kept.rsp);
        (context.rbx, context.rbp) = (kept.rbx, kept.rbp);
        (context.r12, context.r13, context.r14, context.r15) =
            (kept.r12, kept.r13, kept.r14, kept.r15);
        (context.fs_base, context.gs_base) = (kept.fs_base, kept.gs_base);
        self.live = *machine.context(target);
        self.live.answer(0, 0);
        (self.live.rcx, self.live.r11) = (self.live.rip, self.live.rflags);
        self.runs = target;
        self.taken[2] += 1;
        true
    }

    pub(crate) fn transfer(&mut self, word: u64) {
        self.live.rax = word;
        if self.world.machine.fast && self.by_entry_code(word) {
            return;
        }
        self.switch(Call::TransferSync {}, word, EnvId::NONE);
    }

    pub(crate) fn yield_to(&mut self, to: EnvId) {
        (self.live.rax, self.live.rdi) = (number::Yield.into(), to.0.into());
        if self.world.machine.fast && self.yield_by_entry_code(to) {
            return;
        }
        self.switch(Call::Yield { to }, number::Yield.into(), to);
    }

    /// By the short way, if there is one, or the long one.
    fn switch(&mut self, call: Call, word: u64, to: EnvId) {
        self.enter();
        let own = self.runs;
        let (state, machine) = (&mut self.world.state, &mut self.world.machine);
        match handover::check(
            state,
            machine,
            (CpuIndex::new(CPU), EnvIndex::new(own)),
            word,
            to.0.into(),
        ) {
            Some(plan) if machine.fast => {
                handover::apply(
                    state,
                    machine,
                    (CpuIndex::new(CPU), EnvIndex::new(own)),
                    word as u16,
                    &plan,
                );
            }
            _ => {
                self.world.raw(CPU, own, call, word);
            }
        }
        self.leave();
    }

    pub(crate) fn call(&mut self, call: Call) {
        self.enter();
        self.world.raw(CPU, self.runs, call, call.encode().0.into());
        self.leave();
    }

    fn owe(&mut self, index: usize) {
        self.enter();
        self.world.state.envs.slots[EnvIndex::new(index)].debt_ns = 1000;
        self.leave();
    }

    pub(crate) fn event(&mut self, index: usize) {
        self.enter();
        crate::work::begin(&mut self.world.state);
        sched::event(&mut self.world.state, &mut self.world.machine, EnvIndex::new(index), 2);
        crate::work::end(&mut self.world.state);
        self.leave();
    }

    /// All that a transfer may change, but for the order of turns and which way it went.
    pub(crate) fn digest(&mut self) -> String {
        let mut all = String::new();
        let envs = self.envs;
        let World { state, machine, .. } = &mut self.world;
        for index in 1..=envs {
            let env = &state.envs.slots[EnvIndex::new(index)];
            let takes_turns = list::contains(&state.envs.slots, Kind::Ring, EnvIndex::new(index));
            // What wakes it is what its last sleep asked for, and means nothing else.
            let wakes = (env.state == EnvState::Sleeping).then_some((env.posted, env.events));
            note(&mut all, &(index, env.state, env.pending, wakes, env.donors));
            note(&mut all, &crate::loan::client_of(state, EnvIndex::new(index)));
            note(&mut all, &(takes_turns, env.deadline, env.debt_ns, env.request));
            let record = &state.published.envs[index];
            let running = env.state == EnvState::Running;
            let since = if running {
                machine.now - state.sched.cpus[CpuIndex::new(CPU)].since_ns
            } else {
                0
            };
            note(&mut all, &(record.state, record.donated_to, record.cpu, record.sequence));
            note(&mut all, &(record.switches, record.entries, record.run_ns + since));
            let context = machine.context(index);
            note(&mut all, &(context.rip, context.rsp, context.rflags, context.rbx, context.rbp));
            note(&mut all, &(context.r12, context.r13, context.r14, context.r15));
            if running {
                note(&mut all, context);
            }
            let (_, save) = env::save_area(state, EnvIndex::new(index)).unwrap();
            let words = [offset::PENDING, offset::EVENTS, offset::MASK, offset::ACCEPTING];
            note(&mut all, &words.map(|at| machine.word(save + at as u64)));
        }
        let cpu = &state.published.cpus[CPU];
        note(
            &mut all,
            &(state.sched.cpus[CpuIndex::new(CPU)].current, cpu.current, cpu.switches, cpu.calls),
        );
        for number in [number::TransferSync, number::Yield] {
            note(&mut all, &state.published.calls[CPU][usize::from(number)].read().count);
        }
        all
    }
}

/// The same step on either side.
fn step(sides: &mut [Side; 2], random: &mut Random) {
    let index = 1 + random.below(ENVS as u64) as usize;
    let (kind, registers) = (random.below(64), random.below(1 << 32));
    let (reply, usual, stale) = (random.below(8) != 0, random.below(16) != 0, random.below(64));
    let passes = random.below(100);
    let runs = sides[0].runs;
    // Mostly to whoever waits for the reply: the long way's side knows that at once.
    let world = &sides[0].world;
    let own = world.id(runs.max(1)).0;
    let waits = |&at: &usize| world.state.published.envs[at].donated_to == own;
    let donor = (1..=ENVS).find(waits).filter(|_| reply);
    // Now and then a call says that it is a reply, and a reply does not say so.
    let says_reply = donor.is_some() == usual;
    let target = world.id(donor.unwrap_or(index)).0 ^ if stale == 0 { 1 << 12 } else { 0 };
    // Mostly to one that may run.
    let may = |&at: &usize| world.state.published.envs[at].state == EnvState::Ready as u32;
    let ready = (index..=ENVS).find(may).filter(|_| reply).unwrap_or(index);
    let ready = world.id(ready).0 ^ if stale == 0 { 1 << 12 } else { 0 };
    for side in sides {
        side.world.machine.now += passes;
        if runs == 0 || kind == 0 {
            side.event(if runs == 0 { 1 } else { index });
            continue;
        }
        let live = &mut side.live;
        (live.rbx, live.r15, live.rdi, live.rsp) =
            (registers, registers + 1, registers + 2, registers & !7);
        (live.rcx, live.r11) = (live.rip, live.rflags);
        match kind {
            1 => side.call(Call::TimerSet { deadline: 0 }),
            2 => side.call(Call::Sleep { deadline: 0, posted: 1, events: 2, flags: SLEEP_ACCEPT }),
            3 => side.world.save(runs, offset::EVENTS, 0),
            // As after a slice whose end it has put off; a turn slept through pays it.
            4 => side.owe(runs),
            5..16 => side.yield_to(EnvId(ready)),
            _ => {
                let word = u64::from(number::TransferSync)
                    | if says_reply { TRANSFER_REPLY } else { 0 }
                    | u64::from(target) << TRANSFER_SHIFT;
                side.transfer(word);
            }
        }
    }
}

/// A yield asks whether both are at home where the caller runs: who leaves home has to be asked
/// anew.
#[test]
fn who_leaves_home_has_no_open_gate() {
    let mut side = Side::new(true);
    let domain = side.world.domain();
    let other = side.world.spawn(domain);
    let (first, id) = (side.world.id(1), side.world.id(other));
    for _ in 0..3 {
        side.yield_to(id);
        assert_eq!(side.runs, other);
        side.yield_to(first);
        assert_eq!(side.runs, 1);
    }
    let called_as = |side: &Side, index: usize| {
        side.world.state.envs.slots[EnvIndex::new(index)].gate.called_as
    };
    assert_eq!([1, other].map(|at| called_as(&side, at)), [gate::MAY_YIELD, gate::YIELDED]);
    side.enter();
    side.world.by(1, Call::SliceAlloc { cpu: 1, position: Which::Any, env: id });
    let home = side.world.state.envs.slots[EnvIndex::new(other)].cpu;
    assert_eq!((home, called_as(&side, other)), (1, 0));
}

#[test]
fn the_fast_path_ends_where_the_long_way_ends() {
    let mut taken = [0; 3];
    for seed in 1..=6 {
        let mut sides = [Side::new(false), Side::new(true)];
        let mut random = Random(seed);
        for at in 0..STEPS {
            step(&mut sides, &mut random);
            assert_eq!(sides[0].runs, sides[1].runs, "seed {seed}, step {at}");
            if random.below(4) == 0 {
                let [long, fast] = sides.each_mut().map(|side| {
                    side.enter();
                    side.digest()
                });
                for (long, fast) in long.lines().zip(fast.lines()) {
                    assert_eq!(long, fast, "seed {seed}, step {at}");
                }
            }
        }
        taken = [0, 1, 2].map(|way| taken[way] + sides[1].taken[way]);
    }
    assert!(taken.iter().all(|&times| times > 300), "{taken:?}");
}
