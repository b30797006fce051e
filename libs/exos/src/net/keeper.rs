//! The keeper of sockets that processes share: its own stack on one side, regions on the other.
//!
//! A keeper is a fork of the process whose sockets became shared, without the program: the stack
//! came along by the copy, and the filters are redirected to its ring. It lives as long as somebody
//! uses what it keeps, and until what was written is sent. Nobody waits for it with anything held,
//! and it waits for nobody: it looks, moves what can be moved, and sleeps.
//!
//! ```text
//!  hand_over: entries, regions, copy ──► begin: ring, filters, late frames ──► serve ──► exit
//! ```

use abi::id::RegionId;
use abi::limits::REGION_FRAMES;
use abi::predicate::Operator;
use abi::region::WordAt;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use unix::Errno;
use unix::ring::PIPE_BUF;
use xio::stack::{Error, ListenerId, Receive, TcpId, TcpState, UdpId};

use super::append;
use super::kept::{
    CONNECTING, DATAGRAM_HEAD, ENDED, FAILED, Head, Kept, Kind, OPEN, STATUS, attach,
    fill_datagram, head, look, next_datagram, pass, reading,
};
use super::offers::{OFFER, make_offered};
use super::transfers::DATAGRAM;
use super::{Inner, Net, errno};
use crate::capabilities::FAMILY_SLOT;
use crate::fs::pipe::{READER, RING, WRITER};
use crate::fs::region::{self, Region};
use crate::process::Process;
use crate::wait::Wait;
use xok::call;

/// Nanoseconds between looks at users who may have died, where there are too many to wait for.
const LOOK_NS: u64 = 50_000_000;
/// What a socket's region is made of.
pub(super) const ANY_FRAMES: [u32; REGION_FRAMES] = [u32::MAX; REGION_FRAMES];
/// Bytes moved at a time.
const CHUNK: usize = PIPE_BUF as usize;

/// What of the stack is kept.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// A connection.
    Stream(TcpId),
    /// A listener.
    Listener(ListenerId),
    /// A datagram socket.
    Datagrams(UdpId),
}

/// One kept socket.
#[derive(Debug)]
pub struct Entry {
    what: What,
    port: u16,
    kept: Kept,
    status: u64,
    /// No more comes in, no more goes out: then we have left the region.
    over: (bool, bool),
    /// The own stream was ended behind what was written.
    shut: bool,
    /// The listener's region and the position of the offer, as long as nobody has accepted: then we
    /// are a user ourselves.
    offered: Option<(RegionId, u64)>,
    /// What the bell's word was when we looked last.
    heard: u64,
}

impl Entry {
    /// One that was just handed over or accepted.
    pub fn new(what: What, port: u16, kept: Kept, status: u64) -> Entry {
        let (over, shut, offered, heard) = ((false, false), false, None, 0);
        Entry { what, port, kept, status, over, shut, offered, heard }
    }

    fn rx(&self) -> Region {
        Region { id: self.kept.rx, role: WRITER }
    }

    fn tx(&self) -> Region {
        Region { id: self.kept.tx, role: READER }
    }

    fn join(&self) -> Result<(), Errno> {
        attach(self.kept.rx, WRITER)?;
        if self.kept.kind == Kind::Listener { Ok(()) } else { attach(self.kept.tx, READER) }
    }

    /// Leaves the region in which users find what comes: they see the end.
    fn end_in(&mut self) {
        if !core::mem::replace(&mut self.over.0, true) {
            self.rx().detach();
        }
    }

    /// Leaves the one in which they put what goes: they see that nobody reads it.
    fn end_out(&mut self) {
        if !core::mem::replace(&mut self.over.1, true) && self.kept.kind != Kind::Listener {
            self.tx().detach();
        }
    }

    fn set_status(&mut self, status: u64) {
        self.status = status;
        let write = [WordAt { offset: STATUS, value: status }];
        // The region is there for as long as we are in it.
        let _ = self.rx().copy_in(0, &[], &[], &write);
    }

    fn fail(&mut self, error: Error) {
        if !self.over.0 {
            self.set_status(FAILED | u64::from(errno(error).0) << 8);
        }
        self.end_in();
        self.end_out();
    }

    /// Where users are counted, and how many of them are ourselves.
    fn counted(&self) -> (RegionId, u16, u64) {
        match self.kept.kind {
            Kind::Listener => (self.kept.rx, READER, 0),
            _ => (self.kept.tx, WRITER, u64::from(self.offered.is_some())),
        }
    }

    fn is_used(&self) -> bool {
        let (region, role, ourselves) = self.counted();
        region::attached(region, role) > ourselves || self.offered.is_some()
    }

    fn head_in(&self) -> Option<Head> {
        head(self.rx()).ok()
    }

    fn room(&self) -> u64 {
        self.head_in().map_or(0, |head| RING.free(head.head, head.tail))
    }

