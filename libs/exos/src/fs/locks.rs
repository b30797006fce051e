//! `flock` and `fcntl`'s locks: asked of the file server, waited for by what the kernel publishes.

use abi::id::{EnvId, RegionId};
use abi::predicate::Operator;
use abi::published::{EnvRecord, EnvState, RegionRecord, Table};
use abi::region::WordAt;
use linux_raw_sys::general as raw;
use unix::Errno;
use unix::protocol::{
    CLAIM, CLIENT, LOCK_EXCLUSIVE, LOCK_TEST, LOCK_UNLOCK, LOCK_WAIT, OF_IMAGE, WATCHER,
};

use super::Files;
use super::description::Description;
use super::memory_files::{Sealed, own_domain};
use super::node::Node;
use super::region::{self, Region};
use crate::errno::Answer;
use crate::process::Process;
use crate::thread;
use crate::user;
use crate::wait::{Wait, sleep_until};

/// The last byte there can be: a lock to the end of the file, however it grows.
const LAST: u64 = i64::MAX as u64;
/// Times that a description is shown to be ours.
const CLAIMS_MAX: usize = 256;

/// Whose lock is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Owner {
    /// The description's with this region (`flock`).
    Description(RegionId),
    /// The process's with this id, whichever of its threads asks (`fcntl`).
    Process(EnvId),
}

/// The number by which the server knows the file, and what says there that it is open.
fn file_of(description: &Description) -> Result<Sealed, Errno> {
    match description.file.node() {
        Some(Node::Memory(id)) => Ok((id, description.seal.get())),
        Some(Node::Image(index)) => Ok((OF_IMAGE | index as u64, 0)),
        _ => Err(Errno::ENOLCK),
    }
}

/// `flock(fd, operation)`
pub fn flock(process: &mut Process, fd: i32, operation: u32) -> Answer {
    let what = match operation & !raw::LOCK_NB {
        raw::LOCK_SH => 0,
        raw::LOCK_EX => LOCK_EXCLUSIVE,
        raw::LOCK_UN => LOCK_UNLOCK,
        _ => return Err(Errno::EINVAL),
    };
    let description = process.files.get(fd)?;
    let file = file_of(&description)?;
    // Files of the image have no region that outlives this process's share; nothing writes them.
    process.files.entrust(&description)?;
    let owner = Owner::Description(description.region().ok_or(Errno::ENOLCK)?);
    let waits = operation & raw::LOCK_NB == 0;
    take(process, file, what, owner, (0, LAST), waits)
}

/// `fcntl(fd, F_GETLK | F_SETLK | F_SETLKW, lock)`
pub fn fcntl(process: &mut Process, fd: i32, command: u32, address: u64) -> Answer {
    let description = process.files.get(fd)?;
    let mut lock: raw::flock = user::read_value(address)?;
    let range = range(process, &description, &lock)?;
    let what = match lock.l_type as u32 {
        raw::F_RDLCK => 0,
        raw::F_WRLCK => LOCK_EXCLUSIVE,
        raw::F_UNLCK if command != raw::F_GETLK => LOCK_UNLOCK,
        _ => return Err(Errno::EINVAL),
    };
    let file = file_of(&description)?;
    let owner = Owner::Process(process.id);
    if command == raw::F_GETLK {
        let found = process.files.client()?.lock(file, what | LOCK_TEST, owner, range)?;
        lock.l_type = raw::F_UNLCK as _;
        if found[0] != 0 {
            let exclusive = found[0] & 2 != 0;
            lock.l_type = if exclusive { raw::F_WRLCK } else { raw::F_RDLCK } as _;
            lock.l_whence = raw::SEEK_SET as _;
            lock.l_start = found[1] as i64;
            lock.l_len = if found[2] >= LAST { 0 } else { (found[2] - found[1] + 1) as i64 };
            lock.l_pid = (found[0] >> 32) as i32;
        }
        return user::write_value(address, &lock).map(|()| 0);
    }
    let may = match what {
        0 => description.readable(),
        LOCK_EXCLUSIVE => description.writable(),
        _ => true,
    };
    if !may {
        return Err(Errno::EBADF);
    }
    take(process, file, what, owner, range, command == raw::F_SETLKW)?;
    if what != LOCK_UNLOCK && !process.files.locked.contains(&file.0) {
        process.files.locked.push(file.0);
    }
    Ok(0)
}

