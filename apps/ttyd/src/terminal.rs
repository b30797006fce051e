//! A terminal: typed bytes to line discipline to input ring; output ring to screen.

use abi::error::Error;
use abi::id::{EnvId, RegionId};
use abi::predicate::{Atom, Operator, Source};
use abi::published::COMMAND_LINE;
use abi::region::WordAt;
use alloc::vec::Vec;
use unix::process_page::Mark;
use unix::ring::{HEAD, Span, TAIL};
use unix::tty::cells::{self, EOF};
use unix::tty::line::{Effects, LINE_MAX, Line};
use unix::tty::shared::{
    CONTROL_BYTES, CONTROL_ROLE, Control, Entry, INPUT, INPUT_CELLS, INPUT_DATA, INPUT_SERVER,
    OUTPUT, OUTPUT_LOOKER, OUTPUT_PROGRAM, OUTPUT_SERVER, SEQUENCE,
};
use xok::call::Refused;
use xok::published;
use xok::services::{self, Service};

use crate::console;
use crate::foreground::Signals;
use crate::hung_up;
use crate::leader::Leader;
use crate::master::{self, Master, Typed};
use crate::region::Region;
use crate::scratch::{CHUNK, Scratch};

/// Elements of an empty buffer's memory that are kept.
const KEPT: usize = 256;
/// How often a change is tried again that a program's own change came before.
const TRIES: usize = 64;
/// Stands before `END_OF_INPUT`, and before itself to be itself, in a framed standard input.
const ESCAPE: u8 = 0x10;
/// Behind `ESCAPE`: the input has ended.
const END_OF_INPUT: u8 = 0x04;

/// How the bytes of the console are to be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    Terminal,
    Framed { escaped: bool },
    Ended,
}

/// Makes a change under compare, again if a program's own came before; a program that changes the
/// word all the time has it as it likes.
fn again(mut change: impl FnMut() -> Result<(), Refused>) -> Result<(), Refused> {
    for _ in 0..TRIES {
        match change() {
            Err((Error::Changed, _)) => {}
            other => return other,
        }
    }
    Ok(())
}

/// What programs have set.
fn settings(control: Region) -> Result<Control, Refused> {
    let mut bytes = [0; CONTROL_BYTES];
    control.read(0, &mut bytes)?;
    Ok(Control::from_bytes(&bytes))
}

/// Changes settings that are still as they were seen.
fn change(control: Region, old: &Control, mut new: Control) -> Result<(), Refused> {
    new.sequence = old.sequence.wrapping_add(1);
    let compare = [WordAt { offset: SEQUENCE, value: old.version() }];
    control.write(0, &new.to_bytes(), &compare, &[])
}

/// Says in a terminal's settings that it was hung up, and tells the leader of its session; its
/// foreground is told when the leader has ended, or now if that one says so, and has not in what
/// was `seen` of the settings.
fn hang_up(
    control: Region,
    mark: Mark,
    (seen, leader): (&Control, &mut Leader),
    scratch: &mut Scratch,
) {
    let mut last = *seen;
    // Settings that cannot be changed are no program's any more.
    let _ = again(|| {
        last = settings(control)?;
        change(control, &last, Control { hung_up: true, ..last })
    });
    let [have, untold] = leader.end(mark, seen, &last);
    untold.into_iter().for_each(|group| scratch.lose(mark, group, false));
    for has in have {
        hung_up::hang_up_leader(mark, has.0);
        scratch.lose(mark, has, true);
    }
}

/// An output region, as what is in it is looked at.
fn looker(output: Region) -> Region {
    Region { role: OUTPUT_LOOKER, ..output }
}

/// Takes the first elements away, and the memory when nothing is left.
fn take_front<T>(buffer: &mut Vec<T>, count: usize) {
    buffer.drain(..count);
    if buffer.is_empty() && buffer.capacity() > KEPT {
        *buffer = Vec::new();
    }
}

