//! The processor half driven as the machine layer drives it, on the host's machine.

mod accounts;
mod busy;
mod calls;
mod capabilities;
mod cells;
mod crowds;
mod deaths;
mod edges;
mod elsewhere;
mod endings;
mod exits;
mod fairness;
mod fifos;
mod filters;
mod forgetting;
pub(crate) mod gates;
mod handovers;
mod identity;
mod lent;
mod looks;
mod memberships;
mod methods;
mod neighbours;
mod packets;
mod pieces;
mod predicates;
mod principals;
pub(crate) mod random;
mod regions;
mod relays;
mod renaming;
mod replies;
mod restarts;
mod rings;
mod shares;
mod sleeping;
mod slices;
mod speculation;
mod steps;
mod strangers;
mod transfers;
mod turns;
mod upcalls;
mod visits;
mod waiting;
mod watched;
mod ways;

use crate::boot::Sizes;
use crate::create::{First, start_first};
use crate::dispatch::{self, Outcome};
use crate::fake::{self, FakeMachine};
use crate::index::{AccountIndex, CpuIndex, DomainIndex, EnvIndex, RegionIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::{domain, env, frame, sched, table};
use abi::call::{CAPABILITY_SHIFT, Call};
use abi::capability::{ALL, Capability, Name};
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId, Frame, RegionId};
use abi::layout::PAGE_SIZE;
use abi::limits::RESOURCES;
use abi::memory::{ANY_FRAME, Item, NO_EXECUTE, Operation, WRITABLE};
use abi::published::{EnvRecord, EnvState, FrameType};
use abi::setup::{EnvSetup, field};
use abi::upcall::offset;
use abi::word::{UserAddress, Which};

/// Capability index of the root name in every domain made here.
pub const ROOT: u8 = 1;
/// Page for arguments in every domain.
pub const SCRATCH: u64 = 0x40_0000;
/// First save area; one page for each thread, application pages behind.
pub const SAVE: u64 = 0x80_0000;
/// Where everything begins.
pub const RIP: u64 = 0x1000;
/// Entry points of everybody made here.
pub const FAULT: u64 = 0x2000;
pub const EVENT: u64 = 0x3000;
pub const SYNC: u64 = 0x4000;
pub const ASYNC: u64 = 0x5000;

/// Frames of the machine: the interpreter of `soak --part miri` is slow at making them.
const FRAMES: usize = if cfg!(miri) { 512 } else { 8192 };

pub const OK: Outcome = Outcome::Answer(0, 0);

pub fn error(error: Error, value: u64) -> Outcome {
    Outcome::Answer(error as u64, value)
}

pub struct World {
    pub state: State,
    pub machine: FakeMachine,
    /// What each hold of the lock has spent before its call begins.
    pub spent: u32,
}

impl World {
    /// The first environment runs on processor 0; there are two processors.
    pub fn new() -> Self {
        Self::of(FRAMES)
    }

    /// The same with so many frames.
    pub fn of(frames: usize) -> Self {
        Self::sized(Sizes::for_frames(frames))
    }

    /// The same with tables of these sizes.
    pub fn sized(sizes: Sizes) -> Self {
        let (state, machine) = fake::with_sizes(sizes, sizes.frames as u32..sizes.frames as u32);
        let mut world = Self { state, machine, spent: 0 };
        let domain = world.raw_domain();
        world.map(domain.index(), SCRATCH);
        let save = world.map(domain.index(), SAVE);
        let application = world.map(domain.index(), SAVE + 0x10_0000);
        let (state, machine) = (&mut world.state, &mut world.machine);
        let vector =
            frame::allocate(state, machine, Which::Any, 1.into(), Name::ROOT, FrameType::Vector)
                .unwrap();
        let account = AccountId(state.published.accounts[1].id);
        let first = First {
            domain,
            account,
            guard: Name::of(&[7]),
            vector,
            rip: RIP,
            rsp: 0x7000,
            save_address: SAVE,
            save,
            application,
        };
        assert_eq!(start_first(state, machine, &first).index(), 1);
        crate::slice::start_cpu(state, CpuIndex::new(1));
        state.envs.slots[EnvIndex::new(1)].entries = entries();
        assert_eq!(world.pick(0), 1);
        world
    }