    /// Nobody but us writes there.
    fn append(&self, bytes: &[u8]) {
        if let Some(head) = self.head_in() {
            let _ = append::append(self.kept.rx, head.head, bytes);
        }
    }
}

/// Frames that reached the process after it was copied.
struct Late(VecDeque<Vec<u8>>);

impl Receive for Late {
    fn peek(&mut self) -> Option<&[u8]> {
        self.0.front().map(Vec::as_slice)
    }

    fn release(&mut self) {
        self.0.pop_front();
    }
}

struct Keeper {
    inner: Inner,
    entries: Vec<Entry>,
    /// Closed by their users, not yet by TCP.
    closing: Vec<Entry>,
}

/// The life of a keeper.
pub fn run(process: &mut Process) -> ! {
    let kept = process.net.take().and_then(|net: Rc<Net>| {
        let (entries, way) = net.handed.take()?;
        Some((net.inner.take()?, entries, way))
    });
    if let Some((inner, entries, way)) = kept {
        let mut keeper = Keeper { inner, entries, closing: Vec::new() };
        if keeper.begin(way).is_ok() {
            keeper.serve();
        }
    }
    call::exit(0)
}

impl Keeper {
    /// Makes the copy a station of its own.
    fn begin(&mut self, way: RegionId) -> Result<(), Errno> {
        attach(way, READER)?;
        for entry in &self.entries {
            entry.join()?;
        }
        let network = &mut self.inner.network;
        network.port.renew().map_err(|_| Errno::ENOBUFS)?;
        for filter in self.inner.ports.filters() {
            call::filter_ring(FAMILY_SLOT, filter, network.port.ring.id())
                .map_err(|_| Errno::EACCES)?;
        }
        // From here on packets come to us; those that came before are brought.
        let order = Region { id: way, role: READER };
        order.copy_in(0, &[], &[], &[WordAt { offset: STATUS, value: OPEN }])?;
        network.poll();
        let mut late = Late(VecDeque::new());
        loop {
            let ended = reading(way).no_writer();
            let head = head(order)?;
            if let Some((len, _)) = next_datagram(order, &head)? {
                let mut frame = vec![0; len];
                look(order, head.tail + DATAGRAM_HEAD as u64, &mut frame)?;
                pass(order, head.tail, head.tail + (DATAGRAM_HEAD + len) as u64)?;
                late.0.push_back(frame);
            } else if ended {
                break;
            } else {
                let mut wait = Wait::new();
                reading(way).readable_terms(&mut wait, head.tail);
                let _ = call::predicate_set(wait.atoms());
                let _ = call::sleep(xok::clock::now_ns() + LOOK_NS, 0, 0, 0);
            }
        }
        order.detach();
        network.take_in(&mut late);
        Ok(())
    }

    fn serve(&mut self) {
        // Were bells looked at before everything was?
        let mut listened = false;
        loop {
            xok::upcall::take_pending();
            self.inner.network.poll();
            let mut moved = false;
            let mut accepted = Vec::new();
            for entry in &mut self.entries {
                moved |= pump(&mut self.inner, entry, &mut accepted);
            }
            moved |= !accepted.is_empty();
            self.entries.append(&mut accepted);
            moved |= self.let_go();
            self.inner.ports.drop_unused(&self.inner.network.stack);
            self.inner.network.flush();
            let stack = &self.inner.network.stack;
            let sent = stack.tcp_flushed() && stack.unresolved().next().is_none();
            if sent {
                self.closing.drain(..).for_each(|mut entry| {
                    entry.end_in();
                    entry.end_out();
                });
                if self.entries.is_empty() {
                    return;
                }
            }
            if moved {
                listened = false;
            } else if !core::mem::replace(&mut listened, true) {
                self.listen();
            } else {
                self.sleep();
                listened = false;
            }
        }
    }

    /// Looks at the bells: who rings from now on ends the next sleep.
    fn listen(&mut self) {
        for entry in self.entries.iter_mut().filter(|entry| !entry.over.0) {
            entry.heard = entry.head_in().map_or(entry.heard, |head| head.bell);
        }
    }

    /// Closes what nobody uses any more and everything written to which has been taken.
    fn let_go(&mut self) -> bool {
        let before = self.entries.len();
        let mut at = 0;
        while let Some(entry) = self.entries.get(at) {
            if entry.is_used() || !is_taken(entry) {
                at += 1;
                continue;
            }
            let mut entry = self.entries.remove(at);
            close(&mut self.inner, &entry);
            if matches!(entry.what, What::Listener(_)) {
                self.withdraw(entry.kept.rx);
            }
            if matches!(entry.what, What::Stream(_)) {
                self.closing.push(entry);
                continue;
            }
            // The last user waits for this: the port is free again.
            self.inner.ports.drop_unused(&self.inner.network.stack);
            entry.end_in();
            entry.end_out();
        }
        self.entries.len() != before
    }

