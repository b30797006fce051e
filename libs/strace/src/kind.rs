//! The kinds of arguments: how each is shown, and when.

use crate::text::{Names, SHOWN, Text};
use crate::{Call, Outcome, files};

/// Shows an argument of a call: the text so far, the call, the argument's place.
pub type Show = fn(&mut Text, &Call<'_>, usize);

/// How an argument is shown.
#[derive(Clone, Copy)]
pub enum Kind {
    /// It is not: the call does not look at it.
    Nothing,
    /// 32 bits with a sign: descriptors, identifiers.
    Int,
    /// 64 bits with a sign: offsets.
    Long,
    /// 64 bits: sizes.
    Size,
    /// 64 bits, hexadecimal.
    Hex,
    /// An address, `NULL` if there is none.
    Pointer,
    /// A file's mode, octal.
    Mode,
    /// A descriptor of a directory, or `AT_FDCWD`.
    Directory,
    /// A path, whole.
    Path,
    /// A string, cut.
    String,
    /// Bytes that the call reads, as many as the next argument says.
    Sent,
    /// Bytes that the call has filled, as many as it answered.
    Received,
    /// The one name of a number.
    Choice(Names),
    /// The names of bits.
    Flags(Names),
    /// Something that is there before the call.
    In(Show),
    /// Something that the call fills: the address alone if it failed.
    Out(Show),
    /// Something that is shown after the call, however that ended.
    Late(Show),
    /// It depends on the other arguments.
    By(fn(&Call<'_>) -> Kind),
}

impl Kind {
    /// The kind it has in this call.
    pub fn settled(self, call: &Call<'_>) -> Self {
        if let Self::By(choose) = self { choose(call) } else { self }
    }

    /// Is it shown only when the call has ended?
    pub fn is_filled(self) -> bool {
        matches!(self, Self::Received | Self::Out(_) | Self::Late(_))
    }

    /// Shows argument `at`.
    pub fn show(self, text: &mut Text, call: &Call<'_>, at: usize) {
        let word = call.words[at];
        match self {
            Self::Nothing | Self::By(_) => {}
            Self::Int => text.put(format_args!("{}", word as i32)),
            Self::Long => text.put(format_args!("{}", word as i64)),
            Self::Size => text.put(format_args!("{word}")),
            Self::Hex => text.put(format_args!("{word:#x}")),
            Self::Pointer => text.pointer(word),
            Self::Mode => files::mode(text, word as u32 & 0o7777),
            Self::Directory if word as i32 == files::HERE => text.push("AT_FDCWD"),
            Self::Directory => text.put(format_args!("{}", word as i32)),
            Self::Path => call.path(text, word),
            Self::String => call.string(text, word, SHOWN),
            Self::Sent => call.bytes(text, word, call.words.get(at + 1).copied().unwrap_or(0)),
            Self::Received if has_failed(call) => text.pointer(word),
            Self::Received => call.bytes(text, word, call.value()),
            Self::Choice(names) => text.choice(word & 0xffff_ffff, names),
            Self::Flags(names) => text.flags(word & 0xffff_ffff, names),
            Self::In(show) => show(text, call, at),
            Self::Out(_) if has_failed(call) => text.pointer(word),
            Self::Out(show) | Self::Late(show) => show(text, call, at),
        }
    }
}

fn has_failed(call: &Call<'_>) -> bool {
    !matches!(call.outcome, Some(Outcome::Value(_)))
}
