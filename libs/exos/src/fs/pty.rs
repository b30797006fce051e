//! Pseudo-terminals (pty(7), pts(4)): /dev/ptmx is one end of a connection to the terminal server.
//!
//! What is written to the master is typed at the terminal, what programs show there is read from
//! the master; between them the terminal server edits lines and sends signals, as it does for the
//! console. The file server gives out numbers and regions (`unix::tty::shared`).

use abi::id::{EnvId, RegionId};
use abi::predicate::Operator;
use alloc::format;
use alloc::rc::Rc;
use linux_raw_sys::general as raw;
use linux_raw_sys::ioctl;
use unix::Errno;
use unix::attributes::{Attributes, device_number};
use unix::path::Canonical;
use unix::protocol::WATCHER;
use unix::tty::shared::{CONTROL_ROLE, Control, Entry, INPUT_PROGRAM, OUTPUT_PROGRAM};
use xok::call;
use xok::services::{self, Service};

use super::Files;
use super::description::Description;
use super::node::{Node, stamped};
use super::open_file::OpenFile;
use super::poll::{IN_LIKE, OUT_LIKE};
use super::region::{self, Heritage, Region};
use super::terminal::Tty;
use super::terminal_control;
use super::transfer::Memory;
use crate::errno::Answer;
use crate::page::{self, Mark};
use crate::process::Process;
use crate::signal::send;
use crate::unix_sockets::connection::End;
use crate::unix_sockets::streams;
use crate::user;
use crate::wait::{Wait, sleep_until};

/// A pseudo-terminal: its number, and the region of its settings, without which it is whichever one
/// has the number now. Numbers come again, the names of regions do not.
pub type Name = (u32, RegionId);

/// How often the terminal server has the processor before what it has to do is waited for.
const SERVER_TURNS: usize = 4;
/// Major number of terminals' devices.
const MAJOR: u64 = 136;

/// A master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Master {
    /// The terminal's number.
    pub number: u32,
    /// Our end of the way to the terminal server.
    link: End,
    entry: Entry,
}

/// The one that has the number now.
pub fn whichever(number: u32) -> Name {
    (number, RegionId::NONE)
}

/// Where it is found.
pub fn path_of(number: u32) -> Canonical {
    Canonical::from_canonical(format!("/dev/pts/{number}").as_bytes())
}

/// Attributes of /dev/pts/`number`.
pub fn attributes(files: &Files, name: Name) -> Result<Attributes, Errno> {
    let [mode, uid, gid] = files.client()?.terminal_attributes(name)?;
    let number = name.0;
    Ok(Attributes {
        device: 0x18,
        inode: 3 + u64::from(number),
        mode: raw::S_IFCHR | mode,
        links: 1,
        uid,
        gid,
        rdevice: device_number(MAJOR, number.into()),
        ..stamped()
    })
}

/// The number that a name in /dev/pts is.
pub fn number_of(name: &[u8]) -> Option<u32> {
    let number: u32 = core::str::from_utf8(name).ok()?.parse().ok()?;
    (number.checked_ilog10().unwrap_or(0) as usize + 1 == name.len()).then_some(number)
}

/// The terminal that a name in /dev/pts leads to, if there is one.
pub fn named(files: &Files, name: &[u8]) -> Result<Option<Node>, Errno> {
    match number_of(name) {
        Some(number) if files.client()?.has_terminal(number)? => Ok(Some(Node::Slave(number))),
        _ => Ok(None),
    }
}

/// Opens /dev/ptmx: makes a terminal.
pub fn open_master(
    process: &mut Process,
    path: Canonical,
    flags: u32,
) -> Result<Rc<Description>, Errno> {
    let (number, entry) = process.files.client()?.terminal_make()?;
    let link = End { region: RegionId(entry.master), end: 0 };
    let master = Master { number, link, entry };
    Ok(Description::new(OpenFile::Master(master), path, flags, None))
}

/// Opens a terminal. The leader of a session that has none gets it as its own, unless `flags` says
/// not (`O_NOCTTY`).
pub fn open_slave(process: &mut Process, name: Name, flags: u32) -> Result<Rc<Description>, Errno> {
    let mask = super::open::mask_of(flags);
    let mut entry = process.files.client()?.terminal_open(name, mask)?;
    if mask & 4 == 0 {
        entry.input = 0;
    }
    if mask & 2 == 0 {
        entry.output = 0;
    }
    enter_slave(process, Tty::pseudo(name.0, &entry), name.0, flags)
}

