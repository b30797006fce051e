//! `mmap` and its kin.

use crate::errno::{Answer, Errno};
use crate::fs::Backing;
use crate::memory::areas::{Area, EXECUTE, Kind, Name, READ, WRITE, page_down, page_up};
use crate::memory::fault::{choice, keeps, make_private};
use crate::memory::space::{MMAP_LOWEST, MMAP_TOP, space};
use crate::memory::tables::{Batch, has_leaf_table, is_frozen};
use crate::process::Process;
use crate::{rewrite, user};
use abi::layout::{PAGE_SIZE, PROGRAM_END};
use abi::memory::{WRITABLE, from_source};
use linux_raw_sys::general as linux;
use xok::call::Refused;

/// Bytes that one level-1 table maps.
const TABLE_SPAN: u64 = 512 * PAGE_SIZE;

fn no_memory(_: Refused) -> Errno {
    Errno::ENOMEM
}

fn protection(bits: u64) -> Result<u8, Errno> {
    let known = u64::from(linux::PROT_READ | linux::PROT_WRITE | linux::PROT_EXEC);
    let growth = u64::from(linux::PROT_GROWSDOWN | linux::PROT_GROWSUP);
    if bits & !(known | growth) != 0 {
        return Err(Errno::EINVAL);
    }
    let mut protection = 0;
    if bits & u64::from(linux::PROT_READ) != 0 {
        protection |= READ;
    }
    if bits & u64::from(linux::PROT_WRITE) != 0 {
        protection |= WRITE;
    }
    if bits & u64::from(linux::PROT_EXEC) != 0 {
        protection |= EXECUTE;
    }
    Ok(protection)
}

/// The pages of `[address, address + len)` in the program's half.
fn range(address: u64, len: u64) -> Result<(u64, u64), Errno> {
    let end = address.checked_add(len).and_then(page_up).ok_or(Errno::ENOMEM)?;
    if end > PROGRAM_END - PAGE_SIZE {
        return Err(Errno::ENOMEM);
    }
    Ok((address, end))
}

/// `mmap(address, len, protection, flags, fd, offset)`
pub fn mmap(process: &mut Process, words: [u64; 6]) -> Answer {
    let [address, len, bits, flags, fd, offset] = words;
    let flags = flags as u32;
    let protection = protection(bits)?;
    if len == 0 || !offset.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    let len = page_up(len).ok_or(Errno::ENOMEM)?;
    let kind_of_sharing = flags & linux::MAP_TYPE;
    let shared = match kind_of_sharing {
        linux::MAP_PRIVATE => false,
        linux::MAP_SHARED | linux::MAP_SHARED_VALIDATE => true,
        _ => return Err(Errno::EINVAL),
    };
    let (mut copy_from, mut name) = (None, Name::None);
    let kind = if flags & linux::MAP_ANONYMOUS != 0 {
        if shared { Kind::Shared } else { Kind::Anonymous }
    } else {
        let fd = fd as i32;
        match process.files.backing(fd, offset)? {
            Backing::Zero => Kind::Anonymous,
            Backing::Image { offset, bytes } if !(shared && protection & WRITE != 0) => {
                Kind::Image { offset, bytes }
            }
            Backing::Image { .. } => return Err(Errno::EACCES),
            // A writable shared mapping of a file would need the server's pages.
            Backing::Copy if shared && protection & WRITE != 0 => {
                let writable = process.files.get(fd)?.writable();
                return Err(if writable { Errno::ENODEV } else { Errno::EACCES });
            }
            Backing::Copy => {
                copy_from = Some(fd);
                Kind::Anonymous
            }
        }
    };
    if shared && (copy_from.is_some() || matches!(kind, Kind::Image { .. })) {
        name = Name::SharedFile;
    } else if copy_from.is_some() {
        name = Name::CopiedFile;
    }
    let start = place(address, len, flags)?;
    clear(start, start + len)?;
    space().areas.insert(Area { start, end: start + len, protection, kind, name });
    if let Some(fd) = copy_from
        && let Err(errno) = copy_file(process, fd, offset, start, len, protection)
    {
        // What was copied so far takes no memory of the program's.
        clear(start, start + len)?;
        return Err(errno);
    }
    Ok(start)
}

