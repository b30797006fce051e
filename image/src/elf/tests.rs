//! Plans of files made here, each reason to refuse, and files that a generator broke.

use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::random::Random;

/// Where the words of the header and of the program headers lie.
const TYPE: usize = 16;
const MACHINE: usize = 18;
const VERSION: usize = 20;
const ENTRY: usize = 24;
const PHOFF: usize = 32;
const EHSIZE: usize = 52;
const PHENTSIZE: usize = 54;
const PHNUM: usize = 56;
const P_FLAGS: usize = 4;
const P_OFFSET: usize = 8;
const P_VADDR: usize = 16;
const P_FILESZ: usize = 32;
const P_MEMSZ: usize = 40;
const P_ALIGN: usize = 48;

const TEXT: usize = 0;
const DATA: usize = 1;
const TLS: usize = 2;
const STACK: usize = 3;
const SPARE: usize = 4;
const HEADERS: usize = 5;

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

fn header_at(number: usize) -> usize {
    64 + number * 56
}

fn put_header(file: &mut [u8], number: usize, kind: u32, flags: u32, words: [u64; 5]) {
    let at = header_at(number);
    let [offset, vaddr, filesz, memsz, align] = words;
    put(file, at, &kind.to_le_bytes());
    put(file, at + P_FLAGS, &flags.to_le_bytes());
    for (field, word) in
        [(8, offset), (16, vaddr), (24, vaddr), (32, filesz), (40, memsz), (48, align)]
    {
        put(file, at + field, &word.to_le_bytes());
    }
}

/// A program with code, data that ends in zeros, thread-local data, and a spare (null) header.
fn sample(kind: u16, base: u64) -> Vec<u8> {
    let mut file = vec![0; 0x2400];
    put(&mut file, 0, b"\x7fELF\x02\x01\x01");
    put(&mut file, TYPE, &kind.to_le_bytes());
    put(&mut file, MACHINE, &62u16.to_le_bytes());
    put(&mut file, VERSION, &1u32.to_le_bytes());
    put(&mut file, ENTRY, &(base + 0x500).to_le_bytes());
    put(&mut file, PHOFF, &64u64.to_le_bytes());
    put(&mut file, EHSIZE, &64u16.to_le_bytes());
    put(&mut file, PHENTSIZE, &56u16.to_le_bytes());
    put(&mut file, PHNUM, &(HEADERS as u16).to_le_bytes());
    put_header(&mut file, TEXT, PT_LOAD, PF_R | PF_X, [0, base, 0x1800, 0x1800, 0x1000]);
    let data = [0x1f00, base + 0x2f00, 0x300, 0x5000, 0x1000];
    put_header(&mut file, DATA, PT_LOAD, PF_R | PF_W, data);
    put_header(&mut file, TLS, PT_TLS, PF_R, [0x1f00, base + 0x2f00, 0x20, 0x48, 8]);
    put_header(&mut file, STACK, PT_GNU_STACK, PF_R | PF_W, [0, 0, 0, 0, 16]);
    file
}

fn fixed() -> Vec<u8> {
    sample(ET_EXEC, 0x40_0000)
}

fn refusal(change: impl FnOnce(&mut Vec<u8>)) -> ElfError {
    let mut file = fixed();
    change(&mut file);
    Plan::parse(&file).unwrap_err()
}

fn with16(at: usize, value: u16) -> ElfError {
    refusal(|file| put(file, at, &value.to_le_bytes()))
}

fn with64(at: usize, value: u64) -> ElfError {
    refusal(|file| put(file, at, &value.to_le_bytes()))
}

fn with(number: usize, field: usize, value: u64) -> ElfError {
    with64(header_at(number) + field, value)
}

#[test]
fn plans_a_fixed_program() {
    let plan = Plan::parse(&fixed()).unwrap();
    assert_eq!((plan.kind, plan.entry), (Kind::Fixed, 0x40_0500));
    assert_eq!(plan.phdr_vaddr, Some(0x40_0040));
    assert_eq!((plan.phentsize, plan.phnum), (56, 5));
    assert_eq!((plan.lowest, plan.highest, plan.align), (0x40_0000, 0x40_8000, 0x1000));
    assert!(!plan.executable_stack && !plan.has_writable_code());
    let tls = Tls { vaddr: 0x40_2f00, memsz: 0x48, filesz: 0x20, align: 8 };
    assert_eq!(plan.tls, Some(tls));
    let [text, data] = plan.segments() else { panic!("two segments") };
    assert!(text.read && !text.write && text.execute);
    assert!(data.read && data.write && !data.execute);
    assert_eq!((data.vaddr, data.memsz, data.filesz), (0x40_2f00, 0x5000, 0x300));
    assert_eq!((data.file_offset, data.align), (0x1f00, 0x1000));
    assert_eq!(data.pages(), 0x40_2000..0x40_8000);
}

