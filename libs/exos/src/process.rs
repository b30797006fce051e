//! A Linux process: what ExOS remembers of the program that it runs.
//!
//! It lies on the heap, which a fork child gets as an eager copy at the same addresses; so fork
//! needs no serialising. `exec` hands over what survives in a start block (`crate::start_block`). A
//! vfork child is a second `Process` on the same heap, made by `clone`; each thread finds its own
//! by GS.

use abi::id::{DomainId, EnvId};
use abi::published::{EnvRecord, Table};
use abi::setup::EnvSetup;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;
use linux_raw_sys::general as linux;
pub use unix::process_page::LIMITS;

use crate::fs::Files;
use crate::fs::node::Node;
use crate::group_list::Groups;
use crate::lock;
use crate::net::Net;
use crate::parts::Parts;
use crate::posix_timers::{self, Timers};
use crate::signal::{Effect, Info, Signals, bit};
use crate::thread::{self, Threads};
use crate::trace;
use crate::wait::EVENT_LOOK;

/// A process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Its first environment: the pid.
    pub id: EnvId,
    /// Open files, working directory, file mode mask.
    pub files: Files,
    /// Its network, from its first socket on.
    pub net: Option<Rc<Net>>,
    /// Signals: what is wanted, what waits.
    pub signals: Signals,
    /// Event bits that arrived and nobody has taken yet (`abi::upcall::EVENT_…`).
    pub events: u64,
    /// Real, effective, saved user.
    pub users: [u32; 3],
    /// Real, effective, saved group.
    pub groups: [u32; 3],
    /// The user and group that it acts by with files, if not the effective ones (setfsuid(2)).
    pub file_ids: [Option<u32>; 2],
    /// The groups beyond the three.
    pub more_groups: Groups,
    /// Are these a vfork child's own, which its domain does not hold?
    pub own_groups: bool,
    /// The users and groups that the domain's list has capabilities of: a vfork child's are its
    /// parent's.
    pub listed: ([u32; 3], [u32; 3]),
    /// The user whose account its domain is charged to, as far as it has been asked for.
    pub payer: u32,
    /// An account that has been asked about, and the user whose it is. No other one gets its id.
    pub known_account: (u64, u32),
    /// Does a set-id or hidden program act for more than its user, as it or as the one that it is a
    /// fork of? Then what it makes is no user's (`capabilities::PRIVATE_SLOT`).
    pub private: bool,
    /// Has it given an id up, and executed no program since as which it acts for one user and one
    /// group? Then its memory, and its children's, hold what its user's other processes must not
    /// see (`identity::close`).
    pub closed: bool,
    /// Is its group what the starter of a set-id or hidden program has said, of it or of the one
    /// that it descends from? Unlike `private` it stays so, whatever the process becomes.
    pub told_group: bool,
    /// Has it led the group of its own number, and left it?
    pub left_own_group: Cell<bool>,
    /// May it not read the program that it runs?
    pub hidden: bool,
    /// Has it had another effective user or group since its program began, or when it did, or is
    /// that hidden (`PR_GET_DUMPABLE`)?
    pub undumpable: bool,
    /// What it has said of capabilities after a change of users (`PR_SET_KEEPCAPS`): there are
    /// none to keep.
    pub keeps_capabilities: bool,
    /// Address of its first thread's area.
    pub area: u64,
    /// Its threads.
    pub threads: Threads,
    /// What its first thread is to do, whose environment the kernel knows as the process.
    pub orders: Orders,
    /// Children not yet waited for.
    pub children: Vec<Child>,
    /// The program's absolute path, links resolved (`/proc/self/exe`).
    pub executable: String,
    /// What that was when a set-id program was begun: the name may lead elsewhere by now.
    pub program: Option<Node>,
    /// `RLIMIT_…`: soft and hard limit.
    pub limits: Limits,
    /// Does it run in its vfork parent's space?
    pub borrows_space: bool,
    /// The parent that lent it, until it has one of its own.
    pub lender: u32,
    /// Address of the 32-bit word that names its parent, 0 in it if that has died.
    pub parent_word: u64,
    /// The timer of `alarm` and `ITIMER_REAL`: next ring in nanoseconds since boot (0: none), and
    /// the interval.
    pub timer: (u64, u64),
    /// Is the kernel's timer set?
    pub timer_is_set: bool,
    /// Its other timers.
    pub timers: Timers,
    /// Nanoseconds that threads which have ended have run.
    pub ended_ns: u64,
    /// Nanoseconds that children waited for have run.
    pub children_ns: u64,
    /// Does it tell its calls (`crate::trace`)?
    pub traced: bool,
    /// What it does by functions of its own.
    pub parts: Parts,
}

/// What other threads want of the first one (`crate::threads::obey`).
#[derive(Clone, Debug, Default)]
pub struct Orders {
    /// To stop the process by this signal.
    pub stop: u32,
    /// To set the kernel's timer as `Process::timer` says.
    pub timer: bool,
    /// To move to the next life.
    pub next_life: Option<NextLife>,
    /// The status that it left when it ended before the others did.
    pub status: u64,
}

/// A domain that is ready to be moved to (`crate::exec`).
#[derive(Clone, Copy, Debug)]
pub struct NextLife {
    /// The domain.
    pub domain: DomainId,
    /// How it begins there.
    pub setup: EnvSetup,
    /// The fields of that which count.
    pub fields: u64,
}

impl Orders {
    /// Is nothing wanted?
    pub fn is_empty(&self) -> bool {
        self.stop == 0 && !self.timer && self.next_life.is_none()
    }
}

/// Resource limits, soft and hard, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits(pub [(u64, u64); LIMITS]);

