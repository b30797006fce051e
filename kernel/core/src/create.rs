//! Making environments and telling them what to be: `EnvAlloc`, `EnvSet`, `EnvMove`.

use crate::answer::{Answer, Refusal};
use crate::bytes::u64_at;
use crate::context::Context;
use crate::env::Entries;
use crate::index::{CpuIndex, DomainIndex, EnvIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::{
    account, arrival, death, domain, env, exit, forgetting, frame, gate, predicate, principal,
    queue, sched, slice, table, turns, visit,
};
use abi::capability::{CONTROL, Name};
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId, Frame};
use abi::layout::PAGE_SIZE;
use abi::limits::Resource;
use abi::published::{EnvState, FrameType};
use abi::setup::{EnvSetup, field};
use abi::upcall::offset;
use abi::word::Which;

/// Every field an `EnvSetup` has.
const ALL: u64 = (1 << 15) - 1;
/// What only one that has not started, or moves, may set.
const FLAGS: u64 = abi::setup::FLAG_SLICE_START
    | abi::setup::FLAG_SLICE_END
    | abi::setup::FLAG_BORROW
    | abi::setup::FLAG_OWN_VECTOR
    | abi::setup::FLAG_GIVEN_TIME
    | abi::setup::FLAG_NO_VECTOR
    | abi::setup::FLAG_TAKES_RECORDS;
// A record keeps them in a byte.
const _: () = assert!(FLAGS <= u8::MAX as u64);
/// Flags that do not go together.
const UNPAID: u64 = abi::setup::FLAG_SLICE_END | abi::setup::FLAG_GIVEN_TIME;

/// The arguments of `EnvAlloc`.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Its index.
    pub which: Which,
    /// Where it runs.
    pub domain: DomainId,
    /// Who pays; 0: the caller's account.
    pub account: AccountId,
    /// The frame of its vector state.
    pub vector: Which,
}

/// `EnvAlloc`.
pub fn allocate<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    capability: u8,
    asked: &Request,
) -> Answer {
    let own = DomainIndex::from(env::domain(state, caller));
    let capability = domain::capability(state, own, capability)?;
    let target = domain::find_or_own(state, own, asked.domain)?;
    // Another one has been found, so that it stays.
    domain::is_to_stay(state, own)?;
    // Another thread of one's own can do nothing that one could not do oneself.
    let permitted = target == own
        || domain::is_builder(state, own, target)
        || capability.dominates(domain::guard(state, target), CONTROL);
    if !permitted {
        return Err(Error::NotPermitted.into());
    }
    let payer = if asked.account.is_none() {
        domain::account(state, own)
    } else {
        account::find(state, asked.account)?
    };
    account::may_charge(state, own, &capability, payer)?;
    account::check(state, payer, Resource::Envs, 1)?;
    let index = free_index(state, asked.which)?;
    let vector =
        frame::allocate(state, machine, asked.vector, payer, capability.name, FrameType::Vector)?;
    account::charge(state, payer, Resource::Envs, 1)?;
    let account = AccountId(state.published.accounts[payer].id);
    let domain = domain::id(state, target);
    let id = env::enter(state, machine, index, domain, account, vector);
    state.envs.slots[index].guard = capability.name;
    state.published.envs[index].holder = env::id(state, caller).0;
    state.envs.slots[caller].children += 1;
    slice::share(state, index, caller);
    Ok(u64::from(id.0))
}

fn free_index(state: &mut State, which: Which) -> Result<EnvIndex, Refusal> {
    let free = |index: EnvIndex| state.envs.slots[index].state == EnvState::Free;
    match which {
        Which::Any => state.envs.lowest_free().ok_or(Error::Exhausted.into()),
        Which::This(index) if index == 0 || index as usize >= state.envs.slots.len() => {
            Err(Refusal::new(Error::BadArgument, 0))
        }
        Which::This(index) if free(EnvIndex::new(index as usize)) => {
            Ok(EnvIndex::new(index as usize))
        }
        Which::This(_) => Err(Error::Taken.into()),
    }
}

/// A checked `EnvSetup`: nothing in it can be refused any more.
#[derive(Clone, Copy, Debug)]
struct Plan {
    fields: u64,
    setup: EnvSetup,
    guard: Option<Name>,
    save: Frame,
    application: Frame,
}

/// `EnvSet`.
pub fn set<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    capability: u8,
    id: EnvId,
    fields: u64,
    bytes: &[u8],
) -> Answer {
    let index = env::controlled(state, caller, capability, id)?;
    let allowed = match state.envs.slots[index].state {
        EnvState::New => ALL,
        _ if index == caller => {
            visit::at_home(state, index)?;
            field::WHILE_RUNNING
        }
        _ => return Err(Error::WrongState.into()),
    };
    if fields & !ALL != 0 {
        return Err(Refusal::new(Error::BadArgument, 1));
    }
    if fields & !allowed != 0 {
        return Err(Error::WrongState.into());
    }
    let domain = DomainIndex::from(env::domain(state, index));
    let save = state.envs.slots[index].save_address;
    let plan = check(state, machine, caller, (domain, save), fields, &read_setup(bytes))?;
    apply(state, machine, (caller, index), &plan);
    Ok(0)
}

