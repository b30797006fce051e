//! Calls as environments make them, through the dispatcher, with arguments that are often right.
//!
//! Environment 1 holds the root name and lives for ever, so that the world never stands still: it
//! is not destroyed, held or moved, and sleeps with a deadline only.

use super::Model;
use super::names::Lives;
use crate::context::SYSCALL_BYTES;
use crate::dispatch::{self, Outcome};
use crate::index::{CpuIndex, DomainIndex, EnvIndex};
use crate::machine::Machine;
use crate::{create, death, domain, env, frame, net, region, sched, table, token, upcall, work};
use abi::call::{CAPABILITY_SHIFT, Call, TRANSFER_REPLY, TRANSFER_SHIFT, TRANSFER_WAIT};
use abi::capability::Name;
use abi::domain::Property;
use abi::id::{AccountId, DomainId, EnvId, Frame, RegionId};
use abi::layout::PAGE_SIZE;
use abi::memory::{ANY_FRAME, Item, Operation, WRITABLE};
use abi::published::{EnvState, FrameType};
use abi::region::{NO_PEER, Step};
use abi::setup::field::WHILE_RUNNING;
use abi::upcall::{Cause, offset};
use abi::word::{UserAddress, Which};

/// Environment 1.
pub(super) const FIRST: usize = 1;
/// Where a call's argument in memory would lie; the model hands the bytes over itself.
pub(super) const BUFFER: UserAddress = UserAddress(0x40_0000);
/// The first environment's own pages, in no region that the model changes.
const SAVE: u64 = 0x7000_0000;

impl Model {
    /// The first environment, in the first domain, on processor 0.
    pub(super) fn start(&mut self) {
        let save = self.fresh_page(SAVE);
        let application = self.fresh_page(SAVE + PAGE_SIZE);
        let domain = self.domains[0].id;
        let (state, machine) = (&mut self.state, &mut self.machine);
        let kind = FrameType::Vector;
        let vector =
            frame::allocate(state, machine, Which::Any, 1.into(), Name::ROOT, kind).unwrap();
        let first = create::First {
            domain,
            account: AccountId::new(1, 0),
            guard: Name::ROOT,
            vector,
            rip: 0x1000,
            rsp: 0x2000,
            save_address: SAVE,
            save,
            application,
        };
        assert_eq!(create::start_first(state, machine, &first).index(), FIRST);
        state.envs.slots[EnvIndex::new(FIRST)].entries.fault = 0x3000;
        state.envs.slots[EnvIndex::new(FIRST)].entries.event = 0x4000;
        net::attach(state, 0, 0x1234);
        for cpu in 1..super::processor::CPUS {
            crate::slice::start_cpu(state, CpuIndex::new(cpu));
        }
    }

    fn fresh_page(&mut self, address: u64) -> Frame {
        let (index, name) = (self.domains[0].index, self.domains[0].capabilities[0]);
        let root = domain::root(&self.state, index);
        let any = u64::from(ANY_FRAME);
        for (operation, level, value) in [
            (Operation::Table, 4, any),
            (Operation::Table, 3, any),
            (Operation::Table, 2, any),
            (Operation::Allocate, 1, WRITABLE),
        ] {
            let operation = operation as u8;
            let item = Item { operation, level, more: 0, frame: ANY_FRAME, address, value };
            let (state, machine) = (&mut self.state, &mut self.machine);
            // Tables that are there already are refused.
            let _ = table::update_alone(state, machine, (index, index), &name, &item, 0);
        }
        table::look_up(&self.machine, root, address).unwrap().frame
    }

