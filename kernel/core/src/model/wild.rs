//! Calls with any words, as many as there is time for; what must hold is looked at now and then.
//!
//! ```text
//!  XOK_SEED=7 XOK_CALLS=1000000000 cargo test --release -p kernel-core --lib any_words
//! ```
//! The model's own calls are mostly meant: here each row of the table gets words that may mean
//! anything, among them what a program would send, and the memory it points to is as wild. The same
//! small world: ids, pages and frames of it occur often, so that words come far. Nothing is
//! expected of an answer; the kernel does not panic, and every [`STRIDE`] steps all that is
//! referred to, chained and charged is counted as the model counts it.

use super::act::{OFFSETS, PAGES};
use super::calls::{BUFFER, FIRST};
use super::{Model, number, processor};
use crate::dispatch::{self, Outcome};
use crate::index::{AccountIndex, CpuIndex, DomainIndex, EnvIndex};
use crate::machine::Machine;
use crate::{domain, env, frame, upcall, work};
use abi::call::{CAPABILITY_SHIFT, Call, TABLE, TRANSFER_SHIFT, number as row};
use abi::memory::ANY_FRAME;
use abi::upcall::Cause;

/// Calls between two looks at everything.
const STRIDE: u64 = 4096;

/// What the words of a row are, by their types' names.
#[derive(Clone, Copy)]
enum Kind {
    Env,
    Domain,
    Account,
    Region,
    Ring,
    Filter,
    Frame,
    Which,
    Address,
    Small,
    Any,
}

fn kind(name: &str) -> Kind {
    match name {
        "EnvId" => Kind::Env,
        "DomainId" => Kind::Domain,
        "AccountId" => Kind::Account,
        "RegionId" => Kind::Region,
        "RingId" => Kind::Ring,
        "FilterId" => Kind::Filter,
        "Frame" => Kind::Frame,
        "Which" => Kind::Which,
        "UserAddress" => Kind::Address,
        "u16" | "u32" => Kind::Small,
        _ => Kind::Any,
    }
}

/// The kinds of each row's words.
fn kinds() -> Vec<Vec<Kind>> {
    let row = |entry: &abi::call::Entry| entry.arguments.iter().map(|(_, name)| kind(name));
    TABLE.iter().map(|entry| row(entry).collect()).collect()
}

impl Model {
    /// A word of this kind, or any.
    fn wild_word(&mut self, kind: Kind) -> u64 {
        if self.random.one_in(12) {
            return self.random.next() >> self.random.below(64);
        }
        let published = &self.state.published;
        match kind {
            Kind::Env => u64::from(published.envs[self.random.below(16)].id),
            Kind::Domain => published.domains[self.random.below(10)].id,
            Kind::Account => published.accounts[self.random.below(6)].id,
            Kind::Region => published.regions[self.random.below(16)].id,
            Kind::Ring => published.rings[self.random.below(8)].id,
            Kind::Filter => published.filters[self.random.below(10)].id,
            Kind::Frame => self.random.below(self.frames + 4) as u64,
            Kind::Which if self.random.one_in(3) => self.random.below(self.frames) as u64,
            Kind::Which if self.random.one_in(3) => self.random.below(20) as u64,
            Kind::Which => u64::MAX,
            Kind::Address if self.random.one_in(2) => BUFFER.0,
            Kind::Address => self.wild_address(),
            Kind::Small => self.random.below(9) as u64,
            Kind::Any => self.wild_value(),
        }
    }

    fn wild_address(&mut self) -> u64 {
        let page = self.random.pick(&PAGES[..5]) + self.random.pick(&OFFSETS);
        match self.random.below(4) {
            0 | 1 => page,
            2 => page + 8 * self.random.below(512) as u64,
            _ => page + self.random.below(4096) as u64,
        }
    }

    /// What a structure, or a word without a type, may hold.
    fn wild_value(&mut self) -> u64 {
        let kinds = [Kind::Env, Kind::Domain, Kind::Region, Kind::Ring, Kind::Small, Kind::Frame];
        match self.random.below(10) {
            0 => 0,
            1 | 2 => self.random.below(9) as u64,
            3 => 8 * self.random.below(12) as u64,
            4 => self.wild_address(),
            5 => self.machine.now.wrapping_add(self.random.next() >> 40),
            6 => {
                let kind = self.random.pick(&kinds);
                let low = self.wild_word(kind) & u64::from(u32::MAX);
                low | (self.random.next() & 0x0103_0303) << 32
            }
            7 => self.random.next() & 0x0103_0303_0303_0307,
            8 => 1 << self.random.below(64),
            _ => self.random.next() >> self.random.below(64),
        }
    }

