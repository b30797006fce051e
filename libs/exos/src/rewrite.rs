//! Call sites become jumps: from then on a call of the program does not enter the kernel.
//!
//! ```text
//!  program's text                      stub page, below the text       ExOS
//!    mov eax, 110  ──► jmp stub ────►   mov eax, 110
//!    syscall  (stays, still works)      lea rcx, [behind]
//!    behind: ◄─────────────────────     jmp gs:[REWRITTEN] ─────────►   xok_rewritten_entry
//! ```
//! The page that a sampled trap came from is copied, its sites are changed in the copy
//! (`callsites` says which and how), and the copy takes the page's place: nobody stores into a page
//! that is executed, and the exchange of the entry serialises the other processors. Only pages that
//! hold the very frame of the boot image: nobody can ever have written those. When the program
//! wants to write one, or takes a stub's address for itself, the file's bytes come back first.
//!
//! Invariant: no signal handler, no restart and no child ever sees an address in a stub
//! ([`settle`]). Neighbours: `xok::upcall` has the entry, `trivial` the calls that end there,
//! `memory` tells of changes ([`leave_alone`]). docs/decisions/0013-rewritten-call-sites.md
//! has the measurements behind the numbers.

use crate::layout::IMAGE;
use crate::library::{Windows, window};
use crate::memory::areas::{Area, EXECUTE, Kind, Name, READ, page_down};
use crate::memory::fault::{choice, make_private};
use crate::memory::space::{MMAP_LOWEST, space};
use crate::memory::tables::{Batch, is_frozen};
use crate::memory::{Space, frames};
use crate::{start, thread, user};
use abi::layout::PAGE_SIZE;
use abi::memory::{ADDRESS, PRESENT};
use alloc::string::String;
use alloc::vec::Vec;
use callsites::{Object, STUB_BYTES, Site};
use xok::call::Refused;
use xok::upcall::{Slot, block};

/// Traps of a thread from one sample to the next, and before the first.
pub const SAMPLE: u64 = 2048;
/// Pages remembered at most, those that were refused included.
const PAGES_MAX: usize = 256;
/// Stubs in a page.
const STUBS: usize = (PAGE_SIZE / STUB_BYTES) as usize;
/// What in the environment keeps a program's text as it is.
const SWITCH: &[u8] = b"XOK_REWRITE=0";

/// A page of text that was looked at.
#[derive(Clone, Copy, Debug)]
struct Page {
    address: u64,
    /// Sites that became jumps; 0: the page is the file's.
    jumps: u16,
    /// Sites that still trap.
    kept: u16,
}

/// What of a program's text was rewritten.
#[derive(Clone, Debug, Default)]
pub struct Rewrites {
    /// Where the program's file is in the image, its bytes, and how far behind its own addresses it
    /// is loaded. `None`: it is left alone.
    program: Option<(u64, u64, u64)>,
    pages: Vec<Page>,
    /// Pages of stubs, the one that still has room last.
    stubs: Vec<u64>,
    /// Stubs in the last of them.
    used: usize,
}

impl Rewrites {
    fn is_stub(&self, address: u64) -> bool {
        self.stubs.contains(&page_down(address))
    }

    /// What `/proc/self/callsites` says.
    pub fn text(&self) -> String {
        let sum =
            |count: fn(&Page) -> u16| self.pages.iter().map(|page| u64::from(count(page))).sum();
        let (jumps, kept): (u64, u64) = (sum(|page| page.jumps), sum(|page| page.kept));
        let pages = self.pages.iter().filter(|page| page.jumps != 0).count();
        let stubs = self.stubs.len();
        alloc::format!("pages {pages}\nrewritten {jumps}\nkept {kept}\nstub pages {stubs}\n")
    }
}

/// Notes where the program that is being loaded can be found, unless its environment forbids it.
pub fn begin(file: Option<(u64, u64)>, base: u64, environment: &[Vec<u8>]) {
    if environment.iter().any(|text| text == SWITCH) {
        return;
    }
    space().rewrites.program = file.map(|(offset, bytes)| (offset, bytes, base));
}