    /// Whoever runs on the acting processor makes a call; then the kernel is left as always.
    pub(super) fn call(&mut self) {
        let cpu = self.processors.actor;
        self.machine.now += self.random.next() >> self.random.below(64) & 0xff_ffff;
        let current = usize::from(self.state.sched.cpus[CpuIndex::new(cpu)].current);
        if current == 0 {
            self.arouse();
        } else {
            let mut call = self.some_call(current);
            if self.lives == Lives::AllShort && self.random.one_in(3) {
                call = self.some_turnover(current);
            }
            if self.harmless(current, &call) {
                self.make(cpu, current, call);
            }
            if let Call::RegionDetach { region, role } = call
                && self.random.one_in(4)
            {
                // Attachments are counted, and more attach than detach: now and then one gives all
                // of them back, or no region would end in the first domain's days.
                while region::detach(&mut self.state, EnvIndex::new(current), region, role).is_ok()
                {
                }
            }
            if matches!(call, Call::RegionAlloc { .. } | Call::MethodBind { .. })
                && self.random.one_in(2)
            {
                let call = self.some_bind();
                self.make(cpu, current, call);
            }
            if matches!(call, Call::EnvAlloc { .. }) && !self.random.one_in(4) {
                // Whoever makes one mostly says what it shall be.
                let call = self.some_set();
                if self.harmless(current, &call) {
                    self.make(cpu, current, call);
                }
            }
        }
        if self.random.one_in(8) {
            self.network();
        }
        self.leave(cpu);
        self.write_save_areas();
        self.revive();
        crate::tests::check(&self.state);
        self.forget_dead_domains();
    }

    /// Time passes on an idle processor, and something comes from outside.
    pub(super) fn arouse(&mut self) {
        self.machine.now += self.random.next() & 0xfff_ffff;
        let index = self.random.below(12);
        let alive = env::living(&self.state, env::id(&self.state, EnvIndex::new(index))).is_ok();
        if index != 0 && alive {
            let bits = 1 << self.random.below(8);
            sched::event(&mut self.state, &mut self.machine, EnvIndex::new(index), bits);
        }
    }

    /// The way out of the kernel.
    pub(super) fn leave(&mut self, cpu: usize) {
        let (state, machine) = (&mut self.state, &mut self.machine);
        machine.cpu = cpu;
        let cpu = CpuIndex::new(cpu);
        work::first(state, machine, cpu);
        let next = sched::pick(state, machine, cpu);
        work::step(state, machine, cpu);
        self.machine.interrupts.clear();
        let Some(index) = next else { return };
        assert_eq!(self.state.envs.slots[index].state, EnvState::Running);
        assert!(env::vector(&self.state, index).is_some());
        let at_home = |cpu: &&sched::Cpu| usize::from(cpu.current) == index.at();
        assert_eq!(self.state.sched.cpus.iter().filter(at_home).count(), 1, "{index:?} runs once");
    }

    /// Programs write their save areas: handlers return, servers wait for transfers.
    pub(super) fn write_save_areas(&mut self) {
        for index in 1..self.state.envs.slots.len() {
            if let Some((_, area)) = env::save_area(&self.state, EnvIndex::new(index))
                && self.random.one_in(2)
            {
                for word in [offset::MASK, offset::DEPTH, offset::RETURNING] {
                    self.machine.word_set(area + word as u64, 0);
                }
                self.machine.word_set(area + offset::ACCEPTING as u64, 1);
            }
        }
    }

    /// The first environment, stopped by a fault when all slots of its save area were in use, goes
    /// on, as one does that a debugger looks after: nobody else may be left who could let it.
    pub(super) fn revive(&mut self) {
        let first = env::id(&self.state, EnvIndex::new(FIRST));
        if self.state.envs.slots[EnvIndex::new(FIRST)].state == EnvState::Stopped {
            let (state, machine) = (&mut self.state, &mut self.machine);
            let released = death::release(state, machine, EnvIndex::new(FIRST), 1, first);
            assert_eq!(released, Ok(0));
        }
    }

