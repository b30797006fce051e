//! An environment moves into a domain that another program has built for it.
//!
//! `exec` of a set-id program is made of this.
//!
//! The builder names the guest and an environment that it has prepared in there (`DomainSet`,
//! `Property::Admits`). The guest brings its id, its holder, its children, its slices, what was
//! posted to it, its domain's groups beyond the list, and of the regions that its domain is
//! attached to those that it has passed there (`RegionPass`). Everything else is the prepared
//! environment's: where it begins, with what registers, its save area, its entries, its guard. So
//! nothing that the guest could say decides what runs in the new domain.
//!
//! ```text
//!   guest (pid)     ── id, holder, children, slices, posted bits, groups ──┐
//!                                                                          ├─► guest, in the new
//!   prepared (New)  ── context, pages, entries, flags, guard ──────────────┘   domain
//! ```

use crate::env::Env;
use crate::index::{DomainIndex, EnvIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::{
    create, death, domain, env, forgetting, frame, gate, lent, predicate, principal, sched, sleep,
    turns,
};
use abi::id::EnvId;

/// Moves the environment at `guest` into the domain at `to`, in place of the one at `prepared`.
/// All has been checked ([`principal::admitted`]).
pub(crate) fn arrive<M: Machine>(
    state: &mut State,
    machine: &mut M,
    guest: EnvIndex,
    to: DomainIndex,
    prepared: EnvIndex,
) {
    let from = env::domain(state, guest);
    let posted = create::waiting(state, machine, guest);
    predicate::clear(state, machine, guest);
    death::drop_pages(state, machine, guest);
    state.envs.slots[guest].timer = 0;
    sleep::set_alarm(state, guest);
    drop_leaving(state, machine, prepared);
    take_over(state, machine, guest, prepared);
    principal::bring_groups(state, from.into(), to);
    env::set_domain(state, guest, domain::id(state, to));
    state.published.domains[to].envs += 1;
    domain::built(state, to);
    principal::moved(state, from.into(), to);
    principal::admission_over(state, to);
    create::wait_still(state, machine, guest, posted);
    machine.vector_init(state.envs.slots[guest].vector);
    sched::turns_changed(state, guest);
    env::changed(state, guest);
    // It has been counted in the domain, which therefore lasts.
    death::die(state, machine, prepared, 0, EnvId::NONE);
    death::leave_domain(state, machine, from);
}

/// What is being revoked does not arrive: the revocation may have passed the guest already, on its
/// way to the one at `prepared`.
fn drop_leaving<M: Machine>(state: &mut State, machine: &mut M, prepared: EnvIndex) {
    let Env { save, application, .. } = state.envs.slots[prepared];
    if save.0 != 0 && frame::is_leaving(state, save) {
        lent::drop_save(state, prepared);
    }
    if application.0 != 0 && frame::is_leaving(state, application) {
        lent::drop_application(state, machine, prepared);
    }
}

/// Gives what the one at `prepared` was set to be to the one at `guest`.
fn take_over<M: Machine>(state: &mut State, machine: &mut M, guest: EnvIndex, prepared: EnvIndex) {
    gate::close(state, prepared);
    let source = &mut state.envs.slots[prepared];
    let Env { entries, flags, guard, save, save_address, queue, application, .. } = *source;
    // Its pages, with their pins, are the guest's from now on.
    (source.save, source.application) = (Default::default(), Default::default());
    (source.save_address, source.queue) = (0, 0);
    machine.application_page(prepared.at(), None);
    if application.0 != 0 {
        machine.application_page(guest.at(), Some(application));
        forgetting::note(state, turns::account_of(state, guest));
    }
    let target = &mut state.envs.slots[guest];
    (target.entries, target.flags, target.guard) = (entries, flags, guard);
    (target.save, target.save_address, target.queue) = (save, save_address, queue);
    (target.application, target.prepared) = (application, false);
    let context = *machine.context(prepared.at());
    *machine.context(guest.at()) = context;
    gate::close(state, guest);
}
