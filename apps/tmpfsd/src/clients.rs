//! Regions of clients: where their data lies, which files they hold open.

use abi::error::Error;
use abi::id::{DomainId, EnvId, RegionId};
use abi::published::{RegionRecord, Table};
use abi::region::{COPY_IN, COPY_OUT, RegionOperation};
use alloc::vec::Vec;
use unix::Errno;
use unix::attributes::Credentials;
use unix::protocol::{CLIENT, SERVER, TRANSPORT_FRAMES, WATCHER};
use unix::tree::{Id, Tree};
use xok::{call, published};

use crate::holders::Holders;
use crate::sockets::Sockets;

/// Index of the capability over all users' names, for the regions of their processes.
pub const PROCESSES: u8 = 2;

/// May a user that has `own` of things with so many regions each, which the server pays for, have
/// one more? There may be `all` of them, and with them an eighth of the machine's regions; `taken`
/// are there. It has no more than it leaves: so there is one for the next user, whoever has some.
pub fn leaves_as_many(all: usize, regions: usize, taken: usize, own: usize) -> bool {
    let all = all.min(published::table(Table::Regions).count as usize / 8 / regions);
    own < all.saturating_sub(taken + 1)
}

/// Regions that the server lets go of at once, some thousand instructions each; others wait
/// meanwhile.
const ENDS: usize = 256;

/// How many regions of dead programs one look lets go of.
#[derive(Debug)]
pub struct Ends(usize);

impl Default for Ends {
    fn default() -> Self {
        Self(ENDS)
    }
}

impl Ends {
    /// Does a region stay, whose program lives if `alive`? Dead ones do for which there is no room.
    pub fn keeps(&mut self, alive: bool) -> bool {
        if alive || self.0 == 0 {
            return true;
        }
        self.0 -= 1;
        false
    }

    /// May there be more?
    pub fn is_used_up(&self) -> bool {
        self.0 == 0
    }
}

/// Named pipes that are open at one time.
const FIFOS: usize = 256;

/// An open file: the region of its description and the inode it holds.
#[derive(Clone, Copy, Debug)]
struct Open {
    region: RegionId,
    node: Id,
}

/// The pipe behind a fifo's name, while somebody has it open.
#[derive(Clone, Copy, Debug)]
struct Fifo {
    region: RegionId,
    node: Id,
    /// The user that opened it first.
    maker: u32,
}

impl Fifo {
    fn is_open(&self) -> bool {
        alive(self.region, 0) || alive(self.region, 1)
    }
}

/// What the server is attached to.
#[derive(Debug, Default)]
pub struct Clients {
    /// Regions of transports, which stay as long as we are attached, and whose they are.
    transports: Vec<(RegionId, DomainId)>,
    open: Vec<Open>,
    fifos: Vec<Fifo>,
    /// Processes that say in their pages what they have open.
    pub holders: Holders,
    /// Regions watched after the last sweep.
    kept: usize,
    /// That sweep has left some of dead programs.
    pub leaves_some: bool,
    /// Where data lie between a file and a transport region; grows to what is moved at once.
    buffer: Vec<u8>,
}

/// The region's published record.
pub fn record(region: RegionId) -> Option<RegionRecord> {
    published::record::<RegionRecord>(Table::Regions, region.index())
        .filter(|record| record.id == region.0)
}

/// Is a domain attached in `role`?
pub fn alive(region: RegionId, role: u16) -> bool {
    record(region).is_some_and(|record| record.attached[role as usize] > 0)
}

/// What a refusal of the kernel's is to a client.
pub fn refused((error, _): (Error, u64)) -> Errno {
    match error {
        Error::BadAddress => Errno::EFAULT,
        Error::Exhausted | Error::OverQuota => Errno::ENOMEM,
        Error::NotPermitted | Error::NoSuchCapability => Errno::EPERM,
        _ => Errno::EIO,
    }
}

/// The domain that an environment runs in.
pub fn domain_of(env: EnvId) -> Option<DomainId> {
    published::env_domain(env)
}

/// The domain that an environment is at home in, whichever it visits.
pub fn home_of(env: EnvId) -> Option<DomainId> {
    let record = published::env(env)?;
    Some(DomainId(if record.home != 0 { record.home } else { record.domain }))
}

