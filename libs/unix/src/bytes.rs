//! Looking for a byte in short strings, eight bytes at a time.
//!
//! The `memchr` crate would do, but it keeps the routine that it chooses in an initialised
//! variable, and ExOS starts from zeros (`libs/exos/link.ld`).

/// One in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;
/// All but the highest bit of each byte.
const LOW: u64 = ONES * 0x7f;

/// The highest bit of each byte of `word` that is `wanted`, and no other bit.
fn matches(word: [u8; 8], wanted: u8) -> u64 {
    let word = u64::from_le_bytes(word) ^ (ONES * u64::from(wanted));
    // No carry leaves its byte: the sum's highest bit says that one of the low seven was set.
    !(((word & LOW) + LOW) | word | LOW)
}

/// Where the first `wanted` is.
#[inline]
pub fn position(bytes: &[u8], wanted: u8) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let found = matches(*word, wanted);
        if found != 0 {
            return Some(at * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|&byte| byte == wanted)?;
    Some(words.len() * 8 + at)
}

/// Is one of these two there?
#[inline]
pub fn has_either(bytes: &[u8], [one, other]: [u8; 2]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().any(|word| matches(*word, one) | matches(*word, other) != 0)
        || rest.iter().any(|&byte| byte == one || byte == other)
}

/// Where the last `wanted` is.
#[inline]
pub fn last_position(bytes: &[u8], wanted: u8) -> Option<usize> {
    let (rest, words) = bytes.as_rchunks::<8>();
    for (at, word) in words.iter().enumerate().rev() {
        let found = matches(*word, wanted);
        if found != 0 {
            return Some(rest.len() + at * 8 + 7 - found.leading_zeros() as usize / 8);
        }
    }
    rest.iter().rposition(|&byte| byte == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_search_byte_by_byte() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..20_000 {
            let mut text = [0_u8; 40];
            for byte in &mut text {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Few different ones, those next to the wanted among them.
                *byte = [0, 1, b'/', b'/' - 1, b'/' + 0x80, 0x80, 0xff, b'a'][random as usize % 8];
            }
            let text = &text[..round % 41];
            for wanted in [0, b'/', 0xff, b'b'] {
                let is = |&byte: &u8| byte == wanted;
                assert_eq!(position(text, wanted), text.iter().position(is), "{text:?}");
                assert_eq!(last_position(text, wanted), text.iter().rposition(is), "{text:?}");
                let either = |&byte: &u8| is(&byte) || byte == 1;
                assert_eq!(has_either(text, [1, wanted]), text.iter().any(either), "{text:?}");
            }
        }
    }
}
