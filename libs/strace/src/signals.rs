//! Signals: names, sets, what was set for one, what came with one.

use core::fmt::Write;

use crate::names;
use crate::text::{Record, Text};
use crate::{Call, Outcome};

/// Names without their `SIG`, from 1 on.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// The first real-time signal, as the kernel counts them.
const REAL_TIME: u64 = 32;
/// Bytes of a set of signals.
const SET_BYTES: u64 = 8;

/// A signal's name without `SIG`.
fn short(text: &mut Text, signal: u64) {
    match NAMES.get((signal as usize).wrapping_sub(1)) {
        Some(name) => text.push(name),
        None if signal == REAL_TIME => text.push("RTMIN"),
        None => text.put(format_args!("RT_{}", signal.wrapping_sub(REAL_TIME))),
    }
}

/// A signal's name.
pub fn name(text: &mut Text, signal: u64) {
    if (1..=64).contains(&signal) {
        text.push("SIG");
        short(text, signal);
    } else {
        text.put(format_args!("{signal}"));
    }
}

/// A signal as an argument.
pub fn signal(text: &mut Text, call: &Call<'_>, at: usize) {
    name(text, call.words[at] & 0xffff_ffff);
}

/// A set of signals; of one that is nearly full, those that are not in it.
pub fn set_of(text: &mut Text, set: u64) {
    let mostly = set.count_ones() >= 42;
    text.push(if mostly { "~[" } else { "[" });
    let shown = if mostly { !set } else { set };
    let mut first = true;
    for signal in (1..=64).filter(|signal| shown >> (signal - 1) & 1 != 0) {
        text.push(if first { "" } else { " " });
        short(text, signal);
        first = false;
    }
    text.push("]");
}

/// A set at an address.
pub fn set(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, set: &Record<{ SET_BYTES as usize }>| {
        set_of(text, set.long(0));
    });
}

/// `struct sigaction` as the kernel has it: handler, flags, restorer, mask.
pub fn action(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, action: &Record<32>| {
        let (handler, flags, restorer) = (action.long(0), action.long(8), action.long(16));
        text.push(if flags & 4 != 0 { "{sa_sigaction=" } else { "{sa_handler=" });
        match handler {
            0 => text.push("SIG_DFL"),
            1 => text.push("SIG_IGN"),
            address => text.pointer(address),
        }
        text.push(", sa_mask=");
        set_of(text, action.long(24));
        text.push(", sa_flags=");
        text.flags(flags, names::SIGACTION);
        if flags & 0x0400_0000 != 0 {
            text.put(format_args!(", sa_restorer={restorer:#x}"));
        }
        text.push("}");
    });
}

/// `stack_t`.
pub fn stack(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, stack: &Record<24>| {
        text.push("{ss_sp=");
        text.pointer(stack.long(0));
        text.push(", ss_flags=");
        text.flags(u64::from(stack.word(8)), names::ALTERNATE);
        text.put(format_args!(", ss_size={}}}", stack.long(16)));
    });
}

/// The mask that `rt_sigreturn` restores: in the frame's `ucontext`, behind the return address.
pub fn returned(text: &mut Text, call: &Call<'_>, _at: usize) {
    text.push("{mask=");
    // rsp stands in the first word; `uc_sigmask` is behind flags, link, stack and the registers.
    call.with_record(text, call.words[0] + 296, |text, set: &Record<8>| set_of(text, set.long(0)));
    text.push("}");
}

/// `siginfo_t` of the program's.
pub fn information(text: &mut Text, call: &Call<'_>, at: usize) {
    if matches!(call.outcome, Some(Outcome::Failed(_))) {
        return text.pointer(call.words[at]);
    }
    call.with_record(text, call.words[at], |text, record: &Record<40>| {
        let info = Information {
            signal: u64::from(record.word(0)),
            code: record.word(8) as i32,
            first: record.long(16),
            second: record.long(24),
        };
        info.show(text);
    });
}

