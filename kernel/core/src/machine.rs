//! The one trait between deciding and doing.
//!
//! Physical memory is reached by words and frames; each word of memory that user code or another
//! processor may touch is read and written atomically. On the host `fake` implements it.

use crate::context::Context;
use crate::index::CpuIndex;
use abi::id::Frame;
use abi::layout::PROGRAM_SLOTS;
use abi::shared::Memory;
use abi::trace::Event;
use code::argument::{Argument, Outcome};
use code::signature::Signature;
use core::ops::Range;

/// A copy from or to program memory met a page that is not there; nothing after it was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserFault {
    /// The address that faulted.
    pub address: u64,
    /// Was it a store?
    pub write: bool,
}

/// What has to be forgotten by processors' translation buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// One page in the space with this root.
    Page(Frame, u64),
    /// So many pages from this address on, at least one.
    Pages(Frame, u64, u64),
    /// All of the space with this root.
    Space(Frame),
    /// Everything, by this processor.
    Own,
    /// Everything, everywhere: a table that several spaces share has changed.
    Everything,
}

/// What the decisions ask of the machine. None of these fails or waits.
pub trait Machine {
    /// Loads an entry of a page table.
    fn entry(&self, table: Frame, index: usize) -> u64;
    /// Loads eight entries of a page table from `first` on, a multiple of eight. Most entries of
    /// most tables are empty, and looking for the others is most of what is done to whole tables.
    fn eight_entries(&self, table: Frame, first: usize) -> [u64; 8] {
        core::array::from_fn(|at| self.entry(table, first + at))
    }
    /// Exchanges an entry of a page table; the old one has the processor's last A and D bits.
    fn entry_swap(&mut self, table: Frame, index: usize, entry: u64) -> u64;
    /// The entry that every root table has in `slot` (256..=511), from the kernel's own root.
    fn kernel_entry(&self, slot: usize) -> u64;
    /// Copies those of all slots into a root table that nobody walks yet.
    fn kernel_entries(&mut self, root: Frame) {
        for slot in PROGRAM_SLOTS..512 {
            self.entry_swap(root, slot, self.kernel_entry(slot));
        }
    }
    /// The same word; the compiler does not know that ([`crate::index::bounded_by`]).
    #[inline(always)]
    fn opaque(&self, word: usize) -> usize {
        core::hint::black_box(word)
    }
    /// Loads the 64-bit word at a physical address, a multiple of 8. This and the next ones are in
    /// the orders that `abi::shared` has.
    fn word(&self, address: u64) -> u64;
    /// Stores a 64-bit word at a physical address, a multiple of 8.
    fn word_set(&mut self, address: u64, value: u64);
    /// Stores words one behind the other, within a frame.
    fn words_set(&mut self, address: u64, words: &[u64]) {
        for (position, &word) in words.iter().enumerate() {
            self.word_set(address + 8 * position as u64, word);
        }
    }
    /// Or-s bits into a word, atomically; the old word.
    fn word_or(&mut self, address: u64, bits: u64) -> u64;
    /// And-s a word with bits, atomically; the old word.
    fn word_and(&mut self, address: u64, bits: u64) -> u64;
    /// Adds to a word, wrapping, atomically; the old word.
    fn word_add(&mut self, address: u64, value: u64) -> u64;
    /// Fills a frame with zeroes.
    fn zero(&mut self, frame: Frame);
    /// Copies between physical addresses; neither range crosses a frame.
    fn copy(&mut self, to: u64, from: u64, len: usize);
    /// Copies from a physical address (within a frame) to the current program's memory; what no
    /// program may name is a fault, too.
    fn copy_out(&mut self, to: u64, from: u64, len: usize) -> Result<(), UserFault>;
    /// Copies from a physical address (within a frame) to the memory of the program whose space has
    /// this root, as `copy_out` to the current one's. That space is the current one thereafter,
    /// unless it was a fault.
    fn copy_over(&mut self, root: Frame, to: u64, from: u64, len: usize) -> Result<(), UserFault>;
    /// Copies from the current program's memory to a physical address, within a frame, likewise.
    fn copy_in(&mut self, to: u64, from: u64, len: usize) -> Result<(), UserFault>;
    /// Copies from a kernel buffer to a physical address, within a frame.
    fn fill(&mut self, to: u64, bytes: &[u8]);
    /// Copies from a physical address to a kernel buffer, within a frame.
    fn read(&self, from: u64, into: &mut [u8]);

