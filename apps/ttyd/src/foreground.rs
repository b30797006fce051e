//! Sending a signal to a process group: its members are found in the published pages.

use abi::id::EnvId;
use abi::published::{EnvRecord, EnvState, Table};
use unix::process_page::{MAGIC, ProcessPage};
use unix::tty::shared::Control;
use xok::{call, published};

/// Index of the capability over all users' names, given by init.
pub const PROCESSES: u8 = 2;

/// Posts `signal` to the leader of a session, if it lives and has the terminal `mark`.
pub fn signal_leader(mark: u32, session: u32, signal: u8) {
    let id = EnvId(session);
    let page = published::record::<ProcessPage>(Table::ApplicationPages, id.index());
    if page.is_some_and(|page| has(&page, mark, session)) {
        // It may have died meanwhile, too.
        let _ = call::post(PROCESSES, id, 1 << (signal - 1));
    }
}

/// Does a process say itself that the terminal `mark` is its session's? Session and foreground in a
/// terminal's settings are the words of any program that has the terminal: they lead to no process
/// of another one.
fn has(page: &ProcessPage, mark: u32, session: u32) -> bool {
    page.magic == MAGIC && page.terminal == mark && page.session == session
}

/// Posts `signal` to each process of the terminal `mark` that says it is in the foreground there.
/// The claim is the process's own; the kernel checks that this server may post to it at all.
pub fn signal(mark: u32, state: &Control, signal: u8) {
    let group = state.foreground;
    if group == 0 || !(1..=64).contains(&signal) {
        return;
    }
    let envs = published::table(Table::Envs).count as usize;
    for index in 1..envs {
        let Some(record) = published::record::<EnvRecord>(Table::Envs, index) else { break };
        if record.id == 0 || record.state == EnvState::Dead as u32 {
            continue;
        }
        let page = published::record::<ProcessPage>(Table::ApplicationPages, index);
        let Some(page) = page else { break };
        if has(&page, mark, state.session) && page.group == group {
            // It may have died meanwhile: then nobody is left to be told.
            let _ = call::post(PROCESSES, EnvId(record.id), 1 << (signal - 1));
        }
    }
}
