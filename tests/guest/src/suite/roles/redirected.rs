//! A program whose faults another environment answers, and whose interrupts are functions.
//!
//! # Safety
//! Holds the instructions that fault. Each has a register for what comes back, and changes nothing
//! else: the handler goes on behind it.
#![allow(unsafe_code)]

use abi::id::EnvId;
use abi::upcall::Cause;
use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use xok::call::Message;
use xok::redirect::{Redirect, Report, go_on};
use xok::server::Serve;
use xok::upcall::Slot;

/// Its report when all was as it should be.
pub const CONTENT: u64 = 0x600d;
/// What rax of a redirected ud2 becomes, beside what it was.
const ANSWERED: u64 = 0x1234_0000;
/// Bytes of ud2, div and `int n`.
const BYTES: u64 = 2;

struct Place(UnsafeCell<Redirect>);
// SAFETY: one environment; changed while no fault is under way.
unsafe impl Sync for Place {}
static REDIRECT: Place = Place(UnsafeCell::new(Redirect::new()));

/// Faults that came to the program itself: how many, and the last one's cause and error code.
static OWN: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(slot: &mut Slot, cause: u64, address: u64) {
    // SAFETY: not changed meanwhile.
    if unsafe { &*REDIRECT.0.get() }.handle(slot, cause, address) {
        return;
    }
    OWN.fetch_add(1, Relaxed);
    LAST.store(cause << 16 | slot.error, Relaxed);
    slot.rip += BYTES;
}

fn redirect(change: impl FnOnce(&mut Redirect)) {
    // SAFETY: no fault is under way.
    change(unsafe { &mut *REDIRECT.0.get() });
}

macro_rules! faulting {
    ($instruction:literal, $rax:expr) => {{
        let rax: u64;
        // SAFETY: it faults, and the program goes on behind it.
        unsafe { asm!($instruction, inout("rax") $rax => rax, in("rcx") 0, options(nostack)) };
        rax
    }};
}

fn doubled(slot: &mut Slot) {
    slot.rax *= 2;
}

/// Lets `judge` answer its #UD, but not its #DE; the number of what was wrong, or [`CONTENT`].
pub fn run(judge: EnvId) -> u64 {
    xok::start::set_handler(handler);
    let own = || OWN.swap(0, Relaxed);
    if faulting!("ud2", 5_u64) != 5 || own() != 1 {
        return 1;
    }
    redirect(|redirect| {
        redirect.faults_to(judge, &[Cause::IllegalInstruction, Cause::PageFault]);
        redirect.interrupt(0x42, doubled);
    });
    if faulting!("ud2", 5_u64) != ANSWERED + 5 || own() != 0 {
        return 2;
    }
    // A cause that stays, though the judge would answer it.
    let divided = Cause::Divide as u64;
    if faulting!("div cl", 5_u64) != 5 || own() != 1 || LAST.load(Relaxed) >> 16 != divided {
        return 3;
    }
    if faulting!("int 0x42", 21_u64) != 42 || own() != 0 {
        return 4;
    }
    if faulting!(".byte 0x66, 0x48, 0xcd, 0x42", 21_u64) != 42 || own() != 0 {
        return 5;
    }
    // One that nobody has routed is a fault as ever.
    let protection = Cause::Protection as u64;
    if faulting!("int 0x43", 7_u64) != 7 || own() != 1 || LAST.load(Relaxed) >> 16 != protection {
        return 6;
    }
    redirect(|redirect| redirect.faults_to(EnvId(0xffff_fff0), &[Cause::IllegalInstruction]));
    if faulting!("ud2", 5_u64) != 5 || own() != 1 {
        return 7;
    }
    CONTENT
}

/// Answers illegal instructions: they are ud2.
#[derive(Debug)]
pub struct Judge;

impl Serve for Judge {
    fn request(&mut self, _: EnvId, message: &mut Message) {
        let Report { rip, rax, .. } = Report::of(message);
        *message = go_on(rip + BYTES, rax + ANSWERED);
    }

    fn events(&mut self) -> u64 {
        0
    }
}

/// Serves as the judge.
pub fn judge() -> u64 {
    xok::server::run(alloc::boxed::Box::leak(alloc::boxed::Box::new(Judge)))
}