/// What comes with a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Information {
    /// `si_signo`
    pub signal: u64,
    /// `si_code`
    pub code: i32,
    /// Sender and user, or the address.
    pub first: u64,
    /// Status or value.
    pub second: u64,
}

impl Information {
    /// Shows it as strace does.
    pub fn show(&self, text: &mut Text) {
        text.push("{si_signo=");
        name(text, self.signal);
        text.push(", si_code=");
        self.show_code(text);
        let (sender, user) = (self.first as u32, self.first >> 32);
        if self.code == 0x80 {
            // Of the kernel's own there is nothing more to say, but for faults an address.
            if matches!(self.signal, 4 | 5 | 7 | 8 | 11) {
                text.push(", si_addr=");
                text.pointer(self.first);
            }
        } else if self.code > 0 && matches!(self.signal, 4 | 5 | 7 | 8 | 11) {
            text.push(", si_addr=");
            text.pointer(self.first);
        } else if self.code > 0 && self.signal == 17 {
            text.put(format_args!(", si_pid={sender}, si_uid={user}, si_status="));
            if matches!(self.code, 1) {
                text.put(format_args!("{}", self.second as u8));
            } else {
                name(text, self.second & 0xff);
            }
            text.push(", si_utime=0, si_stime=0");
        } else {
            text.put(format_args!(", si_pid={sender}, si_uid={user}"));
            if self.code == -1 {
                let (number, pointer) = (self.second as i32, self.second);
                text.put(format_args!(", si_value={{sival_int={number}, sival_ptr="));
                text.pointer(pointer);
                text.push("}");
            }
        }
        text.push("}");
    }

    fn show_code(&self, text: &mut Text) {
        let general = match self.code {
            0 => "SI_USER",
            0x80 => "SI_KERNEL",
            -1 => "SI_QUEUE",
            -2 => "SI_TIMER",
            -6 => "SI_TKILL",
            _ => "",
        };
        let names: &[&str] = match self.signal {
            17 => &[
                "CLD_EXITED",
                "CLD_KILLED",
                "CLD_DUMPED",
                "CLD_TRAPPED",
                "CLD_STOPPED",
                "CLD_CONTINUED",
            ],
            11 => &["SEGV_MAPERR", "SEGV_ACCERR"],
            7 => &["BUS_ADRALN", "BUS_ADRERR", "BUS_OBJERR"],
            8 => &[
                "FPE_INTDIV",
                "FPE_INTOVF",
                "FPE_FLTDIV",
                "FPE_FLTOVF",
                "FPE_FLTUND",
                "FPE_FLTRES",
                "FPE_FLTINV",
                "FPE_FLTSUB",
            ],
            4 => &["ILL_ILLOPC", "ILL_ILLOPN", "ILL_ILLADR", "ILL_ILLTRP"],
            5 => &["TRAP_BRKPT", "TRAP_TRACE"],
            _ => &[],
        };
        let special = names.get((self.code as usize).wrapping_sub(1)).filter(|_| self.code > 0);
        match special {
            Some(name) => text.push(name),
            None if general.is_empty() => text.put(format_args!("{}", self.code)),
            None => text.push(general),
        }
    }
}

/// The line of a signal that is about to be taken.
pub fn taken(information: &Information) -> alloc::string::String {
    let mut text = Text::default();
    text.push("--- ");
    name(&mut text, information.signal);
    text.push(" ");
    information.show(&mut text);
    text.push(" ---");
    text.into()
}

/// The last line of a thread that ended with this wait status.
pub fn ended(status: u64) -> alloc::string::String {
    let mut text = Text::default();
    match status & 0x7f {
        0 => text.put(format_args!("+++ exited with {} +++", status >> 8 & 0xff)),
        signal => {
            text.push("+++ killed by ");
            name(&mut text, signal);
            // Nowhere is a core dumped.
            let _ = text.write_str(" +++");
        }
    }
    text.into()
}