/// `EnvMove`: the answer if it is refused, else the caller goes on in the new domain.
pub fn move_to<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    capability: u8,
    target: DomainId,
    fields: u64,
    bytes: &[u8],
) -> Result<(), Refusal> {
    let from = env::domain(state, caller);
    let to = domain::find(state, target)?;
    visit::at_home(state, caller)?;
    // Who is to end with its domain does not leave it.
    domain::is_to_stay(state, from.into())?;
    if to == from.into() {
        return Err(Error::WrongState.into());
    }
    if let Some(prepared) = principal::admitted(state, to, caller) {
        principal::may_bring_groups(state, from.into(), to)?;
        arrival::arrive(state, machine, caller, to, prepared);
        return Ok(());
    }
    let held = domain::capability(state, from.into(), capability)?;
    let builds = domain::is_builder(state, from.into(), to);
    if !builds && !held.dominates(domain::guard(state, to), CONTROL) {
        return Err(Error::NotPermitted.into());
    }
    if fields & !ALL != 0 {
        return Err(Refusal::new(Error::BadArgument, 1));
    }
    let plan = check(state, machine, caller, (to, 0), fields, &read_setup(bytes))?;
    predicate::clear(state, machine, caller);
    let waiting = waiting(state, machine, caller);
    death::drop_pages(state, machine, caller);
    state.envs.slots[caller].entries = Entries::default();
    env::set_domain(state, caller, target);
    domain::born(state, to);
    domain::built(state, to);
    principal::moved(state, from.into(), to);
    state.published.domains[to].envs += 1;
    *machine.context(caller.at()) = Context::starting(0, 0, 0);
    apply(state, machine, (caller, caller), &plan);
    wait_still(state, machine, caller, waiting);
    machine.vector_init(state.envs.slots[caller].vector);
    env::changed(state, caller);
    death::leave_domain(state, machine, from);
    Ok(())
}

/// Posted bits and event bits in an environment's save area.
pub(crate) fn waiting<M: Machine>(state: &State, machine: &M, index: EnvIndex) -> (u64, u64) {
    let save = state.envs.slots[index].save;
    if save.0 == 0 {
        return (0, 0);
    }
    let word = |offset: usize| machine.word(save.address() + offset as u64);
    (word(offset::PENDING), word(offset::EVENTS))
}

/// Puts such bits into the save area that the environment has now: what others sent is not lost
/// with the page it was written to.
pub(crate) fn wait_still<M: Machine>(
    state: &State,
    machine: &mut M,
    index: EnvIndex,
    (posted, events): (u64, u64),
) {
    let save = state.envs.slots[index].save;
    if save.0 != 0 {
        machine.word_or(save.address() + offset::PENDING as u64, posted);
        machine.word_or(save.address() + offset::EVENTS as u64, events);
    }
}

fn check<M: Machine>(
    state: &State,
    machine: &M,
    caller: EnvIndex,
    (domain, save_address): (DomainIndex, u64),
    fields: u64,
    setup: &EnvSetup,
) -> Result<Plan, Refusal> {
    let set = |bit: u64| fields & bit != 0;
    let entries = [
        (field::FAULT_ENTRY, setup.fault_entry),
        (field::EVENT_ENTRY, setup.event_entry),
        (field::FOREIGN_ENTRY, setup.foreign_entry),
        (field::SYNC_ENTRY, setup.sync_entry),
        (field::ASYNC_ENTRY, setup.async_entry),
        (field::RIP, setup.rip),
    ];
    if entries.into_iter().any(|(bit, entry)| set(bit) && !exit::may_run_at(entry)) {
        return Err(Error::BadAddress.into());
    }
    let bases = [(field::FS_BASE, setup.fs_base), (field::GS_BASE, setup.gs_base)];
    if bases.into_iter().any(|(bit, base)| set(bit) && !exit::is_canonical(base)) {
        return Err(Error::BadAddress.into());
    }
    // An environment that ignores the ends of its slices is charged for the excess.
    let unpaid = setup.flags & UNPAID == UNPAID;
    if set(field::FLAGS) && (setup.flags & !FLAGS != 0 || unpaid) {
        return Err(Refusal::new(Error::BadArgument, 2));
    }
    let mut guard = None;
    if set(field::GUARD) {
        let index = u8::try_from(setup.guard).map_err(|_| Error::NoSuchCapability)?;
        let own = DomainIndex::from(env::domain(state, caller));
        guard = Some(domain::capability(state, own, index)?.name);
    }
    let root = domain::root(state, domain);
    let page = |bit: u64, address: u64| -> Result<Frame, Refusal> {
        if !set(bit) {
            return Ok(Frame::default());
        }
        if !address.is_multiple_of(PAGE_SIZE) {
            return Err(Error::BadAddress.into());
        }
        let leaf = table::walk(state, machine, root, address, true).ok_or(Error::BadAddress)?;
        // Others have entries for it, which are write-back.
        let plain = state.published.frames[leaf.frame.0 as usize].memory_type == 0;
        match frame::kind(state, leaf.frame) {
            Some(FrameType::Data) if plain => Ok(leaf.frame),
            _ => Err(Error::BadAddress.into()),
        }
    };
    let save = page(field::SAVE_AREA, setup.save_area)?;
    let application = page(field::APPLICATION_PAGE, setup.application_page)?;
    let save_address = if set(field::SAVE_AREA) { setup.save_area } else { save_address };
    let distance = setup.queue.wrapping_sub(save_address);
    if set(field::QUEUE) && setup.queue != 0 && (save_address == 0 || !queue::is_place(distance)) {
        return Err(Error::BadAddress.into());
    }
    Ok(Plan { fields, setup: *setup, guard, save, application })
}

