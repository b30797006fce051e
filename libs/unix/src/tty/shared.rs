//! What terminal server and programs share: the layouts of a terminal's regions.
//!
//! ```text
//!  input   0 head u64  8 tail u64 (cells ever written, read)   64 cells, 2 bytes each
//!  output  0 head u64  8 tail u64 (bytes ever written, shown)  4096 bytes (a fifo)
//!  control 0 sequence u32 (grows by each change)  4 group that is to go on u32
//!          8 foreground group u32  12 session u32 (state bit 4: of one whose leader has ended)
//!         16 rows u16  18 columns u16  20 width u16  22 height u16 (pixels)
//!         24 termios, 36 bytes  60 flush requests u8[2]: input, output  62 kind u8  63 state u8
//! ```
//! The server writes the input ring's head and, when it flushes, its tail; readers write the tail
//! under compare. The output is a fifo: writers put in and see nothing of what is there, as it may
//! be another user's (mesg(1)). The server looks at it, and takes it out once the console has it.
//! All change the control region under compare of the sequence.
//!
//! Which pseudo-terminals there are is in a table, one region of init's:
//!
//! ```text
//!  0 sequence u64 (grows by each one made)   64 entries, 40 bytes each:
//!    0 1: there is one   8 input   16 output   24 control   32 master   (regions)
//! ```
//! The file server makes them and fills entries, the terminal server empties them. A master is end
//! 0 of a connection (`crate::local`), the server end 1: typed bytes go one way, shown ones the
//! other.

use super::termios::{TERMIOS_BYTES, Termios};
use crate::Errno;
use crate::ring::Ring;

/// The input ring, counted in cells of two bytes.
pub const INPUT_CELLS: u64 = 4096;
/// Its counters; what lies at `data` are cells.
pub const INPUT: Ring = Ring { data: INPUT_DATA, capacity: INPUT_CELLS };
/// Byte offset of the first cell.
pub const INPUT_DATA: u64 = 64;
/// Frames of the input region.
pub const INPUT_FRAMES: usize = 3;
/// The output ring, in bytes.
pub const OUTPUT: Ring = Ring { data: 4096, capacity: (OUTPUT_FRAMES as u64 - 1) * 4096 };
/// Frames of the output region: one of words, a power of two of data.
pub const OUTPUT_FRAMES: usize = 5;
/// Role in which the server attaches to the input region.
pub const INPUT_SERVER: u16 = 0;
/// Role in which programs attach to the input region.
pub const INPUT_PROGRAM: u16 = 1;
/// Role in which programs attach to an output region that may write to the terminal.
pub const OUTPUT_PROGRAM: u16 = 0;
/// Role in which the server attaches to an output region.
pub const OUTPUT_SERVER: u16 = 1;
/// Role in which the server looks at what it has not taken out yet.
pub const OUTPUT_LOOKER: u16 = 2;
/// Role in which all attach to the control region.
pub const CONTROL_ROLE: u16 = 0;
/// Role in which a program attaches to it that may only write to the terminal: it looks.
pub const CONTROL_READER: u16 = 2;
/// Bytes of the control region.
pub const CONTROL_BYTES: usize = 64;
/// Offset of the sequence word.
pub const SEQUENCE: u64 = 0;

const _: () = assert!(INPUT_DATA + 2 * INPUT_CELLS <= INPUT_FRAMES as u64 * 4096);
const _: () = assert!(OUTPUT.capacity.is_power_of_two());

/// Pseudo-terminals at a time.
pub const TERMINALS: usize = 64;
/// Role in which the servers write to the table.
pub const TABLE_SERVER: u16 = 0;

/// The regions of a pseudo-terminal, as the table has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Cooked cells, for programs to read; 0, as a program has the terminal that may only write.
    pub input: u64,
    /// What programs write; 0, as a program has the terminal that may only read.
    pub output: u64,
    /// Settings.
    pub control: u64,
    /// Between master and server.
    pub master: u64,
}

impl Entry {
    /// Bytes of it.
    pub const BYTES: usize = 40;

    /// Where entry `number` is.
    pub const fn offset(number: usize) -> u64 {
        (64 + number % TERMINALS * Self::BYTES) as u64
    }

    /// Reads its bytes; `None`: there is no such terminal.
    pub fn from_bytes(bytes: &[u8; Entry::BYTES]) -> Option<Self> {
        let mut words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        let there = words.next()? != 0;
        let entry = Self::from_words([words.next()?, words.next()?, words.next()?, words.next()?]);
        there.then_some(entry)
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; Entry::BYTES] {
        let mut bytes = [0; Entry::BYTES];
        let words = [1].into_iter().chain(self.to_words());
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    /// Its words behind the first one.
    pub fn to_words(&self) -> [u64; 4] {
        [self.input, self.output, self.control, self.master]
    }

    /// Reads them.
    pub fn from_words([input, output, control, master]: [u64; 4]) -> Self {
        Self { input, output, control, master }
    }
}

/// `struct winsize`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
    /// Pixels across, or 0.
    pub width: u16,
    /// Pixels down, or 0.
    pub height: u16,
}

