//! What a poll does for TCP: handshakes, TIME-WAIT, failures, and what has lasted too long.

use alloc::vec::Vec;
use core::net::SocketAddrV4;

use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State as EngineState};
use smoltcp::wire::IpAddress;

use super::alone::Alone;
use super::segment::{acknowledgement, of_a_connection};
use super::{Connection, ListenerId, Tables, TcpId, TcpState, state_of};
use crate::stack::ingress::Segment;
use crate::stack::link::{Neighbours, Transmit};
use crate::stack::slab::Name;
use crate::stack::{Config, Error, Stack, instant};

/// Sockets kept for their buffers.
const POOL_MAX: usize = 64;
/// Microseconds that a connection closed by both sides stays, so that its last acknowledgement
/// goes out, before it is only an entry in TIME-WAIT.
const SETTLE_US: u64 = 100_000;
/// Microseconds that a connection its user has closed waits for the peer to close too.
const ORPHAN_US: u64 = 60_000_000;
/// The same, in whatever state it is, where there is no room for another one: time for what was
/// lost to be sent again, after one, two and four seconds.
const ORPHAN_CROWDED_US: u64 = 8_000_000;
/// Microseconds that a handshake may take.
const HANDSHAKE_US: u64 = 120_000_000;
/// Microseconds that a handshake may take where there is no room for another one: what it takes if
/// the answer to its SYN, or the acknowledgement, has to be sent again.
const HANDSHAKE_CROWDED_US: u64 = 3_000_000;
/// Microseconds until the engine is asked again whose clock has run out and that doesn't wind it.
const UNWOUND_US: u64 = 1_000_000;

/// What `poll` does.
impl Stack {
    /// Is the segment one of a connection in TIME-WAIT? Then it is dealt with here.
    pub(in crate::stack) fn tcp_waits(
        &mut self,
        segment: &Segment,
        tx: &mut impl Transmit,
        neighbours: &impl Neighbours,
    ) -> bool {
        let key = (segment.peer, segment.port);
        if !self.tcp.waiting.contains(&key, self.now_us) {
            return false;
        }
        if segment.opens() {
            self.tcp.waiting.remove(&key);
            return false;
        }
        if segment.ends() {
            let reply = acknowledgement(segment);
            let fill = |packet: &mut [u8]| packet.copy_from_slice(&reply);
            let counters = &mut self.counters;
            self.path.send(self.now_us, tx, neighbours, counters, (reply.len(), fill));
        }
        true
    }

    /// The state of the connection that the sender of a SYN has here already.
    fn tcp_before(&self, segment: &Segment) -> Option<TcpState> {
        let TcpId(name) = self.tcp.find(segment.peer, segment.port)?;
        self.tcp.connections.get(name).map(|connection| connection.state)
    }

    /// A SYN of one that has a connection here already, which it may have forgotten: it is asked by
    /// an acknowledgement, and its reset ends the connection (RFC 5961 §4). So is who acknowledges
    /// what was never sent (RFC 9293 §3.10.7.4), where the engine believes whatever is queued. That
    /// makes the engine ask; `None`: it is nothing of that kind.
    pub(in crate::stack) fn tcp_asks(&self, segment: &Segment) -> Option<[u8; 40]> {
        let key = (segment.peer, segment.port);
        let sent = if segment.opens() {
            self.path.highest.of(&key)?
        } else if segment.acknowledges_anything() && !segment.resets() {
            self.path.highest.short_of(&key, segment.acknowledges)?
        } else {
            return None;
        };
        match self.tcp_before(segment)? {
            TcpState::SynSent | TcpState::SynReceived | TcpState::Closed => None,
            _ => Some(of_a_connection(segment, sent)),
        }
    }

    /// Makes ready for a SYN; `false`: there is no room and it must be dropped.
    pub(in crate::stack) fn tcp_opens(&mut self, segment: &Segment) -> bool {
        let Some(id) = self.tcp.listener_at(segment.port) else { return true };
        // One that has ended, and waits for its user to see it, keeps its peer from nothing.
        if self.tcp_before(segment).is_some_and(|state| state != TcpState::Closed) {
            return true;
        }
        self.drop_stale_handshake(id);
        self.shorten_time_wait();
        let Some(listener) = self.tcp.listeners.get(id.0) else { return true };
        if listener.waiting.len() >= listener.backlog || self.tcp.connections.is_full() {
            return false;
        }
        let port = listener.port;
        let Some(mut alone) = self.fresh_socket() else { return false };
        if alone.socket_mut().listen((IpAddress::Ipv4(segment.local), port)).is_err() {
            return false;
        }
        self.tcp.opening = Some((id, alone, segment.peer));
        true
    }

    /// After a SYN was taken in: did it begin a connection?
    pub(in crate::stack) fn tcp_opened(&mut self) {
        let Some((id, alone, peer)) = self.tcp.opening.take() else { return };
        if alone.socket().state() != EngineState::SynReceived {
            return self.recycle(alone);
        }
        let Some(port) = self.tcp.listeners.get(id.0).map(|listener| listener.port) else { return };
        let Some(connection) = self.enter(alone, peer, port, TcpState::SynReceived) else {
            return;
        };
        if let Some(listener) = self.tcp.listeners.get_mut(id.0) {
            listener.waiting.push(connection);
        }
    }

