//! What a loader may leave, rightly and wrongly; and bytes that nobody meant.

use std::panic::catch_unwind;
use std::vec::Vec;

use super::multiboot::{length, read};
use super::*;

/// Where the information lies.
const AT: u64 = 0x9_1000;

/// Information of these tags, with a last one.
fn information(tags: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut all = Vec::from([0; 8]);
    let last = (0, Vec::new());
    for (kind, body) in tags.iter().chain([&last]) {
        all.resize(all.len().next_multiple_of(8), 0xee);
        all.extend(kind.to_le_bytes());
        all.extend((8 + body.len() as u32).to_le_bytes());
        all.extend(body);
    }
    let total = all.len() as u32;
    all[..4].copy_from_slice(&total.to_le_bytes());
    all
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A memory map's tag: entries of `size` bytes, each start, length, type.
fn map(size: u32, entries: &[(u64, u64, u32)]) -> (u32, Vec<u8>) {
    let mut body = words(&[size, 0]);
    for (start, len, kind) in entries {
        let begin = body.len();
        body.extend(start.to_le_bytes());
        body.extend(len.to_le_bytes());
        body.extend(kind.to_le_bytes());
        body.resize(begin + size as usize, 0xdd);
    }
    (6, body)
}

fn module(start: u32, end: u32) -> (u32, Vec<u8>) {
    let mut body = words(&[start, end]);
    body.extend(b"boot.img\0");
    (3, body)
}

fn parsed(tags: &[(u32, Vec<u8>)]) -> Result<Loaded, Malformed> {
    let mut loaded = Loaded::empty();
    read(&information(tags), AT, &mut loaded).map(|()| loaded)
}

#[test]
fn what_a_loader_says_is_found() {
    let tags = [
        (2, b"a loader\0".to_vec()),
        (1, b"init=/xok/init run=/bin/sh\0".to_vec()),
        module(0x80_0000, 0x90_0800),
        (14, Vec::from([1; 20])),
        map(24, &[(0, 0x9_fc00, 1), (0x9_fc00, 0x400, 2), (0x10_0000, 0x100_0000, 1)]),
        (15, Vec::from([2; 36])),
        (99, Vec::from([3; 5])),
    ];
    let loaded = parsed(&tags).unwrap();
    assert_eq!(loaded.command_line(), "init=/xok/init run=/bin/sh");
    assert_eq!(loaded.image, Some(Range { start: 0x80_0000, end: 0x90_0800 }));
    let memory: Vec<Range> = loaded.memory().collect();
    let range = |start, end| Range { start, end };
    assert_eq!(memory, [range(0, 0x9_fc00), range(0x10_0000, 0x110_0000)]);
    assert_eq!(loaded.map().count(), 3);
    // The newer pointer, where it lies in memory.
    let at = (loaded.rsdp - AT) as usize;
    assert_eq!(information(&tags)[at..at + 36], [2; 36]);
}

#[test]
fn larger_entries_are_read_by_what_is_known_of_them() {
    let loaded = parsed(&[map(40, &[(0x1000, 0x1000, 1), (0x4000, 0x2000, 1)])]).unwrap();
    let ranges: Vec<Range> = loaded.memory().collect();
    assert_eq!(ranges, [Range::of(0x1000, 0x1000), Range::of(0x4000, 0x2000)]);
}

#[test]
fn a_newer_pointer_is_not_replaced_by_an_older_one() {
    let tags = [(15, Vec::from([2; 36])), (14, Vec::from([1; 20]))];
    let loaded = parsed(&tags).unwrap();
    let at = (loaded.rsdp - AT) as usize;
    assert_eq!(information(&tags)[at], 2);
}

#[test]
fn a_long_command_line_is_cut() {
    let mut line = Vec::from([b'x'; COMMAND_LINE + 9]);
    line.push(0);
    let loaded = parsed(&[(1, line)]).unwrap();
    assert_eq!(loaded.command_line().len(), COMMAND_LINE);
    let loaded = parsed(&[(1, b"a=b \xff c\0".to_vec())]).unwrap();
    assert_eq!(loaded.command_line(), "a=b ");
}

#[test]
fn wrong_tags_are_refused() {
    let refused = |tags: &[(u32, Vec<u8>)]| parsed(tags).err();
    let first = Some(Malformed::Tag(8));
    assert_eq!(refused(&[(1, b"no zero".to_vec())]), first);
    assert_eq!(refused(&[(3, words(&[4096]))]), first);
    assert_eq!(refused(&[(6, words(&[24]))]), first);
    assert_eq!(refused(&[(14, Vec::from([0; 19]))]), first);
    assert_eq!(refused(&[(15, Vec::from([0; 35]))]), first);
    let module_again = [module(4096, 8192), module(8192, 12288)];
    assert_eq!(refused(&module_again), Some(Malformed::Module));
    assert_eq!(refused(&[module(8192, 4096)]), Some(Malformed::Module));
    let map_is = |entries| refused(&[entries]) == Some(Malformed::Map);
    assert!(map_is(map(23, &[(0, 4096, 1)])) && map_is((6, words(&[0, 0, 1, 2, 3, 4, 5, 6]))));
    assert!(map_is((6, words(&[24, 0, 1, 2, 3, 4, 5]))));
    assert!(map_is(map(24, &[(u64::MAX - 4095, 8192, 2)])));
    assert!(map_is(map(24, &[(0, 8192, 1), (4096, 8192, 1)])));
    assert!(map_is(map(24, &[(0, 1, 2); ENTRIES + 1])));
    // Other types may overlap: firmware says so of its own.
    assert!(parsed(&[map(24, &[(0, 8192, 1), (4096, 8192, 2)])]).is_ok());
}

#[test]
fn wrong_lengths_are_refused() {
    assert_eq!(length(15), Err(Malformed::Length));
    assert_eq!(length(16), Ok(16));
    assert_eq!(length(multiboot::LENGTH + 1), Err(Malformed::Length));
    let whole = information(&[(1, b"x\0".to_vec())]);
    for len in 0..whole.len() {
        assert!(read(&whole[..len], AT, &mut Loaded::empty()).is_err(), "{len}");
    }
    // A tag that ends behind the information, one that is shorter than its head, none at the end.
    let with_size = |size: u32| {
        let mut bytes = whole.clone();
        bytes[12..16].copy_from_slice(&size.to_le_bytes());
        read(&bytes, AT, &mut Loaded::empty())
    };
    assert_eq!(with_size(whole.len() as u32), Err(Malformed::Tag(8)));
    assert_eq!(with_size(u32::MAX), Err(Malformed::Tag(8)));
    assert_eq!(with_size(7), Err(Malformed::Tag(8)));
    assert_eq!(with_size(whole.len() as u32 - 8), Err(Malformed::End));
}

/// No bytes whatsoever have the reader panic, or say of memory what is no range.
#[test]
fn random_bytes_are_refused_or_read() {
    let mut seed = 0x1234_5678_9abc_def1_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let whole = information(&[
        (1, b"init=/xok/init\0".to_vec()),
        module(0x80_0000, 0x90_0800),
        map(24, &[(0, 0x9_fc00, 1), (0x9_fc00, 0x400, 2), (0x10_0000, 0x100_0000, 1)]),
        (14, Vec::from([1; 20])),
        (15, Vec::from([2; 36])),
    ]);
    let (mut good, mut bad) = (0, 0);
    for round in 0..200_000 {
        let mut bytes = whole.clone();
        for _ in 0..random() % 4 {
            let at = random() as usize % bytes.len();
            bytes[at] = random() as u8;
        }
        if round % 4 == 0 {
            // Nothing but noise behind a length that is right.
            bytes.truncate(8 + random() as usize % whole.len());
            bytes[8..].fill_with(|| random() as u8 & 0x1f);
            let len = bytes.len() as u32;
            bytes[..4].copy_from_slice(&len.to_le_bytes());
        }
        let verdict = catch_unwind(|| {
            let mut loaded = Loaded::empty();
            let verdict = read(&bytes, AT, &mut loaded);
            assert!(loaded.memory().all(|range| range.start < range.end));
            assert!(loaded.image.is_none_or(|image| image.start < image.end));
            let pointer = loaded.rsdp;
            assert!(pointer == 0 || (AT..AT + bytes.len() as u64 - 19).contains(&pointer));
            assert!(loaded.command_line().len() <= COMMAND_LINE);
            verdict
        });
        match verdict.unwrap_or_else(|_| panic!("{bytes:x?}")) {
            Ok(()) => good += 1,
            Err(_) => bad += 1,
        }
    }
    assert!(good > 1000 && bad > 1000, "{good} read, {bad} refused");
}
