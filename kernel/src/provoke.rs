//! Mistakes made on purpose, for tests of what the kernel says then.
//!
//! `provoke=…` on the command line asks for one. Two are none: `root-loads` says what the machine
//! takes for a load of CR3 with nothing around it, below which no switch of spaces gets;
//! `late-processors` has all processors but the first go on later than the first program does.
//!
//! # Safety
//! Each mistake ends the kernel; that it ends with the right last words is what is tested.
#![allow(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::cpu::Cpu;
use crate::platform::clock;
use crate::registers::{read_cr3, write_cr3};

/// Looks for `provoke=` and obeys.
pub fn provoke(cpu: &'static Cpu, command_line: &str) {
    let asked =
        command_line.split_ascii_whitespace().find_map(|word| word.strip_prefix("provoke="));
    match asked {
        Some("stack-overflow") => {
            recurse(&mut [0; 32]);
        }
        Some("stack-top") => fall_off(cpu),
        // SAFETY: see the file's head.
        Some("kernel-fault") => unsafe { (0x1000 as *mut u8).write_volatile(0) },
        // SAFETY: see the file's head.
        Some("write-text") => unsafe { (provoke as *mut u8).write_volatile(0) },
        Some("kept-stack") => keep(),
        Some("panic") => panic!("asked for"),
        Some("root-loads") => load_roots(),
        Some("late-processors") => LATE.store(true, Ordering::Relaxed),
        Some(other) => crate::log!("provoke={other}: unknown"),
        None => {}
    }
}

/// Whether processors go on late.
static LATE: AtomicBool = AtomicBool::new(false);

/// Waits for a twentieth of a second, as if something had stopped this processor; serves meanwhile
/// who wants it to flush.
pub fn be_late(serve: impl Fn()) {
    const LATE_NS: u64 = 50_000_000;
    let begin = clock::now_ns();
    while LATE.load(Ordering::Relaxed) && clock::now_ns() - begin < LATE_NS {
        serve();
        crate::registers::pause();
    }
}

/// Loads the root that is loaded, again and again: the space stays, its translations go.
fn load_roots() {
    const LOADS: u64 = 100_000;
    let root = read_cr3();
    let begin = clock::now_ns();
    for _ in 0..LOADS {
        // SAFETY: it is loaded.
        unsafe { write_cr3(root) }
    }
    let took = clock::now_ns() - begin;
    crate::log!("provoke: {LOADS} loads of CR3 in {took} ns, {} each", took / LOADS);
}

#[inline(never)]
#[expect(unconditional_recursion, reason = "that is the mistake")]
fn recurse(words: &mut [u64; 32]) -> u64 {
    let mut own = [words[0] + 1; 32];
    core::hint::black_box(&mut own);
    recurse(&mut own) + own[3]
}

/// Where on a stack something lies that is used after the stack was given up; 0: nothing does.
static KEPT: AtomicU64 = AtomicU64::new(0);
/// What lies there names this.
static WORD: u64 = 0x600d;

/// Keeps the address of what goes with the stack: a reference, far down, where nothing else comes.
#[inline(never)]
fn keep() {
    let mut references = [&WORD; 700];
    KEPT.store(core::hint::black_box(&mut references).as_ptr() as u64, Ordering::Relaxed);
}

/// Uses what was kept.
pub fn look_back() {
    let kept = KEPT.load(Ordering::Relaxed) as *const *const u64;
    if !kept.is_null() {
        // SAFETY: see the file's head.
        let word = unsafe { kept.read_volatile().read_volatile() };
        crate::log!("provoke: what was on a stack that was given up is {word:#x} still");
    }
}

/// Returns from the outermost function.
fn fall_off(cpu: &'static Cpu) {
    // SAFETY: see the file's head.
    unsafe { asm!("mov rsp, {}", "ret", in(reg) cpu.stack_top.get(), options(noreturn)) }
}
