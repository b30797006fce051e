//! TCP connections and listeners by name, around the engine's sockets.
//!
//! A connection has a socket of the engine from its SYN until it has nothing left to send or
//! receive; then its buffers go to a pool, and TIME-WAIT is a few words elsewhere. The engine is
//! asked only about connections that are busy: something happened to them, or their time has come.

mod alone;
mod segment;
mod tend;

pub use segment::{reset, sum_is_right, write_sum};

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use smoltcp::iface::SocketSet;
use smoltcp::socket::tcp::{RecvError, SendError, State as EngineState};
use smoltcp::wire::{IpAddress, IpEndpoint};

use super::ingress::Segment;
use super::slab::{Name, Slab};
use super::time_wait::{Key, TimeWait};
use super::{Error, Stack};
use alone::Alone;

/// Listeners of one stack.
const LISTENERS_MAX: usize = 64;

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TcpId(Name);

/// A port at which connections are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(Name);

/// States of RFC 9293 §3.3.2 that a connection can be seen in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TcpState {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

struct Connection {
    alone: Alone,
    peer: SocketAddrV4,
    port: u16,
    /// Is it in the list of the busy ones?
    busy: bool,
    /// When it has something to do by the clock alone.
    due_us: Option<u64>,
    /// When the engine last had nothing for it that takes a sequence number.
    asked_us: u64,
    /// The last state seen, and bytes unacknowledged then: what progress is measured by.
    state: TcpState,
    queued: usize,
    /// When either changed last.
    moved_us: u64,
    failure: Option<Error>,
    /// Its user has closed it.
    orphan: bool,
}

struct Listener {
    port: u16,
    backlog: usize,
    /// Connections not yet accepted, oldest first.
    waiting: Vec<TcpId>,
}

/// What a stack has of TCP.
pub struct Tables {
    connections: Slab<Connection>,
    names: BTreeMap<Key, Name>,
    /// Connections that something happened to since the engine last had nothing to send for them.
    busy: Vec<Name>,
    /// Those of them that the engine sends for, kept for its memory.
    sending: Vec<Name>,
    /// No connection that isn't busy has something to do by the clock before.
    due_us: Option<u64>,
    listeners: Slab<Listener>,
    waiting: TimeWait,
    pool: Vec<Alone>,
    /// The listener and socket that the SYN being taken in may use.
    opening: Option<(ListenerId, Alone, SocketAddrV4)>,
}

impl Tables {
    pub fn new(connections: usize) -> Tables {
        Tables {
            connections: Slab::new(connections),
            names: BTreeMap::new(),
            busy: Vec::new(),
            sending: Vec::new(),
            due_us: None,
            listeners: Slab::new(LISTENERS_MAX),
            waiting: TimeWait::default(),
            pool: Vec::new(),
            opening: None,
        }
    }

    fn listener_at(&self, port: u16) -> Option<ListenerId> {
        let (name, _) = self.listeners.iter().find(|(_, listener)| listener.port == port)?;
        Some(ListenerId(name))
    }

    fn find(&self, peer: SocketAddrV4, port: u16) -> Option<TcpId> {
        self.names.get(&(peer, port)).copied().map(TcpId)
    }

    /// The set of the socket that takes a segment in, if there is one.
    pub fn taker(&mut self, segment: &Segment) -> Option<&mut SocketSet<'static>> {
        if self.opening.is_some() {
            return self.opening.as_mut().map(|(_, alone, _)| &mut alone.set);
        }
        let TcpId(name) = self.find(segment.peer, segment.port)?;
        self.make_busy(name);
        self.connections.get_mut(name).map(|connection| &mut connection.alone.set)
    }

    /// When a connection that isn't busy has something to do by the clock.
    pub fn due_us(&self) -> Option<u64> {
        self.due_us
    }

    /// Is there a connection that the engine should look at?
    pub fn any_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Every busy connection may send.
    pub fn begin_sending(&mut self) {
        self.sending.clear();
        self.sending.extend_from_slice(&self.busy);
    }

    /// Is there one that may have more to send?
    pub fn is_sending(&self) -> bool {
        !self.sending.is_empty()
    }

    /// Each that may send sends one packet; `sends` says whether it had one with anything in it.
    /// One that has none may still send an acknowledgement, and then has no more to send.
    pub fn send_round(
        &mut self,
        now_us: u64,
        mut sends: impl FnMut(&mut SocketSet<'static>) -> bool,
    ) {
        let Tables { sending, connections, .. } = self;
        sending.retain(|name| {
            let Some(connection) = connections.get_mut(*name) else { return false };
            let sent = sends(&mut connection.alone.set);
            if !sent {
                connection.asked_us = now_us;
            }
            sent
        });
    }

    /// The engine shall look at a connection.
    fn make_busy(&mut self, name: Name) {
        if let Some(connection) = self.connections.get_mut(name).filter(|entry| !entry.busy) {
            connection.busy = true;
            self.busy.push(name);
        }
    }
}

