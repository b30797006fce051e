//! A Linux process: what ExOS remembers of the program that it runs.
//!
//! It lies on the heap, which a fork child gets as an eager copy at the same addresses; so fork
//! needs no serialising. `exec` hands over what survives in a start block (`crate::start`). A vfork
//! child is a second `Process` on the same heap, made by `clone`; each thread finds its own by GS.

use abi::id::EnvId;
use alloc::string::String;
use alloc::vec::Vec;

use crate::fs::Files;

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its first environment: the pid.
    pub id: EnvId,
    /// Open files, working directory, file mode mask.
    pub files: Files,
    /// Real, effective, saved user.
    pub users: [u32; 3],
    /// Real, effective, saved group.
    pub groups: [u32; 3],
    /// Children not yet waited for.
    pub children: Vec<Child>,
    /// The program's absolute path, links resolved (`/proc/self/exe`).
    pub executable: String,
    /// Posts to itself that wait for the way out, as signal bits (signal n is bit n - 1).
    pub raised: u64,
    /// `RLIMIT_…`: soft and hard limit.
    pub limits: [(u64, u64); LIMITS],
}

/// Resource limits there are (`RLIM_NLIMITS`).
pub const LIMITS: usize = 16;

/// A child as its parent remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its pid.
    pub id: EnvId,
    /// Process group the parent gave it, 0: look at its page.
    pub group: u32,
    /// The stop that was already reported, as its page counts them.
    pub reported: u32,
}

impl Process {
    /// Sends `signal` (1..=64) to the process itself; it is taken on the way out.
    pub fn raise(&mut self, signal: u32) {
        if (1..=64).contains(&signal) {
            self.raised |= 1 << (signal - 1);
        }
    }
}
