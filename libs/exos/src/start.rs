//! From the first instruction of an ExOS process to the program's first, and every entry after.
//!
//! # Safety
//! Holds the two entry points, the accessors of what the linker and the builder of the space
//! placed (text, image, start block), and the boxes of vfork children's processes. The builder
//! (`library`) has mapped what stands here before the first instruction runs.
#![allow(unsafe_code)]

use crate::capabilities::LOG_SLOT;
use crate::errno::{CALLED, Errno, RESTART, RESTART_ALWAYS, RESTART_UNLESS_HANDLED};
use crate::fs::Files;
use crate::layout::{
    FIRST_THREAD, LARGE_BLOCK, LARGE_BLOCK_BYTES, PRIVATE, PRIVATE_END, PROGRAM, SHOWN, SHOWN_END,
    START_BLOCK, START_BLOCK_BYTES, in_handler_stack, stack_tops,
};
use crate::memory::fault::{self, Fault};
use crate::memory::tables::Batch;
use crate::posix_timers::Timers;
use crate::process::{Orders, Process};
use crate::signal::{CODE_KERNEL, Info, deliver, sender};
use crate::thread::{Thread, Threads};
use crate::{
    door, environment, exec, identity, library, loader, lock, page, parts, rewrite, set_id,
    start_block, table, thread, threads, trace, trivial, user,
};
use abi::id::EnvId;
use abi::layout::{LIBRARY, PROGRAM_END};
use abi::setup::{EnvSetup, field};
use abi::upcall::Cause;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::arch::global_asm;
use core::fmt::Write;
use core::ptr::NonNull;
use image::elf::Plan;
use linux_raw_sys::general as linux;
use unix::set_id::Head;
use xok::call;
use xok::upcall::{Beginning, Handler, SAMPLED, Slot, Trivial, block, set_word};

/// Word of a fork child's slot 0 that tells it its id.
pub const CHILD_ID: usize = 0;
/// Word of it with the address for `CLONE_CHILD_CLEARTID`.
pub const CHILD_CLEAR_TID: usize = 1;
/// Status of a process whose program could not be loaded after the point of no return.
const EXIT_LOAD: u64 = 127;

global_asm!(
    ".section .text.exos_start, \"ax\"",
    ".global exos_start, exos_child, exos_keeper",
    "exos_start:",
    "xor ebp, ebp",
    "call {begin}",
    "ud2",
    "exos_child:",
    "xor ebp, ebp",
    "call {child}",
    "ud2",
    "exos_keeper:",
    "xor ebp, ebp",
    "call {keeper}",
    "ud2",
    ".text",
    begin = sym begin,
    child = sym child,
    keeper = sym keeper,
);

unsafe extern "C" {
    fn exos_start();
    fn exos_child();
    fn exos_keeper();
}

/// ExOS's entry point.
pub fn entry() -> u64 {
    exos_start as *const () as u64
}

/// Where a fork or vfork child begins.
pub fn child_entry() -> u64 {
    exos_child as *const () as u64
}

/// Where a keeper of sockets begins.
pub fn keeper_entry() -> u64 {
    exos_keeper as *const () as u64
}

/// Bytes of the native window: text and constants.
pub fn text_bytes() -> u64 {
    PRIVATE - LIBRARY
}

/// Bytes of the boot image, from an address in its mapping.
pub fn image_bytes(address: u64, len: u64) -> &'static [u8] {
    // SAFETY: the image is mapped whole, read-only, for as long as the process lives; callers name
    // files of it, whose ranges the archive has checked.
    unsafe { core::slice::from_raw_parts(address as *const u8, len as usize) }
}

/// The whole boot image.
pub fn image() -> &'static [u8] {
    image_bytes(crate::layout::IMAGE, xok::published::directory().image_bytes)
}

