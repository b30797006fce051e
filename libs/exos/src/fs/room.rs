//! Waiting for room in the memory file system, which comes back later than files end.

use unix::Errno;
use unix::protocol::Operation;
use unix::tree::Id;
use xok::{call, clock};

use super::memory_files::Client;

/// Nanoseconds for which an attempt waits for room, while the process's other threads wait for it.
const HOPE: u64 = 2_000_000_000;
/// Nanoseconds between two attempts; with each request the server takes some pages back.
const PAUSE: u64 = 1_000_000;

impl Client {
    /// Attempts what takes room of a file's owner; again, while it answers `ENOSPC` and the server
    /// says that room is to come. On Linux files end, and are free, within the call that ends them.
    pub(super) fn with_room<T>(
        &self,
        file: Id,
        mut attempt: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (mut look, mut end) = (0, None);
        loop {
            match attempt() {
                Err(Errno::ENOSPC) => {}
                answer => return answer,
            }
            [look, ..] = self.ask(Operation::Room, [file, look, 0, 0])?;
            let now = clock::now_ns();
            if look == 0 || now >= *end.get_or_insert(now + HOPE) {
                // It may have come since.
                return attempt();
            }
            let _ = call::sleep(now + PAUSE, 0, 0, 0);
        }
    }
}
