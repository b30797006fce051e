//! From a decoded call to its outcome.
//!
//! One arm for each row of `abi::call`; each hands over to the file that decides. What a handler
//! answers goes to the caller's registers in the machine layer; what it does to the running order
//! shows in the [`Outcome`], which a handler comes to by its [`Continuation`] alone.

mod batches;
pub mod continuation;

use crate::answer::{Answer, Refusal};
use crate::index::{AccountIndex, CpuIndex, DomainIndex, EnvIndex};
use crate::machine::{Machine, UserFault};
use crate::sleep::Sleep;
use crate::state::State;
use crate::{
    account, capability, console, create, death, domain, env, forgetting, method, operate,
    predicate, principal, region, retract, revoke, sleep, slice, step, token, trace, transfer,
    turns, visit, voided, yields,
};
use abi::call::{CALLS_MAX, CAPABILITY_SHIFT, Call, REVOKE_LATER, Visitor, number};
use abi::capability::{CONTROL, Capability, DEVICE_POWER, NAME_DEVICE, Name, WRITE};
use abi::error::Error;
use abi::id::{AccountId, DomainId, Frame};
use abi::layout::is_user_range;
use abi::limits::{
    BATCH, COPY_BYTES, METHOD_SLOTS, PREDICATE_ATOMS, REGION_FRAMES, REGION_PLACES, RING_ENTRIES,
    Resource, TRANSMIT_PIECES,
};
use abi::memory::Item;
use abi::method::BINDING_BYTES;
use abi::published::EnvState;
use abi::region::Place;
use abi::trace::{Event, Kind};
use abi::word::UserAddress;
use continuation::{Continuation, Done};
use core::mem::size_of;

/// What the machine layer does after a call.
///
/// In every case it then asks [`crate::sched::pick`] who runs, while it still holds the lock. An
/// environment that is switched away from has its FS and GS base and its vector registers saved
/// (unless [`crate::env::vector`] answers `None`: it is dead) before the lock is released: from
/// then on another processor may run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `rax` and `rdx` of the caller (`Context::answer`), before `pick`.
    Answer(u64, u64),
    /// The argument registers are advanced: the machine layer sets the context's rip back to the
    /// `syscall` instruction, which runs again (`rax` is untouched).
    Again,
    /// A page fault of the caller's, at its `syscall` instruction: the call runs again afterwards.
    Fault(UserFault),
    /// The caller's context is complete; it may no longer run, or be dead. Ask `pick`.
    Left,
    /// Control was transferred: this environment is current, its context is complete, and the
    /// vector registers on the processor are now its own. Nothing is saved or loaded but FS and GS
    /// base.
    Enter(EnvIndex),
    /// The caller goes on with its context as it stands, in the domain it has now, its vector
    /// registers loaded anew from its frame.
    Restart,
    /// The caller goes on with its context as it stands, in the domain it has now; its bases and
    /// vector registers are on the processor already.
    Moved,
}

/// What a capability must dominate to end the machine.
const POWER: Name = Name::of(&[NAME_DEVICE, DEVICE_POWER]);
const ITEM_BYTES: u64 = size_of::<Item>() as u64;
const PLACE_BYTES: usize = size_of::<Place>();

/// Calls that may read program memory, a bit for each number: the others need not be asked.
const READS_MEMORY: u64 = 1 << number::EnvSet
    | 1 << number::EnvMove
    | 1 << number::TableUpdate
    | 1 << number::RegionAlloc
    | 1 << number::RegionPass
    | 1 << number::RegionOperate
    | 1 << number::RegionAwait
    | 1 << number::PredicateSet
    | 1 << number::RingAlloc
    | 1 << number::RingModify
    | 1 << number::FilterInsert
    | 1 << number::NetTransmit
    | 1 << number::ConsoleWrite
    | 1 << number::MethodBind;

/// May [`buffer`] name memory for the call with this number?
#[inline(always)]
pub const fn reads_memory(number: u16) -> bool {
    READS_MEMORY.wrapping_shr(number as u32) & 1 != 0
}

/// Program memory that a call reads: address and bytes, at most `limits::COPY_BYTES`. The machine
/// layer copies it in before it takes the lock; a fault there is the caller's and nothing has
/// happened. `None` also if the program may not name that memory: [`call`] then answers
/// `BadAddress`; or if there is no such call.
pub fn buffer(number: u16, words: [u64; 6]) -> Option<(u64, usize)> {
    struct Needs;
    impl Visitor for Needs {
        type Output = Option<(u64, usize)>;
        #[inline(always)]
        fn visit(self, call: Call) -> Self::Output {
            needs(&call)
        }
    }
    let needs = Call::visit(number, words, Needs).ok().flatten();
    needs.filter(|&(address, bytes)| is_user_range(address, bytes as u64))
}