/// First and last byte that `lock` means.
fn range(
    process: &Process,
    description: &Description,
    lock: &raw::flock,
) -> Result<(u64, u64), Errno> {
    let base = match lock.l_whence as u32 {
        raw::SEEK_SET => 0,
        raw::SEEK_CUR => description.offset()? as i64,
        raw::SEEK_END => description.file.attributes(&process.files)?.size as i64,
        _ => return Err(Errno::EINVAL),
    };
    let start = base.checked_add(lock.l_start).ok_or(Errno::EOVERFLOW)?;
    let (first, last) = match lock.l_len {
        0 => (start, i64::MAX),
        len if len > 0 => (start, start.checked_add(len - 1).ok_or(Errno::EOVERFLOW)?),
        len => (start.checked_add(len).ok_or(Errno::EINVAL)?, start - 1),
    };
    if first < 0 || last < first { Err(Errno::EINVAL) } else { Ok((first as u64, last as u64)) }
}

/// Asks once: for a description's lock, having shown that it is ours. Whoever shares it may show
/// the same meanwhile; then we do so again.
fn ask(
    process: &Process,
    file: Sealed,
    what: u64,
    owner: Owner,
    range: (u64, u64),
) -> Result<[u64; 4], Errno> {
    for _ in 0..CLAIMS_MAX {
        if let Owner::Description(id) = owner {
            let claim = WordAt { offset: CLAIM, value: own_domain().0 };
            Region { id, role: CLIENT }.copy_in(0, &[], &[], &[claim])?;
        }
        match process.files.client()?.lock(file, what, owner, range) {
            Err(Errno::EBUSY) => {}
            answer => return answer,
        }
    }
    Err(Errno::EAGAIN)
}

/// Takes a lock or gives it back; waits as long as somebody else has it, if `waits`.
fn take(
    process: &mut Process,
    file: Sealed,
    what: u64,
    owner: Owner,
    range: (u64, u64),
    waits: bool,
) -> Answer {
    let what = if waits { what | LOCK_WAIT } else { what };
    loop {
        let [outcome, holder, _, news] = ask(process, file, what, owner, range)?;
        if outcome == 0 {
            return Ok(0);
        }
        if !waits {
            return Err(Errno::EAGAIN);
        }
        // We are attached to it.
        let changes = xok::published::region_with(news as u32).ok_or(Errno::EIO)?;
        let mut wait = Wait::new();
        wait.region(changes, 0, Operator::NotEqual, news >> 32).end_term();
        match owner {
            Owner::Process(_) => ended_terms(&mut wait, EnvId((outcome >> 32) as u32), holder),
            Owner::Description(_) => closed_terms(&mut wait, RegionId(holder)),
        }
        let woken = sleep_until(process, &wait, 0);
        // The region is the server's: it is there for as long as the server.
        let _ = xok::call::region_detach(changes, WATCHER);
        woken?;
    }
}

/// Adds "the process has ended": the environment with this id and serial.
fn ended_terms(wait: &mut Wait, id: EnvId, serial: u64) {
    let address = xok::published::record_address(Table::Envs, id.index());
    let at = |offset: usize| address + offset as u64;
    let dead = EnvState::Dead as u32;
    wait.half(at(core::mem::offset_of!(EnvRecord, state)), Operator::Equal, dead).end_term();
    let place = at(core::mem::offset_of!(EnvRecord, serial));
    wait.memory(place, Operator::NotEqual, serial).end_term();
}

/// Adds "no process has the description with this region any more". There may be another region at
/// its place.
fn closed_terms(wait: &mut Wait, id: RegionId) {
    wait.memory(region::attached_address(id, CLIENT), Operator::Equal, 0).end_term();
    let offset = core::mem::offset_of!(RegionRecord, id) as u64;
    let place = xok::published::record_address(Table::Regions, id.index()) + offset;
    wait.memory(place, Operator::NotEqual, id.0).end_term();
}

/// The process closes a descriptor of `description`: its own locks on the file go (fcntl(2)).
pub fn closed(files: &mut Files, description: &Description) {
    if files.locked.is_empty() {
        return;
    }
    let Ok(file) = file_of(description) else { return };
    if let Some(at) = files.locked.iter().position(|&locked| locked == file.0) {
        files.locked.swap_remove(at);
        // Refused only if there is no server: then there are no locks either.
        let owner = Owner::Process(thread::process().id);
        let _ = files.client().and_then(|client| client.lock(file, LOCK_UNLOCK, owner, (0, LAST)));
    }
}
