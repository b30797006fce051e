//! All that the kernel knows, behind one lock (decisions 19, 20).
//!
//! Tables are slices sized at boot from the machine's memory: the machine layer carves them out
//! of frames and hands them over as [`Parts`](crate::boot::Parts); on the host they come from
//! vectors. A table whose record is published has two halves: the `abi::published` record, which
//! everybody can read (only the kernel writes it, here), and a private one beside it.

use abi::call::CALLS_MAX;
use abi::limits::CPUS;
use abi::published::{
    AccountRecord, AgeRecord, CensusRecord, Clock, CpuRecord, Directory, DomainRecord, EnvRecord,
    FilterRecord, FrameRecord, InterfaceRecord, RegionRecord, RingRecord, SliceRecord,
};

/// The published halves: slices of the published pages.
pub struct Published {
    /// The first two pages.
    pub directory: &'static mut Directory,
    /// By index of environment.
    pub envs: &'static mut [EnvRecord],
    /// By index of domain.
    pub domains: &'static mut [DomainRecord],
    /// By index of account.
    pub accounts: &'static mut [AccountRecord],
    /// By frame number.
    pub frames: &'static mut [FrameRecord],
    /// By frame number.
    pub ages: &'static mut [AgeRecord],
    /// By index of region.
    pub regions: &'static mut [RegionRecord],
    /// By index of filter.
    pub filters: &'static mut [FilterRecord],
    /// By index of ring.
    pub rings: &'static mut [RingRecord],
    /// `SLICES` for each processor in turn.
    pub slices: &'static mut [SliceRecord],
    /// One.
    pub clock: &'static mut Clock,
    /// By processor.
    pub cpus: &'static mut [CpuRecord; CPUS],
    /// By processor and number of the call.
    pub calls: &'static [[crate::trace::CallCounters; CALLS_MAX]; CPUS],
    /// By category.
    pub census: &'static mut [CensusRecord],
    /// By interface.
    pub interfaces: &'static mut [InterfaceRecord],
}

/// Everything behind the lock.
pub struct State {
    /// What everybody can read.
    pub published: Published,
    /// Physical memory: references, guards, reverse chains, limbo.
    pub frames: crate::frame::Frames,
    /// Tables that large pages stand for.
    pub folds: crate::fold::Folds,
    /// Who pays.
    pub accounts: crate::account::Accounts,
    /// Protection domains and their capabilities.
    pub domains: crate::domain::Domains,
    /// Environments.
    pub envs: crate::env::Envs,
    /// Slice vectors and the running order.
    pub sched: crate::sched::Scheduler,
    /// Regions and attachments.
    pub regions: crate::region::Regions,
    /// Downloaded code.
    pub downloads: crate::workshop::Downloads,
    /// How old frames are.
    pub(crate) ages: crate::ages::Ages,
    /// Filters, rings, transmissions.
    pub net: crate::net::Network,
    /// Console input ring.
    pub console: crate::console::Console,
    /// Which accounts have something left to be worked off: [`crate::left`].
    pub(crate) waiting: crate::left::Waiting,
    /// The retractions of capabilities that are under way: [`crate::retract`].
    pub(crate) retractions: crate::retract::Retractions,
    /// Which tokens are void: [`crate::voided`].
    pub(crate) voided: crate::voided::Voided,
    /// What tokens are sealed with, once one has been: [`crate::token`].
    pub(crate) token_key: Option<[u64; 2]>,
    /// Work done in this hold of the lock ([`crate::work`]).
    pub(crate) spent: u32,
    /// The last hold of the lock that could leave anything to look at left nothing: no word that
    /// somebody may watch, no processor to be told ([`crate::work::end`]).
    pub(crate) settled: bool,
    /// The last ticket with which a revocation broke entries; 0: none, or all processors have
    /// forgotten them.
    pub(crate) revoked: u64,
    /// The same, and nobody whom an event has woken waits for the processor: the fast path
    /// ([`crate::gate`]) may be gone.
    pub open: bool,
}
