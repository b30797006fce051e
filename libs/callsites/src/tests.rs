//! Over the bytes of a C library as Debian ships it, and over small functions written here.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use yaxpeax_arch::LengthedInstruction;
use yaxpeax_x86::long_mode::InstDecoder;

/// Every Linux machine that builds this has it: the same code as in static programs.
const LIBRARY: &str = "/lib/x86_64-linux-gnu/libc.so.6";
const ENTRY: u32 = 0x50;

fn length(bytes: &[u8]) -> Option<u64> {
    let instruction = InstDecoder::default().decode_slice(bytes).ok()?;
    Some(instruction.len().to_const())
}

/// The addresses of all instructions of all functions, and their lengths.
fn boundaries(object: &Object<'_>, page: u64) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    object.functions(page, page + PAGE_SIZE, &mut |function| {
        let mut at = function.start;
        while at < function.end
            && let Some(len) = object.code(at).and_then(length)
        {
            found.insert(at, len);
            at += len;
        }
    });
    found
}

#[test]
fn every_instruction_of_the_c_library_keeps_its_address() {
    let file = std::fs::read(LIBRARY).unwrap();
    let object = Object::parse(&file).unwrap();
    let mut rewritten = 0;
    let mut all = 0;
    for page in object.pages() {
        let found = sites(&object, page);
        all += found.sites.len() + found.kept.len();
        if found.sites.is_empty() {
            continue;
        }
        let original = object.code(page).unwrap();
        let mut text = original[..original.len().min(PAGE_SIZE as usize)].to_vec();
        let before = boundaries(&object, page);
        for (number, site) in found.sites.into_iter().enumerate() {
            rewritten += 1;
            assert_eq!(object.code(site.syscall).unwrap()[..2], [0x0f, 0x05]);
            let slot = page + 0x100_0000 + number as u64 * STUB_BYTES;
            let stub = site.stub(&object, 0, slot, ENTRY).unwrap();
            check_stub(&object, &site, slot, &stub);
            for patch in site.patches(0, slot).unwrap().into_iter().flatten() {
                let offset = (patch.address - page) as usize;
                text[offset..offset + patch.bytes().len()].copy_from_slice(patch.bytes());
            }
        }
        // Whoever jumps to an address that was an instruction finds the same one, or a whole jump.
        for (&at, &len) in before.range(page..page + text.len() as u64) {
            let offset = (at - page) as usize;
            let Some(now) = text.get(offset..offset + len as usize) else { continue };
            if now == &original[offset..offset + len as usize] {
                continue;
            }
            let is_padding = original[offset] == 0xcc
                || matches!(original[offset..], [0x90, ..] | [0x0f, 0x1f, ..] | [0x66, ..]);
            let jumps = matches!((now[0], len), (0xe9, 5..) | (0xeb, 2));
            assert!(jumps || is_padding, "{at:#x}: {now:x?}");
        }
    }
    println!("{LIBRARY}: {rewritten} of {all} sites");
    assert!(all > 400 && rewritten * 100 >= all * 90, "{rewritten} of {all}");
}

/// A stub does what it displaced, knows where the program goes on, and leads back.
fn check_stub(object: &Object<'_>, site: &Site, slot: u64, stub: &[u8; 32]) {
    let behind = site.syscall + SYSCALL_BYTES;
    let distance = i32::from_le_bytes(*stub[19..].first_chunk().unwrap());
    assert_eq!((slot + 23).wrapping_add_signed(i64::from(distance)), behind);
    assert_eq!(length(&stub[16..]), Some(7));
    assert_eq!(length(&stub[23..]), Some(8));
    for inside in [slot + 16, slot + 23] {
        assert_eq!(original(inside, slot, stub), site.syscall);
    }
    if let Form::Displaced { at } = site.form {
        let len = site.syscall - at;
        assert_eq!(length(object.code(at).unwrap()), Some(len));
        assert_eq!(original(slot + 16 - len, slot, stub), at);
    } else {
        let [Some(patch), _] = site.patches(0, slot).unwrap() else { panic!() };
        assert_eq!(aimed_at(patch.address, patch.bytes().try_into().unwrap()), Some(slot));
    }
}

/// An ELF file with this code at 0x1000 and these functions, by offset and length.
fn file(code: &[u8], functions: &[(u64, u64)]) -> Vec<u8> {
    let mut file = vec![0; 0x1000];
    file.extend_from_slice(code);
    let mut symbols = vec![0; 24];
    for (start, len) in functions {
        symbols.extend([0, 0, 0, 0, 2, 0, 1, 0]);
        symbols.extend((0x1000 + start).to_le_bytes());
        symbols.extend(len.to_le_bytes());
    }
    let (symbols_at, names_at) = (file.len(), file.len() + symbols.len());
    file.extend(&symbols);
    file.extend(b"\0.symtab\0");
    let sections = file.len();
    let mut section = |name: u32, offset: usize, len: usize| {
        let mut header = [0; 64];
        header[..4].copy_from_slice(&name.to_le_bytes());
        header[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(len as u64).to_le_bytes());
        file.extend(header);
    };
    section(0, 0, 0);
    section(1, symbols_at, symbols.len());
    section(0, names_at, 9);
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01");
    put(32, &64_u64.to_le_bytes());
    put(40, &(sections as u64).to_le_bytes());
    put(54, &[56, 0, 1, 0, 64, 0, 3, 0, 2, 0]);
    put(64, &[1, 0, 0, 0, 5, 0, 0, 0]);
    for (at, word) in
        [(72, 0x1000), (80, 0x1000), (96, code.len() as u64), (104, code.len() as u64)]
    {
        put(at, &word.to_le_bytes());
    }
    file
}

