//! What the attacker lays in memory for its calls to read.

use super::attacker::Attacker;
use super::ground::{ARENA, ARENA_PAGES, Ground, SAVE};
use abi::call::number;
use abi::layout::PAGE_SIZE;
use abi::memory::{ANY_FRAME, NO_EXECUTE, WRITABLE};

impl Attacker {
    /// What lies where the call looks for its argument.
    pub(super) fn some_memory(&mut self, ground: &Ground, row: u16) -> Vec<u64> {
        match row {
            number::TableUpdate => {
                let mut memory = vec![];
                for _ in 0..2 {
                    memory.extend(self.some_item(ground));
                }
                memory
            }
            number::EnvSet | number::EnvMove => self.some_setup(),
            number::RegionAlloc => vec![u64::MAX; 9],
            number::RegionPass => {
                let mut place = || {
                    let (region, role) = self.some_place(ground);
                    [region, role]
                };
                [place(), place(), place()].concat()
            }
            number::RegionOperate | number::RegionAwait => self.some_operation(ground),
            number::PredicateSet => self.some_predicate(ground),
            number::RingAlloc | number::RingModify => {
                let mut memory = vec![];
                for _ in 0..2 {
                    let page = ARENA + self.random.below(ARENA_PAGES) * PAGE_SIZE;
                    let (owner, buffer) = (self.random.below(500), self.random.below(500));
                    memory.extend([page + 8 * owner, page + 8 * buffer, 96]);
                }
                memory
            }
            number::FilterInsert => {
                let known = !self.random.one_in(4);
                let ring = if known { self.ring } else { self.some_id(ground, "RingId") };
                let (flags, count) = (self.random.below(4), self.random.below(3));
                let value = 4 + self.random.below(4);
                vec![
                    flags << 16 | count << 32,
                    ring,
                    0,
                    12 | 0xff00_0000 << 32,
                    value << 24 | 16 << 32,
                    0xff | 1 << 32,
                ]
            }
            number::NetTransmit => vec![self.some_page(), 200, self.some_page() + 4000, 200],
            number::MethodBind => vec![0xf_0000, 8 << 32, 0x1079, 0x030f, 0x327b, 0x95],
            _ => (0..4).map(|_| self.some_word()).collect(),
        }
    }

    fn some_word(&mut self) -> u64 {
        match self.random.below(3) {
            0 => self.random.below(9) * 8,
            1 => self.some_page() + 8 * self.random.below(512),
            _ => self.random.next(),
        }
    }

    fn some_operation(&mut self, ground: &Ground) -> Vec<u64> {
        let (region, role) = self.some_place(ground);
        let (compares, writes) = (self.random.below(2), self.random.below(2));
        let direction = self.random.below(3);
        let mut words = vec![0; 23];
        words[0] = region;
        (words[1], words[2]) = (self.some_page(), 8 * self.random.below(4));
        let what = compares << 32 | writes << 40 | direction << 48 | role << 56;
        words[3] = (8 * self.random.below(5)) | what;
        (words[4], words[12], words[13]) =
            (8 * self.random.below(4), 8 * self.random.below(4), self.random.below(3));
        words[22] = if self.random.one_in(2) { u64::MAX } else { self.random.below(4) };
        words
    }

    fn some_item(&mut self, ground: &Ground) -> [u64; 3] {
        let most = if self.random.one_in(2) { 4 } else { 12 };
        let (operation, wild) = (1 + self.random.below(most), self.random.one_in(16));
        let level = match operation {
            1..=4 => 1,
            5 => 2 + self.random.below(3),
            _ => 2,
        };
        let level = if wild { self.random.below(6) } else { level };
        let more = if level == 1 && self.random.one_in(4) { self.random.below(4) } else { 0 };
        let frame = self.some_frame(ground);
        let choice = if self.random.one_in(2) { WRITABLE | NO_EXECUTE } else { NO_EXECUTE };
        let value = match operation {
            2 | 4 if self.random.one_in(2) => self.some_page() | choice,
            1..=4 => choice,
            6 => self.some_page() | self.random.below(17),
            _ => u64::from(ANY_FRAME),
        };
        [operation | level << 8 | more << 16 | frame << 32, self.some_page(), value]
    }

    fn some_setup(&mut self) -> Vec<u64> {
        let mut setup = vec![0x1000; 16];
        let save = SAVE + self.random.below(16) * PAGE_SIZE;
        (setup[10], setup[11]) = (self.random.below(64), save);
        (setup[12], setup[13]) = (self.some_page(), self.random.below(4));
        if self.random.one_in(2) {
            setup[10] = 0;
            setup[12] = save;
        }
        setup[14] = if self.random.one_in(2) { 0 } else { save + 0x500 };
        setup
    }

    /// One that asks a word of a region, mostly: whether it is below some number.
    fn some_predicate(&mut self, ground: &Ground) -> Vec<u64> {
        let own = self.random.one_in(2);
        let region = self.some_of(ground, "RegionId", own);
        let operator = self.random.pick(&[1, 2, 3, 3, 3, 4, 4, 4]);
        let source = self.random.pick(&[0, 1, 2, 2, 2, 3, 4]);
        let place = self.random.pick(&[0, 8, 8, 8, 16, 64]);
        let left = if source == 2 { place } else { self.some_word() };
        let kinds = operator | source << 8 | 1 << 24;
        let mut atom = || [kinds, region, left, self.random.next(), 0];
        [atom(), atom()].concat()
    }
}
