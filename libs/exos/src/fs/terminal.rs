//! The terminal, and the streams of a machine that runs one program: what is shared with ttyd.

use abi::id::RegionId;
use abi::predicate::Operator;
use abi::region::WordAt;
use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use unix::Errno;
use unix::ring::{HEAD, Ring, TAIL};
use unix::tty::cells::{self, EOF};
use unix::tty::shared::{
    CONTROL_BYTES, CONTROL_READER, CONTROL_ROLE, Control, Entry, INPUT, INPUT_CELLS, INPUT_DATA,
    INPUT_PROGRAM, OUTPUT, OUTPUT_PROGRAM, SEQUENCE,
};
use xok::services::{self, Service};

use super::Files;
use super::description::Description;
use super::pty::whichever;
use super::region::{Done, Heritage, Missed, Region, Transfer};
use super::transfer::Memory;
use crate::orphans;
use crate::page::{self, Mark};
use crate::process::Process;
use crate::signal::send;
use crate::thread;
use crate::wait::{Wait, Woken, sleep_until};

/// Bytes moved at a time.
const CHUNK: usize = 4096;
/// Unit of `VTIME`.
const TENTH: u64 = 100_000_000;
/// How often a ring is emptied whose counters cannot be, before the terminal does not work.
const TRIES: usize = 64;

fn region(service: Service, role: u16) -> Option<Region> {
    let id = RegionId(services::get(service));
    (!id.is_none()).then_some(Region { id, role })
}

/// Puts bytes that there is room for into an output ring; how many went in, `None`: another one has
/// come before.
fn put_in(ring: &Region, head: u64, (address, len): (u64, u64)) -> Result<Option<u64>, Errno> {
    let transfer = Transfer {
        into: true,
        offset: OUTPUT.span(head, 0).offset,
        address,
        len,
        moves: WordAt { offset: HEAD, value: head },
        beside: WordAt { offset: TAIL, value: 0 },
        beside_counts: false,
    };
    match ring.transfer(&transfer) {
        Ok(()) => Ok(Some(len)),
        Err(Missed::Found(_) | Missed::Told) => Ok(None),
        Err(Missed::Absent) => Err(Errno::EFAULT),
        Err(Missed::Refused(errno)) => Err(errno),
    }
}

/// Head and tail of a terminal's input ring. Any program that has the terminal may have stored
/// nonsense there: then the ring begins anew, empty.
fn counters(ring: &Region) -> Result<(u64, u64), Errno> {
    for _ in 0..TRIES {
        let (head, tail) = ring.pair()?;
        if INPUT.can_be(head, tail) {
            return Ok((head, tail));
        }
        let word = |offset, value| WordAt { offset, value };
        let (now, begin) = ([word(HEAD, head), word(TAIL, tail)], Ring::begin_again(tail));
        // Another program may have come before, with what is sound or not.
        ring.copy_in(0, &[], &now, &[word(HEAD, begin), word(TAIL, begin)])?;
    }
    Err(Errno::EIO)
}

/// A terminal as a program has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tty {
    /// Its number, if it is a pseudo-terminal; `None`: the console's.
    pub number: Option<u32>,
    /// Cooked cells.
    pub input: Region,
    /// What is to be shown.
    pub output: Region,
    /// Settings.
    pub settings: Region,
}

impl Tty {
    /// The console's.
    pub fn console() -> Result<Self, Errno> {
        Self::console_stream(false)
    }

    /// The console's, or its stream for errors.
    pub fn console_stream(error: bool) -> Result<Self, Errno> {
        let error = if error { region(Service::ErrorOutput, OUTPUT_PROGRAM) } else { None };
        let output = error.or_else(|| region(Service::TerminalOutput, OUTPUT_PROGRAM));
        Ok(Self {
            number: None,
            input: region(Service::TerminalInput, INPUT_PROGRAM).ok_or(Errno::EIO)?,
            output: output.ok_or(Errno::EIO)?,
            settings: region(Service::TerminalState, CONTROL_ROLE).ok_or(Errno::ENXIO)?,
        })
    }

    /// A pseudo-terminal, whose regions we are attached to.
    pub fn pseudo(number: u32, entry: &Entry) -> Self {
        let settings = if entry.input == 0 { CONTROL_READER } else { CONTROL_ROLE };
        Self {
            number: Some(number),
            input: Region { id: RegionId(entry.input), role: INPUT_PROGRAM },
            output: Region { id: RegionId(entry.output), role: OUTPUT_PROGRAM },
            settings: Region { id: RegionId(entry.control), role: settings },
        }
    }

    /// May it be read, and its settings changed?
    pub fn reads(&self) -> bool {
        !self.input.id.is_none()
    }

    /// May it be written to?
    pub fn writes(&self) -> bool {
        !self.output.id.is_none()
    }

