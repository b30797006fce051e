//! Each opcode of the base set: its bytes, its listing, and that each of its fields is checked.

use code::error::{Field, Why};
use code::instruction::{decode, slots};
use code::listing::Listing;

use crate::programs::Random;

/// Bytes as RFC 9669 has them (its appendix lists all opcodes), and how they are shown.
const FORMS: &[(&[u8], &str)] = &[
    (&[0x18, 0x03, 0, 0, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 1, 0, 0, 0], "r3 = 0x112345678 ll"),
    (&[0x61, 0x21, 4, 0, 0, 0, 0, 0], "r1 = *(u32 *)(r2 + 4)"),
    (&[0x69, 0x21, 4, 0, 0, 0, 0, 0], "r1 = *(u16 *)(r2 + 4)"),
    (&[0x71, 0x21, 0xff, 0xff, 0, 0, 0, 0], "r1 = *(u8 *)(r2 - 1)"),
    (&[0x79, 0x21, 4, 0, 0, 0, 0, 0], "r1 = *(u64 *)(r2 + 4)"),
    (&[0x81, 0x21, 4, 0, 0, 0, 0, 0], "r1 = *(s32 *)(r2 + 4)"),
    (&[0x89, 0x21, 4, 0, 0, 0, 0, 0], "r1 = *(s16 *)(r2 + 4)"),
    (&[0x91, 0x21, 4, 0, 0, 0, 0, 0], "r1 = *(s8 *)(r2 + 4)"),
    (&[0x62, 0x0a, 0xf8, 0xff, 7, 0, 0, 0], "*(u32 *)(r10 - 8) = 7"),
    (&[0x6a, 0x0a, 0xf8, 0xff, 7, 0, 0, 0], "*(u16 *)(r10 - 8) = 7"),
    (&[0x72, 0x0a, 0xf8, 0xff, 7, 0, 0, 0], "*(u8 *)(r10 - 8) = 7"),
    (&[0x7a, 0x0a, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff], "*(u64 *)(r10 - 8) = -1"),
    (&[0x63, 0x1a, 0xf8, 0xff, 0, 0, 0, 0], "*(u32 *)(r10 - 8) = r1"),
    (&[0x6b, 0x1a, 0xf8, 0xff, 0, 0, 0, 0], "*(u16 *)(r10 - 8) = r1"),
    (&[0x73, 0x1a, 0xf8, 0xff, 0, 0, 0, 0], "*(u8 *)(r10 - 8) = r1"),
    (&[0x7b, 0x1a, 0xf8, 0xff, 0, 0, 0, 0], "*(u64 *)(r10 - 8) = r1"),
    (&[0x07, 1, 0, 0, 5, 0, 0, 0], "r1 += 5"),
    (&[0x0f, 0x21, 0, 0, 0, 0, 0, 0], "r1 += r2"),
    (&[0x04, 1, 0, 0, 5, 0, 0, 0], "w1 += 5"),
    (&[0x0c, 0x21, 0, 0, 0, 0, 0, 0], "w1 += w2"),
    (&[0x17, 1, 0, 0, 5, 0, 0, 0], "r1 -= 5"),
    (&[0x1c, 0x21, 0, 0, 0, 0, 0, 0], "w1 -= w2"),
    (&[0x27, 1, 0, 0, 5, 0, 0, 0], "r1 *= 5"),
    (&[0x2c, 0x21, 0, 0, 0, 0, 0, 0], "w1 *= w2"),
    (&[0x37, 1, 0, 0, 5, 0, 0, 0], "r1 /= 5"),
    (&[0x3c, 0x21, 0, 0, 0, 0, 0, 0], "w1 /= w2"),
    (&[0x37, 1, 1, 0, 5, 0, 0, 0], "r1 s/= 5"),
    (&[0x3c, 0x21, 1, 0, 0, 0, 0, 0], "w1 s/= w2"),
    (&[0x47, 1, 0, 0, 5, 0, 0, 0], "r1 |= 5"),
    (&[0x4c, 0x21, 0, 0, 0, 0, 0, 0], "w1 |= w2"),
    (&[0x57, 1, 0, 0, 5, 0, 0, 0], "r1 &= 5"),
    (&[0x5c, 0x21, 0, 0, 0, 0, 0, 0], "w1 &= w2"),
    (&[0x67, 1, 0, 0, 5, 0, 0, 0], "r1 <<= 5"),
    (&[0x6c, 0x21, 0, 0, 0, 0, 0, 0], "w1 <<= w2"),
    (&[0x77, 1, 0, 0, 5, 0, 0, 0], "r1 >>= 5"),
    (&[0x7c, 0x21, 0, 0, 0, 0, 0, 0], "w1 >>= w2"),
    (&[0x87, 1, 0, 0, 0, 0, 0, 0], "r1 = -r1"),
    (&[0x84, 1, 0, 0, 0, 0, 0, 0], "w1 = -w1"),
    (&[0x97, 1, 0, 0, 5, 0, 0, 0], "r1 %= 5"),
    (&[0x9c, 0x21, 0, 0, 0, 0, 0, 0], "w1 %= w2"),
    (&[0x97, 1, 1, 0, 5, 0, 0, 0], "r1 s%= 5"),
    (&[0x9c, 0x21, 1, 0, 0, 0, 0, 0], "w1 s%= w2"),
    (&[0xa7, 1, 0, 0, 5, 0, 0, 0], "r1 ^= 5"),
    (&[0xac, 0x21, 0, 0, 0, 0, 0, 0], "w1 ^= w2"),
    (&[0xb7, 1, 0, 0, 5, 0, 0, 0], "r1 = 5"),
    (&[0xbc, 0x21, 0, 0, 0, 0, 0, 0], "w1 = w2"),
    (&[0xbf, 0x21, 8, 0, 0, 0, 0, 0], "r1 = (s8)r2"),
    (&[0xbf, 0x21, 16, 0, 0, 0, 0, 0], "r1 = (s16)r2"),
    (&[0xbf, 0x21, 32, 0, 0, 0, 0, 0], "r1 = (s32)r2"),
    (&[0xbc, 0x21, 8, 0, 0, 0, 0, 0], "w1 = (s8)w2"),
    (&[0xc7, 1, 0, 0, 5, 0, 0, 0], "r1 s>>= 5"),
    (&[0xcc, 0x21, 0, 0, 0, 0, 0, 0], "w1 s>>= w2"),
    (&[0xd4, 1, 0, 0, 16, 0, 0, 0], "r1 = le16 r1"),
    (&[0xdc, 1, 0, 0, 32, 0, 0, 0], "r1 = be32 r1"),
    (&[0xd7, 1, 0, 0, 64, 0, 0, 0], "r1 = bswap64 r1"),
    (&[0x05, 0, 0xfe, 0xff, 0, 0, 0, 0], "goto -2"),
    (&[0x06, 0, 0, 0, 0, 0, 1, 0], "goto +65536"),
    (&[0x15, 1, 3, 0, 5, 0, 0, 0], "if r1 == 5 goto +3"),
    (&[0x1e, 0x21, 3, 0, 0, 0, 0, 0], "if w1 == w2 goto +3"),
    (&[0x25, 1, 3, 0, 5, 0, 0, 0], "if r1 > 5 goto +3"),
    (&[0x35, 1, 3, 0, 5, 0, 0, 0], "if r1 >= 5 goto +3"),
    (&[0x45, 1, 3, 0, 5, 0, 0, 0], "if r1 & 5 goto +3"),
    (&[0x55, 1, 3, 0, 5, 0, 0, 0], "if r1 != 5 goto +3"),
    (&[0x65, 1, 3, 0, 5, 0, 0, 0], "if r1 s> 5 goto +3"),
    (&[0x75, 1, 3, 0, 5, 0, 0, 0], "if r1 s>= 5 goto +3"),
    (&[0xa5, 1, 3, 0, 5, 0, 0, 0], "if r1 < 5 goto +3"),
    (&[0xb5, 1, 3, 0, 5, 0, 0, 0], "if r1 <= 5 goto +3"),
    (&[0xc6, 1, 3, 0, 5, 0, 0, 0], "if w1 s< 5 goto +3"),
    (&[0xde, 0x21, 3, 0, 0, 0, 0, 0], "if w1 s<= w2 goto +3"),
    (&[0x85, 0, 0, 0, 9, 0, 0, 0], "call 9"),
    (&[0x95, 0, 0, 0, 0, 0, 0, 0], "exit"),
];

