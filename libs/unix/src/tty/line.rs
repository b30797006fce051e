//! The line discipline: bytes typed become lines, echo and signals, as Linux's N_TTY makes them.
//!
//! One value for a terminal. Each byte typed goes through [`Line::receive`], which appends to an
//! [`Effects`]: cells for the input ring, bytes for the screen, signals for the foreground group.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use linux_raw_sys::general as raw;

use super::cells::{END, EOF};
use super::output::{Column, is_continuation, is_control};
use super::termios::Termios;

/// Characters of one line being edited, at most (N_TTY_BUF_SIZE less the terminator).
pub const LINE_MAX: usize = 4095;
/// Bytes of echo in an [`Effects`] at most; more is not shown. Linux keeps 4,096 (n_tty.c).
pub const ECHO_MAX: usize = 16_384;
/// Bytes that the screen gets for one character at most: a tab's spaces.
const WIDEST: usize = 8;
/// Bytes of an empty line's memory that are kept.
const SHORT: usize = 256;
/// Signals that one byte sends, at most.
const SIGNALS: usize = 1;

/// What the bytes typed bring about, in this order: flush, cells, screen, signals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Throw away the cells that nobody has read yet (those before `cells`).
    pub flush_input: bool,
    /// Throw away output that has not been shown yet.
    pub flush_output: bool,
    /// For the input ring.
    pub cells: Vec<u16>,
    /// For the screen.
    pub screen: Vec<u8>,
    /// Linux signal numbers for the foreground process group.
    pub signals: Vec<u8>,
    /// Characters of the line that were looked at for them.
    pub looked_at: usize,
}

impl Effects {
    /// None, with the memory for as many as come of bytes that are received until
    /// [`is_full`](Self::is_full), and of one change of the settings.
    pub fn with_room() -> Result<Self, TryReserveError> {
        let mut effects = Self::default();
        effects.cells.try_reserve_exact(3 * LINE_MAX + 2)?;
        effects.screen.try_reserve_exact(ECHO_MAX)?;
        effects.signals.try_reserve_exact(SIGNALS)?;
        Ok(effects)
    }

    /// Is there room for one character more on the screen? What there is none for is not shown.
    fn shows_more(&self) -> bool {
        self.screen.len() + WIDEST <= ECHO_MAX
    }

    /// Is it to be applied before another byte is received?
    pub fn is_full(&self) -> bool {
        let most = self.cells.len().max(self.screen.len()).max(self.looked_at);
        most > LINE_MAX || !self.signals.is_empty()
    }

    /// None, with the memory that it has.
    pub fn clear(&mut self) {
        (self.flush_input, self.flush_output) = (false, false);
        self.cells.clear();
        self.screen.clear();
        self.signals.clear();
        self.looked_at = 0;
    }
}

/// The state of a terminal's line discipline.
#[derive(Clone, Debug, Default)]
pub struct Line {
    termios: Termios,
    edit: Vec<u8>,
    column: Column,
    literal: bool,
    erasing: bool,
    stopped: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Erase {
    Character,
    Word,
    All,
}

impl Line {
    /// A line discipline with these settings.
    pub fn new(termios: Termios) -> Self {
        Self { termios, ..Self::default() }
    }

    /// The settings in force.
    pub fn termios(&self) -> &Termios {
        &self.termios
    }

    /// Has output been stopped by the stop character?
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Asks for the memory that the next byte may need.
    pub fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.edit.try_reserve(1)
    }

    /// Gives back memory that an empty line does not need.
    pub fn trim(&mut self) {
        if self.edit.is_empty() && self.edit.capacity() > SHORT {
            self.edit = Vec::new();
        }
    }

    /// Cells, and bytes for the screen, that the next byte or a change of the settings brings about
    /// at most.
    pub fn most(&self) -> (usize, usize) {
        let characters = self.edit.len() + 3;
        (characters, (WIDEST * characters).min(ECHO_MAX))
    }

    /// Changes the settings. A line that was being edited becomes readable when lines are no longer
    /// edited; output goes on when flow control is switched off.
    pub fn set(&mut self, termios: Termios, effects: &mut Effects) {
        let was_canonical = self.termios.canonical();
        self.termios = termios;
        if was_canonical && !termios.canonical() {
            effects.cells.extend(self.edit.drain(..).map(u16::from));
            self.literal = false;
            self.erasing = false;
        }
        if !termios.input(raw::IXON) {
            self.stopped = false;
        }
    }

    /// Forgets what was typed and not yet handed over (`TCIFLUSH`).
    pub fn flush(&mut self) {
        self.edit.clear();
        self.literal = false;
        self.erasing = false;
    }