    /// The registers of the environment at `index`, saved or (the caller's own) live.
    fn context(&mut self, index: usize) -> &mut Context;
    /// Those of two environments.
    fn two_contexts(&mut self, one: usize, other: usize) -> (&mut Context, &mut Context);
    /// Stores FS and GS base of this processor into the context of the environment at `index`,
    /// which runs on it.
    fn bases_store(&mut self, index: usize);
    /// Loads them from there, and gives the vector registers on this processor the initial state.
    fn registers_load(&mut self, index: usize);
    /// Gives the vector area in `frame` the initial state.
    fn vector_init(&mut self, frame: Frame);
    /// Stores the vector registers now on this processor into the area in `frame`; they stay
    /// loaded.
    fn vector_store(&mut self, frame: Frame);
    /// Shows `frame` to everybody as the application page of the environment at `index`; `None`:
    /// zeroes.
    fn application_page(&mut self, index: usize, frame: Option<Frame>);
    /// Takes bytes for a console stream (`Call::ConsoleWrite`); how many it took.
    fn console_write(&mut self, stream: u16, bytes: &[u8]) -> usize;
    /// Ends the machine (`Call::MachineEnd`) when the lock is released.
    fn end(&mut self, how: u16, status: u16);

    /// Notes what must be flushed before frames given up by this call may be used again. The
    /// machine flushes its own processor at once, others after the lock is released.
    fn flush(&mut self, what: Flush);
    /// Interrupts `cpu`, so that it looks at requests and runs the scheduler. Nothing if it is this
    /// one, which asks `sched::pick` on its way out anyway. Is it another one?
    fn interrupt(&mut self, cpu: CpuIndex) -> bool;
    /// Records an event, if its kind is recorded.
    fn trace(&mut self, event: Event) {
        let _ = event;
    }
    /// From now on events of these kinds are recorded.
    fn trace_set(&mut self, kinds: u64) {
        let _ = kinds;
    }
    /// Shows the frames in the kernel's window for code from `page` on, to be run and not written;
    /// they hold what `program` was compiled to. Who interprets keeps that instead.
    fn code_show(&mut self, page: usize, frames: &[Frame], program: &[u8]);
    /// Shows nothing in these pages any more; what is kept of it is flushed as the core asks.
    fn code_hide(&mut self, pages: Range<usize>);
    /// Runs the function that begins at `page`: exactly what the interpreter would do.
    fn code_run(
        &mut self,
        page: usize,
        signature: &Signature,
        arguments: &mut [Argument],
    ) -> Outcome;
    /// What compiled predicates are blinded by; `None`: the machine keeps none.
    fn watch_key(&self) -> Option<u64> {
        None
    }
    /// Where the kernel sees a physical address.
    fn address(&self, physical: u64) -> u64 {
        physical
    }
    /// Puts a compiled predicate (`code::watch`) into a cell, to be run and not written there.
    fn watch_store(&mut self, cell: usize, code: &[u8]) {
        let _ = (cell, code);
    }
    /// Does the predicate in a cell hold? `clock`: it asks for the time. `None`: the machine runs
    /// none, and it is interpreted.
    fn watch_holds(&mut self, cell: usize, clock: bool) -> Option<bool> {
        let _ = (cell, clock);
        None
    }
    /// Can entry code make switches by itself ([`crate::gate`])?
    fn has_fast_path(&self) -> bool {
        false
    }
    /// Nanoseconds that the environment at `index` has run by the fast path since this was asked;
    /// from now on it does, or does not.
    fn ran(&mut self, index: usize, runs: bool) -> u64 {
        let _ = (index, runs);
        0
    }
    /// Nanoseconds since boot.
    fn now_ns(&self) -> u64;
    /// 64 random bits, if the machine has a source.
    fn random(&mut self) -> Option<u64>;

    /// Descriptors that the device at `interface` has free for sending.
    fn transmit_room(&self, interface: usize) -> usize {
        let _ = interface;
        0
    }
    /// Physical address of the token's `TRANSMIT_HEADER` bytes, which the kernel fills.
    fn transmit_header(&self, interface: usize, token: usize) -> u64 {
        let _ = (interface, token);
        0
    }
    /// Gives the device a packet: the first `header` bytes at the token's header, then `rest`.
    /// There is room; the driver answers with [`crate::net::transmit::sent`].
    fn transmit(
        &mut self,
        interface: usize,
        token: usize,
        header: usize,
        rest: &[crate::net::transmit::Segment],
    ) {
        let _ = (interface, token, header, rest);
    }
}

/// The machine's memory, for what the kernel and programs do to what they share.
pub struct Shared<'a, M>(pub &'a mut M);

impl<M: Machine> Memory for Shared<'_, M> {
    #[inline(always)]
    fn word(&self, at: u64) -> u64 {
        self.0.word(at)
    }

    #[inline(always)]
    fn word_set(&mut self, at: u64, value: u64) {
        self.0.word_set(at, value);
    }

    #[inline(always)]
    fn word_or(&mut self, at: u64, bits: u64) -> u64 {
        self.0.word_or(at, bits)
    }

    #[inline(always)]
    fn word_add(&mut self, at: u64, value: u64) -> u64 {
        self.0.word_add(at, value)
    }

    #[inline(always)]
    fn fill(&mut self, at: u64, bytes: &[u8]) {
        self.0.fill(at, bytes);
    }
}