/// Writes the library's words of a save area page that is seen at `window` and will be at `area`.
pub fn prepare_save_area(window: u64, area: u64, stacks: [u64; 4]) {
    let traced = thread::exists() && thread::process().traced;
    let beginning = Beginning {
        save_area: area,
        stacks,
        handler: upcall_handler(traced),
        trivial: trivial_calls(traced),
        sample: rewrite::SAMPLE,
    };
    // SAFETY: a fresh page that nobody refers to; the stacks are mapped by `library::thread_area`.
    unsafe { xok::upcall::prepare(window, &beginning) }
}

/// What runs for each upcall. A traced process has a handler of its own: others pay nothing.
fn upcall_handler(traced: bool) -> Handler {
    if traced { handler::<true> } else { handler::<false> }
}

/// The trivial calls: there are none in a traced process, all of its calls come to the handler.
fn trivial_calls(traced: bool) -> &'static Trivial {
    if traced { &[] } else { &trivial::TABLE }
}

/// From now on the calls of the running thread are told, or no more.
pub fn set_traced(traced: bool) {
    // SAFETY: the handlers do the same, and with fewer trivial calls more come to them.
    unsafe {
        set_word(block::HANDLER, upcall_handler(traced) as *const () as u64);
        set_word(block::TRIVIAL_COUNT, trivial_calls(traced).len() as u64);
    }
}

/// The first instruction's Rust half: `block_len` bytes of start block are there.
extern "C" fn begin(block_len: u64) -> ! {
    prepare_save_area(FIRST_THREAD, FIRST_THREAD, stack_tops(FIRST_THREAD));
    thread::use_slot_zero();
    let entry = xok::upcall::entry();
    let setup = EnvSetup {
        fault_entry: entry,
        event_entry: entry,
        foreign_entry: xok::upcall::foreign_entry(),
        ..EnvSetup::default()
    };
    let fields = field::FAULT_ENTRY | field::EVENT_ENTRY | field::FOREIGN_ENTRY;
    if call::env_set(call::OWN, EnvId::NONE, fields, &setup).is_err() {
        call::exit(crate::exit::exited(EXIT_LOAD));
    }
    match next_life(block_len) {
        Ok(begin) => enter(begin),
        Err((status, errno)) => {
            xok::log!(LOG_SLOT, "exos: cannot start the program: {errno:?}");
            call::exit(status)
        }
    }
}

/// Reads the start block, gives it back, loads the program. Not part of `begin`, whose frame must
/// fit the stack pages that are there before faults can be taken.
#[inline(never)]
fn next_life(block_len: u64) -> Result<loader::Begin, (u64, Errno)> {
    let block = take_block(block_len).map_err(|errno| (crate::exit::exited(EXIT_LOAD), errno))?;
    match Head::split(&block) {
        Some((head, rest)) => {
            let life = life_of(rest, Some(&head));
            life.map_err(|errno| (crate::exit::signalled(linux::SIGKILL), errno))
        }
        None => life_of(&block, None).map_err(|errno| (crate::exit::exited(EXIT_LOAD), errno)),
    }
}

/// The life that a block tells of; with a head it is a set-id program's, and the block hostile.
fn life_of(block: &[u8], head: Option<&Head>) -> Result<loader::Begin, Errno> {
    let (mut process, blocked, mut command, files) = start_block::read(block)?;
    if let Some(head) = head {
        set_id::confine(&mut process, &mut command, head)?;
    }
    let process = Box::leak(Box::new(process));
    process.area = FIRST_THREAD;
    process.find_parent();
    let first = Thread::first(process, process.id, blocked);
    thread::set_own(process.threads.add(first).as_ptr());
    sender::begin();
    match head {
        Some(head) => {
            set_id::load_files(process, files, head)?;
            set_id::load_program(process, &mut command, head)?;
            exec::fill_page(page::own(), &command);
        }
        None => process.files = Files::load(files)?,
    }
    identity::executed(process)?;
    crate::machine::show_limits(process);
    process.files.set_fresh();
    crate::time::set_timer(process);
    let plan = Plan::parse(loader::bytes(&command)).map_err(|_| Errno::ENOEXEC)?;
    let areas = loader::areas(process, &command, &plan)?;
    let begin = loader::load(process, &command, &plan, areas)?;
    trace::begin_life(process, &command.environment, begin.rsp);
    environment::show(&command.environment);
    if command.handed_over != 0 {
        drop_tables(PROGRAM, PROGRAM + command.handed_over)?;
    }
    Ok(begin)
}

