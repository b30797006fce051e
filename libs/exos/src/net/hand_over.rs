//! Before a fork or an `exec`: sockets that will be shared go to a keeper.
//!
//! ```text
//!  process   regions, states ── copy ── release ─────────── late frames ── filters, ring dropped
//!  keeper                               ring, filters ── OPEN ──► takes them ──► serves
//! ```
//! What arrives between the copy and the moment at which the filters lead to the keeper's ring lies
//! in the process's; it is brought over as it is, so nothing has to be sent again.

use abi::id::{DomainId, EnvId, RegionId};
use abi::predicate::{Atom, Operator, Source};
use abi::published::{EnvRecord, EnvState, Table};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::{Ipv4Addr, SocketAddrV4};
use unix::Errno;
use xio::stack::Receive;
use xok::call::{self, OWN};
use xok::services::INIT_INDEX;

use super::append;
use super::keeper::{Entry, What, make_pair, make_region};
use super::kept::{CONNECTING, Kept, Kind, OPEN, STATUS, attach, fill_datagram, head};
use super::socket::State;
use super::transfers::DATAGRAM;
use super::{EVENTS, Inner, Net};
use crate::capabilities::FAMILY_SLOT;
use crate::fork;
use crate::fs::pipe::{READER, RING, WRITER};
use crate::fs::region::Region;
use crate::process::Process;

/// A socket's state, where the socket has it.
type Place = Rc<RefCell<State>>;

/// Gives every open socket of the process to a keeper, if there is one.
pub fn share(process: &mut Process) -> Result<(), Errno> {
    let Some(net) = process.net.clone() else { return Ok(()) };
    let sockets = net.open_sockets();
    if sockets.is_empty() {
        return Ok(());
    }
    net.poll();
    net.flush();
    let before: Vec<State> = sockets.iter().map(|socket| *socket.borrow()).collect();
    let (domain, keeper) = fork::begin_keeper(process)?;
    let moved = prepare(&net, &sockets, keeper)
        .and_then(|way| fork::build_keeper(domain, keeper).map(|()| way))
        .and_then(|way| start(&net, (domain, keeper), way).map(|()| way));
    match moved {
        Ok(way) => bring_late(&net, keeper, way),
        Err(errno) => {
            // The domain's environment has not run; what it has of ours goes with it.
            let _ = call::domain_destroy(OWN, domain);
            net.handed.take();
            for (socket, state) in sockets.iter().zip(before) {
                if let State::Kept(kept) = socket.replace(state) {
                    kept.leave();
                }
            }
            return Err(errno);
        }
    }
    net.retire();
    process.net = None;
    // Other threads sleep until packets come here, where none come any more.
    process.tell(EVENTS);
    Ok(())
}

/// Makes the regions and turns the sockets' states; what the keeper has to know is in the heap that
/// it gets a copy of. The region by which late frames go comes back.
fn prepare(net: &Net, sockets: &[Place], keeper: EnvId) -> Result<RegionId, Errno> {
    let mut inner = net.inner.borrow_mut();
    let inner = inner.as_mut().ok_or(Errno::ENOTCONN)?;
    let way = make_region()?;
    attach(way, WRITER)?;
    let mut entries = Vec::new();
    for socket in sockets {
        let mut state = socket.borrow_mut();
        match *state {
            State::Bound(port) => {
                // Nothing there to keep but the port, which whoever listens first claims again.
                inner.ports.release(true, port);
                *state = State::New(port);
            }
            _ => entries.extend(entry(inner, &mut state, keeper)?),
        }
    }
    inner.ports.drop_unused(&inner.network.stack);
    net.handed.replace(Some((entries, way)));
    Ok(way)
}