    fn make(&mut self, cpu: usize, index: usize, call: Call) {
        let (number, words) = call.encode();
        let number = u64::from(number);
        let mut capability = self.some_capability_index(index);
        if let Call::DomainSwitch { domain } = call {
            capability = self.best_over(index, domain, capability);
        }
        if matches!(call, Call::AccountDestroy { .. } | Call::NetTransmit { .. })
            || self.names_first(index, &call) && self.random.one_in(2)
        {
            capability = 1;
        }
        let on_first = self.names_first(index, &call);
        let mut word = number | capability << CAPABILITY_SHIFT;
        if let Call::TransferSync {} | Call::TransferAsync {} = call {
            word = number | u64::from(self.some_env().0) << TRANSFER_SHIFT;
            if self.random.one_in(2) {
                word |= TRANSFER_REPLY;
            } else if self.random.one_in(2) {
                word |= TRANSFER_WAIT;
            }
        }
        let own = env::domain(&self.state, EnvIndex::new(index)).into();
        self.machine.current = Some(domain::root(&self.state, own));
        let mut bytes = self.some_bytes(index, &call);
        if let Some((_, len)) = dispatch::buffer(number as u16, words) {
            bytes.resize(len, 0);
        }
        let (state, machine) = (&mut self.state, &mut self.machine);
        // Entry code serves no call whose instruction would begin below the first address.
        let context = machine.context(index);
        context.rip = context.rip.max(SYSCALL_BYTES);
        machine.cpu = cpu;
        let on = CpuIndex::new(cpu);
        let mut outcome =
            dispatch::call(state, machine, on, EnvIndex::new(index), word, words, &bytes);
        // Whoever binds mostly stays until it is done.
        while matches!(call, Call::MethodBind { .. })
            && outcome == Outcome::Again
            && !self.random.one_in(9)
        {
            work::begin(state);
            outcome = dispatch::call(state, machine, on, EnvIndex::new(index), word, words, &bytes);
        }
        self.note_outcome(index, (number as u16, on_first), outcome);
    }

    fn note_outcome(&mut self, index: usize, (row, on_first): (u16, bool), outcome: Outcome) {
        let (state, machine) = (&mut self.state, &mut self.machine);
        let done = !matches!(outcome, Outcome::Answer(1.., _) | Outcome::Fault(_));
        self.rows[usize::from(row)][usize::from(done)] += 1;
        self.on_first[usize::from(row)][usize::from(done)] += u64::from(on_first);
        match outcome {
            Outcome::Answer(error, value) => {
                machine.context(index).answer(error, value);
                self.answers[error as usize] += 1;
            }
            Outcome::Fault(fault) => {
                let cause = Cause::PageFault as u8;
                let error = u64::from(fault.write) << 1 | 4;
                upcall::deliver_fault(
                    state,
                    machine,
                    EnvIndex::new(index),
                    cause,
                    error,
                    fault.address,
                );
                self.faults += 1;
            }
            Outcome::Enter(_) | Outcome::Left | Outcome::Restart => {
                self.answers[0] += 1;
            }
            Outcome::Moved => self.visits += 1,
            Outcome::Again => {}
        }
    }

    /// Leaves the first environment, and what it lives on, in peace.
    pub(super) fn harmless(&self, current: usize, call: &Call) -> bool {
        let by_first = current == FIRST;
        let first = env::id(&self.state, EnvIndex::new(FIRST));
        let on_first = |env: EnvId| env == first || (env.is_none() && by_first);
        match *call {
            Call::Sleep { deadline, .. } => !by_first || deadline != 0,
            // The words of a fifo may stay for ever as they are.
            Call::RegionStepOrWait { .. } => !by_first,
            Call::RegionAwait { deadline, .. } => !by_first || deadline != 0,
            Call::TransferSync {} | Call::EnvMove { .. } | Call::DomainSwitch { .. } => !by_first,
            Call::EnvHold { env } | Call::EnvDestroy { env, .. } => !on_first(env),
            Call::EnvSet { env, .. } => !on_first(env),
            Call::DomainDestroy { domain } => domain != self.domains[0].id,
            Call::AccountLimit { account, .. } => account.index() == 1 || account.index() > 3,
            // Its account is the one that never ends.
            Call::DomainSet { domain, property, value } => {
                let first = domain == self.domains[0].id;
                let own = domain.is_none() && self.is_first_domain(current);
                property != Property::Account as u16
                    || !(first || own)
                    || AccountId(value) == AccountId::new(1, 0)
            }
            Call::CapabilityDerive { domain, slot, .. } => {
                let first = domain == self.domains[0].id;
                slot > 1 || !(first || domain.is_none() && self.is_first_domain(current))
            }
            Call::CapabilityDrop { slot } => slot > 1 || !self.is_first_domain(current),
            Call::FrameRevoke { frame, .. } => !self.hears_by(frame),
            // One that nobody has attached to can only end with its maker: leave room to attach.
            Call::RegionAlloc { .. } => {
                let all = self.state.published.regions.iter();
                all.filter(|record| record.id != 0 && record.attached == [0; 4]).count() < 4
            }
            _ => true,
        }
    }

