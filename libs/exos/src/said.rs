//! What other processes say of themselves in their pages: words that may be any.
//!
//! Each look at another one's page goes through here, and what stands there comes out as
//! [`Said`], which is no number to compare. Whoever takes the word out says which of two things it
//! is for: for the speaker itself ([`Said::own_word`]), who has itself to blame for a lie; or as a
//! fact, on which something of ours or of a third process depends: then the kernel has to bear it
//! out ([`Said::fact`], `crate::belief`).

use crate::page::{self, MAGIC, Mark, PLACED, Placed, ProcessPage, THREAD_MAGIC};
use abi::id::{DomainId, EnvId};
use abi::published::{EnvRecord, EnvState, Table};
use linux_raw_sys::general as linux;
use xok::published;

/// What a process says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said<T>(T);

impl<T> Said<T> {
    /// For who shows it as that one's word, and for what is done to the speaker alone.
    pub fn own_word(&self) -> &T {
        &self.0
    }

    /// For what is done to others: if it is borne out.
    pub fn fact(self, is_borne_out: impl FnOnce(&T) -> bool) -> Option<T> {
        is_borne_out(&self.0).then_some(self.0)
    }
}

/// A copy of the page of the environment at `index`, if a Linux process filled it.
pub fn of_index(index: usize) -> Option<Said<ProcessPage>> {
    if published::application_word(index, 0) != Some(MAGIC) {
        return None;
    }
    published::record(Table::ApplicationPages, index).map(Said)
}

/// A 32-bit word of the page of a live process.
fn field(index: usize, offset: usize) -> Option<u32> {
    Some(published::application(index)?.half(offset))
}

/// A process group, and its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The group.
    pub group: u32,
    /// The session.
    pub session: u32,
}

/// What is often asked of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief {
    /// Its id.
    pub id: EnvId,
    /// Where it is.
    pub place: Said<Place>,
    /// The user whose word that is, if it is not the process's own.
    pub told_by: Option<u32>,
    /// Signal that stopped it, 0: it runs.
    pub stop_signal: u32,
    /// Times it was stopped.
    pub stop_count: u32,
    /// Times it was continued.
    pub continue_count: u32,
    /// Dead, to be waited for.
    pub dead: bool,
}

/// Is it an environment of a Linux process? Its brief.
pub fn brief_of(record: &EnvRecord) -> Option<Brief> {
    let id = EnvId(record.id);
    let page = published::application(id.index())?;
    if record.id == 0 || page.word(0) != MAGIC {
        return None;
    }
    let word = |offset| page.half(offset);
    Some(Brief {
        id,
        place: Said(Place {
            group: word(core::mem::offset_of!(ProcessPage, group)),
            session: word(core::mem::offset_of!(ProcessPage, session)),
        }),
        told_by: word(core::mem::offset_of!(ProcessPage, told_by)).checked_sub(1),
        stop_signal: stop_signal_that_can_be(word(core::mem::offset_of!(ProcessPage, stop_signal))),
        stop_count: word(core::mem::offset_of!(ProcessPage, stop_count)),
        continue_count: word(core::mem::offset_of!(ProcessPage, continue_count)),
        dead: record.state == EnvState::Dead as u32,
    })
}

/// A signal that stops, or 0, or in place of any other number the one that no process can refuse: a
/// page says what its owner likes.
fn stop_signal_that_can_be(signal: u32) -> u32 {
    match signal {
        0 | linux::SIGSTOP | linux::SIGTSTP | linux::SIGTTIN | linux::SIGTTOU => signal,
        _ => linux::SIGSTOP,
    }
}

/// The brief of the process with this id.
pub fn brief(id: EnvId) -> Option<Brief> {
    published::env(id).and_then(|record| brief_of(&record))
}

/// Has a process taken over the group that the order of this number put it into? One that has
/// executed a program follows no more (setpgid(2)).
pub fn has_followed(id: EnvId, order: u32) -> bool {
    let word = |offset| field(id.index(), offset).unwrap_or(0);
    word(core::mem::offset_of!(ProcessPage, followed)) >= order || has_executed(id)
}

/// Has a process executed a program since it was forked?
pub fn has_executed(id: EnvId) -> bool {
    field(id.index(), core::mem::offset_of!(ProcessPage, executed)).unwrap_or(0) != 0
}

/// Times that orders are read until they have stood still.
const READS: usize = 4;

