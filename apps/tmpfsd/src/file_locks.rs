//! Advisory locks: who holds what (`unix::locks`), and how those who wait hear of changes.
//!
//! A lock's owner is a region or a process's first environment, whose death the kernel publishes:
//! nobody has to tell the server. What is given back in life moves a word in a region of the
//! server's, which everybody who waits is attached to meanwhile.

use abi::id::{DomainId, EnvId, RegionId};
use abi::region::{COPY_NONE, COPY_OUT, RegionOperation, WordAt};
use unix::Errno;
use unix::attributes::Credentials;
use unix::locks::{Lock, Locks, Owner};
use unix::protocol::{
    CLAIM, CLIENT, DATA, LOCK_EXCLUSIVE, LOCK_PROCESS, LOCK_TEST, LOCK_UNLOCK, LOCK_WAIT, OF_IMAGE,
    READER, WATCHER,
};
use unix::tree::{Id, Tree};
use xok::{call, published};

use crate::clients::{PROCESSES, alive, domain_of, fetch, home_of, refused};
use crate::seals::{self, Seals};

/// Role in which the server changes its region.
const CHANGER: u16 = 0;

/// The locks, and the region that tells of changes, once somebody has had to wait.
#[derive(Debug, Default)]
pub struct FileLocks {
    locks: Locks,
    changes: RegionId,
    count: u32,
}

fn lives(owner: Owner) -> bool {
    match owner {
        Owner::Description(region) => alive(RegionId(region), CLIENT),
        Owner::Process(pid, serial) => {
            let pid = EnvId(pid);
            published::env_lives(pid) && published::env_serial(pid) == Some(serial)
        }
    }
}

/// Is the description the caller's? Only who shares it can have written its domain there.
fn claimed(caller: EnvId, description: RegionId) -> Result<(), Errno> {
    let domain = domain_of(caller).ok_or(Errno::ESRCH)?;
    call::region_attach(PROCESSES, description, READER, DomainId::NONE).map_err(refused)?;
    let mut claim = 0_u64;
    let operation = RegionOperation {
        region: description.0,
        direction: COPY_OUT,
        role: READER as u8,
        address: &raw mut claim as u64,
        offset: CLAIM,
        len: 8,
        ..RegionOperation::default()
    };
    let read = call::region_operate(&operation).map_err(refused);
    // It may have ended meanwhile: then there is nothing to give back.
    let _ = call::region_detach(description, READER);
    read?;
    if claim == domain.0 { Ok(()) } else { Err(Errno::EBUSY) }
}

/// The process whose first environment is `first`, as an owner, if the caller is one of it: nobody
/// else runs in its domain. Where a process visits counts for nothing.
fn process_of(caller: EnvId, first: EnvId) -> Result<Owner, Errno> {
    let serial = published::env_serial(first).ok_or(Errno::ESRCH)?;
    if first != caller && home_of(first) != domain_of(caller) {
        return Err(Errno::EPERM);
    }
    Ok(Owner::Process(first.0, serial))
}

/// Can the caller have the file open for one of these? By its mode now, or by a seal in the
/// caller's region.
fn opened(
    (tree, seals): (&Tree, &Seals<'_>),
    region: RegionId,
    who: &Credentials,
    (file, rights): (Id, &[u64]),
) -> Result<(), Errno> {
    let refused = |&right: &u64| tree.check(file, who, right as u32).err();
    let Some(refusal) = rights.iter().map(refused).reduce(Option::and).flatten() else {
        return Ok(());
    };
    let mut seal = [0; 8];
    fetch(region, DATA, &mut seal)?;
    let seal = u64::from_le_bytes(seal);
    if rights.iter().any(|&right| seals.permits(seal, file, right)) {
        return Ok(());
    }
    Err(refusal)
}

impl FileLocks {
    /// Serves `Lock`: file, what | description << 32, first and last byte.
    pub fn request(
        &mut self,
        files: (&Tree, &Seals<'_>),
        (caller, region): (EnvId, RegionId),
        who: &Credentials,
        [file, what, first, last]: [u64; 4],
    ) -> Result<[u64; 4], Errno> {
        let owner = match (what >> 32) as u32 {
            0 => process_of(caller, caller)?,
            id if what & LOCK_PROCESS != 0 => process_of(caller, EnvId(id))?,
            region => Owner::Description(published::region_with(region).ok_or(Errno::EINVAL)?.0),
        };
        if first > last || !lives(owner) {
            return Err(Errno::EINVAL);
        }
        if what & LOCK_UNLOCK == 0 {
            // `fcntl` keeps readers out for those alone who may write (fcntl(2)); `flock` asks not.
            let takes = what & LOCK_EXCLUSIVE != 0 && what & LOCK_TEST == 0;
            let writes = takes && matches!(owner, Owner::Process(..));
            let rights: &[u64] =
                if writes { &[seals::WRITE] } else { &[seals::READ, seals::WRITE] };
            if file < OF_IMAGE {
                opened(files, region, who, (file, rights))?;
            } else if writes {
                // No process writes the image's.
                return Err(Errno::EBADF);
            }
        }
        if let Owner::Description(region) = owner {
            claimed(caller, RegionId(region))?;
        }
        self.locks.sweep(lives);
        if what & LOCK_UNLOCK != 0 {
            if self.locks.unlock(file, owner, first, last)? {
                self.changed();
            }
            return Ok([0; 4]);
        }
        let exclusive = what & LOCK_EXCLUSIVE != 0;
        let wanted = Lock { file, owner, user: who.uid, exclusive, first, last };
        if let Some(held) = self.locks.conflict(&wanted) {
            let (id, never_again) = match held.owner {
                Owner::Description(region) => (region, region),
                Owner::Process(pid, serial) => (pid.into(), serial),
            };
            let outcome = 1 | u64::from(held.exclusive) << 1 | id << 32;
            if what & LOCK_WAIT != 0 {
                return Ok([outcome, never_again, 0, self.news_for(caller)?]);
            }
            return Ok([outcome, held.first, held.last, 0]);
        }
        if what & LOCK_TEST == 0 && self.locks.lock(wanted)? {
            // A shared lock in place of an exclusive one lets others in.
            self.changed();
        }
        Ok([0; 4])
    }

    /// Attaches the caller's domain to the region of changes; its id's low half, and the count now.
    fn news_for(&mut self, caller: EnvId) -> Result<u64, Errno> {
        if self.changes.is_none() {
            let region = call::region_alloc(PROCESSES, &[]).map_err(refused)?;
            call::region_attach(PROCESSES, region, CHANGER, DomainId::NONE).map_err(refused)?;
            self.changes = region;
            self.changed();
        }
        let domain = domain_of(caller).ok_or(Errno::ESRCH)?;
        call::region_attach(PROCESSES, self.changes, WATCHER, domain).map_err(refused)?;
        Ok(u64::from(self.changes.0 as u32) | u64::from(self.count) << 32)
    }

    /// Wakes those who wait.
    fn changed(&mut self) {
        if self.changes.is_none() {
            return;
        }
        self.count = self.count.wrapping_add(1);
        let mut operation = RegionOperation {
            region: self.changes.0,
            writes: 1,
            direction: COPY_NONE,
            role: CHANGER as u8,
            ..RegionOperation::default()
        };
        operation.write[0] = WordAt { offset: 0, value: u64::from(self.count) };
        // Our own region: it is there, and the word lies in it.
        let _ = call::region_operate(&operation);
    }
}