/// A sampled trap, `slot` being as after the `syscall`: rewrites the page if that has not been
/// tried.
pub fn consider(slot: &Slot) {
    let space = space();
    let wanted = space.rewrites.program.is_some() && space.rewrites.pages.len() < PAGES_MAX;
    thread::set_sample(if wanted { SAMPLE } else { 0 });
    let syscall = slot.rip.wrapping_sub(callsites::SYSCALL_BYTES);
    let address = page_down(syscall);
    if !wanted || space.rewrites.pages.iter().any(|page| page.address == address) {
        return;
    }
    let found = rewrite(space, address, (syscall, slot.rax));
    let (jumps, kept) = found.unwrap_or_default();
    space.rewrites.pages.push(Page { address, jumps, kept });
}

/// Rewrites the page at `address`; `None` if it must not be or cannot be. `trapped` is the site
/// that was met, and the number in rax there. How many sites are jumps now, and how many are not.
fn rewrite(space: &mut Space, address: u64, trapped: (u64, u64)) -> Option<(u16, u16)> {
    let (offset, bytes, base) = space.rewrites.program?;
    is_the_images(space, address).then_some(())?;
    let file = start::image_bytes(IMAGE + offset, bytes);
    let object = Object::parse(file)?;
    let mut found = callsites::sites(&object, address.checked_sub(base)?);
    // A site that was met with another number than it loads is come to by a branch, or is none.
    let (syscall, number) = (trapped.0 - base, trapped.1);
    let agrees = |site: &Site| site.syscall != syscall || site.number.is_none_or(|it| it == number);
    found.sites.retain(agrees);
    if found.sites.is_empty() {
        return None;
    }
    let room = STUBS - space.rewrites.used;
    let fits = |stubs: u64| stubs.abs_diff(address) < i32::MAX as u64 / 2;
    let old = space.rewrites.stubs.last().copied();
    let stubs = match old.filter(|&stubs| room >= found.sites.len() && fits(stubs)) {
        Some(stubs) => stubs,
        None => new_stub_page(space, address)?,
    };
    // Nothing of this is seen by the program before the last call; what fails leaves it as it was.
    let jumps = exchange(space, &object, base, address, stubs, &found.sites).ok()??;
    Some((jumps, found.kept.len() as u16))
}

/// Does the page hold the boot image's own frame, and may the program only read and execute it?
fn is_the_images(space: &Space, address: u64) -> bool {
    let Some(area) = space.areas.find(address) else { return false };
    let Kind::Image { offset, .. } = area.kind else { return false };
    let frame = |page: u64| xok::own::leaf(page).filter(|leaf| leaf & PRESENT != 0);
    let own = frame(address).map(|leaf| leaf & ADDRESS);
    let images = frame(IMAGE + offset + (address - area.start)).map(|leaf| leaf & ADDRESS);
    area.name == Name::Program
        && area.protection == READ | EXECUTE
        && own.is_some()
        && own == images
}

/// Promises a page for stubs: the highest free one below the program's text, where neither its heap
/// nor `mmap` comes by itself.
fn new_stub_page(space: &mut Space, text: u64) -> Option<u64> {
    let first = space.areas.all().iter().find(|area| area.name == Name::Program)?.start;
    let lowest = text.saturating_sub(i32::MAX as u64 / 2).max(MMAP_LOWEST);
    let start = space.areas.highest_free(PAGE_SIZE, lowest, first)?;
    space.areas.insert(Area {
        start,
        end: start + PAGE_SIZE,
        protection: READ | EXECUTE,
        kind: Kind::Anonymous,
        name: Name::Stubs,
    });
    space.rewrites.stubs.push(start);
    space.rewrites.used = 0;
    Some(start)
}