    fn raw_domain(&mut self) -> DomainId {
        let asked = domain::Request {
            which: Which::Any,
            account: AccountId::NONE,
            root: Which::Any,
            window: 0,
            bytes: u64::MAX,
        };
        let (state, machine) = (&mut self.state, &mut self.machine);
        let id = domain::create(state, machine, 1.into(), Name::ROOT, &asked).unwrap();
        state.domains.records[id.into()].capabilities[usize::from(ROOT)] =
            Capability { rights: ALL, zero: 0, name: Name::ROOT };
        id
    }

    /// One item of a `TableUpdate` by a domain, of its own or another one's table, by the
    /// capability in this slot.
    pub fn update(
        &mut self,
        (by, target): (usize, usize),
        slot: u8,
        item: &Item,
    ) -> crate::answer::Answer {
        let [by, target] = [by, target].map(DomainIndex::new);
        let capability = self.state.domains.records[by].capabilities[usize::from(slot)];
        let (state, machine) = (&mut self.state, &mut self.machine);
        table::update_alone(state, machine, (by, target), &capability, item, 0).1
    }

    /// Maps a fresh writable page into a domain.
    pub fn map(&mut self, domain: usize, address: u64) -> Frame {
        self.map_by((domain, domain), address)
    }

    /// The same, by the first domain's own name into the second.
    pub fn map_by(&mut self, (by, domain): (usize, usize), address: u64) -> Frame {
        for (operation, level) in [
            (Operation::Table, 4),
            (Operation::Table, 3),
            (Operation::Table, 2),
            (Operation::Allocate, 1),
        ] {
            let value = if level == 1 { WRITABLE | NO_EXECUTE } else { u64::from(ANY_FRAME) };
            let operation = operation as u8;
            let item = Item { operation, level, more: 0, frame: ANY_FRAME, address, value };
            match self.update((by, domain), 0, &item) {
                Ok(_) => {}
                Err(refusal) => assert_eq!(refusal.error, Error::NotEmpty),
            }
        }
        let (state, machine) = (&mut self.state, &mut self.machine);
        let root = domain::root(state, DomainIndex::new(domain));
        table::look_up(machine, root, address).unwrap().frame
    }

    /// A domain with a page for arguments.
    pub fn domain(&mut self) -> DomainId {
        let id = self.raw_domain();
        self.map(id.index(), SCRATCH);
        id
    }

    /// An environment made by the first one in `domain`, ready, with a save area of its own.
    pub fn spawn(&mut self, domain: DomainId) -> usize {
        self.spawn_by(1, domain)
    }

    /// As `spawn`, with its events masked.
    pub fn spawn_masked(&mut self, domain: DomainId) -> usize {
        let index = self.spawn(domain);
        mask(self, index);
        index
    }

    pub fn spawn_by(&mut self, maker: usize, domain: DomainId) -> usize {
        let index = self.spawn_new(maker, domain);
        let release = Call::EnvRelease { env: self.id(index) };
        assert_eq!(self.by(maker, release), OK);
        index
    }

    /// As `spawn`, not yet released.
    pub fn spawn_new(&mut self, maker: usize, domain: DomainId) -> usize {
        self.spawn_for(maker, domain, AccountId::NONE)
    }

    /// The same for another account.
    pub fn spawn_for(&mut self, maker: usize, domain: DomainId, account: AccountId) -> usize {
        let (which, vector) = (Which::Any, Which::Any);
        let call = Call::EnvAlloc { which, domain, account, vector };
        let answer = self.by(maker, call);
        let Outcome::Answer(0, id) = answer else { panic!("EnvAlloc: {answer:?}") };
        let id = EnvId(id as u32);
        let save = SAVE + id.index() as u64 * PAGE_SIZE;
        self.map(domain.index(), save);
        self.map(domain.index(), save + 0x10_0000);
        let setup = EnvSetup {
            rip: RIP,
            rsp: 0x7000,
            argument: 5,
            gs_base: save,
            fault_entry: FAULT,
            event_entry: EVENT,
            sync_entry: SYNC,
            async_entry: ASYNC,
            save_area: save,
            application_page: save + 0x10_0000,
            guard: u64::from(ROOT),
            ..EnvSetup::default()
        };
        let fields = ((1 << 14) - 1) & !field::FOREIGN_ENTRY & !field::GUARD;
        // As after a while: tests make many at one time.
        let account = crate::turns::account_of(&self.state, EnvIndex::new(maker));
        self.state.accounts.records[account].forgets_ns = 0;
        assert_eq!(self.set_by(maker, id, fields, &setup), OK);
        id.index()
    }