/// Copies the start block to the heap and gives its pages back.
fn take_block(len: u64) -> Result<Vec<u8>, Errno> {
    if len > START_BLOCK_BYTES {
        let len = len.min(LARGE_BLOCK_BYTES);
        let block = image_bytes(LARGE_BLOCK, len).to_vec();
        drop_tables(LARGE_BLOCK, LARGE_BLOCK + len)?;
        return Ok(block);
    }
    let block = image_bytes(START_BLOCK, len).to_vec();
    let mut batch = Batch::own();
    for page in library::present_pages(START_BLOCK, START_BLOCK + START_BLOCK_BYTES) {
        batch.unmap(1, page).map_err(|_| Errno::ENOMEM)?;
    }
    batch.send().map_err(|_| Errno::ENOMEM)?;
    Ok(block)
}

/// Gives the level-1 tables of `[start, end)` back, and all that is in them.
fn drop_tables(start: u64, end: u64) -> Result<(), Errno> {
    let mut batch = Batch::own();
    let mut at = start;
    while at < end {
        batch.unmap(2, at).map_err(|_| Errno::ENOMEM)?;
        at += library::TABLE_SPAN;
    }
    batch.send().map_err(|_| Errno::ENOMEM)
}

/// Enters the program.
fn enter(begin: loader::Begin) -> ! {
    let slot = thread::slot_zero();
    *slot = Slot { rip: begin.rip, rsp: begin.rsp, rflags: 0x202, ..Slot::default() };
    thread::reset_vector();
    thread::use_slot_zero();
    xok::upcall::resume(slot)
}

/// A fork or vfork child's first steps: slot 0 and the vector registers are its parent's.
extern "C" fn child(tid_address: u64) -> ! {
    thread::load_own_vector();
    let slot = thread::slot_zero();
    let process = thread::process();
    // A fork child has its parent's words; a thread, or a vfork child, those made for it.
    let id = EnvId(slot.free[CHILD_ID] as u32);
    if thread::own().id != id {
        process.id = id;
        process.borrows_space = false;
        process.own_groups = false;
        // Of a vfork child's, too, the list is its own, with what its ids keep.
        process.private = identity::stays_private(process);
        process.listed = (process.users, process.groups);
        process.left_own_group.set(false);
        process.find_parent();
        process.area = FIRST_THREAD;
        *thread::own() = thread::own().forked(process, id, 0);
        thread::own().clear_tid = slot.free[CHILD_CLEAR_TID];
        threads::begin_alone(process);
        process.children.clear();
        process.files.locked.clear();
        process.files.adopt(identity::for_files(process));
        process.timer = (0, 0);
        process.timers = Timers::default();
        process.events = 0;
        process.orders = Orders::default();
        process.signals.pending.clear();
        (process.children_ns, process.ended_ns) = (0, 0);
        crate::net::forget(process);
    }
    if tid_address != 0 {
        // A bad address is the program's own doing; Linux ignores it, too.
        let _ = user::write_value(tid_address, &id.0);
    }
    xok::upcall::resume(slot)
}

/// A keeper's first steps: it has a copy of the process whose sockets it keeps, and no program.
extern "C" fn keeper() -> ! {
    threads::begin_alone(thread::process());
    crate::net::keeper::run(thread::process())
}

/// A vfork child's half of our heap.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    /// Its process.
    pub process: NonNull<Process>,
    /// Its thread.
    pub thread: NonNull<Thread>,
}

impl Lent {
    /// Number of the thread's area.
    pub fn number(&self) -> u64 {
        // SAFETY: made by `lend`, not yet dropped.
        unsafe { self.thread.as_ref() }.number
    }
}

