//! What is inside files: pages, holes, links.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{BLOCKS, Body, Id, PAGE, Page, PageBytes, SIZE_MAX, Tree};
use crate::errno::Errno;

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
            match pages.get((at / PAGE as u64) as usize) {
                Some(Some(page)) => target.copy_from_slice(&page.bytes.0[within..within + count]),
                _ => target.fill(0),
            }
            done += count;
        }
        self.touch_read(id)?;
        Ok(len)
    }

    /// Writes at `offset`, making pages as needed; answers how many bytes went in, or `ENOSPC` if
    /// none did.
    pub fn write(&mut self, id: Id, offset: u64, from: &[u8]) -> Result<usize, Errno> {
        let end = offset.checked_add(from.len() as u64).ok_or(Errno::EFBIG)?;
        if end > SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let (limit, mut used) = (self.limits.pages, self.pages);
        let inode = self.inode_mut(id)?;
        let pages = match &mut inode.body {
            Body::File(pages) => pages,
            Body::Directory(_) => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        };
        let mut done = 0;
        while done < from.len() {
            let at = offset + done as u64;
            let (index, within) = ((at / PAGE as u64) as usize, (at % PAGE as u64) as usize);
            let count = (PAGE - within).min(from.len() - done);
            if pages.len() <= index {
                pages.resize_with(index + 1, || None);
            }
            if pages[index].is_none() {
                if used >= limit {
                    break;
                }
                used += 1;
                inode.attributes.blocks += BLOCKS;
                let bytes = Box::new(PageBytes([0; PAGE]));
                pages[index] = Some(Page { bytes, shown: false });
            }
            if let Some(page) = &mut pages[index] {
                page.bytes.0[within..within + count].copy_from_slice(&from[done..done + count]);
            }
            done += count;
        }
        if done > 0 {
            inode.attributes.size = inode.attributes.size.max(offset + done as u64);
            // Whoever may write must not leave the right to act as the owner behind.
            inode.attributes.mode &= !0o6000;
        }
        self.pages = used;
        self.touch(id);
        if done == 0 && !from.is_empty() { Err(Errno::ENOSPC) } else { Ok(done) }
    }

    /// Sets the size; what is cut is gone, what is added is a hole.
    pub fn truncate(&mut self, id: Id, size: u64) -> Result<(), Errno> {
        if size > SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let inode = self.inode_mut(id)?;
        let pages = match &mut inode.body {
            Body::File(pages) => pages,
            Body::Directory(_) => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        };
        let keep = size.div_ceil(PAGE as u64) as usize;
        let cut: Vec<_> = if pages.len() > keep { pages.split_off(keep) } else { Vec::new() };
        let within = (size % PAGE as u64) as usize;
        if within > 0
            && let Some(Some(page)) = pages.get_mut(keep - 1)
        {
            page.bytes.0[within..].fill(0);
        }
        inode.attributes.size = size;
        let gone = cut.iter().flatten().count() as u64;
        inode.attributes.blocks -= gone * BLOCKS;
        self.pages -= gone;
        self.retire(cut);
        self.touch(id);
        Ok(())
    }

    /// A page of a file, to be shown to others; `None` for a hole, and behind the end.
    pub fn show(&mut self, id: Id, index: u64) -> Result<Option<&PageBytes>, Errno> {
        // What others see of it does not change by its being shown.
        let Body::File(pages) = &mut self.inode_unseen(id)?.body else { return Err(Errno::EINVAL) };
        let page = usize::try_from(index).ok().and_then(|at| pages.get_mut(at)?.as_mut());
        Ok(page.map(|page| {
            page.shown = true;
            &*page.bytes
        }))
    }

    /// Notes a read; how many nanoseconds others need not be noted, as long as nothing changes.
    pub fn note_read(&mut self, id: Id) -> Result<u64, Errno> {
        self.touch_read(id)?;
        Ok(self.inode(id)?.attributes.read_stays_noted(self.now))
    }

    /// Sets aside those pages of a file's that others see.
    pub(super) fn retire(&mut self, pages: Vec<Option<Page>>) {
        let shown = pages.into_iter().flatten().filter(|page| page.shown);
        self.retired.extend(shown.map(|page| page.bytes));
    }

    /// Gives `take` each page that was shown and has left its file: it is to be nobody's by then.
    pub fn take_retired(&mut self, take: impl FnMut(Box<PageBytes>)) {
        self.retired.drain(..).for_each(take);
    }

    /// Where a symbolic link leads.
    pub fn target(&self, id: Id) -> Result<&[u8], Errno> {
        match &self.inode(id)?.body {
            Body::Link(target) => Ok(target),
            _ => Err(Errno::EINVAL),
        }
    }
}
