//! Threads of one environment, which schedules them itself: activations, not kernel threads.
//!
//! Whatever takes the processor from a thread is an upcall with its registers in a slot (Anderson
//! et al., "Scheduler activations", 1991; aegis95 S29): the handler puts another thread's registers
//! there. So a thread that waits in a fault holds up nobody else, and the end of a slice is the end
//! of a thread's turn.
//!
//! ```text
//!  thread ─┬─ fault ───────────────► Program::fault: go on, wait, or end ─┐
//!          ├─ event, end of slice ─► Program::event wakes; next turn ─────┤
//!          └─ park, join, its end ─► (no kernel) ─────────────────────────┤
//!                                                                         ▼
//!   the same one, the next that is ready in the slot; nobody is: the environment sleeps
//! ```
//! Memory is allocated in critical sections (`heap`), which are not for waiting in.
//!
//! # Safety
//! The package is entered by the handler, and by functions here with the mask set, which excludes
//! the handler: never by two at a time (entering it twice panics). A thread's registers go on only
//! where they were taken, on the thread's own stack.
#![allow(unsafe_code)]

use crate::call::{self, OWN};
use crate::start::EXIT_FAULT;
use crate::upcall::{self, REQUEST, Slot};
use crate::{heap, published, start};
use abi::id::EnvId;
use abi::setup::{EnvSetup, FLAG_BORROW, FLAG_SLICE_END, field};
use abi::upcall::{Cause, EVENT_SLICE_END};
use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::arch::asm;
use core::cell::RefCell;

/// Bytes of a thread's stack.
const STACK: usize = 64 * 1024;
/// Bytes of the area that FXSAVE fills, and the least that XSAVE does (SDM 1 §13.4).
const LEGACY: usize = 512 + 64;
/// How XSAVE wants its area aligned.
const VECTOR_ALIGN: usize = 64;
/// rflags of a thread that begins: interrupts on, the bit that is always set.
const FLAGS: u64 = 0x202;

/// A thread, for ever: numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ThreadId(pub u64);

/// A thread's fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Whose.
    pub thread: ThreadId,
    /// [`Cause`] as a number.
    pub cause: u64,
    /// The address it names, if it names one.
    pub address: u64,
    /// The processor's error code.
    pub error: u64,
}

/// What becomes of a thread that has faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It tries again.
    GoOn,
    /// It tries again once it is woken.
    Wait,
    /// It ends.
    End,
}

/// What a program makes of its faults and events. Runs masked, beside no thread.
pub trait Program {
    /// A thread has faulted.
    fn fault(&mut self, threads: &mut Threads, fault: &Fault) -> Fate;
    /// Bits were posted, or the kernel has set event bits.
    fn event(&mut self, threads: &mut Threads, posted: u64, events: u64);
}

/// What a thread asks for, in rdi and rsi at a request.
#[repr(u64)]
enum Ask {
    Park,
    Join,
    Yield,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Runs, or is in the queue.
    Ready,
    /// Waits until it is woken.
    Parked,
    /// Waits for the end of another.
    Joins(ThreadId),
    /// Waits in a fault.
    Faulted,
}

struct Thread {
    state: State,
    /// It has been woken since it last parked.
    token: bool,
    /// Its registers while another runs.
    context: Slot,
    vectors: Vectors,
    /// Kept for as long as it lives; the first one's is the program's.
    _stack: Vec<u128>,
}

/// The threads of the program.
pub struct Threads {
    all: BTreeMap<ThreadId, Thread>,
    /// Who is ready but does not run, next one first.
    ready: VecDeque<ThreadId>,
    current: ThreadId,
    /// Who runs lets those that are ready run first.
    turn_is_over: bool,
    next: u64,
}

struct Package {
    threads: Threads,
    program: Box<dyn Program>,
}

struct Place(RefCell<Option<Package>>);
// SAFETY: one environment; see the head of the file.
unsafe impl Sync for Place {}
static PACKAGE: Place = Place(RefCell::new(None));

