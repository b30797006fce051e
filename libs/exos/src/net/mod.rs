//! IPv4 sockets: `xio`'s stack in the process's own space, made at its first socket.
//!
//! ```text
//!  calls ──► Socket ──► Net ──► xnet::Network      ring, filters, send queue: this process's own
//!             │          │
//!    fs::Description     tend: before each socket call, before each sleep, at packet events
//! ```
//! A fork child has a copy of everything but the kernel's objects, so the copy counts no more: what
//! it inherits is not connected. `exec` takes no connection along. At the end of the process what
//! was written is sent first ([`finish`]), as nobody else would send it.

pub mod address;
pub mod calls;
pub mod options;
mod ports;
pub mod ready;
pub mod socket;
mod transfers;

use abi::upcall::{EVENT_PACKET, EVENT_SENT};
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::fmt;
use unix::Errno;
use xio::stack::{Config, Error};
use xnet::Network;

use crate::process::Process;
use ports::Ports;

/// Capability slot with WRITE over the network.
pub const NETWORK_SLOT: u8 = 3;
/// Events that mean work for the stack.
pub const EVENTS: u64 = EVENT_PACKET | EVENT_SENT;
/// Bytes that a connection holds in each direction.
pub const BUFFER_BYTES: usize = 32 << 10;
/// Connections of one process.
const CONNECTIONS: usize = 128;
/// Microseconds that the end of a process waits for peers to take what was written.
const LINGER_US: u64 = 5_000_000;

/// A process's network.
pub struct Net {
    inner: RefCell<Inner>,
    /// It is a fork child's copy of its parent's.
    stale: Cell<bool>,
}

/// What is behind it.
struct Inner {
    network: Network,
    ports: Ports,
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("stale", &self.stale).finish_non_exhaustive()
    }
}

/// What a program is told of the stack's refusals.
pub fn errno(error: Error) -> Errno {
    match error {
        Error::WouldBlock => Errno::EAGAIN,
        Error::NoSuchSocket | Error::NotConnected => Errno::ENOTCONN,
        Error::PortTaken => Errno::EADDRINUSE,
        Error::BadAddress => Errno::EINVAL,
        Error::TooMany => Errno::ENOBUFS,
        Error::TooLarge => Errno::EMSGSIZE,
        Error::Refused => Errno::ECONNREFUSED,
        Error::Reset => Errno::ECONNRESET,
        Error::TimedOut => Errno::ETIMEDOUT,
    }
}

impl Net {
    /// The process's, made if it has none; `EAFNOSUPPORT` on a machine without a network.
    fn of(process: &mut Process) -> Result<Rc<Net>, Errno> {
        if let Some(net) = &process.net {
            return Ok(net.clone());
        }
        let sizes = |config| Config {
            receive_bytes: BUFFER_BYTES,
            send_bytes: BUFFER_BYTES,
            connections: CONNECTIONS,
            ..config
        };
        let network = Network::with(NETWORK_SLOT, sizes).map_err(|_| Errno::EAFNOSUPPORT)?;
        let inner = RefCell::new(Inner { network, ports: Ports::default() });
        let net = Rc::new(Net { inner, stale: Cell::new(false) });
        process.net = Some(net.clone());
        Ok(net)
    }

    fn poll(&self) {
        let Inner { network, ports } = &mut *self.inner.borrow_mut();
        network.poll();
        if network.stack.tcp_counts().0 == 0 {
            ports.drop_unused();
        }
    }

    fn flush(&self) {
        self.inner.borrow_mut().network.flush();
    }
}

/// Takes in what has arrived.
pub fn tend(process: &mut Process) {
    if let Some(net) = &process.net {
        process.events &= !EVENTS;
        net.poll();
    }
}

/// Before a sleep: sends what is queued; nanoseconds since boot at which the stack has something
/// to do (0: when a packet comes).
pub fn before_sleep(process: &mut Process) -> u64 {
    if process.events & EVENTS != 0 {
        tend(process);
    }
    let Some(net) = &process.net else { return 0 };
    net.flush();
    let due = net.inner.borrow_mut().network.deadline();
    due.map_or(0, |at| at.saturating_mul(1000).max(1))
}

/// In a fork child: the copy of the parent's network counts no more.
pub fn forget(process: &mut Process) {
    if let Some(net) = process.net.take() {
        net.stale.set(true);
    }
}

/// The end of the process, or of its program: closes its files and sees that what it wrote leaves.
pub fn finish(process: &mut Process) {
    if process.borrows_space {
        return;
    }
    let Some(net) = process.net.take() else { return };
    // Before the sockets go, and their queues with them.
    net.poll();
    net.flush();
    process.files.detach();
    let mut end = None;
    loop {
        net.poll();
        net.flush();
        let network = &mut net.inner.borrow_mut().network;
        let now_us = xok::clock::now_ns() / 1000;
        let end = *end.get_or_insert(now_us + LINGER_US);
        let sent = network.stack.tcp_flushed() && network.stack.unresolved().next().is_none();
        if sent || now_us >= end {
            return;
        }
        network.wait(Some(end));
    }
}