fn entry(inner: &Inner, state: &mut State, keeper: EnvId) -> Result<Option<Entry>, Errno> {
    let stack = &inner.network.stack;
    let own = stack.network().address;
    let none = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    let (what, kind, port, peer) = match *state {
        State::Stream(port, id, _) => (What::Stream(id), Kind::Stream, port, stack.tcp_peer(id)),
        State::Listening(port, id) => (What::Listener(id), Kind::Listener, port, None),
        State::Datagrams(port, id, peer) => (What::Datagrams(id), Kind::Datagrams, port, peer),
        State::New(_) | State::Bound(_) | State::Kept(_) => return Ok(None),
    };
    let (rx, tx) = match kind {
        Kind::Listener => (make_region()?, RegionId::NONE),
        _ => make_pair()?,
    };
    let local = match *state {
        State::Stream(_, id, _) => stack.tcp_local(id),
        _ => None,
    };
    let local = local.unwrap_or(SocketAddrV4::new(own, port));
    let kept = Kept { kind, rx, tx, keeper, local, peer: peer.unwrap_or(none) };
    kept.join()?;
    if kind == Kind::Datagrams {
        kept.set_peer(peer)?;
    }
    // The keeper says when a connection is there.
    let status = if kind == Kind::Stream { CONNECTING } else { OPEN };
    *state = State::Kept(kept);
    if kind == Kind::Datagrams {
        let open = [abi::region::WordAt { offset: STATUS, value: OPEN }];
        Region { id: rx, role: READER }.copy_in(0, &[], &[], &open)?;
    }
    Ok(Some(Entry::new(what, port, kept, status)))
}

/// Lets the keeper run, and waits until packets come to it, or it is dead.
fn start(net: &Net, (domain, keeper): (DomainId, EnvId), way: RegionId) -> Result<(), Errno> {
    let filters = net.inner.borrow().as_ref().map(|inner| inner.ports.filters());
    for filter in filters.unwrap_or_default() {
        call::filter_reference(FAMILY_SLOT, filter, domain).map_err(|_| Errno::ENOBUFS)?;
    }
    // Init takes the record when it dies: our program's children are others.
    if let Some(init) = xok::published::record::<EnvRecord>(Table::Envs, INIT_INDEX) {
        call::env_entrust(keeper, EnvId(init.id)).map_err(|_| Errno::EAGAIN)?;
    }
    call::env_release(FAMILY_SLOT, keeper).map_err(|_| Errno::EAGAIN)?;
    await_open(keeper, way);
    Ok(())
}

fn await_open(keeper: EnvId, way: RegionId) {
    let order = Region { id: way, role: WRITER };
    let address = xok::published::record_address(Table::Envs, keeper.index());
    let state = address + core::mem::offset_of!(EnvRecord, state) as u64;
    let dead = EnvState::Dead as u32;
    let atom = |left: Source, region: RegionId, place: u64, value: u64| Atom {
        operator: Operator::Equal as u8,
        left: left as u8,
        region: region.0,
        left_value: place,
        right_value: value,
        last: 1,
        ..Atom::default()
    };
    let atoms = [
        atom(Source::Region, way, STATUS, OPEN),
        atom(Source::Memory32, RegionId::NONE, state, u64::from(dead)),
        atom(Source::Memory32, RegionId::NONE, state, EnvState::Free as u64),
    ];
    let set = call::predicate_set(&atoms).is_ok();
    while !head(order).is_ok_and(|head| head.status == OPEN) {
        match xok::published::env(keeper) {
            Some(record) if record.state != dead => {}
            _ => break,
        }
        let _ = call::yield_to(keeper);
        if set {
            let _ = call::sleep(0, 0, 0, 0);
        }
    }
    let _ = call::predicate_set(&[]);
    crate::thread::own().has_predicate = false;
}

/// Brings the keeper the frames that came to our ring since it was copied.
fn bring_late(net: &Net, keeper: EnvId, way: RegionId) {
    let order = Region { id: way, role: WRITER };
    let none = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    let mut record = [0; DATAGRAM];
    if let Some(inner) = net.inner.borrow_mut().as_mut() {
        let frames = &mut inner.network.port.ring;
        while let Some(frame) = frames.peek() {
            let bytes = fill_datagram(&mut record, frame, none);
            // More than fits is sent again.
            let Ok(now) = head(order) else { break };
            if RING.free(now.head, now.tail) >= bytes.len() as u64 {
                let _ = append::append(way, now.head, bytes);
            }
            frames.release();
        }
    }
    order.detach();
    let _ = call::yield_to(keeper);
}
