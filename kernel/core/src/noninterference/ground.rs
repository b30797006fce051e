//! Where victim and attacker meet: two processors, an account for each, no shared right.
//!
//! ```text
//!   account 1 ── init (sleeps for ever; makes both, holds neither's records)
//!      ├──── the victim's account ───────────── main environment, server
//!      └──── the attacker's account ───────── three environments in two domains
//! ```
//! What the victim may have is kept for it; the attacker, which controls its own account, may take
//! all the rest of the machine.

use crate::dispatch::{self, Outcome};
use crate::fake::FakeMachine;
use crate::index::{AccountIndex, CpuIndex, DomainIndex, EnvIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::tests::{ASYNC, EVENT, FAULT, OK, SYNC, World};
use crate::{domain, env, frame, net, sched, table, work};
use abi::call::{CAPABILITY_SHIFT, Call};
use abi::capability::{ALL, Capability, Name};
use abi::id::{AccountId, DomainId, EnvId};
use abi::layout::PAGE_SIZE;
use abi::limits::RESOURCES;
use abi::memory::{Item, NO_EXECUTE, Operation, WRITABLE};
use abi::setup::{EnvSetup, field};
use abi::upcall::offset;
use abi::word::{Which, Word};

/// Frames of the machine, and of one in which the victim has a large page.
const FRAMES: usize = 768;
const FRAMES_LARGE: usize = 2048;
/// Where a call's argument in memory lies.
pub(super) const BUFFER: u64 = 0x40_0000;
/// First page of those that programs use at will; the tables are there.
pub(super) const ARENA: u64 = 0x100_0000;
/// How many of them are mapped at first.
pub(super) const ARENA_PAGES: u64 = 6;
/// Save areas, a page for each environment's index; application pages are so far behind.
pub(super) const SAVE: u64 = 0x80_0000;
pub(super) const APPLICATION: u64 = 0x10_0000;
/// The instruction behind every program's `syscall`.
pub(super) const AFTER: u64 = 0x1002;
/// The interface's address.
pub(super) const MAC: u64 = 0x0900_0000_0002;
/// The slot in which both have a user's name, that in which each has what is its own alone, the
/// victim the devices, the attacker its account, and that in which the victim has its account.
pub(super) const USER: u16 = 2;
pub(super) const OTHER: u16 = 3;
pub(super) const ACCOUNT: u16 = 7;
/// Where 512 pages of the victim's are that a large page can stand for, if it has any.
pub(super) const LARGE: u64 = 0x200_0000;

/// What is kept for the victim, which gets no more.
const VICTIM: [u32; RESOURCES] = [170, 16, 6, 8, 40, 4, 4, 120, 40, 2, 1, 2, 16, 1, 8];

/// The value of a word that must be one: an id, mostly.
pub(super) fn value<T: Word>(word: u64) -> T {
    T::from_word(word).expect("a word of this type")
}

/// One of both sides.
pub(super) struct Party {
    /// Its account.
    pub(super) account: AccountId,
    /// Indices of the environments that it began with, the one that never ends first.
    pub(super) envs: Vec<usize>,
    /// Its domains then.
    pub(super) domains: Vec<DomainId>,
}

/// A call as it stands in registers and memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    /// `rax`.
    pub(super) word: u64,
    /// The argument registers, which are a transfer's message.
    pub(super) words: [u64; 6],
    /// What lies at `BUFFER`.
    pub(super) memory: Vec<u8>,
}

impl Request {
    pub(super) fn new(call: Call, capability: u16, memory: &[u64]) -> Self {
        let (number, words) = call.encode();
        let word = u64::from(number) | u64::from(capability) << CAPABILITY_SHIFT;
        Self { word, words, memory: memory.iter().flat_map(|word| word.to_le_bytes()).collect() }
    }
}

pub(super) struct Ground {
    world: World,
    pub(super) victim: Party,
    pub(super) attacker: Party,
    /// The attacker's domains with their first slots.
    endowment: Vec<(DomainId, [Capability; 4])>,
}

