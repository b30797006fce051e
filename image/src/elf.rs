//! The load plan of an ELF file: what goes where, or the reason why nothing does.
//!
//! Accepts what a static Linux program for x86-64 is (System V gABI chapters 4 and 5; x86-64
//! psABI): `ET_EXEC` at its own addresses, `ET_DYN` (static-PIE) at a base that the caller chooses.
//! It is stricter than Linux where Linux would load something else than the file says: segments
//! must be sorted, lie wholly in the file, and share no page.
//!
//! Invariant: a [`Plan`]'s segments are sorted, share no page, lie inside the address range asked
//! for, and their file ranges lie inside the file; sums over them cannot wrap.

use core::fmt;
use core::ops::Range;

use crate::bytes::{range, word16, word32, word64};

#[cfg(test)]
mod tests;

/// Bytes of a page: what segments must be congruent to in memory and file.
pub const PAGE_SIZE: u64 = 4096;
/// Most `PT_LOAD` segments of a file.
pub const SEGMENTS_MAX: usize = 16;
/// Most program headers of a file; Linux takes 64 KiB of them.
pub const PROGRAM_HEADERS_MAX: u16 = 128;
/// Most bytes between a program's lowest and highest address: beyond this it is not meant to run.
pub const SPAN_MAX: u64 = 1 << 40;
/// Most bytes of an interpreter's name with its terminator, as Linux's `PATH_MAX`.
pub const INTERPRETER_MAX: u64 = 4096;
/// Where a Linux program may lie: from `mmap_min_addr` to the last page of the lower half.
pub const LINUX_RANGE: Range<u64> = 0x1_0000..0x7fff_ffff_f000;

const HEADER_SIZE: u16 = 64;
const PROGRAM_HEADER_SIZE: u16 = 56;

const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const EM_X86_64: u16 = 62;

const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const PT_TLS: u32 = 7;
const PT_GNU_STACK: u32 = 0x6474_e551;

const PF_X: u32 = 1;
const PF_W: u32 = 2;
const PF_R: u32 = 4;

/// Why a file is not loaded. `header` is the number of the program header at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElfError {
    /// It does not begin with the four bytes of an ELF file.
    NotElf,
    /// It ends within its header.
    Truncated,
    /// It is not for 64 bits.
    WrongClass(u8),
    /// It is not little-endian.
    WrongByteOrder(u8),
    /// The version in the identification or the header is not 1.
    WrongVersion(u32),
    /// The ABI is neither System V (0) nor Linux (3).
    WrongAbi(u8),
    /// It is for another machine.
    WrongMachine(u16),
    /// It is no program: an object file or a core, for example.
    NotExecutable(u16),
    /// The header or the program headers have sizes that they do not have.
    WrongHeaderSize(u16),
    /// There are more than [`PROGRAM_HEADERS_MAX`] program headers.
    TooManyHeaders(u16),
    /// The program headers lie outside the file.
    HeadersOutOfFile,
    /// There is nothing to load.
    NoSegments,
    /// There are more than [`SEGMENTS_MAX`] segments to load.
    TooManySegments,
    /// A second header of a kind of which there is at most one.
    Duplicate {
        /// The header.
        header: u16,
        /// Its `p_type`.
        kind: u32,
    },
    /// The segment's bytes lie outside the file: cut short, or wrapping around.
    OutOfFile {
        /// The header.
        header: u16,
    },
    /// The segment has more bytes in the file than in memory.
    FileExceedsMemory {
        /// The header.
        header: u16,
    },
    /// The segment lies where programs must not, or wraps around the address space.
    OutOfRange {
        /// The header.
        header: u16,
    },
    /// The alignment is no power of two, or larger than the program's span may be.
    BadAlignment {
        /// The header.
        header: u16,
    },
    /// Address and file offset differ within the page, so it cannot be mapped.
    Misaligned {
        /// The header.
        header: u16,
    },
    /// The segment begins below the one before.
    Unsorted {
        /// The header.
        header: u16,
    },
    /// The segment has a page in common with the one before.
    Overlapping {
        /// The header.
        header: u16,
    },
    /// It stretches over more than [`SPAN_MAX`].
    TooLarge {
        /// Bytes from the lowest to the highest address.
        span: u64,
    },
    /// The entry point lies in no executable segment.
    BadEntry(u64),
    /// The initial thread-local data lies in no segment's file part.
    BadTls,
    /// The interpreter's name is empty, too long, or does not end in its only NUL.
    BadInterpreter,
    /// It is dynamic: it needs the program that these bytes of the file name.
    NeedsInterpreter {
        /// Where the name begins in the file.
        offset: u64,
        /// Its bytes, without the NUL at the end.
        size: u64,
    },
}

