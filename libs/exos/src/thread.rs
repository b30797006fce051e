//! A thread: what ExOS remembers of it, and its own page.
//!
//! The page is the save area, behind it where its [`Thread`] is, and room for the vector registers.
//!
//! ```text
//!  GS base + 0x000  the kernel's and xok's parts (abi::upcall, xok::upcall::block)
//!          + 0x538  address of its `Thread`, which names the `Process`
//!          + 0x540  vector registers: a fork child finds its own here
//! ```
//!
//! # Safety
//! GS base is the save area of the running thread from its first instruction on; the thread word
//! is set before the program runs.
#![allow(unsafe_code)]

use crate::parts::Function;
use crate::process::Process;
use crate::signal::frame::Alternate;
use crate::signal::pending::Pending;
use crate::signal::sender;
use crate::wait::Kept;
use abi::id::EnvId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::arch::asm;
use core::ptr::NonNull;
use linux_raw_sys::general as linux;
use xok::upcall::{block, set_word, word, word_at};

/// Offset of the vector room.
pub const VECTOR: u64 = 0x540;
/// Bytes of it: a multiple of 64 that holds everything up to AVX-512 and PKRU.
pub const VECTOR_BYTES: usize = 0x1000 - VECTOR as usize;

/// No alternate signal stack.
pub const NO_ALTERNATE: Alternate = (0, 0, linux::SS_DISABLE);

/// What is a thread's own.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its environment: the tid.
    pub id: EnvId,
    /// Number of its area (`layout::thread_area`).
    pub number: u64,
    process: *mut Process,
    /// Blocked signals.
    pub blocked: u64,
    /// The mask to go back to when a call with a mask of its own ends (`sigsuspend`, `ppoll`).
    pub saved_mask: Option<u64>,
    /// The alternate signal stack: address, bytes, flags.
    pub alternate: Alternate,
    /// Cleared when the thread ends (`CLONE_CHILD_CLEARTID`).
    pub clear_tid: u64,
    /// FS base where the processor cannot read it.
    pub fs_base: u64,
    /// Has a predicate been downloaded?
    pub has_predicate: bool,
    /// Which, if it may stay for the next wait.
    pub predicate: Kept,
    /// Signals sent to this thread alone.
    pub directed: Pending,
    /// Event bits that arrived for all threads, and this one has not looked at yet.
    pub events: u64,
    /// Event bits that it sleeps for.
    pub awaits: u64,
    /// Signals that it sleeps for although it blocks them (`sigwait`).
    pub awaits_signals: u64,
    /// Head of the list of robust futexes that it holds (`set_robust_list`).
    pub robust: u64,
    /// Has somebody rung at it since it last looked (`crate::lock::DOORBELL`)?
    pub rung: bool,
    /// Posts whose bits it has taken (`signal::sender`).
    pub posts_taken: u64,
    /// Has it taken no bits of later posts?
    pub is_taken_exact: bool,
    /// Has it ended? Only the first one stays, as its environment is the pid.
    pub ended: bool,
    /// The function of the program's that the call in hand comes to.
    pub called: Option<Function>,
    /// The one that handles the fault by which a copy of ours has ended.
    pub missed: Option<Function>,
}

impl Thread {
    /// Where in it its process's address is.
    pub const PROCESS: usize = core::mem::offset_of!(Thread, process);

    /// The first thread of `process`.
    pub fn first(process: *mut Process, id: EnvId, blocked: u64) -> Self {
        Self {
            id,
            number: 0,
            process,
            blocked,
            saved_mask: None,
            alternate: NO_ALTERNATE,
            clear_tid: 0,
            fs_base: 0,
            has_predicate: false,
            predicate: Kept::default(),
            directed: Pending::default(),
            events: 0,
            awaits: 0,
            awaits_signals: 0,
            robust: 0,
            rung: false,
            posts_taken: sender::UNKNOWN,
            is_taken_exact: false,
            ended: false,
            called: None,
            missed: None,
        }
    }

    /// The same in another process: what a fork or vfork child begins with.
    pub fn forked(&self, process: *mut Process, id: EnvId, number: u64) -> Self {
        let mut child = self.clone();
        (child.process, child.id, child.number) = (process, id, number);
        child.clear_tid = 0;
        child.has_predicate = false;
        child.directed.clear();
        (child.events, child.awaits, child.awaits_signals, child.robust) = (0, 0, 0, 0);
        // Its save area is new, and so is whom the kernel names by its id.
        (child.posts_taken, child.is_taken_exact) = (0, true);
        child
    }

