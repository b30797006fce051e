//! Pages of a file that a client has entered in its own space as often as it could, and then cut.

use super::files::{PLACE, prepare, write_again};
use super::{Measured, PATIENCE};
use crate::deputies::{NOBODY, ask_by, node_of};
use crate::{expect, forgers, libc};
use abi::call::Call;
use abi::id::DomainId;
use abi::memory::{ANY_FRAME, Item, NO_EXECUTE, Operation as Change, from_source};
use abi::word::UserAddress;
use std::fs::{self, OpenOptions};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use unix::protocol::{Operation, SHOWN_PAGES};
use xok::services::{self, Service};

/// Entries: some, and as many as there is memory for.
const COUNTS: [u64; 2] = [100_352, 8_000_000];
/// Fewer than these are not many.
const MANY: u64 = 2_000_000;
/// Another user's answers meanwhile.
const ANSWERS: usize = 40;
/// Tables that are given back when there is no memory for more.
const SPARE: usize = 64;
/// Entries of a table, and the bytes that it maps.
const TABLE: u64 = 512;
const SPAN: u64 = TABLE * 4096;

/// Another user's writes of one byte while the file is cut, whose pages come back.
pub fn all(door: door::Door) -> Measured {
    prepare()?;
    let kept = format!("{PLACE}/kept");
    fs::write(&kept, "precious").map_err(|why| why.to_string())?;
    let server = services::get(Service::Files);
    let mut measured = Vec::new();
    let mut most = 0;
    for count in COUNTS {
        let (entries, worst) = beside(door, count)?;
        measured.push((format!("beside {entries} entries"), worst));
        most = entries.max(most);
    }
    expect(most > MANY, || format!("{most} entries only"))?;
    let stays = fs::read_to_string(&kept).is_ok_and(|text| text == "precious");
    expect(stays, || "user 0's file has gone".into())?;
    expect(services::get(Service::Files) == server, || "another server".into())?;
    Ok(measured)
}

/// Pages that are free in the file system.
fn free(door: door::Door, region: u32) -> u64 {
    ask_by(door, region, 0, Operation::Space, [0; 4]).map_or(0, |[_, free, ..]| free)
}

/// Waits until so many pages are free.
fn wait_for(door: door::Door, region: u32, pages: u64) -> Result<(), String> {
    let begun = Instant::now();
    while free(door, region) < pages {
        let left = begun.elapsed() < Duration::from_millis(PATIENCE as u64);
        expect(left, || format!("{} pages are free, not {pages}", free(door, region)))?;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// How many entries there were, and for how long another user waited at most.
fn beside(door: door::Door, most: u64) -> Result<(u64, u64), String> {
    let words = libc::words(libc::shared(1), 2);
    let attacker = libc::spawn(|| enter_and_cut(door, most, words).unwrap_or(1));
    while words[0].load(Ordering::SeqCst) == 0 && libc::is_alive(attacker) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let region = forgers::transport().ok_or("no region")?;
    // The file is there, and another one of a page will be.
    let before = free(door, region) + SHOWN_PAGES as u64 - 1;
    words[1].store(1, Ordering::SeqCst);
    let victim = write_again(ANSWERS);
    let freed = wait_for(door, region, before);
    let alive = libc::is_alive(attacker);
    libc::send(attacker, 9);
    libc::wait(attacker);
    freed?;
    expect(alive, || "the attacker has ended".into())?;
    let worst = victim?.into_iter().map(|(_, took)| took).max().unwrap_or(0);
    Ok((words[0].load(Ordering::SeqCst), worst))
}

/// Enters a file's pages, says how often, cuts the file when it is told to, and asks for little
/// ever after.
fn enter_and_cut(door: door::Door, most: u64, words: &[AtomicU64]) -> Option<i32> {
    if !libc::become_user(NOBODY) {
        return None;
    }
    let place = format!("{PLACE}/entered");
    fs::write(&place, vec![7; SHOWN_PAGES * 4096]).ok()?;
    let region = forgers::transport()?;
    let node = node_of(door, NOBODY, &place)?;
    // Pages of one's own in its place first, so that there is a table.
    let space = libc::shared(SHOWN_PAGES);
    libc::bytes(space, SHOWN_PAGES * 4096).fill(1);
    ask_by(door, region, NOBODY, Operation::Show, [node, 0, space, 0]).ok()?;
    words[0].store(enter(door, space, most), Ordering::SeqCst);
    while words[1].load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    // The other one asks by now.
    std::thread::sleep(Duration::from_millis(60));
    OpenOptions::new().write(true).truncate(true).open(&place).ok()?;
    loop {
        let _ = ask_by(door, region, NOBODY, Operation::Space, [0; 4]);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Enters the pages at `source` again and again, so often at most, as far as there is memory for
/// tables; how often.
fn enter(door: door::Door, source: u64, most: u64) -> u64 {
    let room = libc::reserved((most + 2 * TABLE) as usize);
    let first = room.next_multiple_of(SPAN);
    let piece = SHOWN_PAGES as u64;
    let mut made = 0;
    while made < most {
        let at = first + made * 4096;
        let table = |level, value| Item {
            operation: Change::Table as u8,
            level,
            frame: ANY_FRAME,
            address: at,
            value,
            ..Item::default()
        };
        // There may be those above.
        let _ = [4, 3].map(|level| update(door, &[table(level, 0)]));
        let entries = (0..TABLE / piece).map(|part| Item {
            operation: Change::Map as u8,
            level: 1,
            more: piece as u16 - 1,
            frame: ANY_FRAME,
            address: at + part * piece * 4096,
            value: from_source(source, NO_EXECUTE),
        });
        let entries: Vec<Item> = entries.collect();
        if !(update(door, &[table(2, u64::from(ANY_FRAME))]) && update(door, &entries)) {
            // The process goes on: some of the memory for that.
            let back = |table: u64| Item {
                operation: Change::Unmap as u8,
                level: 2,
                address: at - table * SPAN,
                ..Item::default()
            };
            let _ = (1..made / TABLE).take(SPARE).all(|table| update(door, &[back(table)]));
            break;
        }
        made += TABLE;
    }
    made
}

fn update(door: door::Door, items: &[Item]) -> bool {
    let (at, count) = (UserAddress(items.as_ptr() as u64), items.len() as u64);
    libc::kernel(door, Call::TableUpdate { domain: DomainId::NONE, items: at, count }).is_ok()
}