/// The caller becomes the first thread; the program ends when it returns from its main.
pub fn begin(program: impl Program + 'static) {
    let current = ThreadId(1);
    let mut all = BTreeMap::new();
    all.insert(current, Thread::new(Slot::default(), Vec::new()));
    let ready = VecDeque::with_capacity(1);
    let threads = Threads { all, ready, current, turn_is_over: false, next: 2 };
    *PACKAGE.0.borrow_mut() = Some(Package { threads, program: Box::new(program) });
    heap::share_by_sections();
    start::set_handler(handler);
    let flags = FLAG_BORROW | FLAG_SLICE_END;
    let setup = EnvSetup { flags, ..EnvSetup::default() };
    // Oneself, known flags.
    let _ = call::env_set(OWN, EnvId::NONE, field::FLAGS, &setup);
}

/// What a thread runs.
pub type Run = extern "C" fn(u64);

/// Makes a thread that runs `run`.
pub fn spawn(run: Run, argument: u64) -> ThreadId {
    let stack = vec![0_u128; STACK / size_of::<u128>()];
    let top = stack.as_ptr_range().end as u64;
    let context = Slot {
        rip: first as *const () as u64,
        // As after a call, which pushes a return address.
        rsp: top - 8,
        rflags: FLAGS,
        rdi: run as *const () as u64,
        rsi: argument,
        ..Slot::default()
    };
    let thread = Thread::new(context, stack);
    with(|threads| {
        let id = ThreadId(threads.next);
        threads.next += 1;
        threads.all.insert(id, thread);
        // There is room for all, so that the handler never allocates for this.
        threads.ready.reserve(threads.all.len() - threads.ready.len());
        threads.ready.push_back(id);
        id
    })
}

/// Who runs.
pub fn current() -> ThreadId {
    with(|threads| threads.current)
}

/// Lets the other threads that are ready run first.
pub fn yield_now() {
    upcall::request(Ask::Yield as u64, 0);
}

/// Waits until somebody wakes the caller, or has done so since it last parked.
pub fn park() {
    upcall::request(Ask::Park as u64, 0);
}

/// Waits for the end of `thread`.
pub fn join(thread: ThreadId) {
    upcall::request(Ask::Join as u64, thread.0);
}

/// Wakes `thread` from [`park`] or from a fault it waits in; now or, if it does not wait, when it
/// parks next.
pub fn wake(thread: ThreadId) {
    with(|threads| threads.wake(thread));
}

/// Runs `act` on the threads, masked.
fn with<T>(act: impl FnOnce(&mut Threads) -> T) -> T {
    let _section = crate::critical::Critical::enter();
    let mut package = PACKAGE.0.borrow_mut();
    act(&mut package.as_mut().expect("`begin` comes first").threads)
}

extern "C" fn first(run: Run, argument: u64) -> ! {
    run(argument);
    upcall::request(Ask::End as u64, 0);
    unreachable!("a thread that has ended runs");
}

extern "C" fn handler(slot: &mut Slot, cause: u64, address: u64) {
    let fault = cause != Cause::Event as u64 && cause != REQUEST;
    // A fault in a critical section, or in the package.
    if fault && slot.mask != 0 {
        call::exit(EXIT_FAULT | cause);
    }
    let mut package = PACKAGE.0.borrow_mut();
    let package = package.as_mut().expect("`begin` comes first");
    let Package { threads, program } = package;
    let thread = threads.current;
    if cause == REQUEST {
        threads.ask(slot.rdi, slot.rsi);
    } else if fault {
        let fault = Fault { thread, cause, address, error: slot.error };
        match program.fault(threads, &fault) {
            Fate::GoOn => {}
            Fate::Wait => threads.set(thread, State::Faulted),
            Fate::End => threads.end(),
        }
    }
    package.look();
    while !package.threads.choose(slot) {
        // Whatever it is that came is looked at.
        let _ = call::sleep(0, u64::MAX, u64::MAX, 0);
        package.look();
    }
    slot.mask = 0;
}

impl Package {
    /// Takes what has come.
    fn look(&mut self) {
        let (posted, events) = (upcall::take_pending(), upcall::take_events());
        if posted | (events & !EVENT_SLICE_END) != 0 {
            self.program.event(&mut self.threads, posted, events);
        }
        if events & EVENT_SLICE_END != 0 {
            self.threads.turn_is_over = true;
            let _ = call::yield_to(EnvId::NONE);
        }
    }
}