/// Makes copies of the text page and the stub page, changes them, and puts them in their places.
fn exchange(
    space: &mut Space,
    object: &Object<'_>,
    base: u64,
    text: u64,
    stubs: u64,
    sites: &[Site],
) -> Result<Option<u16>, Refused> {
    let windows = Windows::open(2)?;
    frames::copy(window(0), text);
    if xok::own::leaf(stubs).is_some() {
        frames::copy(window(1), stubs);
    } else {
        frames::zero(window(1));
    }
    let mut used = space.rewrites.used;
    for site in sites {
        let offset = used as u64 * STUB_BYTES;
        let slot = stubs + offset;
        let stub = site.stub(object, base, slot, block::REWRITTEN as u32);
        let (Some(stub), Some(patches)) = (stub, site.patches(base, slot)) else { continue };
        frames::put(window(1), offset as usize, &stub);
        for patch in patches.iter().flatten() {
            frames::put(window(0), (patch.address - text) as usize, patch.bytes());
        }
        used += 1;
    }
    let jumps = used - space.rewrites.used;
    let exchanged = enter(text, stubs).is_ok();
    windows.close()?;
    if !exchanged || jumps == 0 {
        return Ok(None);
    }
    space.rewrites.used = used;
    Ok(Some(jumps as u16))
}

/// Enters the stubs' page, then the text's, from windows 1 and 0.
fn enter(text: u64, stubs: u64) -> Result<(), Refused> {
    for page in [text, stubs] {
        if is_frozen(page) && make_private(page).is_err() {
            return Err((abi::error::Error::Exhausted, 0));
        }
    }
    let mut batch = Batch::own();
    batch.own_tables_to(stubs)?;
    batch.map(stubs, window(1), choice(READ | EXECUTE, false))?;
    batch.map(text, window(0), choice(READ | EXECUTE, false))?;
    batch.send()
}

/// Gives pages in `[start, end)` their own bytes back, for good: they are about to be dropped,
/// moved or made writable. If one is a page of stubs, all text goes back to what it was.
pub fn leave_alone(start: u64, end: u64) {
    let rewrites = &mut space().rewrites;
    if rewrites.stubs.is_empty() {
        return;
    }
    let inside = |address: u64| start <= address && address < end;
    let all = rewrites.stubs.iter().any(|&stubs| inside(stubs));
    let mut batch = Batch::own();
    for page in &mut rewrites.pages {
        if page.jumps == 0 || !(all || inside(page.address)) {
            continue;
        }
        // What is absent is entered from the file again. A refusal leaves jumps, which still work.
        let private = !is_frozen(page.address) || make_private(page.address).is_ok();
        if private && batch.unmap(1, page.address).is_ok() {
            page.jumps = 0;
        }
    }
    // As above.
    let _ = batch.send();
    if all {
        rewrites.program = None;
        rewrites.stubs.clear();
    }
}

/// Makes a context that an event or a fault found in a stub, in padding on the way to one, or in
/// the entry, the program's own: at the instruction or the `syscall` that is being done, or behind.
pub fn settle(slot: &mut Slot) {
    xok::upcall::settle(slot);
    let rewrites = &space().rewrites;
    if rewrites.stubs.is_empty() {
        return;
    }
    let rip = slot.rip;
    if rewrites.is_stub(rip) {
        slot.rip = original(rip);
    } else if rewrites.pages.iter().any(|page| page.address == page_down(rip)) {
        // Padding that leads to a stub stands for the `syscall` that jumped to it.
        let mut bytes = [0; 5];
        if user::read_bytes(rip, &mut bytes).is_ok()
            && let Some(stub) = callsites::aimed_at(rip, &bytes)
            && space().rewrites.is_stub(stub)
        {
            slot.rip = original(stub + STUB_BYTES / 2);
        }
    }
}

/// The program's address that one in a stub stands for.
fn original(rip: u64) -> u64 {
    let slot = rip & !(STUB_BYTES - 1);
    let mut stub = [0; STUB_BYTES as usize];
    // Stubs are there as long as their page is noted.
    if user::read_bytes(slot, &mut stub).is_ok() {
        callsites::original(rip, slot, &stub)
    } else {
        rip
    }
}
