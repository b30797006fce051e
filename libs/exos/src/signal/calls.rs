//! `rt_sigaction` and its kin.

use crate::errno::{Answer, Errno, RESTART_UNLESS_HANDLED};
use crate::process::Process;
use crate::signal::deliver::on_alternate;
use crate::signal::frame::Alternate;
use crate::signal::{Action, UNMASKABLE, bit};
use crate::thread::{self, NO_ALTERNATE};
use crate::user;
use crate::wait::{Wait, Woken, sleep_until};
use linux_raw_sys::general as linux;

/// Bytes of the kernel's signal set.
const SET_BYTES: u64 = 8;

/// `rt_sigaction(signal, new, old, set_size)`
pub fn action(process: &mut Process, signal: u64, new: u64, old: u64, size: u64) -> Answer {
    if size != SET_BYTES || signal == 0 || signal > 64 {
        return Err(Errno::EINVAL);
    }
    let signal = signal as u32;
    let before = process.signals.action(signal);
    if new != 0 {
        if bit(signal) & UNMASKABLE != 0 {
            return Err(Errno::EINVAL);
        }
        let [handler, flags, restorer, mask] = user::read_value::<[u64; 4]>(new)?;
        // Children that died until now follow what was wanted until now.
        crate::children::tend(process, true);
        let action = Action { handler, flags, restorer, mask: mask & !UNMASKABLE };
        process.signals.set_action(signal, action);
    }
    if old != 0 {
        let words = [before.handler, before.flags, before.restorer, before.mask];
        user::write_value(old, &words)?;
    }
    Ok(0)
}

/// `rt_sigprocmask(how, new, old, set_size)`
pub fn mask(how: u64, new: u64, old: u64, size: u64) -> Answer {
    if size != SET_BYTES {
        return Err(Errno::EINVAL);
    }
    let before = thread::own().blocked;
    if new != 0 {
        let set: u64 = user::read_value(new)?;
        let blocked = match how as u32 {
            linux::SIG_BLOCK => before | set,
            linux::SIG_UNBLOCK => before & !set,
            linux::SIG_SETMASK => set,
            _ => return Err(Errno::EINVAL),
        };
        thread::own().blocked = blocked & !UNMASKABLE;
        // What waits for the process, and we take no more, others may.
        thread::process().choose(!before);
    }
    if old != 0 {
        user::write_value(old, &before)?;
    }
    Ok(0)
}

/// `rt_sigpending(set, size)`
pub fn pending(process: &mut Process, set: u64, size: u64) -> Answer {
    if size > SET_BYTES {
        return Err(Errno::EINVAL);
    }
    crate::signal::deliver::collect(process);
    let waiting = process.signals.pending.set() | thread::own().directed.set();
    let waiting = waiting & thread::own().blocked;
    user::write_bytes(set, waiting.to_le_bytes().get(..size as usize).unwrap_or(&[]))?;
    Ok(0)
}

/// Blocks `mask` instead until the call has ended; the way out restores.
pub fn with_mask(mask: u64) {
    thread::own().saved_mask = Some(thread::own().blocked);
    thread::own().blocked = mask & !UNMASKABLE;
}

/// `rt_sigsuspend(mask, size)`
pub fn suspend(process: &mut Process, set: u64, size: u64) -> Answer {
    if size != SET_BYTES {
        return Err(Errno::EINVAL);
    }
    let set: u64 = user::read_value(set)?;
    with_mask(set);
    pause(process)
}

/// `pause()`
pub fn pause(process: &mut Process) -> Answer {
    loop {
        match sleep_until(process, &Wait::new(), 0) {
            Ok(Woken::Ready | Woken::TimedOut) => {}
            Err(_) => return Err(RESTART_UNLESS_HANDLED),
        }
    }
}

/// `rt_sigtimedwait(set, info, timeout, size)`
pub fn timed_wait(process: &mut Process, words: [u64; 6]) -> Answer {
    let [set, info, timeout, size, ..] = words;
    if size != SET_BYTES {
        return Err(Errno::EINVAL);
    }
    let set: u64 = user::read_value(set)?;
    let deadline = match timeout {
        0 => 0,
        address => crate::time::deadline_after(user::read_value(address)?)?,
    };
    loop {
        crate::signal::deliver::collect(process);
        let waiting = process.signals.pending.set() | thread::own().directed.set();
        let ready = waiting & set;
        if ready != 0 {
            let signal = ready.trailing_zeros() + 1;
            let found = process.take_signal(signal);
            if info != 0 {
                let mut words = [0_u64; 16];
                words[0] = u64::from(signal);
                words[1] = u64::from(found.code as u32);
                words[2] = found.first;
                words[3] = found.second;
                user::write_value(info, &words)?;
            }
            return Ok(u64::from(signal));
        }
        match sleep_until(process, Wait::new().signals(set), deadline) {
            Ok(Woken::TimedOut) => return Err(Errno::EAGAIN),
            Err(_) if (process.signals.pending.set() | thread::own().directed.set()) & set == 0 => {
                return Err(Errno::EINTR);
            }
            _ => {}
        }
    }
}

/// Makes this the alternate stack of the running thread.
pub fn set_alternate((start, size, flags): Alternate, rsp: u64) -> Result<(), Errno> {
    let own = thread::own();
    if on_alternate(own.alternate, rsp) {
        return Err(Errno::EPERM);
    }
    own.alternate = match flags & !linux::SS_AUTODISARM {
        linux::SS_DISABLE => NO_ALTERNATE,
        0 | linux::SS_ONSTACK if size < u64::from(linux::MINSIGSTKSZ) => return Err(Errno::ENOMEM),
        0 | linux::SS_ONSTACK => (start, size, flags & linux::SS_AUTODISARM),
        _ => return Err(Errno::EINVAL),
    };
    Ok(())
}

/// `sigaltstack(new, old)`, with the stack pointer at the call.
pub fn alternate(new: u64, old: u64, rsp: u64) -> Answer {
    let before = thread::own().alternate;
    let on_it = on_alternate(before, rsp);
    if new != 0 {
        let [start, flags, size] = user::read_value::<[u64; 3]>(new)?;
        set_alternate((start, size, flags as u32), rsp)?;
    }
    if old != 0 {
        let flags = if on_it { linux::SS_ONSTACK } else { before.2 };
        user::write_value(old, &[before.0, u64::from(flags), before.1])?;
    }
    Ok(0)
}
