//! Arguments of calls that make, name and await processes.

use linux_raw_sys::general as linux;

use crate::kind::Kind;
use crate::names;
use crate::text::{Record, SHOWN, Text};
use crate::{Call, signals, times};

/// The list of a new program's arguments.
pub fn arguments(text: &mut Text, call: &Call<'_>, at: usize) {
    let list = call.words[at];
    let count = length(call, list);
    if list == 0 {
        return text.push("NULL");
    }
    text.list(count, |text, place| {
        let argument = call.record::<8>(list + 8 * place).map_or(0, |word| word.long(0));
        call.string(text, argument, SHOWN);
    });
}

/// The list of its variables: how many.
pub fn variables(text: &mut Text, call: &Call<'_>, at: usize) {
    text.pointer(call.words[at]);
    if call.words[at] != 0 {
        put_count(text, length(call, call.words[at]));
    }
}

/// Says how many variables there are.
pub fn put_count(text: &mut Text, count: u64) {
    text.put(format_args!(" /* {count} var{} */", if count == 1 { "" } else { "s" }));
}

/// Elements of a list that ends with 0.
fn length(call: &Call<'_>, list: u64) -> u64 {
    const MOST: u64 = 4096;
    let ends =
        |place: &u64| call.record::<8>(list + 8 * place).is_none_or(|word| word.long(0) == 0);
    (0..MOST).find(ends).unwrap_or(MOST)
}

/// All arguments of `clone`, which strace names.
pub fn clone(text: &mut Text, call: &Call<'_>, _at: usize) {
    let [flags, stack, parent_tid, child_tid, tls, _] = call.words;
    text.push("child_stack=");
    text.pointer(stack);
    text.push(", flags=");
    clone_flags(text, flags & 0xffff_ffff);
    if flags & u64::from(linux::CLONE_PARENT_SETTID | linux::CLONE_PIDFD) != 0 {
        text.push(", parent_tid=");
        text.pointer(parent_tid);
    }
    if flags & u64::from(linux::CLONE_SETTLS) != 0 {
        text.put(format_args!(", tls={tls:#x}"));
    }
    if flags & u64::from(linux::CLONE_CHILD_SETTID | linux::CLONE_CHILD_CLEARTID) != 0 {
        text.push(", child_tidptr=");
        text.pointer(child_tid);
    }
}

/// Flags of `clone`, and the signal of the child's end.
fn clone_flags(text: &mut Text, flags: u64) {
    let (bits, signal) = (flags & !0xff, flags & 0xff);
    if bits != 0 {
        text.flags(bits, names::CLONE);
        text.push(if signal == 0 { "" } else { "|" });
    }
    if signal != 0 {
        signals::name(text, signal);
    } else if bits == 0 {
        text.push("0");
    }
}

/// `struct clone_args`.
pub fn clone_record(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, record: &Record<64>| {
        text.push("{flags=");
        text.flags(record.long(0), names::CLONE);
        for (offset, name) in [(16, "child_tid"), (24, "parent_tid")] {
            if record.long(offset) != 0 {
                text.put(format_args!(", {name}={:#x}", record.long(offset)));
            }
        }
        text.push(", exit_signal=");
        signals::name(text, record.long(32));
        text.push(", stack=");
        text.pointer(record.long(40));
        text.put(format_args!(", stack_size={:#x}", record.long(48)));
        if record.long(0) & u64::from(linux::CLONE_SETTLS) != 0 {
            text.put(format_args!(", tls={:#x}", record.long(56)));
        }
        text.push("}");
    });
}

/// The status that a wait has filled; nothing is filled if nobody was found.
pub fn status(text: &mut Text, call: &Call<'_>, at: usize) {
    if call.value() == 0 {
        return text.pointer(call.words[at]);
    }
    call.with_record(text, call.words[at], |text, status: &Record<4>| {
        let status = status.word(0);
        let signal = u64::from(status & 0x7f);
        text.push("[{");
        if status == 0xffff {
            text.push("WIFCONTINUED(s)");
        } else if signal == 0x7f {
            text.push("WIFSTOPPED(s) && WSTOPSIG(s) == ");
            signals::name(text, u64::from(status >> 8 & 0xff));
        } else if signal != 0 {
            text.push("WIFSIGNALED(s) && WTERMSIG(s) == ");
            signals::name(text, signal);
            text.push(if status & 0x80 != 0 { " && WCOREDUMP(s)" } else { "" });
        } else {
            let code = status >> 8 & 0xff;
            text.put(format_args!("WIFEXITED(s) && WEXITSTATUS(s) == {code}"));
        }
        text.push("}]");
    });
}

/// `struct rusage`: the times.
pub fn usage(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, usage: &Record<32>| {
        text.push("{ru_utime=");
        times::pair(text, usage, 0, "tv_usec");
        text.push(", ru_stime=");
        times::pair(text, usage, 16, "tv_usec");
        text.push(", ...}");
    });
}

