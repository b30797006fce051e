//! The first state: how large each table is, and the first program.

use crate::answer::Refusal;
use crate::env::First;
use crate::index::DomainIndex;
use crate::machine::Machine;
use crate::state::{Published, State};
use crate::{account, domain, env, frame, table};
use abi::capability::{ALL, Capability, Name};
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId, Frame};
use abi::layout::PAGE_SIZE;
use abi::limits::{ACCOUNTS, CPUS, DOMAINS, INDICES, SLICES};
use abi::memory::{ANY_FRAME, Item, NO_EXECUTE, Operation, WRITABLE};
use abi::published::FrameType;
use abi::word::Which;
use core::fmt;
use image::elf::{Kind, Plan, Segment};

#[cfg(test)]
mod tests;

/// One past the first program's stack.
pub const STACK_TOP: u64 = 0x7fff_ffff_0000;
/// Bytes of it.
pub const STACK_BYTES: u64 = 64 << 10;
/// The first program's save area; its GS base.
pub const SAVE_AREA: u64 = 0xffff_c0ff_ffff_0000;
/// The first program's application page.
pub const APPLICATION_PAGE: u64 = 0xffff_c0ff_ffff_1000;

/// Records of each table, from the number of frames by one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Frame records.
    pub frames: usize,
    /// Folded tables.
    pub folds: usize,
    /// Environments.
    pub envs: usize,
    /// Domains.
    pub domains: usize,
    /// Accounts.
    pub accounts: usize,
    /// Cells for compiled predicates.
    pub cells: usize,
    /// Regions.
    pub regions: usize,
    /// Attachments to regions, the domains' list heads included.
    pub attachments: usize,
    /// Filters.
    pub filters: usize,
    /// Rings.
    pub rings: usize,
    /// Slice positions, of all processors.
    pub slices: usize,
}

impl Sizes {
    /// The rule as boot prints it.
    pub const RULE: &str = "envs = frames/64 in 64..=16384, domains the same to 4096; \
                            predicates compiled = envs/4; regions = frames/32 in \
                            128..=4096; attachments = domains + 4*regions; filters = frames/128 \
                            in 64..=256, rings the same to 1024; tables folded = frames/128 in \
                            64..=16384";

    /// Tables for a machine with frame numbers below `frames`.
    pub fn for_frames(frames: usize) -> Self {
        Self {
            frames,
            folds: (frames / 128).clamp(64, crate::fold::MOST),
            envs: (frames / 64).clamp(64, INDICES),
            domains: (frames / 64).clamp(64, DOMAINS),
            accounts: ACCOUNTS,
            cells: (frames / 64).clamp(64, INDICES) / 4,
            regions: (frames / 32).clamp(128, DOMAINS),
            attachments: (frames / 64).clamp(64, DOMAINS) + 4 * (frames / 32).clamp(128, DOMAINS),
            // A new one is compared with all, in one hold of the lock.
            filters: (frames / 128).clamp(64, 256),
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
    /// Tables that large pages stand for.
    pub folds: crate::fold::Folds,
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
    /// Downloaded code.
    pub downloads: crate::workshop::Downloads,
    /// Network.
    pub net: crate::net::Network,
    /// Console.
    pub console: crate::console::Console,
}

impl State {
    /// The first state: every frame absent, one account that may have everything. The machine layer
    /// goes on with [`frame::donate`](crate::frame::donate) and
    /// [`frame::claim`](crate::frame::claim) for what the memory map says.
    pub fn new(parts: Parts) -> Self {
        let mut state = Self {
            published: parts.published,
            frames: parts.frames,
            folds: parts.folds,
            accounts: parts.accounts,
            domains: parts.domains,
            envs: parts.envs,
            sched: parts.sched,
            regions: parts.regions,
            downloads: parts.downloads,
            net: parts.net,
            console: parts.console,
            ages: crate::ages::Ages::default(),
            waiting: crate::left::Waiting::default(),
            retractions: crate::retract::Retractions::default(),
            voided: crate::voided::Voided::NOTHING,
            token_key: None,
            spent: 0,
            settled: false,
            revoked: 0,
            open: false,
        };
        for record in state.published.frames.iter_mut() {
            record.kind = abi::published::FrameType::Absent as u8;
        }
        crate::account::first(&mut state);
        state
    }
}

/// Why the first program did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitError {
    /// It is position-independent: nobody is there to relocate it.
    Relocatable,
    /// There is no room for it.
    Refused(Refusal),
}

impl From<Refusal> for InitError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relocatable => write!(f, "init is position-independent; link it at an address"),
            Self::Refused(refusal) => {
                write!(f, "init refused: {} ({})", refusal.error.name(), refusal.value)
            }
        }
    }
}