/// Where a mapping goes.
fn place(address: u64, len: u64, flags: u32) -> Result<u64, Errno> {
    let fixed = flags & (linux::MAP_FIXED | linux::MAP_FIXED_NOREPLACE) != 0;
    if fixed {
        if !address.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let (start, end) = range(address, len)?;
        if start < MMAP_LOWEST {
            return Err(Errno::EPERM);
        }
        if flags & linux::MAP_FIXED_NOREPLACE != 0 && !space().areas.is_free(start, end) {
            return Err(Errno::EEXIST);
        }
        return Ok(start);
    }
    let hint = page_down(address);
    if hint >= MMAP_LOWEST
        && let Ok((start, end)) = range(hint, len)
        && space().areas.is_free(start, end)
    {
        return Ok(start);
    }
    space().areas.highest_free(len, MMAP_LOWEST, MMAP_TOP).ok_or(Errno::ENOMEM)
}

/// Fills a fresh private mapping with the file's bytes; what is zeros, as holes are, is there
/// already and takes no memory.
fn copy_file(
    process: &mut Process,
    fd: i32,
    offset: u64,
    start: u64,
    len: u64,
    protection: u8,
) -> Result<(), Errno> {
    space().areas.protect(start, start + len, READ | WRITE);
    let mut buffer = alloc::vec![0; PAGE_SIZE as usize];
    let mut done = 0;
    while done < len {
        let got = process.files.read_at(fd, offset + done, &mut buffer)?;
        if got == 0 {
            break;
        }
        let bytes = buffer.get(..got).ok_or(Errno::EIO)?;
        if bytes.iter().any(|&byte| byte != 0) {
            user::write_bytes(start + done, bytes).map_err(|_| Errno::ENOMEM)?;
        }
        done += got as u64;
    }
    protect_range(start, start + len, protection)
}

/// Drops every page of `[start, end)` and forgets what was promised there.
pub fn clear(start: u64, end: u64) -> Result<(), Errno> {
    if space().areas.is_free(start, end) {
        return Ok(());
    }
    drop_pages(start, end)?;
    space().areas.remove(start, end);
    Ok(())
}

/// Drops every page of `[start, end)`: whole tables where that is possible.
fn drop_pages(start: u64, end: u64) -> Result<(), Errno> {
    rewrite::leave_alone(start, end);
    let mut batch = Batch::own();
    let mut at = start;
    while at < end {
        let next = (at & !(TABLE_SPAN - 1)).saturating_add(TABLE_SPAN);
        if !has_leaf_table(at) {
            at = next;
            continue;
        }
        if at.is_multiple_of(TABLE_SPAN) && next <= end {
            batch.unmap(2, at).map_err(no_memory)?;
            at = next;
            continue;
        }
        let last = end.min(next);
        at = xok::own::next_present(at, last);
        if at < last && is_frozen(at) {
            make_private(at)?;
        }
        while at < last {
            let end = xok::own::run_end(at, last, 0);
            batch.unmap_pages(at, (end - at) / PAGE_SIZE).map_err(no_memory)?;
            at = xok::own::next_present(end, last);
        }
    }
    batch.send().map_err(no_memory)
}

/// `munmap(address, len)`
pub fn munmap(address: u64, len: u64) -> Answer {
    if !address.is_multiple_of(PAGE_SIZE) || len == 0 {
        return Err(Errno::EINVAL);
    }
    let (start, end) = range(address, len).map_err(|_| Errno::EINVAL)?;
    clear(start, end)?;
    Ok(0)
}

/// `mprotect(address, len, protection)`
pub fn mprotect(address: u64, len: u64, bits: u64) -> Answer {
    let protection = protection(bits)?;
    if !address.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    let (start, end) = range(address, len)?;
    if !space().areas.covers(start, end) {
        return Err(Errno::ENOMEM);
    }
    let is_file = |area: Area| area.name == Name::SharedFile;
    if protection & WRITE != 0 && space().areas.inside(start, end).any(is_file) {
        // What was written there would reach neither the file nor its other readers.
        return Err(Errno::EACCES);
    }
    protect_range(start, end, protection)?;
    Ok(0)
}

