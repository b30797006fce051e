//! Making another native program: a domain, its space from an ELF plan, an environment.

use crate::call::{self, OWN, Refused};
use crate::memory::{DATA, Space, WINDOW, allocate_filled};
use crate::start::{
    APPLICATION_PAGE, SAVE_AREA, STACK_PAGES, STACK_TOP, START_BLOCK, START_BLOCK_MAX,
};
use abi::capability::ALL;
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId, Frame};
use abi::layout::PAGE_SIZE;
use abi::memory::{NO_EXECUTE, WRITABLE};
use abi::setup::{EnvSetup, FLAG_BORROW, field};
use image::elf::{Plan, Segment};

/// A capability for the new program: derived from the spawner's `from`.
#[derive(Clone, Copy, Debug)]
pub struct Gift<'a> {
    /// Index in the spawner's list.
    pub from: u8,
    /// Slot in the new program's list; slot 0 is its own fresh name.
    pub slot: u16,
    /// Components appended.
    pub extend: &'a [u16],
    /// Rights given.
    pub rights: u8,
}

/// What is made.
#[derive(Clone, Copy, Debug)]
pub struct Spawned {
    /// Its domain.
    pub domain: DomainId,
    /// Its environment; `env_release` starts it.
    pub env: EnvId,
}

/// Builds a native program from `file` (a static ELF) with `argument` as its start block, giving it
/// `gifts`. It is not yet released.
pub fn native(
    plan: &Plan,
    file: &[u8],
    file_frame: Option<Frame>,
    argument: &[u8],
    gifts: &[Gift],
) -> Result<Spawned, Refused> {
    paid_by(AccountId::NONE, plan, file, file_frame, argument, gifts)
}

/// As [`native`], paid for by `account` (0: one's own).
pub fn paid_by(
    account: AccountId,
    plan: &Plan,
    file: &[u8],
    file_frame: Option<Frame>,
    argument: &[u8],
    gifts: &[Gift],
) -> Result<Spawned, Refused> {
    if argument.len() > START_BLOCK_MAX {
        return Err((Error::TooLarge, START_BLOCK_MAX as u64));
    }
    let domain = call::domain_alloc(OWN, account, 0, u64::MAX)?;
    match build((domain, account), plan, file, file_frame, argument, gifts) {
        Ok(env) => Ok(Spawned { domain, env }),
        Err(refused) => {
            // Nothing of it is left behind; the first refusal is the answer.
            let _ = call::domain_destroy(OWN, domain);
            Err(refused)
        }
    }
}

fn build(
    (domain, account): (DomainId, AccountId),
    plan: &Plan,
    file: &[u8],
    file_frame: Option<Frame>,
    argument: &[u8],
    gifts: &[Gift],
) -> Result<EnvId, Refused> {
    let mut space = Space::of(domain, OWN);
    for segment in plan.segments() {
        segment_into(&mut space, segment, file, file_frame)?;
    }
    space.allocate(STACK_TOP - STACK_PAGES * PAGE_SIZE, STACK_PAGES, DATA)?;
    space.allocate_zeroed(SAVE_AREA, 1, DATA)?;
    space.allocate_zeroed(APPLICATION_PAGE, 1, DATA)?;
    if !argument.is_empty() {
        let mut block = [0; PAGE_SIZE as usize];
        block[..8].copy_from_slice(&(argument.len() as u64).to_le_bytes());
        block[8..8 + argument.len()].copy_from_slice(argument);
        allocate_filled(&mut space, START_BLOCK, &block, NO_EXECUTE)?;
    }
    for gift in gifts {
        call::capability_derive(gift.from, domain, gift.slot, gift.extend, gift.rights & ALL)?;
    }
    let env = call::env_alloc(OWN, domain, account)?;
    let setup = EnvSetup {
        rip: plan.entry,
        rsp: STACK_TOP,
        argument: if argument.is_empty() { 0 } else { START_BLOCK },
        gs_base: SAVE_AREA,
        flags: FLAG_BORROW,
        save_area: SAVE_AREA,
        application_page: APPLICATION_PAGE,
        ..EnvSetup::default()
    };
    let fields = field::RIP
        | field::RSP
        | field::ARGUMENT
        | field::GS_BASE
        | field::FLAGS
        | field::SAVE_AREA
        | field::APPLICATION_PAGE;
    call::env_set(OWN, env, fields, &setup)?;
    Ok(env)
}

/// Enters one segment: pages of the file as they lie where that is possible, else copies.
fn segment_into(
    space: &mut Space,
    segment: &Segment,
    file: &[u8],
    file_frame: Option<Frame>,
) -> Result<(), Refused> {
    let mut choice = 0;
    if segment.write {
        choice |= WRITABLE;
    }
    if !segment.execute {
        choice |= NO_EXECUTE;
    }
    let first = segment.vaddr & !(PAGE_SIZE - 1);
    let end = segment.vaddr + segment.memsz;
    let file_end = segment.vaddr + segment.filesz;
    let congruent = segment.vaddr % PAGE_SIZE == segment.file_offset % PAGE_SIZE;
    let mut page = first;
    while page < end {
        let whole_in_file = page + PAGE_SIZE <= file_end || end == file_end;
        match file_frame {
            Some(frame) if congruent && !segment.write && whole_in_file => {
                let offset = page + segment.file_offset - segment.vaddr;
                space.map(page, Frame(frame.0 + (offset / PAGE_SIZE) as u32), 1, choice)?;
            }
            _ if page >= file_end => {
                let pages = (end - page).div_ceil(PAGE_SIZE);
                space.allocate_zeroed(page, pages, choice)?;
                break;
            }
            _ => copied_page(space, page, segment, file, choice)?,
        }
        page += PAGE_SIZE;
    }
    Ok(())
}

/// Allocates a page and fills it with what the file has for it, zeroes around.
fn copied_page(
    space: &mut Space,
    page: u64,
    segment: &Segment,
    file: &[u8],
    choice: u64,
) -> Result<(), Refused> {
    let from = page.max(segment.vaddr);
    let to = (page + PAGE_SIZE).min(segment.vaddr + segment.filesz);
    let start = (segment.file_offset + (from - segment.vaddr)) as usize;
    let bytes = file
        .get(start..start + (to - from) as usize)
        .ok_or((Error::BadArgument, segment.file_offset))?;
    let mut own = Space::own();
    own.allocate(WINDOW, 1, DATA)?;
    crate::window::clear(1);
    crate::window::fill_at(((from - page) % PAGE_SIZE) as usize, bytes);
    let frame = crate::own::frame(WINDOW).ok_or((Error::BadAddress, WINDOW))?;
    let entered = space.map(page, frame, 1, choice);
    own.unmap(WINDOW, 1)?;
    entered
}
