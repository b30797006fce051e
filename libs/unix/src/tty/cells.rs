//! What a terminal's input ring holds: bytes, each with the news whether a line ends there.

use alloc::vec::Vec;

/// Flag of a cell: the line ends with this byte.
pub const END: u16 = 0x100;
/// Flag of a cell: the line ends here and this is no byte (end of file typed).
pub const EOF: u16 = 0x200;

/// How much of the ring a `read` of `limit` bytes takes: moves the bytes to `into`, answers the
/// cells used up. In canonical mode it stops behind a line's end; an end-of-file mark that directly
/// follows what was asked for goes with it, as on Linux (n_tty `canon_copy_from_read_buf`).
pub fn take(cells: &[u16], canonical: bool, limit: usize, into: &mut Vec<u8>) -> usize {
    let mut used = 0;
    for &cell in cells {
        if cell & EOF != 0 {
            if canonical {
                return used + 1;
            }
            if used == limit {
                return used;
            }
            into.push(0);
            used += 1;
            continue;
        }
        if used == limit {
            return used;
        }
        into.push(cell as u8);
        used += 1;
        if canonical && cell & END != 0 {
            return used;
        }
    }
    used
}

/// Bytes that a read may take now, as `FIONREAD` counts them.
pub fn readable(cells: &[u16]) -> usize {
    cells.iter().filter(|&&cell| cell & EOF == 0).count()
}

/// Cells out of the bytes of the ring, little-endian.
pub fn decode(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
}

/// Bytes of the ring out of cells, as many as there is room for.
pub fn encode(cells: &[u16], into: &mut [u8]) {
    for (bytes, cell) in into.chunks_exact_mut(2).zip(cells) {
        bytes.copy_from_slice(&cell.to_le_bytes());
    }
}