    /// Makes the connections busy whose time has come.
    pub(in crate::stack) fn wake_connections(&mut self) {
        if self.tcp.due_us.is_none_or(|due| due > self.now_us) {
            return;
        }
        for place in 0..self.tcp.connections.places() {
            let Some(name) = self.tcp.connections.name_at(place) else { continue };
            let due = self.tcp.connections.get(name).and_then(|connection| connection.due_us);
            if due.is_some_and(|due| due <= self.now_us) {
                self.tcp.make_busy(name);
            }
        }
        self.tcp.due_us = self.tcp.connections.iter().filter_map(idle_due).min();
    }

    /// Looks at every busy connection: failures, time-outs, those that are over, and those for
    /// which there is nothing more to do now.
    pub(in crate::stack) fn tend_connections(&mut self) {
        for at in 0..self.tcp.busy.len() {
            let name = self.tcp.busy[at];
            self.tend(name);
            self.renew_due(name);
        }
        let Tables { busy, connections, due_us, .. } = &mut self.tcp;
        busy.retain(|name| {
            let Some(connection) = connections.get_mut(*name) else { return false };
            // The engine says 0 for "at once".
            connection.busy = connection.due_us == Some(0);
            if !connection.busy {
                *due_us = [*due_us, connection.due_us].into_iter().flatten().min();
            }
            connection.busy
        });
    }

    /// When `poll` next has something to do for connections.
    pub(in crate::stack) fn tcp_deadline(&mut self) -> Option<u64> {
        for at in 0..self.tcp.busy.len() {
            self.renew_due(self.tcp.busy[at]);
        }
        self.tcp.due_us = self.tcp.connections.iter().filter_map(idle_due).min();
        self.tcp.connections.iter().filter_map(|(_, connection)| connection.due_us).min()
    }

    /// Finds out when a connection has something to do.
    fn renew_due(&mut self, name: Name) {
        let Some(connection) = self.tcp.connections.get(name) else { return };
        let engine = self.interface.poll_at(instant(self.now_us), &connection.alone.set);
        let engine = engine.map(|at| u64::try_from(at.total_micros()).unwrap_or(0));
        // In FIN-WAIT-2 the engine doesn't stop the clock of its probes of a window of 0, nor does
        // it wind it. What it has to do at once (0) it does.
        let unwound = |at: u64| at > 0 && at <= connection.asked_us;
        let later = connection.asked_us + UNWOUND_US;
        let engine = engine.map(|at| if unwound(at) { later } else { at });
        let due = [engine, self.due(connection)].into_iter().flatten().min();
        if let Some(connection) = self.tcp.connections.get_mut(name) {
            connection.due_us = due;
        }
    }

    /// When the state that a connection is in has lasted too long.
    fn due(&self, connection: &Connection) -> Option<u64> {
        let patience = match connection.state {
            TcpState::TimeWait if connection.orphan => SETTLE_US,
            TcpState::FinWait2 if connection.orphan => ORPHAN_US,
            TcpState::SynSent | TcpState::SynReceived => HANDSHAKE_US,
            TcpState::FinWait1 | TcpState::Closing | TcpState::LastAck => self.config.patience_us,
            _ if connection.queued > 0 => self.config.patience_us,
            _ => return None,
        };
        Some(connection.moved_us + patience)
    }

    fn tend(&mut self, name: Name) {
        let now_us = self.now_us;
        let Some(connection) = self.tcp.connections.get_mut(name) else { return };
        let unread = connection.alone.socket().recv_queue();
        // What comes behind a close will not be read: its sender is not to wait for room here
        // (RFC 1122 §4.2.2.13).
        if connection.orphan && unread > 0 {
            connection.alone.socket_mut().abort();
        }
        let socket = connection.alone.socket();
        let (before, now) = (connection.state, state_of(socket.state()));
        let queued = socket.send_queue();
        // The engine has a reset to send as long as a closed socket knows its peer.
        let settled = now == TcpState::Closed && socket.remote_endpoint().is_none();
        if before != now || connection.queued != queued {
            connection.moved_us = now_us;
        }
        connection.state = now;
        connection.queued = queued;
        if before != now && now == TcpState::Closed {
            connection.failure = connection.failure.or(failure(before));
            // A handshake that failed was never anybody's.
            connection.orphan |= before == TcpState::SynReceived;
        }

        let Some(connection) = self.tcp.connections.get(name) else { return };
        if settled && connection.orphan {
            self.remove(name);
        } else if self.due(connection).is_some_and(|due| due <= now_us) {
            self.give_up(name);
        }
    }

    fn give_up(&mut self, name: Name) {
        let Some(connection) = self.tcp.connections.get_mut(name) else { return };
        if connection.state == TcpState::TimeWait {
            let key = (connection.peer, connection.port);
            self.tcp.waiting.insert(key, self.now_us);
            return self.remove(name);
        }
        connection.failure = Some(Error::TimedOut);
        connection.alone.socket_mut().abort();
    }

