//! Calls that wait for several things: poll, select, epoll.

use crate::kind::Kind;
use crate::names;
use crate::text::{Record, Text};
use crate::{Call, signals, times};

/// Descriptors that a set of `select` can hold at most.
const DESCRIPTORS_MAX: u64 = 1024;

/// `struct pollfd`s: what is waited for.
pub fn polled(text: &mut Text, call: &Call<'_>, at: usize) {
    let (address, count) = (call.words[at], call.words[at + 1]);
    if call.record::<8>(address).is_none() {
        return text.pointer(address);
    }
    text.list(count, |text, place| {
        call.with_record(text, address + 8 * place, |text, item: &Record<8>| {
            text.put(format_args!("{{fd={}", item.word(0) as i32));
            if item.word(0) as i32 >= 0 {
                text.push(", events=");
                text.flags(u64::from(item.half(4)), names::POLL);
            }
            text.push("}");
        });
    });
}

/// What `poll` answers: how many, and which.
pub fn poll_answer(text: &mut Text, call: &Call<'_>, value: u64) {
    if value == 0 {
        return text.push("0 (Timeout)");
    }
    text.put(format_args!("{value} (["));
    let (address, count) = (call.words[0], call.words[1]);
    let mut first = true;
    for place in 0..count.min(DESCRIPTORS_MAX) {
        let Some(item) = call.record::<8>(address + 8 * place) else { break };
        if item.half(6) == 0 {
            continue;
        }
        text.push(if first { "" } else { ", " });
        first = false;
        text.put(format_args!("{{fd={}, revents=", item.word(0) as i32));
        text.flags(u64::from(item.half(6)), names::POLL);
        text.push("}");
    }
    text.push("])");
}

/// A set of descriptors.
pub fn set(text: &mut Text, call: &Call<'_>, at: usize) {
    let address = call.words[at];
    if address == 0 {
        return text.push("NULL");
    }
    text.push("[");
    members(text, call, address);
    text.push("]");
}

fn members(text: &mut Text, call: &Call<'_>, address: u64) {
    let mut first = true;
    for descriptor in 0..call.words[0].min(DESCRIPTORS_MAX) {
        let word = call.record::<8>(address + descriptor / 64 * 8);
        if word.is_some_and(|word| word.long(0) >> (descriptor % 64) & 1 != 0) {
            text.push(if first { "" } else { " " });
            first = false;
            text.put(format_args!("{descriptor}"));
        }
    }
}

/// What `select` answers: how many, and which in which set.
pub fn select_answer(text: &mut Text, call: &Call<'_>, value: u64) {
    if value == 0 {
        return text.push("0 (Timeout)");
    }
    text.put(format_args!("{value} ("));
    let mut first = true;
    for (address, name) in call.words[1..4].iter().zip(["in", "out", "except"]) {
        let mut inside = Text::default();
        if *address != 0 {
            members(&mut inside, call, *address);
        }
        let inside = alloc::string::String::from(inside);
        if !inside.is_empty() {
            text.put(format_args!("{}{name} [{inside}]", if first { "" } else { ", " }));
            first = false;
        }
    }
    text.push(")");
}

/// The last argument of `pselect6`: a mask and its size.
pub fn mask_and_size(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, pair: &Record<16>| {
        let inner = Call { words: [pair.long(0); 6], ..*call };
        text.push("{sigmask=");
        signals::set(text, &inner, 0);
        text.put(format_args!(", sigsetsize={}}}", pair.long(8)));
    });
}

/// The time-out of `pselect6` and `ppoll`: what it was.
pub const LIMIT: Kind = Kind::In(times::spec);

/// `struct epoll_event`, packed as on x86-64.
pub fn event(text: &mut Text, call: &Call<'_>, at: usize) {
    event_at(text, call, call.words[at]);
}

fn event_at(text: &mut Text, call: &Call<'_>, address: u64) {
    call.with_record(text, address, |text, event: &Record<12>| {
        text.push("{events=");
        text.flags(u64::from(event.word(0)), names::EPOLL);
        let data = u64::from(event.word(4)) | u64::from(event.word(8)) << 32;
        text.put(format_args!(", data={{u32={}, u64={data}}}}}", data as u32));
    });
}

/// The events that a wait has filled.
pub fn events(text: &mut Text, call: &Call<'_>, at: usize) {
    let address = call.words[at];
    text.list(call.value(), |text, place| event_at(text, call, address + 12 * place));
}
