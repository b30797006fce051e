//! The parts of an ELF file that tell where its functions begin.
//!
//! Every word is read with its bounds checked: a file that lies harms the program that it is, and
//! nobody else.

use crate::{pclntab, symbols, unwind};

/// Executable segments looked at.
const SEGMENTS: usize = 4;
const EXECUTABLE: u32 = 1;
const LOAD: u32 = 1;
const UNWIND_INDEX: u32 = 0x6474_e550;

/// A function: the addresses `[start, end)` as the file has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// First instruction.
    pub start: u64,
    /// First address behind.
    pub end: u64,
}

/// A part of the file and its address in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part<'a> {
    /// Address as the file has it.
    pub address: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// A program's file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Object<'a> {
    text: [Part<'a>; SEGMENTS],
    unwind: Part<'a>,
    lines: Part<'a>,
    text_section: u64,
    symbols: &'a [u8],
}

impl<'a> Object<'a> {
    /// Reads the headers; `None` for what is no ELF file of 64 bits.
    pub fn parse(file: &'a [u8]) -> Option<Self> {
        if file.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let mut object = Self::default();
        let mut free = object.text.iter_mut();
        let (at, size, count) = (word64(file, 32)?, word16(file, 54)?, word16(file, 56)?);
        for number in 0..u64::from(count) {
            let header = from(file, at.checked_add(number * u64::from(size))?)?;
            if word32(header, 0)? == UNWIND_INDEX {
                object.unwind = unwind_behind(file, header).unwrap_or_default();
            }
            if word32(header, 0)? == LOAD && word32(header, 4)? & EXECUTABLE != 0 {
                let bytes = slice(file, word64(header, 8)?, word64(header, 32)?)?;
                *free.next()? = Part { address: word64(header, 16)?, bytes };
            }
        }
        object.read_sections(file);
        Some(object)
    }

    /// Notes the sections that tell of functions; a file without any is no error.
    fn read_sections(&mut self, file: &'a [u8]) -> Option<()> {
        let (at, size) = (word64(file, 40)?, u64::from(word16(file, 58)?));
        let header = |number: u16| from(file, at.checked_add(u64::from(number) * size)?);
        let bytes = |header: &[u8]| slice(file, word64(header, 24)?, word64(header, 32)?);
        let names = bytes(header(word16(file, 62)?)?)?;
        for number in 1..word16(file, 60)? {
            let header = header(number)?;
            let name = from(names, u64::from(word32(header, 0)?))?;
            let name = name.split(|&byte| byte == 0).next()?;
            let address = word64(header, 16)?;
            match name {
                b".eh_frame" => self.unwind = Part { address, bytes: bytes(header)? },
                b".gopclntab" => self.lines = Part { address, bytes: bytes(header)? },
                b".symtab" => self.symbols = bytes(header)?,
                b".text" => self.text_section = address,
                _ => {}
            }
        }
        Some(())
    }

    /// The code from `address` to the end of its segment.
    pub fn code(&self, address: u64) -> Option<&'a [u8]> {
        self.text.iter().find_map(|part| {
            let offset = address.checked_sub(part.address)?;
            part.bytes.get(usize::try_from(offset).ok()?..).filter(|rest| !rest.is_empty())
        })
    }

    /// Shows `visit` each function known that overlaps `[first, last)`, in no order; the same one
    /// may come twice.
    pub fn functions(&self, first: u64, last: u64, visit: &mut dyn FnMut(Function)) {
        let mut inside = |function: Function| {
            if function.start < last && first < function.end {
                visit(function);
            }
        };
        unwind::functions(&self.unwind, &mut inside);
        pclntab::functions(&self.lines, self.text_section, first, last, &mut inside);
        symbols::functions(self.symbols, &mut inside);
    }

    /// The pages that hold code, each by its first address.
    pub fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.text.iter().flat_map(|part| {
            let first = part.address & !(crate::PAGE_SIZE - 1);
            let last = part.address.saturating_add(part.bytes.len() as u64);
            (first..last).step_by(crate::PAGE_SIZE as usize)
        })
    }
}

/// The unwind table that the index with this program header names, for files without section
/// headers. It follows the index in the file as it does in memory, and ends by itself.
fn unwind_behind<'a>(file: &'a [u8], header: &[u8]) -> Option<Part<'a>> {
    let (offset, index) = (word64(header, 8)?, word64(header, 16)?);
    let head = from(file, offset)?;
    // Version 1; the table's address counts from itself on, four bytes, signed.
    if *head.get(..2)? != [1, 0x1b] {
        return None;
    }
    let distance = 4 + u64::from(u32::try_from(word32(head, 4)? as i32).ok()?);
    let address = index.checked_add(distance)?;
    Some(Part { address, bytes: from(head, distance)? })
}

/// The bytes from `offset` on.
pub fn from(bytes: &[u8], offset: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(offset).ok()?..)
}

fn slice(bytes: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    from(bytes, offset)?.get(..usize::try_from(len).ok()?)
}

/// The 16-bit word at `offset`.
pub fn word16(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// The 32-bit word at `offset`.
#[inline]
pub fn word32(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// The 64-bit word at `offset`.
#[inline]
pub fn word64(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}