/// Gives every page of `[start, end)` the rights of `protection`.
fn protect_range(start: u64, end: u64, protection: u8) -> Result<(), Errno> {
    if protection & WRITE != 0 {
        rewrite::leave_alone(start, end);
    }
    let before: alloc::vec::Vec<Area> = space().areas.inside(start, end).collect();
    space().areas.protect(start, end, protection);
    for area in before {
        if area.protection != protection {
            protect_pages(&area, protection)?;
        }
    }
    Ok(())
}

/// Changes the entries of the pages that are present. Rights to write come back by fault, where
/// it is decided whose the page is.
fn protect_pages(area: &Area, protection: u8) -> Result<(), Errno> {
    let mut batch = Batch::own();
    let mut at = area.start;
    while at < area.end {
        let next = (at & !(TABLE_SPAN - 1)).saturating_add(TABLE_SPAN).min(area.end);
        if !has_leaf_table(at) {
            at = next;
            continue;
        }
        at = xok::own::next_present(at, next);
        if at < next && is_frozen(at) {
            make_private(at)?;
        }
        while at < next {
            let end = xok::own::run_end(at, next, WRITABLE);
            let writable = xok::own::leaf_below(at) & WRITABLE != 0;
            let choice = choice(protection, writable) | keeps(area.kind);
            batch.protect_pages(at, (end - at) / PAGE_SIZE, choice).map_err(no_memory)?;
            at = xok::own::next_present(end, next);
        }
    }
    batch.send().map_err(no_memory)
}

/// `brk(address)`: the new end, or the old one when it cannot be.
pub fn brk(address: u64) -> Answer {
    let (start, old) = (space().break_start, space().break_end);
    let (Some(old_page), Some(new_page)) = (page_up(old), page_up(address)) else {
        return Ok(old);
    };
    if address < start || new_page > MMAP_TOP {
        return Ok(old);
    }
    if new_page > old_page {
        if !space().areas.is_free(old_page, new_page) {
            return Ok(old);
        }
        space().areas.insert(Area {
            start: old_page,
            end: new_page,
            protection: READ | WRITE,
            kind: Kind::Anonymous,
            name: Name::Heap,
        });
    } else if new_page < old_page && clear(new_page, old_page).is_err() {
        return Ok(old);
    }
    space().break_end = address;
    Ok(address)
}

/// `mremap(old, old_len, new_len, flags, new)`
pub fn mremap(words: [u64; 6]) -> Answer {
    let [old, old_len, new_len, flags, target, _] = words;
    let flags = flags as u32;
    // A length of 0 would double a shared mapping; of a private one Linux refuses it (mremap(2)).
    if !old.is_multiple_of(PAGE_SIZE) || new_len == 0 || old_len == 0 {
        return Err(Errno::EINVAL);
    }
    let (old, old_end) = range(old, old_len).map_err(|_| Errno::EINVAL)?;
    let new_len = page_up(new_len).ok_or(Errno::ENOMEM)?;
    let area = *space().areas.find(old).ok_or(Errno::EFAULT)?;
    if old_end > area.end {
        return Err(Errno::EFAULT);
    }
    let old_len = old_end - old;
    if flags & linux::MREMAP_FIXED == 0 {
        if new_len <= old_len {
            clear(old + new_len, old_end)?;
            return Ok(old);
        }
        let grown = old + new_len;
        if matches!(area.kind, Kind::Anonymous | Kind::Shared)
            && grown <= MMAP_TOP
            && old_end == area.end
            && space().areas.is_free(old_end, grown)
        {
            space().areas.insert(Area { start: old_end, end: grown, ..area });
            return Ok(old);
        }
    }
    if flags & linux::MREMAP_MAYMOVE == 0 {
        return Err(Errno::ENOMEM);
    }
    let new = if flags & linux::MREMAP_FIXED != 0 {
        let (new, new_end) = range(target, new_len).map_err(|_| Errno::EINVAL)?;
        if !new.is_multiple_of(PAGE_SIZE) || (new < old_end && old < new_end) {
            return Err(Errno::EINVAL);
        }
        clear(new, new_end)?;
        new
    } else {
        space().areas.highest_free(new_len, MMAP_LOWEST, MMAP_TOP).ok_or(Errno::ENOMEM)?
    };
    move_pages(&area, old, old_end, new, new_len)?;
    Ok(new)
}