/// As [`buffer`], whatever the address.
#[inline(always)]
fn needs(call: &Call) -> Option<(u64, usize)> {
    let array = |at: UserAddress, count: u64, most: usize, bytes: usize| {
        let count = count.min(most as u64) as usize;
        (count > 0).then_some((at.0, count * bytes))
    };
    match *call {
        Call::EnvSet { setup, .. } | Call::EnvMove { setup, .. } => {
            Some((setup.0, size_of::<abi::setup::EnvSetup>()))
        }
        Call::TableUpdate { items, count, .. } => array(items, count, BATCH, ITEM_BYTES as usize),
        Call::RegionAlloc { frames, count } => {
            array(frames, count & !abi::region::KINDS, REGION_FRAMES, 4)
        }
        Call::RegionPass { places, count, .. } => array(places, count, REGION_PLACES, PLACE_BYTES),
        Call::RegionOperate { operation } => {
            Some((operation.0, size_of::<abi::region::RegionOperation>()))
        }
        Call::RegionAwait { wait, .. } => Some((wait.0, size_of::<abi::region::RegionWait>())),
        Call::PredicateSet { atoms, count } => {
            array(atoms, count, PREDICATE_ATOMS, predicate::ATOM_BYTES)
        }
        Call::RingAlloc { entries, count } => {
            array(entries, count, RING_ENTRIES, size_of::<abi::ring::RingEntry>())
        }
        Call::RingModify { entry, .. } => Some((entry.0, size_of::<abi::ring::RingEntry>())),
        Call::FilterInsert { program } => {
            Some((program.0, size_of::<abi::filter::FilterProgram>()))
        }
        Call::NetTransmit { pieces, count, .. } => {
            array(pieces, count, TRANSMIT_PIECES, size_of::<abi::ring::Piece>())
        }
        Call::MethodBind { binding, slots, .. } => {
            let slots = slots.min(METHOD_SLOTS as u64) as usize;
            Some((binding.0, BINDING_BYTES + 8 * slots))
        }
        Call::ConsoleWrite { bytes, len, .. } => array(bytes, len, COPY_BYTES, 1),
        _ => None,
    }
}

/// Who calls, with what.
#[derive(Clone, Copy)]
struct Caller<'a> {
    cpu: CpuIndex,
    index: EnvIndex,
    /// The whole of `rax`.
    word: u64,
    bytes: &'a [u8],
}

impl Caller<'_> {
    /// Index of the capability named.
    #[inline(always)]
    fn capability(&self) -> u8 {
        (self.word >> CAPABILITY_SHIFT) as u8
    }

    /// Its domain's index.
    #[inline(always)]
    fn domain(&self, state: &State) -> DomainIndex {
        env::domain(state, self.index).into()
    }
}

/// One call, its row known.
struct Served<'a, M> {
    state: &'a mut State,
    machine: &'a mut M,
    who: Caller<'a>,
}

impl<M: Machine> Visitor for Served<'_, M> {
    type Output = Done;
    #[inline(always)]
    fn visit(self, call: Call) -> Done {
        let Self { state, machine, who } = self;
        let continuation = Continuation::begin();
        match needs(&call) {
            Some((_, len)) if who.bytes.len() < len => continuation.refuse(Error::BadAddress),
            _ => serve(state, machine, who, &call, continuation),
        }
    }
}

