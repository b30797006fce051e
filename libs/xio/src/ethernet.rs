//! Ethernet II frame headers (IEEE 802.3, type field).

use core::fmt;

/// Bytes of the header: destination, source, type.
pub const HEADER: usize = 14;
/// Bytes of the largest frame, header included, checksum not.
pub const FRAME_MAX: usize = 1514;
/// Bytes of the largest payload.
pub const PAYLOAD_MAX: usize = FRAME_MAX - HEADER;

const _: () = assert!(FRAME_MAX == abi::limits::PACKET_BYTES);

/// Type of an IPv4 packet.
pub const TYPE_IPV4: u16 = 0x0800;
/// Type of an ARP packet.
pub const TYPE_ARP: u16 = 0x0806;

/// A link address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Everyone on the link.
    pub const BROADCAST: Mac = Mac([0xff; 6]);
    /// Nobody: what an ARP request holds for the address it asks for.
    pub const UNKNOWN: Mac = Mac([0; 6]);

    /// Is it the address of one station?
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self != Mac::UNKNOWN
    }

    /// The address in the low 48 bits, first byte lowest (as the published pages hold it).
    pub fn to_word(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    /// The address in the low 48 bits of a word; the rest is ignored.
    pub fn from_word(word: u64) -> Mac {
        let [a, b, c, d, e, f, _, _] = word.to_le_bytes();
        Mac([a, b, c, d, e, f])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// To whom.
    pub destination: Mac,
    /// From whom.
    pub source: Mac,
    /// What the payload is: [`TYPE_IPV4`], [`TYPE_ARP`].
    pub kind: u16,
}

impl Header {
    /// Splits a frame into header and payload; `None` if it is shorter than a header.
    pub fn split(frame: &[u8]) -> Option<(Header, &[u8])> {
        let (header, payload) = frame.split_first_chunk::<HEADER>()?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, k0, k1] = *header;
        let header = Header {
            destination: Mac([d0, d1, d2, d3, d4, d5]),
            source: Mac([s0, s1, s2, s3, s4, s5]),
            kind: u16::from_be_bytes([k0, k1]),
        };
        Some((header, payload))
    }

    /// The header's bytes.
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..6].copy_from_slice(&self.destination.0);
        bytes[6..12].copy_from_slice(&self.source.0);
        bytes[12..14].copy_from_slice(&self.kind.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_header_survives_its_bytes() {
        let header =
            Header { destination: Mac::BROADCAST, source: Mac([2, 0, 0, 1, 2, 3]), kind: TYPE_ARP };
        let mut frame = std::vec::Vec::from(header.to_bytes());
        frame.push(7);
        assert_eq!(Header::split(&frame), Some((header, &[7u8][..])));
        assert_eq!(Header::split(&frame[..13]), None);
    }

    #[test]
    fn a_word_holds_an_address() {
        let mac = Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        assert_eq!(Mac::from_word(mac.to_word() | 0xffff << 48), mac);
        assert_eq!(mac.to_word() & 0xff, 0x52);
        assert_eq!(mac.to_string(), "52:54:00:12:34:56");
    }

    #[test]
    fn groups_and_nobody_are_not_unicast() {
        assert!(!Mac::BROADCAST.is_unicast());
        assert!(!Mac::UNKNOWN.is_unicast());
        assert!(!Mac([1, 0, 0x5e, 0, 0, 1]).is_unicast());
        assert!(Mac([2, 0, 0, 0, 0, 1]).is_unicast());
    }
}
