//! Loading a program into one's own empty half: areas from its segments, the stack, the registers.

use crate::errno::Errno;
use crate::fs::image_files;
use crate::layout::{IMAGE, PROGRAM};
use crate::memory::areas::{Area, Areas, EXECUTE, Kind, Name, READ, WRITE, page_down, page_up};
use crate::memory::space::{MMAP_TOP, STACK_TOP, space};
use crate::process::Process;
use crate::signal::frame::FRAME_BYTES;
use crate::stack;
use crate::start_block::Command;
use crate::{door, identity, rewrite, start, thread, user};
use abi::layout::PAGE_SIZE;
use alloc::vec::Vec;
use image::elf::{self, Plan, Segment};
use linux_raw_sys::{auxvec, general as linux};

/// Where position-independent programs are loaded.
const BASE: u64 = 0x5555_5555_4000;
/// The vDSO in the boot image.
const VDSO: &str = "/xok/vdso";
/// Bytes that the stack may grow to at most, whatever the limit says.
const STACK_MAX: u64 = 64 << 20;

/// Rights of a stack that the program does not want to be executed.
pub const STACK: u8 = READ | WRITE;

/// Where a program begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// First instruction.
    pub rip: u64,
    /// Stack pointer there.
    pub rsp: u64,
}

/// The bytes of what `command` names, where a fresh life finds them.
pub fn bytes(command: &Command) -> &'static [u8] {
    match command.image {
        Some((offset, size)) => start::image_bytes(IMAGE + offset, size),
        None => start::image_bytes(PROGRAM, command.handed_over),
    }
}

/// What is added to the addresses of a program.
fn base(plan: &Plan) -> u64 {
    match plan.kind {
        elf::Kind::Fixed => 0,
        elf::Kind::Relocatable => BASE.next_multiple_of(plan.align),
    }
}

/// Loads what `command` names into a space of these areas ([`areas`]).
pub fn load(
    process: &Process,
    command: &Command,
    plan: &Plan,
    areas: Areas,
) -> Result<Begin, Errno> {
    let base = base(plan);
    space().areas = areas;
    rewrite::begin(command.image, base, &command.environment);
    if command.image.is_none() {
        for segment in plan.segments() {
            copy_segment(segment, base, bytes(command))?;
        }
    }
    let highest = page_up(base + plan.highest).ok_or(Errno::ENOEXEC)?;
    space().break_start = highest;
    space().break_end = highest;
    let rsp = fill_stack(process, command, plan, base)?;
    Ok(Begin { rip: base + plan.entry, rsp })
}

/// What the program is promised at its beginning: its segments, the vDSO, the stack.
pub fn areas(process: &Process, command: &Command, plan: &Plan) -> Result<Areas, Errno> {
    let base = base(plan);
    let mut list = Vec::with_capacity(plan.segments().len() + 2);
    let image = command.image.map(|(offset, _)| offset);
    for segment in plan.segments() {
        list.push(area_of(segment, base, image)?);
    }
    list.extend(vdso());
    let size = process.limit(linux::RLIMIT_STACK).clamp(1 << 20, STACK_MAX) & !(PAGE_SIZE - 1);
    let execute = if plan.executable_stack { EXECUTE } else { 0 };
    list.push(Area {
        start: STACK_TOP - size,
        end: STACK_TOP,
        protection: STACK | execute,
        kind: Kind::Anonymous,
        name: Name::Stack,
    });
    Ok(Areas::of(list))
}

/// The vDSO behind what `mmap` gives out, if the boot image has one.
fn vdso() -> Option<Area> {
    let entry = image_files::archive()?.lookup(VDSO)?;
    let bytes = page_up(entry.size)?;
    Some(Area {
        start: MMAP_TOP,
        end: MMAP_TOP + bytes,
        protection: READ | EXECUTE,
        kind: Kind::Image { offset: entry.data_offset, bytes },
        name: Name::Vdso,
    })
}

fn protection(segment: &Segment) -> u8 {
    let mut protection = 0;
    if segment.read {
        protection |= READ;
    }
    if segment.write {
        protection |= WRITE;
    }
    if segment.execute {
        protection |= EXECUTE;
    }
    protection
}