impl Default for Limits {
    fn default() -> Self {
        let mut limits = [(u64::MAX, u64::MAX); LIMITS];
        limits[linux::RLIMIT_STACK as usize].0 = 8 << 20;
        limits[linux::RLIMIT_NOFILE as usize] = (1024, 4096);
        limits[linux::RLIMIT_CORE as usize].0 = 0;
        limits[linux::RLIMIT_NPROC as usize] = (1024, 1024);
        limits[linux::RLIMIT_MEMLOCK as usize] = (8 << 20, 8 << 20);
        limits[linux::RLIMIT_NICE as usize] = (0, 0);
        limits[linux::RLIMIT_RTPRIO as usize] = (0, 0);
        Self(limits)
    }
}

/// A child as its parent remembers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Child {
    /// Its pid.
    pub id: EnvId,
    /// Process group the parent gave it, 0: look at its page.
    pub group: u32,
    /// The number of that order.
    pub order: u32,
    /// The stops that were already reported, as its page counts them.
    pub stops: u32,
    /// The continuations that were already reported.
    pub continuations: u32,
    /// Did it die while its end was wanted? Then it waits to be waited for whatever comes.
    pub kept: bool,
    /// Has SIGCHLD told of its death?
    pub told: bool,
    /// The stops and the continuations that SIGCHLD has told of, as its page counts them.
    pub told_alive: [u32; 2],
    /// Has SIGCHLD told of a continuation before the child itself has?
    pub told_early: bool,
}

impl Process {
    /// Notes where its parent's id stands: the kernel's record of it changes when the parent dies.
    pub fn find_parent(&mut self) {
        self.parent_word = if self.borrows_space {
            core::ptr::from_ref(&self.lender) as u64
        } else {
            let holder = core::mem::offset_of!(EnvRecord, holder) as u64;
            xok::published::record_address(Table::Envs, self.id.index()) + holder
        };
    }

    /// Sends `signal` (1..=64) to the process itself; it is taken on the way out.
    pub fn raise(&mut self, signal: u32) {
        let first = u64::from(self.id.0) | u64::from(self.users[0]) << 32;
        let info = Info { first, ..Info::default() };
        self.arrive(signal, info);
    }

    /// Notes that `signal` arrived for the process, and sees that a thread takes it.
    /// False if there is no room for one more of it.
    pub fn arrive(&mut self, signal: u32, info: Info) -> bool {
        let blocked = self.blocked_by_all();
        let room = self.signals.arrive(signal, info, blocked);
        if self.traced && self.signals.drops(signal, blocked) {
            trace::signal(signal, info);
        }
        if self.threads.count() > 1 {
            self.choose(bit(signal));
        }
        room
    }

    /// Notes that `signal` arrived for the thread `id` alone; false as above.
    pub fn arrive_at(&mut self, id: EnvId, signal: u32, info: Info) -> bool {
        let ignored = self.signals.effect(signal) == Effect::Ignore;
        let own = thread::own().id;
        let Some(target) = self.threads.find(id) else { return true };
        let blocked = target.blocked & bit(signal) != 0;
        if ignored && !blocked {
            if self.traced {
                trace::signal(signal, info);
            }
            return true;
        }
        let room = target.directed.put(signal, info);
        if target.id != own && target.wants(bit(signal)) {
            lock::ring(target.id);
        }
        room
    }

    /// What every thread blocks.
    fn blocked_by_all(&mut self) -> u64 {
        let living = self.threads.all().filter(|thread| !thread.ended);
        living.fold(!0, |set, thread| set & thread.blocked)
    }

    /// Sees that signals of `set` which wait for the process are taken: by us on the way out, else
    /// by one that does not block them, the first thread before all others.
    pub fn choose(&mut self, set: u64) {
        let waiting = self.signals.pending.set() & set & thread::own().blocked;
        if waiting == 0 {
            return;
        }
        if let Some(chosen) = self.threads.all().find(|thread| thread.wants(waiting)) {
            lock::ring(chosen.id);
        }
    }

    /// Event bits for all threads: those that sleep for them look again.
    pub fn tell(&mut self, events: u64) {
        thread::own().events |= events;
        self.tell_others(events);
    }

    /// The same for all threads but the running one.
    pub fn tell_others(&mut self, events: u64) {
        let own = thread::own().id;
        for thread in self.threads.all().filter(|thread| thread.id != own) {
            thread.events |= events;
            if thread.awaits & events != 0 {
                lock::ring(thread.id);
            }
        }
    }

    /// Has other threads that watch descriptors look again.
    pub fn look_again(&mut self) {
        if self.threads.count() > 1 {
            self.tell(EVENT_LOOK);
        }
    }

    /// The next signal that the running thread takes.
    pub fn next_signal(&self) -> Option<u32> {
        let own = thread::own();
        self.signals.next(own.directed.set(), own.blocked)
    }

    /// Takes `signal`, one's own first; what its handler is told.
    pub fn take_signal(&mut self, signal: u32) -> Info {
        let own = thread::own().directed.take(signal);
        let info = own.unwrap_or_else(|| self.signals.take(signal));
        if info.code == posix_timers::CODE_TIMER { posix_timers::taken(self, info) } else { info }
    }

    /// A signal that the running instruction caused.
    pub fn force(&mut self, signal: u32, info: Info) {
        let own = thread::own();
        own.blocked = self.signals.force(signal, own.blocked);
        own.directed.discard(signal);
        own.directed.put(signal, info);
    }

    /// The soft limit of `resource`.
    pub fn limit(&self, resource: u32) -> u64 {
        self.limits.0.get(resource as usize).map_or(u64::MAX, |limit| limit.0)
    }
}
