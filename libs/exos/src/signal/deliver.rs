//! Taking signals on the way out: a handler's frame, a stop, the end.

use crate::capabilities::USER_SLOT;
use crate::errno::{Errno, RESTART, RESTART_ALWAYS, RESTART_UNLESS_HANDLED};
use crate::lock::{self, DOORBELL};
use crate::parts::Function;
use crate::process::Process;
use crate::signal::frame::{self, Alternate, Contents, Place};
use crate::signal::{Action, CODE_KERNEL, Effect, Info, UNMASKABLE, bit, sender, vector};
use crate::thread::{NO_ALTERNATE, Thread};
use crate::{children, exit, groups, net, page, thread, threads, trace, user};
use abi::id::EnvId;
use abi::upcall::{EVENT_CHILD, EVENT_TIMER};
use core::mem::MaybeUninit;
use linux_raw_sys::general as linux;
use xok::call::{self, OWN};
use xok::upcall::Slot;

/// Bytes of a `syscall` instruction.
const SYSCALL_BYTES: u64 = 2;
/// Flags that a handler begins without: TF, DF, RF.
const FLAGS_CLEARED: u64 = 0x1_0500;

/// Notes what others sent: posts, deaths of children, the timer.
pub fn collect(process: &mut Process) {
    if xok::upcall::pending() != 0 {
        // Read before, said after: who posts meanwhile is not named for what came before.
        let set = sender::posts_set();
        note_posts(process, xok::upcall::take_pending(), set);
        let thread = thread::own();
        (thread.posts_taken, thread.is_taken_exact) = (set, sender::is_exact(set));
    }
    if xok::upcall::events() != 0 {
        let events = xok::upcall::take_events();
        process.events |= events & net::EVENTS;
        process.tell(events);
        if events & EVENT_CHILD != 0
            && let Some(info) = children::told(process)
        {
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

/// Notes what these bits say, which all posts up to `set` have set.
fn note_posts(process: &mut Process, bits: u64, set: u64) {
    if bits & DOORBELL != 0 {
        thread::own().rung = true;
        groups::follow(process);
    }
    let posted = bits & !DOORBELL;
    if posted != 0 {
        if posted & bit(linux::SIGCHLD) != 0 {
            process.tell(EVENT_CHILD);
        }
        let info = sender::info(process, bits, set);
        let mut rest = posted;
        if posted & bit(linux::SIGCHLD) != 0
            && let Some(told) = children::told_by_itself(process, EnvId(info.first as u32))
        {
            rest &= !bit(linux::SIGCHLD);
            if let Some(info) = told {
                process.arrive(linux::SIGCHLD, info);
            }
        }
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
}

/// Does everything that needs no handler: ends, stops, drops. The signal to handle, if one is left.
#[inline]
pub fn settle(process: &mut Process) -> Option<u32> {
    loop {
        let signal = process.next_signal()?;
        match process.signals.effect(signal) {
            Effect::Handle => return Some(signal),
            effect => settle_one(process, signal, effect),
        }
    }
}

fn settle_one(process: &mut Process, signal: u32, effect: Effect) {
    take(process, signal);
    match effect {
        Effect::Handle | Effect::Ignore | Effect::Continue => {}
        Effect::Stop => {
            process.orders.stop = signal;
            threads::order(process);
        }
        Effect::End => exit::by_signal(process, signal),
    }
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
    let parent = EnvId(children::parent(process));
    // Gone, or not ours to signal: then it does not wait for us either.
    let _ = xok::call::post(USER_SLOT, parent, bit(linux::SIGCHLD));
}

/// The way out of a foreign call, a fault or an event: `call` is the number of the Linux call
/// and how it ended, if it was one.
pub fn leave(process: &mut Process, slot: &mut Slot, call: Option<(u64, Errno)>) {
    collect(process);
    let mut call = call;
    // Later ones nest: each frame is built on the context of the one before.
    while let Some(signal) = settle(process) {
        let action = process.signals.action(signal);
        answer(slot, call.take(), Some(action.flags));
        let info = take(process, signal);
        if handle(process, slot, signal, &action, &info).is_err() {
            no_frame(process, signal);
        }
    }
    answer(slot, call, None);
    thread::own().end_mask();
}

/// A signal that the program's own instruction caused: to its handler at once, if nothing else is
/// to be done.
pub fn fault(process: &mut Process, slot: &mut Slot, signal: u32, info: &Info) {
    let action = process.signals.action(signal);
    let handled = action.handler > 1 && thread::own().blocked & bit(signal) == 0;
    if handled && is_quiet(process) {
        if handle(process, slot, signal, &action, info).is_ok() {
            return;
        }
        no_frame(process, signal);
    } else {
        process.force(signal, *info);
    }
    leave(process, slot, None);
}

/// Is there nothing that [`leave`] would find?
#[inline]
fn is_quiet(process: &Process) -> bool {
    let own = thread::own();
    let signals = (process.signals.pending.set() | own.directed.set()) & !own.blocked;
    let news = xok::upcall::pending() | xok::upcall::events() | own.events & EVENT_CHILD;
    signals | news == 0 && process.orders.is_empty() && !process.traced
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

/// Makes the program run its handler for `signal` next; an error if there is no stack for it.
fn handle(
    process: &mut Process,
    slot: &mut Slot,
    signal: u32,
    action: &Action,
    info: &Info,
) -> Result<(), Errno> {
    if action.flags & u64::from(linux::SA_RESETHAND) != 0 {
        process.signals.set_action(signal, Action { handler: 0, ..*action });
    }
    let own = thread::own();
    // The mask that the handler's return restores: the one before a call with its own mask.
    let before = own.saved_mask.unwrap_or(own.blocked);
    enter_handler(own, slot, signal, action, info, before)?;
    own.saved_mask = None;
    let itself = if action.flags & u64::from(linux::SA_NODEFER) == 0 { bit(signal) } else { 0 };
    own.blocked = (own.blocked | action.mask | itself) & !UNMASKABLE;
    Ok(())
}

/// There is no stack to put the frame of `signal` on: that is a fault, which a handler with a stack
/// of its own may take, unless that was it.
fn no_frame(process: &mut Process, signal: u32) {
    if signal == linux::SIGSEGV {
        process.signals.set_action(signal, Action::default());
        exit::by_signal(process, signal);
    }
    process.force(linux::SIGSEGV, BAD_FRAME);
}

/// What a handler is told of a frame that could not be written or read.
const BAD_FRAME: Info =
    Info { code: CODE_KERNEL, first: 0, second: 0, trap: 0, error: 0, address: 0 };

/// Does a program with this stack pointer run on its alternate stack? One that is taken from it
/// when a handler begins (`SS_AUTODISARM`) is never run on.
pub fn on_alternate(alternate: Alternate, address: u64) -> bool {
    alternate.2 & (linux::SS_DISABLE | linux::SS_AUTODISARM) == 0 && within(alternate, address)
}

fn within((start, size, _): Alternate, address: u64) -> bool {
    address > start && address - start <= size
}

/// Where the frame of a handler with these flags goes.
fn place(alternate: Alternate, rsp: u64, flags: u64, vector_bytes: u64) -> Option<Place> {
    let below = frame::below_red_zone(rsp);
    if alternate.2 & linux::SS_DISABLE != 0 {
        return frame::place(below, vector_bytes);
    }
    let switch = flags & u64::from(linux::SA_ONSTACK) != 0 && !on_alternate(alternate, below);
    let top = if switch { alternate.0.checked_add(alternate.1)? } else { below };
    let place = frame::place(top, vector_bytes)?;
    // What the stack has no room for must not go below it.
    let bound = switch || on_alternate(alternate, rsp);
    (!bound || within(alternate, place.frame)).then_some(place)
}

#[inline]
fn enter_handler(
    own: &mut Thread,
    slot: &mut Slot,
    signal: u32,
    action: &Action,
    info: &Info,
    mask: u64,
) -> Result<(), Errno> {
    if action.flags & u64::from(linux::SA_RESTORER) == 0 {
        return Err(Errno::EFAULT);
    }
    let state = thread::vector_state();
    let alternate = own.alternate;
    let place = place(alternate, slot.rsp, action.flags, vector::area_bytes(state));
    let place = place.ok_or(Errno::EFAULT)?;
    vector::save(place.vector, state)?;
    let contents = Contents {
        signal,
        info,
        restorer: action.restorer,
        mask,
        alternate,
        vector: place.vector,
        extended: state.features != 0,
    };
    push(slot, place, &contents)?;
    thread::reset_vector();
    if alternate.2 & linux::SS_AUTODISARM != 0 {
        own.alternate = NO_ALTERNATE;
    }
    slot.rip = action.handler;
    slot.rdi = u64::from(signal);
    slot.rsi = place.info();
    slot.rdx = place.context();
    Ok(())
}

/// Writes a frame, and makes the slot's registers those of a function that begins on it.
fn push(slot: &mut Slot, place: Place, contents: &Contents<'_>) -> Result<(), Errno> {
    user::write_value(place.frame, &frame::build(slot, contents))?;
    slot.rsp = place.frame;
    slot.rax = 0;
    slot.rflags &= !FLAGS_CLEARED;
    Ok(())
}

/// Makes the program run `function` next, on a frame like a handler's; it returns to `restorer`. No
/// signal is blocked meanwhile that was not.
pub fn enter_function(slot: &mut Slot, function: &Function, restorer: u64) -> Result<(), Errno> {
    let (own, state) = (thread::own(), thread::vector_state());
    let place = place(own.alternate, slot.rsp, 0, vector::area_bytes(state));
    let place = place.ok_or(Errno::EFAULT)?;
    vector::save(place.vector, state)?;
    let contents = Contents {
        signal: 0,
        info: &Info::default(),
        restorer,
        mask: own.blocked,
        alternate: own.alternate,
        vector: place.vector,
        extended: state.features != 0,
    };
    push(slot, place, &contents)?;
    thread::reset_vector();
    slot.rip = function.address;
    [slot.rdi, slot.rsi, slot.rdx] = function.words;
    Ok(())
}

/// `rt_sigreturn`: goes back to what a handler interrupted. What rax is then.
#[inline]
pub fn sigreturn(process: &mut Process, slot: &mut Slot) -> u64 {
    let mut place = MaybeUninit::<frame::Context>::uninit();
    let Ok(context) = user::read_into(slot.rsp, &mut place) else {
        process.force(linux::SIGSEGV, BAD_FRAME);
        return 0;
    };
    let own = thread::own();
    own.blocked = context.mask & !UNMASKABLE;
    frame::restore(slot, context);
    if context.vector == 0 {
        thread::reset_vector();
    } else if vector::load(context.vector, thread::vector_state()).is_err() {
        thread::reset_vector();
        process.force(linux::SIGSEGV, BAD_FRAME);
        return 0;
    }
    let alternate = frame::alternate(context);
    if alternate != own.alternate {
        // What is no stack leaves the one that there is.
        let _ = super::calls::set_alternate(alternate, slot.rsp);
    }
    slot.rax
}
