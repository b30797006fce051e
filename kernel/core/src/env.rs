//! Environments: the record, its states, who may reach it.
//!
//! ```text
//!            EnvAlloc        EnvRelease       picked
//!   Free ───────────► New ───────────► Ready ◄──────► Running
//!    ▲                                  ▲ │              │ Sleep, TransferSync, EnvHold, fault
//!    │ forgotten                  woken │ │              ▼
//!   Dead ◄──── EnvDestroy, from any ────┴─┴── Sleeping, Donating, Held, Stopped
//! ```
//! An environment that is `Held` keeps its [`Pending`]: released, it sleeps or waits on. Whoever
//! wants something of one that runs on another processor leaves a request and interrupts that one.

use crate::index::{AccountIndex, DomainIndex, EnvIndex, Slots, kind};
use crate::list::{KINDS, Link};
use crate::machine::Machine;
use crate::places::{BLOCK, Places};
use crate::state::State;
use crate::{account, gate, identity, predicate, principal, sched};
use abi::capability::{CONTROL, Name};
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId, Frame};
use abi::limits::{INDICES, Resource, WORK_PIECES};
use abi::published::{EnvRecord, EnvState, Table};

pub use crate::create::{First, start_first};
pub use crate::death::kill;

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
    /// It sleeps until a region changes, or it would be woken as a sleeper; its call then begins
    /// anew: its rip is that of the `syscall` instruction.
    Region,
    /// It waits for the reply of the environment its record's `donated_to` names.
    Reply,
    /// It waits until that one accepts a transfer ([`crate::busy`]); its call then begins anew:
    /// its rip is that of the `syscall` instruction.
    Busy,
}

/// What others want of an environment that runs on another processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Request {
    /// Nothing.
    #[default]
    Nothing,
    /// It shall be held.
    Hold,
    /// Its save area is taken from it ([`crate::lent`]).
    LetGo,
    /// It shall die: with this word, by this environment.
    Die {
        /// The word it dies with.
        word: u64,
        /// Who asked.
        killer: EnvId,
    },
}

/// The private half of a record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Env {
    /// The id that is in use or comes next.
    pub id: EnvId,
    /// Vector state and predicate, 0: none (unused or dead).
    pub vector: Frame,
    /// Frame of the save area, 0: none.
    pub save: Frame,
    /// Frame of the application page, 0: none.
    pub application: Frame,
    /// Address of the save area in the environment's space.
    pub save_address: u64,
    /// How far its queue of events is from the beginning of its save area, 0: it has none.
    pub queue: u16,
    /// Who may post, hold, release, destroy it.
    pub guard: Name,
    /// Its state; the published record shows the same.
    pub state: EnvState,
    /// What it waits for.
    pub pending: Pending,
    /// What others want of it.
    pub request: Request,
    /// Entry points (`EnvSetup`).
    pub entries: Entries,
    /// `setup::FLAG_…`
    pub flags: u8,
    /// Posted bits that wake it.
    pub posted: u64,
    /// Event bits that wake it.
    pub events: u64,
    /// When its sleep ends, 0: never.
    pub deadline: u64,
    /// When `EVENT_TIMER` is due, 0: never.
    pub timer: u64,
    /// When its predicate's next comparison with the clock may change, 0: never.
    pub edge: u64,
    /// Key in the heap of deadlines.
    pub alarm: u64,
    /// What its predicate reads: one bit for each class of words.
    pub watched: u64,
    /// What of a region it waits for …
    pub wait: crate::operate::Wait,
    /// … while somebody is attached in this role; `REGION_ROLES` or more: whoever is.
    pub(crate) peer: u8,
    /// Atoms of its predicate.
    pub atoms: u8,
    /// Where the predicate's compiled form is, 0: it has none ([`crate::compiled`]).
    pub(crate) cell: u16,
    /// What the machine layer keeps ready for switching to it is as it should be: entries, save
    /// area and domain have not changed since.
    pub prepared: bool,
    /// [`FOLLOWS`], [`APART`], [`WAITED`], [`ASKED`], [`RECORD_WATCHED`].
    pub(crate) marks: u8,
    /// Processor whose vector it takes part in.
    pub cpu: u8,
    /// Position there.
    pub position: u8,
    /// Positions it owns.
    pub owned: u16,
    /// What entry code looks at in a transfer.
    pub gate: gate::Gate,
    /// The bits of an index as far as records are by it ([`gate::index_mask`]), if it may leave by
    /// itself; else 0: whom it names is nobody then.
    pub index_mask: u32,
    /// Ends of slices since it was told of one, that one too, and has not let go; 0: none.
    pub ending: u8,
    /// Nanoseconds of its next slices that it has used already.
    pub debt_ns: u32,
    /// The frame whose revocation its call waits for, 0: none.
    pub revokes: Frame,
    /// Environments waiting for its reply.
    pub donors: u16,
    /// The one of them that it works for: the last to have called it, until it replies or sleeps;
    /// 0: none. If that one waits for it no more, it works for none.
    pub(crate) client: u16,
    /// Records it holds.
    pub children: u16,
    /// Slot `n` of the heap of deadlines, for record `n`.
    pub heap_entry: u16,
    /// Its own place in that heap, 0: none.
    pub heap_slot: u16,
    /// Lists it is in.
    pub links: [Link; KINDS],
}

