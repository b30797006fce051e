//! A native call: decode, copy in, lock, decide, answer.

use abi::call::{TABLE, number};
use abi::error::Error;
use abi::upcall::Cause;
use kernel_core::context::Context;
use kernel_core::dispatch::{self, Outcome};
use kernel_core::index::bounded;
use kernel_core::machine::{Machine, UserFault};

use crate::cpu::{Cpu, NO_CALL};
use crate::registers::rdtsc;
use crate::run::{self, Hold};
use crate::{bases, load, trace, user};

/// Bytes of the `syscall` instruction.
const INSTRUCTION: u64 = 2;

/// A step along a ring, which may need no more than the short way. From `entry`, as `any_call`.
pub extern "C" fn step_call<const NUMBER: u16>(
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
) -> u64 {
    let cpu = Cpu::current();
    match run::relay::<NUMBER>(cpu, [a, b, c, d, e, f]) {
        Some(how) => how,
        None => step_at_length::<NUMBER>(cpu),
    }
}

/// The same call the long way, its arguments as `entry` has stored them. What a ring's two sides do
/// all the time is served where the row is known.
#[inline(never)]
fn step_at_length<const NUMBER: u16>(cpu: &'static Cpu) -> u64 {
    const { assert!(!dispatch::reads_memory(NUMBER)) }
    cpu.entered_tsc.set(rdtsc());
    trace::call(cpu, NUMBER);
    cpu.call.set(usize::from(NUMBER));
    let &mut Context { rdi, rsi, rdx, r10, r8, r9, .. } = run::own_context(cpu);
    serve(cpu, NUMBER.into(), [rdi, rsi, rdx, r10, r8, r9], &[])
}

/// A call that may need no more than a switch, to `to` if it is a yield.
pub extern "C" fn switching_call(to: u64) -> u64 {
    let cpu = Cpu::current();
    let word = run::own_context(cpu).rax;
    if let Some(how) = run::hand_over(cpu, word, to) {
        return how;
    }
    let &mut Context { rdi, rsi, rdx, r10, r8, r9, .. } = run::own_context(cpu);
    any_call(rdi, rsi, rdx, r10, r8, r9)
}

/// From `entry`: the frame is in the caller's context, the arguments are still in their registers
/// (with r10 in rcx, as the C ABI has it). Answers how to leave (`entry_leave`).
pub extern "C" fn any_call(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> u64 {
    let cpu = Cpu::current();
    cpu.entered_tsc.set(rdtsc());
    let word = run::own_context(cpu).rax;
    let number = word as u16;
    trace::call(cpu, number);
    if usize::from(number) >= TABLE.len() {
        // Nothing has happened, so nobody has to be asked.
        cpu.call.set(NO_CALL);
        return run::answer(cpu, Error::NoSuchCall as u64, number.into());
    }
    // Behind the comparison, whatever a processor makes of it before it is done.
    let number = bounded(number.into(), TABLE.len()) as u16;
    let word = word & !u64::from(u16::MAX) | u64::from(number);
    cpu.call.set(usize::from(number));
    let words = [a, b, c, d, e, f];
    let mut bytes: &[u8] = &[];
    if dispatch::reads_memory(number)
        && let Some((address, len)) = dispatch::buffer(number, words)
    {
        let buffer = &mut cpu.buffer()[..len];
        if let Err(fault) = user::read(address, buffer) {
            return fault_in_call(Hold::take(cpu), fault);
        }
        bytes = buffer;
    }
    serve(cpu, word, words, bytes)
}

/// As `any_call`, outside of the native window and without a foreign entry.
pub extern "C" fn foreign_call() -> u64 {
    let cpu = Cpu::current();
    cpu.entered_tsc.set(rdtsc());
    cpu.call.set(NO_CALL);
    run::fault(Hold::take(cpu), Cause::Foreign as u8, 0, 0)
}

/// The call runs again once its page fault has been answered.
#[cold]
fn fault_in_call(mut hold: Hold, fault: UserFault) -> u64 {
    if let Some(caller) = hold.cpu.loaded() {
        hold.hardware.context(caller.at()).rip -= INSTRUCTION;
    }
    let error = if fault.write { 2 } else { 0 };
    run::fault(hold, Cause::PageFault as u8, error, fault.address)
}

#[inline(always)]
fn serve(cpu: &'static Cpu, word: u64, words: [u64; 6], bytes: &[u8]) -> u64 {
    let number = word as u16;
    let Some(caller) = cpu.loaded() else { panic!("a call from nobody") };
    let mut hold = Hold::take(cpu);
    // Programs change FS and GS base themselves; this call does it for those that can't.
    let sets_bases = number == number::EnvSet;
    if sets_bases {
        let (fs, gs) = bases::read();
        let context = hold.hardware.context(caller.at());
        (context.fs_base, context.gs_base) = (fs, gs);
    }
    let Hold { state, hardware, .. } = &mut hold;
    let outcome = dispatch::call(state, hardware, cpu.place(), caller, word, words, bytes);
    match outcome {
        Outcome::Answer(error, value) if sets_bases => {
            let context = hold.hardware.context(caller.at());
            context.answer(error, value);
            bases::write(context.fs_base, context.gs_base);
            load::reload(cpu, &mut hold.state, &mut hold.hardware, caller);
            return run::leave(hold);
        }
        Outcome::Answer(error, value) if changes_order(number) => {
            hardware.context(caller.at()).answer(error, value);
        }
        Outcome::Answer(error, value) => {
            if number == number::TimerSet {
                run::rearm(&hold);
            }
            return run::leave_with(hold, caller, error, value);
        }
        Outcome::Again => hardware.context(caller.at()).rip -= INSTRUCTION,
        Outcome::Fault(fault) => return fault_in_call(hold, fault),
        Outcome::Left => {}
        Outcome::Enter(callee) => load::enter(cpu, state, hardware, callee),
        Outcome::Restart => cpu.park(),
        Outcome::Moved => {
            load::reload(cpu, state, hardware, caller);
            return run::leave_to(hold, caller);
        }
    }
    run::leave(hold)
}

/// May the call change who runs next? One bit for each number.
const CHANGES_ORDER: u64 = 1 << number::Yield
    | 1 << number::Sleep
    | 1 << number::TransferSync
    | 1 << number::TransferAsync
    | 1 << number::EnvHold
    | 1 << number::EnvRelease
    | 1 << number::EnvDestroy
    | 1 << number::EnvMove
    | 1 << number::DomainDestroy
    | 1 << number::FrameRevoke
    | 1 << number::AccountDestroy
    | 1 << number::SliceAlloc
    | 1 << number::SliceFree
    | 1 << number::PredicateSet;

/// Does the way out ask who runs next after this call? It does after any other, too, if something
/// has happened: see [`run::leave_with`].
fn changes_order(number: u16) -> bool {
    CHANGES_ORDER.wrapping_shr(number.into()) & 1 != 0
}

const _: () = assert!(size_of::<Context>() <= 256);
