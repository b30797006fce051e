//! What UNIX is apart from any kernel: ExOS and its servers agree on it here.
//!
//! Pure logic over bytes and numbers, tested on the host: error numbers, paths, descriptor tables,
//! `stat` records, pipe rings, the terminal's line discipline, the tree of a memory file system
//! and the texts of `/proc`. Time, memory of programs and kernel calls are the callers' business.
//!
//! Neighbours: `libs/exos` (the library OS), `apps/ttyd` and `apps/tmpfsd` (its servers).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod attributes;
pub mod bytes;
pub mod dirents;
mod errno;
pub mod handles;
pub mod local;
pub mod locks;
pub mod map;
pub mod mounts;
pub mod path;
pub mod prf;
pub mod privileges;
pub mod proc_text;
pub mod process_page;
pub mod protocol;
pub mod ring;
pub mod seals;
pub mod set_id;
pub mod tree;
pub mod tty;
pub mod versions;

pub use errno::Errno;