/// `struct rlimit` of `getrlimit`.
pub fn limits(text: &mut Text, call: &Call<'_>, at: usize) {
    limits_with(text, call, at, "RLIM_INFINITY");
}

/// `struct rlimit64` of `prlimit64`.
pub fn limits_64(text: &mut Text, call: &Call<'_>, at: usize) {
    limits_with(text, call, at, "RLIM64_INFINITY");
}

fn limits_with(text: &mut Text, call: &Call<'_>, at: usize, infinity: &str) {
    call.with_record(text, call.words[at], |text, limits: &Record<16>| {
        for (offset, name) in [(0, "{rlim_cur="), (8, ", rlim_max=")] {
            text.push(name);
            match limits.long(offset) {
                u64::MAX => text.push(infinity),
                limit if limit > 1024 && limit % 1024 == 0 => {
                    text.put(format_args!("{}*1024", limit / 1024));
                }
                limit => text.put(format_args!("{limit}")),
            }
        }
        text.push("}");
    });
}

/// An identifier that the call has filled.
pub fn id(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, id: &Record<4>| {
        text.put(format_args!("[{}]", id.word(0) as i32));
    });
}

/// A list of groups, whose length is in the argument before.
pub fn groups(text: &mut Text, call: &Call<'_>, at: usize) {
    groups_of(text, call, at, call.words[at - 1]);
}

/// A list of groups that the call has filled.
pub fn groups_filled(text: &mut Text, call: &Call<'_>, at: usize) {
    groups_of(text, call, at, call.value());
}

fn groups_of(text: &mut Text, call: &Call<'_>, at: usize, count: u64) {
    let address = call.words[at];
    if address == 0 {
        return text.push("NULL");
    }
    text.list(count, |text, place| {
        call.with_record(text, address + 4 * place, |text, id: &Record<4>| {
            text.put(format_args!("{}", id.word(0)));
        });
    });
}

/// The processors of a mask that the call is given.
pub fn processors(text: &mut Text, call: &Call<'_>, at: usize) {
    processors_of(text, call, at, call.words[1]);
}

/// The processors of a mask that the call has filled: as many bytes as it answers.
pub fn processors_filled(text: &mut Text, call: &Call<'_>, at: usize) {
    processors_of(text, call, at, call.value());
}

fn processors_of(text: &mut Text, call: &Call<'_>, at: usize, bytes: u64) {
    let address = call.words[at];
    text.push("[");
    let mut first = true;
    for processor in 0..(bytes * 8).min(1024) {
        let byte = call.record::<1>(address + processor / 8);
        if byte.is_some_and(|byte| byte.word(0) >> (processor % 8) & 1 != 0) {
            text.put(format_args!("{}{processor}", if first { "" } else { " " }));
            first = false;
        }
    }
    text.push("]");
}

/// Where the head of a list of robust futexes is told, and its size.
pub fn pointer_filled(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, pointer: &Record<8>| {
        text.push("[");
        text.pointer(pointer.long(0));
        text.push("]");
    });
}

/// The second argument of `prctl`.
pub fn control(call: &Call<'_>) -> Kind {
    use linux_raw_sys::prctl;
    match call.words[0] as u32 {
        prctl::PR_SET_NAME => Kind::In(thread_name),
        prctl::PR_GET_NAME => Kind::Out(thread_name),
        prctl::PR_SET_PDEATHSIG => Kind::In(signals::signal),
        prctl::PR_GET_DUMPABLE | prctl::PR_GET_KEEPCAPS | prctl::PR_GET_TIMERSLACK => Kind::Nothing,
        prctl::PR_SET_DUMPABLE | prctl::PR_SET_KEEPCAPS | prctl::PR_SET_CHILD_SUBREAPER => {
            Kind::Size
        }
        _ => Kind::Hex,
    }
}

/// The name of a thread: 16 bytes at most.
fn thread_name(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, name: &Record<16>| {
        text.quoted(name.string(0, 15));
    });
}

/// The further arguments of `prctl`, where it looks at them.
pub fn control_rest(call: &Call<'_>) -> Kind {
    use linux_raw_sys::prctl;
    match call.words[0] as u32 {
        prctl::PR_SET_NO_NEW_PRIVS | prctl::PR_GET_NO_NEW_PRIVS | prctl::PR_SET_VMA => Kind::Hex,
        _ => Kind::Nothing,
    }
}

/// The address of `arch_prctl`: filled by the orders that ask.
pub fn base(call: &Call<'_>) -> Kind {
    match call.words[0] {
        0x1003 | 0x1004 => Kind::Out(pointer_filled),
        _ => Kind::Hex,
    }
}
