//! A Linux process: what ExOS remembers of the program that it runs.
//!
//! It lies on the heap, which a fork child gets as an eager copy at the same addresses; so fork
//! needs no serialising. `exec` hands over what survives in a start block (`crate::start_block`). A
//! vfork child is a second `Process` on the same heap, made by `clone`; each thread finds its own
//! by GS.

use abi::id::EnvId;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;

use crate::fs::Files;
use crate::net::Net;
use crate::signal::{Info, Signals};
use crate::thread;

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
    /// Children not yet waited for.
    pub children: Vec<Child>,
    /// The program's absolute path, links resolved (`/proc/self/exe`).
    pub executable: String,
    /// `RLIMIT_…`: soft and hard limit.
    pub limits: Limits,
    /// Does it run in its vfork parent's space?
    pub borrows_space: bool,
    /// The parent that lent it, until it has one of its own.
    pub lender: u32,
    /// The timer of `alarm` and `ITIMER_REAL`: next ring in nanoseconds since boot (0: none), and
    /// the interval.
    pub timer: (u64, u64),
    /// Nanoseconds that children waited for have run.
    pub children_ns: u64,
}

/// Resource limits there are (`RLIM_NLIMITS`).
pub const LIMITS: usize = 16;

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
    /// The stops that were already reported, as its page counts them.
    pub stops: u32,
    /// The continuations that were already reported.
    pub continuations: u32,
    /// Did it die while its end was wanted? Then it waits to be waited for whatever comes.
    pub kept: bool,
}

impl Process {
    /// Sends `signal` (1..=64) to the process itself; it is taken on the way out.
    pub fn raise(&mut self, signal: u32) {
        let info = Info { first: u64::from(self.id.0), ..Info::default() };
        self.arrive(signal, info);
    }

    /// Notes that `signal` arrived for the process.
    pub fn arrive(&mut self, signal: u32, info: Info) -> bool {
        self.signals.arrive(signal, info, thread::own().blocked)
    }

    /// The next signal that the running thread takes.
    pub fn next_signal(&self) -> Option<u32> {
        self.signals.next(thread::own().blocked)
    }

    /// A signal that the running instruction caused.
    pub fn force(&mut self, signal: u32, info: Info) {
        thread::own().blocked = self.signals.force(signal, info, thread::own().blocked);
    }

    /// The soft limit of `resource`.
    pub fn limit(&self, resource: u32) -> u64 {
        self.limits.0.get(resource as usize).map_or(u64::MAX, |limit| limit.0)
    }
}
