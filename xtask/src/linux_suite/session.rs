//! A command on a pseudo-terminal of its own: what it prints, and a way to type to it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

use super::driver::{COLUMNS, ROWS};

/// What the terminal does to the bytes that pass it.
#[derive(Clone, Copy, PartialEq)]
pub enum Line {
    /// A terminal as programs find it after login.
    Cooked,
    /// QEMU's side of a serial line: the terminal that matters is in the guest, and ctrl-A must be
    /// typed twice to pass.
    Raw,
}

/// What QEMU takes as the beginning of an order to itself.
const CTRL_A: u8 = 1;

/// Whether more came.
#[derive(Debug, PartialEq)]
pub enum More {
    /// The stream has grown.
    Bytes,
    /// Nothing came in the time given.
    Silence,
    /// The other side is closed.
    End,
}

/// A running command and everything it has printed.
pub struct Session {
    master: OwnedFd,
    line: Line,
    child: Child,
    /// Everything printed so far.
    pub stream: Vec<u8>,
}

impl Session {
    /// Starts `words` as leader of a session whose terminal is a new pseudo-terminal.
    /// Its standard error goes to `error`, if that is given.
    pub fn start(words: &[String], line: Line, error: Option<File>) -> io::Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(OsStr::from_bytes(name.to_bytes()), flags, Mode::empty())?;
        let size =
            Winsize { ws_row: ROWS as u16, ws_col: COLUMNS as u16, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size)?;
        if line == Line::Raw {
            let mut settings = tcgetattr(&slave)?;
            settings.make_raw();
            // QEMU turns output processing on again; let there be nothing for it to do.
            settings.output_modes = OutputModes::empty();
            tcsetattr(&slave, OptionalActions::Now, &settings)?;
        }
        // Signals that this program was started to ignore (by nohup, or a shell's `&`) would be
        // ignored by the host's shells. `setsid -c` takes the terminal on its standard input as
        // the controlling one.
        let child = Command::new("env")
            .args(["--default-signal", "setsid", "-c"])
            .args(words)
            .stdin(Stdio::from(slave.try_clone()?))
            .stdout(Stdio::from(slave.try_clone()?))
            .stderr(error.map_or(Stdio::from(slave), Stdio::from))
            .spawn()?;
        Ok(Self { master, line, child, stream: Vec::new() })
    }

    /// Waits until something comes, at most `limit`.
    pub fn more(&mut self, limit: Duration) -> io::Result<More> {
        let deadline = Instant::now() + limit;
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut waited = [PollFd::new(&self.master, PollFlags::IN)];
        match poll(&mut waited, Some(&timeout)) {
            Ok(0) => return Ok(More::Silence),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut buffer = [0; 4096];
        match rustix::io::read(&self.master, &mut buffer) {
            Ok(0) => Ok(More::End),
            Ok(count) => {
                self.stream.extend_from_slice(&buffer[..count]);
                Ok(More::Bytes)
            }
            // Linux answers so once the last holder of the other side is gone.
            Err(rustix::io::Errno::IO) => Ok(More::End),
            Err(error) => Err(error.into()),
        }
    }

    /// Types `bytes`.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let times = |byte: u8| if byte == CTRL_A && self.line == Line::Raw { 2 } else { 1 };
        let typed: Vec<u8> =
            bytes.iter().flat_map(|&byte| std::iter::repeat_n(byte, times(byte))).collect();
        let mut left = typed.as_slice();
        while !left.is_empty() {
            let count = rustix::io::write(&self.master, left)?;
            left = &left[count..];
        }
        Ok(())
    }
}

impl Drop for Session {
    /// Ends the command; closing the terminal then hangs up whatever still runs on it.
    fn drop(&mut self) {
        // Either may find the command gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