impl Env {
    /// Does it have this `setup::FLAG_…`?
    #[inline(always)]
    pub fn has(&self, flag: u64) -> bool {
        u64::from(self.flags) & flag != 0
    }

    /// May environments wait until it accepts a transfer ([`WAITED`]), or ask again and again
    /// ([`ASKED`])?
    #[inline(always)]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.marks & (WAITED | ASKED) != 0
    }

    /// Has it been taken out of the list of those that are looked at ([`APART`])?
    #[inline(always)]
    pub(crate) fn is_apart(&self) -> bool {
        self.marks & APART != 0
    }

    /// It is from now on, or is not. Was it?
    #[inline(always)]
    pub(crate) fn set_apart(&mut self, apart: bool) -> bool {
        let before = self.is_apart();
        self.marks = if apart { self.marks | APART } else { self.marks & !APART };
        before
    }
}

/// Mark: its account is that of its domain, and changes with that one
/// ([`crate::principal::follow`]).
pub(crate) const FOLLOWS: u8 = 1;
/// Mark: it sleeps, and has been taken out of the list of watchers until its turn comes.
pub(crate) const APART: u8 = 2;
/// Mark: an environment has begun to wait until this one accepts ([`crate::busy`]), and `donors`
/// has not been 0 since.
pub(crate) const WAITED: u8 = 4;
/// Mark: environments on several processors may ask it to accept, and the one that has asked
/// longest comes first ([`crate::busy::Asking`]).
pub(crate) const ASKED: u8 = 8;
/// Mark: a predicate has named its published record, or that of an earlier one of this place.
pub(crate) const RECORD_WATCHED: u8 = 16;

/// Where the kernel enters an environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// See `EnvSetup`.
    pub fault: u64,
    /// See `EnvSetup`.
    pub event: u64,
    /// See `EnvSetup`.
    pub foreign: u64,
    /// See `EnvSetup`.
    pub sync: u64,
    /// See `EnvSetup`.
    pub asynchronous: u64,
}

/// How often a place is used before an id comes again: in tests soon, so that it does.
const GENERATIONS: u32 = if cfg!(test) { 4 } else { abi::id::GENERATIONS };

/// Entry code finds a record by its index.
pub const ENV_BYTES: usize = 256;
const _: () = assert!(core::mem::size_of::<Env>() == ENV_BYTES);
/// Bytes of kernel memory for the context and what the machine layer keeps beside it.
pub const CONTEXT_BYTES: usize = 256;
const _: () = assert!(core::mem::size_of::<Env>() + CONTEXT_BYTES <= 512);

/// The private half of the table.
pub struct Envs {
    /// By index; index 0 is never used.
    pub slots: Slots<kind::Env, Env>,
    /// Which indices are in use.
    places: Places<{ INDICES / BLOCK }>,
    /// All indices from here on are free.
    end: usize,
    /// Environments made so far: the number of the last one ([`crate::identity::Thread`]).
    serial: u64,
}

impl Envs {
    /// An empty table.
    pub fn new(slots: &'static mut [Env]) -> Self {
        Self { slots: Slots::new(slots), places: Places::new(), end: 1, serial: 0 }
    }

    /// What there is of environments has an index in here: whoever looks through all of them looks
    /// through these, few on a machine with room for many.
    #[inline]
    pub fn used(&self) -> core::ops::Range<usize> {
        1..self.end
    }

    /// The lowest free index: in the first block that has one, so that no look is long.
    pub fn lowest_free(&self) -> Option<EnvIndex> {
        let is_free = |at: usize| self.slots[EnvIndex::new(at)].state == EnvState::Free;
        self.places.lowest(self.slots.len(), is_free).map(EnvIndex::new)
    }