/// Makes a terminal that we are attached to an open file.
fn enter_slave(
    process: &mut Process,
    tty: Tty,
    number: u32,
    flags: u32,
) -> Result<Rc<Description>, Errno> {
    // Dropping it gives the attachments back.
    let file = OpenFile::Terminal(tty);
    let description = Description::new(file, path_of(number), flags, None);
    let control = tty.control()?;
    if control.locked || control.hung_up {
        return Err(Errno::EIO);
    }
    control.check_open(process.users[1])?;
    if tty.reads() {
        tty.change(|control| {
            control.opened = true;
            Ok(())
        })?;
    }
    let own = page::own();
    let is_free = !terminal_control::is_taken(control.session);
    let leads = own.session == process.id.0 && is_free && tty.reads();
    if leads && flags & raw::O_NOCTTY == 0 && !has_terminal(process) {
        terminal_control::take_terminal(process, &tty, false)?;
    }
    Ok(description)
}

/// Opens the terminal of the process's session.
pub fn open_own(process: &mut Process, flags: u32) -> Result<Rc<Description>, Errno> {
    let mark = page::own().mark();
    let number = mark.number.checked_sub(2).ok_or(Errno::ENXIO)?;
    let tty = attached(process, mark).map_err(|errno| match errno {
        // It was hung up, whoever has the number now.
        Errno::EIO => Errno::ENXIO,
        other => other,
    })?;
    // The session's leader may have given it up.
    if tty.control().is_ok_and(|control| control.session != page::own().session) {
        tty.detach();
        return Err(Errno::ENXIO);
    }
    if super::open::mask_of(flags) & 2 != 0 && !tty.writes() {
        tty.detach();
        return Err(Errno::EACCES);
    }
    enter_slave(process, tty, number, flags | raw::O_NOCTTY)
}

/// The terminal of our session, attached once more: descriptors of it will do, also if it was
/// another user's who opened it. If they only read it, it may be another's to write to.
fn attached(process: &Process, mark: Mark) -> Result<Tty, Errno> {
    let open = process.files.terminal(mark);
    if let Some(tty) = open.filter(Tty::writes) {
        return tty.attach_own().map(|()| tty);
    }
    let number = mark.number.checked_sub(2).ok_or(Errno::ENXIO)?;
    let name = (number, RegionId(mark.settings));
    match (process.files.client()?.terminal_open(name, 6), open) {
        (Ok(entry), _) => Ok(Tty::pseudo(number, &entry)),
        (Err(_), Some(tty)) => tty.attach_own().map(|()| tty),
        (Err(errno), None) => Err(errno),
    }
}

/// What `act` does with the terminal of our session, which we need not have open.
fn with_own<T>(process: &Process, act: impl Fn(&Tty) -> Result<T, Errno>) -> Result<T, Errno> {
    let mark = page::own().mark();
    if mark == Mark::CONSOLE {
        return act(&Tty::console()?);
    }
    let tty = attached(process, mark)?;
    let done = act(&tty);
    tty.detach();
    done
}

/// Has the process's session a terminal that was not hung up?
pub fn has_terminal(process: &Process) -> bool {
    let own = page::own();
    let is_its = with_own(process, |tty| {
        let is_its = |control: Control| control.session == own.session && !control.hung_up;
        Ok(tty.control().is_ok_and(is_its))
    });
    match is_its {
        Ok(is_its) => is_its,
        // It is there, and another user's by now; the console would be no terminal of ours.
        Err(errno) => errno == Errno::EACCES && own.mark() != Mark::CONSOLE,
    }
}

/// Has the server of our session's terminal continue a group of the session.
pub fn let_go_on(process: &Process, group: u32) -> Result<(), Errno> {
    let session = page::own().session;
    with_own(process, |tty| {
        tty.change(|control| {
            let is_ours = control.session == session && !control.hung_up;
            control.goes_on = group;
            if is_ours { Ok(()) } else { Err(Errno::EPERM) }
        })?;
        Ok(())
    })
}

/// The leader of a session ends: its terminal is nobody's, and the terminal server hangs up the
/// foreground there, which may be another user's. It believes that when the leader has no terminal.
pub fn leave_session(process: &mut Process) {
    let own = page::own();
    if own.session != process.id.0 || own.terminal < 2 {
        return;
    }
    let Ok(tty) = attached(process, own.mark()) else { return };
    own.set_mark(Mark::NONE);
    give_up(&tty, true);
    tty.detach();
}