/// Puts a vfork child's process and its one thread on our heap.
pub fn lend(process: Process, mut thread: Thread) -> Lent {
    let process = Box::leak(Box::new(process));
    process.find_parent();
    thread.set_process(process);
    process.threads = Threads::default();
    let thread = process.threads.add(thread);
    Lent { process: NonNull::from(process), thread }
}

/// Frees what a vfork child that has left our space had there.
pub fn drop_lent(lent: Lent) {
    // SAFETY: leaked by `lend`; the child's thread will not run here again.
    let mut process = unsafe { Box::from_raw(lent.process.as_ptr()) };
    let id = process.id;
    drop(process.threads.remove(id));
}

/// Every upcall: foreign calls, faults, events.
extern "C" fn handler<const TRACED: bool>(slot: &mut Slot, cause: u64, address: u64) {
    // A handler stack grows wherever its thread is, also on the way to the lock; so do variables,
    // the lock among them (`lock::share` sees to it that no second thread meets that).
    let variables = PRIVATE..PRIVATE_END;
    if cause == Cause::PageFault as u64
        && slot.rip >= LIBRARY
        && (in_handler_stack(address) || variables.contains(&address))
    {
        return own_fault(slot, cause, address);
    }
    let from_program = slot.mask == 0;
    let taken = lock::enter();
    if taken && thread::process().threads.count() == 1 {
        threads::perhaps_alone();
    }
    if cause == Cause::Foreign as u64 {
        if address == SAMPLED {
            rewrite::consider(slot);
        }
        foreign::<TRACED>(slot);
    } else if cause == Cause::Event as u64 {
        rewrite::settle(slot);
        let process = thread::process();
        crate::net::tend(process);
        deliver::leave(process, slot, None);
    } else if slot.rip >= LIBRARY && !door::contains(slot.rip) {
        own_fault(slot, cause, address);
    } else {
        rewrite::settle(slot);
        program_fault(slot, cause, address);
    }
    // The call that made the second thread, and with it the lock, has not taken it here.
    if taken || from_program {
        lock::leave_if_ours();
    }
}

/// A Linux call.
fn foreign<const TRACED: bool>(slot: &mut Slot) {
    let process = thread::process();
    let number = slot.rax;
    let told = TRACED.then(|| trace::begin(slot));
    let answer = table::call(process, slot, number);
    // Of an `execve` that was one, the new life has told.
    if let Some(call) = told
        && !(trace::is_execution(number) && answer.is_ok())
    {
        trace::end(&call, answer);
    }
    match answer {
        Ok(value) => slot.rax = value,
        Err(CALLED) => parts::enter_called(slot),
        Err(Errno::EFAULT) if parts::handle_missed(slot, number) => {}
        Err(errno @ (RESTART | RESTART_ALWAYS | RESTART_UNLESS_HANDLED)) => {
            return deliver::leave(process, slot, Some((number, errno)));
        }
        Err(errno) => slot.rax = errno.to_register(),
    }
    // A mask of the call's own is for what interrupts it.
    thread::own().end_mask();
    // Posts that came meanwhile are noticed by the way back.
    if process.next_signal().is_some() {
        deliver::leave(process, slot, None);
    }
}

/// A fault of ExOS itself, or of a copy from or to the program.
fn own_fault(slot: &mut Slot, cause: u64, address: u64) {
    let refused = cause == Cause::Protection as u64;
    if cause != Cause::PageFault as u64 && !refused {
        failed(slot, cause, address);
    }
    let resolved = match address {
        _ if refused => false,
        address if address < PROGRAM_END => fault::program(address, slot.error).is_ok(),
        address => fault::library(address).is_ok(),
    };
    if resolved {
        return;
    }
    let copied = refused || address < PROGRAM_END || (SHOWN..SHOWN_END).contains(&address);
    for copy in user::fix_ups() {
        let expected = copied && (copy.refused || !refused);
        if expected && (copy.first..copy.last).contains(&slot.rip) {
            parts::note_missed(address, slot.error);
            slot.rip = copy.landing;
            return;
        }
    }
    failed(slot, cause, address)
}

