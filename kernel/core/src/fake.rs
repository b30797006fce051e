//! A machine on the host: physical memory in a vector, no processor.

use crate::boot::{Parts, Sizes};
use crate::context::Context;
use crate::index::CpuIndex;
use crate::machine::{Flush, Machine, UserFault};
use crate::state::{Published, State};
use crate::{
    account, compiled, console, domain, env, fold, frame, net, region, sched, table, workshop,
};
use abi::call::CALLS_MAX;
use abi::capability::Name;
use abi::id::Frame;
use abi::layout::{PAGE_SIZE, PUBLISHED_SLOT, is_user_range};
use abi::limits::{CPUS, TRANSMIT_HEADER};
use abi::memory::{ACCESSED, NO_EXECUTE, PRESENT, USER};
use abi::published::{
    CATEGORIES, Clock, Directory, FEATURE_SELF_SNOOP, FEATURE_USERS, FrameType, MAGIC, TableInfo,
    VERSION,
};
use abi::trace::Event;
use code::argument::{Argument, Outcome};
use code::interpreter::interpret_bytes;
use code::signature::Signature;
use core::ops::Range;
use std::boxed::Box;
use std::collections::HashMap;
use std::vec;
use std::vec::Vec;

/// Frames that the fake kernel keeps for itself, from number 0.
pub const KERNEL_FRAMES: u32 = 16;
/// Frames of the fake boot image behind them.
pub const IMAGE_FRAMES: u32 = 16;

/// What stands in memory that nobody has cleared. An interpreted machine has zeros: those are made
/// at once, not word by word.
const PATTERN: u64 = if cfg!(miri) { 0 } else { 0xdead_beef_dead_beef };

/// Where inline regions lie: the kernel's frames from 4 on.
const REGION_WORDS: u64 = 4 * PAGE_SIZE;

/// Where the heads of packets to send are copied to: two of the kernel's frames.
const HEADERS: u64 = 12 * PAGE_SIZE;
/// Headers there: with more packets in the queue some share one, which none of them reads.
const HEADERS_THERE: usize = 64;

/// Physical memory, contexts, and a record of what the core asked for.
pub struct FakeMachine {
    memory: Vec<u64>,
    contexts: Vec<Context>,
    /// Flushes asked for since somebody emptied the list.
    pub flushes: Vec<Flush>,
    /// Processors interrupted since somebody emptied the list.
    pub interrupts: Vec<usize>,
    /// The processor that the kernel runs on.
    pub cpu: usize,
    /// What `now_ns` answers.
    pub now: u64,
    /// The space in which `copy_out` finds program memory.
    pub current: Option<Frame>,
    /// Frames cleared by `zero`, ever.
    pub zeroed: u64,
    /// Published application pages by index of environment.
    pub application_pages: Vec<Option<Frame>>,
    /// What was written to the console.
    pub console: Vec<u8>,
    /// Packets given to interfaces and not yet answered: interface and token.
    pub sending: Vec<(usize, usize)>,
    /// Places of the queue that a packet takes, by its token; 0: one.
    places: [u8; net::transmit::TOKENS],
    /// Kinds of events recorded, and what was.
    pub tracing: u64,
    /// See `tracing`.
    pub traced: Vec<Event>,
    /// How and with what status the machine was ended.
    pub ended: Option<(u16, u16)>,
    /// There is a fast path of switches: tests drive it.
    pub fast: bool,
    /// By index of environment: when it left by that, less when it came.
    pub ticks: Vec<u64>,
    /// Environments whose bases were loaded, and vector registers cleared, while they ran.
    pub loaded: Vec<usize>,
    random: u64,
    /// Programs by the page of the window where their code would begin.
    code: HashMap<usize, Vec<u8>>,
}

impl FakeMachine {
    /// A machine with this many frames and environment slots. Memory is filled with a pattern.
    pub fn new(frames: usize, envs: usize) -> Self {
        Self {
            memory: vec![PATTERN; frames * 512],
            contexts: vec![Context::default(); envs],
            flushes: Vec::new(),
            interrupts: Vec::new(),
            cpu: 0,
            now: 1,
            current: None,
            zeroed: 0,
            application_pages: vec![None; envs],
            console: Vec::new(),
            sending: Vec::new(),
            places: [0; net::transmit::TOKENS],
            tracing: 0,
            traced: Vec::new(),
            ended: None,
            fast: false,
            ticks: vec![0; envs],
            loaded: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            code: HashMap::new(),
        }
    }

