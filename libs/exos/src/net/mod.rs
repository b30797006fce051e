//! IPv4 sockets: `xio`'s stack in the process's own space, made at its first socket.
//!
//! ```text
//!  calls ──► Socket ──► Net ──► xnet::Network      ring, filters, send queue: this process's own
//!             │          │
//!    fs::Description     tend: before each socket call, before each sleep, at packet events
//! ```
//! This serves sockets that one process has. Before a fork, and before an `exec` that takes sockets
//! along, all that are open go to a keeper ([`hand_over`], [`keeper`]); what every process then has
//! of them is [`kept`]. At the end of the process what was written is sent first ([`finish`]), as
//! nobody else would send it.

pub mod address;
pub mod append;
pub mod calls;
pub mod hand_over;
pub mod keeper;
pub mod kept;
pub mod offers;
pub mod options;
mod ports;
pub mod ready;
pub mod socket;
mod transfers;

use abi::capability::ALL;
use abi::id::{DomainId, RegionId};
use abi::predicate::Operator;
use abi::upcall::{EVENT_PACKET, EVENT_SENT};
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use unix::Errno;
use xio::stack::{Config, Error};
use xnet::Network;

use crate::capabilities::{FAMILY_SLOT, NETWORK_SLOT};
use crate::fs::open_file::OpenFile;
use crate::fs::pipe::READER;
use crate::fs::region;
use crate::identity;
use crate::process::Process;
use crate::wait::Wait;
use keeper::Entry;
use kept::Kept;
use ports::Ports;
use socket::State;
use xok::call::{self, OWN};

/// What that name has behind the own one.
const FAMILY: u16 = 1;
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
    /// Nothing: it is another process's by now.
    inner: RefCell<Option<Inner>>,
    /// The states of the sockets that use it, those of a vfork parent included.
    sockets: RefCell<Vec<Weak<RefCell<State>>>>,
    /// What a keeper finds in its copy, and the region by which late frames come to it.
    handed: RefCell<Option<(Vec<Entry>, RegionId)>>,
}

/// What is behind it.
struct Inner {
    network: Network,
    ports: Ports,
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("live", &self.is_live()).finish_non_exhaustive()
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
        if let Some(net) = process.net.as_ref().filter(|net| net.is_live()) {
            return Ok(net.clone());
        }
        if !identity::has_network(process) {
            return Err(Errno::EACCES);
        }
        join_family()?;
        let sizes = |config| Config {
            receive_bytes: BUFFER_BYTES,
            send_bytes: BUFFER_BYTES,
            connections: CONNECTIONS,
            ..config
        };
        let mut network = Network::with(NETWORK_SLOT, sizes).map_err(|_| Errno::EAFNOSUPPORT)?;
        network.port.guard = FAMILY_SLOT;
        let inner = RefCell::new(Some(Inner { network, ports: Ports::default() }));
        let (sockets, handed) = (RefCell::default(), RefCell::default());
        let net = Rc::new(Net { inner, sockets, handed });
        process.net = Some(net.clone());
        Ok(net)
    }

    /// Is it this process's?
    fn is_live(&self) -> bool {
        self.inner.borrow().is_some()
    }

    /// Enters a socket's state among those that use the network.
    fn enter(&self, state: &Rc<RefCell<State>>) {
        let mut sockets = self.sockets.borrow_mut();
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.push(Rc::downgrade(state));
    }

    /// States of sockets that hold something of the network.
    fn open_sockets(&self) -> Vec<Rc<RefCell<State>>> {
        let sockets = self.sockets.borrow();
        let mut open: Vec<_> = sockets.iter().filter_map(Weak::upgrade).collect();
        open.retain(|state| !matches!(*state.borrow(), State::New(_) | State::Kept(_)));
        open
    }

    /// Takes in what has arrived, if anything has or something is due; was there anything?
    fn tend(&self) -> bool {
        let news = match self.inner.try_borrow_mut().as_deref_mut() {
            Ok(Some(inner)) => inner.network.has_news(),
            _ => false,
        };
        if news {
            self.poll();
        }
        news
    }

    /// As [`tend`](Net::tend), but what is due is left to `flush`, which follows.
    fn take_news(&self) {
        if let Ok(Some(inner)) = self.inner.try_borrow_mut().as_deref_mut()
            && inner.network.has_news()
        {
            inner.network.take_news();
        }
    }

    fn poll(&self) {
        let Ok(mut inner) = self.inner.try_borrow_mut() else { return };
        if let Some(Inner { network, ports }) = &mut *inner {
            network.poll();
            ports.drop_unused(&network.stack);
        }
    }

    /// A socket has closed: another process may have its port now.
    fn drop_ports(&self) {
        if let Ok(Some(Inner { network, ports })) = self.inner.try_borrow_mut().as_deref_mut() {
            ports.drop_unused(&network.stack);
        }
    }

    fn flush(&self) {
        if let Ok(Some(inner)) = self.inner.try_borrow_mut().as_deref_mut() {
            inner.network.flush();
        }
    }

    /// Gives it up: a keeper goes on with it, or (in a fork child) the parent does.
    fn retire(&self) {
        if let Some(Inner { network, ports }) = self.inner.take() {
            ports.drop_all();
            network.port.close();
        }
        self.handed.take();
    }
}

