//! A native call: decode, copy in, lock, decide, answer.

use abi::call::Call;
use abi::error::Error;
use abi::layout::is_user_range;
use abi::upcall::Cause;
use kernel_core::context::Context;
use kernel_core::dispatch::{self, Outcome};
use kernel_core::machine::{Machine, UserFault};

use crate::cpu::Cpu;
use crate::registers::rdtsc;
use crate::run::{self, Hold};
use crate::{bases, entry, trace, user};

/// Bytes of the `syscall` instruction.
const INSTRUCTION: u64 = 2;

/// From `entry`: the frame is in the caller's context. Answers how to leave (`entry_leave`).
pub extern "C" fn system_call(cpu: &'static Cpu) -> u64 {
    cpu.entered_tsc.set(rdtsc());
    let Some(caller) = cpu.loaded.get() else { panic!("a call from nobody") };
    let context = run::own_context(cpu);
    if context.vector == entry::FOREIGN {
        return run::fault(Hold::take(cpu), Cause::Foreign as u8, 0, 0);
    }
    let word = context.rax;
    let number = word as u16;
    cpu.call.set(u64::from(number));
    trace::call(cpu, number);
    let words = [context.rdi, context.rsi, context.rdx, context.r10, context.r8, context.r9];
    let call = match Call::decode(number, words) {
        Ok(call) => call,
        Err((error, operand)) => {
            context.answer(error as u64, operand);
            return run::leave_to(Hold::take(cpu), caller);
        }
    };
    let bytes: &[u8] = match dispatch::buffer(&call) {
        None => &[],
        Some((address, len)) if !is_user_range(address, len as u64) => {
            context.answer(Error::BadAddress as u64, address);
            return run::leave_to(Hold::take(cpu), caller);
        }
        Some((address, len)) => {
            let buffer = &mut cpu.buffer()[..len];
            if let Err(fault) = user::read(address, buffer) {
                return fault_in_call(Hold::take(cpu), fault);
            }
            buffer
        }
    };
    serve(cpu, caller, call, word, bytes)
}

/// The call runs again once its page fault has been answered.
fn fault_in_call(mut hold: Hold, fault: UserFault) -> u64 {
    if let Some(caller) = hold.cpu.loaded.get() {
        hold.hardware.context(caller).rip -= INSTRUCTION;
    }
    let error = if fault.write { 2 } else { 0 };
    run::fault(hold, Cause::PageFault as u8, error, fault.address)
}

fn serve(cpu: &'static Cpu, caller: usize, call: Call, word: u64, bytes: &[u8]) -> u64 {
    let mut hold = Hold::take(cpu);
    // Programs change FS and GS base themselves; this call does it for those that can't.
    let sets_bases = matches!(call, Call::EnvSet { .. });
    if sets_bases {
        let (fs, gs) = bases::read();
        let context = hold.hardware.context(caller);
        (context.fs_base, context.gs_base) = (fs, gs);
    }
    let index = cpu.index.get();
    let Hold { state, hardware, .. } = &mut hold;
    let outcome = dispatch::call(state, hardware, index, caller, call, word, bytes);
    match outcome {
        Outcome::Answer(error, value) => hardware.context(caller).answer(error, value),
        Outcome::Again => hardware.context(caller).rip -= INSTRUCTION,
        Outcome::Fault(fault) => return fault_in_call(hold, fault),
        Outcome::Left => {}
        Outcome::Enter(callee) => run::enter(&mut hold, callee),
        Outcome::Restart => cpu.loaded.set(None),
    }
    if !matches!(outcome, Outcome::Answer(..)) {
        return run::leave(hold);
    }
    if sets_bases {
        let context = hold.hardware.context(caller);
        bases::write(context.fs_base, context.gs_base);
        run::load_entry_data(cpu, &hold.state, caller);
    }
    if changes_order(&call) { run::leave(hold) } else { run::leave_to(hold, caller) }
}

/// May the call change who runs next, or when the timer is due?
fn changes_order(call: &Call) -> bool {
    matches!(
        call,
        Call::Yield { .. }
            | Call::Sleep { .. }
            | Call::TransferSync {}
            | Call::TransferAsync {}
            | Call::EnvHold { .. }
            | Call::EnvRelease { .. }
            | Call::EnvDestroy { .. }
            | Call::EnvMove { .. }
            | Call::DomainDestroy { .. }
            | Call::FrameRevoke { .. }
            | Call::AccountDestroy { .. }
            | Call::SliceAlloc { .. }
            | Call::SliceFree { .. }
            | Call::PredicateSet { .. }
            | Call::TimerSet { .. }
    )
}

const _: () = assert!(size_of::<Context>() <= 256);