/// A fault of the program's.
fn program_fault(slot: &mut Slot, cause: u64, address: u64) {
    let (signal, info) = if cause == Cause::PageFault as u64 {
        let resolved = if address < PROGRAM_END {
            fault::program(address, slot.error)
        } else {
            Err(Fault::Nothing)
        };
        let Err(fault) = resolved else { return };
        if parts::handle_fault(thread::process(), slot, address) {
            return;
        }
        let (signal, code) = match fault {
            Fault::Nothing => (linux::SIGSEGV, linux::SEGV_MAPERR),
            Fault::Forbidden => (linux::SIGSEGV, linux::SEGV_ACCERR),
            Fault::BehindFile => (linux::SIGBUS, linux::BUS_ADRERR),
            Fault::NoMemory => (linux::SIGKILL, 0),
        };
        (signal, Info { code: code as i32, first: address, ..Info::default() })
    } else {
        exception(slot, cause)
    };
    let info = Info { trap: cause, error: slot.error, address, ..info };
    deliver::fault(thread::process(), slot, signal, &info);
}

/// The signal of an exception (`arch/x86/kernel/traps.c` says which, signal(7) what it means).
fn exception(slot: &Slot, cause: u64) -> (u32, Info) {
    let at = slot.rip;
    let (signal, code) = match cause {
        cause if cause == Cause::Divide as u64 => (linux::SIGFPE, linux::FPE_INTDIV as i32),
        cause if cause == Cause::Debug as u64 => (linux::SIGTRAP, linux::TRAP_TRACE as i32),
        cause if cause == Cause::Breakpoint as u64 => (linux::SIGTRAP, CODE_KERNEL),
        cause if cause == Cause::IllegalInstruction as u64 => {
            (linux::SIGILL, linux::ILL_ILLOPN as i32)
        }
        cause if cause == Cause::FloatingPoint as u64 || cause == Cause::Simd as u64 => {
            (linux::SIGFPE, linux::FPE_FLTINV as i32)
        }
        cause if cause == Cause::Alignment as u64 => (linux::SIGBUS, linux::BUS_ADRALN as i32),
        cause if cause == Cause::StackSegment as u64 => (linux::SIGBUS, CODE_KERNEL),
        cause if cause == Cause::NotPresentSegment as u64 => (linux::SIGBUS, CODE_KERNEL),
        _ => (linux::SIGSEGV, CODE_KERNEL),
    };
    let first = if code == CODE_KERNEL { 0 } else { at };
    (signal, Info { code, first, ..Info::default() })
}

/// Are deaths by fault told to the kernel's log?
pub fn wants_reports() -> bool {
    true
}

/// A line of the kernel's log for a program that died of its own doing.
pub fn report_signal(process: &Process, signal: u32) {
    let slot = thread::slot_zero();
    xok::log!(
        LOG_SLOT,
        "exos: {} ({}) ended by signal {} at {:#x}, address {:#x}",
        process.executable,
        process.id.0,
        signal,
        slot.rip,
        slot.address
    );
}

/// A fault that ExOS cannot explain ends the process, not the machine.
fn failed(slot: &Slot, cause: u64, address: u64) -> ! {
    xok::log!(
        LOG_SLOT,
        "exos: own fault {} at {:#x}, address {:#x}, error {:#x}, rsp {:#x}",
        cause,
        slot.rip,
        address,
        slot.error,
        slot.rsp
    );
    call::exit(crate::exit::signalled(linux::SIGKILL))
}

/// ExOS itself panicked: says so on the kernel's log and ends the process.
pub fn died(info: &core::panic::PanicInfo) -> ! {
    let mut log = xok::print::Log::new(LOG_SLOT);
    // The log never refuses a line.
    let _ = writeln!(log, "exos: {info}");
    call::exit(crate::exit::signalled(linux::SIGKILL))
}

/// A list of what is there, kept for the files of `/proc`.
pub fn present(start: u64, end: u64) -> Vec<u64> {
    library::present_pages(start, end)
}