    /// The listener has gone: what it offered and nobody took is reset.
    fn withdraw(&mut self, listener: RegionId) {
        let (gone, rest) = core::mem::take(&mut self.entries)
            .into_iter()
            .partition(|entry| entry.offered.is_some_and(|(region, _)| region == listener));
        self.entries = rest;
        for mut entry in Vec::into_iter(gone) {
            if let What::Stream(id) = entry.what {
                // It may have ended by itself.
                let _ = self.inner.network.stack.tcp_abort(id);
                self.inner.ports.release(true, entry.port);
            }
            taken(&mut entry);
            entry.end_in();
            entry.end_out();
        }
    }

    fn sleep(&mut self) {
        let mut wait = Wait::new();
        for entry in &self.entries {
            let (region, role, ourselves) = entry.counted();
            // Without users it waits for its peer alone: that they have gone ends no sleep again.
            if entry.offered.is_none() && entry.is_used() {
                let users = region::attached_address(region, role);
                wait.memory(users, Operator::Equal, ourselves).end_term();
            }
            if !entry.over.0 {
                entry.kept.rings(&mut wait, entry.heard);
            }
        }
        let (deadline, events) = self.inner.network.deadline();
        let mut until = deadline.map_or(0, |at| at.saturating_mul(1000).max(1));
        let complete = call::predicate_set(wait.atoms()).is_ok() && !wait.overflowed();
        if !complete {
            let look = xok::clock::now_ns() + LOOK_NS;
            until = if until == 0 { look } else { until.min(look) };
        }
        // Whatever ends the sleep, the loop looks again.
        let _ = call::sleep(until, u64::MAX, events, 0);
    }
}

/// Has all that users wrote been taken over by the stack, or can it not be? Nonsense cannot, and of
/// datagrams nothing that is less than the head of one.
fn is_taken(entry: &Entry) -> bool {
    let least = if entry.kept.kind == Kind::Datagrams { DATAGRAM_HEAD as u64 } else { 1 };
    entry.kept.kind == Kind::Listener
        || entry.over.1
        || entry.status == CONNECTING
        || head(entry.tx()).map_or(true, |head| RING.used(head.head, head.tail) < least)
}

/// Gives the stack's part back.
fn close(inner: &mut Inner, entry: &Entry) {
    let stack = &mut inner.network.stack;
    // What users did not read must not look delivered (RFC 9293 §3.10.4).
    let unread =
        !entry.over.0 && entry.head_in().is_some_and(|head| RING.used(head.head, head.tail) > 0);
    let closed = match entry.what {
        What::Stream(id) if unread => stack.tcp_abort(id),
        What::Stream(id) => stack.tcp_close(id),
        What::Listener(id) => stack.tcp_unlisten(id),
        What::Datagrams(id) => stack.udp_close(id),
    };
    // They are there: nobody else has the names.
    let _ = closed;
    inner.ports.release(!matches!(entry.what, What::Datagrams(_)), entry.port);
}

/// An offer was accepted: its users are others now.
fn taken(entry: &mut Entry) {
    if entry.offered.take().is_some() {
        Region { id: entry.kept.rx, role: READER }.detach();
        Region { id: entry.kept.tx, role: WRITER }.detach();
    }
}

/// Moves what can be moved; whether anything could.
fn pump(inner: &mut Inner, entry: &mut Entry, accepted: &mut Vec<Entry>) -> bool {
    match entry.what {
        What::Stream(id) => {
            if entry.offered.is_some_and(|(region, at)| is_past(region, at)) {
                taken(entry);
            }
            if entry.status == CONNECTING && !is_connected(inner, entry, id) {
                return false;
            }
            let received = receive(inner, entry, id);
            send(inner, entry, id) | received
        }
        What::Listener(id) => {
            while entry.room() >= OFFER as u64 {
                let Some(fresh) = offer(inner, entry, id) else { break };
                accepted.push(fresh);
            }
            false
        }
        What::Datagrams(id) => {
            let received = receive_datagrams(inner, entry, id);
            send_datagrams(inner, entry, id) | received
        }
    }
}

/// Has somebody moved the listener's tail past the offer at `position`?
fn is_past(listener: RegionId, position: u64) -> bool {
    head(Region { id: listener, role: WRITER }).is_ok_and(|head| head.tail > position)
}

fn is_connected(inner: &mut Inner, entry: &mut Entry, id: TcpId) -> bool {
    match inner.network.stack.tcp_state(id) {
        Some(TcpState::SynSent) => false,
        Some(TcpState::Closed) | None => {
            let failure = inner.network.stack.tcp_failure(id);
            entry.fail(failure.unwrap_or(Error::NotConnected));
            entry.status != CONNECTING
        }
        Some(_) => {
            entry.set_status(OPEN);
            true
        }
    }
}

