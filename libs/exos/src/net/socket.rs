//! A socket: from `socket` over `bind`, `listen` and `connect` to its close.

use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicU32, Ordering};
use unix::Errno;
use xio::stack::{Error, ListenerId, TcpId, TcpState, UdpId};

use super::{EVENTS, Inner, Net, errno, tend};
use crate::process::Process;
use crate::wait::{Wait, sleep_until};

static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing yet.
    New,
    /// A stream socket with a port.
    Bound(u16),
    /// Accepts connections.
    Listening(u16, ListenerId),
    /// A connection; `true`: `connect` has not yet said that it is there.
    Stream(u16, TcpId, bool),
    /// A datagram socket with a port, and its peer.
    Datagrams(u16, UdpId, Option<SocketAddrV4>),
}

/// A socket.
pub struct Socket {
    net: Option<Rc<Net>>,
    /// Is it TCP's, not UDP's?
    pub stream: bool,
    /// What /proc shows.
    pub number: u32,
    pub(super) state: RefCell<State>,
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
        Self {
            net,
            stream,
            number: 1 + NUMBERS.fetch_add(1, Ordering::Relaxed),
            state: RefCell::new(state),
            local: Cell::new(Ipv4Addr::UNSPECIFIED),
            shut: Cell::new((false, false)),
            told: Cell::new(false),
            options: Cell::new(0),
        }
    }

    /// A new one.
    pub fn new(process: &mut Process, stream: bool) -> Result<Self, Errno> {
        let net = Net::of(process)?;
        Ok(Self::with(Some(net), stream, State::New))
    }

    /// One that came through `exec`: it is connected to nothing.
    pub fn inherited(stream: bool) -> Self {
        Self::with(None, stream, State::New)
    }

    /// The network, unless it is another process's.
    fn net(&self) -> Option<&Rc<Net>> {
        self.net.as_ref().filter(|net| !net.stale.get())
    }

    /// Does something with network and state. `ENOTCONN`: it is inherited.
    pub(super) fn operate<R>(
        &self,
        run: impl FnOnce(&mut Inner, &mut State) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let net = self.net().ok_or(Errno::ENOTCONN)?;
        run(&mut net.inner.borrow_mut(), &mut self.state.borrow_mut())
    }

    /// Sends what is queued.
    pub(super) fn flush(&self) {
        if let Some(net) = self.net() {
            net.flush();
        }
    }

    /// Sleeps until something has happened on the network.
    pub(super) fn sleep(&self, process: &mut Process) -> Result<(), Errno> {
        sleep_until(process, Wait::new().events(EVENTS), 0).map(|_| ())
    }

    fn shares_port(&self) -> bool {
        self.options.get() >> linux_raw_sys::net::SO_REUSEADDR & 1 != 0
    }

    /// `bind`
    pub fn bind(&self, at: SocketAddrV4) -> Result<(), Errno> {
        self.operate(|inner, state| {
            if *state != State::New {
                return Err(Errno::EINVAL);
            }
            let own = inner.network.stack.network().address;
            if !at.ip().is_unspecified() && *at.ip() != own {
                return Err(Errno::EADDRNOTAVAIL);
            }
            *state = self.claim(inner, at.port())?;
            self.local.set(*at.ip());
            Ok(())
        })
    }

    /// Gives it a port, any if `port` is 0.
    pub(super) fn claim(&self, inner: &mut Inner, port: u16) -> Result<State, Errno> {
        let shares = self.shares_port();
        let port = inner.ports.claim(&inner.network, self.stream, port, shares)?;
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
        self.operate(|inner, state| {
            if *state == State::New {
                *state = self.claim(inner, 0)?;
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
        loop {
            tend(process);
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
                return Ok((Self::with(self.net.clone(), true, state), peer));
            }
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            self.sleep(process)?;
        }
    }

    /// `connect`
    pub fn connect(
        &self,
        process: &mut Process,
        peer: SocketAddrV4,
        nonblocking: bool,
    ) -> Result<(), Errno> {
        tend(process);
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
                None => self.sleep(process)?,
            }
        }
    }

    /// Begins to connect; is there something to wait for?
    fn begin(
        &self,
        inner: &mut Inner,
        state: &mut State,
        peer: SocketAddrV4,
        nonblocking: bool,
    ) -> Result<bool, Errno> {
        if peer.ip().is_loopback() {
            return Err(Errno::ENETUNREACH);
        }
        if *state == State::New {
            *state = self.claim(inner, 0)?;
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
            State::New => Err(Errno::EINVAL),
        }
    }

    /// Takes a datagram socket's peer away.
    pub fn disconnect(&self) -> Result<(), Errno> {
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
        self.operate(|inner, state| {
            let own = inner.network.stack.network().address;
            Ok(match *state {
                State::New => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
                State::Bound(port)
                | State::Listening(port, _)
                | State::Datagrams(port, _, None) => SocketAddrV4::new(self.local.get(), port),
                State::Stream(port, ..) | State::Datagrams(port, ..) => {
                    SocketAddrV4::new(own, port)
                }
            })
        })
    }

    /// The other end's address.
    pub fn peer(&self) -> Result<SocketAddrV4, Errno> {
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
        let found = self.operate(|inner, state| match *state {
            State::Stream(_, id, _) => Ok(inner.network.stack.tcp_failure(id)),
            _ => Ok(None),
        });
        let error = found.ok().flatten().filter(|_| !self.told.get())?;
        self.told.set(true);
        Some(errno(error))
    }

    /// The last descriptor is closed.
    pub fn close(&self) {
        // One that is another process's has nothing of its own to give back.
        let _ = self.operate(|inner, state| {
            let stack = &mut inner.network.stack;
            let port = match core::mem::replace(state, State::New) {
                State::New => return Ok(()),
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
