//! Datagrams to a name: the file server puts them into its inbox (`unix::protocol::SocketSend`).
//!
//! The sender is not attached there. That an inbox is full is told by the server, with how many
//! operations there had been on it: as long as the published count stands there, it is full.

use abi::id::RegionId;
use abi::predicate::Operator;
use abi::published::{RegionRecord, Table};
use core::mem::offset_of;
use unix::Errno;
use xok::published;

use super::UnixSocket;
use crate::fs::memory_sockets::Inbox;
use crate::fs::pipe::READER;
use crate::fs::region;
use crate::process::Process;
use crate::wait::{Wait, sleep_until};

/// The published record of an inbox, if it is there.
fn record(inbox: &Inbox) -> Option<RegionRecord> {
    published::record::<RegionRecord>(Table::Regions, inbox.id.index())
        .filter(|record| record.id == inbox.id.0)
}

impl UnixSocket {
    /// Was the inbox full when something was last sent there, and has nothing happened since?
    /// `wait` gets "something has, or it has no owner".
    pub(super) fn is_full(&self, inbox: &Inbox, wait: Option<&mut Wait>) -> bool {
        let (id, full) = self.full.get();
        let owners = usize::from(READER);
        let stands = |one: RegionRecord| one.operations == full && one.attached[owners] > 0;
        let is_full = id == inbox.id && record(inbox).is_some_and(stands);
        if let Some(wait) = wait.filter(|_| is_full) {
            let operations = published::record_address(Table::Regions, inbox.id.index())
                + offset_of!(RegionRecord, operations) as u64;
            wait.memory(operations, Operator::NotEqual, full).end_term();
            let owners = region::attached_address(inbox.id, READER);
            wait.memory(owners, Operator::Equal, 0).end_term();
        }
        is_full
    }

    /// Sends a datagram; `sender`: pid, user and group that the receiver is told.
    pub(super) fn send_named(
        &self,
        process: &mut Process,
        inbox: &Inbox,
        (bytes, sender): (&[u8], [u32; 3]),
        nonblocking: bool,
    ) -> Result<(), Errno> {
        loop {
            let client = process.files.client_to_move(bytes.len() as u64)?;
            let full = client.socket_send(inbox, self.own_inbox(), bytes, sender)?;
            let Some(operations) = full else {
                self.full.set((RegionId::NONE, 0));
                return Ok(());
            };
            self.full.set((inbox.id, operations));
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            let mut wait = Wait::new();
            if !self.is_full(inbox, Some(&mut wait)) {
                // It has changed meanwhile. Signals are taken here all the same.
                wait.clock(0).end_term();
            }
            sleep_until(process, &wait, 0)?;
        }
    }
}