impl WindowSize {
    /// As `TIOCSWINSZ` takes it.
    pub fn from_bytes(bytes: &[u8; 8]) -> Self {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Self { rows: half(0), columns: half(2), width: half(4), height: half(6) }
    }

    /// As `TIOCGWINSZ` gives it.
    pub fn to_bytes(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        for (at, half) in [self.rows, self.columns, self.width, self.height].iter().enumerate() {
            bytes[at * 2..at * 2 + 2].copy_from_slice(&half.to_le_bytes());
        }
        bytes
    }
}

/// The control region, decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Grows by one with each change.
    pub sequence: u32,
    /// A group of the session that a process of it wants to continue (kill(2), SIGCONT), though its
    /// processes are another user's; 0: none. The terminal server does it.
    pub goes_on: u32,
    /// Process group in the foreground; 0: none.
    pub foreground: u32,
    /// Session that the terminal controls; 0: none.
    pub session: u32,
    /// Size of the screen.
    pub size: WindowSize,
    /// Settings.
    pub termios: Termios,
    /// Counts requests to throw unread input away.
    pub flush_input: u8,
    /// Counts requests to throw unshown output away.
    pub flush_output: u8,
    /// Non-zero: not a terminal but raw byte streams (the machine runs one program).
    pub streams: bool,
    /// A pseudo-terminal that may not be opened yet (`TIOCSPTLCK`).
    pub locked: bool,
    /// A pseudo-terminal whose master has gone.
    pub hung_up: bool,
    /// A pseudo-terminal that was opened once.
    pub opened: bool,
    /// User 0 alone opens it (`TIOCEXCL`).
    pub exclusive: bool,
    /// The session whose leader has ended, and its foreground then, until another one has the
    /// terminal: the terminal server hangs that up, as its processes may be another user's. In the
    /// place of the two above, which are 0 then.
    pub left: (u32, u32),
}

impl Control {
    /// Reads the region's bytes.
    pub fn from_bytes(bytes: &[u8; CONTROL_BYTES]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mut size = [0; 8];
        size.copy_from_slice(&bytes[16..24]);
        let mut termios = [0; TERMIOS_BYTES];
        termios.copy_from_slice(&bytes[24..60]);
        let (both, none) = ((word(12), word(8)), (0, 0));
        let has_left = bytes[63] & 16 != 0;
        let ((session, foreground), left) = if has_left { (none, both) } else { (both, none) };
        Self {
            sequence: word(0),
            goes_on: word(4),
            foreground,
            session,
            size: WindowSize::from_bytes(&size),
            termios: Termios::from_bytes(&termios),
            flush_input: bytes[60],
            flush_output: bytes[61],
            streams: bytes[62] != 0,
            locked: bytes[63] & 1 != 0,
            hung_up: bytes[63] & 2 != 0,
            opened: bytes[63] & 4 != 0,
            exclusive: bytes[63] & 8 != 0,
            left,
        }
    }

    /// May a process with this effective user open the terminal?
    pub fn check_open(&self, user: u32) -> Result<(), Errno> {
        if self.exclusive && user != 0 { Err(Errno::EBUSY) } else { Ok(()) }
    }

    /// The first word, which each change changes.
    pub fn version(&self) -> u64 {
        u64::from(self.sequence) | u64::from(self.goes_on) << 32
    }

    /// Writes the region's bytes.
    pub fn to_bytes(&self) -> [u8; CONTROL_BYTES] {
        let mut bytes = [0; CONTROL_BYTES];
        bytes[0..8].copy_from_slice(&self.version().to_le_bytes());
        let has_left = self.session == 0 && self.left.0 != 0;
        let (session, foreground) =
            if has_left { self.left } else { (self.session, self.foreground) };
        bytes[8..12].copy_from_slice(&foreground.to_le_bytes());
        bytes[12..16].copy_from_slice(&session.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_bytes());
        bytes[24..60].copy_from_slice(&self.termios.to_bytes());
        bytes[60] = self.flush_input;
        bytes[61] = self.flush_output;
        bytes[62] = u8::from(self.streams);
        let states = [self.locked, self.hung_up, self.opened, self.exclusive, has_left];
        bytes[63] = states.iter().rev().fold(0, |all, &state| all << 1 | u8::from(state));
        bytes
    }
}