    /// All memory.
    pub fn words(&self) -> &[u64] {
        &self.memory
    }

    fn at(address: u64) -> usize {
        assert!(address.is_multiple_of(8), "word at {address:#x}");
        (address / 8) as usize
    }

    fn byte(&self, address: u64) -> u8 {
        (self.memory[(address / 8) as usize] >> (8 * (address % 8))) as u8
    }

    fn byte_set(&mut self, address: u64, byte: u8) {
        let shift = 8 * (address % 8);
        let word = &mut self.memory[(address / 8) as usize];
        *word = *word & !(0xff << shift) | u64::from(byte) << shift;
    }
}

fn within_frame(address: u64, len: usize) {
    assert!(address % PAGE_SIZE + len as u64 <= PAGE_SIZE, "{address:#x} + {len} crosses a frame");
}

impl Machine for FakeMachine {
    fn watch_key(&self) -> Option<u64> {
        // Cells are kept, and charged; what is in them is not run.
        Some(0x5eed)
    }
    fn entry(&self, table: Frame, index: usize) -> u64 {
        assert!(index < 512);
        self.memory[table.0 as usize * 512 + index]
    }
    fn entry_swap(&mut self, table: Frame, index: usize, entry: u64) -> u64 {
        assert!(index < 512);
        core::mem::replace(&mut self.memory[table.0 as usize * 512 + index], entry)
    }
    fn kernel_entry(&self, slot: usize) -> u64 {
        match slot {
            256 => 0x1000 | PRESENT | ACCESSED | NO_EXECUTE,
            PUBLISHED_SLOT => 0x2000 | PRESENT | USER | ACCESSED | NO_EXECUTE,
            511 => 0x3000 | PRESENT | ACCESSED,
            _ => 0,
        }
    }
    fn word(&self, address: u64) -> u64 {
        self.memory[Self::at(address)]
    }
    fn word_set(&mut self, address: u64, value: u64) {
        self.memory[Self::at(address)] = value;
    }
    fn word_or(&mut self, address: u64, bits: u64) -> u64 {
        let word = &mut self.memory[Self::at(address)];
        core::mem::replace(word, *word | bits)
    }
    fn word_and(&mut self, address: u64, bits: u64) -> u64 {
        let word = &mut self.memory[Self::at(address)];
        core::mem::replace(word, *word & bits)
    }
    fn word_add(&mut self, address: u64, value: u64) -> u64 {
        let word = &mut self.memory[Self::at(address)];
        core::mem::replace(word, word.wrapping_add(value))
    }
    fn zero(&mut self, frame: Frame) {
        // As one copy, which an interpreter makes at once.
        self.memory[frame.0 as usize * 512..][..512].copy_from_slice(&[0; 512]);
        self.zeroed += 1;
    }
    fn copy(&mut self, to: u64, from: u64, len: usize) {
        within_frame(to, len);
        within_frame(from, len);
        if [to, from, len as u64].iter().all(|part| part.is_multiple_of(8)) {
            let (to, from) = (Self::at(to), Self::at(from));
            return self.memory.copy_within(from..from + len / 8, to);
        }
        for at in 0..len as u64 {
            let byte = self.byte(from + at);
            self.byte_set(to + at, byte);
        }
    }
    fn copy_out(&mut self, to: u64, from: u64, len: usize) -> Result<(), UserFault> {
        within_frame(from, len);
        if !is_user_range(to, len as u64) {
            return Err(UserFault { address: to, write: true });
        }
        for at in 0..len as u64 {
            let address = to + at;
            let fault = UserFault { address, write: true };
            let root = self.current.ok_or(fault)?;
            let leaf = table::look_up(self, root, address).filter(|leaf| leaf.writable);
            let leaf = leaf.ok_or(fault)?;
            let byte = self.byte(from + at);
            self.byte_set(leaf.frame.address() + address % PAGE_SIZE, byte);
        }
        Ok(())
    }
    fn copy_over(&mut self, root: Frame, to: u64, from: u64, len: usize) -> Result<(), UserFault> {
        let before = self.current.replace(root);
        let copied = self.copy_out(to, from, len);
        if copied.is_err() {
            self.current = before;
        }
        copied
    }
    fn copy_in(&mut self, to: u64, from: u64, len: usize) -> Result<(), UserFault> {
        within_frame(to, len);
        if !is_user_range(from, len as u64) {
            return Err(UserFault { address: from, write: false });
        }
        for at in 0..len as u64 {
            let address = from + at;
            let fault = UserFault { address, write: false };
            let root = self.current.ok_or(fault)?;
            let leaf = table::look_up(self, root, address).ok_or(fault)?;
            let byte = self.byte(leaf.frame.address() + address % PAGE_SIZE);
            self.byte_set(to + at, byte);
        }
        Ok(())
    }
    fn fill(&mut self, to: u64, bytes: &[u8]) {
        within_frame(to, bytes.len());
        for (at, &byte) in bytes.iter().enumerate() {
            self.byte_set(to + at as u64, byte);
        }
    }
    fn read(&self, from: u64, into: &mut [u8]) {
        within_frame(from, into.len());
        for (at, byte) in into.iter_mut().enumerate() {
            *byte = self.byte(from + at as u64);
        }
    }
    fn context(&mut self, index: usize) -> &mut Context {
        &mut self.contexts[index]
    }
    fn two_contexts(&mut self, one: usize, other: usize) -> (&mut Context, &mut Context) {
        let [one, other] = self.contexts.get_disjoint_mut([one, other]).expect("two");
        (one, other)
    }
    // Every environment has bases of its own here, in its context.
    fn bases_store(&mut self, _index: usize) {}
    fn registers_load(&mut self, index: usize) {
        self.loaded.push(index);
    }
    fn vector_init(&mut self, frame: Frame) {
        self.zero(frame);
    }
    fn vector_store(&mut self, frame: Frame) {
        self.word_set(frame.address(), u64::from_le_bytes(*b"vectors\0"));
    }
    fn application_page(&mut self, index: usize, frame: Option<Frame>) {
        self.application_pages[index] = frame;
    }
    fn console_write(&mut self, _stream: u16, bytes: &[u8]) -> usize {
        self.console.extend_from_slice(bytes);
        bytes.len()
    }
    fn end(&mut self, how: u16, status: u16) {
        self.ended = Some((how, status));
    }
    fn flush(&mut self, what: Flush) {
        self.flushes.push(what);
    }
    fn interrupt(&mut self, cpu: CpuIndex) -> bool {
        self.interrupts.push(cpu.at());
        self.cpu != cpu.at()
    }
    fn trace(&mut self, event: Event) {
        if self.tracing & event.kind.bit() != 0 {
            self.traced.push(event);
        }
    }
    fn trace_set(&mut self, kinds: u64) {
        self.tracing = kinds;
    }
    fn code_show(&mut self, page: usize, frames: &[Frame], program: &[u8]) {
        assert!(!frames.is_empty());
        for at in 0..frames.len() {
            assert!(!self.code.contains_key(&(page + at)), "a page of code is shown twice");
            self.code.insert(page + at, if at == 0 { program.to_vec() } else { Vec::new() });
        }
    }
    fn code_hide(&mut self, pages: Range<usize>) {
        pages.for_each(|page| assert!(self.code.remove(&page).is_some(), "nothing is shown"));
    }
    fn code_run(
        &mut self,
        page: usize,
        signature: &Signature,
        arguments: &mut [Argument],
    ) -> Outcome {
        let none = &mut |_, _: &[u64]| 0;
        interpret_bytes(&self.code[&page], signature, arguments, none).expect("they fit").outcome
    }
    fn has_fast_path(&self) -> bool {
        self.fast
    }
    fn ran(&mut self, index: usize, runs: bool) -> u64 {
        let now = if runs { self.now } else { 0 };
        core::mem::replace(&mut self.ticks[index], now.wrapping_neg()).wrapping_add(now)
    }
    fn now_ns(&self) -> u64 {
        self.now
    }
    fn transmit_room(&self, _interface: usize) -> usize {
        let places = |&(_, token): &(usize, usize)| usize::from(self.places[token].max(1));
        net::transmit::TOKENS - self.sending.iter().map(places).sum::<usize>()
    }
    fn transmit_header(&self, _interface: usize, token: usize) -> u64 {
        HEADERS + (token % HEADERS_THERE * TRANSMIT_HEADER) as u64
    }
    fn transmit(
        &mut self,
        interface: usize,
        token: usize,
        header: usize,
        rest: &[net::transmit::Segment],
    ) {
        assert!(header <= TRANSMIT_HEADER);
        for segment in rest {
            within_frame(segment.address, segment.len as usize);
        }
        self.sending.push((interface, token));
        self.places[token] = rest.len() as u8 + 1;
    }
    fn random(&mut self) -> Option<u64> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Some(self.random)
    }
}

