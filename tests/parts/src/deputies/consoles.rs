//! Terminals: whoever shares one types there no more than on Linux.

use super::{NOBODY, failed, look, operate, store};
use crate::peers::regions;
use crate::terminals::{LOCK, NUMBER};
use crate::{Seen, Test, expect, libc};
use abi::region::{RegionOperation, WordAt};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;
use xok::services::{self, Service};

/// What holds.
pub const TESTS: [Test; 2] = [
    ("nobody_types_at_the_console", nobody_types_at_the_console),
    ("writers_to_a_terminal_do_not_type", writers_to_a_terminal_do_not_type),
];

/// Who has no terminal types nothing at the console: a shell of user 0's would do it.
fn nobody_types_at_the_console(door: door::Door) -> Seen {
    const TYPED: &[u8] = b"poweroff\n";
    /// `unix::tty::shared`: where cells are, how many.
    const CELLS: (u64, u64) = (64, 4096);
    let status = libc::wait(libc::spawn(|| {
        // Nothing of the terminal is left to it.
        libc::silence();
        if !libc::lead_session() || !libc::become_user(NOBODY) {
            return 1;
        }
        let region = services::get(Service::TerminalInput);
        let cells: Vec<u8> = TYPED.iter().flat_map(|&byte| [byte, 0]).collect();
        for role in 0..2 {
            let Some(counters) = look(door, region, role, 8, 8) else { continue };
            let tail = counters.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let mut operation = RegionOperation {
                region,
                role,
                writes: 1,
                direction: abi::region::COPY_IN,
                address: cells.as_ptr() as u64,
                offset: CELLS.0 + 2 * (tail % CELLS.1),
                len: cells.len() as u32,
                ..Default::default()
            };
            operation.write[0] = WordAt { offset: 0, value: tail + TYPED.len() as u64 };
            operate(door, &operation);
        }
        0
    }));
    let mut bytes = [0; 64];
    libc::set_waits(0, false);
    let got = libc::read(0, &mut bytes);
    libc::set_waits(0, true);
    let typed = bytes.windows(TYPED.len()).any(|part| part == TYPED);
    expect(status == 0 && !typed, || {
        format!("status {status:#x}; user 0 reads {got} bytes, typed by nobody: {typed}")
    })?;
    Ok(String::new())
}

/// Who may write to a terminal (mesg(1)) neither types there nor reads what is typed.
fn writers_to_a_terminal_do_not_type(door: door::Door) -> Seen {
    use std::os::unix::fs::OpenOptionsExt;
    const CELLS: u64 = 64;
    let before = regions();
    let open = |path: &str| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(0o400).open(path).map_err(failed)
    };
    let mut master = open("/dev/ptmx")?;
    libc::control(master.as_raw_fd(), LOCK, 0).ok_or("locked")?;
    let number = libc::control(master.as_raw_fd(), NUMBER, 0).ok_or("no number")?;
    let path = format!("/dev/pts/{number}");
    let mut slave = open(&path)?;
    libc::set_mode(&path, 0o622);
    let fresh: Vec<u64> = regions().difference(&before).copied().collect();
    master.write_all(b"secret\n").map_err(failed)?;
    let status = libc::wait(libc::spawn(|| {
        libc::silence();
        if !libc::become_user(NOBODY) {
            return 1;
        }
        let options = OpenOptions::new().write(true).custom_flags(0o400).open(&path);
        let (Ok(_terminal), Err(_)) = (options, File::open(&path)) else { return 2 };
        let mut done = 0;
        // The server takes what was typed meanwhile.
        std::thread::sleep(Duration::from_millis(300));
        for &region in &fresh {
            let cells = look(door, region, 1, CELLS, 12);
            let secret: Vec<u8> = b"secret".iter().flat_map(|&byte| [byte, 0]).collect();
            if cells.is_some_and(|cells| cells == secret) {
                done |= 16;
                let first = WordAt { offset: CELLS, value: 0x0065_0072_0065_0068 };
                done |= 32 * i32::from(store(door, region, first));
            }
        }
        done
    }));
    let mut line = [0; 7];
    slave.read_exact(&mut line).map_err(failed)?;
    let line = String::from_utf8_lossy(&line).into_owned();
    expect(status == 0 && line == "secret\n", || {
        format!("status {status:#x} (0x1000: it read, 0x2000: it typed); user 0 reads {line:?}")
    })?;
    Ok(String::new())
}