    /// Output from a program, processed.
    pub fn output(&mut self, bytes: &[u8], screen: &mut Vec<u8>) {
        for &byte in bytes {
            self.column.put(&self.termios, byte, screen);
        }
    }

    /// One byte was typed.
    pub fn receive(&mut self, byte: u8, effects: &mut Effects) {
        let mut byte = byte;
        if self.termios.input(raw::ISTRIP) {
            byte &= 0x7f;
        }
        if self.termios.input(raw::IUCLC) && self.extended() {
            byte = byte.to_ascii_lowercase();
        }
        if self.literal {
            self.literal = false;
            self.plain(byte, effects);
            return;
        }
        if self.flow(byte) || self.signal(byte, effects) {
            return;
        }
        match byte {
            b'\r' if self.termios.input(raw::IGNCR) => return,
            b'\r' if self.termios.input(raw::ICRNL) => byte = b'\n',
            b'\n' if self.termios.input(raw::INLCR) => byte = b'\r',
            _ => {}
        }
        if self.termios.canonical() && self.edits(byte, effects) {
            return;
        }
        self.plain(byte, effects);
    }

    fn extended(&self) -> bool {
        self.termios.local(raw::IEXTEN)
    }

    fn echo(&self) -> bool {
        self.termios.local(raw::ECHO)
    }

    /// Flow control; any other byte starts stopped output again if `IXANY` says so.
    fn flow(&mut self, byte: u8) -> bool {
        if !self.termios.input(raw::IXON) {
            return false;
        }
        if self.termios.is(raw::VSTART, byte) {
            self.stopped = false;
            return true;
        }
        if self.termios.is(raw::VSTOP, byte) {
            self.stopped = true;
            return true;
        }
        if self.stopped && self.termios.input(raw::IXANY) {
            self.stopped = false;
        }
        false
    }

    fn signal(&mut self, byte: u8, effects: &mut Effects) -> bool {
        if !self.termios.local(raw::ISIG) {
            return false;
        }
        let number = if self.termios.is(raw::VINTR, byte) {
            raw::SIGINT
        } else if self.termios.is(raw::VQUIT, byte) {
            raw::SIGQUIT
        } else if self.termios.is(raw::VSUSP, byte) {
            raw::SIGTSTP
        } else {
            return false;
        };
        if !self.termios.local(raw::NOFLSH) {
            self.flush();
            effects.cells.clear();
            effects.screen.clear();
            effects.flush_input = true;
            effects.flush_output = true;
        }
        if self.termios.input(raw::IXON) {
            self.stopped = false;
        }
        effects.signals.push(number as u8);
        if self.echo() {
            self.show(byte, effects);
        }
        true
    }

    /// Canonical mode: characters that edit or end the line.
    fn edits(&mut self, byte: u8, effects: &mut Effects) -> bool {
        let termios = self.termios;
        if termios.is(raw::VERASE, byte) {
            self.erase(Erase::Character, byte, effects);
        } else if termios.is(raw::VKILL, byte) {
            self.erase(Erase::All, byte, effects);
        } else if termios.is(raw::VWERASE, byte) && self.extended() {
            self.erase(Erase::Word, byte, effects);
        } else if termios.is(raw::VLNEXT, byte) && self.extended() {
            self.literal = true;
            if self.echo() {
                self.finish_erasing(effects);
                if termios.local(raw::ECHOCTL) {
                    self.show_raw(b'^', effects);
                    self.show_raw(8, effects);
                }
            }
        } else if termios.is(raw::VREPRINT, byte) && self.echo() && self.extended() {
            self.finish_erasing(effects);
            self.show(byte, effects);
            self.show_raw(b'\n', effects);
            effects.looked_at += self.edit.len();
            for at in 0..self.edit.len() {
                self.show(self.edit[at], effects);
            }
        } else if byte == b'\n' {
            if self.echo() || termios.local(raw::ECHONL) {
                self.show_raw(b'\n', effects);
            }
            self.end_line(u16::from(byte) | END, effects);
        } else if termios.is(raw::VEOF, byte) {
            self.end_line(EOF, effects);
        } else if termios.is(raw::VEOL, byte) || (termios.is(raw::VEOL2, byte) && self.extended()) {
            if self.echo() {
                self.begin_line();
                self.show(byte, effects);
            }
            self.end_line(u16::from(byte) | END, effects);
        } else {
            return false;
        }
        true
    }

    fn end_line(&mut self, last: u16, effects: &mut Effects) {
        self.erasing = false;
        effects.cells.extend(self.edit.drain(..).map(u16::from));
        effects.cells.push(last);
    }

    fn begin_line(&mut self) {
        if self.edit.is_empty() {
            self.column.edit = self.column.at;
        }
    }