#[test]
fn plans_a_relocatable_program_from_zero() {
    let plan = Plan::parse(&sample(ET_DYN, 0)).unwrap();
    assert_eq!((plan.kind, plan.lowest, plan.entry), (Kind::Relocatable, 0, 0x500));
    assert_eq!(plan.phdr_vaddr, Some(64));
}

#[test]
fn plans_within_other_ranges() {
    let upper = 0xffff_8000_0000_0000..0xffff_8080_0000_0000;
    let file = sample(ET_EXEC, upper.start);
    assert_eq!(Plan::parse_in(&file, upper.clone()).unwrap().lowest, upper.start);
    assert_eq!(Plan::parse(&file), Err(ElfError::OutOfRange { header: 0 }));
    let refused = Plan::parse_in(&fixed(), upper);
    assert_eq!(refused, Err(ElfError::OutOfRange { header: 0 }));
}

#[test]
fn reports_writable_code_and_executable_stacks() {
    let mut file = fixed();
    put(&mut file, header_at(TEXT) + P_FLAGS, &(PF_R | PF_W | PF_X).to_le_bytes());
    put(&mut file, header_at(STACK) + P_FLAGS, &(PF_R | PF_W | PF_X).to_le_bytes());
    let plan = Plan::parse(&file).unwrap();
    assert!(plan.has_writable_code() && plan.executable_stack);
}

#[test]
fn an_empty_segment_is_no_segment() {
    let mut file = fixed();
    put_header(&mut file, SPARE, PT_LOAD, PF_R, [0, 0, 0, 0, 0]);
    assert_eq!(Plan::parse(&file).unwrap().segments().len(), 2);
}

#[test]
fn headers_that_no_segment_holds_have_no_address() {
    let mut file = fixed();
    let table = file[64..64 + HEADERS * 56].to_vec();
    let end = file.len() as u64;
    file.extend_from_slice(&table);
    put(&mut file, PHOFF, &end.to_le_bytes());
    assert_eq!(Plan::parse(&file).unwrap().phdr_vaddr, None);
}

#[test]
fn refuses_what_is_no_program() {
    assert_eq!(Plan::parse(b""), Err(ElfError::NotElf));
    assert_eq!(Plan::parse(b"#!/bin/sh\n"), Err(ElfError::NotElf));
    assert_eq!(refusal(|file| file[0] = 0), ElfError::NotElf);
    assert_eq!(refusal(|file| file.truncate(63)), ElfError::Truncated);
    assert_eq!(refusal(|file| file[4] = 1), ElfError::WrongClass(1));
    assert_eq!(refusal(|file| file[5] = 2), ElfError::WrongByteOrder(2));
    assert_eq!(refusal(|file| file[6] = 0), ElfError::WrongVersion(0));
    assert_eq!(refusal(|file| file[7] = 9), ElfError::WrongAbi(9));
    assert_eq!(with16(VERSION, 2), ElfError::WrongVersion(2));
    assert_eq!(with16(MACHINE, 183), ElfError::WrongMachine(183));
    for kind in [0, 1, 4, 5, 0xfe00] {
        assert_eq!(with16(TYPE, kind), ElfError::NotExecutable(kind));
    }
}

#[test]
fn refuses_wrong_program_header_tables() {
    assert_eq!(with16(EHSIZE, 52), ElfError::WrongHeaderSize(52));
    assert_eq!(with16(PHENTSIZE, 32), ElfError::WrongHeaderSize(32));
    assert_eq!(with16(PHNUM, 0), ElfError::NoSegments);
    assert_eq!(with16(PHNUM, 129), ElfError::TooManyHeaders(129));
    assert_eq!(with16(PHNUM, 0xffff), ElfError::TooManyHeaders(0xffff));
    assert_eq!(with64(PHOFF, 0x2400), ElfError::HeadersOutOfFile);
    assert_eq!(with64(PHOFF, u64::MAX - 8), ElfError::HeadersOutOfFile);
    assert_eq!(refusal(|file| file.truncate(200)), ElfError::HeadersOutOfFile);
}