    /// When the queue or the table is full, the oldest handshake that takes too long makes room.
    fn drop_stale_handshake(&mut self, id: ListenerId) {
        let Some(listener) = self.tcp.listeners.get_mut(id.0) else { return };
        if listener.waiting.len() < listener.backlog && !self.tcp.connections.is_full() {
            return;
        }
        let stale = listener.waiting.iter().position(|waiting| {
            self.tcp.connections.get(waiting.0).is_none_or(|connection| {
                connection.state == TcpState::SynReceived
                    && self.now_us.saturating_sub(connection.moved_us) >= HANDSHAKE_CROWDED_US
            })
        });
        if let Some(at) = stale {
            let TcpId(name) = listener.waiting.remove(at);
            self.remove(name);
        }
    }

    /// When the table is full, the connection that has been in TIME-WAIT for longest goes where
    /// it takes no place of it: whoever closes first and often would drop every SYN else. If there
    /// is none, the one goes that its user has closed and that has not gone on for longest: its
    /// peer may have gone, or does as if it had. What it sends yet is answered by a reset.
    fn shorten_time_wait(&mut self) {
        if !self.tcp.connections.is_full() {
            return;
        }
        let now_us = self.now_us;
        let ended = self.longest(|connection| connection.state == TcpState::TimeWait);
        let stalls = |connection: &Connection| now_us >= connection.moved_us + ORPHAN_CROWDED_US;
        if let Some(name) = ended {
            self.give_up(name);
        } else if let Some(name) = self.longest(stalls) {
            self.remove(name);
        }
    }

    /// Of the connections that their users have closed, and that are so, the one that has been as
    /// it is for longest.
    fn longest(&self, is_so: impl Fn(&Connection) -> bool) -> Option<Name> {
        let closed = self.tcp.connections.iter().filter(|(_, connection)| connection.orphan);
        let closed = closed.filter(|(_, connection)| is_so(connection));
        closed.min_by_key(|(_, connection)| connection.moved_us).map(|(name, _)| name)
    }

    pub(super) fn enter(
        &mut self,
        alone: Alone,
        peer: SocketAddrV4,
        port: u16,
        state: TcpState,
    ) -> Option<TcpId> {
        let connection = Connection {
            alone,
            peer,
            port,
            busy: false,
            due_us: None,
            asked_us: 0,
            state,
            queued: 0,
            moved_us: self.now_us,
            failure: None,
            orphan: false,
        };
        let name = self.tcp.connections.insert(connection)?;
        self.tcp.names.insert((peer, port), name);
        self.tcp.make_busy(name);
        Some(TcpId(name))
    }

    fn remove(&mut self, name: Name) {
        let Some(connection) = self.tcp.connections.remove(name) else { return };
        let key = (connection.peer, connection.port);
        // Its peer may have another one by now.
        if self.tcp.names.get(&key) == Some(&name) {
            self.tcp.names.remove(&key);
            self.path.highest.forget(&key);
        }
        let listener = self.tcp.listener_at(connection.port);
        if let Some(listener) = listener.and_then(|id| self.tcp.listeners.get_mut(id.0)) {
            listener.waiting.retain(|waiting| waiting.0 != name);
        }
        self.recycle(connection.alone);
    }

    fn recycle(&mut self, mut alone: Alone) {
        if self.tcp.pool.len() < POOL_MAX && self.tcp.pool.try_reserve(1).is_ok() {
            alone.socket_mut().abort();
            self.tcp.pool.push(alone);
        }
    }

    /// A socket that does nothing yet; `None`: there is no memory for its buffers.
    pub(super) fn fresh_socket(&mut self) -> Option<Alone> {
        let mut alone = match self.tcp.pool.pop() {
            Some(alone) => alone,
            None => {
                let Config { receive_bytes, send_bytes, .. } = self.config;
                let buffer = |bytes| Some(SocketBuffer::new(zeros(bytes)?));
                Alone::new(Socket::new(buffer(receive_bytes)?, buffer(send_bytes)?))
            }
        };
        let socket = alone.socket_mut();
        socket.set_nagle_enabled(false);
        // A new one, also in the place of one that has learnt what another connection could bear.
        socket.set_congestion_control(CongestionControl::Reno);
        Some(alone)
    }
}

/// So many zeros, if there is memory.
fn zeros(bytes: usize) -> Option<Vec<u8>> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(bytes).ok()?;
    zeros.resize(bytes, 0);
    Some(zeros)
}

/// When a connection that isn't busy has something to do.
fn idle_due((_, connection): (Name, &Connection)) -> Option<u64> {
    connection.due_us.filter(|_| !connection.busy)
}

/// What an end in this state means to the user.
fn failure(before: TcpState) -> Option<Error> {
    match before {
        TcpState::SynSent => Some(Error::Refused),
        TcpState::LastAck | TcpState::TimeWait | TcpState::Closed => None,
        _ => Some(Error::Reset),
    }
}
