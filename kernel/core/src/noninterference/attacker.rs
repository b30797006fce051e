//! The attacker: random calls of every row.
//!
//! Arguments are of the types that the table of calls says, mostly ids, frames and slots that are
//! published, the victim's among them.

use super::Random;
use super::ground::{APPLICATION, ARENA, ARENA_PAGES, BUFFER, Ground, OTHER, Request, SAVE, USER};
use crate::dispatch::Outcome;
use crate::env;
use crate::index::{AccountIndex, EnvIndex};
use abi::call::{CAPABILITY_SHIFT, TABLE, TRANSFER_SHIFT, TRANSFER_WAIT, number};
use abi::capability::{ALL, Capability, Name};
use abi::error::Error;
use abi::id::{AccountId, DomainId};
use abi::layout::PAGE_SIZE;
use abi::memory::ANY_FRAME;
use abi::published::EnvState;
use abi::region::{NO_PEER, STEP_FLAGS_SHIFT};
use abi::upcall::offset;
use abi::word::Word;
use std::collections::HashMap;

/// Indices of small tables: the records of both sides lie among the first.
const NEAR: u64 = 28;
/// Rows that may stop for ever whoever makes them.
const STOPS: [u16; 4] =
    [number::EnvMove, number::DomainSwitch, number::TransferSync, number::RegionStepOrWait];

pub(super) struct Attacker {
    pub(super) random: Random,
    /// Calls that are made again as the kernel has left their registers.
    again: HashMap<usize, Request>,
    /// A token that it was told, to be changed a little.
    token: [u64; 3],
    /// What its environments have set their minds on.
    next: HashMap<usize, u16>,
    /// The region that it has made last, not attached yet, and the capability that it was made by.
    region: (u64, u64),
    /// The ring that it has made last, and the slot into which a token was entered.
    pub(super) ring: u64,
    slot: u16,
    /// It takes what it can get, and gives nothing back.
    hoards: bool,
    /// Where it has attached: region and role.
    attached: Vec<(u64, u64)>,
    /// How many calls it has made.
    pub(super) calls: u64,
    /// How often each row was done.
    pub(super) done: [u64; TABLE.len()],
    /// What it was answered last.
    pub(super) last: (u16, u64, u64),
}