impl fmt::Display for ElfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotElf => write!(f, "not an ELF file"),
            Self::Truncated => write!(f, "ELF file cut short within its header"),
            Self::WrongClass(class) => write!(f, "ELF class {class}: not for 64 bits"),
            Self::WrongByteOrder(order) => write!(f, "ELF byte order {order}: not little-endian"),
            Self::WrongVersion(version) => write!(f, "ELF version {version}, not 1"),
            Self::WrongAbi(abi) => write!(f, "ELF for the operating system {abi}, not Linux"),
            Self::WrongMachine(machine) => write!(f, "ELF for machine {machine}, not x86-64"),
            Self::NotExecutable(kind) => write!(f, "ELF file of type {kind}: not a program"),
            Self::WrongHeaderSize(size) => write!(f, "ELF header size {size} is wrong"),
            Self::TooManyHeaders(count) => write!(f, "{count} ELF program headers are too many"),
            Self::HeadersOutOfFile => write!(f, "ELF program headers outside of the file"),
            Self::NoSegments => write!(f, "ELF file without anything to load"),
            Self::TooManySegments => write!(f, "ELF file with more than {SEGMENTS_MAX} segments"),
            Self::Duplicate { header, kind } => {
                write!(f, "ELF program header {header}: a second one of type {kind:#x}")
            }
            Self::OutOfFile { header } => {
                write!(f, "ELF program header {header}: its bytes lie outside of the file")
            }
            Self::FileExceedsMemory { header } => {
                write!(f, "ELF program header {header}: more bytes in the file than in memory")
            }
            Self::OutOfRange { header } => {
                write!(f, "ELF program header {header}: not an address for programs")
            }
            Self::BadAlignment { header } => {
                write!(f, "ELF program header {header}: its alignment is no power of two")
            }
            Self::Misaligned { header } => {
                write!(f, "ELF program header {header}: address and file offset do not agree")
            }
            Self::Unsorted { header } => {
                write!(f, "ELF program header {header}: below the segment before it")
            }
            Self::Overlapping { header } => {
                write!(f, "ELF program header {header}: shares a page with the segment before it")
            }
            Self::TooLarge { span } => write!(f, "ELF file stretches over {span:#x} bytes"),
            Self::BadEntry(entry) => write!(f, "ELF entry point {entry:#x} is not in its code"),
            Self::BadTls => write!(f, "ELF thread-local data is in no segment"),
            Self::BadInterpreter => write!(f, "ELF interpreter's name is malformed"),
            Self::NeedsInterpreter { .. } => write!(f, "dynamic ELF file: needs an interpreter"),
        }
    }
}

impl core::error::Error for ElfError {}

/// Whether the file's addresses are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `ET_EXEC`: to be loaded at its own addresses.
    Fixed,
    /// `ET_DYN`: to be loaded at a base that is a multiple of [`Plan::align`], added to each
    /// address. Relocating is the program's own business.
    Relocatable,
}

/// One part of memory to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins in memory; congruent to `file_offset` modulo [`PAGE_SIZE`].
    pub vaddr: u64,
    /// Bytes in memory, at least one; what the file does not give is zero.
    pub memsz: u64,
    /// Where its bytes begin in the file.
    pub file_offset: u64,
    /// Bytes from the file, at most `memsz`.
    pub filesz: u64,
    /// May be read. The processor lets everything be read that may be written or executed.
    pub read: bool,
    /// May be written.
    pub write: bool,
    /// May be executed.
    pub execute: bool,
    /// What the segment wants to be aligned to: a power of two.
    pub align: u64,
}

impl Segment {
    /// The first address behind it.
    pub fn end(&self) -> u64 {
        self.vaddr + self.memsz
    }

    /// The pages that it touches, as addresses of the first and behind the last.
    pub fn pages(&self) -> Range<u64> {
        page_down(self.vaddr)..page_up(self.end())
    }

    fn holds(&self, vaddr: u64) -> bool {
        (self.vaddr..self.end()).contains(&vaddr)
    }
}

