//! Pages that programs lend to the kernel: save areas, application pages, the console's ring.
//!
//! They are pinned, so that the kernel may write to them and show them whatever becomes of the
//! entries that they were named by. Who owns a frame takes it back from here as from everybody
//! ([`crate::revoke`]): an environment goes on without its save area, and stops at its next fault;
//! its application page shows zeroes; the console has no ring.
//!
//! ```text
//!   runs nowhere ───────────────────────────────► dropped at once
//!   runs: its processor's entry code writes there ─► asked to let go of it ── way out ─► dropped
//! ```

use crate::env::Request;
use crate::index::EnvIndex;
use crate::machine::Machine;
use crate::state::State;
use crate::turns::account_of;
use crate::work::{self, cost};
use crate::{console, forgetting, frame, gate, request};
use abi::id::Frame;
use abi::published::EnvState;

/// A frame is revoked: what of it the environment at `index` has lent goes. `false`: its processor
/// has to let go of the save area first.
pub(crate) fn revoke<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: EnvIndex,
    revoked: Frame,
) -> bool {
    work::spend(state, cost::LOOK);
    console::revoke(state, index, revoked);
    if state.envs.slots[index].application == revoked {
        drop_application(state, machine, index);
    }
    if state.envs.slots[index].save != revoked {
        return true;
    }
    if state.envs.slots[index].state != EnvState::Running {
        drop_save(state, index);
        return true;
    }
    let request = match state.envs.slots[index].request {
        Request::Nothing => Request::LetGo,
        asked => asked,
    };
    request::ask(state, machine, index, request);
    false
}

/// Unpins the save area of an environment that runs nowhere, or enters the kernel just now.
pub(crate) fn drop_save(state: &mut State, index: EnvIndex) {
    gate::close(state, index);
    let env = &mut state.envs.slots[index];
    let save = core::mem::take(&mut env.save);
    (env.save_address, env.queue) = (0, 0);
    env.prepared = false;
    if save.0 != 0 {
        frame::unpin(state, save);
    }
}

/// Shows zeroes instead of the application page, and unpins it.
pub(crate) fn drop_application<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) {
    let page = core::mem::take(&mut state.envs.slots[index].application);
    if page.0 != 0 {
        machine.application_page(index.at(), None);
        forgetting::note(state, account_of(state, index));
        frame::unpin(state, page);
    }
}
