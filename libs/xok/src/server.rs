//! Being called by control transfer: a loop of events and requests on one stack.
//!
//! A server sleeps accepting. A transfer enters at the stub below on the top of the server's stack,
//! runs the request, and its reply makes the server accept the next one in the same step; whatever
//! wakes it otherwise (an event, its predicate) runs the event function, then it sleeps again.
//! Whatever the sleep left on the stack is abandoned: nothing is kept there between requests. Who
//! asks for much lets others in meanwhile (`turns`).
//!
//! # Safety
//! Holds the entry stub. The functions are set before the first transfer is accepted; the stack is
//! the server's own static one.
#![allow(unsafe_code)]

mod turns;

use crate::call::{self, Message};
use crate::{clock, published};
use abi::call::SLEEP_ACCEPT;
use abi::id::EnvId;
use abi::published::Table;
use abi::setup::{EnvSetup, field};
use core::arch::global_asm;
use core::cell::UnsafeCell;
use turns::{Frame, Kept, PAUSE_NS, Turns};

/// What a server does.
pub trait Serve {
    /// Answers a request: who asks, the six words; what it leaves in them is the reply.
    fn request(&mut self, caller: EnvId, message: &mut Message);
    /// Something other than a request woke the server. Returns the deadline of the next sleep in
    /// nanoseconds since boot (0: none).
    fn events(&mut self) -> u64;
    /// Event bits that end the next sleep before that deadline. After a request all of them do.
    fn awaits(&self) -> u64 {
        u64::MAX
    }
}

const STACK: usize = 64 * 1024;

#[repr(C, align(4096))]
struct Place(UnsafeCell<[u8; STACK]>);
// SAFETY: used as the server's stack only.
unsafe impl Sync for Place {}
static PLACE: Place = Place(UnsafeCell::new([0; STACK]));

/// What serves until [`run`] says what does: nothing enters before that.
struct NotYet;

impl Serve for NotYet {
    fn request(&mut self, _: EnvId, _: &mut Message) {}
    fn events(&mut self) -> u64 {
        0
    }
}

struct Current(UnsafeCell<*mut dyn Serve>);
// SAFETY: one environment; request and event functions never overlap (see `run`).
unsafe impl Sync for Current {}
static CURRENT: Current = Current(UnsafeCell::new(core::ptr::dangling_mut::<NotYet>()));

global_asm!(
    ".section .text.xok_server, \"ax\"",
    ".global xok_server_entry, xok_server_loop, xok_server_reply",
    // rcx: the caller's id; the message in rdi rsi rdx r8 r9 r10; rsp is the caller's, worthless.
    // What a calling convention keeps is kept for callers that trust us (`rpc::tlrpc`), whenever
    // they are answered: by `request`, or in the frame of one that waits.
    "xok_server_entry:",
    "lea rsp, [rip + {place} + {stack}]",
    "push r10",
    "push r9",
    "push r8",
    "push rdx",
    "push rsi",
    "push rdi",
    "mov rdi, rcx",
    "mov rsi, rsp",
    "call {request}",
    // rax: what the reply's rax must be; 0: it is not answered now.
    "test rax, rax",
    "jz 2f",
    "3:",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r8",
    "pop r9",
    "pop r10",
    "syscall",
    // The reply was refused (the caller died), an event woke us, or others are to be let in.
    "xok_server_loop:",
    "lea rsp, [rip + {place} + {stack}]",
    "call {idle}",
    "ud2",
    // The rest of a frame.
    "2:",
    "push r15",
    "push r14",
    "push r13",
    "push r12",
    "push rbx",
    "push rbp",
    "mov rdi, rsp",
    "call {keep}",
    "ud2",
    // rdi: a frame; rsi: what the reply's rax must be.
    "xok_server_reply:",
    "mov rsp, rdi",
    "mov rax, rsi",
    "pop rbp",
    "pop rbx",
    "pop r12",
    "pop r13",
    "pop r14",
    "pop r15",
    "jmp 3b",
    place = sym PLACE,
    stack = const STACK,
    request = sym request,
    keep = sym keep,
    idle = sym idle,
);

unsafe extern "C" {
    fn xok_server_entry();
    fn xok_server_loop() -> !;
    fn xok_server_reply(frame: &Frame, rax: u64) -> !;
}

fn current() -> &'static mut dyn Serve {
    // SAFETY: set by `run` before anything enters; request and idle run one after the other, since
    // a transfer is accepted only while `idle` (or the reply) sleeps. `NotYet` has no size: it may
    // be anywhere.
    unsafe { &mut **CURRENT.0.get() }
}

struct Clients(UnsafeCell<Turns>);
// SAFETY: one environment; request and event functions never overlap (see `run`).
unsafe impl Sync for Clients {}
static CLIENTS: Clients = Clients(UnsafeCell::new(Turns::new()));

fn clients() -> &'static mut Turns {
    // SAFETY: as in `current`; no reference lives on when the next one is made.
    unsafe { &mut *CLIENTS.0.get() }
}