    pub fn set_by(&mut self, by: usize, env: EnvId, fields: u64, setup: &EnvSetup) -> Outcome {
        let words = setup_words(setup);
        self.put(by, &words);
        self.by(by, Call::EnvSet { env, fields, setup: UserAddress(SCRATCH) })
    }

    /// An environment sets the flags of another one, or its own.
    pub fn set_flags(&mut self, by: usize, env: EnvId, flags: u64) -> Outcome {
        self.set_by(by, env, field::FLAGS, &EnvSetup { flags, ..EnvSetup::default() })
    }

    /// Writes words to the argument page of an environment's domain.
    pub fn put(&mut self, index: usize, words: &[u64]) {
        for (at, word) in words.iter().enumerate() {
            self.poke(index, SCRATCH + 8 * at as u64, *word);
        }
    }

    fn physical(&self, index: usize, address: u64) -> u64 {
        let root = domain::root(&self.state, env::domain(&self.state, EnvIndex::new(index)).into());
        let leaf = table::look_up(&self.machine, root, address).expect("mapped");
        leaf.frame.address() + address % PAGE_SIZE
    }

    /// A program's load and store.
    pub fn peek(&self, index: usize, address: u64) -> u64 {
        self.machine.word(self.physical(index, address))
    }

    pub fn poke(&mut self, index: usize, address: u64, value: u64) {
        let at = self.physical(index, address);
        self.machine.word_set(at, value);
    }

    /// A word of an environment's save area.
    pub fn saved(&self, index: usize, offset: usize) -> u64 {
        let (_, physical) = env::save_area(&self.state, EnvIndex::new(index)).unwrap();
        self.machine.word(physical + offset as u64)
    }

    pub fn save(&mut self, index: usize, offset: usize, value: u64) {
        let (_, physical) = env::save_area(&self.state, EnvIndex::new(index)).unwrap();
        self.machine.word_set(physical + offset as u64, value);
    }

    pub fn id(&self, index: usize) -> EnvId {
        env::id(&self.state, EnvIndex::new(index))
    }

    pub fn state_of(&self, index: usize) -> EnvState {
        let state = self.state.envs.slots[EnvIndex::new(index)].state;
        assert_eq!(self.state.published.envs[index].state, state as u32);
        state
    }

    /// Asks who runs on a processor; 0: nobody.
    pub fn pick(&mut self, cpu: usize) -> usize {
        check(&self.state);
        // A hold of the lock of its own.
        self.state.spent = 0;
        self.machine.cpu = cpu;
        let index = sched::pick(&mut self.state, &mut self.machine, CpuIndex::new(cpu))
            .map_or(0, EnvIndex::at);
        let running: Vec<usize> = (1..self.state.envs.slots.len())
            .filter(|&at| self.state.envs.slots[EnvIndex::new(at)].state == EnvState::Running)
            .filter(|&at| self.state.published.envs[at].cpu as usize == cpu)
            .collect();
        assert_eq!(running, if index == 0 { vec![] } else { vec![index] });
        check(&self.state);
        crate::work::end(&mut self.state);
        index
    }

