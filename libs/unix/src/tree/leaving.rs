//! Pages that others may see still when they have left their files.
//!
//! Whoever sees one may have seen to it that taking it back is long: that is done in the others'
//! time, and the page is memory again when it is over. Until then it is charged to the owner of the
//! file that it was in. Of pages that are being taken back there are so many at most, of one user's
//! half as many; the others wait in what was cut.
//!
//! ```text
//!   file ──► cut ──► taken ──► memory
//!   the owner pays for all that
//! ```

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Page, PageBox, Tree};
use crate::errno::Errno;
use crate::map::{self, Map};

/// How pages are taken from others.
#[derive(Clone, Copy, Debug)]
pub struct Others {
    /// Begins to take a page from all that see it. `None`: that is over, and the page is free; else
    /// what [`Others::has_left`] is asked about.
    pub release: fn(PageBox) -> Option<u64>,
    /// Is that over, and the page free? Not asked again then.
    pub has_left: fn(u64) -> bool,
}

impl Others {
    /// Nobody sees anything.
    pub const NONE: Self = Self { release: |_| None, has_left: |_| true };

    /// Takes a page from all as soon as may be, if they may see it, charged to nobody.
    pub(super) fn let_go(&self, page: Page) {
        if page.shown {
            (self.release)(page.bytes);
        }
    }
}

/// Files that wait, as far as memory is had at once.
const CUT: usize = 64;
/// Pages that are being taken back.
pub(super) const TAKEN: usize = 1024;
/// How many pages are taken back at a time, before another request: for each all processors are
/// interrupted, and where there are several the kernel makes the server wait for the next one.
const AT_ONCE: usize = 32;
/// How many of them are asked about at a time.
const LOOKS: usize = 64;

/// Pages of one file.
#[derive(Debug)]
struct Cut {
    user: u32,
    pages: Map<Page>,
}

/// A page that is being taken back.
#[derive(Debug)]
struct Taken {
    user: u32,
    page: u64,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) others: Others,
    cut: VecDeque<Cut>,
    taken: Vec<Taken>,
    /// Which of the taken is asked about next.
    next: usize,
}

impl Leaving {
    pub(super) fn new(others: Others) -> Result<Self, Errno> {
        let mut cut = VecDeque::new();
        cut.try_reserve(CUT).map_err(|_| Errno::ENOSPC)?;
        Ok(Self { others, cut, taken: map::vector(TAKEN)?, next: 0 })
    }
}

impl Tree {
    /// Puts pages aside that others may see, and that stay charged to this user.
    pub(super) fn put_aside(&mut self, user: u32, mut pages: Map<Page>) {
        self.owners.leave(user, pages.len() as u64);
        while !pages.is_empty() && self.leaving.cut.try_reserve(1).is_err() {
            // What is given back is the memory that is missing.
            let Some((_, page)) = pages.pop_last() else { return };
            self.leaving.others.let_go(page);
            self.uncharge(user);
        }
        if !pages.is_empty() {
            self.leaving.cut.push_back(Cut { user, pages });
        }
    }

    /// Do pages wait that others may see?
    pub fn is_left_by_pages(&self) -> bool {
        !self.leaving.cut.is_empty() || !self.leaving.taken.is_empty()
    }

    /// Takes some of them from the others, so many at `most`; is it of use to go on at once?
    pub(super) fn take_back(&mut self, most: usize) -> bool {
        self.look_for_left();
        let (mut done, mut released) = (false, 0);
        for _ in 0..most {
            if released == AT_ONCE {
                return true;
            }
            let Some(Cut { user, pages }) = self.leaving.cut.back() else { return false };
            let (user, last) = (*user, pages.last_key());
            let shown = last.and_then(|last| pages.get(last)).is_some_and(|page| page.shown);
            if shown && !self.may_take(user) {
                // Those of others are not held up.
                self.leaving.cut.rotate_right(1);
                continue;
            }
            let page = self.leaving.cut.back_mut().and_then(|cut| cut.pages.pop_last());
            let Some((_, page)) = page else {
                self.leaving.cut.pop_back();
                continue;
            };
            done = true;
            released += usize::from(shown);
            let left = if shown { (self.leaving.others.release)(page.bytes) } else { None };
            match left {
                None => self.uncharge(user),
                Some(page) => {
                    self.owners.take(user);
                    self.leaving.taken.push(Taken { user, page });
                }
            }
        }
        done && !self.leaving.cut.is_empty()
    }

    /// Is there room for one more of this user's that is being taken back?
    fn may_take(&self, user: u32) -> bool {
        self.leaving.taken.len() < TAKEN && self.owners.taken(user) < TAKEN / 2
    }

    /// Asks about some of those that are being taken back.
    fn look_for_left(&mut self) {
        for _ in 0..self.leaving.taken.len().min(LOOKS) {
            let at =
                if self.leaving.next < self.leaving.taken.len() { self.leaving.next } else { 0 };
            self.leaving.next = at + 1;
            if (self.leaving.others.has_left)(self.leaving.taken[at].page) {
                // Another one is at this place now.
                self.leaving.next = at;
                let Taken { user, .. } = self.leaving.taken.swap_remove(at);
                self.owners.taken_back(user);
                self.uncharge(user);
            }
        }
    }

    fn uncharge(&mut self, user: u32) {
        self.pages = self.pages.saturating_sub(1);
        self.owners.left(user);
    }
}
