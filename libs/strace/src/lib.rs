//! Linux's calls as strace prints them: names, arguments by kind, results.
//!
//! ```text
//!  begin: openat(AT_FDCWD, "/etc/passwd", O_RDONLY      what is known before the call
//!  end:   ) = 3                                         what the call has filled, its result
//! ```
//! [`table`] has one row for each call; a [`kind::Kind`] says how an argument is shown, and whether
//! before the call or after it. The modules named for what they show hold the decoders. Nothing
//! here knows whose memory it reads: that is behind [`Memory`].
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod errors;
mod files;
pub mod kind;
mod memory;
mod names;
mod processes;
pub mod signals;
mod sockets;
mod state;
pub mod table;
pub mod text;
mod times;
mod waiting;

#[cfg(test)]
mod tests;

use alloc::string::String;
use core::fmt::Write;

use kind::Kind;
use table::{Answer, Row};
use text::Text;

/// The memory of the program whose calls are shown.
pub trait Memory {
    /// Copies from `address`; false if it cannot be read whole.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It answered this.
    Value(u64),
    /// It failed; 512 to 516 are Linux's own: the call may start again (`ERESTARTSYS`, …).
    Failed(u16),
    /// It does not come back.
    Gone,
}

/// A call of a program.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Its number.
    pub number: u64,
    /// rdi, rsi, rdx, r10, r8, r9.
    pub words: [u64; 6],
    /// How it ended, if it has.
    pub outcome: Option<Outcome>,
    /// The program's memory.
    pub memory: &'a dyn Memory,
}

impl Call<'_> {
    /// The answer of one that has not failed, else 0.
    pub(crate) fn value(&self) -> u64 {
        if let Some(Outcome::Value(value)) = self.outcome { value } else { 0 }
    }

    fn row(&self) -> Option<&'static Row> {
        table::row(self.number)
    }

    /// How many arguments are shown before the call.
    fn known_before(&self, row: &Row) -> usize {
        let filled = |kind: &&Kind| kind.settled(self).is_filled();
        row.arguments.iter().position(|kind| filled(&kind)).unwrap_or(row.arguments.len())
    }

    /// Shows arguments `first` to `last`.
    fn arguments(&self, row: &Row, first: usize, last: usize, text: &mut Text) {
        let kinds = row.arguments.iter().map(|kind| kind.settled(self)).enumerate();
        let shown = kinds.take(last).skip(first).filter(|(_, kind)| !matches!(kind, Kind::Nothing));
        for (place, (at, kind)) in shown.enumerate() {
            if place != 0 {
                text.push(", ");
            }
            kind.show(text, self, at);
        }
    }
}

/// What is shown when a call begins: its name, and its arguments up to the first that it fills.
pub fn begin(call: &Call<'_>) -> String {
    let mut text = Text::default();
    let Some(row) = call.row() else {
        let [a, b, c, d, e, f] = call.words;
        let number = call.number;
        // As strace has it for numbers that it does not know.
        let _ = write!(text, "syscall_{number:#x}({a:#x}, {b:#x}, {c:#x}, {d:#x}, {e:#x}, {f:#x}");
        return text.into();
    };
    text.push(row.name);
    text.push("(");
    let known = call.known_before(row);
    call.arguments(row, 0, known, &mut text);
    if known != 0 && known < row.arguments.len() {
        text.push(", ");
    }
    text.into()
}

/// What is shown when it has ended: the other arguments, a tab where strace aligns, the result.
pub fn end(call: &Call<'_>) -> String {
    let mut text = Text::default();
    if let Some(row) = call.row() {
        let known = call.known_before(row);
        call.arguments(row, known, row.arguments.len(), &mut text);
    }
    text.push(")\t= ");
    match call.outcome {
        Some(Outcome::Value(value)) => {
            let answer = call.row().map_or(Answer::Int, |row| row.answer);
            answer.show(&mut text, call, value);
        }
        Some(Outcome::Failed(number)) => errors::show(&mut text, number),
        Some(Outcome::Gone) | None => text.push("?"),
    }
    text.into()
}

/// The name of the call, for a line that says that it goes on.
pub fn name(number: u64) -> &'static str {
    table::row(number).map_or("syscall", |row| row.name)
}
