//! Waiting for room in the memory file system, which comes back later than files end.

use unix::Errno;
use unix::protocol::Operation;
use unix::tree::Id;
use xok::{call, clock};

use super::memory_files::Client;

/// Nanoseconds for which a call waits for room in all, while the process's other threads wait for
/// it.
const HOPE: u64 = 2_000_000_000;
/// Nanoseconds between two attempts; with each request the server takes some pages back.
const PAUSE: u64 = 1_000_000;

/// What there is no room for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    /// Pages of this file, which its owner pays for.
    Pages(Id),
    /// A file of ours in this directory.
    File(Id),
}

/// How long one call waits: until when, once it has begun to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hope(Option<u64>);

impl Client {
    /// Attempts what takes room; again, while it answers `ENOSPC` and the server says that room is
    /// to come. On Linux files end, and are free, within the call that ends them.
    pub(super) fn with_room<T>(
        &self,
        wanted: Wanted,
        hope: &mut Hope,
        mut attempt: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut look = 0;
        loop {
            match attempt() {
                Err(Errno::ENOSPC) => {}
                answer => return answer,
            }
            let arguments = match wanted {
                Wanted::Pages(file) => [file, 0, look, 0],
                Wanted::File(directory) => [directory, 1, look, 0],
            };
            // An error says that there is nothing to wait for.
            look = self.ask(Operation::Room, arguments).map_or(0, |[look, ..]| look);
            let now = clock::now_ns();
            if look == 0 || now >= *hope.0.get_or_insert(now + HOPE) {
                // It may have come since.
                return attempt();
            }
            let _ = call::sleep(now + PAUSE, 0, 0, 0);
        }
    }

    /// The same for a call that makes one file.
    pub(super) fn with_room_for_a_file<T>(
        &self,
        directory: Id,
        attempt: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.with_room(Wanted::File(directory), &mut Hope::default(), attempt)
    }
}