/// The area of a segment; one of a file that is not in the image is to be filled.
fn area_of(segment: &Segment, base: u64, image: Option<u64>) -> Result<Area, Errno> {
    let start = page_down(base + segment.vaddr);
    let end = page_up(base + segment.vaddr + segment.memsz).ok_or(Errno::ENOEXEC)?;
    let before = base + segment.vaddr - start;
    let protection = protection(segment);
    let mut area = Area { start, end, protection, kind: Kind::Anonymous, name: Name::Program };
    let Some(image) = image else {
        area.protection = READ | WRITE;
        return Ok(area);
    };
    let file_bytes = before + segment.filesz;
    // Without zeros behind, the whole last page is the file's, as on Linux.
    let whole = segment.memsz == segment.filesz;
    let file_bytes = if whole { page_up(file_bytes).ok_or(Errno::ENOEXEC)? } else { file_bytes };
    if segment.filesz != 0 {
        let offset = image + segment.file_offset - before;
        area.kind = Kind::Image { offset, bytes: file_bytes };
    }
    Ok(area)
}

/// A segment of a file that is not in the image: copied at once, then as protected as it should be.
fn copy_segment(segment: &Segment, base: u64, bytes: &[u8]) -> Result<(), Errno> {
    let from = segment.file_offset as usize;
    let data = bytes.get(from..from + segment.filesz as usize).ok_or(Errno::ENOEXEC)?;
    user::write_bytes(base + segment.vaddr, data)?;
    let protection = u64::from(protection(segment));
    let bits = [(READ, linux::PROT_READ), (WRITE, linux::PROT_WRITE), (EXECUTE, linux::PROT_EXEC)];
    let mut wanted = 0;
    for (ours, theirs) in bits {
        if protection & u64::from(ours) != 0 {
            wanted |= u64::from(theirs);
        }
    }
    let pages = segment.pages();
    crate::memory::calls::mprotect(base + pages.start, pages.end - pages.start, wanted)?;
    Ok(())
}

fn fill_stack(process: &Process, command: &Command, plan: &Plan, base: u64) -> Result<u64, Errno> {
    let mut random = [0; 16];
    for half in random.chunks_mut(8) {
        half.copy_from_slice(&crate::machine::random_word().to_le_bytes());
    }
    let ids = |ids: &[u32; 3], at: usize| u64::from(ids[at]);
    let frame = FRAME_BYTES + thread::vector_state().bytes + 64 + 64 + 128;
    let vector = [
        (auxvec::AT_HWCAP, crate::machine::hardware_capabilities()),
        (auxvec::AT_PAGESZ, PAGE_SIZE),
        (auxvec::AT_CLKTCK, 100),
        (auxvec::AT_PHDR, plan.phdr_vaddr.map_or(0, |address| base + address)),
        (auxvec::AT_PHENT, u64::from(plan.phentsize)),
        (auxvec::AT_PHNUM, u64::from(plan.phnum)),
        (auxvec::AT_BASE, 0),
        (auxvec::AT_FLAGS, 0),
        (auxvec::AT_ENTRY, base + plan.entry),
        (auxvec::AT_UID, ids(&process.users, 0)),
        (auxvec::AT_EUID, ids(&process.users, 1)),
        (auxvec::AT_GID, ids(&process.groups, 0)),
        (auxvec::AT_EGID, ids(&process.groups, 1)),
        (auxvec::AT_SECURE, identity::is_secure(process).into()),
        (auxvec::AT_HWCAP2, 0),
        (auxvec::AT_MINSIGSTKSZ, frame),
    ]
    .map(|(kind, value)| (u64::from(kind), value));
    let door = (::door::AUXILIARY, door::call());
    // First, as on Linux; absent where there is none.
    let vdso = space().areas.find(MMAP_TOP).filter(|area| area.name == Name::Vdso);
    let vdso = vdso.map(|area| (u64::from(auxvec::AT_SYSINFO_EHDR), area.start));
    let vector: Vec<(u64, u64)> = vdso.into_iter().chain(vector).chain([door]).collect();
    let image = stack::build(
        STACK_TOP,
        &stack::Contents {
            arguments: &command.arguments,
            environment: &command.environment,
            asked: &command.asked,
            random,
            vector: &vector,
        },
    );
    user::write_bytes(image.rsp, &image.bytes)?;
    // Behind the count of arguments, these, the environment, and a zero after each.
    let words = command.arguments.len() + command.environment.len() + 3;
    space().vector = image.rsp + 8 * words as u64;
    Ok(image.rsp)
}
