//! Visits: an environment goes on in another domain, where that one says, and comes home.
//!
//! ```text
//!   home ── DomainSwitch ──► the entry point that the domain names ── DomainSwitch, or a fault ─┐
//!     ▲                                                                                         │
//!     └── behind its call, with the stack pointer, bases and upcall entries that it had ◄───────┘
//! ```
//! Both sides are safe from each other. The domain is entered at one address of its own choice, by
//! a message of five words and nothing else. The home is come back to where it was left: the words
//! needed for that lie in the frame of the environment's vector state, which no program maps. Away
//! from home there are no upcall entries, so neither side is interrupted at an address of the other
//! one's choice, and events wait in the save area, which only the home has.

use crate::answer::Refusal;
use crate::context::Context;
use crate::env::{self, Entries};
use crate::index::{DomainIndex, EnvIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::{death, domain, gate, predicate};
use abi::error::Error;
use abi::id::DomainId;

/// Words that are kept of an environment that is away.
const WORDS: usize = 9;
/// Where they are in the frame: behind the vector state, before the predicate.
pub const OFFSET: u64 = predicate::OFFSET - 8 * WORDS as u64;

/// Is the environment in another domain than its home?
#[inline(always)]
pub fn is_away(state: &State, index: EnvIndex) -> bool {
    state.published.envs[index].home != 0
}

/// Refused while it is away: its setup, predicate and timer are its home's to say.
#[inline]
pub fn at_home(state: &State, index: EnvIndex) -> Result<(), Error> {
    if is_away(state, index) { Err(Error::WrongState) } else { Ok(()) }
}

/// Where a visit goes.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// To a domain's entry point.
    Out(u64),
    Home,
}

/// `DomainSwitch`: the answer if it is refused, else the caller goes on in the other domain.
pub fn switch_to<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    capability: u8,
    target: DomainId,
) -> Result<(), Refusal> {
    let way = check(state, caller, capability, target)?;
    let from = env::domain(state, caller);
    let message = *machine.context(caller.at());
    match way {
        Way::Out(entry) => {
            if !is_away(state, caller) {
                keep(state, machine, caller);
            }
            *machine.context(caller.at()) = Context::starting(entry, 0, 0);
        }
        Way::Home => restore(state, machine, caller),
    }
    let id = env::id(state, caller);
    machine.context(caller.at()).take_visit(&message, from, id);
    arrive(state, machine, caller, target);
    Ok(())
}

fn check(
    state: &State,
    caller: EnvIndex,
    capability: u8,
    target: DomainId,
) -> Result<Way, Refusal> {
    let from = env::domain(state, caller);
    let to = domain::find(state, target)?;
    if is_away(state, caller) && target == env::home(state, caller) {
        return Ok(Way::Home);
    }
    let capability = domain::capability(state, from.into(), capability)?;
    if !domain::may_enter(state, to, &capability) {
        return Err(Error::NotPermitted.into());
    }
    match state.domains.records[to].entry {
        // It admits no visitor, or is where the caller is.
        0 => Err(Error::WrongState.into()),
        _ if to == from.into() => Err(Error::WrongState.into()),
        entry => Ok(Way::Out(entry)),
    }
}

/// A fault of one that is away: it comes home, and its call says why.
#[cold]
pub(crate) fn end_by_fault<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: EnvIndex,
    cause: u8,
) {
    let (from, id) = (env::domain(state, index), env::id(state, index));
    let home = env::home(state, index);
    restore(state, machine, index);
    let context = machine.context(index.at());
    context.take_visit(&Context::default(), from, id);
    (context.rax, context.rdx) = (Error::Dead as u64, cause.into());
    arrive(state, machine, index, home);
}

/// Keeps the words with which the environment goes on at home, and clears its entries.
fn keep<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) {
    machine.bases_store(index.at());
    let &mut Context { rip, rsp, fs_base, gs_base, .. } = machine.context(index.at());
    let Entries { fault, event, foreign, sync, asynchronous } =
        core::mem::take(&mut state.envs.slots[index].entries);
    let words: [u64; WORDS] =
        [rip, rsp, fs_base, gs_base, fault, event, foreign, sync, asynchronous];
    machine.words_set(place(state, index), &words);
}

/// Gives it those words back: a context with nothing else, and the entries.
fn restore<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) {
    let first = place(state, index);
    let words: [u64; WORDS] = core::array::from_fn(|at| machine.word(first + 8 * at as u64));
    let [rip, rsp, fs_base, gs_base, fault, event, foreign, sync, asynchronous] = words;
    state.envs.slots[index].entries = Entries { fault, event, foreign, sync, asynchronous };
    *machine.context(index.at()) = Context { fs_base, gs_base, ..Context::starting(rip, rsp, 0) };
}

fn place(state: &State, index: EnvIndex) -> u64 {
    state.envs.slots[index].vector.address() + OFFSET
}

/// The environment, whose context is complete, is in this domain from now on.
fn arrive<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex, target: DomainId) {
    let (from, home) = (env::domain(state, index), env::home(state, index));
    gate::close(state, index);
    state.envs.slots[index].prepared = false;
    machine.registers_load(index.at());
    env::set_domain(state, index, target);
    state.published.envs[index].home = if target == home { 0 } else { home.0 };
    // It counts once where it is, and once at home.
    if target != home {
        state.published.domains[DomainIndex::from(target)].envs += 1;
    }
    env::changed(state, index);
    if from != home {
        death::leave_domain(state, machine, from);
    }
}