/// A terminal.
pub struct Terminal {
    /// Whose it is: the console's, if not a program's.
    master: Option<Master>,
    /// What the master has typed and the line discipline has not seen yet.
    typed: Typed,
    /// What the master has not had room for.
    screen: Vec<u8>,
    /// The tail of the output ring, and the piece behind it that is on its way through `screen`.
    untaken: Option<(u64, Span)>,
    input: Region,
    output: Region,
    error: Option<Region>,
    control: Region,
    state: Control,
    leader: Leader,
    line: Line,
    from: Input,
    /// Cells that did not fit the input ring yet.
    waiting: Vec<u16>,
    /// The input ring's tail when they did not fit.
    seen_tail: u64,
}

impl Terminal {
    /// Opens the console and finds the regions that init made.
    pub fn console() -> Result<Self, Refused> {
        xok::upcall::set_mask(true);
        console::open()?;
        let region = |service, role| Region { id: RegionId(services::get(service)), role };
        let error = region(Service::ErrorOutput, OUTPUT_SERVER);
        let control = region(Service::TerminalState, CONTROL_ROLE);
        let state = settings(control)?;
        let mut terminal = Self {
            master: None,
            typed: Typed::default(),
            screen: Vec::new(),
            untaken: None,
            input: region(Service::TerminalInput, INPUT_SERVER),
            output: region(Service::TerminalOutput, OUTPUT_SERVER),
            error: (!error.id.is_none()).then_some(error),
            control,
            state,
            leader: Leader::default(),
            line: Line::new(state.termios),
            from: Input::Terminal,
            waiting: Vec::new(),
            seen_tail: 0,
        };
        if state.streams {
            let mut buffer = [0; COMMAND_LINE];
            let line = published::command_line(&mut buffer);
            let mut words = line.split(u8::is_ascii_whitespace);
            if words.any(|word| word == b"stdin=none") {
                terminal.from = Input::Ended;
                terminal.waiting.push(EOF);
            } else {
                terminal.from = Input::Framed { escaped: false };
            }
        }
        Ok(terminal)
    }

    /// The terminal of a master, whose regions the table names.
    pub fn of_master(number: usize, entry: &Entry) -> Result<Self, Refused> {
        let master = Master::open(number, entry.master)?;
        let roles = [
            (entry.input, INPUT_SERVER),
            (entry.output, OUTPUT_SERVER),
            (entry.output, OUTPUT_LOOKER),
            (entry.control, CONTROL_ROLE),
        ];
        let regions = roles.map(|(id, role)| master::attach(id, role).ok());
        let [Some(input), Some(output), Some(_), Some(control)] = regions else {
            regions.into_iter().flatten().for_each(master::detach);
            master.close();
            return Err((Error::NoSuchRegion, 0));
        };
        let state = settings(control)?;
        Ok(Self {
            master: Some(master),
            typed: Typed::default(),
            screen: Vec::new(),
            untaken: None,
            input,
            output,
            error: None,
            control,
            state,
            leader: Leader::default(),
            line: Line::new(state.termios),
            from: Input::Terminal,
            waiting: Vec::new(),
            seen_tail: 0,
        })
    }

    /// Its number, if it is a program's.
    pub fn number(&self) -> Option<usize> {
        self.master.as_ref().map(|master| master.number)
    }

    /// How processes mark it in their pages as their session's (`unix::process_page`).
    fn mark(&self) -> Mark {
        self.number().map_or(Mark::CONSOLE, |number| Mark::of(number as u32, self.control.id.0))
    }

    /// Has its master gone?
    pub fn is_over(&self) -> bool {
        self.master.as_ref().is_some_and(Master::is_gone)
    }

    /// Hangs up: programs read its end, and the leader of its session hears of it. Whoever does
    /// finds no file of that name any more.
    pub fn end(&mut self, table: Region, scratch: &mut Scratch) {
        if let Some(master) = &self.master {
            Self::clear(table, master.number);
        }
        let (mark, known) = (self.mark(), (&self.state, &mut self.leader));
        hang_up(self.control, mark, known, scratch);
        let regions = [self.input, self.output, looker(self.output), self.control];
        regions.into_iter().for_each(master::detach);
        if let Some(master) = &self.master {
            master.close();
        }
    }

