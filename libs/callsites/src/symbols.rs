//! Functions from the symbol table: all that a program without unwind tables has (musl's are).

use crate::object::{Function, word16, word64};

const SYMBOL_BYTES: usize = 24;
const FUNCTION: u8 = 2;

/// Shows `visit` each function with a size.
pub fn functions(table: &[u8], visit: &mut dyn FnMut(Function)) {
    for symbol in table.chunks_exact(SYMBOL_BYTES) {
        if symbol[4] & 15 != FUNCTION || word16(symbol, 6) == Some(0) {
            continue;
        }
        let (Some(start), Some(len)) = (word64(symbol, 8), word64(symbol, 16)) else { return };
        if len != 0
            && let Some(end) = start.checked_add(len)
        {
            visit(Function { start, end });
        }
    }
}