impl Clients {
    /// Is the server attached to this region as to a way to it, or to an open file?
    ///
    /// A region is one thing: it lasts while its client is attached, and not because the server is
    /// in the role that a client of the other kind has; and the server, which pays for that, is
    /// attached no more often than there are regions.
    pub fn has(&self, region: RegionId) -> bool {
        self.transports.iter().any(|&(own, _)| own == region)
            || self.open.iter().any(|open| open.region == region)
    }

    /// The transport region that the request names, if the caller's domain made it and it is no
    /// socket's.
    #[inline]
    pub fn transport(
        &mut self,
        domain: DomainId,
        region: u32,
        sockets: &Sockets,
    ) -> Result<RegionId, Errno> {
        // Those that we are attached to are there still.
        let known =
            |(own, whose): &&(RegionId, DomainId)| own.0 as u32 == region && *whose == domain;
        match self.transports.iter().find(known) {
            Some(&(region, _)) => Ok(region),
            None => self.attach_transport(domain, region, sockets),
        }
    }

    fn attach_transport(
        &mut self,
        domain: DomainId,
        region: u32,
        sockets: &Sockets,
    ) -> Result<RegionId, Errno> {
        let region = published::region_with(region).ok_or(Errno::EBADF)?;
        let record = record(region).ok_or(Errno::EBADF)?;
        let sized = TRANSPORT_FRAMES.contains(&(record.bytes as usize / 4096));
        if record.domain != domain.0 || !sized || self.has(region) || sockets.have(region) {
            return Err(Errno::EPERM);
        }
        // Their frames come back by then, whoever died, and however: at most the last clients' stay
        // behind.
        self.sweep_transports(&mut Ends::default());
        room(&mut self.transports)?;
        attach(region, SERVER)?;
        self.transports.push((region, domain));
        Ok(region)
    }

    /// Is this the region of an open file's description that is watched, of this file? EINVAL: it
    /// is another file's. A description is of one, so that there are no more than regions.
    pub fn watches(&self, region: RegionId, node: Id) -> Result<bool, Errno> {
        match self.open.iter().find(|open| open.region == region) {
            Some(open) if open.node != node => Err(Errno::EINVAL),
            known => Ok(known.is_some()),
        }
    }

    /// Watches the region of an open file's description, which is not watched yet.
    pub fn watch(&mut self, caller: EnvId, region: RegionId, node: Id) -> Result<(), Errno> {
        let domain = domain_of(caller).ok_or(Errno::ESRCH)?;
        let record = record(region).ok_or(Errno::EBADF)?;
        let is_clients = record.domain == domain.0 && record.attached[CLIENT as usize] != 0;
        if !is_clients || self.has(region) {
            return Err(Errno::EPERM);
        }
        room(&mut self.open)?;
        attach(region, WATCHER)?;
        self.open.push(Open { region, node });
        Ok(())
    }

    /// The pipe of a fifo, attached for the caller's domain in `role`.
    ///
    /// The server makes it and pays: a region that a user has made could be attached to by all
    /// processes of that user, whatever the pipe's mode. So none may have all of them open.
    pub fn fifo(
        &mut self,
        caller: EnvId,
        (node, role): (Id, u16),
        who: &Credentials,
    ) -> Result<RegionId, Errno> {
        let domain = domain_of(caller).ok_or(Errno::ESRCH)?;
        let known = self.fifos.iter().position(|fifo| fifo.node == node);
        // What lies in one that all have closed is lost (fifo(7)).
        let open = known.and_then(|at| self.fifos.get(at)).filter(|fifo| fifo.is_open());
        let open = open.map(|fifo| fifo.region);
        let region = match open {
            Some(region) => region,
            None => self.make_fifo(who)?,
        };
        let attached = call::region_attach(PROCESSES, region, role, domain);
        if attached.is_err() && open.is_none() {
            detach(region, WATCHER);
        }
        attached.map_err(refused)?;
        if open.is_none() {
            let fifo = Fifo { region, node, maker: who.uid };
            match known.and_then(|at| self.fifos.get_mut(at)) {
                Some(closed) => detach(core::mem::replace(closed, fifo).region, WATCHER),
                None => self.fifos.push(fifo),
            }
        }
        Ok(region)
    }