    /// What the page of a process says whose terminal it is.
    pub fn mark(&self) -> Mark {
        self.number.map_or(Mark::CONSOLE, |number| Mark::of(number, self.settings.id.0))
    }

    /// Is it, as one who was another user says that it has it open, a terminal that this domain
    /// has? Its number may be any one.
    pub fn is_open(&self, files: &Files) -> bool {
        let Some(number) = self.number else { return true };
        let is = |entry: &Entry| {
            let input = if self.reads() { entry.input } else { 0 };
            let output = if self.writes() { entry.output } else { 0 };
            *self == Self::pseudo(number, &Entry { input, output, ..*entry })
        };
        let entry = files.client().and_then(|client| client.terminal_open(whichever(number), 0));
        entry.is_ok_and(|entry| is(&entry)) && self.regions().all(|region| region.pair().is_ok())
    }

    fn regions(&self) -> impl Iterator<Item = Region> {
        let all = [self.input, self.output, self.settings];
        all.into_iter().filter(|region| !region.id.is_none())
    }

    /// Attaches another domain; every process has the console's already.
    pub fn attach(&self, heritage: &mut Heritage) -> Result<(), Errno> {
        match self.number {
            Some(_) => self.regions().try_for_each(|region| heritage.add(&region)),
            None => Ok(()),
        }
    }

    /// Attaches the own domain once more.
    pub fn attach_own(&self) -> Result<(), Errno> {
        for (at, region) in self.regions().enumerate() {
            if let Err(errno) = region.attach() {
                self.regions().take(at).for_each(|region| region.detach());
                return Err(errno);
            }
        }
        Ok(())
    }

    /// Lets go of it.
    pub fn detach(&self) {
        if self.number.is_some() {
            self.regions().for_each(|region| region.detach());
        }
    }

    /// The settings as they are.
    pub fn control(&self) -> Result<Control, Errno> {
        let mut bytes = [0; CONTROL_BYTES];
        self.settings.copy_out(0, &mut bytes, &[], &[])?;
        Ok(Control::from_bytes(&bytes))
    }

    /// Changes the settings, whoever else does at the same time; answers what they are now.
    pub fn change(
        &self,
        mut edit: impl FnMut(&mut Control) -> Result<(), Errno>,
    ) -> Result<Control, Errno> {
        loop {
            let old = self.control()?;
            let mut new = old;
            edit(&mut new)?;
            new.sequence = old.sequence.wrapping_add(1);
            let compare = [WordAt { offset: SEQUENCE, value: old.version() }];
            let bytes = new.to_bytes();
            if self.settings.copy_in(0, &bytes, &compare, &[])? == Done::Yes {
                return Ok(new);
            }
        }
    }
}

/// Is the console a terminal (not the streams of one program)?
pub fn exists() -> bool {
    services::get(Service::TerminalInput) != 0 && services::get(Service::RawConsole) == 0
}

/// All that belongs to the console.
fn console_regions() -> impl Iterator<Item = Region> {
    let regions = [
        region(Service::TerminalInput, INPUT_PROGRAM),
        region(Service::TerminalOutput, OUTPUT_PROGRAM),
        region(Service::ErrorOutput, OUTPUT_PROGRAM),
        region(Service::TerminalState, CONTROL_ROLE),
    ];
    regions.into_iter().flatten()
}

/// Attaches another domain to the console: processes that may open it (/dev/console, /dev/tty)
/// keep that, open or not.
pub fn attach(heritage: &mut Heritage) -> Result<(), Errno> {
    console_regions().try_for_each(|region| heritage.add(&region))
}

/// Is the process attached to the console?
pub fn has_console() -> bool {
    Tty::console().is_ok_and(|tty| tty.control().is_ok())
}

/// Lets go of the console. Only init could attach the process again.
pub fn leave_console() {
    console_regions().for_each(|region| region.detach());
}

/// Is the process in the background of its own terminal, and is this that?
fn in_background(mark: Mark, control: &Control) -> bool {
    let own = page::own();
    own.mark() == mark
        && control.session == own.session
        && control.foreground != own.group
        && control.foreground != 0
}

/// A background process that wants the terminal is stopped, unless it ignores or blocks that.
fn stop_background(process: &mut Process, mark: Mark, signal: u32) -> Result<(), Errno> {
    let bit = 1 << (signal - 1);
    if thread::own().blocked & bit != 0
        || process.signals.effect(signal) == crate::signal::Effect::Ignore
    {
        return if signal == raw::SIGTTIN { Err(Errno::EIO) } else { Ok(()) };
    }
    // The signal stops nobody there: who sent it would try again for ever.
    if orphans::own_is_orphaned(process) {
        return Err(Errno::EIO);
    }
    // To the whole group; the call starts again when it goes on.
    let own = page::own();
    send::to_terminals(process, signal, mark, (own.session, own.group));
    Err(crate::errno::RESTART)
}

