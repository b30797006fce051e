//! What a poll does for TCP: handshakes, TIME-WAIT, failures, and what has lasted too long.

use alloc::vec;
use core::net::SocketAddrV4;

use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State as EngineState};
use smoltcp::wire::IpAddress;

use super::segment::{acknowledgement, sum_is_right};
use super::{Connection, ListenerId, TcpId, TcpState, state_of};
use crate::stack::ingress::Segment;
use crate::stack::link::{Neighbours, Transmit};
use crate::stack::slab::Name;
use crate::stack::{Error, Stack};

/// Sockets kept for their buffers.
const POOL_MAX: usize = 64;
/// Microseconds that a connection closed by both sides stays, so that its last acknowledgement
/// goes out, before it is only an entry in TIME-WAIT.
const SETTLE_US: u64 = 100_000;
/// Microseconds that a connection its user has closed waits for the peer to close too.
const ORPHAN_US: u64 = 60_000_000;
/// Microseconds that a handshake may take.
const HANDSHAKE_US: u64 = 120_000_000;
/// Microseconds that a handshake may take when the listener's queue is full.
const HANDSHAKE_CROWDED_US: u64 = 3_000_000;

/// What `poll` does.
impl Stack {
    /// Is the segment one of a connection in TIME-WAIT? Then it is dealt with here.
    pub(in crate::stack) fn tcp_waits(
        &mut self,
        segment: &Segment,
        frame: &[u8],
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
        if segment.ends() && sum_is_right(frame) {
            let reply = acknowledgement(segment);
            let fill = |packet: &mut [u8]| packet.copy_from_slice(&reply);
            let counters = &mut self.counters;
            self.path.send(self.now_us, tx, neighbours, counters, (reply.len(), fill));
        }
        true
    }

    /// Makes ready for a SYN; `false`: there is no room and it must be dropped.
    pub(in crate::stack) fn tcp_opens(&mut self, segment: &Segment) -> bool {
        let Some(id) = self.tcp.listener_at(segment.port) else { return true };
        if self.tcp.find(segment.peer, segment.port).is_some() {
            return true;
        }
        self.drop_stale_handshake(id);
        let Some(listener) = self.tcp.listeners.get(id.0) else { return true };
        if listener.waiting.len() >= listener.backlog || self.tcp.connections.is_full() {
            return false;
        }
        let port = listener.port;
        let mut socket = self.fresh_socket();
        if socket.listen((IpAddress::Ipv4(segment.local), port)).is_err() {
            return false;
        }
        let handle = self.sockets.add(socket);
        self.tcp.opening = Some((id, handle, segment.peer));
        true
    }

    /// After a SYN was taken in: did it begin a connection?
    pub(in crate::stack) fn tcp_opened(&mut self) {
        let Some((id, handle, peer)) = self.tcp.opening.take() else { return };
        let socket = self.sockets.get::<Socket>(handle);
        if socket.state() != EngineState::SynReceived {
            return self.recycle(handle);
        }
        let Some(port) = self.tcp.listeners.get(id.0).map(|listener| listener.port) else { return };
        let Some(connection) = self.enter(handle, peer, port, TcpState::SynReceived) else {
            return;
        };
        if let Some(listener) = self.tcp.listeners.get_mut(id.0) {
            listener.waiting.push(connection);
        }
    }

    /// Looks at every connection: failures, time-outs, those that are over.
    pub(in crate::stack) fn tend_connections(&mut self) {
        for place in 0..self.tcp.connections.places() {
            if let Some(name) = self.tcp.connections.name_at(place) {
                self.tend(name);
            }
        }
        let connections = &self.tcp.connections;
        for place in 0..self.tcp.listeners.places() {
            let Some(name) = self.tcp.listeners.name_at(place) else { continue };
            if let Some(listener) = self.tcp.listeners.get_mut(name) {
                listener.waiting.retain(|waiting| connections.get(waiting.0).is_some());
            }
        }
    }

    /// When `tend_connections` next has something to do by the clock alone.
    pub(in crate::stack) fn tcp_deadline(&self) -> Option<u64> {
        let due = |(_, connection): (Name, &Connection)| self.due(connection);
        self.tcp.connections.iter().filter_map(due).min()
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
        let socket = self.sockets.get::<Socket>(connection.socket);
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
        self.sockets.get_mut::<Socket>(connection.socket).abort();
    }

    /// When the queue is full, the oldest handshake that takes too long makes room.
    fn drop_stale_handshake(&mut self, id: ListenerId) {
        let Some(listener) = self.tcp.listeners.get_mut(id.0) else { return };
        if listener.waiting.len() < listener.backlog {
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

    pub(super) fn enter(
        &mut self,
        socket: SocketHandle,
        peer: SocketAddrV4,
        port: u16,
        state: TcpState,
    ) -> Option<TcpId> {
        let connection = Connection {
            socket,
            peer,
            port,
            state,
            queued: 0,
            moved_us: self.now_us,
            failure: None,
            orphan: false,
        };
        self.tcp.connections.insert(connection).map(TcpId)
    }

    fn remove(&mut self, name: Name) {
        if let Some(connection) = self.tcp.connections.remove(name) {
            self.path.highest.forget(&(connection.peer, connection.port));
            self.recycle(connection.socket);
        }
    }

    fn recycle(&mut self, handle: SocketHandle) {
        if let smoltcp::socket::Socket::Tcp(mut socket) = self.sockets.remove(handle)
            && self.tcp.pool.len() < POOL_MAX
        {
            socket.abort();
            self.tcp.pool.push(socket);
        }
    }

    pub(super) fn fresh_socket(&mut self) -> Socket<'static> {
        if let Some(mut socket) = self.tcp.pool.pop() {
            socket.set_nagle_enabled(false);
            return socket;
        }
        let buffer = |bytes| SocketBuffer::new(vec![0; bytes]);
        let mut socket =
            Socket::new(buffer(self.config.receive_bytes), buffer(self.config.send_bytes));
        socket.set_nagle_enabled(false);
        socket.set_congestion_control(CongestionControl::Reno);
        socket
    }
}

/// What an end in this state means to the user.
fn failure(before: TcpState) -> Option<Error> {
    match before {
        TcpState::SynSent => Some(Error::Refused),
        TcpState::LastAck | TcpState::TimeWait | TcpState::Closed => None,
        _ => Some(Error::Reset),
    }
}
