//! Environments: states, entry points, holders, death.

use crate::machine::Machine;
use crate::state::State;
use abi::capability::Name;
use abi::id::{AccountId, DomainId, EnvId, Frame};

/// What is left to do for an environment that does not run (l4stack 7.1: its continuation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pending {
    /// Nothing: it goes on with its context.
    #[default]
    Nothing,
    /// It sleeps; its call answers why it was woken.
    Sleep,
    /// As `Sleep`, accepting transfers.
    Accept,
    /// It waits for the reply of the environment its record's `donated_to` names.
    Reply,
}

/// The private half of a record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Env {
    /// Generation of the id that is in use or comes next.
    pub generation: u32,
    /// Vector state and predicate.
    pub vector: Frame,
    /// Frame of the save area, 0: none.
    pub save: Frame,
    /// Frame of the application page, 0: none.
    pub application: Frame,
    /// Address of the save area in the environment's space.
    pub save_address: u64,
    /// Who may post, hold, release, destroy it.
    pub guard: Name,
    /// What it waits for.
    pub pending: Pending,
    /// Entry points (`EnvSetup`).
    pub fault_entry: u64,
    /// See `EnvSetup`.
    pub event_entry: u64,
    /// See `EnvSetup`.
    pub foreign_entry: u64,
    /// See `EnvSetup`.
    pub sync_entry: u64,
    /// See `EnvSetup`.
    pub async_entry: u64,
    /// `setup::FLAG_…`
    pub flags: u64,
}

const _: () = assert!(core::mem::size_of::<Env>() <= 256);
const _: () =
    assert!(core::mem::size_of::<Env>() + core::mem::size_of::<crate::context::Context>() <= 512);

/// The private half of the table.
pub struct Envs {
    /// By index; index 0 is never used.
    pub slots: &'static mut [Env],
}

impl Envs {
    /// An empty table.
    pub fn new(slots: &'static mut [Env]) -> Self {
        Self { slots }
    }
}

/// The first environment, which nobody made.
#[derive(Clone, Copy, Debug)]
pub struct First {
    /// Its domain.
    pub domain: DomainId,
    /// Its account.
    pub account: AccountId,
    /// Its guard.
    pub guard: Name,
    /// Frame of type `Vector`, already allocated.
    pub vector: Frame,
    /// First instruction.
    pub rip: u64,
    /// Stack pointer.
    pub rsp: u64,
    /// Address of the save area; GS base too.
    pub save_address: u64,
    /// The save area's frame, mapped there.
    pub save: Frame,
    /// The application page's frame.
    pub application: Frame,
}

/// Makes the first environment (index 1), on processor 0 at position 0, ready to run.
pub fn start_first<M: Machine>(state: &mut State, machine: &mut M, first: &First) -> EnvId {
    let _ = (state, machine, first);
    EnvId::NONE
}

/// The frame of an environment's vector state; `None` when it is dead.
pub fn vector(state: &State, index: usize) -> Option<Frame> {
    let frame = state.envs.slots[index].vector;
    (frame.0 != 0).then_some(frame)
}

/// The save area: its address in the program's space and its physical address.
pub fn save_area(state: &State, index: usize) -> Option<(u64, u64)> {
    let env = &state.envs.slots[index];
    (env.save.0 != 0).then_some((env.save_address, env.save.address()))
}

/// Where foreign `syscall`s of an environment enter, 0: they are faults.
pub fn foreign_entry(state: &State, index: usize) -> u64 {
    state.envs.slots[index].foreign_entry
}

/// Ends an environment with `word`, on behalf of `killer`, at once or, if it runs on another
/// processor, when that one enters the kernel.
pub fn kill<M: Machine>(
    state: &mut State,
    machine: &mut M,
    cpu: usize,
    index: usize,
    word: u64,
    killer: EnvId,
) {
    let _ = (state, machine, cpu, index, word, killer);
}