/// A session's leader gives its terminal up and lives on: it is no session's, and it tells the
/// foreground, as far as it may (tty_ioctl(4), `TIOCNOTTY`).
pub fn disown(process: &mut Process, tty: &Tty) {
    let session = page::own().session;
    // Before the settings say so: the terminal server asks then who has the terminal.
    page::own().set_mark(Mark::NONE);
    let foreground = give_up(tty, false);
    if foreground != 0 {
        for signal in [raw::SIGHUP, raw::SIGCONT] {
            send::to_former_terminal(process, signal, tty.mark(), (session, foreground));
        }
    }
}

/// Makes the terminal of our session no session's; the group in its foreground, or 0.
fn give_up(tty: &Tty, ends: bool) -> u32 {
    let session = page::own().session;
    let mut foreground = 0;
    // A terminal that has gone is nobody's already.
    let _ = tty.change(|control| {
        foreground = 0;
        if control.session == session {
            foreground = control.foreground;
            if ends {
                control.left = (session, foreground);
            }
            (control.session, control.foreground) = (0, 0);
        }
        Ok(())
    });
    foreground
}

impl Master {
    /// The terminal's settings, and what is in its rings.
    fn tty(&self) -> Tty {
        let tty = Tty::pseudo(self.number, &self.entry);
        Tty {
            input: Region { role: WATCHER, ..tty.input },
            output: Region { role: WATCHER, ..tty.output },
            ..tty
        }
    }

    fn regions(&self) -> [Region; 4] {
        let region = |id, role| Region { id: RegionId(id), role };
        [
            self.link.own(),
            region(self.entry.input, WATCHER),
            region(self.entry.output, WATCHER),
            region(self.entry.control, CONTROL_ROLE),
        ]
    }

    /// Is it, as one who was another user says that it has it open, a master that this domain has?
    pub fn is_open(&self, files: &Files) -> bool {
        let number = whichever(self.number);
        let entry = files.client().and_then(|client| client.terminal_open(number, 0));
        let is = entry.is_ok_and(|entry| entry == self.entry);
        is && self.regions().iter().all(|region| region.pair().is_ok())
    }

    /// Attaches another domain.
    pub fn attach(&self, heritage: &mut Heritage) -> Result<(), Errno> {
        self.regions().iter().try_for_each(|region| heritage.add(region))
    }

    /// The last descriptor is closed.
    pub fn detach(&self) {
        self.regions().iter().for_each(Region::detach);
    }

    /// The words that bring it through `exec`.
    pub fn saved(&self) -> [u64; 5] {
        let [input, output, control, master] = self.entry.to_words();
        [u64::from(self.number), input, output, control, master]
    }

    /// Reads them.
    pub fn loaded([number, regions @ ..]: [u64; 5]) -> Self {
        let entry = Entry::from_words(regions);
        let link = End { region: RegionId(entry.master), end: 0 };
        Self { number: number as u32, link, entry }
    }

    /// Those who have the terminal: who writes to it has its output, who reads it its input.
    fn users(&self) -> [(RegionId, u16); 2] {
        let Entry { input, output, .. } = self.entry;
        [(RegionId(output), OUTPUT_PROGRAM), (RegionId(input), INPUT_PROGRAM)]
    }

    /// Has anybody it?
    fn is_used(&self) -> bool {
        self.users().into_iter().any(|(id, role)| region::attached(id, role) != 0)
    }

    /// Was the terminal open once, has its last user gone, and is all read that was shown? Where
    /// that waits for the terminal server alone, which takes what it has shown, the server has the
    /// processor.
    fn is_left(&self) -> Result<bool, Errno> {
        for _ in 0..SERVER_TURNS {
            if self.is_used() {
                return Ok(false);
            }
            let (head, tail) = self.tty().output.pair()?;
            if head == tail {
                return Ok(self.tty().control()?.opened);
            }
            let shown = self.link.read().half()?;
            let server = EnvId(services::get(Service::Terminal) as u32);
            if shown.head != shown.tail || call::yield_to(server).is_err() {
                break;
            }
        }
        Ok(false)
    }

    /// Reads what is shown.
    pub fn read(
        &self,
        process: &mut Process,
        description: &Description,
        memory: &mut Memory<'_>,
    ) -> Answer {
        if memory.left() == 0 {
            return Ok(0);
        }
        loop {
            // Looked at first: what was shown last must still be seen.
            let left = self.is_left()?;
            match streams::take_piece(&self.link, memory, None)? {
                Some(0) => {}
                Some(taken) => return Ok(taken),
                None => continue,
            }
            if left {
                return Err(Errno::EIO);
            }
            if description.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            let mut wait = Wait::new();
            self.readable_terms(&mut wait)?;
            sleep_until(process, &wait, 0)?;
        }
    }

