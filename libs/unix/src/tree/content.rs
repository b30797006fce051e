//! What is inside files: pages, holes, links.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{BLOCKS, Body, Id, PAGE, PIECE, Page, PageBytes, SIZE_MAX, Tree};
use crate::attributes::Credentials;
use crate::errno::Errno;
use crate::map::{self, Map};

impl Page {
    /// A page of zeroes, if there is memory for one.
    fn fresh() -> Option<Self> {
        let mut page = map::vector(1).ok()?;
        page.push(PageBytes([0; PAGE]));
        let bytes = Box::try_from(page.into_boxed_slice()).ok()?;
        Some(Self { bytes, shown: false })
    }

    /// One that has left its file, which is as good as free.
    fn reused(dying: &mut Vec<Map<Self>>) -> Option<Self> {
        let mut page = last_of(dying)?;
        page.bytes[0].0.fill(0);
        Some(page)
    }
}

impl Tree {
    /// Reads from `offset`; holes are zeros. Answers how many bytes there were.
    pub fn read(&mut self, id: Id, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let inode = self.inode(id)?;
        let pages = match &inode.body {
            Body::File(pages) => pages,
            Body::Directory(_) => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        };
        let left = inode.attributes.size.saturating_sub(offset);
        let len = left.min(into.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let within = (at % PAGE as u64) as usize;
            let count = (PAGE - within).min(len - done);
            let target = &mut into[done..done + count];
            match pages.get(at / PAGE as u64) {
                Some(page) => target.copy_from_slice(&page.bytes[0].0[within..within + count]),
                None => target.fill(0),
            }
            done += count;
        }
        self.touch_read(id)?;
        Ok(len)
    }

    /// Writes at `offset`, making pages as needed; answers how many bytes went in, or `ENOSPC` if
    /// none did.
    pub fn write(
        &mut self,
        id: Id,
        offset: u64,
        from: &[u8],
        who: &Credentials,
    ) -> Result<usize, Errno> {
        let room = SIZE_MAX.saturating_sub(offset);
        if room == 0 && !from.is_empty() {
            return Err(Errno::EFBIG);
        }
        let from = &from[..room.min(from.len() as u64) as usize];
        if let Some(done) = self.overwrite(id, offset, from, who) {
            return Ok(done);
        }
        let user = self.inode(id)?.attributes.uid;
        let mut room = self.room_of(user).pages;
        let mut dying = core::mem::take(&mut self.dying);
        let (mut made, now) = (0, self.now);
        let written = self.inode_mut(id).and_then(|inode| {
            let pages = match &mut inode.body {
                Body::File(pages) => pages,
                Body::Directory(_) => return Err(Errno::EISDIR),
                _ => return Err(Errno::EINVAL),
            };
            let before = pages.len();
            let done = fill(pages, offset, from, || {
                room = room.checked_sub(1)?;
                Page::fresh().or_else(|| Page::reused(&mut dying))
            });
            made = (pages.len() - before) as u64;
            inode.attributes.blocks += made * BLOCKS;
            if done > 0 {
                inode.attributes.wrote(offset + done as u64, now, who);
            }
            Ok(done)
        });
        self.dying = dying;
        self.pages += made;
        self.owners.grow(user, made);
        let done = written?;
        if done == 0 {
            self.touch(id);
        }
        if done == 0 && !from.is_empty() { Err(Errno::ENOSPC) } else { Ok(done) }
    }

    /// Writes into one page that is there, as most writes do; `None`: nothing has changed.
    #[inline]
    fn overwrite(&mut self, id: Id, offset: u64, from: &[u8], who: &Credentials) -> Option<usize> {
        let within = (offset % PAGE as u64) as usize;
        let now = self.now;
        if from.is_empty() || from.len() > PAGE - within {
            return None;
        }
        let inode = self.inode_mut(id).ok()?;
        let Body::File(pages) = &mut inode.body else { return None };
        let page = pages.get_mut(offset / PAGE as u64)?;
        page.bytes[0].0.get_mut(within..within + from.len())?.copy_from_slice(from);
        inode.attributes.wrote(offset + from.len() as u64, now, who);
        Some(from.len())
    }

    /// Makes the file at least so long, by a hole (fallocate(2)).
    pub fn lengthen(&mut self, id: Id, size: u64, who: &Credentials) -> Result<(), Errno> {
        let size = self.inode(id)?.attributes.size.max(size);
        self.truncate(id, size, who)
    }