impl Ground {
    /// With the attacker's environments on the victim's processor, or on the other one; with pages
    /// of the victim's that can be folded, or without.
    pub(super) fn new(shared: bool, large: bool) -> Self {
        let mut world = World::of(if large { FRAMES_LARGE } else { FRAMES });
        net::attach(&mut world.state, 0, MAC);
        let first = AccountId(world.state.published.accounts[1].id);
        let mut kept = VICTIM;
        // The pages and their table, with its links.
        kept[0] += if large { 512 + 2 } else { 0 };
        let account = account(&mut world, first, kept, kept);
        let own = self::account(&mut world, first, [u32::MAX; RESOURCES], [0; RESOURCES]);
        let mut victim = Party { account, envs: vec![], domains: vec![] };
        let mut attacker = Party { account: own, envs: vec![], domains: vec![] };
        let devices = Name::of(&[abi::capability::NAME_DEVICE]);
        let name = world.state.accounts.record(own.into()).name;
        for (party, user, other) in [(&mut victim, 8, devices), (&mut attacker, 7, name)] {
            let domain = space(&mut world, party.account);
            party.domains.push(domain);
            let list = &mut world.state.domains.records[domain.into()].capabilities;
            let all = |name| Capability { rights: ALL, zero: 0, name };
            list[usize::from(USER)] = all(Name::of(&[3, 0, user]));
            list[usize::from(OTHER)] = all(other);
        }
        let own_account = world.state.accounts.record(account.into()).name;
        let list = &mut world.state.domains.records[victim.domains[0].into()].capabilities;
        list[usize::from(ACCOUNT)] = Capability { rights: ALL, zero: 0, name: own_account };
        if large {
            map_block(&mut world, victim.domains[0]);
        }
        let second = space(&mut world, own);
        attacker.domains.push(second);
        for domain in &attacker.domains {
            // So it may visit its other domain.
            world.state.domains.records[(*domain).into()].entry = AFTER;
        }
        let first = |id: &DomainId| {
            let list = &world.state.domains.record((*id).into()).capabilities;
            (*id, [list[0], list[1], list[2], list[3]])
        };
        let endowment = attacker.domains.iter().map(first).collect();
        let away = u16::from(!shared);
        for (attacks, at, cpu) in
            [(false, 0, 0), (false, 0, 0), (true, 0, away), (true, 0, 0), (true, 1, 1)]
        {
            let party = if attacks { &mut attacker } else { &mut victim };
            let env = environment(&mut world, party.account, party.domains[at], cpu);
            party.envs.push(env);
        }
        let sleep = Call::Sleep { deadline: 0, posted: 0, events: 0, flags: 0 };
        assert_eq!(world.by(1, sleep), Outcome::Left);
        Self { world, victim, attacker, endowment }
    }

    pub(super) fn state(&self) -> &State {
        &self.world.state
    }

    pub(super) fn parts(&mut self) -> (&mut State, &mut FakeMachine) {
        (&mut self.world.state, &mut self.world.machine)
    }

    pub(super) fn machine(&self) -> &FakeMachine {
        &self.world.machine
    }

    pub(super) fn now(&self) -> u64 {
        self.world.machine.now
    }

    /// The index of the account that pays for an environment; 0 if there is none.
    pub(super) fn payer(&self, index: usize) -> AccountIndex {
        AccountId(self.state().published.envs[index].account).into()
    }

    /// Is the account the attacker's, or below it?
    pub(super) fn is_attackers(&self, account: AccountIndex) -> bool {
        account != AccountIndex::NONE
            && crate::account::is_below(
                self.state(),
                account,
                AccountIndex::new(self.attacker.account.index()),
            )
    }

    /// The attacker's domains get what they began with once more, as by a friend who keeps it.
    pub(super) fn endow(&mut self) {
        for (id, first) in &self.endowment {
            if let Ok(index) = domain::find(&self.world.state, *id) {
                let own = &mut self.world.state.domains.records[index].capabilities;
                own[..4].copy_from_slice(first);
            }
        }
    }

