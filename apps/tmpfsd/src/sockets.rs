//! Names of local sockets (unix(7)), and the introduction of those who meet by them.
//!
//! The owner of a name shows the region of its port or inbox, which it has just made. A client that
//! connects to a port shows the region of a connection, which it has made, too, and pays for: its
//! other end is kept here and offered at the port. The port's owners write into it which of them
//! takes the offer, and that one is attached in the server's place. What is sent by connections
//! does not pass here; datagrams do, as an inbox has one owner and many senders ([`crate::inbox`]).
//! The layouts are in `unix::local`.

use abi::error::Error;
use abi::id::{DomainId, EnvId, RegionId};
use abi::predicate::{Atom, Operator, Source};
use abi::published::{RegionRecord, Table};
use abi::region::{COPY_IN, COPY_NONE, COPY_OUT, RegionOperation, WordAt};
use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use linux_raw_sys::net::SOCK_DGRAM;
use unix::Errno;
use unix::attributes::Credentials;
use unix::local::{
    CLAIMED, CONNECTION_FRAMES, HEAD_BYTES, LIMIT, NAME, NAME_LENGTH, NAME_MAX, OFFER_COUNT, RESET,
    head_of, offer,
};
use unix::protocol::{BY_SEAL, DATA, LOOK, NAME_FIRST, NO_NODE, SOCKET_OWN_NAME, WATCHER};
use unix::ring::{HEAD, TAIL};
use unix::tree::{Id, Tree};
use xok::{call, published, services};

use crate::clients::{Clients, Ends, PROCESSES, alive, deliver, domain_of, fetch, record, refused};
use crate::inbox::{Inbox, Letter, Seen};
use crate::seals::{self, Seals};

/// Role in which we write to ports and inboxes.
pub const WRITER: u16 = 0;
/// Role of a port's or inbox's owners.
const OWNERS: u16 = 1;
/// The end of a connection that is offered; who connected has the other one.
const OFFERED: u16 = 1;
/// Ports watched at a time: atoms of one predicate.
const WATCHED: usize = 24;

/// A name, and who is behind it.
#[derive(Debug)]
struct Named {
    node: Id,
    /// As it was bound; of an abstract one it is what is looked for.
    name: Vec<u8>,
    kind: u32,
    port: RegionId,
    /// Who listens there, or has bound it (`unix::local::owner`).
    owner: [u64; 2],
    /// Of an inbox: which of all there have been.
    number: u64,
    /// Of an inbox: what was seen of it.
    seen: Option<Seen>,
}

/// A connection that nobody has accepted yet.
#[derive(Clone, Copy, Debug)]
struct Offer {
    port: RegionId,
    number: u64,
    connection: RegionId,
    /// Who has connected.
    client: [u64; 2],
}

/// All of them.
#[derive(Debug, Default)]
pub struct Sockets {
    named: Vec<Named>,
    offers: Vec<Offer>,
    /// Names ever bound.
    count: u64,
    watches: bool,
    /// The last sweep has left some of dead programs.
    pub leaves_some: bool,
    /// The server is to be woken at its next turn.
    hurries: bool,
}

pub fn operate(
    (region, role): (RegionId, u16),
    (direction, offset, address, len): (u8, u64, u64, usize),
    compare: &[WordAt],
    write: &[WordAt],
) -> Result<(), (Error, u64)> {
    let mut operation = RegionOperation {
        region: region.0,
        role: role as u8,
        direction: if len == 0 { COPY_NONE } else { direction },
        address,
        offset,
        len: len as u32,
        compares: compare.len() as u8,
        writes: write.len() as u8,
        ..RegionOperation::default()
    };
    operation.compare[..compare.len()].copy_from_slice(compare);
    operation.write[..write.len()].copy_from_slice(write);
    call::region_operate(&operation).map(|_| ())
}