    /// An item of `TableUpdate` that a program might mean.
    fn wild_item_words(&mut self) -> [u64; 3] {
        let (operation, level) = (self.random.below(13) as u64, 1 + self.random.below(4) as u64);
        let level = if self.random.one_in(3) { level } else { 1 + level / 4 };
        let more = if self.random.one_in(8) { self.random.below(5) as u64 } else { 0 };
        let frame =
            if self.random.one_in(4) { self.random.below(self.frames) as u32 } else { ANY_FRAME };
        let first = operation | level << 8 | more << 16 | u64::from(frame) << 32;
        let address = self.wild_address() & !0xfff;
        let value = match self.random.below(6) {
            0 => self.wild_value(),
            1 => 2,
            2 => u64::from(ANY_FRAME),
            3 => self.wild_address() & !0xfff,
            4 => self.wild_address() & !0xfff | 2,
            _ => 1 << 63 | 2,
        };
        [first, address, value]
    }

    /// The memory that a call reads.
    fn wild_bytes(&mut self, number: u16, length: usize) -> Vec<u8> {
        let mut words = Vec::with_capacity(length / 8 + 3);
        while 8 * words.len() < length {
            if number == row::TableUpdate && !self.random.one_in(10) {
                words.extend(self.wild_item_words());
            } else {
                words.push(self.wild_value());
            }
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(length);
        bytes
    }

    /// A number, words, and bytes if they are another's: of the model, or wild.
    fn wild_call(
        &mut self,
        kinds: &[Vec<Kind>],
        caller: usize,
    ) -> (u16, [u64; 6], Option<Vec<u8>>) {
        if self.random.one_in(4) {
            let call = self.some_call(caller);
            let bytes = self.some_bytes(caller, &call);
            let (number, mut words) = call.encode();
            if self.random.one_in(4) {
                let at = self.random.below(6);
                words[at] = self.wild_value();
            }
            return (number, words, Some(bytes));
        }
        let number = self.random.below(TABLE.len() + 1) as u16;
        let mut words = [0; 6];
        match kinds.get(usize::from(number)) {
            None => words = words.map(|_| self.random.next()),
            Some(kinds) => {
                for (word, &kind) in words.iter_mut().zip(kinds) {
                    *word = self.wild_word(kind);
                }
            }
        }
        (number, words, None)
    }

    /// One call by whoever runs on some processor, and the way out.
    fn wild(&mut self, kinds: &[Vec<Kind>]) {
        let first = self.random.below(processor::CPUS);
        let busy = |cpu: &usize| self.state.sched.cpus[CpuIndex::new(*cpu)].current != 0;
        let cpu = (0..processor::CPUS).map(|at| (first + at) % processor::CPUS).find(busy);
        let cpu = cpu.filter(|_| first != 0 || self.machine.now & 0xf != 0).unwrap_or(first);
        self.machine.now += self.random.next() >> 44;
        let spent = self.random.below(2 * work::PIECE as usize) as u32;
        self.state.spent = spent.saturating_sub(work::PIECE);
        let current = usize::from(self.state.sched.cpus[CpuIndex::new(cpu)].current);
        if current == 0 {
            self.arouse();
        } else if self.random.one_in(64) {
            let (state, machine) = (&mut self.state, &mut self.machine);
            upcall::deliver_fault(
                state,
                machine,
                EnvIndex::new(current),
                Cause::PageFault as u8,
                4,
                0x1000,
            );
        } else {
            self.wild_make(kinds, cpu, current);
        }
        if self.random.one_in(16) {
            self.network();
        }
        self.leave(cpu);
        if self.random.one_in(16) {
            self.write_save_areas();
        }
        self.revive();
        self.machine.flushes.clear();
        if frame::limbo_waiting(&self.state) && self.random.one_in(4) {
            let ticket = frame::ticket(&mut self.state);
            frame::limbo_release(&mut self.state, &mut self.machine, ticket);
        }
        self.forget_dead_domains();
    }

    fn wild_make(&mut self, kinds: &[Vec<Kind>], cpu: usize, current: usize) {
        let (number, words, bytes) = self.wild_call(kinds, current);
        let mut word = u64::from(number) | self.random.next() & 0xff << 24;
        word |= self.some_capability_index(current) << CAPABILITY_SHIFT;
        if matches!(number, row::TransferSync | row::TransferAsync) {
            word |= self.wild_word(Kind::Env) << TRANSFER_SHIFT;
        }
        // What is refused for its form harms nobody.
        if let Ok(call) = Call::decode(number, words)
            && (!self.harmless(current, &call) || self.is_long(current, &call))
        {
            return;
        }
        let own = env::domain(&self.state, EnvIndex::new(current)).index();
        self.machine.current = Some(domain::root(&self.state, DomainIndex::new(own)));
        let length = dispatch::buffer(number, words).map_or(0, |(_, length)| length);
        let mut bytes = bytes.unwrap_or_default();
        if bytes.len() < length && (length - bytes.len() > 64 || bytes.is_empty()) {
            bytes = self.wild_bytes(number, length);
        }
        bytes.resize(length, 0);
        let (state, machine) = (&mut self.state, &mut self.machine);
        self.wild_calls += 1;
        match dispatch::call(
            state,
            machine,
            CpuIndex::new(cpu),
            EnvIndex::new(current),
            word,
            words,
            &bytes,
        ) {
            Outcome::Answer(error, value) => {
                machine.context(current).answer(error, value);
                self.answers[error as usize] += 1;
            }
            Outcome::Fault(fault) => {
                let error = u64::from(fault.write) << 1 | 4;
                let cause = Cause::PageFault as u8;
                upcall::deliver_fault(
                    state,
                    machine,
                    EnvIndex::new(current),
                    cause,
                    error,
                    fault.address,
                );
                self.faults += 1;
            }
            Outcome::Enter(_) | Outcome::Left | Outcome::Restart | Outcome::Moved => {
                self.answers[0] += 1;
            }
            Outcome::Again => {}
        }
    }

    /// Would the first environment sleep for long?
    fn is_long(&self, current: usize, call: &Call) -> bool {
        let late = |deadline: u64| deadline == 0 || deadline > self.machine.now + (1 << 28);
        current == FIRST
            && match *call {
                Call::Sleep { deadline, .. } | Call::RegionAwait { deadline, .. } => late(deadline),
                Call::RegionStepOrWait { .. } => true,
                _ => false,
            }
    }

    /// The world does not run empty, and what only grows is cut.
    fn tend(&mut self) {
        self.accounts();
        if self.domains.len() < 4 {
            let payer = 1 + self.random.below(3);
            if self.state.published.accounts[payer].id != 0 {
                self.domain(AccountIndex::new(payer));
            }
        }
        let old = self.stale.len().saturating_sub(16);
        self.stale.drain(..old);
        self.machine.console.clear();
        self.machine.traced.clear();
        self.machine.ended = None;
    }
}

/// Says which call it was.
struct Reproduce {
    seed: u64,
    call: u64,
}

impl Drop for Reproduce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, call } = self;
            eprintln!(
                "reproduce: XOK_SEED={seed} XOK_CALLS={} cargo test -p kernel-core any_words",
                *call + 1
            );
        }
    }
}

#[test]
fn calls_with_any_words_keep_every_invariant() {
    let calls = match (cfg!(miri), cfg!(debug_assertions)) {
        (true, _) => 300,
        (false, true) => 40_000,
        (false, false) => 1_000_000,
    };
    let calls = number("XOK_CALLS", calls);
    let seed = number("XOK_SEED", 1);
    let kinds = kinds();
    let begun = std::time::Instant::now();
    let mut model = Model::new(seed);
    let mut place = Reproduce { seed, call: 0 };
    let mut steps = 0;
    while model.wild_calls < calls {
        place.call = model.wild_calls;
        model.wild(&kinds);
        steps += 1;
        if steps % STRIDE == 0 {
            model.check_structure();
            crate::tests::check(&model.state);
            model.tend();
            assert!(steps < 64 * calls.max(STRIDE), "the world stands still");
        }
    }
    model.check_structure();
    let (done, rate) = (model.answers[0], calls as f64 / begun.elapsed().as_secs_f64());
    std::println!("{calls} calls, seed {seed}: {done} done, {rate:.0} a second");
    // A world where nothing is done any more would try nothing.
    assert!(model.answers[0] > calls / 40, "{:?}", model.answers);
}
