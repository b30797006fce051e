//! Descriptors whose methods are the program's, used by code that knows nothing of it.

use crate::{Seen, expect, libc};
use door::parts::File;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Lines that a descriptor has.
const LINES: u64 = 500;
/// Most bytes that a read gives at once.
const AT_ONCE: usize = 100;

static READS: AtomicU64 = AtomicU64::new(0);
static CLOSES: AtomicU64 = AtomicU64::new(0);
static READY: AtomicU64 = AtomicU64::new(0);
static CHILD: AtomicU64 = AtomicU64::new(0);
static SIGNALS: AtomicU64 = AtomicU64::new(0);

fn line(number: u64) -> String {
    format!("line {number} of {LINES}, {}", number * number)
}

fn all_lines() -> Vec<String> {
    (0..LINES).map(line).collect()
}

/// Gives the lines one after the other, in pieces; where it is stands in the word at `data`.
extern "C" fn read_lines(data: u64, at: *mut u8, len: usize) -> i64 {
    libc::count(&READS);
    libc::spoil_register();
    let position = &libc::words(data, 1)[0];
    let done = position.load(Ordering::Relaxed) as usize;
    // All of it anew each time, by a heap and a formatter, as a program would.
    let mut text = String::new();
    for number in 0..LINES {
        let _ = writeln!(text, "{}", line(number));
    }
    let piece = &text.as_bytes()[done..];
    let count = piece.len().min(len).min(AT_ONCE);
    libc::transferred(at, count).copy_from_slice(&piece[..count]);
    position.store((done + count) as u64, Ordering::Relaxed);
    count as i64
}

extern "C" fn close(_: u64) -> i64 {
    libc::count(&CLOSES);
    0
}

fn open(file: &File<'static>, data: u64, flags: u32) -> Result<OwnedFd, String> {
    let fd = file.open(data, flags).map_err(|error| format!("no descriptor: error {error}"))?;
    Ok(libc::descriptor(fd))
}

/// xok97 T24: a program's own `read` method serves Rust's buffered reader, its copying, C's
/// streams, and a fork child; vector registers are kept over the call.
pub fn own_read_method(_: door::Door) -> Seen {
    let file = File { read: Some(read_lines), ..File::default() };
    let open = || {
        let data = libc::shared(1);
        open(&file, data, 0).map(|fd| (data, std::fs::File::from(fd)))
    };
    let (_, own) = open()?;
    let lines: Result<Vec<String>, _> = BufReader::new(own).lines().collect();
    let lines = lines.map_err(|error| format!("lines: {error}"))?;
    expect(lines == all_lines(), || format!("{} lines by Rust", lines.len()))?;
    let pieces = READS.load(Ordering::Relaxed);
    let (_, mut own) = open()?;
    let mut copied = Vec::new();
    std::io::copy(&mut own, &mut copied).map_err(|error| format!("copy: {error}"))?;
    let whole = all_lines().join("\n") + "\n";
    expect(copied == whole.as_bytes(), || format!("{} bytes copied", copied.len()))?;
    let (_, own) = open()?;
    let lines = libc::lines(own.into_raw_fd());
    expect(lines == all_lines(), || format!("{} lines by C", lines.len()))?;
    // A child has the descriptor and the functions; where it was read to is shared memory.
    let (_, mut own) = open()?;
    let mut first = [0; 40];
    own.read_exact(&mut first).map_err(|error| format!("read_exact: {error}"))?;
    let child = libc::spawn(|| {
        let mut rest = Vec::new();
        let done = own.read_to_end(&mut rest).is_ok();
        i32::from(!(done && rest == whole.as_bytes()[40..]))
    });
    let status = libc::wait(child);
    expect(status == 0, || format!("the child's status: {status:#x}"))?;
    expect(own.read(&mut first).is_ok_and(|count| count == 0), || "more than all".into())?;
    let (_, own) = open()?;
    let (count, kept) = libc::read_keeping(own.as_raw_fd(), &mut first);
    expect(count == 40 && kept, || format!("read {count}, vector register kept: {kept}"))?;
    Ok(format!("({} bytes in {pieces} reads)", whole.len()))
}

