//! What a process leaves behind when it has ended: nothing, by the published table of frames.

use crate::linux;
use abi::published::{FrameRecord, FrameType, Table};
use xok::published;

/// What a test saw: numbers, or what is wrong with them.
type Seen = Result<[u64; 3], (&'static str, [u64; 3])>;

/// Frames of one type, whoever has them.
fn frames_of(kind: FrameType) -> u64 {
    let count = published::table(Table::Frames).count as usize;
    let record = |at| published::record::<FrameRecord>(Table::Frames, at);
    (0..count).filter_map(record).filter(|frame| frame.kind == kind as u8).count() as u64
}

/// A child that asks the file server for something and ends.
fn ask_and_end() {
    let child = linux::fork();
    if child == 0 {
        // openat(2) for reading: /proc/meminfo tells what the server holds.
        let path = c"/proc/meminfo";
        let file = linux::call(257, [u64::MAX, path.as_ptr() as u64, 0, 0, 0, 0]);
        let mut text = [0; 512];
        linux::exit(u8::from(file < 0 || linux::read(file as u64, &mut text) <= 0));
    }
    linux::wait(child);
}

/// The server lets go of the regions of clients that have ended, one client later at most.
pub fn ended_clients_leave_no_region() -> Seen {
    const CLIENTS: u64 = 12;
    ask_and_end();
    let before = frames_of(FrameType::Region);
    for _ in 0..CLIENTS {
        ask_and_end();
    }
    let after = frames_of(FrameType::Region);
    if after > before {
        return Err(("frames of regions before and after", [before, after, CLIENTS]));
    }
    Ok([before, after, CLIENTS])
}