/// From the stack to users.
fn receive(inner: &mut Inner, entry: &mut Entry, id: TcpId) -> bool {
    let mut buffer = [0; CHUNK];
    let mut moved = false;
    while !entry.over.0 {
        let room = entry.room().min(CHUNK as u64) as usize;
        if room == 0 {
            break;
        }
        match inner.network.stack.tcp_receive(id, &mut buffer[..room]) {
            Ok(0) => {
                entry.set_status(ENDED);
                entry.end_in();
            }
            Ok(count) => {
                entry.append(&buffer[..count]);
                moved = true;
            }
            Err(Error::WouldBlock) => break,
            Err(error) => entry.fail(error),
        }
    }
    moved
}

/// From users to the stack.
fn send(inner: &mut Inner, entry: &mut Entry, id: TcpId) -> bool {
    let mut buffer = [0; CHUNK];
    let mut moved = false;
    while !entry.over.1 && !entry.shut {
        let Ok(head) = head(entry.tx()) else { break };
        let used = RING.used(head.head, head.tail).min(CHUNK as u64) as usize;
        if used == 0 {
            if head.shut {
                entry.shut = true;
                // It may have been reset meanwhile.
                let _ = inner.network.stack.tcp_shutdown(id);
                moved = true;
            }
            break;
        }
        if look(entry.tx(), head.tail, &mut buffer[..used]).is_err() {
            break;
        }
        match inner.network.stack.tcp_send(id, &buffer[..used]) {
            Ok(count) => {
                moved = true;
                // Nobody but us reads there.
                let _ = pass(entry.tx(), head.tail, head.tail + count as u64);
            }
            Err(Error::WouldBlock) => break,
            Err(error @ (Error::Reset | Error::Refused | Error::TimedOut)) => entry.fail(error),
            Err(_) => entry.end_out(),
        }
    }
    moved
}

/// Offers a connection that waits at a listener, if there is one.
fn offer(inner: &mut Inner, listener: &Entry, id: ListenerId) -> Option<Entry> {
    let stack = &mut inner.network.stack;
    let connection = stack.tcp_accept(id).ok()?;
    let (peer, local) = (stack.tcp_peer(connection)?, stack.tcp_local(connection)?);
    let made = make_offered().and_then(|(rx, tx, token)| {
        let own = Kept { kind: Kind::Stream, rx, tx, peer, local, ..listener.kept };
        let mut entry = Entry::new(What::Stream(connection), listener.port, own, OPEN);
        own.join()?;
        entry.join()?;
        entry.set_status(OPEN);
        let position = head(listener.rx())?.head;
        append::append(listener.kept.rx, position, &own.offer(token))?;
        entry.offered = Some((listener.kept.rx, position));
        Ok(entry)
    });
    if made.is_err() {
        let _ = inner.network.stack.tcp_abort(connection);
        return None;
    }
    inner.ports.share(listener.port);
    made.ok()
}

/// The two regions of a socket, by the name that relatives of one user have.
pub fn make_pair() -> Result<(RegionId, RegionId), Errno> {
    Ok((make_region()?, make_region()?))
}

/// One of them.
pub fn make_region() -> Result<RegionId, Errno> {
    call::region_alloc(FAMILY_SLOT, &ANY_FRAMES).map_err(|_| Errno::ENOBUFS)
}

fn receive_datagrams(inner: &mut Inner, entry: &mut Entry, id: UdpId) -> bool {
    let (mut bytes, mut record) = ([0; DATAGRAM], [0; DATAGRAM]);
    let mut moved = false;
    while entry.room() >= DATAGRAM as u64 {
        let received = inner.network.stack.udp_receive(id, &mut bytes);
        let Ok((len, from)) = received else { break };
        entry.append(fill_datagram(&mut record, &bytes[..len.min(bytes.len())], from));
        moved = true;
    }
    moved
}

fn send_datagrams(inner: &mut Inner, entry: &mut Entry, id: UdpId) -> bool {
    let mut bytes = [0; DATAGRAM];
    let mut moved = false;
    loop {
        let Ok(head) = head(entry.tx()) else { return moved };
        let Ok(Some((len, to))) = next_datagram(entry.tx(), &head) else { return moved };
        if look(entry.tx(), head.tail + DATAGRAM_HEAD as u64, &mut bytes[..len]).is_err() {
            return moved;
        }
        if inner.network.stack.udp_send(id, &bytes[..len], to) == Err(Error::WouldBlock) {
            return moved;
        }
        // One that cannot be sent is lost, as on the way.
        let _ = pass(entry.tx(), head.tail, head.tail + (DATAGRAM_HEAD + len) as u64);
        moved = true;
    }
}