    /// A processor's way out of the kernel, so much later; who runs then.
    pub(super) fn turn(&mut self, cpu: usize, later: u64) -> Option<usize> {
        self.world.machine.now += later;
        let (state, machine) = self.parts();
        work::begin(state);
        machine.cpu = cpu;
        let cpu = CpuIndex::new(cpu);
        work::first(state, machine, cpu);
        let next = sched::pick(state, machine, cpu);
        work::step(state, machine, cpu);
        machine.interrupts.clear();
        machine.flushes.clear();
        let ticket = frame::ticket(state);
        frame::limbo_release(state, machine, ticket);
        work::end(state);
        next.map(EnvIndex::at)
    }

    /// The device has sent the packet that it was given first.
    pub(super) fn send(&mut self) {
        let (state, machine) = self.parts();
        if !machine.sending.is_empty() {
            let (interface, token) = machine.sending.remove(0);
            net::transmit::sent(state, machine, interface, token);
        }
    }

    /// All of them.
    pub(super) fn send_all(&mut self) {
        while !self.world.machine.sending.is_empty() {
            self.send();
        }
    }

    /// What waits to be destroyed or sent comes to its end.
    pub(super) fn settle(&mut self) {
        self.send_all();
        self.world.settle();
    }

    /// A call of the environment at `index`, which runs on `cpu`.
    pub(super) fn call(&mut self, cpu: usize, index: usize, request: &Request) -> Outcome {
        let root =
            domain::root(self.state(), env::domain(self.state(), EnvIndex::new(index)).into());
        let number = request.word as u16;
        let bytes = dispatch::buffer(number, request.words).map(|(address, len)| {
            let from = (address.wrapping_sub(BUFFER) as usize).min(request.memory.len());
            let mut bytes = request.memory[from..].to_vec();
            bytes.resize(len, 0);
            bytes
        });
        let bytes = bytes.unwrap_or_default();
        let (state, machine) = self.parts();
        machine.current = Some(root);
        machine.cpu = cpu;
        let context = machine.context(index);
        (context.rax, context.rip) = (request.word, AFTER);
        let [rdi, rsi, rdx, r10, r8, r9] = request.words;
        (context.rdi, context.rsi, context.rdx) = (rdi, rsi, rdx);
        (context.r10, context.r8, context.r9) = (r10, r8, r9);
        work::begin(state);
        let outcome = dispatch::call(
            state,
            machine,
            CpuIndex::new(cpu),
            EnvIndex::new(index),
            request.word,
            request.words,
            &bytes,
        );
        match outcome {
            Outcome::Answer(error, value) => machine.context(index).answer(error, value),
            Outcome::Fault(fault) => {
                let (cause, error) = (abi::upcall::Cause::PageFault as u8, u64::from(fault.write));
                crate::upcall::deliver_fault(
                    state,
                    machine,
                    EnvIndex::new(index),
                    cause,
                    error << 1 | 4,
                    fault.address,
                );
            }
            _ => {}
        }
        outcome
    }

    /// A program computes: what no call looks at of its registers.
    pub(super) fn compute(&mut self, index: usize, word: u64) {
        let context = self.world.machine.context(index);
        (context.rbx, context.rbp, context.r12) = (word, word, word);
        (context.r13, context.r14, context.r15) = (word, word, word);
    }

    /// The argument registers as they are now.
    pub(super) fn words(&mut self, index: usize) -> [u64; 6] {
        let context = self.world.machine.context(index);
        [context.rdi, context.rsi, context.rdx, context.r10, context.r8, context.r9]
    }

    /// Where a page of the environment's is, if it may read it.
    pub(super) fn page(&self, index: usize, address: u64) -> Option<table::Leaf> {
        let own = env::domain(self.state(), EnvIndex::new(index)).index();
        table::look_up(self.machine(), domain::root(self.state(), DomainIndex::new(own)), address)
    }

    /// A program's store, if it may.
    pub(super) fn store(&mut self, index: usize, address: u64, word: u64) -> bool {
        let leaf = self.page(index, address).filter(|leaf| leaf.writable);
        if let Some(leaf) = leaf {
            let at = leaf.frame.address() + address % PAGE_SIZE;
            self.world.machine.word_set(at, word);
        }
        leaf.is_some()
    }

    /// A program's load of a whole page, if it may.
    pub(super) fn load_page(&self, index: usize, address: u64) -> Option<Vec<u64>> {
        let first = self.page(index, address)?.frame.address();
        Some((0..PAGE_SIZE / 8).map(|at| self.machine().word(first + 8 * at)).collect())
    }