/// Checks that the process may change the terminal or (with `TOSTOP`) write to it.
pub fn check_foreground(process: &mut Process, tty: &Tty, control: &Control) -> Result<(), Errno> {
    let mark = tty.mark();
    if in_background(mark, control) { stop_background(process, mark, raw::SIGTTOU) } else { Ok(()) }
}

/// As `cells::take`, but the end of a stream stays where it is: every later read meets it again.
fn take_stream(cells: &[u16], limit: usize, into: &mut Vec<u8>) -> usize {
    let bytes = cells.iter().take_while(|&&cell| cell & EOF == 0).take(limit);
    let before = into.len();
    into.extend(bytes.map(|&cell| cell as u8));
    into.len() - before
}

impl Tty {
    /// Adds "the settings were changed, or it was hung up".
    pub fn changed_terms(&self, wait: &mut Wait, version: u64) {
        wait.region(self.settings.id, SEQUENCE, Operator::NotEqual, version).end_term();
    }

    /// Cells that wait, in order, and the tail that they begin at.
    fn waiting(&self, limit: usize) -> Result<(Vec<u16>, u64), Errno> {
        let ring = self.input;
        let (head, tail) = counters(&ring)?;
        let used = (head - tail).min(limit as u64 + 1);
        let mut bytes = alloc::vec![0; 2 * used as usize];
        let mut done = 0;
        while done < used {
            let at = (tail + done) % INPUT_CELLS;
            let count = (used - done).min(INPUT_CELLS - at).min(CHUNK as u64 / 2);
            let part = &mut bytes[2 * done as usize..2 * (done + count) as usize];
            ring.copy_out(INPUT_DATA + 2 * at, part, &[], &[])?;
            done += count;
        }
        Ok((cells::decode(&bytes), tail))
    }

    /// Bytes that a read may take now.
    pub fn readable(&self) -> Result<u64, Errno> {
        Ok(cells::readable(&self.waiting(INPUT_CELLS as usize)?.0) as u64)
    }

    /// Would a read return at once? Otherwise the tail to wait for.
    pub fn has_input(&self) -> Result<(bool, u64), Errno> {
        if !self.reads() {
            return Ok((false, 0));
        }
        let (head, tail) = counters(&self.input)?;
        Ok((head != tail, tail))
    }

    /// Adds "there is input".
    pub fn readable_terms(&self, wait: &mut Wait, tail: u64) {
        if self.reads() {
            wait.region(self.input.id, HEAD, Operator::NotEqual, tail).end_term();
        }
    }

    /// Is there room for output? One that is only read has, as on Linux.
    pub fn has_room(&self) -> Result<(bool, u64), Errno> {
        if !self.writes() {
            return Ok((true, 0));
        }
        let (head, tail) = self.output.pair()?;
        Ok((OUTPUT.free(head, tail) > 0, tail))
    }

    /// Adds "output was taken".
    pub fn writable_terms(&self, wait: &mut Wait, tail: u64) {
        if self.writes() {
            wait.region(self.output.id, TAIL, Operator::NotEqual, tail).end_term();
        }
    }

