//! Taking signals on the way out: a handler's frame, a stop, the end.

use crate::capabilities::CONTROL_SLOT;
use crate::errno::{Errno, RESTART, RESTART_ALWAYS, RESTART_UNLESS_HANDLED};
use crate::lock::{self, DOORBELL};
use crate::process::Process;
use crate::signal::frame::{self, Contents, Registers};
use crate::signal::{Action, CODE_USER, Effect, Info, bit};
use crate::{children, exit, net, page, thread, threads, trace, user};
use abi::id::EnvId;
use abi::upcall::{EVENT_CHILD, EVENT_TIMER};
use linux_raw_sys::general as linux;
use xok::call::{self, OWN};
use xok::upcall::Slot;

/// Bytes of a `syscall` instruction.
const SYSCALL_BYTES: u64 = 2;

/// Notes what others sent: posts, deaths of children, the timer.
pub fn collect(process: &mut Process) {
    let posted = xok::upcall::take_pending();
    thread::own().rung |= posted & DOORBELL != 0;
    let posted = posted & !DOORBELL;
    if posted != 0 {
        if posted & bit(linux::SIGCHLD) != 0 {
            process.tell(EVENT_CHILD);
        }
        let sender = last_sender();
        let info = Info { code: CODE_USER, first: u64::from(sender), ..Info::default() };
        let mut rest = posted;
        while rest != 0 {
            let signal = rest.trailing_zeros() + 1;
            rest &= rest - 1;
            if thread::own().is_first() {
                process.arrive(signal, info);
            } else {
                process.arrive_at(thread::own().id, signal, info);
            }
        }
    }
    let events = xok::upcall::take_events();
    if events != 0 {
        process.events |= events & net::EVENTS;
        process.tell(events);
        if events & EVENT_CHILD != 0 {
            let info = children::told(process);
            process.arrive(linux::SIGCHLD, info);
        }
        if events & EVENT_TIMER != 0 {
            crate::time::timer_rang(process);
        }
    }
    if thread::own().events & EVENT_CHILD != 0 {
        children::tend(process, false);
    }
    threads::obey(process);
}

/// The environment that posted last.
fn last_sender() -> u32 {
    let count = xok::upcall::word(0xc0);
    let at = (count.wrapping_sub(1) % 8) as usize;
    let pair = xok::upcall::word(0xc8 + (at & !1) * 4);
    if at & 1 == 0 { pair as u32 } else { (pair >> 32) as u32 }
}

/// Does everything that needs no handler: ends, stops, drops. Is there a signal to handle left?
pub fn settle(process: &mut Process) -> bool {
    while let Some(signal) = process.next_signal() {
        match process.signals.effect(signal) {
            Effect::Handle => return true,
            Effect::Ignore | Effect::Continue => {
                take(process, signal);
            }
            Effect::Stop => {
                take(process, signal);
                process.orders.stop = signal;
                threads::order(process);
            }
            Effect::End => {
                take(process, signal);
                exit::by_signal(process, signal)
            }
        }
    }
    false
}

/// Takes `signal` off the list; a traced process says so.
fn take(process: &mut Process, signal: u32) -> Info {
    let info = process.take_signal(signal);
    if process.traced {
        trace::signal(signal, info);
    }
    info
}

/// Stops until somebody continues the process: what is held, and then released, is its first
/// thread.
pub fn stop(process: &mut Process, signal: u32) {
    process.signals.pending.discard(linux::SIGCONT);
    threads::each_other(process, call::env_hold);
    page::set_stopped(signal);
    // Held until SIGCONT's sender releases it. Refused only if the kernel has no such call.
    let _ = lock::released(process, || call::env_hold(OWN, EnvId::NONE));
    page::set_continued();
    threads::each_other(process, call::env_release);
    tell_parent(process);
    collect(process);
}

/// The kernel told the parent when we were released, before our page said so: tell it again.
fn tell_parent(process: &Process) {
    let parent = abi::id::EnvId(children::parent(process));
    // Gone, or not ours to signal: then it does not wait for us either.
    let _ = xok::call::post(CONTROL_SLOT, parent, bit(linux::SIGCHLD));
}

/// The way out of a foreign call, a fault or an event: `call` is the number of the Linux call
/// and how it ended, if it was one.
pub fn leave(process: &mut Process, slot: &mut Slot, call: Option<(u64, Errno)>) {
    collect(process);
    let mut call = call;
    if settle(process) {
        if let Some(signal) = process.next_signal() {
            let action = process.signals.action(signal);
            answer(slot, call.take(), Some(action.flags));
        }
        // Later ones nest: each frame is built on the context of the one before.
        while settle(process) {
            let Some(signal) = process.next_signal() else { break };
            handle(process, slot, signal);
        }
    }
    answer(slot, call, None);
    if let Some(mask) = thread::own().saved_mask.take() {
        thread::own().blocked = mask;
    }
}

