//! Room for what a user writes: what the user has removed is free, if not at once.

use super::{NOBODY, ask, failed, say_held};
use crate::{Seen, Test, expect, libc};
use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use unix::process_page::HELD_ANY;
use unix::protocol::Operation;

/// What holds.
pub const TESTS: [Test; 1] = [("removed_files_make_room", removed_files_make_room)];

const PLACE: &str = "/tmp/deputies-room";
/// Bytes written at a time.
const PIECE: u64 = 1 << 20;

/// While a process of a user makes a file, no file of that user's ends that has lost its names. A
/// write that finds no room then waits until they have.
fn removed_files_make_room(door: door::Door) -> Seen {
    // The first file makes the way to the server.
    fs::write(PLACE, b"").and_then(|()| fs::remove_file(PLACE)).map_err(failed)?;
    let [blocks, ..] = ask(door, 0, Operation::Space, [0; 4]).map_err(|errno| errno.to_string())?;
    // A user may have half of all: two files of nine twentieths have no room beside each other.
    let size = blocks * 4096 / 20 * 9;
    let words = libc::words(libc::shared(1), 2);
    let [making, written] = words else { return Err("no words".into()) };
    let maker = libc::spawn(|| make(making, written, blocks * 4096 / 2 - size));
    while making.load(Ordering::SeqCst) == 0 && libc::is_alive(maker) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let writer = libc::spawn(|| {
        let wrote = libc::become_user(NOBODY) && write_twice(size, written).is_ok();
        i32::from(!wrote)
    });
    let status = libc::wait(writer);
    // It waits for what the writer has not come to.
    written.store(u64::MAX, Ordering::SeqCst);
    let made = libc::wait(maker);
    let _ = fs::remove_file(PLACE);
    let ended = || format!("the maker ended with {made}, the writer with {status}");
    expect(made == 0 && status == 0, ended)?;
    Ok(String::new())
}

/// Says in its page that it makes a file, until so many bytes of the second file are written, and
/// for a little longer: then the room is used up.
fn make(making: &AtomicU64, written: &AtomicU64, last: u64) -> i32 {
    if !libc::become_user(NOBODY) || fs::metadata("/tmp").is_err() {
        return 1;
    }
    // The server looks into the page of one that has made a file.
    let own = format!("{PLACE}-{}", std::process::id());
    if File::create(&own).and_then(|_| fs::remove_file(&own)).is_err() {
        return 2;
    }
    say_held(HELD_ANY);
    making.store(1, Ordering::SeqCst);
    while written.load(Ordering::SeqCst).saturating_add(2 * PIECE) < last {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    say_held(0);
    0
}

/// Fills a file, removes it, and fills it anew.
fn write_twice(size: u64, written: &AtomicU64) -> std::io::Result<()> {
    let piece = vec![1; PIECE as usize];
    fill(size, &piece, |_| {})?;
    fs::remove_file(PLACE)?;
    fill(size, &piece, |bytes| written.store(bytes, Ordering::SeqCst))
}

fn fill(size: u64, piece: &[u8], tell: impl Fn(u64)) -> std::io::Result<()> {
    let mut file = File::create(PLACE)?;
    for at in 1..=size / PIECE {
        file.write_all(piece)?;
        tell(at * PIECE);
    }
    Ok(())
}
