//! The Internet checksum (RFC 1071).

/// The ones' complement sum of `bytes` taken as big-endian 16-bit words, folded to 16 bits.
///
/// An odd last byte counts as the high half of a word.
pub fn sum(bytes: &[u8]) -> u16 {
    let mut total: u64 = 0;
    let mut words = bytes.chunks_exact(2);
    for word in &mut words {
        total += u64::from(u16::from_be_bytes([word[0], word[1]]));
    }
    if let [last] = words.remainder() {
        total += u64::from(*last) << 8;
    }
    fold(total)
}

/// Two sums as one; the second must begin at an even offset of what is summed.
pub fn combine(first: u16, second: u16) -> u16 {
    fold(u64::from(first) + u64::from(second))
}

/// Is a header or message that contains its own checksum intact?
pub fn is_intact(bytes: &[u8]) -> bool {
    sum(bytes) == 0xffff
}

fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn an_odd_byte_is_the_high_half_of_a_word() {
        assert_eq!(sum(&[0x12]), 0x1200);
        assert_eq!(sum(&[0, 1, 0x12]), 0x1201);
    }

    #[test]
    fn parts_combine_to_the_whole() {
        let bytes: [u8; 64] = core::array::from_fn(|at| (at * 37 + 11) as u8);
        for cut in (0..=64).step_by(2) {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(combine(sum(head), sum(tail)), sum(&bytes));
        }
    }
}
