//! What entry code does to a word that stands for several.

use crate::tried::Tried;
use loom::sync::atomic::{AtomicU32, Ordering};

/// A store to the lowest bytes of a word, which are those in `mask`. The bytes above stay whoever
/// changes them meanwhile: so it is one step here, which orders no more than a store does.
pub fn store_lowest(word: &Tried<AtomicU32>, mask: u32, value: u32) {
    let change = |old| Some(old & !mask | value);
    let _ = word.0.fetch_update(Ordering::Release, Ordering::Relaxed, change);
}
