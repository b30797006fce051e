//! The first state: how large each table is, and the first program.

use crate::state::{Published, State};
use abi::limits::{ACCOUNTS, CPUS, INDICES, SLICES};

/// Records of each table, from the number of frames by one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Frame records.
    pub frames: usize,
    /// Environments.
    pub envs: usize,
    /// Domains.
    pub domains: usize,
    /// Accounts.
    pub accounts: usize,
    /// Regions.
    pub regions: usize,
    /// Filters.
    pub filters: usize,
    /// Rings.
    pub rings: usize,
    /// Slice positions, of all processors.
    pub slices: usize,
}

impl Sizes {
    /// The rule as boot prints it.
    pub const RULE: &str = "envs, domains = frames/64 in 64..=4096; regions = frames/32 in \
                            128..=4096; filters, rings = frames/128 in 64..=1024";

    /// Tables for a machine with frame numbers below `frames`.
    pub fn for_frames(frames: usize) -> Self {
        Self {
            frames,
            envs: (frames / 64).clamp(64, INDICES),
            domains: (frames / 64).clamp(64, INDICES),
            accounts: ACCOUNTS,
            regions: (frames / 32).clamp(128, INDICES),
            filters: (frames / 128).clamp(64, 1024),
            rings: (frames / 128).clamp(64, 1024),
            slices: CPUS * SLICES,
        }
    }
}

/// What the machine layer carves out of memory, each record in its default state.
pub struct Parts {
    /// The published halves.
    pub published: Published,
    /// Physical memory.
    pub frames: crate::frame::Frames,
    /// Who pays.
    pub accounts: crate::account::Accounts,
    /// Protection domains.
    pub domains: crate::domain::Domains,
    /// Environments.
    pub envs: crate::env::Envs,
    /// The running order.
    pub sched: crate::sched::Scheduler,
    /// Regions.
    pub regions: crate::region::Regions,
    /// Network.
    pub net: crate::net::Network,
    /// Console.
    pub console: crate::console::Console,
}

impl State {
    /// The first state: every frame absent, one account that may have everything. The machine layer
    /// goes on with [`frame::donate`](crate::frame::donate) and [`frame::claim`](crate::frame::claim)
    /// for what the memory map says.
    pub fn new(parts: Parts) -> Self {
        let mut state = Self {
            published: parts.published,
            frames: parts.frames,
            accounts: parts.accounts,
            domains: parts.domains,
            envs: parts.envs,
            sched: parts.sched,
            regions: parts.regions,
            net: parts.net,
            console: parts.console,
        };
        for record in state.published.frames.iter_mut() {
            record.kind = abi::published::FrameType::Absent as u8;
        }
        crate::account::first(&mut state);
        state
    }
}
