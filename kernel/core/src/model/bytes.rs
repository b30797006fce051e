//! What calls read in memory: records and lists, with contents that are often right.

use super::Model;
use crate::env;
use crate::index::EnvIndex;
use abi::call::Call;
use abi::filter::{COPY, SUBSETTABLE};
use abi::id::EnvId;

impl Model {
    /// The argument in memory, as far as the call has one.
    pub(super) fn some_bytes(&mut self, caller: usize, call: &Call) -> Vec<u8> {
        let mut words: Vec<u64> = Vec::new();
        match *call {
            Call::EnvSet { env, .. } => {
                let index = self.index_of(env, caller);
                words = self.some_setup(index, caller);
            }
            Call::EnvMove { .. } => {
                words = self.some_setup(caller, caller);
            }
            Call::RegionAlloc { count, .. } => {
                for _ in 0..(count & !abi::region::KINDS).div_ceil(2) {
                    let (a, b) = (self.some_frame(), self.some_frame());
                    words.push(u64::from(a) | u64::from(b) << 32);
                }
            }
            Call::RegionPass { .. } => {
                for _ in 0..4 {
                    words.extend([self.some_region().0, self.random.below(5) as u64]);
                }
            }
            Call::RegionOperate { .. } | Call::RegionAwait { .. } => {
                let region = self.some_region().0;
                let counts = self.random.next() & 0x0103_0101;
                words.extend([region, self.some_own_page(caller)]);
                words.extend([0, (8 * self.random.below(10) as u64) | (counts << 32)]);
                // Offsets and values in turn; most words are still zero.
                let zeroes = self.random.below(4) > 0;
                for _ in 0..8 {
                    let value = if zeroes { 0 } else { self.random.next() };
                    words.extend([8 * self.random.below(9) as u64, value]);
                }
                let peer = self.random.below(6) as u64;
                words.extend([0, 0, if peer > 4 { u64::MAX } else { peer }]);
            }
            Call::PredicateSet { count, .. } => {
                for _ in 0..count.min(8) {
                    let kinds = self.random.next() & 0x0104_0403;
                    words.extend([kinds, self.some_region().0]);
                    let pages = [self.some_own_page(caller), self.some_own_page(caller)];
                    words.extend([pages[0], pages[1] + 8, 0]);
                }
            }
            Call::RingAlloc { .. } | Call::RingModify { .. } => {
                for _ in 0..3 {
                    words.extend([self.some_own_page(caller), self.some_own_page(caller), 64]);
                }
            }
            Call::FilterInsert { .. } => {
                let flags = if self.random.one_in(4) { COPY } else { SUBSETTABLE };
                let count = self.random.below(4) as u64;
                words.extend([u64::from(flags) << 16 | count << 32, self.some_ring().0, 0]);
                // Atoms of three 32-bit words: offset, mask, value.
                for _ in 0..3 {
                    let value = self.random.below(3) as u64;
                    words.extend([12 | 0xff << 32, value | 16 << 32, 0xff | value << 32]);
                }
            }
            Call::NetTransmit { .. } => {
                for _ in 0..3 {
                    words.extend([self.some_own_page(caller) + 4000, 200]);
                }
            }
            Call::MethodBind { slots, .. } => words = super::methods::binding(self, slots),
            Call::TableUpdate { .. } => words.extend((0..192).map(|_| 0xff)),
            _ => {}
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// An `EnvSetup` for the environment at `index`.
    fn some_setup(&mut self, index: usize, caller: usize) -> Vec<u64> {
        let mut words: Vec<u64> = (0..10).map(|_| 0x1000 + self.random.next() % 0x7000).collect();
        words.push(self.random.below(64) as u64);
        words.extend([self.some_own_page(index), self.some_own_page(index)]);
        words.push(self.some_capability_index(caller));
        let page = self.some_own_page(index);
        words.push(page + [0, 0x500, 0x600, 0xe98, 0xea8][self.random.below(5)]);
        words
    }

    /// The index of an environment that is named, or the caller's.
    fn index_of(&self, env: EnvId, caller: usize) -> usize {
        env::living(&self.state, env).unwrap_or(EnvIndex::new(caller)).at()
    }
}
