//! Arguments of calls about sockets.

use linux_raw_sys::net;

use crate::kind::Kind;
use crate::names;
use crate::text::{Record, Text};
use crate::{Call, files};

/// A number that an address leads to.
pub fn number(text: &mut Text, call: &Call<'_>, at: usize) {
    number_at(text, call, call.words[at]);
}

fn number_at(text: &mut Text, call: &Call<'_>, address: u64) {
    call.with_record(text, address, |text, number: &Record<4>| {
        text.put(format_args!("[{}]", number.word(0) as i32));
    });
}

/// A socket's type and its flags.
pub fn kind(text: &mut Text, call: &Call<'_>, at: usize) {
    let word = call.words[at] & 0xffff_ffff;
    text.choice(word & 0xf, names::SOCKET);
    for (bit, name) in [(0o2_000_000, "|SOCK_CLOEXEC"), (0o4000, "|SOCK_NONBLOCK")] {
        text.push(if word & bit != 0 { name } else { "" });
    }
}

/// Flags of `accept4`.
pub fn accept_flags(text: &mut Text, call: &Call<'_>, at: usize) {
    text.flags(call.words[at], &[(0o2_000_000, "SOCK_CLOEXEC"), (0o4000, "SOCK_NONBLOCK")]);
}

/// An address whose length is the next argument.
pub fn address(text: &mut Text, call: &Call<'_>, at: usize) {
    address_at(text, call, call.words[at], call.words[at + 1]);
}

/// An address that the call has filled; the next argument leads to its length.
pub fn address_filled(text: &mut Text, call: &Call<'_>, at: usize) {
    match call.record::<4>(call.words[at + 1]) {
        Some(length) => address_at(text, call, call.words[at], length.word(0).into()),
        None => text.pointer(call.words[at]),
    }
}

fn address_at(text: &mut Text, call: &Call<'_>, place: u64, length: u64) {
    let family = call.record::<2>(place).filter(|_| length >= 2).map(|record| record.half(0));
    match (family.map(u32::from), call.record::<16>(place)) {
        (Some(net::AF_INET), Some(address)) if length >= 16 => {
            let port = address.half(2).swap_bytes();
            let [a, b, c, d] = address.word(4).to_le_bytes();
            text.put(format_args!("{{sa_family=AF_INET, sin_port=htons({port}), "));
            text.put(format_args!("sin_addr=inet_addr(\"{a}.{b}.{c}.{d}\")}}"));
        }
        (Some(net::AF_UNIX), _) => {
            text.push("{sa_family=AF_UNIX, sun_path=");
            call.string(text, place + 2, (length as usize).saturating_sub(2).min(108));
            text.push("}");
        }
        (Some(family), _) => {
            text.push("{sa_family=");
            text.choice(family.into(), names::FAMILY);
            text.push(", ...}");
        }
        (None, _) => text.pointer(place),
    }
}

/// The length of an address: what there was room for, and what came.
pub fn length_filled(text: &mut Text, call: &Call<'_>, at: usize) {
    number(text, call, at);
}

/// The name of an option of a level.
pub fn option(text: &mut Text, call: &Call<'_>, at: usize) {
    let names = match call.words[1] as u32 {
        net::SOL_SOCKET => names::SOCKET_OPTION,
        net::SOL_TCP => names::TCP_OPTION,
        _ => &[],
    };
    text.choice(call.words[at] & 0xffff_ffff, names);
}

/// The value that `setsockopt` is given.
pub fn value(text: &mut Text, call: &Call<'_>, at: usize) {
    if call.words[at + 1] == 4 {
        number(text, call, at);
    } else {
        call.bytes(text, call.words[at], call.words[at + 1]);
    }
}

/// The value that `getsockopt` has filled.
pub fn value_filled(text: &mut Text, call: &Call<'_>, at: usize) {
    number(text, call, at);
}

/// `struct msghdr` that is sent.
pub fn message(text: &mut Text, call: &Call<'_>, at: usize) {
    message_of(text, call, at, u64::MAX);
}

/// `struct msghdr` that has been filled.
pub fn message_filled(text: &mut Text, call: &Call<'_>, at: usize) {
    message_of(text, call, at, call.value());
}

fn message_of(text: &mut Text, call: &Call<'_>, at: usize, bytes: u64) {
    call.with_record(text, call.words[at], |text, header: &Record<56>| {
        let (name, length) = (header.long(0), header.word(8));
        text.push("{msg_name=");
        address_at(text, call, name, length.into());
        text.put(format_args!(", msg_namelen={length}, msg_iov="));
        files::pieces(text, call, header.long(16), header.long(24), bytes);
        let (pieces, control) = (header.long(24), header.long(40));
        text.put(format_args!(", msg_iovlen={pieces}, msg_controllen={control}, msg_flags="));
        text.flags(header.word(48).into(), names::MESSAGE);
        text.push("}");
    });
}

/// Flags of a message.
pub const FLAGS: Kind = Kind::Flags(names::MESSAGE);
