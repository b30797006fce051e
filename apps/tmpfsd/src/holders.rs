//! Processes that say in their pages what they have open: looked at in pieces, all files at once.
//!
//! A file without names ends when nobody has it open. That a process has closed one nobody tells:
//! so the pages are looked at again and again while there are such files, and whoever may have
//! processes may have many. One look serves all files that have no name when it begins. It goes
//! through the pages and notes in the tree which of them are held; then those that were not noted
//! end. Few pages and few files are looked at with each request; many now and then, in pieces, some
//! with a request and some between requests.
//!
//! Who takes a file over does so before its former holder lets go of it: the server knows of it
//! (`Operation::Open`, `Tree::hold`), and what it has known goes on until a look has begun later.

use abi::capability::{NAME_GROUP, NAME_USER};
use abi::id::{DomainId, EnvId};
use abi::published::{EnvState, Table};
use alloc::vec::Vec;
use core::mem::offset_of;
use unix::Errno;
use unix::process_page::{HELD, HELD_ANY, MAGIC, ProcessPage};
use unix::tree::{Id, Tree};
use xok::{call, clock, published};

use crate::clients::{domain_of, room};

/// Pages, and files, that are looked at with a request. Where there are no more of them in all,
/// each request looks at all. They take some 50 instructions each.
pub const A_REQUEST: usize = 64;
/// What is looked at between two requests.
pub const A_PIECE: usize = 256;
/// What a question to the kernel counts, beside a page.
const A_QUESTION: usize = 4;
/// Questions about a file and the directories that led to it, at most.
const A_FILE: usize = 16;
/// Nanoseconds between a look at many and the next one.
const PAUSE_NS: u64 = 20_000_000;

/// How far a look is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// There is none.
    #[default]
    Rests,
    /// The next page is that of the holder at this place.
    Looks(usize),
    /// The files that were not noted end.
    Ends,
}

/// The processes.
#[derive(Debug, Default)]
pub struct Holders {
    all: Vec<EnvId>,
    /// Which one of them is known at each place of the table of environments.
    known: Vec<u32>,
    stage: Stage,
    /// Users that are making a file, as a process of theirs says to this look: it does not know
    /// the file's number yet, so that no file of theirs ends by this look.
    makers: Vec<u32>,
    /// There was no room for one of them: no file ends by this look.
    any_maker: bool,
    /// Are there more than a request looks at?
    many: bool,
    /// A look at many does not begin before.
    due_ns: u64,
    /// Which one is asked next whether it still lives, while there is no look.
    next: usize,
}

impl Holders {
    /// From now on a process of the caller's domain says in its page what it has open. One that has
    /// never run does not.
    pub fn add(&mut self, caller: EnvId, process: u64) -> Result<(), Errno> {
        let process = u32::try_from(process).map(EnvId).map_err(|_| Errno::ESRCH)?;
        let domain = domain_of(process).ok_or(Errno::ESRCH)?;
        if domain_of(caller) != Some(domain) {
            return Err(Errno::EPERM);
        }
        let state = published::env(process).map_or(EnvState::Free as u32, |env| env.state);
        if state <= EnvState::New as u32 {
            return Err(Errno::ESRCH);
        }
        let places = published::table(Table::Envs).count as usize;
        if self.known.is_empty() {
            self.known.try_reserve_exact(places).map_err(|_| Errno::ENOMEM)?;
            self.known.resize(places, 0);
        }
        // As many of the dead go as may come.
        self.forget_some();
        room(&mut self.all)?;
        let known = self.known.get_mut(process.index()).ok_or(Errno::ESRCH)?;
        if core::mem::replace(known, process.0) != process.0 {
            self.all.push(process);
        }
        Ok(())
    }

    /// Forgets the dead among some, while no look does so.
    fn forget_some(&mut self) {
        for _ in 0..2 {
            match self.all.get(self.next) {
                _ if self.stage != Stage::Rests => return,
                Some(&holder) if published::env_lives(holder) => self.next += 1,
                Some(_) => self.forget(self.next),
                None => self.next = 0,
            }
        }
    }

