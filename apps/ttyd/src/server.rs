//! All terminals: the console's, and those that programs made (pty(7)).

use abi::error::Error;
use abi::id::RegionId;
use abi::limits::PREDICATE_ATOMS;
use abi::predicate::{Atom, Operator, Source};
use abi::upcall::EVENT_CONSOLE;
use alloc::vec::Vec;
use unix::tty::shared::{Entry, TABLE_SERVER, TERMINALS};
use xok::call::{self, Refused};
use xok::clock;
use xok::services::{self, Service};

use crate::console;
use crate::region::Region;
use crate::scratch::Scratch;
use crate::terminal::Terminal;

/// Nanoseconds between looks where one predicate cannot hold all that is waited for.
const LOOK_NS: u64 = 5_000_000;
/// Atoms that wait for one terminal, at most.
const ATOMS: usize = 8;

/// The terminals.
pub struct Server {
    console: Terminal,
    others: Vec<Terminal>,
    table: Region,
    sequence: u64,
    scratch: Scratch,
    /// What ends a sleep, with the memory for all that terminals may wait for.
    atoms: Vec<Atom>,
}

impl Server {
    /// Opens the console.
    pub fn open() -> Result<Self, Refused> {
        let console = Terminal::console()?;
        let id = RegionId(services::get(Service::Terminals));
        let table = Region { id, role: TABLE_SERVER };
        let none = |_| (Error::Exhausted, 0);
        let mut atoms = Vec::new();
        atoms.try_reserve_exact(1 + ATOMS * (1 + TERMINALS) + TERMINALS).map_err(none)?;
        let scratch = Scratch::new()?;
        Ok(Self { console, others: Vec::new(), table, sequence: 0, scratch, atoms })
    }

    /// Serves for ever.
    pub fn serve(&mut self) -> ! {
        loop {
            xok::upcall::take_events();
            xok::upcall::take_pending_of(xok::beat::ASKED);
            // With each step: programs that always have something to show do not make it hang.
            xok::beat::beat();
            match self.step() {
                Ok(true) => continue,
                Ok(false) => {}
                Err((error, number)) => {
                    xok::log!(console::CONSOLE, "ttyd: {} ({number})", error.name());
                    call::exit(1 << 8);
                }
            }
            // Whatever ends the sleep, the loop looks at everything again.
            let deadline = self.watch();
            let _ = call::sleep(deadline, u64::MAX, EVENT_CONSOLE, 0);
        }
    }

    /// Does a piece of everything; was there anything to do?
    fn step(&mut self) -> Result<bool, Refused> {
        self.scratch.starved = false;
        let mut busy = self.take_new()? | self.console.step(&mut self.scratch)?;
        let (table, scratch) = (self.table, &mut self.scratch);
        self.others.retain_mut(|terminal| {
            // What it shares with its programs may have gone with them: then it has ended, too.
            let lives = match terminal.is_over() {
                true => false,
                false => terminal.step(scratch).map(|more| busy |= more).is_ok(),
            };
            if !lives {
                // A step that failed half-way leaves there what is for this terminal alone.
                scratch.effects.clear();
                terminal.end(table, scratch);
            }
            lives
        });
        let Scratch { hung_up, signals, starved, .. } = &mut self.scratch;
        *starved |= hung_up.step(signals);
        // What the console's user has typed comes first, and what all others have at once.
        Ok(busy | self.scratch.signals.step())
    }

    /// Finds the terminals that were made since the last look.
    fn take_new(&mut self) -> Result<bool, Refused> {
        let mut sequence = [0; 8];
        self.table.read(0, &mut sequence)?;
        let sequence = u64::from_le_bytes(sequence);
        if sequence == self.sequence {
            return Ok(false);
        }
        self.sequence = sequence;
        for number in 0..TERMINALS {
            let mut bytes = [0; Entry::BYTES];
            self.table.read(Entry::offset(number), &mut bytes)?;
            let Some(entry) = Entry::from_bytes(&bytes) else { continue };
            if self.others.iter().any(|terminal| terminal.number() == Some(number)) {
                continue;
            }
            let room = self.others.try_reserve(1).is_ok();
            match Terminal::of_master(number, &entry) {
                Ok(terminal) if room => self.others.push(terminal),
                // There is no memory: it is hung up.
                Ok(mut terminal) => terminal.end(self.table, &mut self.scratch),
                // Its master has been closed again.
                Err(_) => Terminal::end_unseen(self.table, number, &entry, &mut self.scratch),
            }
        }
        Ok(true)
    }

    /// Downloads the predicate: anything to do anywhere. The deadline of a sleep that it does not
    /// cover.
    fn watch(&mut self) -> u64 {
        let atoms = &mut self.atoms;
        atoms.clear();
        atoms.push(Atom {
            operator: Operator::NotEqual as u8,
            left: Source::Region as u8,
            last: 1,
            region: self.table.id.0,
            right_value: self.sequence,
            ..Atom::default()
        });
        let signals = &self.scratch.signals;
        self.console.watch(signals, atoms);
        self.others.iter().for_each(|terminal| terminal.watch(signals, atoms));
        self.scratch.hung_up.watch(atoms);
        // One that waits for memory would find its predicate true at once.
        let whole = if self.scratch.starved { 0 } else { PREDICATE_ATOMS };
        let most = atoms.len().min(whole);
        let set = call::predicate_set(&atoms[..most]).is_ok();
        let look = if set && most == atoms.len() { 0 } else { clock::now_ns() + LOOK_NS };
        clock::earlier(look, signals.due())
    }
}
