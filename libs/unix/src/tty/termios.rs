//! Terminal settings in the kernel's form (`struct termios` of `TCGETS`, termios(3)).

use linux_raw_sys::general as raw;

/// Bytes of the settings as `TCGETS` writes them.
pub const TERMIOS_BYTES: usize = 36;
/// Bytes of the settings as `TCGETS2` writes them: the speeds for reading and writing follow.
pub const TERMIOS2_BYTES: usize = 44;
/// Speeds of `B0` to `B38400` and, from `CBAUDEX` + 1 on, `B57600` to `B4000000`.
const SPEEDS: [[u32; 16]; 2] = [
    [0, 50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19_200, 38_400],
    [
        0, 57_600, 115_200, 230_400, 460_800, 500_000, 576_000, 921_600, 1_000_000, 1_152_000,
        1_500_000, 2_000_000, 2_500_000, 3_000_000, 3_500_000, 4_000_000,
    ],
];
/// A control character that is switched off (`_POSIX_VDISABLE`).
pub const DISABLED: u8 = 0;

/// Flags and control characters of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Termios {
    /// Input modes.
    pub input: u32,
    /// Output modes.
    pub output: u32,
    /// Control modes: speed, character size.
    pub control: u32,
    /// Local modes.
    pub local: u32,
    /// Number of the line discipline; always 0.
    pub line: u8,
    /// Control characters by `V…` index.
    pub characters: [u8; raw::NCCS as usize],
}

impl Default for Termios {
    /// What Linux's `tty_std_termios` is.
    fn default() -> Self {
        let mut characters = [DISABLED; raw::NCCS as usize];
        for (index, value) in [
            (raw::VINTR, 3),
            (raw::VQUIT, 28),
            (raw::VERASE, 127),
            (raw::VKILL, 21),
            (raw::VEOF, 4),
            (raw::VMIN, 1),
            (raw::VSTART, 17),
            (raw::VSTOP, 19),
            (raw::VSUSP, 26),
            (raw::VREPRINT, 18),
            (raw::VDISCARD, 15),
            (raw::VWERASE, 23),
            (raw::VLNEXT, 22),
        ] {
            characters[index as usize] = value;
        }
        let local = raw::ISIG
            | raw::ICANON
            | raw::ECHO
            | raw::ECHOE
            | raw::ECHOK
            | raw::ECHOCTL
            | raw::ECHOKE
            | raw::IEXTEN;
        Self {
            input: raw::ICRNL | raw::IXON,
            output: raw::OPOST | raw::ONLCR,
            control: raw::B38400 | raw::CS8 | raw::CREAD | raw::HUPCL,
            local,
            line: 0,
            characters,
        }
    }
}

impl Termios {
    /// Reads the form that `TCSETS` takes.
    pub fn from_bytes(bytes: &[u8; TERMIOS_BYTES]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mut characters = [0; raw::NCCS as usize];
        characters.copy_from_slice(&bytes[17..36]);
        let (input, output, control, local) = (word(0), word(4), word(8), word(12));
        Self { input, output, control, local, line: bytes[16], characters }
    }

    /// Writes the form that `TCGETS` gives.
    pub fn to_bytes(&self) -> [u8; TERMIOS_BYTES] {
        let mut bytes = [0; TERMIOS_BYTES];
        bytes[0..4].copy_from_slice(&self.input.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.output.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.control.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.local.to_le_bytes());
        bytes[16] = self.line;
        bytes[17..36].copy_from_slice(&self.characters);
        bytes
    }

    /// Reads the form that `TCSETS2` takes. Of a speed that has no name (`BOTHER`) the nearest one
    /// that has is kept, for reading, too: nothing goes by it.
    pub fn from_bytes2(bytes: &[u8; TERMIOS2_BYTES]) -> Self {
        let (first, speeds) = bytes.split_at(TERMIOS_BYTES);
        let mut settings = [0; TERMIOS_BYTES];
        settings.copy_from_slice(first);
        let mut settings = Self::from_bytes(&settings);
        if settings.control & raw::CBAUD == raw::BOTHER {
            let asked = u32::from_le_bytes([speeds[4], speeds[5], speeds[6], speeds[7]]);
            settings.control = settings.control & !(raw::CBAUD | raw::CIBAUD) | named(asked);
        }
        settings
    }

    /// Writes the form that `TCGETS2` gives.
    pub fn to_bytes2(&self) -> [u8; TERMIOS2_BYTES] {
        let mut bytes = [0; TERMIOS2_BYTES];
        bytes[..TERMIOS_BYTES].copy_from_slice(&self.to_bytes());
        let writes = self.control & raw::CBAUD;
        let reads = self.control >> raw::IBSHIFT & raw::CBAUD;
        let reads = if reads == 0 { writes } else { reads };
        bytes[36..40].copy_from_slice(&speed(reads).to_le_bytes());
        bytes[40..44].copy_from_slice(&speed(writes).to_le_bytes());
        bytes
    }

    /// Is a local mode on?
    pub fn local(&self, flag: u32) -> bool {
        self.local & flag != 0
    }

    /// Is an input mode on?
    pub fn input(&self, flag: u32) -> bool {
        self.input & flag != 0
    }

    /// Is an output mode on?
    pub fn output(&self, flag: u32) -> bool {
        self.output & flag != 0
    }

    /// Are whole lines read, with editing?
    pub fn canonical(&self) -> bool {
        self.local(raw::ICANON)
    }

    /// Is `byte` the control character of this index, and is that one switched on?
    pub fn is(&self, index: u32, byte: u8) -> bool {
        byte != DISABLED && self.characters[index as usize] == byte
    }
}

/// The speed that is called so.
fn speed(name: u32) -> u32 {
    SPEEDS[usize::from(name & raw::CBAUDEX != 0)][(name & 15) as usize]
}

/// The name of the speed that is nearest.
fn named(asked: u32) -> u32 {
    let names = (0..16).chain(raw::CBAUDEX + 1..raw::CBAUDEX + 16);
    names.min_by_key(|&name| speed(name).abs_diff(asked)).unwrap_or(0)
}
