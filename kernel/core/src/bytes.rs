//! Words out of bytes that a program sent.

/// The 64-bit word at a byte offset; 0 beyond the end.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..at + 8) {
        Some(slice) => u64::from_le_bytes(slice.try_into().unwrap_or([0; 8])),
        None => 0,
    }
}

/// The 32-bit word at a byte offset; 0 beyond the end.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..at + 4) {
        Some(slice) => u32::from_le_bytes(slice.try_into().unwrap_or([0; 4])),
        None => 0,
    }
}