    /// Reads a line, or what there is in raw mode (termios(3), VMIN and VTIME).
    pub fn read(
        &self,
        process: &mut Process,
        description: &Description,
        memory: &mut Memory<'_>,
    ) -> Result<u64, Errno> {
        if memory.left() == 0 {
            return Ok(0);
        }
        let mut got: Vec<u8> = Vec::new();
        let mut deadline = 0;
        loop {
            let control = self.control()?;
            if !control.streams && in_background(self.mark(), &control) {
                stop_background(process, self.mark(), raw::SIGTTIN)?;
            }
            if control.hung_up && got.is_empty() {
                return Ok(0);
            }
            let canonical = control.termios.canonical() && !control.streams;
            let least = control.termios.characters[raw::VMIN as usize];
            let time = u64::from(control.termios.characters[raw::VTIME as usize]);
            let limit = memory.left().min(INPUT_CELLS) as usize;
            let (cells, tail) = self.waiting(limit)?;
            let before = got.len();
            let used = if control.streams {
                take_stream(&cells, limit, &mut got)
            } else {
                cells::take(&cells, canonical, limit - before, &mut got)
            };
            if used > 0 {
                let compare = [WordAt { offset: TAIL, value: tail }];
                let write = [WordAt { offset: TAIL, value: tail + used as u64 }];
                if self.input.copy_in(0, &[], &compare, &write)? == Done::Changed {
                    got.truncate(before);
                    continue;
                }
            }
            let ended = control.streams && cells.first().is_some_and(|cell| cell & EOF != 0);
            let enough = usize::from(least).min(limit);
            let satisfied = if canonical { used > 0 } else { got.len() >= enough.max(1) };
            if satisfied || ended || got.len() == limit || (control.streams && !got.is_empty()) {
                return Ok(memory.put(&got)? as u64);
            }
            let nonblocking = description.nonblocking();
            if nonblocking && got.is_empty() {
                return Err(Errno::EAGAIN);
            }
            if nonblocking || !canonical && !control.streams && least == 0 && time == 0 {
                return Ok(memory.put(&got)? as u64);
            }
            // VTIME runs from the call if VMIN is 0, else from each byte.
            if !canonical
                && time > 0
                && (least == 0 || !got.is_empty())
                && (used > 0 || deadline == 0)
            {
                deadline = xok::clock::now_ns() + time * TENTH;
            }
            let mut wait = Wait::new();
            self.readable_terms(&mut wait, tail + used as u64);
            self.changed_terms(&mut wait, control.version());
            match sleep_until(process, &wait, deadline) {
                Ok(Woken::TimedOut) => return Ok(memory.put(&got)? as u64),
                Ok(Woken::Ready) => {}
                Err(_) if !got.is_empty() => return Ok(memory.put(&got)? as u64),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Puts up to `most` of the next bytes into the output ring, as `put_in`.
    fn put(&self, head: u64, most: u64, memory: &mut Memory<'_>) -> Result<Option<u64>, Errno> {
        let piece = memory.next_piece().map(|(address, there)| (address, there.min(most)));
        match piece.filter(|(_, len)| *len > 0).map(|piece| put_in(&self.output, head, piece)) {
            // Not all of it is there.
            None | Some(Err(Errno::EFAULT)) => self.put_by_buffer(head, most, memory),
            Some(put) => put,
        }
    }

    /// The same from memory that is not in one piece, or not all there.
    #[inline(never)]
    fn put_by_buffer(
        &self,
        head: u64,
        most: u64,
        memory: &mut Memory<'_>,
    ) -> Result<Option<u64>, Errno> {
        let mut buffer = [0; CHUNK];
        match memory.peek(&mut buffer[..most.min(CHUNK as u64) as usize])? {
            0 => Ok(Some(0)),
            count => put_in(&self.output, head, (buffer.as_ptr() as u64, count as u64)),
        }
    }

    /// Writes all, waiting for room.
    pub fn write(
        &self,
        process: &mut Process,
        description: &Description,
        memory: &mut Memory<'_>,
    ) -> Result<u64, Errno> {
        let mut now = self.control()?;
        if !now.streams && now.termios.local(raw::TOSTOP) {
            check_foreground(process, self, &now)?;
        }
        let ring = self.output;
        let total = memory.left();
        let mut done = 0;
        while done < total {
            if now.hung_up {
                return if done > 0 { Ok(done) } else { Err(Errno::EIO) };
            }
            let (head, tail) = ring.pair()?;
            let free = OUTPUT.free(head, tail);
            if free > 0 {
                match self.put(head, free.min(total - done), memory) {
                    // Another one has come before.
                    Ok(None) => {}
                    Ok(Some(0)) => return Ok(done),
                    Ok(Some(count)) => {
                        memory.advance(count);
                        done += count;
                    }
                    Err(_) if done > 0 => return Ok(done),
                    Err(errno) => return Err(errno),
                }
                continue;
            }
            if description.nonblocking() {
                return if done > 0 { Ok(done) } else { Err(Errno::EAGAIN) };
            }
            let mut wait = Wait::new();
            self.writable_terms(&mut wait, tail);
            self.changed_terms(&mut wait, now.version());
            match sleep_until(process, &wait, 0) {
                Err(_) if done > 0 => return Ok(done),
                other => drop(other?),
            }
            now = self.control()?;
        }
        Ok(done)
    }

    /// Waits until everything written has been shown (`tcdrain`). Who has it for reading alone does
    /// so as one who may write, if it may.
    pub fn drain(&self, process: &mut Process) -> Result<(), Errno> {
        let (Some(number), false) = (self.number, self.writes()) else {
            return self.drain_output(process);
        };
        let name = (number, self.settings.id);
        let Ok(entry) = process.files.client()?.terminal_open(name, 2) else { return Ok(()) };
        let writer = Self::pseudo(number, &Entry { input: 0, ..entry });
        let drained = writer.drain_output(process);
        writer.detach();
        drained
    }

    fn drain_output(&self, process: &mut Process) -> Result<(), Errno> {
        let ring = self.output;
        loop {
            let (head, tail) = ring.pair()?;
            if head == tail {
                return Ok(());
            }
            let mut wait = Wait::new();
            wait.region(ring.id, TAIL, Operator::AtLeast, head).end_term();
            sleep_until(process, &wait, 0)?;
        }
    }
}
