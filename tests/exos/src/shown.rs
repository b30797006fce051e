//! Pages of files that the file server shows: seen by those who read, gone with the file's page.

use crate::linux;
use abi::layout::PAGE_SIZE;
use exos_layout::{SHOWN, SHOWN_END};
use xok::own;

/// What a test saw: numbers, or what is wrong with them.
type Seen = Result<[u64; 3], (&'static str, [u64; 3])>;

/// The same as in `exos::layout`.
mod exos_layout {
    /// Where pages are shown.
    pub const SHOWN: u64 = abi::layout::LIBRARY + 0x4000_0000;
    /// First address behind.
    pub const SHOWN_END: u64 = SHOWN + 32 * 0x1_0000;
}

/// Pages shown to us now, and those of them that we could write.
fn shown() -> (u64, u64) {
    let pages = (SHOWN..SHOWN_END).step_by(PAGE_SIZE as usize);
    let leaves = pages.filter_map(own::leaf);
    leaves.fold((0, 0), |(all, writable), leaf| {
        (all + 1, writable + u64::from(leaf & abi::memory::WRITABLE != 0))
    })
}

/// Who reads a file often sees its pages, and cannot write them; a page that leaves its file is
/// taken away before it becomes anything else.
pub fn shown_pages_go_with_their_file() -> Seen {
    let path = c"/tmp/shown";
    let name = path.as_ptr() as u64;
    let bytes = [b'a'; 2 * PAGE_SIZE as usize];
    let mut into = [0; 2 * PAGE_SIZE as usize];
    let read = |file: i64, into: &mut [u8]| {
        linux::call(17, [file as u64, into.as_mut_ptr() as u64, into.len() as u64, 0, 0, 0])
    };
    // open(2): O_RDWR | O_CREAT | O_TRUNC
    let file = linux::call(2, [name, 0o1102, 0o644, 0, 0, 0]);
    if file < 0 || linux::write(file as u64, &bytes) != bytes.len() as i64 {
        return Err(("no file", [file as u64, 0, 0]));
    }
    let (before, _) = shown();
    for _ in 0..8 {
        if read(file, &mut into) != bytes.len() as i64 || into != bytes {
            return Err(("not what was written", [into[0].into(), 0, 0]));
        }
    }
    let (during, writable) = shown();
    if during != before + 2 || writable != 0 {
        return Err(("pages before, shown, writable", [before, during, writable]));
    }
    // ftruncate(2) to a page and a bit, then unlink(2) and the last close.
    linux::call(77, [file as u64, 100, 0, 0, 0, 0]);
    let (cut, _) = shown();
    if cut != before + 1 {
        return Err(("pages before, after the cut", [before, cut, 0]));
    }
    linux::call(87, [name, 0, 0, 0, 0, 0]);
    if read(file, &mut into) != 100 {
        return Err(("the open file has lost its bytes", [0, 0, 0]));
    }
    linux::close(file as u64);
    // What nobody holds any more is found at the next question.
    linux::call(87, [name, 0, 0, 0, 0, 0]);
    let (after, _) = shown();
    if after != before {
        return Err(("pages before and after", [before, after, 0]));
    }
    Ok([before, during, after])
}