/// The last order that `parent` has given `child`, if it has written it wholly.
pub fn order_for(parent: EnvId, child: u32) -> Option<Said<Placed>> {
    // Mostly there is none. One that is being written is followed when its doorbell rings.
    let page = published::application(parent.index())?;
    let child_of = |at| page.half(page::PLACED_AT + at * size_of::<Placed>());
    if !(0..PLACED).any(|at| child_of(at) == child) {
        return None;
    }
    let read = || {
        let mut orders = [Placed::NONE; PLACED];
        for (at, order) in orders.iter_mut().enumerate() {
            let word = |offset: usize| {
                field(parent.index(), page::PLACED_AT + at * size_of::<Placed>() + offset)
                    .unwrap_or(0)
            };
            *order = Placed {
                child: word(core::mem::offset_of!(Placed, child)),
                group: word(core::mem::offset_of!(Placed, group)),
                order: word(core::mem::offset_of!(Placed, order)),
            };
        }
        orders
    };
    let mut seen = read();
    for _ in 0..READS {
        let again = read();
        if again == seen {
            return Placed::last_for(&seen, child).map(Said);
        }
        seen = again;
    }
    None
}

/// What a process says is its session's terminal.
pub fn terminal(id: EnvId) -> Option<Said<Mark>> {
    let page = published::application(id.index())?;
    let number = page.half(core::mem::offset_of!(ProcessPage, terminal));
    let settings = page.word(core::mem::offset_of!(ProcessPage, terminal_settings));
    Some(Said(Mark { number, settings }))
}

/// A nice value, and whose it is.
#[derive(Clone, Copy, Debug)]
pub struct Priority {
    /// The process's group.
    pub group: u32,
    /// Its real user.
    pub user: u32,
    /// Any number.
    pub nice: i32,
}

/// Of a process: few words of a page that is long, as all processes are looked at.
pub fn priority(id: EnvId) -> Option<Said<Priority>> {
    let page = published::application(id.index())?;
    let word = |offset| page.half(offset);
    Some(Said(Priority {
        group: word(core::mem::offset_of!(ProcessPage, group)),
        user: word(core::mem::offset_of!(ProcessPage, user)),
        nice: word(core::mem::offset_of!(ProcessPage, nice)) as i32,
    }))
}

/// Every Linux process, the dead not yet waited for included.
pub fn all() -> impl Iterator<Item = Brief> {
    all_of(|_| true)
}

/// Those of them that are asked for by their ids.
pub fn all_of(is_asked: impl Fn(EnvId) -> bool) -> impl Iterator<Item = Brief> {
    let count = published::table(Table::Envs).count as usize;
    (1..count).filter_map(move |index| {
        let id = published::env_at(index).filter(|&id| is_asked(id))?;
        brief(id)
    })
}

/// The process whose thread an environment is, unless it is a process itself.
pub fn thread_of(id: EnvId) -> Option<Said<EnvId>> {
    let word = |offset| published::application_word(id.index(), offset);
    let is_thread = word(0) == Some(THREAD_MAGIC);
    is_thread.then(|| Said(EnvId(word(8).unwrap_or(0) as u32)))
}

/// The other threads of a process, those of them that are in `domain`.
pub fn threads_of(process: EnvId, domain: DomainId) -> impl Iterator<Item = EnvId> {
    let count = published::table(Table::Envs).count as usize;
    (1..count).filter_map(move |index| {
        let record: EnvRecord = published::record(Table::Envs, index)?;
        let is_thread = published::application_word(index, 0) == Some(THREAD_MAGIC)
            && published::application_word(index, 8) == Some(u64::from(process.0));
        (record.id != 0 && record.domain == domain.0 && is_thread).then_some(EnvId(record.id))
    })
}

/// The threads, of whatever process, that say they sleep for the shared futex `key`, and the
/// accounts whose time they have.
pub fn sleepers_for(key: u64) -> impl Iterator<Item = (EnvId, u64)> {
    let count = published::table(Table::Envs).count as usize;
    (1..count).filter_map(move |index| {
        let record: EnvRecord = published::record(Table::Envs, index)?;
        let magic = published::application_word(index, 0);
        let is_thread = magic == Some(MAGIC) || magic == Some(THREAD_MAGIC);
        let sleeps = is_thread && published::application_word(index, page::FUTEX) == Some(key);
        (sleeps && record.id != 0).then_some((EnvId(record.id), record.account))
    })
}
