//! Holding, releasing, destroying, forgetting (decisions 1, 6, 7; l4stack 7.1 cancel by match).
//!
//! Nothing of a dead environment is left but its record: the state, the word, the killer, for its
//! holder to read. The record goes when the holder forgets it, or at once when there is none.

use crate::answer::Answer;
use crate::count::Count;
use crate::env::{self, Pending, Request};
use crate::index::{AccountIndex, CpuIndex, DomainIndex, EnvIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::sweep::{self, Condemned};
use crate::turns::account_of;
use crate::work::{self, cost};
use crate::{
    account, busy, console, domain, frame, left, lent, predicate, region, request, sched, sleep,
    slice, transfer,
};
use abi::error::Error;
use abi::id::{DomainId, EnvId};
use abi::published::EnvState;
use abi::setup::FLAG_TAKES_RECORDS;
use abi::upcall::EVENT_CHILD;

/// `EnvHold`; `None`: the caller held itself and has left.
pub fn hold<M: Machine>(
    state: &mut State,
    machine: &mut M,
    cpu: CpuIndex,
    caller: EnvIndex,
    capability: u8,
    id: EnvId,
) -> Option<Answer> {
    let index = match env::signalled(state, caller, capability, id) {
        Ok(index) => index,
        Err(error) => return Some(Err(error.into())),
    };
    match state.envs.slots[index].state {
        EnvState::Running if index == caller => {
            machine.context(caller.at()).answer(0, 0);
            sched::leave(state, machine, cpu);
            hold_now(state, machine, index);
            None
        }
        EnvState::Running => {
            // One that is held lets go of everything as well.
            let request = match state.envs.slots[index].request {
                Request::Nothing | Request::LetGo => Request::Hold,
                asked => asked,
            };
            request::ask(state, machine, index, request);
            Some(Ok(0))
        }
        EnvState::Ready | EnvState::Sleeping | EnvState::Donating => {
            hold_now(state, machine, index);
            Some(Ok(0))
        }
        _ => Some(Err(Error::WrongState.into())),
    }
}

/// Takes an environment that no processor runs off the rings; what it waits for stays, but that a
/// server accepts.
pub fn hold_now<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) {
    sched::dequeue(state, index);
    busy::end_without_a_turn(state, index);
    env::set_state(state, index, EnvState::Held);
    env::tell_holder(state, machine, index);
}

/// `EnvRelease`: an environment that was held goes on, one that was new or stopped runs. A new one
/// is released by its builder: a user that may signal the program does not begin it half-built.
pub fn release<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    capability: u8,
    id: EnvId,
) -> Answer {
    let index = env::signalled(state, caller, capability, id)?;
    let new = state.envs.slots[index].state == EnvState::New;
    if new && !env::shares_domain(state, caller, index) {
        env::controlled(state, caller, capability, id)?;
    }
    if state.envs.slots[index].request == Request::Hold {
        state.envs.slots[index].request = Request::Nothing;
        return Ok(0);
    }
    let pending = state.envs.slots[index].pending;
    match (state.envs.slots[index].state, pending) {
        (EnvState::New | EnvState::Stopped, _) | (EnvState::Held, Pending::Nothing) => {
            domain::built(state, env::domain(state, index).into());
            state.published.envs[index].cause = 0;
            sched::make_ready(state, machine, index, false);
        }
        (EnvState::Held, Pending::Region) => {
            sleep::end_sleep(state, machine, index);
            sched::make_ready(state, machine, index, false);
        }
        (EnvState::Held, Pending::Reply) => {
            env::set_state(state, index, EnvState::Donating);
            sched::enqueue(state, index);
        }
        (EnvState::Held, Pending::Sleep | Pending::Accept) => {
            env::set_state(state, index, EnvState::Sleeping);
            if sched::keeps_its_turn(state, index) {
                sched::enqueue(state, index);
            }
            sleep::try_predicate(state, machine, index, true);
        }
        _ => return Err(Error::WrongState.into()),
    }
    if !new {
        env::tell_holder(state, machine, index);
    }
    Ok(0)
}

/// `EnvDestroy`; `None`: the caller destroyed itself.
pub fn destroy<M: Machine>(
    state: &mut State,
    machine: &mut M,
    cpu: CpuIndex,
    caller: EnvIndex,
    capability: u8,
    id: EnvId,
    word: u64,
) -> Option<Answer> {
    let found = env::signalled(state, caller, capability, id)
        .and_then(|index| env::living(state, env::id(state, index)));
    match found {
        Err(error) => Some(Err(error.into())),
        Ok(index) => {
            let killer = env::id(state, caller);
            kill(state, machine, cpu, index, word, killer);
            (index != caller).then_some(Ok(0))
        }
    }
}