/// Puts what an interrupted call answers, or makes it start again.
fn answer(slot: &mut Slot, call: Option<(u64, Errno)>, handled: Option<u64>) {
    let Some((number, errno)) = call else { return };
    let again = match (errno, handled) {
        (RESTART_ALWAYS, _) => true,
        (RESTART, Some(flags)) => flags & u64::from(linux::SA_RESTART) != 0,
        (RESTART | RESTART_UNLESS_HANDLED, None) => true,
        _ => false,
    };
    if again {
        slot.rip = slot.rip.wrapping_sub(SYSCALL_BYTES);
        slot.rax = number;
    } else if errno == RESTART || errno == RESTART_UNLESS_HANDLED {
        slot.rax = Errno::EINTR.to_register();
    } else {
        slot.rax = errno.to_register();
    }
}

/// The slot's registers in the order of the signal context.
fn registers(slot: &Slot) -> Registers {
    Registers {
        words: [
            slot.r8,
            slot.r9,
            slot.r10,
            slot.r11,
            slot.r12,
            slot.r13,
            slot.r14,
            slot.r15,
            slot.rdi,
            slot.rsi,
            slot.rbp,
            slot.rbx,
            slot.rdx,
            slot.rax,
            slot.rcx,
            slot.rsp,
            slot.rip,
            slot.rflags,
        ],
    }
}

/// The way back of [`registers`].
fn set_registers(slot: &mut Slot, registers: &Registers) {
    [
        slot.r8,
        slot.r9,
        slot.r10,
        slot.r11,
        slot.r12,
        slot.r13,
        slot.r14,
        slot.r15,
        slot.rdi,
        slot.rsi,
        slot.rbp,
        slot.rbx,
        slot.rdx,
        slot.rax,
        slot.rcx,
        slot.rsp,
        slot.rip,
        slot.rflags,
    ] = registers.words;
}

/// Makes the program run its handler for `signal` next.
fn handle(process: &mut Process, slot: &mut Slot, signal: u32) {
    let info = take(process, signal);
    let action = process.signals.action(signal);
    if action.flags & u64::from(linux::SA_RESETHAND) != 0 {
        process.signals.set_action(signal, crate::signal::Action::default());
    }
    // The mask that the handler's return restores: the one before a call with its own mask.
    let before = thread::own().saved_mask.take().unwrap_or(thread::own().blocked);
    if enter_handler(slot, signal, &action, info, before).is_err() {
        // No stack to put the frame on: as on Linux, that is a fault nobody can handle.
        process.signals.set_action(linux::SIGSEGV, crate::signal::Action::default());
        exit::by_signal(process, linux::SIGSEGV);
    }
    thread::own().blocked |= action.mask;
    if action.flags & u64::from(linux::SA_NODEFER) == 0 {
        thread::own().blocked |= bit(signal);
    }
    thread::own().blocked &= !crate::signal::UNMASKABLE;
}

/// Is `address` on the alternate stack?
pub fn on_alternate(alternate: (u64, u64, u32), address: u64) -> bool {
    let (start, size, flags) = alternate;
    flags & linux::SS_DISABLE == 0 && address > start && address - start <= size
}

fn enter_handler(
    slot: &mut Slot,
    signal: u32,
    action: &Action,
    info: Info,
    mask: u64,
) -> Result<(), Errno> {
    let alternate = thread::own().alternate;
    let wants =
        action.flags & u64::from(linux::SA_ONSTACK) != 0 && alternate.2 & linux::SS_DISABLE == 0;
    let switch = wants && !on_alternate(alternate, slot.rsp);
    let top = if switch { alternate.0 + alternate.1 } else { slot.rsp };
    let vector_bytes = thread::vector_bytes();
    let place = frame::place(top, !switch, vector_bytes as u64).ok_or(Errno::EFAULT)?;
    let state = thread::vector_room(vector_bytes + 4);
    thread::save_own_vector();
    let registers = registers(slot);
    let mut contents = Contents {
        place,
        signal,
        info,
        restorer: action.restorer,
        registers: &registers,
        mask,
        alternate,
        features: thread::vector_features(),
        vector: state,
    };
    let bytes = frame::build(&mut contents);
    user::write_bytes(place.vector, contents.vector)?;
    user::write_bytes(place.frame, &bytes)?;
    slot.rip = action.handler;
    slot.rsp = place.frame;
    slot.rdi = u64::from(signal);
    slot.rsi = place.frame + 8 + frame::CONTEXT_BYTES as u64;
    slot.rdx = place.frame + 8;
    slot.rax = 0;
    slot.rflags &= !0x500;
    Ok(())
}

/// `rt_sigreturn`: goes back to what a handler interrupted.
pub fn sigreturn(process: &mut Process, slot: &mut Slot) {
    let mut context = [0; frame::CONTEXT_BYTES];
    if user::read_bytes(slot.rsp, &mut context).is_err() {
        process.force(linux::SIGSEGV, Info::default());
        return;
    }
    let restored = frame::restore(&context);
    if restored.vector != 0 {
        let features = thread::vector_features();
        let room = thread::vector_room(thread::vector_bytes());
        if user::read_bytes(restored.vector, room).is_err() {
            process.force(linux::SIGSEGV, Info::default());
            return;
        }
        frame::sanitise_vector(room, features);
        thread::load_own_vector();
    }
    set_registers(slot, &restored.registers);
    thread::own().blocked = restored.mask & !crate::signal::UNMASKABLE;
}
