//! Being called by control transfer: a loop of events and requests on one stack.
//!
//! A server sleeps accepting. A transfer enters at the stub below on the top of the server's stack,
//! runs the request, and its reply makes the server accept the next one in the same step; whatever
//! wakes it otherwise (an event, its predicate) runs the event function, then it sleeps again.
//! Whatever the sleep left on the stack is abandoned: nothing is kept there between requests. Which
//! of several clients is the next one is the kernel's to say (`TRANSFER_WAIT`, decision 0050).
//!
//! # Safety
//! Holds the entry stub. The functions are set before the first transfer is accepted; the stack is
//! the server's own static one.
#![allow(unsafe_code)]

use crate::call::{self, Message};
use abi::call::SLEEP_ACCEPT;
use abi::id::EnvId;
use abi::setup::{EnvSetup, field};
use core::arch::global_asm;
use core::cell::UnsafeCell;

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
    ".global xok_server_entry, xok_server_loop",
    // rcx: the caller's id; the message in rdi rsi rdx r8 r9 r10; rsp is the caller's, worthless.
    // What a calling convention keeps `request` keeps, for callers that trust us (`rpc::tlrpc`).
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
    // rax: what the reply's rax must be.
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r8",
    "pop r9",
    "pop r10",
    "syscall",
    // The reply was refused (the caller died), or an event woke us.
    "xok_server_loop:",
    "lea rsp, [rip + {place} + {stack}]",
    "call {idle}",
    "ud2",
    place = sym PLACE,
    stack = const STACK,
    request = sym request,
    idle = sym idle,
);

unsafe extern "C" {
    fn xok_server_entry();
    fn xok_server_loop() -> !;
}

fn current() -> &'static mut dyn Serve {
    // SAFETY: set by `run` before anything enters; request and idle run one after the other, since
    // a transfer is accepted only while `idle` (or the reply) sleeps. `NotYet` has no size: it may
    // be anywhere.
    unsafe { &mut **CURRENT.0.get() }
}

/// Answers a request; what the reply's `rax` must be.
extern "C" fn request(caller: u64, message: &mut Message) -> u64 {
    crate::beat::beat();
    let caller = EnvId(caller as u32);
    current().request(caller, message);
    call::reply_rax(caller)
}

extern "C" fn idle() -> ! {
    loop {
        let deadline = current().events();
        // Behind what takes the posted bits: who asked before that reads a new count.
        crate::beat::beat();
        // Every answer, a passed deadline included, means: look again.
        let _ = call::sleep(deadline, u64::MAX, current().awaits(), SLEEP_ACCEPT);
    }
}

/// Serves for ever. Upcalls for events stay masked: the loop reads the event bits itself.
pub fn run(server: &'static mut dyn Serve) -> ! {
    // SAFETY: nothing has entered yet.
    unsafe { *CURRENT.0.get() = server };
    crate::upcall::set_mask(true);
    let setup =
        EnvSetup { sync_entry: xok_server_entry as *const () as u64, ..EnvSetup::default() };
    if call::env_set(call::OWN, EnvId::NONE, field::SYNC_ENTRY, &setup).is_err() {
        call::exit(1 << 8);
    }
    // SAFETY: switches to the server's stack; this one is never used again.
    unsafe { xok_server_loop() }
}
