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
use core::sync::atomic::AtomicU64;
use unix::Errno;
use unix::attributes::{Attributes, Credentials};
use unix::versions::{self, MAGIC, Seen};
use xok::published::{self, ApplicationPage};
use xok::services::{self, Service};

use super::Files;
use super::node::{Node, Place};
use super::walk::{Last, Which, joined};
use crate::thread;

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
    /// The server that init named then.
    server: u64,
    /// The process whose seal comes with the attributes.
    process: EnvId,
    /// What all this depends on; `None`: on more than can be told, it is not kept.
    seen: Option<Seen>,
}

/// A server's words.
#[derive(Clone, Copy, Debug)]
struct Words {
    /// Init's page, whose word names the server.
    init: ApplicationPage,
    server: u64,
    page: ApplicationPage,
}

/// The paths kept.
#[derive(Debug, Default)]
pub struct Lookups {
    words: Cell<Option<Words>>,
    kept: RefCell<Vec<Option<Rc<Known>>>>,
}

/// What of a path's file must be as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Which one it is.
    Place,
    /// Also its attributes.
    Attributes,
    /// Also that its seal is our own.
    Seal,
}

/// Where in the table a path belongs (FNV-1a over words of eight bytes, then over the rest).
fn place_of(path: &[u8]) -> usize {
    let (words, rest) = path.as_chunks::<8>();
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = words.iter().fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        mix(hash, u64::from_le_bytes(*word)).rotate_left(23)
    });
    let hash = rest.iter().fold(hash, |hash, &byte| mix(hash, u64::from(byte)));
    (hash ^ hash >> 32) as u32 as usize % KEPT_MAX
}

impl Lookups {
    /// The server that init names; 0: there is none.
    pub fn server(&self) -> u64 {
        match self.words.get() {
            Some(words) => services::word(words.init, Service::Files),
            None => services::get(Service::Files),
        }
    }

    /// The server's words, if there is a server that has some.
    fn words(&self) -> Option<ApplicationPage> {
        match self.words.get() {
            // No other has its id while init names it, nor its page.
            Some(words) if services::word(words.init, Service::Files) == words.server => {
                Some(words.page)
            }
            _ => self.find_words(),
        }
    }

    #[cold]
    fn find_words(&self) -> Option<ApplicationPage> {
        let server = services::get(Service::Files);
        let id = EnvId(server as u32);
        let page = published::application(id.index()).filter(|page| page.word(0) == MAGIC);
        let page = page.filter(|_| !id.is_none());
        let init = published::application(services::INIT_INDEX);
        self.words.set(page.zip(init).map(|(page, init)| Words { init, server, page }));
        page
    }

    /// Does what was seen still hold?
    pub fn hold(&self, seen: &[u64]) -> bool {
        // What depends on no word holds for ever.
        let now = |page: ApplicationPage| move |number: u32| page.word(8 * number as usize);
        seen.is_empty() || self.words().is_some_and(|page| versions::hold(seen, now(page)))
    }

    /// Is all that is known of it still so?
    pub fn is_so(&self, known: &Known) -> bool {
        known.seen.is_some_and(|seen| self.hold(seen.words()))
    }

    fn find(
        &self,
        which: &Which<'_>,
        base: &Place,
        who: Credentials,
        what: Wanted,
    ) -> Option<Rc<Known>> {
        let kept = self.kept.borrow();
        let known = kept.get(place_of(which.path))?.as_ref()?;
        let same = *known.path == *which.path
            && known.last == which.last
            && known.who == who
            && known.base == *base
            && known.server == self.server();
        let seen = known.seen.as_ref()?;
        let words = match what {
            Wanted::Attributes | Wanted::Seal => seen.words(),
            Wanted::Place => seen.way(),
        };
        // A fork child has what its parent kept.
        let own = || known.process == thread::process().id || known.attributes.seal == 0;
        let same = same && (what != Wanted::Seal || own());
        (same && self.hold(words)).then(|| known.clone())
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
    /// What is known of a path without asking anybody.
    pub fn remembered(&self, which: &Which<'_>, what: Wanted) -> Option<Rc<Known>> {
        self.lookups.find(which, self.base(which)?, self.who(), what)
    }

    /// What a path names, which must exist, and its attributes.
    pub fn known(&self, which: &Which<'_>) -> Result<Rc<Known>, Errno> {
        match self.remembered(which, Wanted::Attributes) {
            Some(known) => Ok(known),
            None => self.learn(which),
        }
    }

    /// The same, with a seal of our own.
    pub fn known_to_open(&self, which: &Which<'_>) -> Result<Rc<Known>, Errno> {
        match self.remembered(which, Wanted::Seal) {
            Some(known) => Ok(known),
            None => self.learn(which),
        }
    }

    /// What a path names, which must exist; its attributes are older.
    pub fn known_place(&self, which: &Which<'_>) -> Result<Rc<Known>, Errno> {
        match self.remembered(which, Wanted::Place) {
            Some(known) => Ok(known),
            None => self.learn(which),
        }
    }

    /// Walks and keeps what is found, if it says how long it holds.
    fn learn(&self, which: &Which<'_>) -> Result<Rc<Known>, Errno> {
        let server = self.lookups.server();
        let found = self.walk_to(which, true)?;
        let (mut seen, base) = (found.seen, self.base(which));
        let (place, shown) = self.find_walked(found)?;
        let attributes = match (shown, place.node) {
            (Some(attributes), _) => attributes,
            (None, Node::Memory(id)) => {
                // A mount point: nobody has looked into it.
                let walked = self.client()?.walk(id, b"", true)?;
                seen = joined(seen, walked.seen);
                walked.attributes.ok_or(Errno::EIO)?
            }
            (None, node) => node.attributes(self)?,
        };
        let keeps = matches!(place.node, Node::Image(_) | Node::Memory(_));
        let known = Rc::new(Known {
            place,
            attributes,
            base: base.cloned().unwrap_or_default(),
            path: which.path.into(),
            last: which.last,
            who: self.who(),
            server,
            process: thread::process().id,
            seen,
        });
        if keeps && seen.is_some() && base.is_some() {
            self.lookups.keep(&known);
        }
        Ok(known)
    }

    /// Is all that is known of a path still so, and would it be if that were asked only now?
    pub fn is_so(&self, known: &Known) -> bool {
        lockfree::versions::said::<AtomicU64>();
        self.lookups.is_so(known)
    }
}