    /// Forgets what was the program's that ends here; what was sent to the thread stays.
    pub fn for_exec(&mut self) {
        let fresh = Self::first(self.process, self.id, self.blocked);
        let before = core::mem::replace(self, fresh);
        self.number = before.number;
        // What the kernel knows of it goes on.
        (self.has_predicate, self.predicate) = (before.has_predicate, before.predicate);
        (self.directed, self.events, self.rung) = (before.directed, before.events, before.rung);
        (self.posts_taken, self.is_taken_exact) = (before.posts_taken, before.is_taken_exact);
    }

    /// Is it the one that gave its process the pid?
    pub fn is_first(&self) -> bool {
        self.id == self.process().id
    }

    /// Its process.
    pub fn process(&self) -> &'static mut Process {
        // SAFETY: a thread's process outlives it; one thread at a time is in ExOS (`crate::lock`).
        unsafe { &mut *self.process }
    }

    /// Blocks again what it did before a call with a mask of its own, if it is in one.
    pub fn end_mask(&mut self) {
        self.blocked = self.saved_mask.take().unwrap_or(self.blocked);
    }

    /// Does it look at one of `signals` when rung at?
    pub fn wants(&self, signals: u64) -> bool {
        !self.ended && signals & (!self.blocked | self.awaits_signals) != 0
    }

    /// Makes it a thread of `process`.
    pub fn set_process(&mut self, process: *mut Process) {
        self.process = process;
    }
}

/// The threads of a process; all but the running one sleep, run its program, or wait for the lock.
#[derive(Clone, Debug, Default)]
pub struct Threads {
    list: Vec<NonNull<Thread>>,
}

impl Threads {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// All of them.
    pub fn all(&mut self) -> impl Iterator<Item = &mut Thread> {
        // SAFETY: what is listed was leaked by `add` and lives until `remove`.
        self.list.iter_mut().map(|thread| unsafe { thread.as_mut() })
    }

    /// The thread with this id.
    pub fn find(&mut self, id: EnvId) -> Option<&mut Thread> {
        self.all().find(|thread| thread.id == id)
    }

    /// Adds one; where it is from now on.
    pub fn add(&mut self, thread: Thread) -> NonNull<Thread> {
        let place = NonNull::from(Box::leak(Box::new(thread)));
        self.list.push(place);
        place
    }

    /// Takes one off the list.
    pub fn remove(&mut self, id: EnvId) -> Option<Box<Thread>> {
        // SAFETY: as `all`.
        let at = self.list.iter().position(|thread| unsafe { thread.as_ref() }.id == id)?;
        // SAFETY: leaked by `add`; what is removed is listed no more.
        Some(unsafe { Box::from_raw(self.list.remove(at).as_ptr()) })
    }
}

/// Address of the running thread's save area.
pub fn area() -> u64 {
    word(block::SELF)
}

/// The running thread.
#[inline]
pub fn own() -> &'static mut Thread {
    // SAFETY: set by `set_own`; a thread is in ExOS once (nested handlers only resolve page
    // faults), and threads look at each other's only under the lock (`crate::lock`).
    unsafe { &mut *(word_at::<{ block::THREAD }>() as *mut Thread) }
}

/// The process that the running thread belongs to.
pub fn process() -> &'static mut Process {
    own().process()
}

/// Is there a running thread yet? Not in the first steps of a program's life.
pub fn exists() -> bool {
    word(block::THREAD) != 0
}

/// Makes `thread` the running one.
pub fn set_own(thread: *mut Thread) {
    // SAFETY: a word that only the library reads.
    unsafe { set_word(block::THREAD, thread as u64) }
}

/// The vector state of this machine's programs.
#[derive(Clone, Copy, Debug)]
pub struct VectorState {
    /// Bytes of it, at least FXSAVE's.
    pub bytes: u64,
    /// XCR0's low half; 0: only FXSAVE.
    pub features: u32,
}

/// How it is, as the kernel published it.
#[inline]
pub fn vector_state() -> VectorState {
    let (bytes, features) = xok::published::vector_state();
    VectorState { bytes: bytes.into(), features }
}

/// What a program's vector registers begin with, as XRSTOR and FXRSTOR read it: an empty header
/// asks for the initial state of everything.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Initial {
    control: [u16; 12],
    mxcsr: u32,
    rest: [u32; 137],
}

/// x87 control word and MXCSR as the processor has them after FNINIT and reset.
pub static INITIAL: Initial = {
    let mut control = [0; 12];
    control[0] = 0x37f;
    Initial { control, mxcsr: 0x1f80, rest: [0; 137] }
};