impl Attacker {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            again: HashMap::new(),
            next: HashMap::new(),
            region: (0, 0),
            ring: 0,
            slot: 0,
            hoards: seed >> 5 & 1 == 0,
            token: [0; 3],
            attached: vec![],
            calls: 0,
            done: [0; TABLE.len()],
            last: (0, 0, 0),
        }
    }

    /// One of its environments has the processor.
    pub(super) fn act(&mut self, ground: &mut Ground, cpu: usize, index: usize) {
        self.touch(ground, index);
        let request = match self.again.remove(&index) {
            Some(request) if !self.random.one_in(8) => request,
            _ => self.some_request(ground, index),
        };
        let row = request.word as u16;
        let outcome = ground.call(cpu, index, &request);
        self.calls += 1;
        self.last = (row, 0, 0);
        let done = self.done.get_mut(usize::from(row));
        match outcome {
            Outcome::Answer(error, value) => {
                self.last = (row, error, value);
                if let Some(done) = done.filter(|_| error == 0) {
                    *done += 1;
                }
                if error == 0 {
                    self.learn(index, &request, value);
                }
            }
            Outcome::Again => {
                let words = ground.words(index);
                self.again.insert(index, Request { words, ..request });
            }
            _ => {
                if let Some(done) = done {
                    *done += 1;
                }
            }
        }
    }

    fn learn(&mut self, index: usize, request: &Request, value: u64) {
        let (words, capability) = (&request.words, request.word >> CAPABILITY_SHIFT & 0xff);
        match request.word as u16 {
            number::CapabilityToken => self.token[words[0] as usize % 3] = value,
            number::RegionAttach => {
                if self.attached.len() > 6 {
                    self.attached.remove(0);
                }
                self.attached.push((words[0], words[1]));
                self.next.insert(index, number::RegionOperate);
            }
            number::RegionAlloc if !self.hoards => {
                self.region = (value, capability);
                self.next.insert(index, number::RegionAttach);
            }
            number::PredicateSet => {
                self.next.insert(index, number::Sleep);
            }
            number::CapabilityEnter => {
                self.slot = words[0] as u16;
                self.next.insert(index, number::TableUpdate);
            }
            number::RingAlloc => {
                self.ring = value;
                self.next.insert(index, number::FilterInsert);
            }
            _ => {}
        }
    }

    /// A region, and a role: where it is attached, mostly.
    pub(super) fn some_place(&mut self, ground: &Ground) -> (u64, u64) {
        let known = self.attached.len() as u64;
        if known == 0 || self.random.one_in(3) {
            return (self.some_id(ground, "RegionId"), self.random.below(4));
        }
        self.attached[self.random.below(known) as usize]
    }

    /// Its program loads and stores, leaves handlers, and accepts transfers, or not.
    fn touch(&mut self, ground: &mut Ground, index: usize) {
        for word in
            [offset::MASK, offset::DEPTH, offset::RETURNING, offset::PENDING, offset::EVENTS]
        {
            ground.saved(index, word, 0);
        }
        if self.random.one_in(32) {
            ground.endow();
        }
        let accepts = self.random.below(2);
        ground.saved(index, offset::ACCEPTING, accepts);
        if self.random.one_in(4) {
            let (page, word) = (self.some_page(), self.random.below(3));
            ground.store(index, page + 8 * self.random.below(512), word);
        }
    }

    fn some_request(&mut self, ground: &Ground, index: usize) -> Request {
        let first = index == ground.attacker.envs[0];
        let patience = if first { 400 } else { 20 };
        let lasts = ground.attacker.envs.contains(&index);
        let mut row = self.next.remove(&index).unwrap_or_else(|| self.some_row());
        let mut words = [0; 6];
        for word in &mut words {
            *word = self.random.next() >> self.random.below(64);
        }
        if let Some(entry) = TABLE.get(usize::from(row)) {
            for (word, (name, kind)) in words.iter_mut().zip(entry.arguments) {
                *word = self.some_argument(ground, name, kind, *word);
            }
        }
        self.by_row(ground, row, first, &mut words);
        if lasts && ends(ground, row, &words) && !self.random.one_in(patience) {
            row = number::Entropy;
        }
        let made = core::mem::take(&mut self.region);
        let capability = match self.random.below(4) {
            _ if row == number::RegionAttach && made.0 != 0 => {
                (words[0], words[2]) = (made.0, 0);
                made.1
            }
            0 | 1 if row == number::TableUpdate && self.slot != 0 => self.slot.into(),
            0 => self.random.pick(&[0, 1, 4, 5, 6, 7, self.slot, self.slot]).into(),
            1 => OTHER.into(),
            2 => USER.into(),
            _ => 0,
        };
        let mut word = u64::from(row) | capability << CAPABILITY_SHIFT;
        if [number::TransferSync, number::TransferAsync].contains(&row) {
            word |= self.some_env(ground) << TRANSFER_SHIFT;
            word |= self.random.pick(&[0, TRANSFER_WAIT]);
        }
        let memory = self.some_memory(ground, row);
        let memory = memory.iter().flat_map(|word| word.to_le_bytes()).collect();
        Request { word, words, memory }
    }

    /// Any, or none; what memory is mapped by, and what tells of predicates, more often.
    fn some_row(&mut self) -> u16 {
        match self.random.below(16) {
            0..=3 => number::TableUpdate,
            4 => number::Sleep,
            5 | 6 if self.hoards => number::RegionAlloc,
            _ => self.random.below(TABLE.len() as u64 + 1) as u16,
        }
    }

    /// What the types of arguments do not say.
    fn by_row(&mut self, ground: &Ground, row: u16, first: bool, words: &mut [u64; 6]) {
        let soon = ground.now() + self.random.below(1 << 22);
        match row {
            number::Sleep if first || self.random.one_in(2) => words[0] = soon,
            number::RegionAwait if first => words[1] = soon,
            number::CapabilityEnter => {
                let mut token = self.token;
                match self.random.below(4) {
                    0 => token[self.random.below(2) as usize] ^= 1 << self.random.below(64),
                    // The name above all others under a seal of one's own.
                    1 | 2 => {
                        let capability = Capability { rights: ALL, zero: 0, name: Name::ROOT };
                        token[..2].copy_from_slice(&capability.to_words());
                    }
                    _ => {}
                }
                words[0] = 4 + self.random.below(4);
                words[1..4].copy_from_slice(&token);
            }
            number::EnvSet => {
                let all = if first { abi::setup::field::WHILE_RUNNING } else { (1 << 15) - 1 };
                words[1] = if self.random.one_in(3) { words[1] } else { all };
                let new = self.new_env(ground);
                if let Some(new) = new.filter(|_| !self.random.one_in(4)) {
                    (words[0], words[1]) = (new, (1 << 14) - 1);
                }
            }
            number::TableUpdate => {
                words[2] = 1 + self.random.below(2);
                words[0] = if self.random.one_in(3) { words[0] } else { 0 };
            }
            // Many frames at once, now and then.
            number::RegionAlloc if self.hoards => words[1] = 17,
            number::RegionDetach | number::RegionAttach if self.hoards => words[0] = 0,
            number::RegionAlloc => words[1] = self.random.pick(&[0, 0, 0, 1, 17, 17]),
            number::RingAlloc => words[1] = 1 + self.random.below(2),
            number::MethodCall => (words[0], words[2]) = self.some_place(ground),
            number::EnvRelease => {
                let new = self.new_env(ground);
                words[0] = new.filter(|_| !self.random.one_in(4)).unwrap_or(words[0]);
            }
            // To the other domain, or home.
            number::DomainSwitch if !self.random.one_in(4) => {
                let domains = [0, 1].map(|at| ground.attacker.domains[at].to_word());
                words[0] = domains[self.random.below(2) as usize];
            }
            // What is below is entered again now and then; what comes with it goes seldom.
            number::CapabilityDrop | number::CapabilityDerive if !self.random.one_in(16) => {
                let slot = usize::from(row == number::CapabilityDerive);
                words[slot] = 4 + self.random.below(9);
            }
            _ => {}
        }
    }

    /// One of its environments that has not started.
    fn new_env(&mut self, ground: &Ground) -> Option<u64> {
        let slots = ground.state().envs.slots.iter().enumerate();
        let mut new = slots.filter(|(at, env)| {
            env.state == EnvState::New && ground.is_attackers(ground.payer(*at))
        });
        new.next().map(|(at, _)| env::id(ground.state(), EnvIndex::new(at)).to_word())
    }

    fn some_argument(&mut self, ground: &Ground, name: &str, kind: &str, wild: u64) -> u64 {
        if self.random.one_in(24) {
            return wild;
        }
        match (name, kind) {
            ("vector" | "root", _) if !self.random.one_in(4) => ANY_FRAME.into(),
            ("vector" | "root", _) | (_, "Frame") => self.some_frame(ground),
            ("account" | "domain", _) if self.random.one_in(2) => 0,
            (_, "EnvId" | "DomainId" | "AccountId" | "RegionId" | "FilterId" | "RingId") => {
                self.some_id(ground, kind)
            }
            (_, "Which") if self.random.one_in(2) => u32::MAX.into(),
            (_, "Which") => self.random.below(NEAR),
            ("pending" | "page" | "address", _) => self.some_page() + 8 * self.random.below(512),
            (_, "UserAddress") => BUFFER,
            ("deadline", _) => ground.now() + self.random.below(1 << 24),
            ("count", _) => self.random.below(3),
            ("slots", "u64") => 4,
            ("slots", _) => 1 << self.random.below(9),
            ("flags" | "index" | "status", _) => self.random.below(2),
            ("role" | "slot" | "cpu" | "word" | "extend", _) => self.random.below(4),
            ("position" | "resource" | "method" | "stream", _) => self.random.below(9),
            ("interface" | "how", _) => self.random.below(2),
            ("which", _) => self.some_place(ground).0,
            ("piece", _) => (8 * self.random.below(9)) | ((8 * self.random.below(9)) << 32),
            ("words", _) => self.some_step(),
            ("from" | "beside" | "components" | "first" | "rights" | "limit" | "reserve", _) => {
                self.random.below(32)
            }
            _ => wild,
        }
    }

    /// The words, roles and flags of a step along a ring.
    fn some_step(&mut self) -> u64 {
        let peer = if self.random.one_in(2) { NO_PEER.into() } else { self.random.below(4) };
        let (role, flags) = (self.random.below(2), self.random.below(4));
        let words = self.random.below(9) | self.random.below(9) << 16;
        words | role << 48 | peer << 52 | flags << STEP_FLAGS_SHIFT
    }

    fn some_env(&mut self, ground: &Ground) -> u64 {
        self.some_id(ground, "EnvId")
    }

    /// One that is published; the victim's as often as not.
    pub(super) fn some_id(&mut self, ground: &Ground, kind: &str) -> u64 {
        if self.random.one_in(8) {
            return 0;
        }
        let own = !self.random.one_in(3);
        self.some_of(ground, kind, own)
    }

    /// The attacker's, or somebody else's, if there is one.
    pub(super) fn some_of(&mut self, ground: &Ground, kind: &str, wanted: bool) -> u64 {
        let mut last = 0;
        for _ in 0..16 {
            let at = 1 + self.random.below(NEAR) as usize;
            let (id, own) = published(ground, kind, at);
            last = if id != 0 { id } else { last };
            if id != 0 && own == wanted {
                break;
            }
        }
        last
    }

    /// Any, or the victim's.
    pub(super) fn some_frame(&mut self, ground: &Ground) -> u64 {
        let published = &ground.state().published;
        let count = published.frames.len() as u64;
        match self.random.below(3) {
            0 => ANY_FRAME.into(),
            1 => self.random.below(count + 4),
            _ => {
                let victim = ground.victim.account.index();
                let begin = self.random.below(count);
                let all = (0..count).map(|at| (begin + at) % count);
                let its = |at: &u64| usize::from(published.frames[*at as usize].account) == victim;
                all.take(200).find(its).unwrap_or(begin)
            }
        }
    }

    pub(super) fn some_page(&mut self) -> u64 {
        match self.random.below(8) {
            0 => SAVE + self.random.below(16) * PAGE_SIZE,
            1 => SAVE + APPLICATION + self.random.below(16) * PAGE_SIZE,
            2 => ARENA + 0x80_0000 + self.random.below(4) * PAGE_SIZE,
            3 => ARENA + self.random.below(24) * PAGE_SIZE,
            _ => ARENA + self.random.below(ARENA_PAGES) * PAGE_SIZE,
        }
    }
}