    /// Forgets the one at a place, where the last one is then.
    fn forget(&mut self, at: usize) {
        let dead = self.all.swap_remove(at);
        if let Some(known) = self.known.get_mut(dead.index()).filter(|known| **known == dead.0) {
            *known = 0;
        }
    }

    /// Looks at so many at `most`; when to do so again, `soon` or later, 0: with the next request.
    pub fn look(&mut self, tree: &mut Tree, most: usize, soon: u64) -> u64 {
        if self.stage == Stage::Rests {
            if tree.nameless() == 0 {
                return 0;
            }
            self.many = self.all.len() + tree.nameless() > A_REQUEST;
            if self.many && clock::now_ns() < self.due_ns {
                return self.due_ns;
            }
            self.begin(tree);
        }
        self.go_on(tree, most);
        if self.stage == Stage::Rests { 0 } else { clock::now_ns() + soon }
    }

    fn begin(&mut self, tree: &mut Tree) {
        tree.begin_look();
        self.makers.clear();
        self.any_maker = false;
        self.stage = Stage::Looks(0);
    }

    fn go_on(&mut self, tree: &mut Tree, mut most: usize) {
        while let Stage::Looks(at) = self.stage
            && most > 0
        {
            match self.all.get(at) {
                Some(&holder) if published::env_lives(holder) => {
                    let questions = self.note(tree, holder);
                    most = most.saturating_sub(1 + A_QUESTION * questions);
                    self.stage = Stage::Looks(at + 1);
                }
                Some(_) => {
                    self.forget(at);
                    most -= 1;
                }
                None => {
                    tree.end_look();
                    self.stage = Stage::Ends;
                }
            }
        }
        let (any, makers) = (self.any_maker, &self.makers);
        if self.stage == Stage::Ends
            && most > 0
            && !tree.settle(most, |user| any || makers.contains(&user))
        {
            self.stage = Stage::Rests;
            if self.many {
                self.due_ns = clock::now_ns() + PAUSE_NS;
            }
        }
    }

    /// Notes what a process says that it has open, and may have; how often the kernel was asked.
    fn note(&mut self, tree: &mut Tree, process: EnvId) -> usize {
        let page = published::application(process.index()).filter(|page| page.word(0) == MAGIC);
        let (Some(page), Some(domain)) = (page, domain_of(process)) else { return 0 };
        let mut questions = 0;
        let mut makes = false;
        for at in 0..HELD {
            match page.word(offset_of!(ProcessPage, held) + 8 * at) {
                0 => {}
                HELD_ANY => makes = true,
                word => {
                    let node = word - 1;
                    if tree.is_in_doubt(node) && may_hold(domain, tree, node, &mut questions) {
                        tree.note_held(node);
                    }
                }
            }
        }
        if makes {
            questions += 1;
            // The file that it makes is its user's.
            self.note_maker(domain, page.half(offset_of!(ProcessPage, file_user)));
        }
        questions
    }

    fn note_maker(&mut self, domain: DomainId, user: u32) {
        if self.makers.contains(&user) || call::domain_holds(domain, NAME_USER, user).is_err() {
            return;
        }
        match self.makers.try_reserve(1) {
            Ok(()) => self.makers.push(user),
            Err(_) => self.any_maker = true,
        }
    }
}

/// May a process of the domain have the file open? Its user's it may, others it may read or write
/// by their modes, if it could find them while they had names: numbers of files are public. What it
/// opened as another one is entrusted to the server (`Operation::Open`). Counts how often the
/// kernel was asked.
fn may_hold(domain: DomainId, tree: &Tree, node: Id, questions: &mut usize) -> bool {
    let Ok(file) = tree.attributes(node) else { return false };
    let last = *questions + A_FILE;
    let mut holds = |kind, number| {
        *questions += 1;
        *questions <= last && call::domain_holds(domain, kind, number).is_ok()
    };
    if holds(NAME_USER, file.uid) {
        return true;
    }
    let by_mode = file.mode & 0o006 != 0 || file.mode & 0o060 != 0 && holds(NAME_GROUP, file.gid);
    by_mode
        && tree.could_be_found(node, |above| {
            above.mode & 0o001 != 0
                || holds(NAME_USER, above.uid)
                || above.mode & 0o010 != 0 && holds(NAME_GROUP, above.gid)
        })
}
