//! What the terminals' steps share: memory from the beginning, and what is to be told.

use abi::error::Error;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use unix::process_page::Mark;
use unix::tty::line::Effects;
use xok::call::Refused;

use crate::foreground::Signals;
use crate::hung_up::HungUps;

/// Bytes handled between two looks at the other directions.
pub const CHUNK: usize = 1024;

/// What a step works in, whose terminal it may be: its memory is there from the beginning.
pub struct Scratch {
    /// What bytes and settings have brought about at the terminal whose step it is, not yet done.
    pub effects: Effects,
    /// A piece of output as the terminal shows it: a tab may be eight spaces.
    pub screen: Vec<u8>,
    /// Signals that were typed and have to be told.
    pub signals: Signals,
    /// Sessions that have lost their terminal, and whose foreground has not been told.
    pub hung_up: HungUps,
    /// Had a terminal to wait for memory? Then it looks again some time.
    pub starved: bool,
}

impl Scratch {
    /// With all the memory that a step takes.
    pub fn new() -> Result<Self, Refused> {
        let none = |_: TryReserveError| (Error::Exhausted, 0);
        let mut screen = Vec::new();
        screen.try_reserve_exact(8 * CHUNK).map_err(none)?;
        let effects = Effects::with_room().map_err(none)?;
        let (signals, hung_up) = (Signals::new()?, HungUps::new()?);
        Ok(Self { effects, screen, signals, hung_up, starved: false })
    }

    /// A session has lost a terminal that has gone, with this group in its foreground.
    pub fn lose(&mut self, mark: Mark, group: (u32, u32), closed: bool) {
        self.hung_up.add(mark, group, closed);
    }
}