fn apply<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (caller, index): (EnvIndex, EnvIndex),
    plan: &Plan,
) {
    let set = |bit: u64| plan.fields & bit != 0;
    let setup = &plan.setup;
    let context = machine.context(index.at());
    let fresh = Context::starting(0, 0, 0);
    if context.cs == 0 {
        *context = fresh;
    }
    let put = |bit: u64, place: &mut u64, value: u64| {
        if set(bit) {
            *place = value;
        }
    };
    put(field::RIP, &mut context.rip, setup.rip);
    put(field::RSP, &mut context.rsp, setup.rsp);
    put(field::ARGUMENT, &mut context.rdi, setup.argument);
    put(field::FS_BASE, &mut context.fs_base, setup.fs_base);
    put(field::GS_BASE, &mut context.gs_base, setup.gs_base);
    state.envs.slots[index].prepared = false;
    gate::close(state, index);
    let env::Env { entries, flags, .. } = &mut state.envs.slots[index];
    put(field::FAULT_ENTRY, &mut entries.fault, setup.fault_entry);
    put(field::EVENT_ENTRY, &mut entries.event, setup.event_entry);
    put(field::FOREIGN_ENTRY, &mut entries.foreign, setup.foreign_entry);
    put(field::SYNC_ENTRY, &mut entries.sync, setup.sync_entry);
    put(field::ASYNC_ENTRY, &mut entries.asynchronous, setup.async_entry);
    if set(field::FLAGS) {
        *flags = setup.flags as u8;
        sched::turns_changed(state, index);
    }
    if let Some(guard) = plan.guard {
        state.envs.slots[index].guard = guard;
    }
    if set(field::SAVE_AREA) {
        frame::pin(state, plan.save);
        let env = &mut state.envs.slots[index];
        let old = core::mem::replace(&mut env.save, plan.save);
        (env.save_address, env.queue) = (setup.save_area, 0);
        unpin(state, old);
    }
    if set(field::QUEUE) {
        let env = &mut state.envs.slots[index];
        // Within the page, as was checked, or none.
        let distance = if setup.queue == 0 { 0 } else { setup.queue - env.save_address };
        env.queue = distance as u16;
    }
    if set(field::APPLICATION_PAGE) {
        frame::pin(state, plan.application);
        let env = &mut state.envs.slots[index];
        let old = core::mem::replace(&mut env.application, plan.application);
        machine.application_page(index.at(), Some(plan.application));
        forgetting::note(state, turns::account_of(state, caller));
        unpin(state, old);
    }
}

fn unpin(state: &mut State, old: Frame) {
    if old.0 != 0 {
        frame::unpin(state, old);
    }
}

fn read_setup(bytes: &[u8]) -> EnvSetup {
    let word = |at: usize| u64_at(bytes, 8 * at);
    EnvSetup {
        rip: word(0),
        rsp: word(1),
        argument: word(2),
        fs_base: word(3),
        gs_base: word(4),
        fault_entry: word(5),
        event_entry: word(6),
        foreign_entry: word(7),
        sync_entry: word(8),
        async_entry: word(9),
        flags: word(10),
        save_area: word(11),
        application_page: word(12),
        guard: word(13),
        queue: word(14),
        zero: word(15),
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
    slice::start_cpu(state, CpuIndex::new(0));
    for resource in [Resource::Slices, Resource::Envs] {
        let paid = account::charge(state, first.account.into(), resource, 1);
        assert!(paid.is_ok(), "the first account may have everything");
    }
    let index = EnvIndex::new(1);
    let id = env::enter(state, machine, index, first.domain, first.account, first.vector);
    frame::pin(state, first.save);
    frame::pin(state, first.application);
    let env = &mut state.envs.slots[index];
    env.guard = first.guard;
    env.save = first.save;
    env.save_address = first.save_address;
    env.application = first.application;
    machine.application_page(index.at(), Some(first.application));
    let context = machine.context(index.at());
    *context = Context::starting(first.rip, first.rsp, 0);
    context.gs_base = first.save_address;
    slice::settle(state, index, CpuIndex::new(0), 0);
    sched::make_ready(state, machine, index, false);
    id
}