/// Ends a living environment with `word`, on behalf of `killer`: at once, or, if it runs on another
/// processor than this, when that one enters the kernel.
pub fn kill<M: Machine>(
    state: &mut State,
    machine: &mut M,
    cpu: CpuIndex,
    index: EnvIndex,
    word: u64,
    killer: EnvId,
) {
    if EnvIndex::from(state.sched.cpus[cpu].current) == index {
        sched::leave(state, machine, cpu);
        return die(state, machine, index, word, killer);
    }
    end(state, machine, index, word, killer);
}

/// The same, of one that has the processor, too: when it enters the kernel the next time.
pub(crate) fn end<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: EnvIndex,
    word: u64,
    killer: EnvId,
) {
    if state.envs.slots[index].state != EnvState::Running {
        return die(state, machine, index, word, killer);
    }
    let request = match state.envs.slots[index].request {
        asked @ Request::Die { .. } => asked,
        _ => Request::Die { word, killer },
    };
    request::ask(state, machine, index, request);
}

/// What the end of an environment costs at most.
pub(crate) fn cost(state: &State, index: EnvIndex) -> u32 {
    cost::DEATH + slice::cost(state, index) + predicate::cost(state, index)
}

/// The end of an environment that no processor runs. Those that wait for it, those that it holds
/// and those that share its slice hear of it by [`bereave`], one after the other.
pub fn die<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: EnvIndex,
    word: u64,
    killer: EnvId,
) {
    let cost = cost(state, index);
    work::spend(state, cost);
    cancel(state, machine, index);
    state.envs.slots[index].timer = 0;
    sleep::set_alarm(state, index);
    sched::dequeue(state, index);
    drop_places(state, machine, index);
    // Now, as its record may go with the last of those that it holds.
    let record = &mut state.published.envs[index];
    let domains = [record.domain, core::mem::take(&mut record.home)];
    slice::drop_all(state, index);
    state.published.envs[index].word = word;
    state.published.envs[index].killer = killer.0;
    env::note_home(state, index, domains);
    env::set_state(state, index, EnvState::Dead);
    if state.envs.slots[index].donors != 0 || state.envs.slots[index].children != 0 {
        sweep::look_for_bereaved(state, account_of(state, index));
    }
    for domain in domains.into_iter().filter(|&id| id != 0) {
        leave_domain(state, machine, DomainId(domain));
    }
    if env::living(state, EnvId(state.published.envs[index].holder)).is_ok() {
        env::tell_holder(state, machine, index);
    } else {
        forget_orphan(state, index);
    }
}

/// Ends what the environment waits for: one arm for each thing that can be pending.
fn cancel<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) {
    match state.envs.slots[index].pending {
        Pending::Nothing => {}
        Pending::Sleep | Pending::Accept | Pending::Region => {
            sleep::end_sleep(state, machine, index)
        }
        Pending::Reply | Pending::Busy => transfer::end_wait(state, index),
    }
}

/// Gives back the frames and pages of an environment: predicate, console, save area, vector state.
fn drop_places<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) {
    predicate::clear(state, machine, index);
    drop_pages(state, machine, index);
    let vector = core::mem::take(&mut state.envs.slots[index].vector);
    frame::release(state, vector);
}

/// Unpins the save area and the application page, and the console ring if it is this one's.
pub fn drop_pages<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) {
    console::drop_ring(state, index);
    lent::drop_save(state, index);
    lent::drop_application(state, machine, index);
}

/// An environment of this account's has ended: was it one that the one at `index` waits for, that
/// holds it, or whose slice it shares? `false`: there is no room for what is to be done then.
pub(crate) fn bereave<M: Machine>(
    state: &mut State,
    machine: &mut M,
    account: AccountIndex,
    index: EnvIndex,
) -> bool {
    let record = &state.published.envs[index];
    let (holder, awaited) = (EnvId(record.holder), EnvId(record.donated_to));
    let of_account = |index| left::worker(account_of(state, index)) == account;
    // The record of a dead one is there as long as others name it.
    let ended =
        |id: EnvId| !id.is_none() && env::living(state, id).is_err() && of_account(id.into());
    let heir = of_account(index);
    let (orphaned, unanswered) = (ended(holder), ended(awaited));
    let kind = state.envs.slots[index].state;
    if kind == EnvState::Free || !work::room(state, cost::BEREAVED) {
        return kind == EnvState::Free;
    }
    if unanswered && matches!(state.envs.slots[index].pending, Pending::Reply | Pending::Busy) {
        work::spend(state, cost::BEREAVED);
        refuse_donor(state, machine, index);
    }
    if heir && kind != EnvState::Dead && slice::is_ownerless(state, index) {
        work::spend(state, cost::BEREAVED);
        slice::inherit(state, index);
    }
    !orphaned || orphan(state, machine, index, holder)
}