#[test]
fn refuses_segments_outside_the_file() {
    let header = DATA as u16;
    assert_eq!(refusal(|file| file.truncate(0x21ff)), ElfError::OutOfFile { header });
    assert_eq!(with(DATA, P_OFFSET, 0x10_0f00), ElfError::OutOfFile { header });
    assert_eq!(with(DATA, P_OFFSET, u64::MAX - 0xff), ElfError::OutOfFile { header });
    assert_eq!(with(DATA, P_FILESZ, 0x1000), ElfError::OutOfFile { header });
    assert_eq!(with(DATA, P_FILESZ, 0x5001), ElfError::FileExceedsMemory { header });
    assert_eq!(with(DATA, P_MEMSZ, 0x2ff), ElfError::FileExceedsMemory { header });
}

#[test]
fn refuses_segments_outside_of_memory() {
    let header = DATA as u16;
    let out_of_range = ElfError::OutOfRange { header };
    assert_eq!(with(DATA, P_VADDR, 0xffff_ffff_ffff_ff00), out_of_range);
    assert_eq!(with(DATA, P_VADDR, 0xffff_8000_0000_0f00), out_of_range);
    assert_eq!(with(DATA, P_VADDR, 0x7fff_ffff_ef00), out_of_range);
    assert_eq!(with(DATA, P_VADDR, 0xff00), out_of_range);
    assert_eq!(with(DATA, P_MEMSZ, u64::MAX), out_of_range);
    assert_eq!(with(DATA, P_MEMSZ, 1 << 47), out_of_range);
    let span = (0x40_2f00 + (1 << 40) + 0x1000 - 0xf00) - 0x40_0000;
    assert_eq!(with(DATA, P_MEMSZ, 1 << 40), ElfError::TooLarge { span });
    let far = Plan::parse(&sample(ET_DYN, LINUX_RANGE.end - LINUX_RANGE.start - 0x3000));
    assert_eq!(far, Err(out_of_range));
}

#[test]
fn refuses_misplaced_segments() {
    let header = DATA as u16;
    assert_eq!(with(DATA, P_ALIGN, 0x1001), ElfError::BadAlignment { header });
    assert_eq!(with(DATA, P_ALIGN, 1 << 63), ElfError::BadAlignment { header });
    assert_eq!(with(DATA, P_VADDR, 0x40_2f08), ElfError::Misaligned { header });
    assert_eq!(with(DATA, P_VADDR, 0x3f_0f00), ElfError::Unsorted { header });
    assert_eq!(with(DATA, P_VADDR, 0x40_0f00), ElfError::Overlapping { header });
    assert_eq!(with(DATA, P_VADDR, 0x40_1f00), ElfError::Overlapping { header });
    assert_eq!(with(TEXT, P_MEMSZ, 0x2f00), ElfError::Overlapping { header });
}

#[test]
fn refuses_wrong_numbers_of_segments() {
    let none = refusal(|file| {
        for number in [TEXT, DATA] {
            put(file, header_at(number), &0u32.to_le_bytes());
        }
    });
    assert_eq!(none, ElfError::NoSegments);
    let many = refusal(|file| {
        let count = SEGMENTS_MAX + 1;
        put(file, PHNUM, &(count as u16).to_le_bytes());
        for number in 0..count {
            let vaddr = 0x40_0000 + number as u64 * 0x1000;
            put_header(file, number, PT_LOAD, PF_R | PF_X, [0, vaddr, 0, 0x1000, 0x1000]);
        }
    });
    assert_eq!(many, ElfError::TooManySegments);
    for kind in [PT_TLS, PT_GNU_STACK] {
        let twice = refusal(|file| put_header(file, SPARE, kind, PF_R, [0; 5]));
        assert_eq!(twice, ElfError::Duplicate { header: SPARE as u16, kind });
    }
}