/// The initial image of thread-local data (`PT_TLS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Where the initial bytes lie in memory.
    pub vaddr: u64,
    /// Bytes of a thread's copy.
    pub memsz: u64,
    /// Bytes of it that are not zero.
    pub filesz: u64,
    /// Alignment of a thread's copy: a power of two.
    pub align: u64,
}

/// How to load a file; see [`Plan::parse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whether a base is to be added to the addresses.
    pub kind: Kind,
    /// The address of the first instruction (`AT_ENTRY`).
    pub entry: u64,
    /// Where the program headers lie in memory (`AT_PHDR`), if a segment holds them.
    pub phdr_vaddr: Option<u64>,
    /// Bytes of a program header (`AT_PHENT`).
    pub phentsize: u16,
    /// How many program headers there are (`AT_PHNUM`).
    pub phnum: u16,
    /// Thread-local data, if there is any.
    pub tls: Option<Tls>,
    /// Whether the file asks for a stack that can be executed. Without `PT_GNU_STACK` it does not,
    /// as on Linux since 5.8.
    pub executable_stack: bool,
    /// The lowest address, rounded down to a page.
    pub lowest: u64,
    /// The first address behind the highest one, rounded up to a page: where `brk` begins.
    pub highest: u64,
    /// What a base must be a multiple of: the greatest alignment, at least [`PAGE_SIZE`].
    pub align: u64,
    segments: [Segment; SEGMENTS_MAX],
    segment_count: usize,
}

impl Plan {
    /// Reads a Linux program: addresses must lie in [`LINUX_RANGE`].
    pub fn parse(file: &[u8]) -> Result<Self, ElfError> {
        Self::parse_in(file, LINUX_RANGE)
    }

    /// Reads a program whose addresses must lie in `allowed`; those of a relocatable one are
    /// offsets from its base, which must be no more than `allowed` has room for.
    pub fn parse_in(file: &[u8], allowed: Range<u64>) -> Result<Self, ElfError> {
        let header = Header::parse(file)?;
        let mut plan = Self::empty(&header);
        let bounds = match plan.kind {
            Kind::Fixed => allowed,
            Kind::Relocatable => 0..allowed.end.saturating_sub(allowed.start),
        };
        let mut tls = None;
        let mut interpreter = None;
        let mut stack = None;
        for number in 0..header.phnum {
            let found = ProgramHeader::read(file, &header, number)?;
            match found.kind {
                PT_LOAD => plan.add(found.segment(file, number, &bounds)?, number)?,
                PT_TLS => put_once(&mut tls, found, number)?,
                PT_INTERP => put_once(&mut interpreter, found, number)?,
                PT_GNU_STACK => put_once(&mut stack, found, number)?,
                _ => {}
            }
        }
        plan.finish(&header)?;
        plan.executable_stack = stack.is_some_and(|(_, stack)| stack.flags & PF_X != 0);
        plan.tls = tls.map(|(number, tls)| plan.tls_of(file, number, &tls)).transpose()?;
        match interpreter {
            None => Ok(plan),
            Some((number, interpreter)) => Err(interpreter.interpreter(file, number)),
        }
    }

    /// What to make of memory, sorted by address.
    pub fn segments(&self) -> &[Segment] {
        self.segments.get(..self.segment_count).unwrap_or(&[])
    }

    /// Whether a segment may be both written and executed.
    pub fn has_writable_code(&self) -> bool {
        self.segments().iter().any(|segment| segment.write && segment.execute)
    }

    fn empty(header: &Header) -> Self {
        Self {
            kind: header.kind,
            entry: header.entry,
            phdr_vaddr: None,
            phentsize: PROGRAM_HEADER_SIZE,
            phnum: header.phnum,
            tls: None,
            executable_stack: false,
            lowest: 0,
            highest: 0,
            align: PAGE_SIZE,
            segments: [Segment::default(); SEGMENTS_MAX],
            segment_count: 0,
        }
    }

    fn add(&mut self, segment: Option<Segment>, header: u16) -> Result<(), ElfError> {
        let Some(segment) = segment else { return Ok(()) };
        if let Some(before) = self.segments().last() {
            if segment.vaddr < before.vaddr {
                return Err(ElfError::Unsorted { header });
            }
            if segment.pages().start < before.pages().end {
                return Err(ElfError::Overlapping { header });
            }
        }
        let slot = self.segments.get_mut(self.segment_count).ok_or(ElfError::TooManySegments)?;
        *slot = segment;
        self.segment_count += 1;
        self.align = self.align.max(segment.align);
        Ok(())
    }