    /// A pipe for a fifo that no process has open, and room to note it.
    fn make_fifo(&mut self, who: &Credentials) -> Result<RegionId, Errno> {
        // Those that no process has open any more go at the next sweep.
        let open = self.fifos.iter().filter(|fifo| fifo.is_open());
        let (all, made) = open
            .fold((0, 0), |(all, made), fifo| (all + 1, made + usize::from(fifo.maker == who.uid)));
        if all >= FIFOS || who.uid != 0 && !leaves_as_many(FIFOS, 1, all, made) {
            return Err(Errno::ENFILE);
        }
        room(&mut self.fifos)?;
        let frames = [u32::MAX; abi::limits::REGION_FRAMES];
        let region = call::fifo_alloc(PROCESSES, &frames).map_err(refused)?;
        attach(region, WATCHER)?;
        Ok(region)
    }

    /// Lets go of what clients closed or died with, where that may be much.
    pub fn sweep_some(&mut self, tree: &mut Tree) {
        let total = self.open.len() + self.transports.len() + self.fifos.len();
        if total >= 2 * self.kept + 16 || self.leaves_some || tree.has_orphans() {
            self.sweep(tree);
        }
    }

    /// Lets go of what clients closed or died with: until then it is charged to their users.
    pub fn sweep(&mut self, tree: &mut Tree) {
        let mut ends = Ends::default();
        self.open.retain(|open| {
            let keep = ends.keeps(alive(open.region, CLIENT));
            if !keep {
                tree.release(open.node);
                detach(open.region, WATCHER);
            }
            keep
        });
        self.sweep_transports(&mut ends);
        self.fifos.retain(|fifo| {
            let keep = ends.keeps(fifo.is_open());
            if !keep {
                tree.release(fifo.node);
                detach(fifo.region, WATCHER);
            }
            keep
        });
        self.kept = self.open.len() + self.transports.len() + self.fifos.len();
        self.leaves_some = ends.is_used_up();
    }

    /// Lets go of the transport regions of clients that have ended.
    fn sweep_transports(&mut self, ends: &mut Ends) {
        self.transports.retain(|&(region, _)| {
            let keep = ends.keeps(alive(region, CLIENT));
            if !keep {
                detach(region, SERVER);
            }
            keep
        });
    }

    /// Room for that many bytes on their way; what is in it is worth nothing.
    pub fn buffer(&mut self, bytes: usize) -> Result<&mut [u8], Errno> {
        if let Some(more) = bytes.checked_sub(self.buffer.len()) {
            self.buffer.try_reserve(more).map_err(|_| Errno::ENOMEM)?;
            self.buffer.resize(bytes, 0);
        }
        Ok(&mut self.buffer[..bytes])
    }

    /// Is a pipe open behind this node?
    pub fn has_fifo(&self, node: Id) -> bool {
        self.fifos.iter().any(|fifo| fifo.node == node)
    }
}

/// Makes room for one element more.
pub fn room<T>(list: &mut Vec<T>) -> Result<(), Errno> {
    list.try_reserve(1).map_err(|_| Errno::ENOMEM)
}

fn attach(region: RegionId, role: u16) -> Result<(), Errno> {
    call::region_attach(PROCESSES, region, role, DomainId::NONE).map(|_| ()).map_err(refused)
}

/// The region may be gone with its last client: then there is nothing to give back.
fn detach(region: RegionId, role: u16) {
    let _ = call::region_detach(region, role);
}

/// Copies from a client's transport region.
pub fn fetch(region: RegionId, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
    if into.is_empty() {
        return Ok(());
    }
    let operation = RegionOperation {
        region: region.0,
        direction: COPY_OUT,
        role: SERVER as u8,
        address: into.as_mut_ptr() as u64,
        offset,
        len: into.len() as u32,
        ..RegionOperation::default()
    };
    call::region_operate(&operation).map(|_| ()).map_err(refused)
}

/// Copies to a client's transport region.
pub fn deliver(region: RegionId, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
    if bytes.is_empty() {
        return Ok(());
    }
    let operation = RegionOperation {
        region: region.0,
        direction: COPY_IN,
        role: SERVER as u8,
        address: bytes.as_ptr() as u64,
        offset,
        len: bytes.len() as u32,
        ..RegionOperation::default()
    };
    call::region_operate(&operation).map(|_| ()).map_err(refused)
}
