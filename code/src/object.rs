//! A function out of an object file of clang's bpf target: strict, and as far as it goes.
//!
//! An ELF file (System V ABI, chapters 4 and 5; `elf(5)`) of 64 bits, little-endian, relocatable,
//! for machine 247. Nothing is linked: a function whose section has relocations (it names a
//! variable, a table, another function) is refused.

/// `EM_BPF`.
const MACHINE: u16 = 247;
/// `ET_REL`.
const RELOCATABLE: u16 = 1;
const HEADER_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
/// `SHT_SYMTAB`, `SHT_RELA`, `SHT_REL`.
const SYMBOLS: u32 = 2;
const RELOCATIONS: [u32; 2] = [4, 9];
/// `STT_FUNC`.
const FUNCTION: u8 = 2;
/// Most sections of a file that is looked at.
const SECTIONS_MAX: usize = 256;

/// Why no function was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectError {
    /// Not a relocatable ELF file for this machine.
    NotAnObject,
    /// Something lies outside of the file, or there are more than 256 sections.
    Malformed,
    /// No function has this name.
    NotFound,
    /// Its section must be linked with something.
    NeedsLinking,
}

/// One section's place, and what the header says of it.
#[derive(Clone, Copy)]
struct Section<'a> {
    kind: u32,
    link: u32,
    info: u32,
    bytes: &'a [u8],
}

/// The program of the function with this name.
///
/// # Errors
/// See [`ObjectError`].
pub fn function<'a>(file: &'a [u8], name: &str) -> Result<&'a [u8], ObjectError> {
    let identity = file.get(..7).ok_or(ObjectError::NotAnObject)?;
    let kind = (half(file, 16)?, half(file, 18)?);
    if identity != b"\x7fELF\x02\x01\x01" || kind != (RELOCATABLE, MACHINE) {
        return Err(ObjectError::NotAnObject);
    }
    let count = usize::from(half(file, 60)?);
    if count > SECTIONS_MAX || usize::from(half(file, 58)?) != SECTION_BYTES {
        return Err(ObjectError::Malformed);
    }
    let (number, range) = find(file, count, name)?;
    for other in 0..count {
        let other = section(file, other)?;
        let is_its = RELOCATIONS.contains(&other.kind) && other.info as usize == number;
        if is_its && !other.bytes.is_empty() {
            return Err(ObjectError::NeedsLinking);
        }
    }
    section(file, number)?.bytes.get(range).ok_or(ObjectError::Malformed)
}

/// The section that a function lies in, and where in it.
fn find(
    file: &[u8],
    sections: usize,
    name: &str,
) -> Result<(usize, core::ops::Range<usize>), ObjectError> {
    for number in 0..sections {
        let table = section(file, number)?;
        if table.kind != SYMBOLS {
            continue;
        }
        let names = section(file, table.link as usize)?.bytes;
        for symbol in table.bytes.chunks_exact(SYMBOL_BYTES) {
            let place = names.get(word(symbol, 0)? as usize..).unwrap_or(&[]);
            let called = place.split(|&byte| byte == 0).next().unwrap_or(&[]);
            if symbol[4] & 15 != FUNCTION || called != name.as_bytes() {
                continue;
            }
            let (start, bytes) = (size(symbol, 8)?, size(symbol, 16)?);
            let end = start.checked_add(bytes).ok_or(ObjectError::Malformed)?;
            return Ok((usize::from(half(symbol, 6)?), start..end));
        }
    }
    Err(ObjectError::NotFound)
}

fn section(file: &[u8], number: usize) -> Result<Section<'_>, ObjectError> {
    let malformed = ObjectError::Malformed;
    let table = size(file, 40)?;
    if number >= usize::from(half(file, 60)?) || table < HEADER_BYTES {
        return Err(malformed);
    }
    let at = table.checked_add(number * SECTION_BYTES).ok_or(malformed)?;
    let header = file.get(at..).and_then(|rest| rest.get(..SECTION_BYTES)).ok_or(malformed)?;
    let (start, bytes) = (size(header, 24)?, size(header, 32)?);
    let bytes = file.get(start..).and_then(|rest| rest.get(..bytes));
    let kind = word(header, 4)?;
    // What occupies nothing in the file (SHT_NOBITS) may say any place.
    let bytes = if kind == 8 { Some(&[][..]) } else { bytes };
    let (link, info) = (word(header, 40)?, word(header, 44)?);
    Ok(Section { kind, link, info, bytes: bytes.ok_or(malformed)? })
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], ObjectError> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.copied().ok_or(ObjectError::Malformed)
}

fn half(bytes: &[u8], at: usize) -> Result<u16, ObjectError> {
    Ok(u16::from_le_bytes(array(bytes, at)?))
}

fn word(bytes: &[u8], at: usize) -> Result<u32, ObjectError> {
    Ok(u32::from_le_bytes(array(bytes, at)?))
}

fn size(bytes: &[u8], at: usize) -> Result<usize, ObjectError> {
    usize::try_from(u64::from_le_bytes(array(bytes, at)?)).map_err(|_| ObjectError::Malformed)
}