    /// Every index in use is among those said to be, and counted in its block.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut places = Places::new();
        for (index, env) in self.slots.iter().enumerate().skip(1) {
            let free = env.state == EnvState::Free;
            assert!(free || self.used().contains(&index), "{index} is not among those in use");
            if !free {
                places.take(index);
            }
        }
        assert_eq!(self.places, places);
    }

    /// The index is in use from now on.
    fn note_used(&mut self, index: EnvIndex) {
        self.places.take(index.at());
        self.end = self.end.max(index.at() + 1);
    }

    /// The index has become free.
    fn note_free(&mut self, index: EnvIndex) {
        self.places.give_back(index.at());
        // So many at a time; the next one to become free goes on.
        for _ in 0..WORK_PIECES {
            if self.end == 1 || self.slots[EnvIndex::new(self.end - 1)].state != EnvState::Free {
                break;
            }
            self.end -= 1;
        }
    }
}

/// The index of the environment with this id, dead or alive.
#[inline]
pub fn lookup(state: &State, id: EnvId) -> Result<EnvIndex, Error> {
    identity::find(state.published.envs, id).map(EnvIndex::new).ok_or(Error::NoSuchEnv)
}

/// The index of the living environment with this id.
#[inline]
pub fn living(state: &State, id: EnvId) -> Result<EnvIndex, Error> {
    let index = lookup(state, id)?;
    match state.envs.slots[index].state {
        EnvState::Dead => Err(Error::NoSuchEnv),
        _ => Ok(index),
    }
}

/// The id of the environment at `index`.
#[inline]
pub fn id(state: &State, index: EnvIndex) -> EnvId {
    EnvId(state.published.envs[index].id)
}

/// Its domain.
#[inline]
pub fn domain(state: &State, index: EnvIndex) -> DomainId {
    DomainId(state.published.envs[index].domain)
}

/// It runs in this domain from now on.
pub(crate) fn set_domain(state: &mut State, index: EnvIndex, id: DomainId) {
    let payer = crate::domain::account(state, id.into());
    let user = state.published.accounts[payer].id;
    let record = &mut state.published.envs[index];
    (record.domain, record.user) = (id.0, user);
}

/// It has died in the first of these domains, at home in the second, if it has visited another: who
/// asks whose it was is told its home, and the account that this counts for, though that was not
/// told it yet.
pub(crate) fn note_home(state: &mut State, index: EnvIndex, [domain, home]: [u64; 2]) {
    set_domain(state, index, DomainId(if home == 0 { domain } else { home }));
}

/// The domain that it is at home in.
pub fn home(state: &State, index: EnvIndex) -> DomainId {
    let EnvRecord { domain, home, .. } = state.published.envs[index];
    DomainId(if home == 0 { domain } else { home })
}

/// Is it in the domain at this index, or at home there?
pub fn belongs_to(state: &State, index: EnvIndex, domain: DomainIndex) -> bool {
    let EnvRecord { domain: own, home, .. } = state.published.envs[index];
    [own, home].into_iter().any(|id| DomainIndex::from(DomainId(id)) == domain)
}

/// The frame of an environment's vector state; `None` when it is dead.
#[inline]
pub fn vector(state: &State, index: EnvIndex) -> Option<Frame> {
    let frame = state.envs.slots[index].vector;
    (frame.0 != 0).then_some(frame)
}

/// The save area: its address in the program's space and its physical address.
#[inline]
pub fn save_area(state: &State, index: EnvIndex) -> Option<(u64, u64)> {
    let env = &state.envs.slots[index];
    (env.save.0 != 0).then_some((env.save_address, env.save.address()))
}

/// Where foreign `syscall`s of an environment enter, 0: they are faults.
#[inline]
pub fn foreign_entry(state: &State, index: EnvIndex) -> u64 {
    state.envs.slots[index].entries.foreign
}

/// The environment a call means by `id` (0: the caller), over which it has CONTROL.
pub fn controlled(
    state: &State,
    caller: EnvIndex,
    capability: u8,
    id: EnvId,
) -> Result<EnvIndex, Error> {
    if id.is_none() {
        return Ok(caller);
    }
    let index = lookup(state, id)?;
    if index != caller {
        let guard = state.envs.slots[index].guard;
        let own = DomainIndex::from(domain(state, caller));
        crate::capability::check(state, own, capability, &guard, CONTROL)?;
    }
    Ok(index)
}

/// Are the two in one domain? There a thread can do nothing that the others could not do.
pub fn shares_domain(state: &State, caller: EnvIndex, index: EnvIndex) -> bool {
    index == caller || domain(state, index) == domain(state, caller)
}