/// Does a call for the environment at index `caller`, which runs on `cpu`; `word` is the whole of
/// `rax`, `words` are the argument registers, `bytes` what [`buffer`] asked for.
#[inline(always)]
pub fn call<M: Machine>(
    state: &mut State,
    machine: &mut M,
    cpu: CpuIndex,
    caller: EnvIndex,
    word: u64,
    words: [u64; 6],
    bytes: &[u8],
) -> Outcome {
    let number = word as u16;
    // Counters may wrap: nothing is decided by them.
    let count = |counter: &mut u64| *counter = counter.wrapping_add(1);
    count(&mut state.published.cpus[cpu].calls);
    count(&mut state.published.envs[caller].entries);
    let row = usize::from(number);
    if row >= CALLS_MAX {
        return Outcome::Answer(Error::NoSuchCall as u64, number.into());
    }
    let counters = &state.published.calls[cpu][row];
    counters.made();
    let who = Caller { cpu, index: caller, word, bytes };
    let served = Served { state: &mut *state, machine: &mut *machine, who };
    let ended = match Call::visit(number, words, served) {
        Ok(done) => done,
        Err((error, operand)) => Continuation::begin().refuse(Refusal::new(error, operand)),
    };
    let outcome = ended.outcome();
    if let Outcome::Answer(error, _) = outcome
        && error != 0
    {
        counters.refused();
        let env = state.published.envs[caller].id;
        let event = Event::new(Kind::Refused, number, env);
        machine.trace(Event { argument: error, ..event });
    }
    outcome
}

/// Calls that touch the running order; the others are in [`objects`].
#[inline(always)]
fn serve<M: Machine>(
    state: &mut State,
    machine: &mut M,
    who: Caller<'_>,
    call: &Call,
    k: Continuation,
) -> Done {
    let Caller { cpu, index, word, bytes } = who;
    let capability = who.capability();
    match *call {
        Call::EnvSet { .. } | Call::EnvMove { .. } | Call::FrameRevoke { .. }
            if forgetting::comes_too_soon(state, machine, index, call) =>
        {
            k.again()
        }
        Call::Yield { to } => match yields::yield_to(state, machine, cpu, index, to) {
            Ok(()) if state.envs.slots[index].state == EnvState::Running => k.answer(Ok(0)),
            Ok(()) => k.left(state, index),
            Err(error) => k.refuse(error),
        },
        Call::Sleep { deadline, posted, events, flags } => {
            let asked = Sleep { deadline, posted, events, flags };
            k.answer_or_left(sleep::sleep(state, machine, cpu, index, asked), state, index)
        }
        Call::TransferSync {} => transfer::synchronous(state, machine, (cpu, index), word, k),
        Call::TransferAsync {} => transfer::asynchronous(state, machine, (cpu, index), word, k),
        Call::EnvHold { env } => {
            k.answer_or_left(death::hold(state, machine, cpu, index, capability, env), state, index)
        }
        Call::EnvDestroy { env, word } => k.answer_or_left(
            death::destroy(state, machine, cpu, index, capability, env, word),
            state,
            index,
        ),
        Call::EnvMove { domain, fields, .. } => {
            match create::move_to(state, machine, index, capability, domain, fields, bytes) {
                Ok(()) => k.restart(),
                Err(refusal) => k.refuse(refusal),
            }
        }
        Call::DomainSwitch { domain } => {
            match visit::switch_to(state, machine, index, capability, domain) {
                Ok(()) => k.moved(),
                Err(refusal) => k.refuse(refusal),
            }
        }
        Call::DomainDestroy { domain } => match may_destroy_domain(state, who, domain) {
            Ok(target) => k.answer_or_left(
                death::destroy_domain(state, machine, cpu, index, target),
                state,
                index,
            ),
            Err(refusal) => k.refuse(refusal),
        },
        Call::AccountDestroy { account } => match may_destroy_account(state, who, account) {
            Ok(target) => k.answer_or_left(
                death::destroy_account(state, machine, cpu, index, target),
                state,
                index,
            ),
            Err(refusal) => k.refuse(refusal),
        },
        Call::TableUpdate { domain, items, count } => {
            batches::update_tables(state, machine, who, domain, (items, count), k)
        }
        Call::RegionPass { domain, places, count } => {
            batches::pass_regions(state, machine, who, domain, (places, count), k)
        }
        Call::FrameRevoke { frame, flags } => revoke_frame(state, machine, who, (frame, flags), k),
        Call::RegionOperate { .. } => match operate::operate(state, machine, index, bytes) {
            Ok(result) => k.answer(result),
            Err(fault) => k.fault(fault),
        },
        Call::RegionAwait { deadline, posted, events, .. } => {
            let asked = Sleep { deadline, posted, events, flags: 0 };
            match operate::operate_or_wait(state, machine, (cpu, index), asked, bytes) {
                Ok(ended) => k.answer_or_left(ended, state, index),
                Err(fault) => k.fault(fault),
            }
        }
        Call::CapabilityRetract { extend, components } => {
            retract_capabilities(state, who, (extend, components), k)
        }
        Call::RegionStep { which, address, piece, words, from, beside } => {
            let asked = step::Asked { words: [which, piece, words], address, from };
            match step::step(state, machine, index, &asked, beside) {
                Ok(result) => k.answer(result),
                Err(fault) => k.fault(fault),
            }
        }
        Call::RegionStepOrWait { which, address, piece, words, from, posted } => {
            let asked = step::Asked { words: [which, piece, words], address, from };
            match step::step_or_wait(state, machine, (cpu, index), &asked, posted) {
                Ok(ended) => k.answer_or_left(ended, state, index),
                Err(fault) => k.fault(fault),
            }
        }
        Call::MethodBind { region, slots, .. } => {
            let bound = method::bind(state, machine, index, capability, (region, slots), bytes);
            match bound {
                Some(bound) => k.answer(bound),
                None => k.again(),
            }
        }
        _ => k.answer(objects(state, machine, who, call)),
    }
}

