//! The kernel's window for downloaded code: pages that are run there and written nowhere.
//!
//! A frame of type `Code` is filled through the direct map, which nobody runs, and shown here,
//! where nobody writes. A page is somebody's until its frame has come out of limbo: by then every
//! processor has forgotten what was there.

use crate::frame;
use crate::machine::{Flush, Machine};
use crate::state::State;
use crate::workshop;
use abi::id::Frame;
use abi::published::FrameType;
use core::ops::Range;

/// Pages of the window: the entries of one table.
pub const PAGES: usize = 512;

/// Bit of a page's word: it shows nothing any more.
const LEFT: u32 = 1 << 31;

/// The first of `count` free pages in a row.
pub(crate) fn find(state: &State, count: usize) -> Option<usize> {
    let mut row = 0;
    for page in 0..state.downloads.pages.len() {
        row = if is_free(state, page) { row + 1 } else { 0 };
        if row == count {
            return Some(page + 1 - count);
        }
    }
    None
}

fn is_free(state: &State, page: usize) -> bool {
    let held = state.downloads.pages[page];
    let in_limbo = || frame::kind(state, Frame(held & !LEFT)) == Some(FrameType::Limbo);
    held == 0 || held & LEFT != 0 && !in_limbo()
}

/// Shows filled frames from the free page `page` on: what the workshop's program, of `slots` slots,
/// has become.
pub(crate) fn show<M: Machine>(
    state: &mut State,
    machine: &mut M,
    page: usize,
    frames: &[Frame],
    slots: usize,
) {
    for (place, frame) in state.downloads.pages[page..].iter_mut().zip(frames) {
        *place = frame.0;
    }
    let (program, _) = workshop::product(state, slots, 0);
    machine.code_show(page, frames, program);
}

/// Shows nothing in these pages any more, and lets their frames go.
pub(crate) fn hide<M: Machine>(state: &mut State, machine: &mut M, pages: Range<usize>) {
    machine.code_hide(pages.clone());
    machine.flush(Flush::Everything);
    for page in pages {
        let frame = Frame(state.downloads.pages[page]);
        state.downloads.pages[page] |= LEFT;
        frame::release(state, frame);
    }
}
