//! What the machine and the system say of themselves.

use crate::Call;
use crate::text::{Record, Text};

/// Bytes of each string of `struct utsname`.
const NAME: usize = 65;

/// `struct utsname`.
pub fn names(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, names: &Record<{ 6 * NAME }>| {
        text.push("{sysname=");
        text.quoted(names.string(0, NAME));
        text.push(", nodename=");
        text.quoted(names.string(NAME, NAME));
        text.push(", ...}");
    });
}

/// `struct sysinfo`.
pub fn information(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, system: &Record<112>| {
        let [uptime, total, free] = [0, 32, 40].map(|offset| system.long(offset));
        text.put(format_args!("{{uptime={uptime}, totalram={total}, freeram={free}, "));
        text.put(format_args!("procs={}, ...}}", system.half(80)));
    });
}

/// Random bytes that the call has filled.
pub fn random(text: &mut Text, call: &Call<'_>, at: usize) {
    let mut bytes = [0; crate::text::SHOWN + 1];
    let count = call.value().min(bytes.len() as u64) as usize;
    let part = &mut bytes[..count];
    if call.memory.read(call.words[at], part) {
        text.quoted_numbers(part);
    } else {
        text.pointer(call.words[at]);
    }
}
