//! Exceptions and interrupts, from programs and from the kernel itself.
//!
//! # Safety
//! Frames handed over by `entry` are complete `Context`s that nobody else uses meanwhile.
#![allow(unsafe_code)]

use core::arch::asm;

use abi::layout::{DIRECT_MAP, LIBRARY, LIBRARY_END, OWN_TABLES, PUBLISHED, is_user};
use abi::trace::{Event, Kind};
use kernel_core::context::Context;

use crate::cpu::{AREAS, Cpu, NO_CALL, STRIDE};
use crate::entry::{
    DEVICE_VECTOR, DEVICE_VECTORS, FLUSH_VECTOR, LOOK_VECTOR, SPURIOUS_VECTOR, TIMER_VECTOR,
};
use crate::platform::apic;
use crate::registers::{rdtsc, read_cr2, read_dr6, write_dr6};
use crate::run::{self, Hold};
use crate::{devices, shootdown, trace, user};

const DEBUG: u64 = 1;
const NMI: u64 = 2;
const DOUBLE_FAULT: u64 = 8;
const PROTECTION: u64 = 13;
const PAGE_FAULT: u64 = 14;
const MACHINE_CHECK: u64 = 18;
/// Bits of a page fault's error code that programs see: present, write, fetch.
pub const PAGE_FAULT_BITS: u64 = 1 | 2 | 16;
/// Exceptions that reach the program as they are, one bit for each vector, but for the page fault.
pub const DELIVERED: u32 = 1 | 0b11111 << 3 | 0b111 << 11 | 1 << 16 | 1 << 17 | 1 << 19;

/// From a program: its frame is in its context. Answers how to leave (`entry_leave`).
pub extern "C" fn trap(cpu: &'static Cpu) -> u64 {
    cpu.entered_tsc.set(rdtsc());
    cpu.call.set(NO_CALL);
    assert!(user::is_forbidden(), "AC is set in the kernel");
    // Only the words that name the trap are read, before anybody else uses the context.
    let context = cpu.context() as *const Context;
    // SAFETY: see the file's head.
    let (vector, error) = unsafe { ((*context).vector, (*context).error) };
    match vector {
        0..32 => exception(cpu, vector, error),
        _ => {
            interrupt(cpu, vector as u8);
            let mut hold = Hold::take(cpu);
            run::look(&mut hold);
            run::leave(hold)
        }
    }
}

fn exception(cpu: &'static Cpu, vector: u64, error: u64) -> u64 {
    let address = if vector == PAGE_FAULT { read_cr2() } else { 0 };
    let (cause, error) = match vector {
        NMI => {
            run::report(cpu);
            return run::go_back(cpu);
        }
        MACHINE_CHECK => panic!("machine check"),
        DEBUG => {
            // SAFETY: the register only tells why.
            unsafe { write_dr6(read_dr6() & !0xf) }
            (vector, 0)
        }
        // Whether the kernel has a page somewhere is nobody's business.
        PAGE_FAULT if is_secret(address) => (vector, error & PAGE_FAULT_BITS & !1),
        PAGE_FAULT => (vector, error & PAGE_FAULT_BITS),
        _ if DELIVERED >> vector & 1 != 0 => (vector, error),
        _ => (PROTECTION, 0),
    };
    run::fault(Hold::take(cpu), cause as u8, error, address)
}

/// Does only the kernel know what is mapped there?
fn is_secret(address: u64) -> bool {
    let readable = OWN_TABLES + (LIBRARY_END - LIBRARY);
    address >= DIRECT_MAP && !(PUBLISHED..readable).contains(&address)
}

/// An interrupt, wherever it came: notes what it wants.
fn interrupt(cpu: &'static Cpu, vector: u8) {
    cpu.interrupts.set(cpu.interrupts.get() + 1);
    trace::event(cpu, Event::new(Kind::Interrupt, u16::from(vector), 0));
    match vector {
        TIMER_VECTOR => {
            let mut timer = cpu.timer.get();
            timer.fired();
            cpu.timer.set(timer);
            cpu.ticked.set(true);
        }
        LOOK_VECTOR => cpu.look.set(true),
        FLUSH_VECTOR => shootdown::serve(cpu),
        SPURIOUS_VECTOR => return,
        _ if (DEVICE_VECTOR..DEVICE_VECTOR + DEVICE_VECTORS).contains(&vector) => {
            devices::interrupt(cpu, vector);
        }
        _ => {}
    }
    apic::end_of_interrupt();
}

/// From the kernel: an interrupt while idle, a copy that faulted, or the end.
pub extern "C" fn kernel_trap(frame: &mut Context, cpu: &'static Cpu) {
    match frame.vector {
        NMI => run::report(cpu),
        // A data breakpoint set by nobody: programs can't reach the registers.
        DEBUG => {
            // SAFETY: the register only tells why.
            unsafe { write_dr6(read_dr6() & !0xf) }
        }
        PAGE_FAULT => {
            let address = read_cr2();
            match user::fix_up(frame.rip) {
                Some(go_on) if is_user(address) => {
                    cpu.kernel_faults.set(cpu.kernel_faults.get() + 1);
                    frame.rip = go_on;
                    frame.rax = address;
                }
                _ => die(frame, cpu, "page fault"),
            }
        }
        DOUBLE_FAULT => die(frame, cpu, "double fault"),
        0..32 => die(frame, cpu, "exception"),
        // Only where they are let in (l4stack 16).
        _ if !cpu.open.get() => die(frame, cpu, "an interrupt"),
        vector => interrupt(cpu, vector as u8),
    }
}

fn die(frame: &Context, cpu: &Cpu, what: &str) -> ! {
    let address = read_cr2();
    let base = AREAS + STRIDE * cpu.index.get() as u64;
    let stack = base + crate::cpu::STACK;
    let overflow =
        frame.vector == DOUBLE_FAULT && frame.rsp < stack + 0x200 && frame.rsp + 0x1000 > stack;
    let what = match address {
        _ if overflow => "stack overflow",
        _ if address == stack + crate::cpu::STACK_BYTES => "fall off the stack's top",
        _ => what,
    };
    crate::backtrace::print(frame.rsp);
    panic!(
        "{} in the kernel on processor {}: vector {} error {:#x} rip {:#x} rsp {:#x} address {:#x}",
        what,
        cpu.index.get(),
        frame.vector,
        frame.error,
        frame.rip,
        frame.rsp,
        address,
    );
}

/// Ends everything: no interrupt table, then an exception.
pub fn triple_fault() {
    let nothing = [0u8; 10];
    // SAFETY: nothing runs after this.
    unsafe { asm!("lidt [{}]", "int3", in(reg) &nothing) }
}
