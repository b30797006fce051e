//! The Internet checksum (RFC 1071).

/// The ones' complement sum of `bytes` taken as big-endian 16-bit words, folded to 16 bits.
///
/// An odd last byte counts as the high half of a word. Eight bytes are added at a time, in the
/// processor's order and with the carry put back in, which gives the same sum (§2 (A), (B), (C)).
pub fn sum(bytes: &[u8]) -> u16 {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    let mut total: u64 = 0;
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for word in words {
            total = add(total, u64::from_ne_bytes(*word));
        }
    }
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        total = add(total, u64::from_ne_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    total = add(total, u64::from_ne_bytes(last));
    u16::from_be(fold(total))
}

/// Bytes of one turn of the loop.
const BLOCK: usize = 64;

/// The sum with its carry put back in.
fn add(total: u64, word: u64) -> u64 {
    let (sum, carry) = total.overflowing_add(word);
    // After a carry the sum is not the highest number.
    sum.wrapping_add(u64::from(carry))
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

    /// As RFC 1071 defines it, a word at a time.
    fn plain(bytes: &[u8]) -> u16 {
        let word = |pair: &[u8]| u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]);
        fold(bytes.chunks(2).map(|pair| u64::from(word(pair))).sum())
    }

    #[test]
    fn wide_adds_give_the_sum_of_words() {
        let mut state = 1_u32;
        let mut bytes: [u8; 300] = core::array::from_fn(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        for len in 0..bytes.len() {
            assert_eq!(sum(&bytes[..len]), plain(&bytes[..len]), "{len} bytes");
        }
        bytes.fill(0xff);
        for len in 0..bytes.len() {
            assert_eq!(sum(&bytes[..len]), plain(&bytes[..len]), "{len} bytes of ones");
        }
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