    /// Hangs up a terminal of which this server has seen the entry alone: programs may have opened
    /// it before its master was closed.
    pub fn end_unseen(table: Region, number: usize, entry: &Entry, scratch: &mut Scratch) {
        Self::clear(table, number);
        if let Ok(control) = master::attach(entry.control, CONTROL_ROLE) {
            let mark = Mark::of(number as u32, control.id.0);
            hang_up(control, mark, (&Control::default(), &mut Leader::default()), scratch);
            master::detach(control);
        }
    }

    /// Empties an entry of the table.
    fn clear(table: Region, number: usize) {
        // The table is init's, and always there.
        let _ = table.write(0, &[], &[], &[WordAt { offset: Entry::offset(number), value: 0 }]);
    }

    /// Does a piece of everything; was there anything to do?
    pub fn step(&mut self, scratch: &mut Scratch) -> Result<bool, Refused> {
        self.leader.tell(self.mark(), &mut scratch.signals);
        let mut changed =
            self.take_settings(scratch)? | self.take_leaders_end()? | self.let_go_on(scratch)?;
        if self.master.is_some() {
            changed |= self.leader.look(self.mark(), &self.state);
        }
        let typed = self.take_input(scratch)?;
        let handed_over = self.hand_over()?;
        let mut shown = self.show_rest()?;
        if !self.is_held_back() && self.screen.is_empty() {
            shown |= self.show(self.output, console::OUTPUT, scratch)?;
            if let Some(error) = self.error {
                shown |= self.show(error, console::ERROR, scratch)?;
            }
        }
        Ok(changed || typed || handed_over || shown)
    }

    /// Does output wait for the start character? What is left by programs that have gone does not:
    /// no start comes from a master that waits for their end.
    fn is_held_back(&self) -> bool {
        self.line.stopped() && self.output.has(OUTPUT_PROGRAM)
    }

    /// Has it the memory for what a byte, or a change of the settings, may bring about behind what
    /// there is in `effects`? If not, neither is taken now.
    fn has_room(&mut self, effects: &Effects) -> bool {
        let (cells, screen) = self.line.most();
        let echo = if self.master.is_some() { effects.screen.len() + screen } else { 0 };
        self.waiting.try_reserve(effects.cells.len() + cells).is_ok()
            && self.screen.try_reserve(echo).is_ok()
            && self.line.reserve().is_ok()
    }

    /// Looks at the control region for what programs changed.
    fn take_settings(&mut self, scratch: &mut Scratch) -> Result<bool, Refused> {
        let new = settings(self.control)?;
        if new == self.state {
            return Ok(false);
        }
        if !self.has_room(&scratch.effects) {
            scratch.starved = true;
            return Ok(false);
        }
        let old = core::mem::replace(&mut self.state, new);
        if self.master.is_some() {
            // Its leader may say in its page now that it has the terminal, and not have said so in
            // the last look.
            self.leader.look(self.mark(), &old);
        }
        self.leader.take_word(self.mark(), &old, &new);
        if new.flush_input != old.flush_input {
            self.line.flush();
            self.flush_input()?;
        }
        if new.flush_output != old.flush_output {
            self.flush_output()?;
        }
        if new.termios != old.termios {
            self.line.set(new.termios, &mut scratch.effects);
            self.apply(scratch)?;
        }
        Ok(true)
    }

    /// Continues the group that a process of the session wants to go on.
    fn let_go_on(&mut self, scratch: &mut Scratch) -> Result<bool, Refused> {
        let Control { session, goes_on: group, .. } = self.state;
        if group == 0 {
            return Ok(false);
        }
        if !scratch.signals.let_go_on(self.mark(), (session, group)) {
            scratch.starved = true;
            return Ok(false);
        }
        let control = self.control;
        self.state.goes_on = 0;
        again(|| {
            let old = settings(control)?;
            let same = old.goes_on == group;
            if same { change(control, &old, Control { goes_on: 0, ..old }) } else { Ok(()) }
        })?;
        Ok(true)
    }