    fn is_first_domain(&self, caller: usize) -> bool {
        let own = env::domain(&self.state, EnvIndex::new(caller));
        DomainIndex::from(own) == self.domains[0].index
    }

    /// Is this the first environment's save area? Without one it would hear of no event, and may
    /// wait for a region that no call changes any more.
    pub(super) fn hears_by(&self, frame: Frame) -> bool {
        self.state.envs.slots[EnvIndex::new(FIRST)].save == frame
    }

    /// Mostly one that is not empty.
    pub(super) fn some_capability_index(&mut self, caller: usize) -> u64 {
        let list = self
            .state
            .domains
            .record(env::domain(&self.state, EnvIndex::new(caller)).into())
            .capabilities;
        let index = self.random.below(6);
        let empty = list[index].rights == 0;
        let full = list.iter().take(6).filter(|capability| capability.rights != 0).count();
        if empty && !self.random.one_in(4) {
            self.random.below(full.clamp(1, 2)) as u64
        } else {
            index as u64
        }
    }

    /// Mostly one that is mapped for writing in the space of the environment at `index`.
    pub(super) fn some_own_page(&mut self, index: usize) -> u64 {
        let root = domain::root(&self.state, env::domain(&self.state, EnvIndex::new(index)).into());
        let mut page = self.some_page();
        for _ in 0..12 {
            if table::walk(&self.state, &self.machine, root, page, true).is_some() {
                break;
            }
            page = self.some_page();
        }
        page
    }

    fn some_env(&mut self) -> EnvId {
        if self.random.one_in(8) {
            return EnvId(self.random.next() as u32 & 0x3fff_ffff >> self.random.below(30));
        }
        let all = self.state.published.envs.iter();
        let live: Vec<u32> = all.map(|record| record.id).filter(|&id| id != 0).collect();
        EnvId(if self.random.one_in(6) { 0 } else { self.random.pick(&live) })
    }

    pub(super) fn some_domain_id(&mut self) -> DomainId {
        match self.random.below(8) {
            0 => DomainId::NONE,
            1 => self.stale.last().copied().unwrap_or(DomainId(77)),
            _ => {
                let at = self.random.below(self.domains.len());
                self.domains[at].id
            }
        }
    }

    fn some_account(&mut self) -> AccountId {
        match self.random.below(4) {
            0 => AccountId::NONE,
            _ => AccountId(self.state.published.accounts[self.random.below(8)].id),
        }
    }

    /// One that the model makes domains of, or any: those that calls make would pile up.
    fn some_account_to_end(&mut self) -> AccountId {
        let accounts = &self.state.published.accounts;
        let below = if self.random.one_in(2) { 4 } else { accounts.len() - 1 };
        let live = accounts[1..1 + below].iter().map(|record| record.id);
        let count = live.clone().filter(|&id| id != 0).count();
        let chosen = self.random.below(count.max(1));
        AccountId(live.filter(|&id| id != 0).nth(chosen).unwrap_or(0))
    }

    pub(super) fn some_region(&mut self) -> RegionId {
        let all = self.state.published.regions.iter();
        let mut live: Vec<u64> = all.map(|record| record.id).filter(|&id| id != 0).collect();
        live.push(self.random.next() >> 1 >> self.random.below(50));
        RegionId(self.random.pick(&live))
    }

    /// How many frames a region has, whether it is a fifo, how it is guarded, for which guests.
    fn some_count(&mut self, small: u16) -> u64 {
        let fifo = if self.random.one_in(3) { abi::region::FIFO } else { 0 };
        let guard = if self.random.one_in(3) { abi::region::AS_DOMAIN } else { 0 };
        let guests = if self.random.one_in(3) { abi::region::ONE_GUEST } else { 0 };
        (u64::from(small) / 3) | fifo | guard | guests
    }

    fn some_which(&mut self, below: usize) -> Which {
        if self.random.one_in(3) {
            Which::This(self.random.below(below) as u32)
        } else {
            Which::Any
        }
    }

    fn some_time(&mut self) -> u64 {
        let ahead = self.random.next() >> self.random.below(64);
        if self.random.one_in(3) { 0 } else { self.machine.now.saturating_add(ahead & 0xfff_ffff) }
    }

