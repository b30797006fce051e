//! Anonymous memory comes on touch, zeroed, in runs where a program fills it from its beginning on.

use crate::linux;
use crate::suite::{Seen, calls_of, release};

const PAGES: u64 = 96;
const PAGE: u64 = 4096;

/// Pages that were another mapping's a moment ago read as zeros wherever they are touched, those
/// that came along with an earlier one too; and far fewer calls than pages bring them.
pub fn fresh_pages_are_zero() -> Seen {
    let at = linux::memory(PAGES).ok_or(("mmap", [PAGES, 0, 0]))?;
    for byte in (0..PAGES * PAGE).step_by(64) {
        linux::store(at + byte, 0xa5);
    }
    release(at, PAGES);
    let at = linux::memory(PAGES).ok_or(("mmap", [PAGES, 0, 1]))?;
    let before = calls_of(abi::call::number::TableUpdate);
    for page in 0..PAGES {
        linux::store(at + page * PAGE, 1);
    }
    let calls = calls_of(abi::call::number::TableUpdate) - before;
    let dirty = (0..PAGES * PAGE).step_by(8).filter(|byte| byte % PAGE != 0);
    let dirty = dirty.filter(|byte| linux::load(at + byte) != 0).count();
    if dirty != 0 {
        return Err(("words of fresh memory are not zero", [dirty as u64, calls, PAGES]));
    }
    // Eight pages that are there, the tables on the way, then eight pages for each call.
    if calls > 10 + PAGES / 8 {
        return Err(("each page took a call of its own", [calls, PAGES, 0]));
    }
    release(at, PAGES);
    Ok([PAGES, calls, 0])
}