/// Moves what is present of `[old, old_end)` to `new` and promises the rest there.
fn move_pages(area: &Area, old: u64, old_end: u64, new: u64, new_len: u64) -> Result<(), Errno> {
    rewrite::leave_alone(old, old_end);
    let part: alloc::vec::Vec<Area> =
        space().areas.inside(old, old_end.min(old + new_len)).collect();
    let moved_kind = part.first().map_or(area.kind, |part| part.kind);
    let moved = Area { start: new, end: new + new_len, kind: moved_kind, ..*area };
    let mut at = old;
    while at < old_end.min(old + new_len) {
        if xok::own::leaf(at).is_some() {
            if is_frozen(at) {
                make_private(at)?;
            }
            let to = new + (at - old);
            if is_frozen(to) {
                make_private(to)?;
            }
            let mut batch = Batch::own();
            batch.own_tables_to(to).map_err(no_memory)?;
            let writable = xok::own::leaf(at).is_some_and(|leaf| leaf & WRITABLE != 0);
            let choice = choice(area.protection, writable) | keeps(area.kind);
            let value = from_source(at, choice);
            let any = abi::memory::ANY_FRAME;
            batch.push(abi::memory::Operation::Map, 1, to, any, value).map_err(no_memory)?;
            batch.unmap(1, at).map_err(no_memory)?;
            batch.send().map_err(no_memory)?;
        }
        at += PAGE_SIZE;
    }
    drop_pages(old, old_end)?;
    space().areas.remove(old, old_end);
    space().areas.insert(moved);
    Ok(())
}

/// Is this advice, which may be taken or not? What programs rely on is none (`MADV_WIPEONFORK`,
/// `MADV_DONTFORK`, `MADV_REMOVE`), and what Linux knows nothing of is neither.
fn is_advice(advice: u32) -> bool {
    matches!(
        advice,
        linux::MADV_NORMAL..=linux::MADV_DONTNEED
            | linux::MADV_FREE
            | linux::MADV_DOFORK..=linux::MADV_DODUMP
            | linux::MADV_KEEPONFORK..=linux::MADV_COLLAPSE
    )
}

/// `madvise(address, len, advice)`: only what changes contents is done, the rest is advice.
pub fn madvise(address: u64, len: u64, advice: u64) -> Answer {
    if !address.is_multiple_of(PAGE_SIZE) || !is_advice(advice as u32) {
        return Err(Errno::EINVAL);
    }
    let (start, end) = range(address, len)?;
    if advice as u32 == linux::MADV_DONTNEED {
        let is_any =
            |which: fn(&Area) -> bool| space().areas.inside(start, end).any(|area| which(&area));
        if is_any(|area| area.name == Name::CopiedFile) {
            // Zeros would come in place of the file's content.
            return Err(Errno::EINVAL);
        }
        if !is_any(|area| area.kind == Kind::Shared || area.name == Name::SharedFile) {
            drop_pages(start, end)?;
        }
    }
    Ok(0)
}

/// `mincore(address, len, vector)`
pub fn mincore(address: u64, len: u64, vector: u64) -> Answer {
    if !address.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    let (start, end) = range(address, len)?;
    if !space().areas.covers(start, end) {
        return Err(Errno::ENOMEM);
    }
    let mut at = start;
    while at < end {
        let there = u8::from(crate::memory::fault::is_present(at));
        user::write_value(vector + (at - start) / PAGE_SIZE, &there)?;
        at += PAGE_SIZE;
    }
    Ok(0)
}
