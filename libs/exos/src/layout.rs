//! Where everything of ExOS lies in the library slot.
//!
//! ```text
//!  LIBRARY + 0x0000_0000  text, constants        ┐ one level-2 table, shared by all processes
//!          + 0x1000_0000  boot image, read-only  ┘
//!          + 0x4000_0000  variables (zeros at first)  ┐
//!          + 0x4004_0000  heap, grows                 │ another one, each process its own
//!          + 0x4400_0000  start block of `exec`       │
//!          + 0x4800_0000  windows: building others    │
//!          + 0x5000_0000  thread areas, 1 MiB apart   ┘
//! ```
//! A thread area is as `xok::upcall` wants it: save area page, application page, then handler stacks
//! with guards. The lower half is the program's, wholly.

use abi::layout::{LIBRARY, PAGE_SIZE};

/// Text and constants.
pub const TEXT: u64 = LIBRARY;
/// The boot image, whole, read-only.
pub const IMAGE: u64 = LIBRARY + 0x1000_0000;
/// First address behind what all processes share.
pub const SHARED_END: u64 = LIBRARY + 0x4000_0000;
/// Variables.
pub const PRIVATE: u64 = LIBRARY + 0x4000_0000;
/// The heap.
pub const HEAP: u64 = LIBRARY + 0x4004_0000;
/// First address behind what the heap may grow to.
pub const HEAP_END: u64 = LIBRARY + 0x4400_0000;
/// What `exec` hands over; given back once read.
pub const START_BLOCK: u64 = LIBRARY + 0x4400_0000;
/// Most bytes of it: arguments and environment of a program, and its files.
pub const START_BLOCK_BYTES: u64 = 64 * PAGE_SIZE;
/// Pages seen for a moment; never inherited.
pub const WINDOWS: u64 = LIBRARY + 0x4800_0000;
/// Bytes of windows.
pub const WINDOW_BYTES: u64 = 0x0800_0000;
/// Thread areas.
pub const THREADS: u64 = LIBRARY + 0x5000_0000;
/// Bytes from one thread area to the next.
pub const THREAD_BYTES: u64 = 0x10_0000;

/// The area of a thread.
pub const fn thread_area(number: u64) -> u64 {
    THREADS + number * THREAD_BYTES
}
