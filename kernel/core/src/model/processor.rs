//! Processors that remember translations until they are told to forget them.

use super::Model;
use crate::machine::{Flush, Machine};
use crate::{alone, frame};
use abi::id::Frame;
use abi::layout::{PAGE_SIZE, table_index};
use abi::memory::{ADDRESS, LARGE, PRESENT, WRITABLE};
use abi::published::FrameType;

pub(super) const CPUS: usize = 3;
const REMEMBERED: usize = 24;

/// A translation of a page.
#[derive(Clone, Copy, Debug)]
struct Translation {
    root: Frame,
    page: u64,
    frame: Frame,
    writable: bool,
}

/// A remembered way to a level-1 table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    root: Frame,
    region: u64,
    pub(super) table: Frame,
    pub(super) writable: bool,
    /// There is none: it is this large entry, which is remembered page by page.
    large: Option<u64>,
}

#[derive(Default)]
struct Cpu {
    translations: Vec<Translation>,
    ways: Vec<Way>,
    /// What others have asked it to flush, each with its ticket.
    pending: Vec<(u64, Flush)>,
    /// The ticket it waits for; it makes no calls until then.
    waits: Option<u64>,
}

#[derive(Default)]
pub(super) struct Processors {
    cpus: [Cpu; CPUS],
    /// Who makes the current call.
    pub(super) actor: usize,
    /// The page that it has entered last, with its space.
    pub(super) entered: Option<(Frame, u64)>,
}

fn covers(flush: Flush, root: Frame, page: u64) -> bool {
    match flush {
        Flush::Page(of, at) => of == root && at == page,
        Flush::Pages(of, first, count) => {
            of == root && (first..first + count * PAGE_SIZE).contains(&page)
        }
        Flush::Space(of) => of == root,
        // Nothing that was taken away depends on it.
        Flush::Own => false,
        Flush::Everything => true,
    }
}

impl Cpu {
    fn flush(&mut self, flush: Flush) {
        self.translations.retain(|known| !covers(flush, known.root, known.page));
        // INVLPG forgets every way of its space (SDM 3A 4.10.4.1).
        self.ways.retain(|known| match flush {
            Flush::Page(of, _) | Flush::Pages(of, ..) | Flush::Space(of) => of != known.root,
            Flush::Own => true,
            Flush::Everything => false,
        });
    }
}

impl Model {
    /// Some processor walks to `page` in the space with this root and remembers what it found,
    /// by a way it remembers if it has one.
    pub(super) fn translate(&mut self, root: Frame, page: u64) {
        let cpu = self.random.below(CPUS);
        let region = page >> 21;
        let known = &self.processors.cpus[cpu].ways;
        let known = known.iter().find(|way| way.root == root && way.region == region).copied();
        let way = known.or_else(|| self.way(root, page));
        let Some(way) = way else { return };
        let entry = match way.large {
            Some(entry) => entry + table_index(page, 1) as u64 * PAGE_SIZE,
            None => self.machine.entry(way.table, table_index(page, 1)),
        };
        let cpu = &mut self.processors.cpus[cpu];
        if known.is_none() && way.large.is_none() {
            cpu.ways.push(way);
        }
        if entry & PRESENT != 0 {
            let frame = Frame::containing(entry & ADDRESS);
            let writable = way.writable && entry & WRITABLE != 0;
            cpu.translations.retain(|known| known.root != root || known.page != page);
            cpu.translations.push(Translation { root, page, frame, writable });
        }
        // Processors forget when they like.
        if cpu.translations.len() > REMEMBERED {
            cpu.translations.remove(0);
        }
        if cpu.ways.len() > REMEMBERED / 4 {
            cpu.ways.remove(0);
        }
    }

    pub(super) fn way(&self, root: Frame, page: u64) -> Option<Way> {
        let (mut table, mut writable) = (root, true);
        for level in [4, 3, 2] {
            let entry = self.machine.entry(table, table_index(page, level));
            if entry & PRESENT == 0 {
                return None;
            }
            writable &= entry & WRITABLE != 0;
            if level == 2 && entry & LARGE != 0 {
                return Some(Way { root, region: page >> 21, table, writable, large: Some(entry) });
            }
            table = Frame::containing(entry & ADDRESS);
        }
        Some(Way { root, region: page >> 21, table, writable, large: None })
    }

    /// A processor that waits for nobody, to make the next call.
    pub(super) fn choose_actor(&mut self) {
        let free: Vec<usize> =
            (0..CPUS).filter(|&cpu| self.processors.cpus[cpu].waits.is_none()).collect();
        self.processors.actor = self.random.pick(&free);
    }

