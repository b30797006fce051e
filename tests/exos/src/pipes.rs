//! Pipes between processes of which one is killed at any moment.

use crate::linux;

/// Bytes of one write: less than `PIPE_BUF`, and no divisor of what a pipe holds, so that many
/// reach around the ring's end.
const RECORD: usize = 1000;
/// Writers killed.
const ROUNDS: u64 = 24;
/// SIGKILL
const KILL: u64 = 9;

/// What a test saw: numbers, or what is wrong with them.
type Seen = Result<[u64; 3], (&'static str, [u64; 3])>;

fn byte_at(position: u64) -> u8 {
    (position % 251) as u8
}

fn write_for_ever(end: u64) -> ! {
    let mut position = 0;
    loop {
        let mut record = [0; RECORD];
        for (at, byte) in record.iter_mut().enumerate() {
            *byte = byte_at(position + at as u64);
        }
        if linux::write(end, &record) != RECORD as i64 {
            linux::exit(1);
        }
        position += RECORD as u64;
    }
}

/// xok97 EX-8: a writer that is killed at any moment, in the middle of a write too, leaves whole
/// records behind it and then the end of the file; the reader neither hangs nor sees others' bytes.
pub fn killed_writer_is_an_end() -> Seen {
    let mut total = 0;
    let mut most = 0;
    for round in 0..ROUNDS {
        let Some((from, to)) = linux::pipe() else { return Err(("no pipe", [round, 0, 0])) };
        let child = linux::fork();
        if child == 0 {
            linux::close(from);
            write_for_ever(to);
        }
        linux::close(to);
        // Each round a little later, so that the kill comes at another place of the write.
        let enough = 3_000 + round * 7_919;
        let mut position = 0;
        let mut killed = false;
        loop {
            let mut bytes = [0; 777];
            let count = linux::read(from, &mut bytes);
            if count <= 0 {
                if count < 0 || !killed {
                    return Err(("the end came early", [round, position, count as u64]));
                }
                break;
            }
            for (at, &byte) in bytes[..count as usize].iter().enumerate() {
                if byte != byte_at(position + at as u64) {
                    return Err(("another byte", [round, position + at as u64, byte.into()]));
                }
            }
            position += count as u64;
            if !killed && position > enough {
                linux::kill(child, KILL);
                killed = true;
            }
        }
        linux::close(from);
        let status = linux::wait(child);
        if !position.is_multiple_of(RECORD as u64) || u64::from(status) != KILL {
            return Err(("a record is torn", [round, position, status.into()]));
        }
        total += position;
        most = most.max(position);
    }
    Ok([ROUNDS, total, most])
}

/// xok97 EX-8, the other way round: a writer whose reader is killed gets `EPIPE`, waiting or not.
pub fn killed_reader_breaks_the_pipe() -> Seen {
    for round in 0..ROUNDS {
        let Some((from, to)) = linux::pipe() else { return Err(("no pipe", [round, 0, 0])) };
        let child = linux::fork();
        if child == 0 {
            linux::close(to);
            let mut bytes = [0; 100];
            for _ in 0..round {
                linux::read(from, &mut bytes);
            }
            // The writer fills the pipe and waits for room.
            linux::kill(linux::pid() as i64, KILL);
        }
        linux::close(from);
        linux::ignore(13);
        let mut written = 0;
        let broken = loop {
            let count = linux::write(to, &[7; RECORD]);
            if count != RECORD as i64 {
                break count;
            }
            written += count as u64;
        };
        linux::close(to);
        linux::wait(child);
        if broken != -32 {
            return Err(("no EPIPE", [round, written, broken as u64]));
        }
    }
    Ok([ROUNDS, 0, 0])
}