/// Saves the program's vector registers to the 64-byte aligned room at `place`.
///
/// # Safety
/// `place` has room for what [`vector_state`] says, and nobody refers to it.
pub unsafe fn save_vector(place: u64) {
    // SAFETY: as the caller promises; the header is cleared first, as XSAVE only adds to it.
    unsafe {
        if vector_state().features != 0 {
            core::ptr::write_bytes((place + 512) as *mut u8, 0, 64);
            asm!("xsave64 [{}]", in(reg) place, in("eax") u32::MAX, in("edx") u32::MAX,
                options(nostack));
        } else {
            asm!("fxsave64 [{}]", in(reg) place, options(nostack));
        }
    }
}

/// Loads the program's vector registers from `place`.
///
/// # Safety
/// `place` holds what XSAVE wrote, or [`INITIAL`].
#[inline]
pub unsafe fn load_vector(place: u64) {
    // SAFETY: as the caller promises; ExOS itself has nothing in these registers.
    unsafe {
        if vector_state().features != 0 {
            asm!("xrstor64 [{}]", in(reg) place, in("eax") u32::MAX, in("edx") u32::MAX,
                options(nostack));
        } else {
            asm!("fxrstor64 [{}]", in(reg) place, options(nostack));
        }
    }
}

/// Saves the program's vector registers in the save area page seen at `window`.
pub fn save_vector_at(window: u64) {
    // SAFETY: the window shows a fresh page that nobody else refers to.
    unsafe { save_vector(window + VECTOR) }
}

/// Loads them from the thread's own page, where [`save_vector_at`] has put them.
pub fn load_own_vector() {
    // SAFETY: as `load_vector`.
    unsafe { load_vector(area() + VECTOR) }
}

/// Gives the program the vector registers that a new program has.
#[inline]
pub fn reset_vector() {
    // SAFETY: the state is as the two instructions want it.
    unsafe { load_vector((&raw const INITIAL) as u64) }
}

/// Does the processor let programs change their FS base themselves?
pub fn has_fsgsbase() -> bool {
    xok::published::directory().features & abi::published::FEATURE_FSGSBASE != 0
}

/// The program's FS base; only with [`has_fsgsbase`].
pub fn fs_base() -> u64 {
    let base;
    // SAFETY: reads a register; the kernel has set CR4.FSGSBASE.
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nostack, nomem)) };
    base
}

/// Sets it.
pub fn set_fs_base(base: u64) {
    // SAFETY: ExOS does not use FS.
    unsafe { asm!("wrfsbase {}", in(reg) base, options(nostack, nomem)) };
}

/// Copies the slot's words into the save area page seen at `window`, as slot 0 in use.
pub fn enter_slot_zero(window: u64, slot: &xok::upcall::Slot) {
    // SAFETY: the window shows a fresh page that nobody else refers to.
    unsafe {
        let place = (window + abi::upcall::offset::SLOTS as u64) as *mut xok::upcall::Slot;
        place.write(*slot);
        let word = |offset: usize, value: u64| {
            ((window + offset as u64) as *mut u64).write(value);
        };
        word(abi::upcall::offset::DEPTH, 1);
        word(abi::upcall::offset::MASK, 1);
    }
}

/// Sets the thread word of the save area page seen at `window`.
pub fn enter_thread(window: u64, thread: *const Thread) {
    // SAFETY: as `enter_slot_zero`.
    unsafe { ((window + block::THREAD as u64) as *mut u64).write(thread as u64) }
}

/// The running thread's slot 0.
pub fn slot_zero() -> &'static mut xok::upcall::Slot {
    // SAFETY: in the thread's own page; the caller is the one function that fills it.
    unsafe { &mut *((area() + abi::upcall::offset::SLOTS as u64) as *mut xok::upcall::Slot) }
}

/// Sets how many foreign calls through the kernel come before the next that is sampled, 0: all.
pub fn set_sample(calls: u64) {
    // SAFETY: a count that the entry stub alone looks at; any value is one.
    unsafe { set_word(block::SAMPLE, calls) }
}

/// Marks slot 0 as in use, so that `xok::upcall::resume` can leave by it.
pub fn use_slot_zero() {
    // SAFETY: one slot is in use and events are masked: what the protocol has after a foreign call.
    unsafe {
        set_word(abi::upcall::offset::DEPTH, 1);
        set_word(abi::upcall::offset::MASK, 1);
    }
}
