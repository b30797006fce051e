//! Filters against packets of every length, and against programs that are none (thesis98 Z-81).

use super::*;
use std::vec;
use std::vec::Vec;

/// The filter of these atoms: (offset, mask, value).
fn filter(atoms: &[(u16, u32, u32)]) -> Result<Filter, Error> {
    let mut filter = Filter::default();
    for &(offset, mask, value) in atoms {
        filter.add(&FilterAtom { offset, mask, value, ..FilterAtom::default() })?;
    }
    Ok(filter)
}

/// What a filter says, byte by byte, as `abi::filter` has it: nothing behind the packet's end is
/// looked at, and a byte that is tested must be there.
fn reference(atoms: &[(u16, u32, u32)], packet: &[u8]) -> bool {
    atoms.iter().all(|&(offset, mask, value)| {
        mask.to_be_bytes().into_iter().zip(value.to_be_bytes()).enumerate().all(
            |(step, (mask, value))| {
                let byte = packet.get(usize::from(offset) + step);
                mask == 0 || byte.is_some_and(|byte| byte & mask == value)
            },
        )
    })
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 32
    }

    /// An atom that often agrees with a packet of few different bytes.
    fn atom(&mut self) -> (u16, u32, u32) {
        let offset = (self.next() % (FILTER_BYTES as u64 - 3)) as u16;
        let mask = [0xff00_0000, 0xffff, 0xff, 0xffff_ffff, 0x00f0_0000][self.next() as usize % 5];
        let value = [0, u32::MAX, 0x0101_0101][self.next() as usize % 3] & mask;
        (offset, mask, value)
    }

    fn packet(&mut self) -> Vec<u8> {
        let length = self.next() as usize % (FILTER_BYTES + 40);
        let fill = [0, 0xff, 1][self.next() as usize % 3];
        let mut packet = vec![fill; length];
        if length > 0 && self.next().is_multiple_of(4) {
            let at = self.next() as usize % length;
            packet[at] = self.next() as u8;
        }
        packet
    }
}

#[test]
fn filters_agree_with_the_reference_on_every_length() {
    let mut random = Random(7);
    let (mut matched, mut passed_by, mut refused) = (0, 0, 0);
    for _ in 0..20_000 {
        let count = 1 + random.next() as usize % 3;
        let atoms: Vec<_> = (0..count).map(|_| random.atom()).collect();
        let Ok(filter) = filter(&atoms) else {
            refused += 1;
            continue;
        };
        for _ in 0..8 {
            let packet = random.packet();
            let expected = reference(&atoms, &packet);
            assert_eq!(filter.matches(&Head::of(&packet)), expected, "{atoms:x?} {packet:x?}");
            *(if expected { &mut matched } else { &mut passed_by }) += 1;
        }
    }
    assert!(matched > 1000 && passed_by > 1000 && refused > 10, "{matched} {passed_by} {refused}");
}

#[test]
fn a_packet_that_ends_before_a_tested_byte_does_not_match() {
    // The byte tested is zero, as what the packet does not have seems to be.
    let filter = filter(&[(20, 0x00ff_0000, 0)]).unwrap();
    for length in 0..FILTER_BYTES {
        let packet = vec![0; length];
        assert_eq!(filter.matches(&Head::of(&packet)), length >= 22, "{length}");
    }
}

#[test]
fn malformed_atoms_are_refused() {
    let last = FILTER_BYTES as u16 - 4;
    assert!(filter(&[(last, 0xff, 1)]).is_ok());
    for atom in [
        (last + 1, 0xff, 1),
        (u16::MAX, 0xff, 1),
        (u16::MAX - 3, 0xff, 1),
        (0, 0, 0),
        (0, 0xff, 0x100),
        (0, 0, 1),
    ] {
        assert_eq!(filter(&[atom]).err(), Some(Error::BadArgument), "{atom:x?}");
    }
    let reserved = FilterAtom { mask: 1, zero: 1, ..FilterAtom::default() };
    assert_eq!(Filter::default().add(&reserved), Err(Error::BadArgument));
}

#[test]
fn atoms_that_contradict_each_other_are_refused() {
    assert_eq!(filter(&[(0, 0xff, 1), (0, 0xff, 2)]).err(), Some(Error::BadArgument));
    // The same byte by another offset.
    assert_eq!(
        filter(&[(0, 0xff, 1), (3, 0xff00_0000, 0x0200_0000)]).err(),
        Some(Error::BadArgument)
    );
    assert!(filter(&[(0, 0xff, 1), (3, 0xff00_0000, 0x0100_0000)]).is_ok());
}

#[test]
fn overlap_is_symmetric_and_means_a_common_packet() {
    let mut random = Random(11);
    let mut apart = 0;
    for _ in 0..5_000 {
        let (Ok(one), Ok(other)) = (filter(&[random.atom()]), filter(&[random.atom()])) else {
            continue;
        };
        assert_eq!(one.overlaps(&other), other.overlaps(&one));
        // The packet that both ask for, if there is one.
        let mut packet = [0_u8; FILTER_BYTES];
        for (at, byte) in packet.iter_mut().enumerate() {
            *byte = ((one.value[at / 8] | other.value[at / 8]) >> (8 * (at % 8))) as u8;
        }
        let head = Head::of(&packet);
        assert_eq!(one.overlaps(&other), one.matches(&head) && other.matches(&head));
        apart += u32::from(!one.overlaps(&other));
    }
    assert!(apart > 10, "{apart}");
}