    pub(super) fn some_call(&mut self, caller: usize) -> Call {
        let word = self.random.next() >> self.random.below(64);
        let small = self.random.below(8) as u16;
        match self.random.below(86) {
            80..86 => self.some_other_call(caller, word, small),
            0..=1 => Call::Yield { to: self.some_env() },
            2..=5 => Call::Sleep {
                deadline: self.some_time(),
                posted: word,
                events: self.random.next(),
                flags: u64::from(small & 1),
            },
            6..=7 => Call::TransferSync {},
            8..=9 => Call::TransferAsync {},
            10..=13 => Call::Post { env: self.some_env(), bits: word },
            14 => Call::EnvHold { env: self.some_env() },
            15..=19 => Call::EnvRelease { env: self.some_env() },
            20 => Call::EnvDestroy { env: self.some_env(), word },
            21..=25 => Call::EnvAlloc {
                which: self.some_which(12),
                domain: self.some_domain_id(),
                account: self.some_account(),
                vector: self.some_which(self.frames),
            },
            26..=29 => self.some_set(),
            30 => Call::EnvMove {
                domain: self.some_domain_id(),
                fields: if small < 4 { WHILE_RUNNING } else { word & 0x3fff },
                setup: BUFFER,
            },
            31..=32 => Call::EnvForget { env: self.some_env() },
            33 => Call::EnvEntrust { env: self.some_env(), holder: self.some_env() },
            34..=35 if self.domains.len() < super::DOMAINS => Call::DomainAlloc {
                which: self.some_which(10),
                account: self.some_account(),
                root: self.some_which(self.frames),
                window: 0,
                bytes: u64::MAX,
            },
            36 if small == 0 => Call::DomainDestroy { domain: self.some_domain_id() },
            37 => Call::TableUpdate {
                domain: self.some_domain_id(),
                items: BUFFER,
                count: if small == 0 { word } else { 0 },
            },
            38 => Call::AccountAlloc { which: self.some_which(9), parent: self.some_account() },
            39 => {
                let (account, resource) = (self.some_account(), small);
                Call::AccountLimit { account, resource, limit: 3, reserve: small.into() }
            }
            40 if small < 4 => Call::AccountDestroy { account: self.some_account_to_end() },
            41..=42 => Call::SliceAlloc {
                cpu: small / 2,
                position: self.some_which(20),
                env: self.some_env(),
            },
            43 => Call::SliceFree { cpu: small / 2, position: self.random.below(20) as u32 },
            44..=46 => Call::RegionAlloc { frames: BUFFER, count: self.some_count(small) },
            47..=49 => Call::RegionAttach {
                region: self.some_region(),
                role: small / 2,
                domain: self.some_domain_id(),
            },
            74..=75 => {
                let (domain, count) = (self.some_domain_id(), u64::from(small) / 2);
                Call::RegionPass { domain, places: BUFFER, count }
            }
            50 => Call::RegionDetach { region: self.some_region(), role: small / 2 },
            51..=53 => Call::RegionOperate { operation: BUFFER },
            54 if self.random.one_in(2) => self.some_step(caller),
            54 => {
                let (deadline, posted) = (self.some_time(), self.random.next());
                Call::RegionAwait { wait: BUFFER, deadline, posted, events: u64::from(small) }
            }
            55..=58 => Call::PredicateSet { atoms: BUFFER, count: u64::from(small) },
            59..=60 => Call::TimerSet { deadline: self.some_time() },
            61 => {
                Call::ConsoleRing { page: if small == 0 { 0 } else { self.some_own_page(caller) } }
            }
            63 => Call::CapabilityToken { word: small / 2 },
            64..=65 => self.some_token(caller),
            67 => Call::CapabilityPass { domain: self.some_domain_id(), slots: (word as u16) & !3 },
            66 => Call::CapabilityRetract { extend: 1, components: u64::from(small) },
            68..=69 => self.some_bind(),
            70..=73 => {
                let (method, role) = (u16::from(self.random.one_in(9)), small / 2);
                let (region, first) = (self.some_region(), word & 0x1f);
                Call::MethodCall { region, method, role, first, second: word, third: 0 }
            }
            76..=77 => self.some_visit(caller),
            62 => Call::ConsoleWrite { stream: small, bytes: BUFFER, len: word },
            _ => self.some_network_call(caller, word),
        }
    }