/// Back to the loop: the rest of what is on the stack is worth nothing.
fn to_loop() -> ! {
    // SAFETY: switches to the top of the server's stack.
    unsafe { xok_server_loop() }
}

/// Replies, accepting the next request in the same step.
fn reply(caller: EnvId, frame: &Frame) -> ! {
    // SAFETY: the frame is not on the stack's top, where the loop begins again; if the caller has
    // died, it needs no answer.
    unsafe { xok_server_reply(frame, call::reply_rax(caller)) }
}

/// A reply runs the client, on whosever time this is, and for as long as that lasts: the server
/// accepts meanwhile, so that others need not wait for it, and an event wakes it for what is kept
/// when nobody has asked for a while: one that was awake would be busy when others come.
fn wake_for_the_rest(deadline: u64) {
    let soon = if clients().is_empty() { 0 } else { clock::now_ns() + PAUSE_NS };
    let due = clock::earlier(deadline, soon);
    if due != 0 {
        // It is at home, where alone a timer may be set.
        let _ = call::timer_set(due);
    }
}

/// The account that an environment's time is charged to.
fn payer(env: EnvId) -> u64 {
    published::env(env).map_or(0, |record| record.account)
}

/// Answers a request; `false`: the answer waits until others were let in.
#[inline]
fn answer(caller: EnvId, message: &mut Message) -> bool {
    // The whole counter: however long the server was kept from running, that is no short time. In a
    // short one no id comes again, and who gets the answer at once is who has asked.
    let begun = clock::tsc();
    current().request(caller, message);
    let took = clock::tsc().wrapping_sub(begun);
    if clients().spend(took) {
        clients().begin_pause(clock::now_ns(), payer(caller));
        return false;
    }
    true
}

/// What the reply's `rax` must be, or 0: the request, or its answer, waits ([`keep`]).
extern "C" fn request(caller: u64, message: &mut Message) -> u64 {
    let caller = EnvId(caller as u32);
    // Before it is served, which may take so long that its id is another one's.
    let serial = published::env_serial(caller);
    crate::beat::beat();
    if !clients().is_empty() {
        return request_in_turn(caller, serial, message);
    }
    if answer(caller, message) {
        call::reply_rax(caller)
    } else {
        clients().wait(caller, serial, true)
    }
}

/// The same where others wait.
#[cold]
#[inline(never)]
fn request_in_turn(caller: EnvId, serial: Option<u64>, message: &mut Message) -> u64 {
    let (now, payer) = (clock::now_ns(), payer(caller));
    if clients().keeps(now, payer) {
        return clients().wait(caller, serial, false);
    }
    if !answer(caller, message) || clients().gives_way(now, payer) {
        return clients().wait(caller, serial, true);
    }
    wake_for_the_rest(0);
    call::reply_rax(caller)
}

/// Keeps what waits.
extern "C" fn keep(frame: &Frame) -> ! {
    clients().keep(clock::now_ns(), frame);
    to_loop()
}

/// Answers what has waited longest; the server itself has to wake at `deadline`, 0: never.
fn go_on(deadline: u64) {
    let Some(kept) = clients().take() else { return };
    // A caller that has ended needs no answer, and its id may be another one's.
    if !kept.is_for(published::env_serial(kept.caller)) {
        return;
    }
    let Kept { caller, serial, mut frame, answered, .. } = kept;
    if answered || answer(caller, &mut frame.message) {
        wake_for_the_rest(deadline);
        reply(caller, &frame);
    }
    clients().wait(caller, serial, true);
    clients().keep(clock::now_ns(), &frame);
}

extern "C" fn idle() -> ! {
    loop {
        let deadline = current().events();
        // Behind what takes the posted bits: who asked before that reads a new count.
        crate::beat::beat();
        let now = clock::now_ns();
        let pause = clients().pause(now);
        if pause.is_none() && !clients().is_empty() {
            go_on(deadline);
            continue;
        }
        let deadline = clock::earlier(deadline, pause.unwrap_or(0));
        // Every answer, a passed deadline included, means: look again.
        let _ = call::sleep(deadline, u64::MAX, current().awaits(), SLEEP_ACCEPT);
    }
}

/// Serves for ever. Upcalls for events stay masked: the loop reads the event bits itself.
pub fn run(server: &'static mut dyn Serve) -> ! {
    // SAFETY: nothing has entered yet.
    unsafe { *CURRENT.0.get() = server };
    crate::upcall::set_mask(true);
    clients().set_ticks(published::clock().tsc_mhz);
    if clients().make_room(published::table(Table::Envs).count as usize).is_err() {
        call::exit(1 << 8);
    }
    let setup =
        EnvSetup { sync_entry: xok_server_entry as *const () as u64, ..EnvSetup::default() };
    if call::env_set(call::OWN, EnvId::NONE, field::SYNC_ENTRY, &setup).is_err() {
        call::exit(1 << 8);
    }
    // SAFETY: switches to the server's stack; this one is never used again.
    unsafe { xok_server_loop() }
}