    /// A word of the environment's save area.
    pub(super) fn saved(&mut self, index: usize, offset: usize, word: u64) {
        if let Some((_, physical)) = env::save_area(self.state(), EnvIndex::new(index)) {
            self.world.machine.word_set(physical + offset as u64, word);
        }
    }
}

fn answered(outcome: Outcome) -> u64 {
    let Outcome::Answer(0, value) = outcome else { panic!("{outcome:?}") };
    value
}

fn account(
    world: &mut World,
    parent: AccountId,
    limits: [u32; RESOURCES],
    reserves: [u32; RESOURCES],
) -> AccountId {
    let account = value(answered(world.by(1, Call::AccountAlloc { which: Which::Any, parent })));
    for (resource, (limit, reserve)) in (0..).zip(limits.into_iter().zip(reserves)) {
        assert_eq!(world.by(1, Call::AccountLimit { account, resource, limit, reserve }), OK);
    }
    account
}

/// A domain of the account's, with an arena.
fn space(world: &mut World, account: AccountId) -> DomainId {
    let (which, root) = (Which::Any, Which::Any);
    let call = Call::DomainAlloc { which, account, root, window: 0, bytes: u64::MAX };
    let domain: DomainId = value(answered(world.by(1, call)));
    for page in 0..ARENA_PAGES {
        world.map(domain.index(), ARENA + page * PAGE_SIZE);
    }
    domain
}

/// The domain gets 512 frames that a large page can stand for.
fn map_block(world: &mut World, domain: DomainId) {
    const BLOCK: u32 = FRAMES_LARGE as u32 / 2;
    let domain = domain.index();
    world.map(domain, LARGE);
    let page = |operation: Operation, number: u32| Item {
        operation: operation as u8,
        level: 1,
        more: 0,
        frame: BLOCK + number,
        address: LARGE + u64::from(number) * PAGE_SIZE,
        value: if operation == Operation::Unmap { 0 } else { WRITABLE | NO_EXECUTE },
    };
    let all = core::iter::once(page(Operation::Unmap, 0));
    for item in all.chain((0..512).map(|number| page(Operation::Allocate, number))) {
        world.state.spent = 0;
        world.update((domain, domain), 0, &item).expect("a page of the block");
    }
}

/// An environment that nobody but itself controls, on this processor.
fn environment(world: &mut World, account: AccountId, domain: DomainId, cpu: u16) -> usize {
    let (which, vector) = (Which::Any, Which::Any);
    let env: EnvId =
        value(answered(world.by(1, Call::EnvAlloc { which, domain, account, vector })));
    let save = SAVE + env.index() as u64 * PAGE_SIZE;
    world.map(domain.index(), save);
    world.map(domain.index(), save + APPLICATION);
    // Its guard is the domain's fresh name: init has that in a slot for as long as it takes.
    const SLOT: u16 = 9;
    let fresh = world.state.domains.record(domain.into()).capabilities[0];
    let first = DomainIndex::new(init(world));
    world.state.domains.records[first].capabilities[usize::from(SLOT)] = fresh;
    let setup = EnvSetup {
        rip: AFTER,
        rsp: 0x7000,
        gs_base: save,
        fault_entry: FAULT,
        event_entry: EVENT,
        sync_entry: SYNC,
        async_entry: ASYNC,
        save_area: save,
        application_page: save + APPLICATION,
        guard: u64::from(SLOT),
        ..EnvSetup::default()
    };
    let fields = ((1 << 14) - 1) & !field::FOREIGN_ENTRY;
    assert_eq!(world.set_by(1, env, fields, &setup), OK);
    world.save(env.index(), offset::MASK, 1);
    answered(world.by(1, Call::SliceAlloc { cpu, position: Which::Any, env }));
    assert_eq!(world.by(1, Call::EnvRelease { env }), OK);
    assert_eq!(world.by(1, Call::EnvEntrust { env, holder: EnvId::NONE }), OK);
    env.index()
}

fn init(world: &World) -> usize {
    env::domain(&world.state, EnvIndex::new(1)).index()
}
