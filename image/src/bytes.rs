//! Little-endian words out of a byte slice, and the checksum over one.

/// The 16-bit word at `offset`, or nothing if it does not lie inside.
pub(crate) fn word16(bytes: &[u8], offset: usize) -> Option<u16> {
    let end = offset.checked_add(2)?;
    Some(u16::from_le_bytes(bytes.get(offset..end)?.try_into().ok()?))
}

/// The 32-bit word at `offset`, or nothing if it does not lie inside.
pub(crate) fn word32(bytes: &[u8], offset: usize) -> Option<u32> {
    let end = offset.checked_add(4)?;
    Some(u32::from_le_bytes(bytes.get(offset..end)?.try_into().ok()?))
}

/// The 64-bit word at `offset`, or nothing if it does not lie inside.
pub(crate) fn word64(bytes: &[u8], offset: usize) -> Option<u64> {
    let end = offset.checked_add(8)?;
    Some(u64::from_le_bytes(bytes.get(offset..end)?.try_into().ok()?))
}

/// The bytes `offset..offset + size`, or nothing if they do not lie inside.
pub(crate) fn range(bytes: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    bytes.get(start..end)
}

/// CRC-32 as IEEE 802.3 has it (reflected, polynomial 0xedb88320, complemented at both ends).
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        let index = (crc as u8 ^ byte) as usize;
        crc = CRC_TABLE[index] ^ (crc >> 8);
    }
    !crc
}

const CRC_TABLE: [u32; 256] = crc_table();

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_of_the_standard_check_string() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn words_at_the_edge() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(word16(&bytes, 6), Some(0x0807));
        assert_eq!(word32(&bytes, 5), None);
        assert_eq!(word64(&bytes, 0), Some(0x0807_0605_0403_0201));
        assert_eq!(word64(&bytes, usize::MAX), None);
        assert_eq!(range(&bytes, 8, 0), Some(&[][..]));
        assert_eq!(range(&bytes, 7, 2), None);
        assert_eq!(range(&bytes, u64::MAX, 2), None);
    }
}