    fn plain(&mut self, byte: u8, effects: &mut Effects) {
        if self.echo() {
            self.finish_erasing(effects);
            if byte == b'\n' {
                self.show_raw(b'\n', effects);
            } else {
                self.begin_line();
                self.show(byte, effects);
            }
        }
        if !self.termios.canonical() {
            effects.cells.push(u16::from(byte));
            return;
        }
        if self.edit.len() == LINE_MAX {
            self.edit.pop();
        }
        self.edit.push(byte);
    }

    /// Echo, with control characters shown as `^X` where `ECHOCTL` says so.
    fn show(&mut self, byte: u8, effects: &mut Effects) {
        if !effects.shows_more() {
            return;
        }
        if self.termios.local(raw::ECHOCTL) && is_control(byte) && byte != b'\t' {
            effects.screen.extend([b'^', byte ^ 0o100]);
            self.column.at = self.column.at.saturating_add(2);
        } else {
            self.show_raw(byte, effects);
        }
    }

    fn show_raw(&mut self, byte: u8, effects: &mut Effects) {
        if effects.shows_more() {
            self.column.put(&self.termios, byte, &mut effects.screen);
        }
    }

    fn finish_erasing(&mut self, effects: &mut Effects) {
        if self.erasing {
            self.erasing = false;
            self.show_raw(b'/', effects);
        }
    }

    fn erase(&mut self, kind: Erase, byte: u8, effects: &mut Effects) {
        if self.edit.is_empty() {
            return;
        }
        if kind == Erase::All && !self.echo() {
            self.edit.clear();
            return;
        }
        let local = |flag| self.termios.local(flag);
        if kind == Erase::All && !(local(raw::ECHOK) && local(raw::ECHOKE) && local(raw::ECHOE)) {
            let newline = local(raw::ECHOK);
            self.edit.clear();
            self.finish_erasing(effects);
            self.show(byte, effects);
            if newline {
                self.show_raw(b'\n', effects);
            }
            return;
        }
        let mut in_word = false;
        while !self.edit.is_empty() {
            // A character may have several bytes; one without its first byte stays.
            let mut start = self.edit.len() - 1;
            while start > 0 && is_continuation(&self.termios, self.edit[start]) {
                start -= 1;
            }
            effects.looked_at += self.edit.len() - start;
            let first = self.edit[start];
            if is_continuation(&self.termios, first) {
                break;
            }
            if kind == Erase::Word {
                if first.is_ascii_alphanumeric() || first == b'_' {
                    in_word = true;
                } else if in_word {
                    break;
                }
            }
            if self.echo() {
                self.unshow(kind, byte, start, effects);
            }
            self.edit.truncate(start);
            if kind == Erase::Character {
                break;
            }
        }
        if self.edit.is_empty() && self.echo() {
            self.finish_erasing(effects);
        }
    }

    /// Takes the last character, which begins at `start`, off the screen.
    fn unshow(&mut self, kind: Erase, typed: u8, start: usize, effects: &mut Effects) {
        let first = self.edit[start];
        if self.termios.local(raw::ECHOPRT) {
            if !self.erasing {
                self.show_raw(b'\\', effects);
                self.erasing = true;
            }
            self.show(first, effects);
            for at in start + 1..self.edit.len() {
                self.show_raw(self.edit[at], effects);
            }
        } else if kind == Erase::Character && !self.termios.local(raw::ECHOE) {
            self.show(typed, effects);
        } else if first == b'\t' {
            effects.looked_at += start;
            for _ in 0..self.tab_width(start) {
                self.step_back(&[8], effects);
            }
        } else {
            let control = is_control(first);
            let shown_as_two = control && self.termios.local(raw::ECHOCTL);
            let times = if shown_as_two { 2 } else { u32::from(!control) };
            for _ in 0..times {
                self.step_back(&[8, b' ', 8], effects);
            }
        }
    }

    fn step_back(&mut self, bytes: &[u8], effects: &mut Effects) {
        if effects.shows_more() {
            effects.screen.extend_from_slice(bytes);
            self.column.at = self.column.at.saturating_sub(1);
        }
    }

    /// Columns that a tab fills which follows the first `before` bytes of the line.
    fn tab_width(&self, before: usize) -> u32 {
        let mut columns = 0_u32;
        let mut after_tab = false;
        for &byte in self.edit[..before].iter().rev() {
            if byte == b'\t' {
                after_tab = true;
                break;
            }
            if is_control(byte) {
                if self.termios.local(raw::ECHOCTL) {
                    columns += 2;
                }
            } else if !is_continuation(&self.termios, byte) {
                columns += 1;
            }
        }
        if !after_tab {
            columns = columns.wrapping_add(self.column.edit);
        }
        8 - (columns & 7)
    }
}