#[test]
fn every_form_is_read_shown_and_written() {
    for (bytes, shown) in FORMS {
        let instruction = decode(bytes, 0).unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert_eq!(instruction.to_string(), *shown);
        assert_eq!(instruction.slots() * 8, bytes.len(), "{shown}");
        let (first, second) = instruction.encode();
        let again = [&first[..], second.as_ref().map_or(&[], |second| second)].concat();
        assert_eq!(&again, bytes, "{shown}");
    }
}

/// Whatever decodes is written as the same bytes: no field is passed over. Only the far jump has
/// two encodings.
#[test]
fn no_field_is_passed_over() {
    let mut random = Random(0x5eed);
    let mut decoded = 0;
    for _ in 0..200_000 {
        // Fields are small or zero, so that many have a meaning.
        let word = random.next() & random.next() & random.next();
        let mut bytes = word.to_le_bytes();
        bytes[0] = random.next() as u8;
        if bytes[0] == 0x06 || bytes[0] == 0x18 {
            continue;
        }
        if let Ok(instruction) = decode(&bytes, 0) {
            assert_eq!(instruction.encode(), (bytes, None), "{instruction}");
            decoded += 1;
        }
    }
    assert!(decoded > 1000, "{decoded}");
}

#[test]
fn each_field_without_a_meaning_is_named() {
    let field = Why::Field;
    let cases: &[(&[u8], Why)] = &[
        (&[0x07, 0x0b, 0, 0, 0, 0, 0, 0], field(Field::Destination)),
        (&[0x0f, 0xb1, 0, 0, 0, 0, 0, 0], field(Field::Source)),
        (&[0x07, 0x21, 0, 0, 0, 0, 0, 0], field(Field::Source)),
        (&[0x07, 0x01, 1, 0, 0, 0, 0, 0], field(Field::Offset)),
        (&[0x0f, 0x21, 0, 0, 1, 0, 0, 0], field(Field::Immediate)),
        (&[0x37, 0x01, 2, 0, 5, 0, 0, 0], field(Field::Offset)),
        (&[0xe7, 0x01, 0, 0, 0, 0, 0, 0], field(Field::Opcode)),
        (&[0xb7, 0x01, 8, 0, 0, 0, 0, 0], field(Field::Offset)),
        (&[0xbc, 0x21, 32, 0, 0, 0, 0, 0], field(Field::Offset)),
        (&[0x8f, 0x21, 0, 0, 0, 0, 0, 0], field(Field::Opcode)),
        (&[0x87, 0x01, 0, 0, 1, 0, 0, 0], field(Field::Immediate)),
        (&[0xd4, 0x01, 0, 0, 8, 0, 0, 0], field(Field::Immediate)),
        (&[0xdf, 0x01, 0, 0, 16, 0, 0, 0], field(Field::Opcode)),
        (&[0x61, 0x21, 0, 0, 1, 0, 0, 0], field(Field::Immediate)),
        (&[0x99, 0x21, 0, 0, 0, 0, 0, 0], field(Field::Opcode)),
        (&[0x62, 0x1a, 0, 0, 0, 0, 0, 0], field(Field::Source)),
        (&[0x82, 0x0a, 0, 0, 0, 0, 0, 0], field(Field::Opcode)),
        (&[0x05, 0x01, 0, 0, 0, 0, 0, 0], field(Field::Destination)),
        (&[0x05, 0, 0, 0, 1, 0, 0, 0], field(Field::Immediate)),
        (&[0x06, 0, 1, 0, 0, 0, 0, 0], field(Field::Offset)),
        (&[0xe5, 0, 0, 0, 0, 0, 0, 0], field(Field::Opcode)),
        (&[0x86, 0, 0, 0, 1, 0, 0, 0], field(Field::Opcode)),
        (&[0x96, 0, 0, 0, 0, 0, 0, 0], field(Field::Opcode)),
        (&[0x95, 0, 0, 0, 1, 0, 0, 0], field(Field::Immediate)),
        (&[0x85, 0x30, 0, 0, 1, 0, 0, 0], field(Field::Source)),
        (&[0x18, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], field(Field::Source)),
        (&[0x18, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], field(Field::SecondSlot)),
        (&[0x18, 0, 0, 0, 0, 0, 0, 0], Why::Truncated),
        (&[0xdb, 0x1a, 0, 0, 0, 0, 0, 0], Why::Atomic),
        (&[0xc3, 0x1a, 0, 0, 0, 0, 0, 0], Why::Atomic),
        (&[0x30, 0, 0, 0, 0, 0, 0, 0], Why::PacketLoad),
        (&[0x50, 0x10, 0, 0, 0, 0, 0, 0], Why::PacketLoad),
        (&[0x85, 0x10, 0, 0, 1, 0, 0, 0], Why::LocalCall),
        (&[0x85, 0x20, 0, 0, 1, 0, 0, 0], Why::TypedCall),
    ];
    for (bytes, why) in cases {
        let error = decode(bytes, 0).expect_err("it has no meaning");
        assert_eq!((error.at, error.why), (0, *why), "{bytes:02x?}");
        let text = error.to_string();
        if let Why::Field(field) = why {
            assert!(text.contains(&format!("{field:?}")), "{text}");
        }
    }
}

#[test]
fn a_listing_shows_slots_targets_and_what_is_wrong() {
    let mut program = Vec::new();
    for (bytes, _) in &FORMS[..2] {
        program.extend(*bytes);
    }
    program.extend([0x05, 0, 0xfe, 0xff, 0, 0, 0, 0]);
    program.extend([0xe5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(slots(&program), 5);
    let text = Listing { program: &program, calls: &[] }.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "   0: r3 = 0x112345678 ll");
    assert_eq!(lines[1], "   2: r1 = *(u32 *)(r2 + 4)");
    assert_eq!(lines[2], "   3: goto -2 <2>");
    assert!(lines[3].ends_with("; instruction 4: Opcode: no such value here"), "{text}");
}
