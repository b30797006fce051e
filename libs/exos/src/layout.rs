//! Where everything of ExOS lies in the library slot.
//!
//! ```text
//!  LIBRARY + 0x0000_0000  text, constants: a level-1 table shared by all processes
//!          + 0x0800_0000  variables (zeros at first)                 ┐
//!          + 0x0801_0000  windows: pages seen while building others  │ each process its own;
//!          + 0x0806_0000  area of the first thread                   │ the first 2 MiB are all
//!          + 0x0809_0000  start block of `exec`                      │ that most ever use
//!          + 0x0810_0000  heap, grows                                │
//!          + 0x0a00_0000  a program that is not in the image, while it is loaded  ┘
//!          + 0x1000_0000  boot image, read-only: level-1 tables shared by all processes
//!          + 0x4000_0000  pages of files that others keep, read-only; never inherited
//!          + 0x8000_0000  areas of other threads; never inherited
//! ```
//! A thread area is: save area page (GS base), application page, guard, then four handler stacks
//! with a guard below each. The lower half is the program's, wholly.

use abi::layout::{LIBRARY, PAGE_SIZE};

/// Text and constants.
pub const TEXT: u64 = LIBRARY;
/// The boot image, whole, read-only.
pub const IMAGE: u64 = LIBRARY + 0x1000_0000;
/// First address behind what the image may fill.
pub const IMAGE_END: u64 = LIBRARY + 0x4000_0000;
/// Pages that the memory file server shows.
pub const SHOWN: u64 = IMAGE_END;
/// Pieces of 64 KiB there.
pub const SHOWN_PIECES: u64 = 32;
/// First address behind them.
pub const SHOWN_END: u64 = SHOWN + SHOWN_PIECES * 0x1_0000;
/// Variables.
pub const PRIVATE: u64 = LIBRARY + 0x0800_0000;
/// First address behind them.
pub const PRIVATE_END: u64 = PRIVATE + 0x1_0000;
/// Pages seen for a moment; never inherited.
pub const WINDOWS: u64 = PRIVATE + 0x1_0000;
/// Windows there are.
pub const WINDOW_COUNT: u64 = 77;
/// Two pages in which a child's save area and page are made, kept for the next child; never
/// inherited.
pub const CHILD_PAGES: u64 = WINDOWS + WINDOW_COUNT * PAGE_SIZE;
/// A page to copy through; never inherited.
pub const SCRATCH: u64 = CHILD_PAGES + 2 * PAGE_SIZE;
/// The area of the first thread.
pub const FIRST_THREAD: u64 = PRIVATE + 0x6_0000;
/// What `exec` hands over, arguments and environment of a program and its files; given back once
/// read.
pub const START_BLOCK: u64 = PRIVATE + 0x9_0000;
/// Most bytes of it here; a larger one lies in tables of its own.
pub const START_BLOCK_BYTES: u64 = 64 * PAGE_SIZE;
/// Where that is.
pub const LARGE_BLOCK: u64 = PROGRAM - LARGE_BLOCK_BYTES;
/// Most bytes of a large one.
pub const LARGE_BLOCK_BYTES: u64 = 0x80_0000;
/// The heap.
pub const HEAP: u64 = PRIVATE + 0x10_0000;
/// First address behind what the heap may grow to.
pub const HEAP_END: u64 = LARGE_BLOCK;
/// The bytes of a program that is not in the image, as `exec` hands them over.
pub const PROGRAM: u64 = LIBRARY + 0x0a00_0000;
/// First address behind what such a program may have.
pub const PROGRAM_END: u64 = LIBRARY + 0x0e00_0000;
/// Areas of other threads.
pub const THREADS: u64 = LIBRARY + 0x8000_0000;
/// Bytes from one of them to the next.
pub const THREAD_BYTES: u64 = 0x4_0000;
/// Threads that a space may have.
pub const THREADS_MAX: usize = 1024;
/// First address behind the areas.
const THREADS_END: u64 = THREADS + THREADS_MAX as u64 * THREAD_BYTES;

/// Handler stacks, depth 1 first: offset of the top in a thread area, and pages.
pub const STACKS: [(u64, u64); 4] = [(0x1_3000, 16), (0x1_8000, 4), (0x1_d000, 4), (0x2_2000, 4)];
/// Offset of the application page in a thread area.
pub const APPLICATION_PAGE: u64 = PAGE_SIZE;

/// The area of thread `number`.
pub const fn thread_area(number: u64) -> u64 {
    if number == 0 { FIRST_THREAD } else { THREADS + number * THREAD_BYTES }
}

/// Tops of a thread's handler stacks.
pub fn stack_tops(area: u64) -> [u64; 4] {
    STACKS.map(|(top, _)| area + top)
}

/// Is `address` in one of the handler stacks of the area it lies in (not in a guard)?
pub fn in_handler_stack(address: u64) -> bool {
    let offset = if (THREADS..THREADS_END).contains(&address) {
        (address - THREADS) % THREAD_BYTES
    } else if (FIRST_THREAD..START_BLOCK).contains(&address) {
        address - FIRST_THREAD
    } else {
        return false;
    };
    STACKS.iter().any(|&(top, pages)| (top - pages * PAGE_SIZE..top).contains(&offset))
}

const _: () = assert!(SCRATCH < FIRST_THREAD && FIRST_THREAD + 0x2_2000 <= START_BLOCK);
const _: () = assert!(SHOWN_END <= THREADS && STACKS[3].0 <= THREAD_BYTES);
const _: () = assert!(START_BLOCK + START_BLOCK_BYTES <= HEAP);