#[test]
fn refuses_entries_outside_code() {
    assert_eq!(with64(ENTRY, 0), ElfError::BadEntry(0));
    assert_eq!(with64(ENTRY, 0x40_2f00), ElfError::BadEntry(0x40_2f00));
    assert_eq!(with64(ENTRY, 0x40_1800), ElfError::BadEntry(0x40_1800));
    assert_eq!(with64(ENTRY, u64::MAX), ElfError::BadEntry(u64::MAX));
}

#[test]
fn refuses_wrong_thread_local_data() {
    let header = TLS as u16;
    assert_eq!(with(TLS, P_FILESZ, 0x49), ElfError::FileExceedsMemory { header });
    assert_eq!(with(TLS, P_OFFSET, u64::MAX), ElfError::OutOfFile { header });
    assert_eq!(with(TLS, P_ALIGN, 3), ElfError::BadAlignment { header });
    assert_eq!(with(TLS, P_VADDR, 0x50_0000), ElfError::BadTls);
    assert_eq!(with(TLS, P_VADDR, u64::MAX), ElfError::BadTls);
    assert_eq!(with(TLS, P_VADDR, 0x40_31f0), ElfError::BadTls);
    assert_eq!(with(TLS, P_MEMSZ, 1 << 41), ElfError::TooLarge { span: 1 << 41 });
}

#[test]
fn names_the_interpreter() {
    let name = b"/lib64/ld-linux-x86-64.so.2\0";
    let dynamic = |name: &[u8], offset: u64, size: u64| {
        refusal(|file| {
            put(file, 0x600, name);
            put_header(file, SPARE, PT_INTERP, PF_R, [offset, 0, size, size, 1]);
        })
    };
    let size = name.len() as u64;
    let needs = ElfError::NeedsInterpreter { offset: 0x600, size: size - 1 };
    assert_eq!(dynamic(name, 0x600, size), needs);
    assert_eq!(dynamic(name, 0x600, size - 1), ElfError::BadInterpreter);
    assert_eq!(dynamic(b"/lib\0ld\0", 0x600, 8), ElfError::BadInterpreter);
    assert_eq!(dynamic(b"\0", 0x600, 1), ElfError::BadInterpreter);
    assert_eq!(dynamic(b"", 0x600, 0), ElfError::BadInterpreter);
    assert_eq!(dynamic(b"", 0x2400, 8), ElfError::OutOfFile { header: SPARE as u16 });
    let long = refusal(|file| {
        file.resize(0x5000, b'x');
        file[0x4000] = 0;
        put_header(file, SPARE, PT_INTERP, PF_R, [0x2fff, 0, 0x1002, 0x1002, 1]);
    });
    assert_eq!(long, ElfError::BadInterpreter);
}

/// What a loader relies on.
fn check(plan: &Plan, file: &[u8]) {
    let mut end = 0;
    for segment in plan.segments() {
        assert!(segment.pages().start >= end);
        end = segment.pages().end;
        assert!(end <= LINUX_RANGE.end && segment.filesz <= segment.memsz);
        assert!(segment.file_offset + segment.filesz <= file.len() as u64);
        assert_eq!(segment.vaddr % PAGE_SIZE, segment.file_offset % PAGE_SIZE);
    }
    assert!(plan.lowest < plan.highest && plan.highest == end);
    assert!(plan.align.is_power_of_two());
}

#[test]
fn mutations_never_panic() {
    let originals = [fixed(), sample(ET_DYN, 0)];
    let mut random = Random(0x5eed);
    let mut refused = 0;
    let rounds = 200_000;
    for round in 0..rounds {
        let mut file = originals[round % 2].clone();
        random.mutate(&mut file[..64 + HEADERS * 56]);
        if random.below(16) == 0 {
            file.truncate(random.below(0x2400));
        }
        match Plan::parse(&file) {
            Ok(plan) => check(&plan, &file),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > rounds / 4 && refused < rounds, "{refused}");
}

#[test]
fn plans_this_test_itself() {
    // A real linker's output: dynamic, so the answer names the interpreter.
    let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    match Plan::parse(&file) {
        Ok(plan) => check(&plan, &file),
        Err(ElfError::NeedsInterpreter { offset, size }) => {
            let name = range(&file, offset, size).unwrap();
            assert!(name.starts_with(b"/"));
        }
        Err(error) => panic!("{error}"),
    }
}