    /// A token: of a capability that the caller has, sealed well or badly.
    fn some_token(&mut self, caller: usize) -> Call {
        let domain = env::domain(&self.state, EnvIndex::new(caller)).into();
        let index = self.some_capability_index(caller) as u8;
        let (state, machine) = (&mut self.state, &mut self.machine);
        let mut word = |at| token::word(state, machine, domain, index, at).unwrap_or(0);
        let (first, second, seal) = (word(0), word(1), word(2));
        let seal = if self.random.one_in(2) { seal } else { seal ^ 1 };
        Call::CapabilityEnter { slot: 2 + self.random.below(5) as u16, first, second, seal }
    }

    /// Along a region whose words are mostly zero, mostly one of the caller's domain.
    pub(super) fn some_step(&mut self, caller: usize) -> Call {
        let own = env::domain(&self.state, EnvIndex::new(caller)).into();
        let regions = self.state.published.regions.iter().filter(|record| record.id != 0);
        let roles = regions.flat_map(|record| (0..4).map(move |role| (record, role)));
        let attached: Vec<(u64, u8, usize)> = roles
            .filter(|(record, role)| {
                region::attached(&self.state, own, RegionId(record.id).into(), *role)
            })
            .map(|(record, role)| (record.id, role, record.bytes as usize / 8))
            .collect();
        let (region, role, words) = match attached[..] {
            [] => (self.some_region().0, self.random.below(3) as u8, 9),
            _ => self.random.pick(&attached),
        };
        let words = words.clamp(1, 9);
        let step = Step {
            region,
            role,
            peer: if self.random.one_in(3) { self.random.below(5) as u8 } else { NO_PEER },
            flags: self.random.below(5) as u8,
            len: 8 * self.random.below(3) as u32,
            offset: 8 * self.random.below(words) as u32,
            moves: self.random.below(words) as u16,
            beside: self.random.below(words) as u16,
            events: self.random.below(256) as u16,
        };
        let [which, piece, words] = step.to_words();
        let address = self.some_own_page(caller);
        let from = 8 * self.random.below(2) as u64;
        let other = self.random.next() & 0x18;
        if self.random.one_in(2) {
            Call::RegionStep { which, address, piece, words, from, beside: other }
        } else {
            Call::RegionStepOrWait { which, address, piece, words, from, posted: other }
        }
    }

    /// Often of one that has not started yet.
    fn some_set(&mut self) -> Call {
        let slots = self.state.envs.slots.iter().enumerate();
        let new: Vec<usize> =
            slots.filter(|(_, env)| env.state == EnvState::New).map(|(index, _)| index).collect();
        let (env, fields) = if !new.is_empty() && !self.random.one_in(4) {
            let index = self.random.pick(&new);
            (env::id(&self.state, EnvIndex::new(index)), (1 << 14) - 1)
        } else {
            (self.some_env(), WHILE_RUNNING)
        };
        let fields = fields & !(1 << self.random.below(30));
        Call::EnvSet { env, fields, setup: BUFFER }
    }

    /// What calls have done to domains becomes what the model knows.
    pub(super) fn forget_dead_domains(&mut self) {
        let (state, stale) = (&self.state, &mut self.stale);
        self.domains.retain(|known| {
            let lives = domain::find(state, known.id) == Ok(known.index);
            if !lives {
                stale.push(known.id);
            }
            lives
        });
        for (index, record) in self.state.published.domains.iter().enumerate() {
            let id = DomainId(record.id);
            let found = domain::find(&self.state, id).is_ok();
            let new = found && self.domains.iter().all(|known| known.id != id);
            if new {
                self.domains.push(super::Known::new(&self.state, DomainIndex::new(index), id));
            }
        }
        for known in &mut self.domains {
            known.capabilities = self.state.domains.record(known.index).capabilities;
        }
    }

    /// Ends a domain that no environment is in.
    pub(super) fn end_empty(&mut self, index: usize) {
        death::end_domain(&mut self.state, &mut self.machine, DomainIndex::new(index));
    }
}