    /// Adds "something is shown, or the terminal's last user has gone".
    fn readable_terms(&self, wait: &mut Wait) -> Result<(), Errno> {
        self.link.read().filled_terms(wait);
        if self.is_used() {
            for (id, role) in self.users() {
                wait.memory(region::attached_address(id, role), Operator::Equal, 0);
            }
            wait.end_term();
        } else {
            // What its last user wrote is on its way.
            let (_, tail) = self.tty().output.pair()?;
            self.tty().writable_terms(wait, tail);
        }
        Ok(())
    }

    /// Types.
    pub fn write(
        &self,
        process: &mut Process,
        description: &Description,
        memory: &mut Memory<'_>,
    ) -> Answer {
        let total = memory.left();
        loop {
            // The terminal server is there with its first turn after the terminal was made.
            let given_up = self.link.is_alone() && self.tty().control()?.hung_up;
            let put = match given_up {
                true => Err(Errno::EIO),
                false => streams::put_piece(&self.link, memory, true),
            };
            let done = total - memory.left();
            match put {
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
                Ok(_) if memory.left() == 0 => return Ok(done),
                Ok(Some(0)) => {}
                Ok(_) => continue,
            }
            if description.nonblocking() {
                return if done > 0 { Ok(done) } else { Err(Errno::EAGAIN) };
            }
            let written = self.link.written();
            let half = written.half()?;
            let mut wait = Wait::new();
            written.read_terms(&half, &mut wait);
            match sleep_until(process, &wait, 0) {
                Err(_) if done > 0 => return Ok(done),
                other => drop(other?),
            }
        }
    }

    /// What of `asked` holds; if nothing, `wait` gets what to wait for.
    pub fn ready(&self, asked: u16, wait: &mut Wait) -> Result<u16, Errno> {
        let (read, written) = (self.link.read(), self.link.written());
        // Looked at first: what was shown last must still be seen.
        let left = self.is_left()?;
        let (shown, typed) = (read.half()?, written.half()?);
        let mut found = 0;
        if shown.head != shown.tail {
            found |= IN_LIKE;
        } else if left {
            found |= raw::POLLHUP as u16;
        }
        if written.is_roomy(&typed) {
            found |= OUT_LIKE;
        }
        if found & asked == 0 {
            self.readable_terms(wait)?;
            if asked & OUT_LIKE != 0 {
                written.roomy_terms(&typed, wait);
            }
        }
        Ok(found & asked)
    }

    /// `ioctl` (ioctl_tty(2)): the master's own requests; others are the terminal's.
    pub fn control(&self, process: &mut Process, request: u32, argument: u64) -> Answer {
        let tty = self.tty();
        match request {
            ioctl::TIOCGPTN => user::write_value(argument, &self.number)?,
            ioctl::TIOCSPTLCK => {
                let locked = user::read_value::<u32>(argument)? != 0;
                tty.change(|control| {
                    control.locked = locked;
                    Ok(())
                })?;
            }
            ioctl::TIOCGPTLCK => {
                user::write_value(argument, &u32::from(tty.control()?.locked))?;
            }
            ioctl::TIOCGPTPEER => {
                let name = (self.number, RegionId(self.entry.control));
                let description = open_slave(process, name, argument as u32)?;
                let close = argument as u32 & raw::O_CLOEXEC != 0;
                let limit = process.limit(raw::RLIMIT_NOFILE);
                return process.files.enter(description, close, 0, limit);
            }
            ioctl::FIONREAD => {
                let read = self.link.read();
                user::write_value(argument, &(read.used(&read.half()?) as u32))?;
            }
            ioctl::TIOCGPGRP => user::write_value(argument, &tty.control()?.foreground)?,
            ioctl::TIOCGSID => user::write_value(argument, &tty.control()?.session)?,
            ioctl::TIOCSPGRP | ioctl::TIOCSCTTY | ioctl::TIOCNOTTY => return Err(Errno::ENOTTY),
            // The master is opened once in any case; the terminal is another thing.
            ioctl::TIOCEXCL | ioctl::TIOCNXCL => {}
            _ => return terminal_control::control_call(process, &tty, request, argument),
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbers_as_they_are_written() {
        assert_eq!(number_of(b"0"), Some(0));
        assert_eq!(number_of(b"12"), Some(12));
        for name in [&b""[..], b"01", b"+1", b"x", b"99999999999"] {
            assert_eq!(number_of(name), None, "{name:?}");
        }
    }
}
