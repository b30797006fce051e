//! Pages that the program fills itself when they are touched: by its code, and by Linux calls.

use crate::{Seen, expect, libc};
use abi::call::Call;
use abi::id::DomainId;
use abi::memory::{ANY_FRAME, CLEARED, Item, NO_EXECUTE, Operation, PRESENT, WRITABLE};
use abi::word::UserAddress;
use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages that the program handles itself.
const PAGES: usize = 64;

static HANDLED: AtomicU64 = AtomicU64::new(0);
static DOOR: Mutex<Option<door::Door>> = Mutex::new(None);

/// What the handler puts into byte `at` of the range.
fn pattern(at: usize) -> u8 {
    (at / 4096 * 7 + at % 251) as u8
}

/// Allocates the page by a kernel call, and fills it.
extern "C" fn fill(start: u64, address: u64, error: u64) {
    let Some(door) = *DOOR.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) else { return };
    let page = address & !4095;
    if error & 1 != 0 || enter(door, page).is_err() {
        return;
    }
    libc::count(&HANDLED);
    let offset = (page - start) as usize;
    for (at, byte) in libc::bytes(page, 4096).iter_mut().enumerate() {
        *byte = pattern(offset + at);
    }
}

fn enter(door: door::Door, page: u64) -> Result<u64, (abi::error::Error, u64)> {
    let any = u64::from(ANY_FRAME);
    for level in (2..=4).rev() {
        if !matches!(xok::own::entry(page, level), Ok(entry) if entry & PRESENT != 0) {
            update(door, item(Operation::Table, level, page, any))?;
        }
    }
    update(door, item(Operation::Allocate, 1, page, WRITABLE | NO_EXECUTE | CLEARED))
}

fn item(operation: Operation, level: u8, address: u64, value: u64) -> Item {
    Item { operation: operation as u8, level, more: 0, frame: ANY_FRAME, address, value }
}

/// `TableUpdate` of one's own space with one item.
pub fn update(door: door::Door, item: Item) -> Result<u64, (abi::error::Error, u64)> {
    let items = UserAddress(&raw const item as u64);
    libc::kernel(door, Call::TableUpdate { domain: DomainId::NONE, items, count: 1 })
}

/// Issue part 12: a program's own handler makes each page of a range when it is first touched, by
/// kernel calls of its own; Linux calls that meet an absent page wait for it and go on.
pub fn own_fault_handler(door: door::Door) -> Seen {
    *DOOR.lock().map_err(|_| "lock".to_string())? = Some(door);
    let start = libc::reserved(PAGES);
    let range = start..start + PAGES as u64 * 4096;
    door::parts::handle_faults(range.clone(), fill, start)
        .map_err(|error| format!("handle_faults: error {error}"))?;
    let again = door::parts::handle_faults(range, fill, start);
    expect(again == Err(17), || format!("twice the same range: {again:?}"))?;
    let memory = libc::bytes(start, PAGES * 4096);
    let half = memory.len() / 2;
    let wrong = (0..half).filter(|&at| memory[at] != pattern(at)).count();
    let handled = HANDLED.load(Ordering::Relaxed);
    expect((wrong, handled) == (0, PAGES as u64 / 2), || {
        format!("{wrong} wrong bytes, {handled} faults handled by loads")
    })?;
    // write(2) from pages that are not there, read(2) into others.
    let (mut from, mut to) = std::io::pipe().map_err(|error| format!("pipe: {error}"))?;
    let piece = half..half + 3 * 4096;
    to.write_all(&memory[piece.clone()]).map_err(|error| format!("write: {error}"))?;
    let mut seen = vec![0; piece.len()];
    from.read_exact(&mut seen).map_err(|error| format!("read: {error}"))?;
    let expected: Vec<u8> = piece.clone().map(pattern).collect();
    expect(seen == expected, || "write(2) sent something else".into())?;
    to.write_all(&expected).map_err(|error| format!("write: {error}"))?;
    let place = piece.end..piece.end + piece.len();
    from.read_exact(&mut memory[place.clone()]).map_err(|error| format!("read: {error}"))?;
    expect(memory[place] == expected, || "read(2) put something else".into())?;
    let handled = HANDLED.load(Ordering::Relaxed);
    expect(handled == PAGES as u64 / 2 + 6, || format!("{handled} faults handled"))?;
    door::parts::leave_faults(start).map_err(|error| format!("leave_faults: error {error}"))?;
    let last = start + PAGES as u64 * 4096 - 1;
    let child = libc::spawn(|| i32::from(libc::bytes(last, 1)[0]));
    let status = libc::wait(child);
    expect(status & 0x7f == 11, || format!("a page of nobody's: status {status:#x}"))?;
    Ok(format!("({handled} pages)"))
}