/// The environment a call means by `id` (0: the caller), if the caller may signal it: it has
/// CONTROL over it, or SIGNAL over a name that its domain is signalled by, or both are in one
/// domain.
pub fn signalled(
    state: &State,
    caller: EnvIndex,
    capability: u8,
    id: EnvId,
) -> Result<EnvIndex, Error> {
    if id.is_none() {
        return Ok(caller);
    }
    let index = lookup(state, id)?;
    if shares_domain(state, caller, index) {
        return Ok(index);
    }
    let own = domain(state, caller);
    let held = crate::capability::get(state, own.into(), capability)?;
    let guard = &state.envs.slots[index].guard;
    // That of a dead one may have ended, and another one have its place.
    let home = home(state, index);
    let there = crate::domain::id(state, home.into()) == home;
    if held.dominates(guard, CONTROL) || there && principal::signals(state, home.into(), &held) {
        Ok(index)
    } else {
        Err(Error::NotPermitted)
    }
}

/// Changes the state of an environment, private and published. Who watches the record is looked at
/// at once, but for the comings and goings of every slice: those at the watcher's turn.
pub fn set_state(state: &mut State, index: EnvIndex, to: EnvState) {
    let from = state.envs.slots[index].state;
    come_or_go(state, index, to);
    if !(passing(from) && passing(to)) {
        touched(state, index);
    }
}

/// Those that watch its published record are looked at. The classes of records are few: that of a
/// record that no predicate names has sleepers in it that watch other words.
fn touched(state: &mut State, index: EnvIndex) {
    if state.envs.slots[index].marks & RECORD_WATCHED != 0 {
        sched::touched(state, predicate::published_bit(Table::Envs, index.at()));
    }
}

/// Does an environment come to and leave this state with its slices?
fn passing(state: EnvState) -> bool {
    use EnvState::{Donating, Ready, Running, Sleeping};
    const PASSING: u32 =
        1 << Ready as u32 | 1 << Running as u32 | 1 << Sleeping as u32 | 1 << Donating as u32;
    PASSING >> state as u32 & 1 != 0
}

/// As [`set_state`], between two states that every slice brings.
#[inline]
pub fn come_or_go(state: &mut State, index: EnvIndex, to: EnvState) {
    gate::close(state, index);
    state.envs.slots[index].state = to;
    let record = &mut state.published.envs[index];
    record.state = to as u32;
    record.sequence = record.sequence.wrapping_add(1);
}

/// The published record has changed: sleepers may watch it.
pub fn changed(state: &mut State, index: EnvIndex) {
    let record = &mut state.published.envs[index];
    record.sequence = record.sequence.wrapping_add(1);
    touched(state, index);
}

/// Tells the holder of an environment that something happened to it.
pub fn tell_holder<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) {
    let holder = EnvId(state.published.envs[index].holder);
    if let Ok(holder) = living(state, holder) {
        sched::event(state, machine, holder, abi::upcall::EVENT_CHILD);
    }
}

/// Fills the record of a free index; what it costs has been charged. It is `New`, in nobody's hand.
pub fn enter<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: EnvIndex,
    domain: DomainId,
    account: AccountId,
    vector: Frame,
) -> EnvId {
    // More than can be made while a machine runs.
    state.envs.serial += 1;
    let slot = &state.envs.slots[index];
    let (id, heap_entry) = (EnvId::new(index.link(), slot.id.generation()), slot.heap_entry);
    let follows = AccountIndex::from(account) == crate::domain::account(state, domain.into());
    let marks = slot.marks & RECORD_WATCHED | if follows { FOLLOWS } else { 0 };
    state.envs.slots[index] = Env { id, heap_entry, vector, marks, ..Env::default() };
    let sequence = state.published.envs[index].sequence;
    state.published.envs[index] = EnvRecord {
        id: id.0,
        domain: domain.0,
        account: account.0,
        born_ns: machine.now_ns(),
        sequence,
        serial: state.envs.serial,
        ..EnvRecord::default()
    };
    set_domain(state, index, domain);
    state.envs.note_used(index);
    machine.vector_init(vector);
    *machine.context(index.at()) = crate::context::Context::default();
    crate::domain::born(state, domain.into());
    state.published.domains[DomainIndex::from(domain)].envs += 1;
    set_state(state, index, EnvState::New);
    id
}

/// Gives the index back: the record is forgotten, and paid for no more.
pub fn forget(state: &mut State, index: EnvIndex) {
    let payer = AccountId(state.published.envs[index].account).into();
    account::uncharge(state, payer, Resource::Envs, 1);
    let slot = &mut state.envs.slots[index];
    let (next, heap_entry) = (slot.id.generation() + 1, slot.heap_entry);
    let id = EnvId::new(index.link(), next % GENERATIONS);
    let marks = slot.marks & RECORD_WATCHED;
    *slot = Env { id, heap_entry, marks, ..Env::default() };
    let sequence = state.published.envs[index].sequence;
    state.published.envs[index] = EnvRecord { sequence, ..EnvRecord::default() };
    set_state(state, index, EnvState::Free);
    state.envs.note_free(index);
}