pub fn read(region: RegionId, role: u16, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
    let part = (COPY_OUT, offset, into.as_mut_ptr() as u64, into.len());
    operate((region, role), part, &[], &[]).map_err(refused)
}

fn write(
    region: RegionId,
    role: u16,
    offset: u64,
    bytes: &[u8],
    words: &[WordAt],
) -> Result<(), Errno> {
    let part = (COPY_IN, offset, bytes.as_ptr() as u64, bytes.len());
    operate((region, role), part, &[], words).map_err(refused)
}

pub fn word(bytes: &[u8], at: u64) -> u64 {
    let part = bytes.get(at as usize..).and_then(|rest| rest.first_chunk::<8>());
    part.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Writes an end's name.
fn write_name(connection: RegionId, end: u16, name: &[u8]) -> Result<(), Errno> {
    let at = head_of(end);
    let words = [WordAt { offset: at + NAME_LENGTH, value: name.len() as u64 }];
    write(connection, OFFERED, at + NAME, name, &words)
}

/// Who a client is: the process that it says, if that is its domain's, else the one that asks.
fn owner_of(caller: EnvId, who: &Credentials, pid: u64) -> [u64; 2] {
    let said = EnvId(pid as u32);
    let own = domain_of(said).is_some() && domain_of(said) == domain_of(caller);
    let process = if own { said } else { caller };
    [u64::from(process.0) | u64::from(who.uid) << 32, who.gid.into()]
}

fn attach(region: RegionId, role: u16, domain: DomainId) -> Result<(), Errno> {
    call::region_attach(PROCESSES, region, role, domain).map(|_| ()).map_err(refused)
}

/// The region may be gone already.
fn detach(region: RegionId, role: u16) {
    let _ = call::region_detach(region, role);
}

/// Keeps the other end of a connection that `domain` has made, whose account pays for it, and has
/// one end of.
fn take(connection: RegionId, domain: DomainId, server: &[u8], client: &[u8]) -> Result<(), Errno> {
    let record = record(connection).ok_or(Errno::EBADF)?;
    let whole = record.bytes as usize == CONNECTION_FRAMES * 4096;
    let free = record.attached[usize::from(OFFERED)] == 0;
    if record.domain != domain.0 || !whole || !free || !alive(connection, 1 - OFFERED) {
        return Err(Errno::EPERM);
    }
    attach(connection, OFFERED, DomainId::NONE)?;
    let named = write_name(connection, OFFERED, server)
        .and_then(|()| write_name(connection, 1 - OFFERED, client));
    named.inspect_err(|_| detach(connection, OFFERED))
}

/// Does the seal that a sender brings say that it was connected? EACCES: it does not, or is asked
/// for.
fn connected(transport: RegionId, len: u64, is: impl Fn(u64) -> bool) -> Result<(), Errno> {
    let mut seal = [0; 8];
    if len & BY_SEAL != 0 {
        fetch(transport, NAME_FIRST, &mut seal)?;
    }
    if is(u64::from_le_bytes(seal)) { Ok(()) } else { Err(Errno::EACCES) }
}

fn fetch_name(transport: RegionId, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
    if len > NAME_MAX {
        return Err(Errno::EINVAL);
    }
    let mut name = unix::map::vector(len)?;
    name.resize(len, 0);
    fetch(transport, offset, &mut name)?;
    Ok(name)
}

impl Sockets {
    fn find(&self, node: Id, name: &[u8]) -> Option<&Named> {
        let is_it = |one: &&Named| one.node == node && (node != NO_NODE || one.name == name);
        self.named.iter().filter(is_it).find(|one| alive(one.port, OWNERS))
    }

    /// Is this region a port, an inbox, or a connection that nobody has accepted yet?
    pub fn have(&self, region: RegionId) -> bool {
        self.named.iter().any(|one| one.port == region)
            || self.offers.iter().any(|offer| offer.connection == region)
    }

    /// Serves `SocketBind`: node, region | kind << 32, bytes of the name.
    pub fn bind(
        &mut self,
        (tree, clients): (&Tree, &Clients),
        (caller, transport): (EnvId, RegionId),
        who: &Credentials,
        [node, port, len]: [u64; 3],
    ) -> Result<[u64; 4], Errno> {
        self.sweep();
        let name = fetch_name(transport, DATA, len as usize)?;
        // An abstract name is told to receivers only if it is the socket's.
        if (node == NO_NODE) != (name.first() == Some(&0)) {
            return Err(Errno::EINVAL);
        }
        let kind = (port >> 32) as u32;
        let port = published::region_with(port as u32).ok_or(Errno::EBADF)?;
        let domain = domain_of(caller).ok_or(Errno::ESRCH)?;
        let record: Option<RegionRecord> = published::record(Table::Regions, port.index());
        let record = record.filter(|record| record.id == port.0).ok_or(Errno::EBADF)?;
        let frames = u64::from(record.bytes) / 4096;
        if record.domain != domain.0 || !alive(port, OWNERS) || frames == 0 {
            return Err(Errno::EPERM);
        }
        if node != NO_NODE {
            let attributes = tree.attributes(node)?;
            if attributes.kind() != raw::S_IFSOCK {
                return Err(Errno::EINVAL);
            }
            // A name stays when its socket has gone: it is its maker's still.
            if who.uid != 0 && who.uid != attributes.uid {
                return Err(Errno::EPERM);
            }
        }
        // Each request looks at all names: there are no more than regions.
        if self.have(port) || clients.has(port) {
            return Err(Errno::EINVAL);
        }
        if self.find(node, &name).is_some() {
            return Err(Errno::EADDRINUSE);
        }
        self.named.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        attach(port, WRITER, DomainId::NONE)?;
        let owner = owner_of(caller, who, caller.0.into());
        self.count += 1;
        let number = unix::handles::inbox(self.count);
        self.named.push(Named { node, name, kind, port, owner, number, seen: None });
        Ok([0; 4])
    }

    /// Serves `SocketListen`: port, pid.
    pub fn listen(
        &mut self,
        caller: EnvId,
        who: &Credentials,
        [port, pid]: [u64; 2],
    ) -> Result<[u64; 4], Errno> {
        let port = RegionId(port);
        let domain = domain_of(caller).ok_or(Errno::ESRCH)?;
        let record: Option<RegionRecord> = published::record(Table::Regions, port.index());
        // Another domain may be attached there, too, or may not: it changes nothing.
        let made = record.is_some_and(|one| one.id == port.0 && one.domain == domain.0);
        if let Some(named) = self.named.iter_mut().find(|one| made && one.port == port) {
            named.owner = owner_of(caller, who, pid);
        }
        Ok([0; 4])
    }

    /// Serves `SocketConnect`: node, kind | bytes of the name << 8 | of the own one << 16 | 1 << 24
    /// to look only, pid, connection.
    pub fn connect(
        &mut self,
        (tree, seals, clients): (&Tree, &Seals<'_>, &Clients),
        (caller, transport): (EnvId, RegionId),
        who: &Credentials,
        [node, which, pid, connection]: [u64; 4],
    ) -> Result<[u64; 4], Errno> {
        self.sweep();
        let [kind, name_len, own_len, looks, ..] = which.to_le_bytes();
        let name = fetch_name(transport, DATA, usize::from(name_len))?;
        let own_name = fetch_name(transport, DATA + SOCKET_OWN_NAME, usize::from(own_len))?;
        if node != NO_NODE {
            tree.check(node, who, 2)?;
        }
        let domain = domain_of(caller).ok_or(Errno::ESRCH)?;
        let named = self.find(node, &name).ok_or(Errno::ECONNREFUSED)?;
        if named.kind != u32::from(kind) {
            return Err(Errno::EPROTOTYPE);
        }
        let port = named.port;
        if named.kind == SOCK_DGRAM {
            return Ok([port.0, 0, seals.made(named.number), named.number]);
        }
        let mut head = [0; HEAD_BYTES];
        read(port, WRITER, 0, &mut head)?;
        let limit = word(&head, LIMIT).min(OFFER_COUNT);
        if limit == 0 {
            return Err(Errno::ECONNREFUSED);
        }
        let waiting = self.offers.iter().filter(|offer| offer.port == port).count() as u64;
        if waiting >= limit {
            attach(port, WATCHER, domain)?;
            return Ok([0, port.0, word(&head, TAIL), 0]);
        }
        if looks != 0 {
            return Ok([0; 4]);
        }
        let owner = named.owner;
        let server = unix::map::copied(&named.name)?;
        self.offers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let client = owner_of(caller, who, pid);
        let connection = RegionId(connection);
        if self.have(connection) || clients.has(connection) {
            return Err(Errno::EPERM);
        }
        take(connection, domain, &server, &own_name)?;
        let number = word(&head, HEAD);
        let words = [
            WordAt { offset: offer(number), value: connection.0 },
            // The listener stores there what it likes.
            WordAt { offset: HEAD, value: number.wrapping_add(1) },
        ];
        write(port, WRITER, 0, &[], &words).inspect_err(|_| detach(connection, OFFERED))?;
        self.offers.push(Offer { port, number, connection, client });
        self.watch();
        Ok([connection.0, owner[0], owner[1], 0])
    }

    /// The name and region of a client's own inbox, if it is one of the client's domain or user.
    fn own_inbox(
        &self,
        low: u32,
        domain: DomainId,
        who: &Credentials,
    ) -> Result<(Vec<u8>, RegionId), Errno> {
        let region = published::region_with(low);
        let Some(record) = region.and_then(record) else { return Ok((Vec::new(), RegionId::NONE)) };
        let named = self.named.iter().find(|one| Some(one.port) == region);
        let users = |one: &Named| one.owner[0] >> 32 == u64::from(who.uid);
        if record.domain != domain.0 && !named.is_some_and(users) {
            return Ok((Vec::new(), RegionId::NONE));
        }
        let name = named.map_or(&[][..], |one| &one.name);
        Ok((unix::map::copied(name)?.into_vec(), RegionId(record.id)))
    }

    /// Serves `SocketSend`: inbox, own inbox | pid << 32, bytes | by the seal; the sender's ids are
    /// checked.
    pub fn send(
        &mut self,
        (tree, seals): (&Tree, &Seals<'_>),
        (caller, transport): (EnvId, RegionId),
        [who, sender]: [&Credentials; 2],
        [inbox, own, len]: [u64; 3],
    ) -> Result<[u64; 4], Errno> {
        self.sweep();
        let domain = domain_of(caller).ok_or(Errno::ESRCH)?;
        let (name, own_inbox) = self.own_inbox(own as u32, domain, who)?;
        let pid = own >> 32;
        let [process, group] = owner_of(caller, sender, pid);
        // User 0 may send in the name of any process (unix(7)).
        let process = if who.uid == 0 { process >> 32 << 32 | pid } else { process };
        let sender = unix::local::owner([process, group]);
        let is_it = |one: &&mut Named| {
            one.number == inbox && one.kind == SOCK_DGRAM && alive(one.port, OWNERS)
        };
        let named = self.named.iter_mut().find(is_it).ok_or(Errno::ECONNREFUSED)?;
        // The handle says that it was connected, not who has it now, or whoever it is by now.
        if named.node != NO_NODE && tree.check(named.node, who, seals::WRITE as u32).is_err() {
            connected(transport, len, |seal| seals.permits(seal, named.number, seals::WRITE))?;
        }
        let len = len & !BY_SEAL;
        let mut inbox = Inbox { region: named.port, seen: &mut named.seen };
        inbox.admits(own_inbox)?;
        if len == LOOK {
            deliver(transport, DATA, &named.name)?;
            return Ok([1, named.name.len() as u64, 0, 0]);
        }
        let letter = Letter { transport, len, name: &name, sender };
        match inbox.take(&letter)? {
            None => Ok([1, 0, 0, 0]),
            Some(operations) => Ok([0, operations, 0, 0]),
        }
    }

    /// Serves `SocketAccept`: port, number of the offer that its owner has claimed.
    pub fn accept(&mut self, caller: EnvId, [port, number]: [u64; 2]) -> Result<[u64; 4], Errno> {
        let port = RegionId(port);
        let domain = domain_of(caller).ok_or(Errno::ESRCH)?;
        let is_it = |offer: &Offer| offer.port == port && offer.number == number;
        let at = self.offers.iter().position(is_it).ok_or(Errno::ECONNABORTED)?;
        let mut claim = [0; 8];
        read(port, WRITER, offer(number), &mut claim)?;
        if u64::from_le_bytes(claim) != CLAIMED | domain.0 {
            return Err(Errno::EPERM);
        }
        let Offer { connection, client, .. } = self.offers[at];
        attach(connection, OFFERED, domain)?;
        detach(connection, OFFERED);
        self.offers.swap_remove(at);
        self.watch();
        Ok([connection.0, client[0], client[1], 0])
    }

    /// Lets go of ports whose owners have gone, and of what was offered there, so many at a time.
    pub fn sweep(&mut self) {
        let mut ends = Ends::default();
        self.offers.retain(|offer| {
            let keep = ends.keeps(alive(offer.port, OWNERS));
            if !keep {
                let reset = [WordAt { offset: head_of(1 - OFFERED) + RESET, value: 1 }];
                // Who connected may have gone, too: then nobody is left to be told.
                let _ = write(offer.connection, OFFERED, 0, &[], &reset);
                detach(offer.connection, OFFERED);
            }
            keep
        });
        self.named.retain(|named| {
            let keep = ends.keeps(alive(named.port, OWNERS));
            if !keep {
                detach(named.port, WRITER);
            }
            keep
        });
        self.leaves_some = ends.is_used_up();
    }

    /// Asks to be woken soon, or no more: after a request nothing else ends the server's sleep.
    pub fn hurry(&mut self, is: bool) {
        if core::mem::replace(&mut self.hurries, is) != is {
            self.watch();
        }
    }

    /// Asks to be woken when the last owner of a port has gone at which something is offered.
    pub fn watch(&mut self) {
        if self.offers.is_empty() && !self.watches && !self.hurries {
            return;
        }
        let mut ports = [RegionId::NONE; WATCHED];
        let mut count = 0;
        for port in self.offers.iter().map(|offer| offer.port) {
            if count < WATCHED && !ports[..count].contains(&port) {
                ports[count] = port;
                count += 1;
            }
        }
        let attached = core::mem::offset_of!(RegionRecord, attached) as u64;
        let gone = |port: &RegionId| Atom {
            operator: Operator::Equal as u8,
            left: Source::Memory as u8,
            last: 1,
            left_value: published::record_address(Table::Regions, port.index())
                + attached
                + 8 * u64::from(OWNERS),
            ..Atom::default()
        };
        let mut atoms = [Atom::default(); WATCHED + 1];
        for (place, port) in atoms.iter_mut().zip(&ports[..count]) {
            *place = gone(port);
        }
        if self.hurries {
            // Init is always there.
            let init = published::record_address(Table::Envs, services::INIT_INDEX);
            let operator = Operator::NotEqual as u8;
            let left = Source::Memory as u8;
            atoms[count] = Atom { operator, left, last: 1, left_value: init, ..Atom::default() };
            count += 1;
        }
        self.watches = count > 0;
        // Refused only for want of pins: then they are noticed at the next request.
        let _ = call::predicate_set(&atoms[..count]);
    }
}