/// One that waits for a reply of the dead gets `Dead`; the call of one that waits until the dead
/// accepts begins anew.
fn refuse_donor<M: Machine>(state: &mut State, machine: &mut M, donor: EnvIndex) {
    let called = state.envs.slots[donor].pending == Pending::Reply;
    transfer::end_wait(state, donor);
    if called {
        machine.context(donor.at()).answer(Error::Dead as u64, 0);
    }
    if state.envs.slots[donor].state == EnvState::Donating {
        sched::make_ready(state, machine, donor, true);
    }
}

/// A record that the dead one held is nobody's; it goes if it is a dead one's, and one that was
/// never released ends. `false`: there is no room for that.
fn orphan<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex, holder: EnvId) -> bool {
    work::spend(state, cost::BEREAVED);
    match state.envs.slots[index].state {
        EnvState::Dead => forget_orphan(state, index),
        EnvState::New => {
            if !work::room(state, cost(state, index)) {
                return false;
            }
            die(state, machine, index, 0, holder);
        }
        _ => {
            let_go_of(state, index);
            env::changed(state, index);
        }
    }
    true
}

/// Nobody holds the record any more.
fn let_go_of(state: &mut State, index: EnvIndex) {
    let holder = EnvId(core::mem::take(&mut state.published.envs[index].holder));
    if let Ok(holder) = env::lookup(state, holder) {
        holds_one_fewer(state, holder);
    }
}

/// The record of a dead one that nobody holds goes.
fn forget_orphan(state: &mut State, index: EnvIndex) {
    let_go_of(state, index);
    forget_unnamed(state, index);
}

/// The record of a dead one that nobody holds goes as soon as no other record names it as its
/// holder or as the one that it waits for: its place, and so its id, may be used again then.
pub(crate) fn forget_unnamed(state: &mut State, index: EnvIndex) {
    let env = &state.envs.slots[index];
    let named = env.children != 0 || env.donors != 0;
    let is_held = state.published.envs[index].holder != 0;
    if env.state == EnvState::Dead && !named && !is_held {
        env::forget(state, index);
    }
}

/// One environment fewer in a domain; the last one takes it with it, unless it was a visitor of one
/// that is its maker's still.
pub fn leave_domain<M: Machine>(state: &mut State, machine: &mut M, id: DomainId) {
    let index = DomainIndex::from(id);
    state.published.domains[index].envs.less(1);
    let record = &state.domains.records[index];
    if state.published.domains[index].envs == 0 && (record.maker == 0 || record.dying) {
        end_domain(state, machine, index);
    }
}

/// Ends a domain without environments, with all that is attached to it: now, as far as there is
/// room.
pub fn end_domain<M: Machine>(state: &mut State, machine: &mut M, index: DomainIndex) {
    domain::condemn(state, index, EnvId::NONE);
    if !end_piece(state, machine, index) {
        sweep::begin(state, domain::account(state, index));
    }
}

/// Ends a condemned domain without environments if there is room for what is left of it; else some
/// of that goes, and it stays.
pub(crate) fn end_piece<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: DomainIndex,
) -> bool {
    let gone = condemn_unborn(state, index)
        && work::room(state, cost::DOMAIN)
        && region::detach_all(state, index)
        && crate::net::end_domain(state, index);
    if gone {
        work::spend(state, cost::DOMAIN);
        domain::born(state, index);
        domain::end(state, machine, index);
    }
    gone
}

/// Those that were to become children of who dies here end, with all who visit them: that is the
/// sweep's. Were these all?
fn condemn_unborn(state: &mut State, index: DomainIndex) -> bool {
    while state.domains.records[index].unborn != 0 {
        if !work::room(state, cost::RECORD) {
            return false;
        }
        work::spend(state, cost::RECORD);
        let unborn = DomainIndex::from(state.domains.records[index].unborn);
        domain::born(state, unborn);
        domain::condemn(state, unborn, EnvId::NONE);
        sweep::begin(state, domain::account(state, unborn));
    }
    true
}

/// `DomainDestroy`; `None`: the caller was in it. A crowd in it ends in pieces, the caller first.
pub fn destroy_domain<M: Machine>(
    state: &mut State,
    machine: &mut M,
    cpu: CpuIndex,
    caller: EnvIndex,
    index: DomainIndex,
) -> Option<Answer> {
    domain::condemn(state, index, env::id(state, caller));
    end_condemned(state, machine, (cpu, caller), domain::account(state, index))
}