    /// Sets the size; what is cut is gone, what is added is a hole.
    pub fn truncate(&mut self, id: Id, size: u64, who: &Credentials) -> Result<(), Errno> {
        if size > SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let others = self.leaving.others;
        let inode = self.inode_mut(id)?;
        let pages = match &mut inode.body {
            Body::File(pages) => pages,
            Body::Directory(_) => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        };
        let keep = size.div_ceil(PAGE as u64);
        let cut = cut(pages, keep, |page| others.let_go(page));
        let within = (size % PAGE as u64) as usize;
        if within > 0
            && let Some(page) = pages.get_mut(keep - 1)
        {
            page.bytes[0].0[within..].fill(0);
        }
        inode.attributes.size = size;
        inode.attributes.drop_set_id(who);
        let user = inode.attributes.uid;
        let before = inode.attributes.blocks;
        inode.attributes.blocks = pages.len() as u64 * BLOCKS;
        let gone = (before - inode.attributes.blocks) / BLOCKS;
        let shown = inode.shown;
        inode.shown &= !pages.is_empty();
        self.part_with(user, gone, cut, shown);
        self.touch(id);
        Ok(())
    }

    /// A page of a file, to be shown to others; `None` for a hole, and behind the end.
    pub fn show(&mut self, id: Id, index: u64) -> Result<Option<&PageBytes>, Errno> {
        // What others see of it does not change by its being shown.
        let inode = self.inode_unseen(id)?;
        let Body::File(pages) = &mut inode.body else { return Err(Errno::EINVAL) };
        Ok(pages.get_mut(index).map(|page| {
            (inode.shown, page.shown) = (true, true);
            &page.bytes[0]
        }))
    }

    /// Notes a read; how many nanoseconds others need not be noted, as long as nothing changes.
    pub fn note_read(&mut self, id: Id) -> Result<u64, Errno> {
        self.touch_read(id)?;
        Ok(self.inode(id)?.attributes.read_stays_noted(self.now))
    }

    /// So many pages of a file have gone, of which these have not been freed: who owned it is
    /// charged for those that others may see, and for no others.
    pub(super) fn part_with(&mut self, user: u32, gone: u64, cut: Map<Page>, shown: bool) {
        let stay = if shown { cut.len() as u64 } else { 0 };
        self.pages -= gone - stay;
        self.owners.shrink(user, gone - stay);
        if shown { self.put_aside(user, cut) } else { self.retire(cut) }
    }

    /// Puts pages that have left their file among the dying.
    fn retire(&mut self, mut pages: Map<Page>) {
        while !pages.is_empty() && self.dying.try_reserve(1).is_err() {
            // What is given back is the memory that is missing.
            core::iter::from_fn(|| pages.pop_last()).take(PIECE).for_each(drop);
        }
        if !pages.is_empty() {
            self.dying.push(pages);
        }
    }

    /// Frees some of the pages that have left their files, so many at `most` of those that others
    /// may see and of those that nobody has seen; are there more, of which some can be freed now?
    #[inline]
    pub fn work(&mut self, most: usize) -> bool {
        let more = !self.dying.is_empty() && self.free_some(most);
        self.is_left_by_pages() && self.take_back(most) || more
    }

    fn free_some(&mut self, most: usize) -> bool {
        for _ in 0..most {
            match last_of(&mut self.dying) {
                Some(page) => drop(page),
                None => return false,
            }
        }
        !self.dying.is_empty()
    }

    /// Where a symbolic link leads.
    pub fn target(&self, id: Id) -> Result<&[u8], Errno> {
        match &self.inode(id)?.body {
            Body::Link(target) => Ok(target),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// One of the pages that have left their files.
fn last_of(dying: &mut Vec<Map<Page>>) -> Option<Page> {
    loop {
        match dying.last_mut()?.pop_last() {
            Some((_, page)) => return Some(page),
            None => drop(dying.pop()),
        }
    }
}

/// Writes into pages, those that are missing made by `fresh`; how many bytes went in.
fn fill(
    pages: &mut Map<Page>,
    offset: u64,
    from: &[u8],
    mut fresh: impl FnMut() -> Option<Page>,
) -> usize {
    let mut done = 0;
    while done < from.len() {
        let at = offset + done as u64;
        let (index, within) = (at / PAGE as u64, (at % PAGE as u64) as usize);
        let count = (PAGE - within).min(from.len() - done);
        let part = &from[done..done + count];
        match pages.get_mut(index) {
            Some(page) => page.bytes[0].0[within..within + count].copy_from_slice(part),
            None => {
                let Some(mut page) = fresh() else { break };
                page.bytes[0].0[within..within + count].copy_from_slice(part);
                if pages.insert(index, page).is_err() {
                    break;
                }
            }
        }
        done += count;
    }
    done
}

/// Takes the pages from `keep` on out of a file.
fn cut(pages: &mut Map<Page>, keep: u64, free: impl Fn(Page)) -> Map<Page> {
    loop {
        if let Ok(cut) = pages.split_off(keep) {
            return cut;
        }
        // What is given back is the memory that is missing.
        for _ in 0..PIECE {
            if pages.last_key().is_none_or(|last| last < keep) {
                return Map::default();
            }
            if let Some((_, page)) = pages.pop_last() {
                free(page);
            }
        }
    }
}
