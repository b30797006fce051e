//! Sending a signal to a process group: its members are found in the published pages.

use abi::id::EnvId;
use abi::published::{EnvRecord, EnvState, Table};
use unix::process_page::{MAGIC, ProcessPage};
use xok::{call, published};

/// Index of the capability over the account's processes, given by init.
pub const PROCESSES: u8 = 2;

/// Posts `signal` to the leader of a session, if it lives.
pub fn signal_leader(session: u32, signal: u8) {
    let id = EnvId(session);
    let page = published::record::<ProcessPage>(Table::ApplicationPages, id.index());
    if page.is_some_and(|page| page.magic == MAGIC && page.session == session) {
        // It may have died meanwhile, too.
        let _ = call::post(PROCESSES, id, 1 << (signal - 1));
    }
}

/// Posts `signal` to each process that says it is in `group`. The claim is the process's own; the
/// kernel checks that this server may post to it at all.
pub fn signal(group: u32, signal: u8) {
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
        if page.magic == MAGIC && page.group == group {
            // It may have died meanwhile: then nobody is left to be told.
            let _ = call::post(PROCESSES, EnvId(record.id), 1 << (signal - 1));
        }
    }
}