/// Would a call end or stop one of the environments that it began with?
fn ends(ground: &Ground, row: u16, words: &[u64; 6]) -> bool {
    let its = &ground.attacker;
    match row {
        number::EnvDestroy | number::EnvHold => {
            let lasting =
                |&at: &usize| env::id(ground.state(), EnvIndex::new(at)).to_word() == words[0];
            words[0] == 0 || its.envs.iter().any(lasting)
        }
        number::DomainDestroy => its.domains.iter().any(|domain| domain.to_word() == words[0]),
        number::AccountDestroy => its.account.to_word() == words[0],
        _ => STOPS.contains(&row),
    }
}

/// The id at an index of a table, and whether it is of something of the attacker's.
fn published(ground: &Ground, kind: &str, at: usize) -> (u64, bool) {
    let published = &ground.state().published;
    let own = |account: usize| ground.is_attackers(AccountIndex::new(account));
    let of = |account: u64| own(AccountId(account).index());
    let domain = |id: u64| of(published.domains[DomainId(id).index()].account);
    match kind {
        "EnvId" => (published.envs[at].id.into(), of(published.envs[at].account)),
        "DomainId" => (published.domains[at].id, of(published.domains[at].account)),
        "AccountId" => (published.accounts[at].id, own(at)),
        "RegionId" => (published.regions[at].id, of(published.regions[at].account)),
        "FilterId" => (published.filters[at].id, domain(published.filters[at].domain)),
        _ => (published.rings[at].id, domain(published.rings[at].domain)),
    }
}

/// What the attacker was told by its last call, in words.
pub(super) fn told((row, error, value): (u16, u64, u64)) -> String {
    let name = TABLE.get(usize::from(row)).map_or("no row", |entry| entry.name);
    match Error::from_number(error) {
        Some(error) => format!("{name}: {}, {value:#x}", error.name()),
        None => format!("{name}: {value:#x}"),
    }
}