/// What the owner of connections calls.
impl Stack {
    /// Accepts connections at `port`, up to `backlog` of them that nobody has accepted yet.
    pub fn tcp_listen(&mut self, port: u16, backlog: usize) -> Result<ListenerId, Error> {
        if port == 0 {
            return Err(Error::BadAddress);
        }
        if self.tcp.listener_at(port).is_some() {
            return Err(Error::PortTaken);
        }
        let listener = Listener { port, backlog: backlog.max(1), waiting: Vec::new() };
        self.tcp.listeners.insert(listener).map(ListenerId).ok_or(Error::TooMany)
    }

    /// Stops accepting; connections that nobody accepted are reset.
    pub fn tcp_unlisten(&mut self, id: ListenerId) -> Result<(), Error> {
        let listener = self.tcp.listeners.remove(id.0).ok_or(Error::NoSuchSocket)?;
        for connection in listener.waiting {
            // They were entered by us and may only have ended meanwhile.
            let _ = self.tcp_abort(connection);
        }
        Ok(())
    }

    /// The next connection that is established.
    pub fn tcp_accept(&mut self, id: ListenerId) -> Result<TcpId, Error> {
        let listener = self.tcp.listeners.get_mut(id.0).ok_or(Error::NoSuchSocket)?;
        let connections = &self.tcp.connections;
        let ready = listener.waiting.iter().position(|waiting| {
            let connection = connections.get(waiting.0);
            connection.is_some_and(|connection| connection.state != TcpState::SynReceived)
        });
        ready.map(|at| listener.waiting.remove(at)).ok_or(Error::WouldBlock)
    }

    /// Is there a connection to accept?
    pub fn tcp_acceptable(&self, id: ListenerId) -> bool {
        self.tcp.listeners.get(id.0).is_some_and(|listener| {
            listener.waiting.iter().any(|waiting| {
                let connection = self.tcp.connections.get(waiting.0);
                connection.is_some_and(|connection| connection.state != TcpState::SynReceived)
            })
        })
    }

    /// Begins a connection from `port` to `peer`; the caller has a filter for it.
    pub fn tcp_connect(&mut self, peer: SocketAddrV4, port: u16) -> Result<TcpId, Error> {
        if port == 0 || peer.port() == 0 || !self.config.network.reaches(*peer.ip()) {
            return Err(Error::BadAddress);
        }
        let itself = SocketAddrV4::new(self.config.network.source_for(*peer.ip()), port);
        let taken = self.tcp.find(peer, port).is_some() || self.tcp.listener_at(port).is_some();
        if taken || peer == itself {
            return Err(Error::PortTaken);
        }
        if self.tcp.connections.is_full() {
            return Err(Error::TooMany);
        }
        self.tcp.waiting.remove(&(peer, port));
        let mut alone = self.fresh_socket().ok_or(Error::TooMany)?;
        let remote = IpEndpoint::new(IpAddress::Ipv4(*peer.ip()), peer.port());
        let began = alone.socket_mut().connect(self.interface.context(), remote, port);
        began.map_err(|_| Error::BadAddress)?;
        self.enter(alone, peer, port, TcpState::SynSent).ok_or(Error::TooMany)
    }