/// So many records; by copies of ever more of them, which an interpreter makes at once.
fn leak<T: Default + Copy>(count: usize) -> &'static mut [T] {
    let mut records = Vec::with_capacity(count);
    records.resize_with(count.min(1), T::default);
    while records.len() < count {
        let more = records.len().min(count - records.len());
        records.extend_from_within(..more);
    }
    Vec::leak(records)
}

/// The same of what is not copied.
fn leak_each<T: Default>(count: usize) -> &'static mut [T] {
    let mut records = Vec::with_capacity(count);
    records.resize_with(count, T::default);
    Vec::leak(records)
}

fn directory(frames: usize) -> &'static mut Directory {
    Box::leak(Box::new(Directory {
        magic: MAGIC,
        version: VERSION,
        cpus: 1,
        frames: frames as u64,
        frames_usable: 0,
        image_frame: u64::from(KERNEL_FRAMES),
        image_bytes: u64::from(IMAGE_FRAMES) * PAGE_SIZE,
        // Installed memory ends below the next power of two.
        payload_forced: !(frames.next_power_of_two() as u64 * PAGE_SIZE - 1) & ((1 << 46) - 1),
        vector_bytes: 512,
        vector_features: 0,
        features: FEATURE_SELF_SNOOP | FEATURE_USERS,
        frames_free: 0,
        zero: [0; 6],
        tables: [TableInfo::default(); 24],
        command_line_len: 0,
        command_line: [0; abi::published::COMMAND_LINE],
    }))
}

