//! The first program lies where its file says, and the image stays as it was.

use super::*;
use crate::fake::{self, KERNEL_FRAMES};
use abi::layout::table_index;
use abi::memory::PRESENT;

const TEXT: u64 = 0x40_0000;
const DATA: u64 = 0x40_3000;
const ENTRY: u64 = TEXT + 0x80;

/// An executable of two pages: text mapped from the file's first page, data from offset 0x1010
/// with 0x20 bytes in the file and 0x1800 in memory.
fn elf() -> Vec<u8> {
    let mut file = vec![0u8; 0x2000];
    let header = |kind: u32, flags: u32, words: [u64; 6]| {
        let mut bytes = Vec::new();
        bytes.extend(kind.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes
    };
    let mut head = b"\x7fELF\x02\x01\x01".to_vec();
    head.resize(16, 0);
    for half in [2u16, 62] {
        head.extend(half.to_le_bytes());
    }
    head.extend(1u32.to_le_bytes());
    for word in [ENTRY, 64, 0] {
        head.extend(word.to_le_bytes());
    }
    head.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 2, 0, 0, 0] {
        head.extend(half.to_le_bytes());
    }
    head.extend(header(1, 5, [0, TEXT, TEXT, 0x1000, 0x1000, 0x1000]));
    head.extend(header(1, 6, [0x1010, DATA + 0x10, DATA + 0x10, 0x20, 0x1800, 0x1000]));
    file[..head.len()].copy_from_slice(&head);
    file[0x1010..0x1030].fill(0xda);
    file
}

fn start() -> (State, fake::FakeMachine, u64) {
    let (mut state, mut machine) = fake::new(256);
    let file = elf();
    let plan = Plan::parse(&file).unwrap();
    let at = Frame(KERNEL_FRAMES).address();
    for (page, bytes) in file.chunks(PAGE_SIZE as usize).enumerate() {
        machine.fill(at + page as u64 * PAGE_SIZE, bytes);
    }
    start_init(&mut state, &mut machine, &plan, at).unwrap();
    (state, machine, at)
}

#[test]
fn text_is_the_image_and_data_is_a_copy() {
    let (state, machine, at) = start();
    let root = domain::root(&state, 1.into());
    let leaf = |address| table::look_up(&machine, root, address);
    let text = leaf(TEXT).unwrap();
    assert_eq!((text.frame.address(), text.writable, text.executable), (at, false, true));
    let data = leaf(DATA).unwrap();
    assert_eq!(frame::kind(&state, data.frame), Some(FrameType::Data));
    assert_eq!((data.writable, data.executable), (true, false));
    let word = |offset: u64| machine.word(data.frame.address() + offset);
    assert_eq!(word(0), 0, "what lies before the segment in the file stays out");
    assert_eq!(word(0x10), 0xdada_dada_dada_dada);
    assert_eq!((word(0x28), word(0x30)), (0xdada_dada_dada_dada, 0));
    let zeroes = leaf(DATA + PAGE_SIZE).unwrap();
    assert!((0..512).all(|at| machine.word(zeroes.frame.address() + 8 * at) == 0));
    assert_eq!(leaf(DATA + 2 * PAGE_SIZE), None);
}

#[test]
fn it_has_a_stack_a_save_area_and_the_root_name() {
    let (state, machine, _) = start();
    let root = domain::root(&state, 1.into());
    for address in [STACK_TOP - STACK_BYTES, STACK_TOP - 8, SAVE_AREA, APPLICATION_PAGE] {
        assert!(table::look_up(&machine, root, address).unwrap().writable, "{address:#x}");
    }
    assert_eq!(table::look_up(&machine, root, STACK_TOP), None);
    assert_eq!(table::look_up(&machine, root, STACK_TOP - STACK_BYTES - 8), None);
    let capability = domain::capability(&state, 1.into(), 0).unwrap();
    assert_eq!((capability.rights, capability.name), (ALL, Name::ROOT));
    assert_eq!(machine.entry(root, table_index(TEXT, 4)) & PRESENT, PRESENT);
}