/// Calls that answer at once.
#[inline(always)]
fn objects<M: Machine>(state: &mut State, machine: &mut M, who: Caller<'_>, call: &Call) -> Answer {
    let Caller { index, bytes, .. } = who;
    let capability = who.capability();
    match *call {
        Call::Post { env, bits } => sleep::post(state, machine, index, capability, env, bits),
        Call::EnvRelease { env } => death::release(state, machine, index, capability, env),
        Call::EnvAlloc { which, domain, account, vector } => {
            let asked = create::Request { which, domain, account, vector };
            create::allocate(state, machine, index, capability, &asked)
        }
        Call::EnvSet { env, fields, .. } => {
            create::set(state, machine, index, capability, env, fields, bytes)
        }
        Call::EnvForget { env } => death::forget(state, index, env),
        Call::EnvEntrust { env, holder } => death::entrust(state, machine, index, env, holder),
        Call::DomainAlloc { which, account, root, window, bytes } => {
            let named = named(state, who)?;
            let asked = domain::Request { which, account, root, window, bytes };
            domain::allocate(state, machine, who.domain(state), &named, &asked)
        }
        Call::CapabilityDerive { domain, slot, extend, components, rights } => {
            let asked = capability::Derivation { domain, slot, extend, components, rights };
            capability::derive(state, who.domain(state), capability, &asked)
        }
        Call::DomainHolds { domain, kind, number } => {
            principal::ask(state, machine, domain, kind, number)
        }
        Call::DomainSet { domain, property, value } => {
            let asked = (domain, property, value);
            principal::set(state, who.domain(state), capability, asked)
        }
        Call::CapabilityDrop { slot } => capability::drop(state, who.domain(state), slot),
        Call::CapabilityPass { domain, slots } => {
            capability::pass(state, who.domain(state), capability, domain, slots)
        }
        Call::CapabilityToken { word } => {
            token::word(state, machine, who.domain(state), capability, word)
        }
        Call::CapabilityEnter { slot, first, second, seal } => {
            token::enter(state, machine, who.domain(state), slot, [first, second, seal])
        }
        Call::AccountAlloc { which, parent } => {
            let named = named(state, who)?;
            account::allocate(state, &named, which, parent)
        }
        Call::AccountLimit { account, resource, limit, reserve } => {
            let named = named(state, who)?;
            account::limit(state, &named, account, resource, (limit, reserve))
        }
        Call::SliceAlloc { cpu, position, env } => slice::allocate(
            state,
            machine,
            index,
            capability,
            CpuIndex::new(cpu.into()),
            position,
            env,
        ),
        Call::SliceFree { cpu, position } => {
            slice::free(state, index, capability, CpuIndex::new(cpu.into()), position as usize)
        }
        Call::RegionAlloc { count, .. } => {
            region::allocate(state, machine, index, capability, count, bytes)
        }
        Call::RegionAttach { region, role, domain } => {
            region::attach(state, index, capability, region, role, domain)
        }
        Call::RegionDetach { region, role } => region::detach(state, index, region, role),
        Call::MethodCall { region, method, role, first, second, third } => {
            let words = [first, second, third];
            method::call(state, machine, index, region, (method, role), words)
        }
        Call::PredicateSet { count, .. } => predicate::set(state, machine, index, count, bytes),
        Call::TimerSet { deadline } => {
            visit::at_home(state, index)?;
            sleep::set_timer(state, index, deadline);
            Ok(0)
        }
        Call::ConsoleWrite { stream, .. } => write_console(state, machine, who, stream),
        Call::ConsoleRing { page } => console::set_ring(state, machine, index, capability, page),
        Call::Entropy {} => machine.random().ok_or(Error::NotPresent.into()),
        Call::MachineEnd { how, status } => {
            capability::check(state, who.domain(state), capability, &POWER, WRITE)?;
            if how > 1 {
                return Err(Refusal::new(Error::BadArgument, 0));
            }
            machine.end(how, status);
            Ok(0)
        }
        Call::TraceSet { kinds } => {
            trace::set(state, machine, who.domain(state), capability, kinds)
        }
        _ => crate::net::call(state, machine, index, capability, call, bytes),
    }
}