/// A state and a machine with `frames` frames: the first are the kernel's, then the image's, the
/// rest free; account 1 exists. Leaks its tables.
pub fn new(frames: usize) -> (State, FakeMachine) {
    with_hole(frames, frames as u32..frames as u32)
}

/// As [`new`], with these frames the kernel's, too.
pub fn with_hole(frames: usize, hole: Range<u32>) -> (State, FakeMachine) {
    with_sizes(Sizes::for_frames(frames), hole)
}

/// The same with tables of these sizes.
pub fn with_sizes(sizes: Sizes, hole: Range<u32>) -> (State, FakeMachine) {
    let frames = sizes.frames;
    let mut state = State::new(Parts {
        published: Published {
            directory: directory(frames),
            envs: leak(sizes.envs),
            domains: leak(sizes.domains),
            accounts: leak(sizes.accounts),
            frames: leak(sizes.frames),
            ages: leak(sizes.frames),
            regions: leak(sizes.regions),
            filters: leak(sizes.filters),
            rings: leak(sizes.rings),
            slices: leak(sizes.slices),
            clock: &mut leak::<Clock>(1)[0],
            cpus: leak(CPUS).first_chunk_mut().unwrap(),
            calls: leak_each(CPUS * CALLS_MAX).as_chunks().0.first_chunk().unwrap(),
            census: leak(CATEGORIES),
            interfaces: leak(net::INTERFACES),
        },
        frames: frame::Frames::new(leak(sizes.frames)),
        folds: fold::Folds::new(leak(sizes.folds)),
        accounts: account::Accounts::new(leak(sizes.accounts)),
        domains: domain::Domains::new(leak(sizes.domains)),
        envs: env::Envs::new(leak(sizes.envs)),
        sched: sched::Scheduler::default(),
        regions: region::Regions::new(
            leak(sizes.regions),
            leak(sizes.attachments),
            sizes.domains,
            REGION_WORDS,
        ),
        downloads: workshop::Downloads::new(
            vec![0; crate::window::PAGES].leak(),
            compiled::Cells::new(leak(sizes.cells)),
            leak(workshop::POINTS),
            vec![0; workshop::BYTES].leak(),
        ),
        net: net::Network::new(
            leak(sizes.filters),
            leak(sizes.filters),
            leak(sizes.rings),
            leak(sizes.domains),
            leak(net::transmit::TOKENS),
        ),
        console: console::Console::default(),
    });
    let image = KERNEL_FRAMES..KERNEL_FRAMES + IMAGE_FRAMES;
    frame::claim(&mut state, 0..KERNEL_FRAMES, FrameType::Kernel, Name::ROOT);
    let guard = Name::of(&[abi::capability::NAME_IMAGE]);
    frame::claim(&mut state, image.clone(), FrameType::Image, guard);
    frame::claim(&mut state, hole.clone(), FrameType::Kernel, Name::ROOT);
    // Low numbers are given out first.
    frame::donate(&mut state, hole.end..frames as u32);
    frame::donate(&mut state, image.end..hole.start);
    (state, FakeMachine::new(frames, sizes.envs))
}