    /// Arranges that an environment runs on a processor now.
    pub fn on(&mut self, cpu: usize, index: usize) {
        let current = usize::from(self.state.sched.cpus[CpuIndex::new(cpu)].current);
        if current == index {
            return;
        }
        if current != 0 {
            sched::leave(&mut self.state, &mut self.machine, CpuIndex::new(cpu));
            env::set_state(&mut self.state, EnvIndex::new(current), EnvState::Ready);
        }
        for other in 0..2 {
            if usize::from(self.state.sched.cpus[CpuIndex::new(other)].current) == index {
                sched::leave(&mut self.state, &mut self.machine, CpuIndex::new(other));
                env::set_state(&mut self.state, EnvIndex::new(index), EnvState::Ready);
            }
        }
        assert_eq!(self.state_of(index), EnvState::Ready);
        sched::run(&mut self.state, CpuIndex::new(cpu), EnvIndex::new(index), self.machine.now);
        let slice_end = self.machine.now + abi::limits::SLICE_NS;
        self.state.sched.cpus[CpuIndex::new(cpu)].slice_end_ns = slice_end;
        self.state.sched.cpus[CpuIndex::new(cpu)].lender = 0;
    }

    /// The environment makes a call with the root capability, on the processor where it runs, or on
    /// processor 0.
    pub fn by(&mut self, index: usize, call: Call) -> Outcome {
        self.with(index, ROOT, call)
    }

    pub fn with(&mut self, index: usize, capability: u8, call: Call) -> Outcome {
        let cpu = (0..2)
            .find(|&cpu| usize::from(self.state.sched.cpus[CpuIndex::new(cpu)].current) == index);
        let cpu = cpu.unwrap_or_else(|| {
            self.on(0, index);
            0
        });
        let word = u64::from(call.encode().0) | u64::from(capability) << CAPABILITY_SHIFT;
        self.raw(cpu, index, call, word)
    }

    /// What the machine layer does for a `syscall`.
    pub fn raw(&mut self, cpu: usize, index: usize, call: Call, word: u64) -> Outcome {
        let root = domain::root(&self.state, env::domain(&self.state, EnvIndex::new(index)).into());
        self.machine.current = Some(root);
        self.machine.cpu = cpu;
        let (number, words) = call.encode();
        let mut bytes = vec![];
        if let Some((address, len)) = dispatch::buffer(number, words) {
            let end = address + len as u64;
            let mut at = address;
            while at < end {
                let Some(leaf) = table::look_up(&self.machine, root, at) else {
                    panic!("a fault before the call")
                };
                // As far as this word goes.
                let physical = leaf.frame.address() + at % PAGE_SIZE;
                let word = self.machine.word(physical & !7).to_le_bytes();
                let (from, most) = ((at % 8) as usize, (end - at) as usize);
                let taken = &word[from..(from + most).min(8)];
                bytes.extend_from_slice(taken);
                at += taken.len() as u64;
            }
        }
        check(&self.state);
        let (state, machine) = (&mut self.state, &mut self.machine);
        crate::work::begin(state);
        crate::work::spend(state, self.spent);
        let outcome = dispatch::call(
            state,
            machine,
            CpuIndex::new(cpu),
            EnvIndex::new(index),
            word,
            words,
            &bytes,
        );
        if let Outcome::Answer(error, value) = outcome {
            machine.context(index).answer(error, value);
        }
        check(&self.state);
        outcome
    }

    /// Work and limbo come to their end.
    pub fn settle(&mut self) {
        // More than once: an account can end when its last frame has come back from limbo, and the
        // one above when that has ended.
        for _ in 0..4 {
            crate::work::begin(&mut self.state);
            while crate::work::anybodys(&mut self.state, &mut self.machine) {
                crate::work::begin(&mut self.state);
                self.hear();
            }
            let ticket = frame::ticket(&mut self.state);
            frame::limbo_release(&mut self.state, &mut self.machine, ticket);
        }
        assert!(!crate::work::waiting(&self.state));
    }

    /// Processors enter the kernel for what others ask of the environments that run there.
    fn hear(&mut self) {
        for cpu in crate::index::CpuIndex::all() {
            crate::request::serve(&mut self.state, &mut self.machine, cpu);
        }
    }

    /// All that is counted: free frames, what accounts use, who is in the tables.
    pub fn census(&mut self) -> (u32, [u32; RESOURCES], usize, usize, usize) {
        self.settle();
        let published = &self.state.published;
        (
            self.state.frames.free_count(),
            published.accounts[1].used,
            published.envs.iter().filter(|record| record.id != 0).count(),
            published.domains.iter().filter(|record| record.id != 0).count(),
            published.regions.iter().filter(|record| record.id != 0).count(),
        )
    }
}

