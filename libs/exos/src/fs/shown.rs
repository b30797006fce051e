//! Pages of files that the memory file server shows: read where they lie, without a question.
//!
//! Who has read a file a few times asks the server to map its pages here, read-only, 64 KiB at a
//! time. An entry leads to the file's own page, in which everybody's writes appear, or to nothing:
//! a page that leaves its file is taken out of every space before it becomes anything else. Size
//! and times belong to what was told with the file's word (`unix::versions`), so a read is a look
//! at the word, a copy, and a second look: nothing was changed between the two. If it was, or the
//! page is gone under the copy, the read is a question as ever.

use abi::id::EnvId;
use abi::layout::PAGE_SIZE;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::sync::atomic::AtomicU64;
use unix::protocol::SHOWN_PAGES;
use unix::tree::Id;
use xok::memory::Space;

use super::Files;
use super::transfer::Memory;
use crate::layout::SHOWN;
use crate::thread;

/// Pieces that are shown at a time.
const PIECES: usize = crate::layout::SHOWN_PIECES as usize;
/// Bytes of one.
const PIECE_BYTES: u64 = SHOWN_PAGES as u64 * PAGE_SIZE;
/// Reads of a description before its file is worth showing.
pub const READS_BEFORE: u32 = 4;

/// A piece of a file that lies in our space.
#[derive(Clone, Copy, Debug)]
struct Piece {
    node: Id,
    /// Which piece of the file.
    number: u64,
    /// Bytes from its beginning on that are there.
    bytes: u64,
    /// Size of the file.
    size: u64,
    /// What size and the noted read depend on.
    seen: [u64; 1],
    /// Until when reads need not be noted, nanoseconds since boot.
    until: u64,
}

/// What is shown to this process.
#[derive(Debug, Default)]
pub struct Shown {
    process: Cell<EnvId>,
    pieces: RefCell<Vec<Option<Piece>>>,
}

impl Shown {
    /// Nothing is.
    pub fn forget(&self) {
        self.pieces.replace(alloc::vec![None; PIECES]);
    }
}

impl Files {
    /// Reads at most `most` bytes at `offset` of a regular file from what is shown; `None` if it
    /// has to be asked for.
    pub fn read_shown(
        &self,
        node: Id,
        offset: u64,
        most: u64,
        memory: &mut Memory<'_>,
    ) -> Option<u64> {
        let process = thread::process();
        // Pages lie in a space; a child that borrows one has pieces of its own in mind.
        if process.borrows_space {
            return None;
        }
        if self.shown.process.replace(process.id) != process.id {
            // A fork child has the list, and none of the pages.
            self.shown.pieces.replace(alloc::vec![None; PIECES]);
        }
        let number = offset / PIECE_BYTES;
        let place = (node ^ number) as usize % PIECES;
        let known = self.shown.pieces.borrow().get(place).copied().flatten();
        let now = xok::clock::now_ns();
        let is_so = |piece: &Piece| {
            (piece.node, piece.number) == (node, number)
                && self.lookups.hold(&piece.seen)
                && now < piece.until
        };
        let piece = match known.filter(is_so) {
            Some(piece) => piece,
            None => self.show(node, number, place, now)?,
        };
        let len = piece.size.saturating_sub(offset).min(most).min(memory.left());
        if len == 0 {
            return Some(0);
        }
        let within = offset % PIECE_BYTES;
        let len = len.min(PIECE_BYTES - within);
        if within + len > piece.bytes {
            return None;
        }
        let from = SHOWN + place as u64 * PIECE_BYTES + within;
        lockfree::versions::copy::<AtomicU64, _>(
            || memory.copy_shown(from, len).then_some(()),
            || self.lookups.hold(&piece.seen),
        )?;
        memory.advance(len);
        Some(len)
    }

    /// Asks for a piece.
    fn show(&self, node: Id, number: u64, place: usize, now: u64) -> Option<Piece> {
        let address = SHOWN + place as u64 * PIECE_BYTES;
        Space::own().tables_to(address, 1).ok()?;
        let first = number.checked_mul(SHOWN_PAGES as u64)?;
        let [pages, size, seen, noted] = self.client().ok()?.show(node, first, address).ok()?;
        let bytes = pages.min(SHOWN_PAGES as u64) * PAGE_SIZE;
        let piece =
            Piece { node, number, bytes, size, seen: [seen], until: now.saturating_add(noted) };
        *self.shown.pieces.borrow_mut().get_mut(place)? = Some(piece);
        Some(piece)
    }
}