    /// Looks whether the leader of the session has ended without a word (by SIGKILL): then the
    /// terminal is no session's.
    fn take_leaders_end(&mut self) -> Result<bool, Refused> {
        let Control { session, foreground: mut group, .. } = self.state;
        let is_led = session == 0 || published::env_lives(EnvId(session));
        if self.master.is_none() || is_led {
            return Ok(false);
        }
        let control = self.control;
        again(|| {
            let old = settings(control)?;
            if old.session != session {
                return Ok(());
            }
            group = old.foreground;
            change(control, &old, Control { session: 0, foreground: 0, ..old })
        })?;
        self.leader.lose((session, group));
        self.state.session = 0;
        Ok(true)
    }

    /// Takes bytes from the console, unless readers have left too much unread, or a signal waits to
    /// be told.
    fn take_input(&mut self, scratch: &mut Scratch) -> Result<bool, Refused> {
        let Scratch { effects, starved, .. } = scratch;
        let mut any = false;
        if scratch.signals.wait_at(self.mark()) {
            return Ok(false);
        }
        for _ in 0..CHUNK {
            // Behind a signal may be what is for whoever it wakes.
            let full = effects.is_full() || self.screen.len() > LINE_MAX;
            if !self.waiting.is_empty() || full {
                break;
            }
            if !self.has_room(effects) {
                *starved = true;
                break;
            }
            let Some(byte) = self.next_byte()? else { break };
            any = true;
            match self.from {
                Input::Terminal => self.line.receive(byte, effects),
                Input::Framed { escaped: false } if byte == ESCAPE => {
                    self.from = Input::Framed { escaped: true };
                }
                Input::Framed { escaped: true } if byte == END_OF_INPUT => {
                    self.from = Input::Ended;
                    effects.cells.push(EOF);
                }
                Input::Framed { .. } => {
                    self.from = Input::Framed { escaped: false };
                    effects.cells.push(u16::from(byte));
                }
                Input::Ended => {}
            }
        }
        self.apply(scratch)?;
        Ok(any)
    }

    /// The next byte that was typed.
    fn next_byte(&mut self) -> Result<Option<u8>, Refused> {
        let Some(master) = &self.master else { return Ok(console::next()) };
        if self.typed.is_empty() {
            master.take(&mut self.typed)?;
        }
        Ok(self.typed.next())
    }

    /// Puts bytes on the screen, or where they wait for the master: there is room for them.
    fn put(&mut self, stream: u16, bytes: &[u8]) {
        match self.master {
            Some(_) => self.screen.extend_from_slice(bytes),
            None => console::write(stream, bytes),
        }
    }

    /// Gives the master what waits for it; did it take any?
    ///
    /// Output leaves its ring when the master has all of it: a master reads the end of a terminal
    /// whose ring is empty, and waits for more before.
    fn show_rest(&mut self) -> Result<bool, Refused> {
        let mut taken = 0;
        if let Some(master) = self.master.as_ref().filter(|_| !self.screen.is_empty()) {
            taken = master.show(&self.screen)?;
            take_front(&mut self.screen, taken);
        }
        if self.screen.is_empty()
            && let Some((tail, span)) = self.untaken.take()
        {
            self.output.take((tail, span.offset), &mut [0; CHUNK][..span.len as usize])?;
        }
        Ok(taken > 0)
    }

    /// Does what was brought about; there is room for it.
    fn apply(&mut self, scratch: &mut Scratch) -> Result<(), Refused> {
        let Scratch { effects, signals, .. } = scratch;
        if effects.flush_input {
            self.flush_input()?;
        }
        if effects.flush_output {
            self.flush_output()?;
        }
        self.waiting.extend_from_slice(&effects.cells);
        self.put(console::OUTPUT, &effects.screen);
        for &signal in &effects.signals {
            signals.ask(self.mark(), &self.state, signal);
        }
        effects.clear();
        self.line.trim();
        Ok(())
    }