impl Threads {
    /// See [`wake`].
    pub fn wake(&mut self, id: ThreadId) {
        let Some(thread) = self.all.get_mut(&id) else { return };
        match thread.state {
            State::Parked | State::Faulted => {
                thread.state = State::Ready;
                self.line_up(id);
            }
            State::Ready | State::Joins(_) => thread.token = true,
        }
    }

    fn line_up(&mut self, id: ThreadId) {
        // One that has not been switched away from goes on by itself.
        if id != self.current {
            self.ready.push_back(id);
        }
    }

    fn set(&mut self, id: ThreadId, state: State) {
        if let Some(thread) = self.all.get_mut(&id) {
            thread.state = state;
        }
    }

    fn ask(&mut self, what: u64, whom: u64) {
        let current = self.current;
        let whom = ThreadId(whom);
        if what == Ask::Yield as u64 {
            self.turn_is_over = true;
        } else if what == Ask::End as u64 {
            self.end();
        } else if what == Ask::Join as u64 {
            if self.all.contains_key(&whom) {
                self.set(current, State::Joins(whom));
            }
        } else if let Some(thread) = self.all.get_mut(&current)
            && !core::mem::take(&mut thread.token)
        {
            thread.state = State::Parked;
        }
    }

    /// The end of whoever runs.
    fn end(&mut self) {
        let ended = self.current;
        self.all.remove(&ended);
        for (&id, thread) in &mut self.all {
            if thread.state == State::Joins(ended) {
                thread.state = State::Ready;
                self.ready.push_back(id);
            }
        }
    }

    /// Puts into `slot` whoever goes on; false: nobody can.
    fn choose(&mut self, slot: &mut Slot) -> bool {
        let turn_is_over = core::mem::take(&mut self.turn_is_over);
        let last = self.current;
        if self.all.get(&last).is_some_and(|thread| thread.state == State::Ready) {
            if !turn_is_over || self.ready.is_empty() {
                return true;
            }
            self.ready.push_back(last);
        }
        let Some(next) = self.ready.pop_front() else { return false };
        if let Some(thread) = self.all.get_mut(&last) {
            thread.context = *slot;
            thread.vectors.store();
        }
        self.current = next;
        if let Some(thread) = self.all.get(&next) {
            *slot = thread.context;
            thread.vectors.load();
        }
        true
    }
}

impl Thread {
    fn new(context: Slot, stack: Vec<u128>) -> Self {
        let vectors = Vectors::initial();
        Self { state: State::Ready, token: false, context, vectors, _stack: stack }
    }
}

/// The vector registers of a thread that does not run.
struct Vectors {
    area: *mut u8,
    layout: Layout,
}

impl Vectors {
    /// As after reset: XRSTOR of a header of zeroes says so; FXRSTOR takes what is there.
    fn initial() -> Self {
        let (bytes, _) = published::vector_state();
        let bytes = (bytes as usize).max(LEGACY);
        let layout = Layout::from_size_align(bytes, VECTOR_ALIGN).expect("a few KiB");
        // SAFETY: the size is not zero.
        let area = unsafe { alloc_zeroed(layout) };
        assert!(!area.is_null(), "no memory for vector registers");
        // SAFETY: the area is larger; the words are x87's control word and MXCSR (SDM 1 §10.5.1).
        unsafe {
            area.cast::<u16>().write(0x37f);
            area.add(24).cast::<u32>().write(0x1f80);
        }
        Self { area, layout }
    }

    fn has_xsave() -> bool {
        published::vector_state().0 != 0
    }

    fn store(&mut self) {
        // SAFETY: the area has the size and alignment that the instruction wants.
        unsafe {
            if Self::has_xsave() {
                asm!("xsave64 [{}]", in(reg) self.area, in("eax") !0, in("edx") !0);
            } else {
                asm!("fxsave64 [{}]", in(reg) self.area);
            }
        }
    }

    fn load(&self) {
        // SAFETY: the area is as it was made or stored; no compiled code here uses the registers.
        unsafe {
            if Self::has_xsave() {
                asm!("xrstor64 [{}]", in(reg) self.area, in("eax") !0, in("edx") !0);
            } else {
                asm!("fxrstor64 [{}]", in(reg) self.area);
            }
        }
    }
}

impl Drop for Vectors {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nobody else's.
        unsafe { dealloc(self.area, self.layout) }
    }
}
