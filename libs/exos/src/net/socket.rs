//! A socket: from `socket` over `bind`, `listen` and `connect` to its close.

use abi::upcall::EVENT_PACKET;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicU32, Ordering};
use unix::Errno;
use xio::stack::{Error, ListenerId, TcpId, TcpState, UdpId};

use super::kept::{Kept, Kind};
use super::{EVENTS, Inner, Net, errno, tend};
use crate::fs::region::Heritage;
use crate::process::Process;
use crate::wait::{Wait, sleep_until};

static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing yet but a port that it asks for, 0: any. It is a process's own only once it has one.
    New(u16),
    /// A stream socket with a port.
    Bound(u16),
    /// Accepts connections.
    Listening(u16, ListenerId),
    /// A connection; `true`: `connect` has not yet said that it is there.
    Stream(u16, TcpId, bool),
    /// A datagram socket with a port, and its peer.
    Datagrams(u16, UdpId, Option<SocketAddrV4>),
    /// Shared with other processes, by way of a keeper.
    Kept(Kept),
}

/// A socket.
pub struct Socket {
    net: RefCell<Option<Rc<Net>>>,
    /// Is it TCP's, not UDP's?
    pub stream: bool,
    /// What /proc shows.
    pub number: u32,
    pub(super) state: Rc<RefCell<State>>,
    /// The address it was bound to.
    pub(super) local: Cell<Ipv4Addr>,
    /// Reading, writing was shut down.
    pub(super) shut: Cell<(bool, bool)>,
    /// The failure was told already.
    pub(super) told: Cell<bool>,
    /// Options set, a bit each by their number.
    pub(super) options: Cell<u64>,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Socket {
    fn with(net: Option<Rc<Net>>, stream: bool, state: State) -> Self {
        let state = Rc::new(RefCell::new(state));
        if let Some(net) = &net {
            net.enter(&state);
        }
        Self {
            net: RefCell::new(net),
            stream,
            number: 1 + NUMBERS.fetch_add(1, Ordering::Relaxed),
            state,
            local: Cell::new(Ipv4Addr::UNSPECIFIED),
            shut: Cell::new((false, false)),
            told: Cell::new(false),
            options: Cell::new(0),
        }
    }

    /// A new one.
    pub fn new(process: &mut Process, stream: bool) -> Result<Self, Errno> {
        let net = Net::of(process)?;
        Ok(Self::with(Some(net), stream, State::New(0)))
    }

    /// The words that bring it through `exec`.
    pub fn saved(&self) -> [u64; 8] {
        let ([a, b, c, d, e], port) = match *self.state.borrow() {
            State::Kept(kept) => (kept.saved(), 0),
            State::New(port) | State::Bound(port) => ([0; 5], port),
            _ => ([0; 5], 0),
        };
        let first = u64::from(self.stream) | u64::from(port) << 16;
        let local = u64::from(self.local.get().to_bits());
        [first, local, self.options.get(), a, b, c, d, e]
    }

    /// Reads them.
    pub fn loaded(words: [u64; 8]) -> Result<Self, Errno> {
        let [first, local, options, kept @ ..] = words;
        let state = match Kept::loaded(kept) {
            Some(kept) => State::Kept(kept),
            None => State::New((first >> 16) as u16),
        };
        let socket = Self::with(None, first & 1 != 0, state);
        socket.local.set(Ipv4Addr::from_bits(local as u32));
        socket.options.set(options);
        Ok(socket)
    }

    /// What it is if it is shared.
    pub fn kept(&self) -> Option<Kept> {
        match *self.state.borrow() {
            State::Kept(kept) => Some(kept),
            _ => None,
        }
    }

    /// Makes another domain a user of what is shared.
    pub fn attach(&self, heritage: &mut Heritage) -> Result<(), Errno> {
        self.kept().map_or(Ok(()), |kept| kept.share(heritage))
    }

    /// The network, unless it is another process's; a socket that holds nothing yet uses whatever
    /// network its process has.
    fn net(&self) -> Option<Rc<Net>> {
        let mut own = self.net.borrow_mut();
        let live = own.as_ref().is_some_and(|net| net.is_live());
        if !live && matches!(*self.state.borrow(), State::New(_)) {
            *own = Net::of(crate::thread::process()).ok();
            if let Some(net) = &*own {
                net.enter(&self.state);
            }
        }
        own.clone().filter(|net| net.is_live())
    }

    /// Does something with network and state. `ENOTCONN`: it is another process's.
    pub(super) fn operate<R>(
        &self,
        run: impl FnOnce(&mut Inner, &mut State) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let net = self.net().ok_or(Errno::ENOTCONN)?;
        let mut inner = net.inner.borrow_mut();
        run(inner.as_mut().ok_or(Errno::ENOTCONN)?, &mut self.state.borrow_mut())
    }

    /// Sends what is queued.
    pub(super) fn flush(&self) {
        if let Some(kept) = self.kept() {
            kept.ring_bell();
        } else if let Some(net) = self.net.borrow().as_ref() {
            net.flush();
        }
    }

    /// Takes in what has arrived; `flush` follows.
    pub(super) fn take_news(&self) {
        if let Some(net) = self.net.borrow().as_ref() {
            net.take_news();
        }
    }

    /// Adds what ends a wait for reading or writing.
    pub fn wait_terms(&self, reads: bool, writes: bool, wait: &mut Wait) {
        match self.kept() {
            Some(kept) => kept.wait_terms(reads, writes, wait),
            // A stream has room again when its peer says so; a datagram socket, when the link has.
            None if writes && !self.stream => {
                wait.events(EVENTS);
            }
            None => {
                wait.events(EVENT_PACKET);
            }
        }
    }

    /// Sleeps until it may be that something can be read, or written.
    pub(super) fn sleep(&self, process: &mut Process, writes: bool) -> Result<(), Errno> {
        let mut wait = Wait::new();
        self.wait_terms(!writes, writes, &mut wait);
        sleep_until(process, &wait, 0).map(|_| ())
    }

    fn shares_port(&self) -> bool {
        self.options.get() >> linux_raw_sys::net::SO_REUSEADDR & 1 != 0
    }

    /// `bind`
    pub fn bind(&self, at: SocketAddrV4) -> Result<(), Errno> {
        self.operate(|inner, state| {
            if *state != State::New(0) {
                return Err(Errno::EINVAL);
            }
            let network = inner.network.stack.network();
            if !at.ip().is_unspecified() && !network.is_own(*at.ip()) {
                return Err(Errno::EADDRNOTAVAIL);
            }
            self.local.set(*at.ip());
            *state = self.claim(inner, at.port())?;
            Ok(())
        })
    }

    /// Gives it a port, any if `port` is 0.
    pub(super) fn claim(&self, inner: &mut Inner, port: u16) -> Result<State, Errno> {
        let shares = self.shares_port();
        let local = SocketAddrV4::new(self.local.get(), port);
        let port = inner.ports.claim(&inner.network, self.stream, local, shares)?;
        if self.stream {
            return Ok(State::Bound(port));
        }
        match inner.network.stack.udp_bind(port) {
            Ok(id) => Ok(State::Datagrams(port, id, None)),
            Err(error) => {
                inner.ports.release(false, port);
                Err(errno(error))
            }
        }
    }

    /// `listen`
    pub fn listen(&self, backlog: i32) -> Result<(), Errno> {
        if !self.stream {
            return Err(Errno::EOPNOTSUPP);
        }
        if let Some(kept) = self.kept() {
            return if kept.kind == Kind::Listener { Ok(()) } else { Err(Errno::EINVAL) };
        }
        self.operate(|inner, state| {
            if let State::New(port) = *state {
                *state = self.claim(inner, port)?;
            }
            match *state {
                State::Bound(port) => {
                    let backlog = usize::try_from(backlog).unwrap_or(128).clamp(1, 128);
                    let id = inner.network.stack.tcp_listen(port, backlog).map_err(errno)?;
                    *state = State::Listening(port, id);
                    Ok(())
                }
                State::Listening(..) => Ok(()),
                _ => Err(Errno::EINVAL),
            }
        })
    }

    /// `accept`: the connection and its peer.
    pub fn accept(
        &self,
        process: &mut Process,
        nonblocking: bool,
    ) -> Result<(Socket, SocketAddrV4), Errno> {
        if !self.stream {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut tended = false;
        loop {
            if let Some(kept) = self.kept() {
                if kept.kind != Kind::Listener {
                    return Err(Errno::EINVAL);
                }
                if let Some(taken) = kept.accept()? {
                    return Ok((Self::with(None, true, State::Kept(taken)), taken.peer));
                }
                if nonblocking {
                    return Err(Errno::EAGAIN);
                }
                self.sleep(process, false)?;
                continue;
            }
            let accepted = self.operate(|inner, state| {
                let State::Listening(port, listener) = *state else { return Err(Errno::EINVAL) };
                match inner.network.stack.tcp_accept(listener) {
                    Ok(id) => {
                        inner.ports.share(port);
                        let peer = inner.network.stack.tcp_peer(id);
                        let none = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
                        Ok(Some((State::Stream(port, id, false), peer.unwrap_or(none))))
                    }
                    Err(Error::WouldBlock) => Ok(None),
                    Err(error) => Err(errno(error)),
                }
            })?;
            if let Some((state, peer)) = accepted {
                return Ok((Self::with(self.net(), true, state), peer));
            }
            if !core::mem::replace(&mut tended, true) {
                tend(process);
                continue;
            }
            tended = false;
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            self.sleep(process, false)?;
        }
    }

    /// `connect`
    pub fn connect(
        &self,
        process: &mut Process,
        peer: SocketAddrV4,
        nonblocking: bool,
    ) -> Result<(), Errno> {
        // "This host", of whatever address (RFC 1122 §3.2.1.3): as on Linux, the loopback one.
        let peer = match peer.ip().is_unspecified() {
            true => SocketAddrV4::new(Ipv4Addr::LOCALHOST, peer.port()),
            false => peer,
        };
        tend(process);
        if let Some(kept) = self.kept() {
            return self.connect_kept(process, &kept, peer, nonblocking);
        }
        let begun = self.operate(|inner, state| self.begin(inner, state, peer, nonblocking))?;
        self.flush();
        if !begun {
            return Ok(());
        }
        if nonblocking {
            return Err(Errno::EINPROGRESS);
        }
        loop {
            tend(process);
            match self.operate(|inner, state| Ok(progress(inner, state)))? {
                Some(Ok(())) => return Ok(()),
                Some(Err(errno)) => return Err(errno),
                None => self.sleep(process, true)?,
            }
        }
    }

    /// `connect` of a shared one: a datagram socket's peer changes for all, a connection is there
    /// or will be.
    fn connect_kept(
        &self,
        process: &mut Process,
        kept: &Kept,
        peer: SocketAddrV4,
        nonblocking: bool,
    ) -> Result<(), Errno> {
        if kept.kind == Kind::Datagrams {
            return kept.set_peer(Some(peer));
        }
        if kept.kind == Kind::Listener || !kept.is_connecting()? {
            return Err(Errno::EISCONN);
        }
        while kept.is_connecting()? {
            if nonblocking {
                return Err(Errno::EALREADY);
            }
            let mut wait = Wait::new();
            kept.connected_terms(&mut wait);
            sleep_until(process, &wait, 0)?;
        }
        Ok(())
    }

    /// Begins to connect; is there something to wait for?
    fn begin(
        &self,
        inner: &mut Inner,
        state: &mut State,
        peer: SocketAddrV4,
        nonblocking: bool,
    ) -> Result<bool, Errno> {
        if let State::New(port) = *state {
            *state = self.claim(inner, port)?;
        }
        match state {
            State::Datagrams(_, _, known) => {
                *known = Some(peer);
                Ok(false)
            }
            State::Bound(port) => {
                let port = *port;
                let id =
                    inner.network.stack.tcp_connect(peer, port).map_err(|error| match error {
                        Error::BadAddress => Errno::ENETUNREACH,
                        Error::PortTaken => Errno::EADDRNOTAVAIL,
                        other => errno(other),
                    })?;
                self.told.set(false);
                *state = State::Stream(port, id, true);
                Ok(true)
            }
            State::Stream(_, id, true) => {
                let waits = inner.network.stack.tcp_state(*id) == Some(TcpState::SynSent);
                match waits {
                    true if nonblocking => Err(Errno::EALREADY),
                    // A call that a signal interrupted goes on.
                    true => Ok(true),
                    false => progress(inner, state).transpose().map(|_| false),
                }
            }
            State::Stream(..) | State::Listening(..) => Err(Errno::EISCONN),
            State::New(_) | State::Kept(_) => Err(Errno::EINVAL),
        }
    }

    /// Takes a datagram socket's peer away.
    pub fn disconnect(&self) -> Result<(), Errno> {
        if let Some(kept) = self.kept().filter(|kept| kept.kind == Kind::Datagrams) {
            return kept.set_peer(None);
        }
        self.operate(|_, state| match state {
            State::Datagrams(_, _, peer) => {
                *peer = None;
                Ok(())
            }
            _ => Err(Errno::EAFNOSUPPORT),
        })
    }

    /// `shutdown`
    pub fn shutdown(&self, reads: bool, writes: bool) -> Result<(), Errno> {
        if let Some(kept) = self.kept() {
            return match kept.kind {
                Kind::Listener => Err(Errno::ENOTCONN),
                Kind::Datagrams if kept.datagram_peer()?.is_none() => Err(Errno::ENOTCONN),
                _ => kept.shut_down(reads, writes),
            };
        }
        self.operate(|inner, state| match state {
            State::Stream(_, id, _) => {
                if writes {
                    inner.network.stack.tcp_shutdown(*id).map_err(errno)?;
                }
                Ok(())
            }
            State::Datagrams(_, _, Some(_)) => Ok(()),
            _ => Err(Errno::ENOTCONN),
        })?;
        let before = self.shut.get();
        self.shut.set((before.0 || reads, before.1 || writes));
        self.flush();
        Ok(())
    }

    /// This end's address.
    pub fn name(&self) -> Result<SocketAddrV4, Errno> {
        match *self.state.borrow() {
            State::Kept(kept) if kept.kind == Kind::Stream => return Ok(kept.local),
            State::Kept(kept) if kept.datagram_peer()?.is_none() => {
                return Ok(SocketAddrV4::new(self.local.get(), kept.local.port()));
            }
            State::Kept(kept) => return Ok(kept.local),
            State::New(port) => return Ok(SocketAddrV4::new(self.local.get(), port)),
            _ => {}
        }
        self.operate(|inner, state| {
            let stack = &inner.network.stack;
            Ok(match *state {
                State::New(_) | State::Kept(_) => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
                State::Bound(port)
                | State::Listening(port, _)
                | State::Datagrams(port, _, None) => SocketAddrV4::new(self.local.get(), port),
                State::Stream(port, id, _) => {
                    let none = SocketAddrV4::new(stack.network().address, port);
                    stack.tcp_local(id).unwrap_or(none)
                }
                State::Datagrams(port, _, Some(peer)) => {
                    SocketAddrV4::new(stack.network().source_for(*peer.ip()), port)
                }
            })
        })
    }

    /// The other end's address.
    pub fn peer(&self) -> Result<SocketAddrV4, Errno> {
        if let Some(kept) = self.kept() {
            let peer = match kept.kind {
                Kind::Stream if !kept.is_connecting().unwrap_or(true) => Some(kept.peer),
                Kind::Datagrams => kept.datagram_peer()?,
                _ => None,
            };
            return peer.ok_or(Errno::ENOTCONN);
        }
        self.operate(|inner, state| {
            let peer = match *state {
                State::Stream(_, id, false) => inner.network.stack.tcp_peer(id),
                State::Stream(_, id, true) if connected(inner, id) => {
                    inner.network.stack.tcp_peer(id)
                }
                State::Datagrams(_, _, peer) => peer,
                _ => None,
            };
            peer.ok_or(Errno::ENOTCONN)
        })
    }

    /// The error that waits to be told, once (`SO_ERROR`).
    pub fn take_error(&self) -> Option<Errno> {
        let error = match self.kept() {
            Some(kept) => kept.error(),
            None => self
                .operate(|inner, state| match *state {
                    State::Stream(_, id, _) => Ok(inner.network.stack.tcp_failure(id)),
                    _ => Ok(None),
                })
                .ok()
                .flatten()
                .map(errno),
        };
        let error = error.filter(|_| !self.told.get())?;
        self.told.set(true);
        Some(error)
    }

    /// The last descriptor is closed.
    pub fn close(&self) {
        if let Some(kept) = self.kept() {
            return kept.leave();
        }
        if matches!(*self.state.borrow(), State::New(_)) {
            return;
        }
        // One that is another process's has nothing of its own to give back.
        let _ = self.operate(|inner, state| {
            let stack = &mut inner.network.stack;
            let port = match core::mem::replace(state, State::New(0)) {
                State::New(_) | State::Kept(_) => return Ok(()),
                State::Bound(port) => port,
                // They are there: nobody else has the names.
                State::Listening(port, id) => stack.tcp_unlisten(id).map_or(port, |()| port),
                State::Stream(port, id, _) => stack.tcp_close(id).map_or(port, |()| port),
                State::Datagrams(port, id, _) => stack.udp_close(id).map_or(port, |()| port),
            };
            inner.ports.release(self.stream, port);
            Ok(())
        });
        self.flush();
        if let Some(net) = self.net.borrow().as_ref() {
            net.drop_ports();
        }
    }
}

fn connected(inner: &Inner, id: TcpId) -> bool {
    let state = inner.network.stack.tcp_state(id);
    !matches!(state, Some(TcpState::SynSent | TcpState::Closed) | None)
}

/// How an attempt to connect has ended, if it has; after a failure the socket can try again.
fn progress(inner: &mut Inner, state: &mut State) -> Option<Result<(), Errno>> {
    let State::Stream(port, id, true) = *state else { return Some(Ok(())) };
    if connected(inner, id) {
        *state = State::Stream(port, id, false);
        return Some(Ok(()));
    }
    if inner.network.stack.tcp_state(id) == Some(TcpState::SynSent) {
        return None;
    }
    let failure = inner.network.stack.tcp_failure(id)?;
    // It is over already; only its name is given back.
    let _ = inner.network.stack.tcp_close(id);
    *state = State::Bound(port);
    Some(Err(errno(failure)))
}