    /// Puts waiting cells into the input ring.
    fn hand_over(&mut self) -> Result<bool, Refused> {
        if self.waiting.is_empty() {
            return Ok(false);
        }
        let (head, tail) = self.input.counters()?;
        if !INPUT.can_be(head, tail) {
            return self.input.empty(head, tail);
        }
        self.seen_tail = tail;
        let free = INPUT_CELLS - head.wrapping_sub(tail).min(INPUT_CELLS);
        let at = head % INPUT_CELLS;
        let count = free.min(self.waiting.len() as u64).min(INPUT_CELLS - at).min(CHUNK as u64);
        if count == 0 {
            return Ok(false);
        }
        let mut bytes = [0; 2 * CHUNK];
        let bytes = &mut bytes[..2 * count as usize];
        cells::encode(&self.waiting, bytes);
        let write = [WordAt { offset: HEAD, value: head + count }];
        self.input.write(INPUT_DATA + 2 * at, bytes, &[], &write)?;
        take_front(&mut self.waiting, count as usize);
        Ok(true)
    }

    /// Shows a piece of what programs wrote; its tail moves once the console or the master has it.
    fn show(
        &mut self,
        region: Region,
        stream: u16,
        scratch: &mut Scratch,
    ) -> Result<bool, Refused> {
        let (head, tail) = region.counters()?;
        let used = OUTPUT.used(head, tail);
        if used == 0 {
            return Ok(false);
        }
        let span = OUTPUT.span(tail, used.min(CHUNK as u64));
        if self.master.is_some() && self.screen.try_reserve(8 * span.len as usize).is_err() {
            scratch.starved = true;
            return Ok(false);
        }
        let mut buffer = [0; CHUNK];
        let bytes = &mut buffer[..span.len as usize];
        looker(region).read(span.offset, bytes)?;
        if self.state.streams {
            self.put(stream, bytes);
        } else {
            scratch.screen.clear();
            self.line.output(bytes, &mut scratch.screen);
            self.put(stream, &scratch.screen);
        }
        if self.master.is_none() {
            region.take((tail, span.offset), bytes)?;
            return Ok(true);
        }
        self.untaken = Some((tail, span));
        self.show_rest()?;
        Ok(true)
    }

    fn flush_input(&mut self) -> Result<(), Refused> {
        self.waiting.clear();
        again(|| {
            let (head, tail) = self.input.counters()?;
            let compare = [WordAt { offset: TAIL, value: tail }];
            self.input.write(0, &[], &compare, &[WordAt { offset: TAIL, value: head }])
        })
    }

    fn flush_output(&mut self) -> Result<(), Refused> {
        self.untaken = None;
        let (head, mut tail) = self.output.counters()?;
        let mut buffer = [0; CHUNK];
        // No more than the ring holds.
        while tail < head {
            let span = OUTPUT.span(tail, (head - tail).min(CHUNK as u64));
            self.output.take((tail, span.offset), &mut buffer[..span.len as usize])?;
            tail += span.len;
        }
        Ok(())
    }

    /// Adds what ends a sleep: anything to show, settings changed, room for waiting input.
    pub fn watch(&self, signals: &Signals, atoms: &mut Vec<Atom>) {
        let unequal = |region: Region, left, right: Result<u64, u64>| Atom {
            operator: Operator::NotEqual as u8,
            left: Source::Region as u8,
            right: if right.is_ok() { Source::Constant as u8 } else { Source::Region as u8 },
            last: 1,
            region: region.id.0,
            left_value: left,
            right_value: right.unwrap_or_else(|offset| offset),
            ..Atom::default()
        };
        atoms.push(unequal(self.control, SEQUENCE, Ok(self.state.version())));
        if self.is_held_back() {
            atoms.push(self.output.left_by(OUTPUT_PROGRAM));
        } else if self.screen.is_empty() {
            atoms.push(unequal(self.output, HEAD, Err(TAIL)));
            atoms.extend(self.error.map(|error| unequal(error, HEAD, Err(TAIL))));
        }
        if !self.waiting.is_empty() {
            atoms.push(unequal(self.input, TAIL, Ok(self.seen_tail)));
        }
        if let Some(master) = &self.master {
            let takes = self.waiting.is_empty() && self.screen.len() <= LINE_MAX;
            let types = takes && !signals.wait_at(self.mark());
            master.watch(types, !self.screen.is_empty(), atoms);
            self.leader.watch(&self.state, atoms);
        }
    }
}