fn sites_of(code: &[u8], functions: &[(u64, u64)]) -> Vec<Site> {
    let file = file(code, functions);
    sites(&Object::parse(&file).unwrap(), 0x1000).sites
}

const GETPID: &[u8] = &[0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3];

#[test]
fn the_load_of_the_number_makes_place() {
    let found = sites_of(GETPID, &[(0, 8)]);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].syscall, found[0].number), (0x1005, Some(39)));
    assert_eq!(found[0].form, Form::Displaced { at: 0x1000 });
}

#[test]
fn without_a_function_nothing_is_certain() {
    assert_eq!(sites_of(GETPID, &[]), []);
}

/// `mov r8d, imm32` ends in five bytes that look like `mov eax`.
#[test]
fn a_longer_instruction_is_displaced_whole() {
    let found = sites_of(&[0x41, 0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3], &[(0, 9)]);
    assert_eq!(found[0].form, Form::Displaced { at: 0x1000 });
    assert_eq!(found[0].number, None);
}

#[test]
fn a_constant_that_looks_like_a_call_is_none() {
    let code = [0x48, 0xb8, 0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0, 0xc3];
    assert_eq!(sites_of(&code, &[(0, 11)]), []);
}

/// `read` of glibc: two bytes before the `syscall`, and padding behind the `ret`.
#[test]
fn padding_behind_a_return_takes_the_jump() {
    let mut code = vec![0x31, 0xc0, 0x0f, 0x05, 0xc3];
    code.extend([0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x90]);
    let found = sites_of(&code, &[(0, 5)]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].form, Form::Padded { padding: 0x1005 });
    let patches = found[0].patches(0, 0x20_0000).unwrap();
    assert_eq!(patches[0].unwrap().address, 0x1005);
    assert_eq!(patches[1].unwrap().bytes(), [0xeb, 0x01]);
    // Another function begins there: then it is no padding.
    assert_eq!(sites_of(&code, &[(0, 5), (5, 11)]), []);
    // The padding is reached from above: then it is code.
    code[4] = 0x90;
    assert_eq!(sites_of(&code, &[(0, 5)]), []);
}

#[test]
fn padding_that_is_branched_to_is_code() {
    let code = [0x74, 3, 0x31, 0xc0, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x0f, 0x05, 0xc3];
    assert_eq!(sites_of(&code, &[(0, 13)]), []);
    let free = [0x74, 8, 0x31, 0xc0, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x0f, 0x05, 0xc3];
    assert_eq!(sites_of(&free, &[(0, 13)]).len(), 1);
}

#[test]
fn one_padding_serves_one_site() {
    let mut code = vec![0x31, 0xc0, 0x0f, 0x05, 0x31, 0xff, 0x0f, 0x05, 0xc3];
    code.extend([0xcc; 7]);
    assert_eq!(sites_of(&code, &[(0, 9)]).len(), 1);
}

#[test]
fn a_signal_trampoline_stays_as_it_is() {
    assert_eq!(sites_of(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[(0, 9)]), []);
}

#[test]
fn what_lies_on_two_pages_stays() {
    let mut code = vec![0x90; 0xffd];
    code.extend(GETPID);
    let file = file(&code, &[(0, 0xffd + 8)]);
    let object = Object::parse(&file).unwrap();
    assert_eq!(sites(&object, 0x1000).sites, []);
    assert_eq!(sites(&object, 0x2000).sites, []);
}

/// `mov eax, [rip + 0x100]`: in the stub it reads the same place.
#[test]
fn a_relative_operand_is_fixed_up() {
    let mut code = vec![0x8b, 0x05, 0, 1, 0, 0, 0x0f, 0x05, 0xc3];
    code.extend([0; 0x200]);
    let file = file(&code, &[(0, 9)]);
    let object = Object::parse(&file).unwrap();
    let site = sites(&object, 0x1000).sites[0];
    let stub = site.stub(&object, 0, 0x8000, ENTRY).unwrap();
    let distance = i32::from_le_bytes(*stub[12..].first_chunk().unwrap());
    assert_eq!(0x8000 + 16 + i64::from(distance), 0x1006 + 0x100);
    assert_eq!(site.stub(&object, 0, 0x1_8000_0000, ENTRY), None, "too far away");
}

#[test]
fn a_mangled_file_is_no_reason_to_panic() {
    let original = std::fs::read(LIBRARY).unwrap();
    let object = Object::parse(&original).unwrap();
    let pages: BTreeSet<u64> =
        object.pages().filter(|&page| sites(&object, page) != Found::default()).take(3).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..200 {
        let mut file = original.clone();
        for _ in 0..16 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let near = if random & 1 == 0 { 0x400 } else { file.len() as u64 };
            let at = (random >> 8) % near;
            file[at as usize] = (random >> 48) as u8;
        }
        // Most of the sections' headers are at the end.
        let cut = if random & 2 == 0 { file.len() } else { (random >> 16) as usize % file.len() };
        if let Some(object) = Object::parse(&file[..cut]) {
            for &page in &pages {
                sites(&object, page);
            }
        }
    }
}