/// Takes what is written, in the order in which it comes, into the pipe that `data` names.
extern "C" fn write_through(data: u64, at: *mut u8, len: usize) -> i64 {
    let mut pipe = std::mem::ManuallyDrop::new(std::fs::File::from(libc::descriptor(data as i32)));
    match pipe.write(libc::transferred(at, len.min(AT_ONCE))) {
        Ok(count) => count as i64,
        Err(error) => -i64::from(error.raw_os_error().unwrap_or(5)),
    }
}

/// A program's own `write` makes calls itself; a thread sleeps in poll(2) on a word of the
/// program's; the last close(2) is told.
pub fn own_methods_write_wait_and_close(_: door::Door) -> Seen {
    let (mut from, to) = std::io::pipe().map_err(|error| format!("pipe: {error}"))?;
    let methods = File {
        write: Some(write_through),
        close: Some(close),
        ready: Some(&READY),
        ..File::default()
    };
    let own = open(&methods, to.as_raw_fd() as u64, 2)?;
    let mut own = std::fs::File::from(own);
    let text = all_lines().concat();
    own.write_all(text.as_bytes()).map_err(|error| format!("write_all: {error}"))?;
    let mut got = vec![0; text.len()];
    from.read_exact(&mut got).map_err(|error| format!("read back: {error}"))?;
    expect(got == text.as_bytes(), || "what was written is not what arrived".into())?;
    expect(own.read(&mut got).is_err(), || "read without such a method".into())?;
    expect(libc::wait_for(own.as_raw_fd(), libc::POLLIN, 0) == 0, || "ready too early".into())?;
    let sleeper = own.as_raw_fd();
    let waiter = std::thread::spawn(move || libc::wait_for(sleeper, libc::POLLIN, -1));
    std::thread::sleep(Duration::from_millis(30));
    READY.store(libc::POLLIN as u64, Ordering::Release);
    let found = waiter.join().unwrap_or(-1);
    expect(found == libc::POLLIN, || format!("poll(2) found {found}"))?;
    let other = own.try_clone().map_err(|error| format!("dup: {error}"))?;
    drop(own);
    let early = CLOSES.load(Ordering::Relaxed);
    drop(other);
    let closes = CLOSES.load(Ordering::Relaxed);
    expect((early, closes) == (0, 1), || format!("closed {early}, then {closes} times"))?;
    Ok(format!("({} bytes)", text.len()))
}

extern "C" fn note_signal(_: i32) {
    libc::count(&SIGNALS);
}

/// Is signalled twice in the middle of a read: by its own kill(2), which does not return before one
/// of the signals waiting has come (POSIX), and by a child while it makes no call at all. One that
/// does not come is answered, not waited for: `-`.
extern "C" fn read_interrupted(own: u64, at: *mut u8, len: usize) -> i64 {
    libc::send(own as i32, 10);
    let mut seen = if SIGNALS.load(Ordering::Acquire) == 1 { b'1' } else { b'-' };
    if seen == b'1' {
        let child = libc::spawn(|| {
            libc::send(own as i32, 10);
            0
        });
        CHILD.store(child as u64, Ordering::Release);
        while SIGNALS.load(Ordering::Acquire) < 2 {
            std::hint::spin_loop();
        }
        seen = b'2';
    }
    libc::transferred(at, len.min(1)).fill(seen);
    1
}

/// A signal comes while a method runs: its handler runs at once, and the method goes on.
pub fn own_methods_are_interrupted(_: door::Door) -> Seen {
    libc::handle(10, note_signal);
    let methods = File { read: Some(read_interrupted), ..File::default() };
    let own = open(&methods, std::process::id().into(), 0)?;
    let mut byte = [0];
    let count = std::fs::File::from(own).read(&mut byte).map_err(|error| error.to_string())?;
    let signals = SIGNALS.load(Ordering::Relaxed);
    expect((count, byte[0], signals) == (1, b'2', 2), || {
        format!("read {count}, {:?} seen by the method, {signals} signals", char::from(byte[0]))
    })?;
    let status = libc::wait(CHILD.load(Ordering::Acquire) as i32);
    expect(status == 0, || format!("the child's status: {status:#x}"))?;
    Ok(String::new())
}