    /// The checks that need all segments.
    fn finish(&mut self, header: &Header) -> Result<(), ElfError> {
        let first = self.segments().first().ok_or(ElfError::NoSegments)?.pages();
        let last = self.segments().last().ok_or(ElfError::NoSegments)?.pages();
        self.lowest = first.start;
        self.highest = last.end;
        let span = last.end - first.start;
        if span > SPAN_MAX {
            return Err(ElfError::TooLarge { span });
        }
        if !self.segments().iter().any(|segment| segment.execute && segment.holds(self.entry)) {
            return Err(ElfError::BadEntry(self.entry));
        }
        let table = header.phoff..header.phoff + header.table_size();
        self.phdr_vaddr = self.segments().iter().find_map(|segment| {
            let file_end = segment.file_offset + segment.filesz;
            let inside = segment.file_offset <= table.start && table.end <= file_end;
            inside.then(|| segment.vaddr + (table.start - segment.file_offset))
        });
        Ok(())
    }

    fn tls_of(&self, file: &[u8], number: u16, tls: &ProgramHeader) -> Result<Tls, ElfError> {
        let align = tls.check(file, number)?;
        let inside = |segment: &Segment| {
            tls.vaddr
                .checked_sub(segment.vaddr)
                .and_then(|offset| offset.checked_add(tls.filesz))
                .is_some_and(|end| end <= segment.filesz)
        };
        // One that is all zeros needs no bytes in memory to copy from.
        if tls.filesz > 0 && !self.segments().iter().any(inside) {
            return Err(ElfError::BadTls);
        }
        if tls.memsz > SPAN_MAX {
            return Err(ElfError::TooLarge { span: tls.memsz });
        }
        Ok(Tls { vaddr: tls.vaddr, memsz: tls.memsz, filesz: tls.filesz, align })
    }
}

/// What the file's header says, checked.
struct Header {
    kind: Kind,
    entry: u64,
    phoff: u64,
    phnum: u16,
}

impl Header {
    fn parse(file: &[u8]) -> Result<Self, ElfError> {
        // A short text file is "not an ELF file", not one cut short.
        if file.get(..4).is_none_or(|magic| magic != b"\x7fELF") {
            return Err(ElfError::NotElf);
        }
        let short = ElfError::Truncated;
        let raw = file.get(..usize::from(HEADER_SIZE)).ok_or(ElfError::Truncated)?;
        let byte = |offset: usize| raw.get(offset).copied().unwrap_or(0);
        let half = |offset| word16(raw, offset).ok_or(short.clone());
        let long = |offset| word64(raw, offset).ok_or(short.clone());

        if byte(4) != 2 {
            return Err(ElfError::WrongClass(byte(4)));
        }
        if byte(5) != 1 {
            return Err(ElfError::WrongByteOrder(byte(5)));
        }
        if byte(6) != 1 {
            return Err(ElfError::WrongVersion(byte(6).into()));
        }
        if byte(7) != 0 && byte(7) != 3 {
            return Err(ElfError::WrongAbi(byte(7)));
        }
        if half(18)? != EM_X86_64 {
            return Err(ElfError::WrongMachine(half(18)?));
        }
        let kind = match half(16)? {
            ET_EXEC => Kind::Fixed,
            ET_DYN => Kind::Relocatable,
            other => return Err(ElfError::NotExecutable(other)),
        };
        let version = word32(raw, 20).ok_or(short.clone())?;
        if version != 1 {
            return Err(ElfError::WrongVersion(version));
        }
        if half(52)? != HEADER_SIZE {
            return Err(ElfError::WrongHeaderSize(half(52)?));
        }
        let header = Self { kind, entry: long(24)?, phoff: long(32)?, phnum: half(56)? };
        header.check_table(file, half(54)?)?;
        Ok(header)
    }

    fn check_table(&self, file: &[u8], phentsize: u16) -> Result<(), ElfError> {
        if self.phnum == 0 {
            return Err(ElfError::NoSegments);
        }
        if phentsize != PROGRAM_HEADER_SIZE {
            return Err(ElfError::WrongHeaderSize(phentsize));
        }
        if self.phnum > PROGRAM_HEADERS_MAX {
            return Err(ElfError::TooManyHeaders(self.phnum));
        }
        match range(file, self.phoff, self.table_size()) {
            Some(_) => Ok(()),
            None => Err(ElfError::HeadersOutOfFile),
        }
    }