/// `AccountDestroy`: ends all that is charged to an account and to those below; `None`: the caller
/// too. What others still refer to (shared frames) stays charged; the record goes with the last
/// charge.
pub fn destroy_account<M: Machine>(
    state: &mut State,
    machine: &mut M,
    cpu: CpuIndex,
    caller: EnvIndex,
    account: AccountIndex,
) -> Option<Answer> {
    let killer = env::id(state, caller);
    work::spend(state, account::BELOW_COST * state.published.accounts.len() as u32);
    for at in (1..state.published.accounts.len()).map(AccountIndex::new) {
        if state.published.accounts[at].id != 0 && account::is_below(state, at, account) {
            account::condemn(state, at, killer);
            sweep::begin(state, at);
        }
    }
    end_condemned(state, machine, (cpu, caller), account)
}

/// Begins with what has been condemned on an account.
fn end_condemned<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (CpuIndex, EnvIndex),
    account: AccountIndex,
) -> Option<Answer> {
    sweep::begin(state, account);
    if let Some(Condemned { word, killer, .. }) = sweep::condemned(state, caller) {
        kill(state, machine, cpu, caller, word, killer);
    }
    sweep::work(state, machine, account);
    let alive = EnvIndex::from(state.sched.cpus[cpu].current) == caller;
    alive.then_some(Ok(0))
}

/// Forgets a dying account if nothing is charged to it any more; `false`: there is no room to look.
pub(crate) fn finish_account(state: &mut State, account: AccountIndex) -> bool {
    let keeps = account::keeps(state, account);
    let cost = if keeps { cost::ACCOUNT + account::KEEP_COST } else { cost::ACCOUNT };
    if !work::room(state, cost) {
        return false;
    }
    work::spend(state, cost);
    state.accounts.records[account].left.lighter = false;
    if keeps {
        account::keep_nothing(state, account);
    }
    account::finish(state, account);
    true
}

/// `EnvForget`.
pub fn forget(state: &mut State, caller: EnvIndex, id: EnvId) -> Answer {
    let (index, holder) = held(state, caller, id)?;
    if state.envs.slots[index].state != EnvState::Dead {
        return Err(Error::WrongState.into());
    }
    let word = state.published.envs[index].word;
    state.published.envs[index].holder = 0;
    forget_unnamed(state, index);
    holds_one_fewer(state, holder);
    Ok(word)
}

/// `EnvEntrust`.
pub fn entrust<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    id: EnvId,
    holder: EnvId,
) -> Answer {
    let (index, former) = held(state, caller, id)?;
    if holder.is_none() {
        return let_go(state, index, former);
    }
    let heir = env::lookup(state, holder)?;
    // A holder that does not look would keep the record, and its account, for ever.
    let takes = state.envs.slots[heir].has(FLAG_TAKES_RECORDS);
    if !takes && env::home(state, heir) != env::domain(state, caller) {
        return Err(Error::NotPermitted.into());
    }
    if state.envs.slots[heir].state == EnvState::Dead || heir == index {
        return Err(Error::WrongState.into());
    }
    state.envs.slots[heir].children += 1;
    state.published.envs[index].holder = holder.0;
    holds_one_fewer(state, former);
    env::changed(state, index);
    if matches!(state.envs.slots[index].state, EnvState::Dead | EnvState::Stopped) {
        sched::event(state, machine, heir, EVENT_CHILD);
    }
    Ok(0)
}

/// Makes a record nobody's: it goes with its environment. One that never ran keeps its maker, with
/// whom it ends.
fn let_go(state: &mut State, index: EnvIndex, holder: EnvIndex) -> Answer {
    if state.envs.slots[index].state == EnvState::New {
        return Err(Error::WrongState.into());
    }
    state.published.envs[index].holder = 0;
    holds_one_fewer(state, holder);
    if state.envs.slots[index].state == EnvState::Dead {
        forget_unnamed(state, index);
    } else {
        env::changed(state, index);
    }
    Ok(0)
}

/// A holder has let one go. A dead one may be named by nothing else.
fn holds_one_fewer(state: &mut State, holder: EnvIndex) {
    state.envs.slots[holder].children.less(1);
    forget_unnamed(state, holder);
}

/// An environment and its holder, which must be at home where the caller is: what one thread holds
/// is all its threads', and not the domain's that they visit.
fn held(state: &State, caller: EnvIndex, id: EnvId) -> Result<(EnvIndex, EnvIndex), Error> {
    let index = env::lookup(state, id)?;
    let holder = env::lookup(state, EnvId(state.published.envs[index].holder));
    match holder {
        Ok(holder) if env::home(state, holder) == env::domain(state, caller) => Ok((index, holder)),
        _ => Err(Error::NotPermitted),
    }
}
