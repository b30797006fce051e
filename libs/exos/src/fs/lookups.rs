//! What paths led to: kept for as long as the memory file server's words say that it holds.
//!
//! A walk passes directories; what it found depends on them, on the file's attributes and on
//! nothing else. The server tells the words of all these inodes with its answer (`unix::versions`)
//! and moves a word before whoever changed the inode hears of it. So a look at the words shows that
//! everything kept was true at that moment: looking a path up again asks nobody. What lies in the
//! boot image never changes and has no words.

use abi::id::EnvId;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use unix::Errno;
use unix::attributes::{Attributes, Credentials};
use unix::versions::{MAGIC, Seen};
use xok::published::{self, ApplicationPage};
use xok::services::{self, Service};

use super::Files;
use super::node::{Node, Place};
use super::walk::{Last, Which};

/// Paths kept at most; each has one place where it may be.
const KEPT_MAX: usize = 32;

/// Where a path led.
#[derive(Debug)]
pub struct Known {
    /// What it named.
    pub place: Place,
    /// Its attributes.
    pub attributes: Attributes,
    base: Place,
    path: Box<[u8]>,
    last: Last,
    who: Credentials,
    seen: Seen,
}

/// The paths kept.
#[derive(Debug, Default)]
pub struct Lookups {
    words: Cell<Option<ApplicationPage>>,
    kept: RefCell<Vec<Option<Rc<Known>>>>,
}

/// Where in the table a path belongs (FNV-1a, 32 bits).
fn place_of(path: &[u8]) -> usize {
    let hash = path
        .iter()
        .fold(0x811c_9dc5u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash ^ hash >> 16) as usize % KEPT_MAX
}

impl Lookups {
    /// The server's words, if there is a server that has some.
    fn words(&self) -> Option<ApplicationPage> {
        if let Some(words) = self.words.get() {
            return Some(words);
        }
        let server = EnvId(services::get(Service::Files) as u32);
        let words = published::application(server.index()).filter(|page| page.word(0) == MAGIC);
        self.words.set(words.filter(|_| !server.is_none()));
        self.words.get()
    }

    /// Does what was seen still hold?
    fn holds(&self, seen: &Seen) -> bool {
        // What depends on no word holds for ever.
        seen.words().is_empty()
            || self.words().is_some_and(|page| seen.holds(|number| page.word(8 * number as usize)))
    }

    fn find(&self, which: &Which<'_>, base: &Place, who: Credentials) -> Option<Rc<Known>> {
        let kept = self.kept.borrow();
        let known = kept.get(place_of(which.path))?.as_ref()?;
        let same = *known.path == *which.path
            && known.last == which.last
            && known.who == who
            && known.base == *base;
        (same && self.holds(&known.seen)).then(|| known.clone())
    }

    fn keep(&self, known: &Rc<Known>) {
        let mut kept = self.kept.borrow_mut();
        if kept.is_empty() {
            kept.resize(KEPT_MAX, None);
        }
        if let Some(place) = kept.get_mut(place_of(&known.path)) {
            *place = Some(known.clone());
        }
    }
}

impl Files {
    /// What a path names, which must exist, and its attributes.
    pub fn known(&self, which: &Which<'_>) -> Result<Rc<Known>, Errno> {
        let who = self.who();
        if let Some(base) = self.base(which)
            && let Some(known) = self.lookups.find(which, base, who)
        {
            return Ok(known);
        }
        let found = self.walk_to(which, true)?;
        let (seen, base) = (found.seen, self.base(which));
        let (place, shown) = self.find_walked(found)?;
        let keeps = match place.node {
            Node::Image(_) => true,
            // Only what came together with its words.
            Node::Memory(_) => shown.is_some(),
            _ => false,
        };
        let attributes = match shown {
            Some(attributes) => attributes,
            None => place.node.attributes(self)?,
        };
        let known = Rc::new(Known {
            place,
            attributes,
            base: base.cloned().unwrap_or_default(),
            path: which.path.into(),
            last: which.last,
            who,
            seen: seen.unwrap_or_default(),
        });
        if keeps && seen.is_some() && base.is_some() {
            self.lookups.keep(&known);
        }
        Ok(known)
    }
}