    fn table_size(&self) -> u64 {
        u64::from(self.phnum) * u64::from(PROGRAM_HEADER_SIZE)
    }
}

/// One program header as it stands in the file.
#[derive(Clone, Copy)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    vaddr: u64,
    filesz: u64,
    memsz: u64,
    align: u64,
}

impl ProgramHeader {
    fn read(file: &[u8], header: &Header, number: u16) -> Result<Self, ElfError> {
        let size = u64::from(PROGRAM_HEADER_SIZE);
        let raw = range(file, header.phoff + u64::from(number) * size, size)
            .ok_or(ElfError::HeadersOutOfFile)?;
        let word = |offset| word32(raw, offset).ok_or(ElfError::HeadersOutOfFile);
        let long = |offset| word64(raw, offset).ok_or(ElfError::HeadersOutOfFile);
        Ok(Self {
            kind: word(0)?,
            flags: word(4)?,
            offset: long(8)?,
            vaddr: long(16)?,
            filesz: long(32)?,
            memsz: long(40)?,
            align: long(48)?,
        })
    }

    /// The checks that loadable and thread-local segments share. Answers the alignment.
    fn check(&self, file: &[u8], header: u16) -> Result<u64, ElfError> {
        if self.filesz > self.memsz {
            return Err(ElfError::FileExceedsMemory { header });
        }
        if range(file, self.offset, self.filesz).is_none() {
            return Err(ElfError::OutOfFile { header });
        }
        // Zero and one both say "no demand".
        let align = self.align.max(1);
        if !align.is_power_of_two() || align > SPAN_MAX {
            return Err(ElfError::BadAlignment { header });
        }
        Ok(align)
    }

    /// A `PT_LOAD` header's segment; nothing if it is empty.
    fn segment(
        &self,
        file: &[u8],
        header: u16,
        bounds: &Range<u64>,
    ) -> Result<Option<Segment>, ElfError> {
        let align = self.check(file, header)?;
        if self.memsz == 0 {
            return Ok(None);
        }
        // Is each of its pages one that a program may have?
        let end = self.vaddr.checked_add(self.memsz).ok_or(ElfError::OutOfRange { header })?;
        let last_page = bounds.end & !(PAGE_SIZE - 1);
        if page_down(self.vaddr) < bounds.start || end > last_page {
            return Err(ElfError::OutOfRange { header });
        }
        if self.vaddr % PAGE_SIZE != self.offset % PAGE_SIZE {
            return Err(ElfError::Misaligned { header });
        }
        Ok(Some(Segment {
            vaddr: self.vaddr,
            memsz: self.memsz,
            file_offset: self.offset,
            filesz: self.filesz,
            read: self.flags & PF_R != 0,
            write: self.flags & PF_W != 0,
            execute: self.flags & PF_X != 0,
            align,
        }))
    }

    /// What to say of a file with this `PT_INTERP`.
    fn interpreter(&self, file: &[u8], header: u16) -> ElfError {
        let Some(name) = range(file, self.offset, self.filesz) else {
            return ElfError::OutOfFile { header };
        };
        let ends_in_its_only_nul =
            name.iter().position(|&byte| byte == 0).is_some_and(|at| at + 1 == name.len());
        if !ends_in_its_only_nul || !(2..=INTERPRETER_MAX).contains(&self.filesz) {
            return ElfError::BadInterpreter;
        }
        ElfError::NeedsInterpreter { offset: self.offset, size: self.filesz - 1 }
    }
}

fn put_once(
    slot: &mut Option<(u16, ProgramHeader)>,
    found: ProgramHeader,
    header: u16,
) -> Result<(), ElfError> {
    match slot.replace((header, found)) {
        None => Ok(()),
        Some(_) => Err(ElfError::Duplicate { header, kind: found.kind }),
    }
}

fn page_down(address: u64) -> u64 {
    address & !(PAGE_SIZE - 1)
}

/// Rounds up; the callers' addresses lie below the last page of the address space.
fn page_up(address: u64) -> u64 {
    page_down(address + (PAGE_SIZE - 1))
}