    /// Queues bytes to send; how many there was room for.
    pub fn tcp_send(&mut self, id: TcpId, bytes: &[u8]) -> Result<usize, Error> {
        let connection = self.touch(id)?;
        match connection.alone.socket_mut().send_slice(bytes) {
            Ok(0) if !bytes.is_empty() => Err(Error::WouldBlock),
            Ok(taken) => Ok(taken),
            Err(SendError::InvalidState) => Err(match connection.state {
                TcpState::SynSent | TcpState::SynReceived => Error::WouldBlock,
                _ => connection.failure.unwrap_or(Error::NotConnected),
            }),
        }
    }

    /// Lets `fill` write bytes to send into the queue's own memory; it says how many it wrote.
    ///
    /// There may be room for more beyond what it is shown: then there is at the next call.
    pub fn tcp_send_with<R>(
        &mut self,
        id: TcpId,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Result<R, Error> {
        let connection = self.touch(id)?;
        let socket = connection.alone.socket_mut();
        if socket.may_send() && !socket.can_send() {
            return Err(Error::WouldBlock);
        }
        match socket.send(fill) {
            Ok(result) => Ok(result),
            Err(SendError::InvalidState) => Err(match connection.state {
                TcpState::SynSent | TcpState::SynReceived => Error::WouldBlock,
                _ => connection.failure.unwrap_or(Error::NotConnected),
            }),
        }
    }

    /// Reads bytes; 0: the peer has ended its stream.
    pub fn tcp_receive(&mut self, id: TcpId, bytes: &mut [u8]) -> Result<usize, Error> {
        self.tcp_receive_with(id, |arrived| {
            let taken = arrived.len().min(bytes.len());
            bytes[..taken].copy_from_slice(&arrived[..taken]);
            (taken, taken)
        })
        .or_else(|error| if error == Error::NotConnected { Ok(0) } else { Err(error) })
    }

    /// Shows bytes that have arrived to `take`, in place; it says how many of them it took.
    ///
    /// `NotConnected`: the peer has ended its stream.
    pub fn tcp_receive_with<R>(
        &mut self,
        id: TcpId,
        take: impl FnOnce(&[u8]) -> (usize, R),
    ) -> Result<R, Error> {
        let socket = self.mine(id).ok_or(Error::NoSuchSocket)?.alone.socket();
        if !socket.can_recv() && socket.may_recv() {
            return Err(Error::WouldBlock);
        }
        let connection = self.touch(id)?;
        match connection.alone.socket_mut().recv(|bytes| take(bytes)) {
            Ok(result) => Ok(result),
            Err(RecvError::Finished) => Err(Error::NotConnected),
            Err(RecvError::InvalidState) => Err(match connection.state {
                TcpState::SynSent | TcpState::SynReceived => Error::WouldBlock,
                _ => connection.failure.unwrap_or(Error::NotConnected),
            }),
        }
    }

    /// Copies bytes that have arrived without taking them.
    pub fn tcp_peek(&mut self, id: TcpId, bytes: &mut [u8]) -> Result<usize, Error> {
        let socket = self.touch(id)?.alone.socket_mut();
        socket.peek_slice(bytes).map_err(|_| Error::WouldBlock)
    }

    /// Ends the own stream behind what is queued.
    pub fn tcp_shutdown(&mut self, id: TcpId) -> Result<(), Error> {
        self.touch(id)?.alone.socket_mut().close();
        Ok(())
    }

    /// Gives a connection up in good order: what is queued is sent, then the stream ends. The name
    /// is void from now on.
    pub fn tcp_close(&mut self, id: TcpId) -> Result<(), Error> {
        let now_us = self.now_us;
        let connection = self.touch(id)?;
        // What the peer sent and nobody will read must not look delivered (RFC 9293 §3.10.4).
        if connection.alone.socket().recv_queue() > 0 {
            return self.tcp_abort(id);
        }
        connection.alone.socket_mut().close();
        connection.orphan = true;
        connection.moved_us = now_us;
        Ok(())
    }

    /// Ends a connection at once by a reset. The name is void from now on.
    pub fn tcp_abort(&mut self, id: TcpId) -> Result<(), Error> {
        let connection = self.touch(id)?;
        connection.alone.socket_mut().abort();
        connection.orphan = true;
        Ok(())
    }

    /// Its state.
    pub fn tcp_state(&self, id: TcpId) -> Option<TcpState> {
        Some(state_of(self.mine(id)?.alone.socket().state()))
    }

    /// Why it ended, if not in good order.
    pub fn tcp_failure(&self, id: TcpId) -> Option<Error> {
        self.mine(id)?.failure
    }

    /// The other end.
    pub fn tcp_peer(&self, id: TcpId) -> Option<SocketAddrV4> {
        Some(self.mine(id)?.peer)
    }

    /// This end.
    pub fn tcp_local(&self, id: TcpId) -> Option<SocketAddrV4> {
        let connection = self.mine(id)?;
        let socket = connection.alone.socket();
        let address = match socket.local_endpoint().map(|local| local.addr) {
            Some(IpAddress::Ipv4(address)) => address,
            None => self.config.network.source_for(*connection.peer.ip()),
        };
        Some(SocketAddrV4::new(address, connection.port))
    }

    /// Would `tcp_receive` give bytes, the end or a failure?
    pub fn tcp_readable(&self, id: TcpId) -> bool {
        let Some(connection) = self.mine(id) else { return true };
        let socket = connection.alone.socket();
        let opening = matches!(socket.state(), EngineState::SynSent | EngineState::SynReceived);
        socket.can_recv() || !(opening || socket.may_recv())
    }

    /// Would `tcp_send` take bytes, or give a failure?
    pub fn tcp_writable(&self, id: TcpId) -> bool {
        let Some(connection) = self.mine(id) else { return true };
        let socket = connection.alone.socket();
        let opening = matches!(socket.state(), EngineState::SynSent | EngineState::SynReceived);
        socket.can_send() || !(opening || socket.may_send())
    }

    /// Bytes that can be queued now.
    pub fn tcp_room(&self, id: TcpId) -> usize {
        let Some(connection) = self.mine(id) else { return 0 };
        let socket = connection.alone.socket();
        if socket.may_send() { socket.send_capacity() - socket.send_queue() } else { 0 }
    }

    /// Bytes that have arrived and can be read.
    pub fn tcp_arrived(&self, id: TcpId) -> usize {
        self.mine(id).map_or(0, |connection| connection.alone.socket().recv_queue())
    }

    /// Have the peers of all connections that were given up got everything, to the stream's end?
    pub fn tcp_flushed(&self) -> bool {
        self.tcp.connections.iter().filter(|(_, connection)| connection.orphan).all(
            |(_, connection)| {
                let state = connection.alone.socket().state();
                matches!(
                    state_of(state),
                    TcpState::FinWait2 | TcpState::TimeWait | TcpState::Closed
                )
            },
        )
    }

    /// Connections that hold buffers, and those in TIME-WAIT.
    pub fn tcp_counts(&self) -> (usize, usize) {
        (self.tcp.connections.len(), self.tcp.waiting.len())
    }

    /// Is there a connection at this port of ours, though its user may have closed it?
    pub fn tcp_uses(&self, port: u16) -> bool {
        self.tcp.connections.iter().any(|(_, connection)| connection.port == port)
    }

    fn mine(&self, id: TcpId) -> Option<&Connection> {
        self.tcp.connections.get(id.0).filter(|connection| !connection.orphan)
    }

    /// A connection of the caller's, which will be busy.
    fn touch(&mut self, id: TcpId) -> Result<&mut Connection, Error> {
        self.tcp.make_busy(id.0);
        let connection = self.tcp.connections.get_mut(id.0);
        connection.filter(|connection| !connection.orphan).ok_or(Error::NoSuchSocket)
    }
}

fn state_of(state: EngineState) -> TcpState {
    match state {
        EngineState::Closed | EngineState::Listen => TcpState::Closed,
        EngineState::SynSent => TcpState::SynSent,
        EngineState::SynReceived => TcpState::SynReceived,
        EngineState::Established => TcpState::Established,
        EngineState::FinWait1 => TcpState::FinWait1,
        EngineState::FinWait2 => TcpState::FinWait2,
        EngineState::CloseWait => TcpState::CloseWait,
        EngineState::Closing => TcpState::Closing,
        EngineState::LastAck => TcpState::LastAck,
        EngineState::TimeWait => TcpState::TimeWait,
    }
}