/// What must hold of environments between any two steps. An interpreter looks at the steps.
pub fn check(state: &State) {
    if cfg!(miri) {
        return;
    }
    crate::region::check(state);
    crate::turns::check(state);
    crate::left::check(state);
    state.envs.check();
    let envs = &state.envs.slots;
    let mut watchers = 0;
    for (index, env) in envs.iter().enumerate().skip(1) {
        let queued = crate::list::contains(envs, crate::list::Kind::Ring, EnvIndex::new(index));
        let watching = crate::list::contains(envs, crate::list::Kind::Watch, EnvIndex::new(index));
        watchers += u16::from(watching);
        let is_looked_at = queued || env.has(abi::setup::FLAG_GIVEN_TIME) && env.edge != 0;
        assert!(!env.is_apart() || !watching && is_looked_at, "{index} is apart");
        let wants = match env.state {
            EnvState::Ready | EnvState::Running | EnvState::Donating => true,
            EnvState::Sleeping => {
                watching || env.is_apart() || env.debt_ns > 0 || env.pending == env::Pending::Region
            }
            _ => false,
        };
        let wants = wants && !env.has(abi::setup::FLAG_GIVEN_TIME);
        assert_eq!(queued, wants, "{index} is {:?}", env.state);
    }
    let known = state.published.envs.iter().enumerate().filter(|(_, record)| record.id != 0);
    let known: Vec<_> = known.collect();
    for &(index, EnvRecord { id, .. }) in &known {
        let donors = known.iter().filter(|(_, record)| record.donated_to == *id).count();
        assert_eq!(usize::from(envs[EnvIndex::new(index)].donors), donors);
        let children = known.iter().filter(|(_, record)| record.holder == *id).count();
        assert_eq!(usize::from(envs[EnvIndex::new(index)].children), children);
        let named = donors + children + state.published.envs[index].holder as usize != 0;
        assert!(named || state.published.envs[index].state != EnvState::Dead as u32, "{index}");
    }
    assert_eq!(watchers, state.sched.watchers);
    for record in state.published.regions.iter().filter(|record| record.id != 0) {
        let region = RegionId(record.id);
        let waits_for_it = |&index: &usize| {
            let env = &envs[EnvIndex::new(index)];
            env.pending == env::Pending::Region && env.wait.region == region
        };
        let waiters: Vec<_> = (1..envs.len()).filter(waits_for_it).collect();
        let known = &state.regions.slots[RegionIndex::new(region.index())];
        assert_eq!(usize::from(known.waiters), waiters.len(), "of {region:?}");
        let unlisted = |&&index: &&usize| {
            let watching =
                crate::list::contains(envs, crate::list::Kind::Watch, EnvIndex::new(index));
            !watching && !envs[EnvIndex::new(index)].is_apart()
        };
        // Who is in no list is the only one, and the region knows him.
        if let Some(&alone) = waiters.iter().find(unlisted) {
            assert_eq!((waiters.len(), usize::from(known.waiter)), (1, alone), "of {region:?}");
        }
    }
}

fn entries() -> env::Entries {
    env::Entries {
        fault: FAULT,
        event: EVENT,
        sync: SYNC,
        asynchronous: ASYNC,
        ..Default::default()
    }
}

pub fn setup_words(setup: &EnvSetup) -> [u64; 16] {
    [
        setup.rip,
        setup.rsp,
        setup.argument,
        setup.fs_base,
        setup.gs_base,
        setup.fault_entry,
        setup.event_entry,
        setup.foreign_entry,
        setup.sync_entry,
        setup.async_entry,
        setup.flags,
        setup.save_area,
        setup.application_page,
        setup.guard,
        setup.queue,
        0,
    ]
}

/// Masks events of an environment, as a library does in its critical sections.
pub fn mask(world: &mut World, index: usize) {
    world.save(index, offset::MASK, 1);
}