fn named(state: &State, who: Caller<'_>) -> Result<Capability, Error> {
    capability::get(state, who.domain(state), who.capability())
}

fn may_destroy_domain(
    state: &State,
    who: Caller<'_>,
    id: DomainId,
) -> Result<DomainIndex, Refusal> {
    let target = domain::find(state, id)?;
    let own = who.domain(state);
    if !domain::is_builder(state, own, target) {
        let guard = domain::guard(state, target);
        capability::check(state, own, who.capability(), guard, CONTROL)?;
    }
    Ok(target)
}

fn may_destroy_account(
    state: &State,
    who: Caller<'_>,
    id: AccountId,
) -> Result<AccountIndex, Refusal> {
    let target = account::find(state, id)?;
    let name = state.accounts.record(target).name;
    capability::check(state, who.domain(state), who.capability(), &name, CONTROL)?;
    // Each of the others has a parent, which what it leaves behind is charged to. The first one
    // has the machine: no right ends that.
    if state.accounts.record(target).parent == 0 {
        return Err(Error::NotPermitted.into());
    }
    Ok(target)
}

/// Done as soon as it has begun. While another one is under way nothing happens: the call runs
/// again, and each time brings that one forward.
#[inline(never)]
fn retract_capabilities(
    state: &mut State,
    who: Caller<'_>,
    below: (u16, u64),
    k: Continuation,
) -> Done {
    let own = who.domain(state);
    match retract::check(state, own, who.capability(), below) {
        Err(refusal) => k.refuse(refusal),
        Ok((name, rights)) => {
            let payer = domain::account(state, own);
            if !retract::may_ever_begin(state, payer) {
                let refusal = Refusal::new(Error::OverQuota, Resource::Retractions as u64);
                return k.refuse(refusal);
            }
            if !retract::may_begin(state, payer) {
                return k.again();
            }
            let own = domain::id(state, own);
            voided::void(state, &name);
            retract::begin(state, name, rights, own, (payer, payer));
            k.answer(Ok(0))
        }
    }
}

/// So many bindings at a time; the call of one who waits for the end runs again until none is left.
/// If its caller does not live to see that, it goes on without.
#[inline(never)]
fn revoke_frame<M: Machine>(
    state: &mut State,
    machine: &mut M,
    who: Caller<'_>,
    (frame, flags): (Frame, u16),
    k: Continuation,
) -> Done {
    if flags & !REVOKE_LATER != 0 {
        return k.refuse(Refusal::new(Error::BadArgument, 1));
    }
    let account = turns::account_of(state, who.index);
    let awaited = core::mem::take(&mut state.envs.slots[who.index].revokes);
    // Somebody else's piece of work may have been the last: then the frame may be gone, too.
    if awaited != frame || frame.0 == 0 {
        let checked = named(state, who)
            .map_err(Refusal::from)
            .and_then(|named| revoke::check(state, &named, frame));
        if let Err(refusal) = checked {
            return k.refuse(refusal);
        }
        forgetting::note(state, account);
        if flags & REVOKE_LATER != 0 {
            return k.answer(Ok(revoke::begin_later(state, machine, frame).into()));
        }
        revoke::begin(state, frame, account);
    }
    revoke::work(state, machine, account);
    if revoke::under_way(state, frame) {
        state.envs.slots[who.index].revokes = frame;
        return k.again();
    }
    // Another processor may have broken the last entries, and not have told the others yet.
    revoke::have_forgotten(state, machine);
    k.answer(Ok(0))
}

#[inline(never)]
fn write_console<M: Machine>(
    state: &State,
    machine: &mut M,
    who: Caller<'_>,
    stream: u16,
) -> Answer {
    capability::check(state, who.domain(state), who.capability(), &console::GUARD, WRITE)?;
    if stream > 2 {
        return Err(Error::NoSuchDevice.into());
    }
    Ok(machine.console_write(stream, who.bytes) as u64)
}