/// Makes the first program: account 1 has all of the machine, domain 1 the root capability, and
/// environment 1 runs what `plan` says of the file at physical address `file`, which lies in frames
/// claimed as `Image`. It starts on processor 0 with its stack at [`STACK_TOP`] and `rdi` 0.
pub fn start_init<M: Machine>(
    state: &mut State,
    machine: &mut M,
    plan: &Plan,
    file: u64,
) -> Result<EnvId, InitError> {
    if plan.kind != Kind::Fixed {
        return Err(InitError::Relocatable);
    }
    let asked = domain::Request {
        which: Which::This(1),
        account: AccountId::NONE,
        root: Which::Any,
        window: 0,
        bytes: u64::MAX,
    };
    let domain = domain::create(state, machine, account::FIRST, Name::ROOT, &asked)?;
    let mut builder = Builder::new(state, machine, domain);
    for segment in plan.segments() {
        builder.segment(segment, file)?;
    }
    for page in (STACK_TOP - STACK_BYTES..STACK_TOP).step_by(PAGE_SIZE as usize) {
        builder.fresh(page, WRITABLE | NO_EXECUTE)?;
    }
    let save = builder.fresh(SAVE_AREA, WRITABLE | NO_EXECUTE)?;
    let application = builder.fresh(APPLICATION_PAGE, WRITABLE | NO_EXECUTE)?;
    let guard = builder.own.name;
    let vector =
        frame::allocate(state, machine, Which::Any, account::FIRST, guard, FrameType::Vector)?;
    machine.vector_init(vector);
    let first = First {
        domain,
        account: AccountId(state.published.accounts[1].id),
        guard,
        vector,
        rip: plan.entry,
        rsp: STACK_TOP,
        save_address: SAVE_AREA,
        save,
        application,
    };
    Ok(env::start_first(state, machine, &first))
}

/// Fills the first program's space by the same items that programs send.
struct Builder<'a, M> {
    state: &'a mut State,
    machine: &'a mut M,
    index: DomainIndex,
    /// Guards what is made; it has the domain's own fresh name.
    own: Capability,
    root: Capability,
}

impl<'a, M: Machine> Builder<'a, M> {
    fn new(state: &'a mut State, machine: &'a mut M, domain: DomainId) -> Self {
        let index = DomainIndex::from(domain);
        let root = Capability { rights: ALL, zero: 0, name: Name::ROOT };
        let list = &mut state.domains.records[index].capabilities;
        let own = core::mem::replace(&mut list[0], root);
        Self { state, machine, index, own, root }
    }

    fn item(&mut self, capability: Capability, item: &Item) -> Result<u64, Refusal> {
        let (state, machine) = (&mut *self.state, &mut *self.machine);
        table::update_alone(state, machine, (self.index, self.index), &capability, item, 0).1
    }

    fn page(&mut self, capability: Capability, item: &Item) -> Result<(), Refusal> {
        for level in [4, 3, 2] {
            let operation = Operation::Table as u8;
            let value = u64::from(ANY_FRAME);
            let table = Item { operation, level, frame: ANY_FRAME, value, ..*item };
            match self.item(self.own, &table) {
                Ok(_) | Err(Refusal { error: Error::NotEmpty, .. }) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        self.item(capability, item).map(|_| ())
    }

    /// A fresh frame of zeroes.
    fn fresh(&mut self, address: u64, choice: u64) -> Result<Frame, Refusal> {
        let item = Item {
            operation: Operation::Allocate as u8,
            level: 1,
            more: 0,
            frame: ANY_FRAME,
            address,
            value: choice,
        };
        self.page(self.own, &item)?;
        let root = domain::root(self.state, self.index);
        let leaf = table::look_up(self.machine, root, address).ok_or(Error::BadAddress)?;
        Ok(leaf.frame)
    }

    fn segment(&mut self, segment: &Segment, file: u64) -> Result<(), Refusal> {
        let choice =
            if segment.write { WRITABLE } else { 0 } | if segment.execute { 0 } else { NO_EXECUTE };
        let file_end = segment.vaddr + segment.filesz;
        for page in segment.pages().step_by(PAGE_SIZE as usize) {
            let start = page.max(segment.vaddr);
            let end = (page + PAGE_SIZE).min(file_end).max(start);
            let from = file + segment.file_offset + (start - segment.vaddr);
            let whole = end == (page + PAGE_SIZE).min(segment.end());
            if !segment.write && whole && from % PAGE_SIZE == start % PAGE_SIZE {
                let item = Item {
                    operation: Operation::Map as u8,
                    level: 1,
                    more: 0,
                    frame: Frame::containing(from).0,
                    address: page,
                    value: choice,
                };
                self.page(self.root, &item)?;
            } else {
                let frame = self.fresh(page, choice)?;
                let to = frame.address() + start % PAGE_SIZE;
                copy(self.machine, to, from, end - start);
            }
        }
        Ok(())
    }
}

/// Copies within one frame from bytes that may cross frames.
fn copy<M: Machine>(machine: &mut M, to: u64, from: u64, bytes: u64) {
    let mut done = 0;
    while done < bytes {
        let at = from + done;
        let piece = (PAGE_SIZE - at % PAGE_SIZE).min(bytes - done);
        machine.copy(to + done, at, piece as usize);
        done += piece;
    }
}