    /// What the machine layer does when a call is over: flush here, ask the others, wait.
    pub(super) fn settle(&mut self) {
        let flushes = std::mem::take(&mut self.machine.flushes);
        let actor = self.processors.actor;
        if let Some((root, page)) = self.processors.entered.take() {
            self.check_entered(root, page, &flushes);
        }
        for &flush in &flushes {
            self.processors.cpus[actor].flush(flush);
        }
        if !flushes.is_empty() || frame::limbo_waiting(&self.state) {
            let ticket = frame::ticket(&mut self.state);
            for (index, cpu) in self.processors.cpus.iter_mut().enumerate() {
                if index != actor {
                    cpu.pending.extend(flushes.iter().map(|&flush| (ticket, flush)));
                }
            }
            self.processors.cpus[actor].waits = Some(ticket);
        } else {
            alone::no_ticket(&mut self.state);
        }
        let waiting: Vec<u64> = self.processors.cpus.iter().filter_map(|cpu| cpu.waits).collect();
        if waiting.len() == CPUS || (!waiting.is_empty() && self.random.one_in(2)) {
            let ticket = self.random.pick(&waiting);
            self.answer(ticket);
        }
    }

    /// Every processor has flushed what hung on `ticket`.
    fn answer(&mut self, ticket: u64) {
        for cpu in &mut self.processors.cpus {
            if cpu.waits == Some(ticket) {
                cpu.waits = None;
            }
            let (due, rest) = cpu.pending.drain(..).partition(|&(of, _)| of == ticket);
            let due: Vec<(u64, Flush)> = due;
            cpu.pending = rest;
            for (_, flush) in due {
                cpu.flush(flush);
            }
        }
        frame::limbo_release(&mut self.state, &mut self.machine, ticket);
    }

    /// What a processor remembers is right, or it has been told to forget it; and it is never
    /// memory that somebody else may get.
    pub(super) fn check_translations(&self) {
        for (index, cpu) in self.processors.cpus.iter().enumerate() {
            for known in &cpu.translations {
                let told = cpu.pending.iter().any(|&(_, f)| covers(f, known.root, known.page));
                let now = super::check::effective(&self.machine, known.root, known.page);
                let right = now.is_some_and(|(frame, writable)| {
                    frame == known.frame && (writable || !known.writable)
                });
                assert!(right || told, "processor {index}: {known:x?} is stale, now {now:x?}");
                self.assert_in_use(known.frame);
            }
            for way in &cpu.ways {
                self.assert_in_use(way.table);
            }
        }
    }

    /// A page that was entered without a flush is remembered by no processor as what a revocation
    /// has taken: what the space itself does behind its back, and has not seen done, is its own.
    fn check_entered(&self, root: Frame, page: u64, flushes: &[Flush]) {
        if flushes.iter().any(|&flush| covers(flush, root, page)) {
            return;
        }
        let now = super::check::effective(&self.machine, root, page);
        for (index, cpu) in self.processors.cpus.iter().enumerate() {
            let own = |&(_, flush): &(u64, Flush)| {
                flush != Flush::Everything && covers(flush, root, page)
            };
            let known = cpu.translations.iter().find(|at| at.root == root && at.page == page);
            let is_old = known.is_some_and(|known| now.is_none_or(|now| now.0 != known.frame));
            let is_own = cpu.pending.iter().any(own);
            assert!(!is_old || is_own, "processor {index}: {known:x?} was revoked, now {now:x?}");
        }
    }

    /// Does a processor remember the frame by another space than that of this root?
    pub(super) fn is_known(&self, root: Frame, frame: Frame) -> bool {
        self.processors.cpus.iter().any(|cpu| {
            let pages = cpu.translations.iter().map(|known| (known.root, known.frame));
            let mut all = pages.chain(cpu.ways.iter().map(|way| (way.root, way.table)));
            all.any(|(of, known)| known == frame && of != root)
        })
    }

    /// Is a processor still to be heard of that was asked to forget something?
    pub(super) fn is_asked(&self) -> bool {
        self.processors.cpus.iter().any(|cpu| cpu.waits.is_some())
    }

    fn assert_in_use(&self, frame: Frame) {
        let kind = frame::kind(&self.state, frame);
        assert_ne!(kind, Some(FrameType::Free), "a processor still remembers {frame:?}");
    }
}