/// Makes the name of a new family, unless the process has inherited one.
fn join_family() -> Result<(), Errno> {
    let slot = u16::from(FAMILY_SLOT);
    // Onto itself: refused if there is nothing.
    if call::capability_derive(FAMILY_SLOT, DomainId::NONE, slot, &[], ALL).is_ok() {
        return Ok(());
    }
    let made = call::capability_derive(OWN, DomainId::NONE, slot, &[FAMILY], ALL);
    made.map(|_| ()).map_err(|_| Errno::EAFNOSUPPORT)
}

/// Takes in what has arrived.
pub fn tend(process: &mut Process) {
    if let Some(net) = &process.net {
        process.events &= !EVENTS;
        // The events that were taken with it are this thread's: others may wait for what has come.
        if net.tend() && crate::lock::is_shared() {
            process.tell_others(EVENTS);
        }
    }
}

/// Before a sleep: sends what is queued; nanoseconds since boot at which the stack has something
/// to do (0: at an event), and the events at which it has.
pub fn before_sleep(process: &mut Process) -> (u64, u64) {
    if process.events & EVENT_PACKET != 0 {
        tend(process);
    }
    let Some(net) = &process.net else { return (0, 0) };
    net.flush();
    // In use: the program's memory is being copied, and what that needs is slept for.
    let Ok(mut inner) = net.inner.try_borrow_mut() else { return (0, 0) };
    let Some(Inner { network, .. }) = inner.as_mut() else { return (0, EVENTS) };
    let (due, events) = network.deadline();
    (due.map_or(0, |at| at.saturating_mul(1000).max(1)), events)
}

/// In a fork child: the copy of the parent's network counts no more.
pub fn forget(process: &mut Process) {
    if let Some(net) = process.net.take() {
        net.retire();
    }
}

/// The end of the process, or of its program: closes its files and sees that what it wrote leaves.
pub fn finish(process: &mut Process) {
    if process.borrows_space {
        return;
    }
    let last = kept_alone(process);
    let net = process.net.take().filter(|net| net.is_live());
    if let Some(net) = &net {
        // Before the sockets go, and their queues with them.
        net.poll();
        net.flush();
    }
    if net.is_some() || !last.is_empty() {
        process.files.detach();
    }
    let end = xok::clock::now_ns() / 1000 + LINGER_US;
    if let Some(net) = net {
        see_off(&net, end);
    }
    await_keepers(&last, end);
}

/// Waits until the stack has sent everything, or `end_us`.
fn see_off(net: &Net, end_us: u64) {
    loop {
        net.poll();
        net.flush();
        let mut inner = net.inner.borrow_mut();
        let Some(Inner { network, .. }) = inner.as_mut() else { return };
        let sent = network.stack.tcp_flushed() && network.stack.unresolved().next().is_none();
        if sent || xok::clock::now_ns() / 1000 >= end_us {
            return;
        }
        network.wait(Some(end_us));
    }
}

/// The shared connections of which `process` is the last user.
fn kept_alone(process: &Process) -> Vec<Kept> {
    let mut last = Vec::new();
    for description in process.files.sockets() {
        if let OpenFile::Socket(socket) = &description.file {
            last.extend(socket.kept().filter(Kept::is_last));
        }
    }
    last
}

/// Waits until keepers have sent what was written to these, or `end_us`.
fn await_keepers(last: &[Kept], end_us: u64) {
    while let Some(kept) = last.iter().find(|kept| kept.is_sending()) {
        let mut wait = Wait::new();
        let keepers = region::attached_address(kept.tx, READER);
        wait.memory(keepers, Operator::Equal, 0).end_term();
        let set = call::predicate_set(wait.atoms()).is_ok();
        if !set || xok::clock::now_ns() / 1000 >= end_us {
            return;
        }
        // Whatever ends the sleep, the loop looks again.
        let _ = call::sleep(end_us * 1000, 0, 0, 0);
    }
}
