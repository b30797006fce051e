//! Names of pseudo-terminals (pts(4)): who has their regions.
//!
//! The regions are made here, as those of named pipes are, and the terminal server finds them in
//! the table (`unix::tty::shared`), whose sequence it sleeps for. It serves them until the last
//! user of the master has gone, and then empties the entry. Whose a terminal is, is kept here: that
//! of a server that was restarted is user 0's.

use abi::id::{DomainId, EnvId, RegionId};
use abi::region::{COPY_IN, COPY_OUT, RegionOperation, WordAt};
use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use unix::Errno;
use unix::attributes::{Attributes, Credentials};
use unix::local::CONNECTION_FRAMES;
use unix::protocol::{CHANGE_GID, CHANGE_MODE, CHANGE_UID, DATA, WATCHER};
use unix::tty::shared::{
    CONTROL_BYTES, CONTROL_READER, CONTROL_ROLE, Control, Entry, INPUT_FRAMES, INPUT_PROGRAM,
    OUTPUT_FRAMES, OUTPUT_PROGRAM, TABLE_SERVER, TERMINALS,
};
use xok::call;
use xok::services::{self, Service};

use crate::clients::{PROCESSES, deliver, domain_of, leaves_as_many, record, refused};

/// Role of the master's users.
const MASTER: u16 = 0;

/// Group of terminals, by whose `write` permission others send messages (mesg(1)).
const TERMINAL_GROUP: u32 = 5;

/// Whose the terminals are.
#[derive(Debug)]
pub struct Terminals {
    owners: [Owner; TERMINALS],
    /// The regions of each that a user other than 0 has made, and which user: they last as long as
    /// any process is attached to one, also after the terminal's end, and where not all of one
    /// could be made.
    made: Vec<([RegionId; 4], u32)>,
}

/// Whose a terminal is, while its control region is this one.
#[derive(Clone, Copy, Debug, Default)]
struct Owner {
    control: u64,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Default for Terminals {
    fn default() -> Self {
        Self { owners: [Owner::default(); TERMINALS], made: Vec::new() }
    }
}

/// The terminal of a number, if it is the one of these settings (0: whichever). Whoever has one
/// open, or as its session's, may have it longer than it has the number.
fn at(number: u64, settings: u64) -> Result<(usize, Entry), Errno> {
    let known = usize::try_from(number).ok().filter(|&number| number < TERMINALS);
    let number = known.ok_or(Errno::ENOENT)?;
    let entry = entry(number)?.ok_or(Errno::EIO)?;
    let is_meant = settings == 0 || settings == entry.control;
    if is_meant { Ok((number, entry)) } else { Err(Errno::EIO) }
}

impl Terminals {
    fn owner(&self, number: usize, entry: &Entry) -> Owner {
        let control = entry.control;
        let first = Owner { control, mode: 0o620, uid: 0, gid: TERMINAL_GROUP };
        if self.owners[number].control == entry.control { self.owners[number] } else { first }
    }

    /// Serves `TerminalMake`.
    pub fn open_master(
        &mut self,
        caller: EnvId,
        transport: RegionId,
        who: &Credentials,
    ) -> Result<[u64; 4], Errno> {
        self.made.retain(|(regions, _)| last(regions));
        let made = self.made.iter().filter(|(_, maker)| *maker == who.uid).count();
        if who.uid != 0 && !leaves_as_many(TERMINALS, 4, self.made.len(), made) {
            return Err(Errno::ENOSPC);
        }
        self.made.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let (regions, made) = make_regions(caller)?;
        let uid = who.uid;
        if uid != 0 && last(&regions) {
            self.made.push((regions, uid));
        }
        let (number, entry) = made?;
        let control = entry.control;
        self.owners[number] = Owner { control, mode: 0o620, uid, gid: TERMINAL_GROUP };
        deliver(transport, DATA, &entry.to_bytes())?;
        Ok([number as u64, 0, 0, 0])
    }

    /// Serves `TerminalOpen`.
    pub fn open_slave(
        &self,
        caller: EnvId,
        transport: RegionId,
        who: &Credentials,
        [number, mask, settings]: [u64; 3],
    ) -> Result<[u64; 4], Errno> {
        let domain = domain_of(caller).ok_or(Errno::ESRCH)?;
        let (number, entry) = at(number, settings)?;
        if mask == 0 {
            deliver(transport, DATA, &entry.to_bytes())?;
            return Ok([0; 4]);
        }
        let Owner { mode, uid, gid, .. } = self.owner(number, &entry);
        let mask = if matches!(mask, 2 | 4) { mask as u32 } else { 6 };
        let attributes =
            Attributes { mode: mode | raw::S_IFCHR, uid, gid, ..Attributes::default() };
        if !attributes.permits(who, mask) {
            return Err(Errno::EACCES);
        }
        // Whoever may only write (mesg(1)) reads no input, types nothing and changes no settings;
        // whoever may only read shows nothing.
        let (reads, writes) = (mask & 4 != 0, mask & 2 != 0);
        let settings = if reads { CONTROL_ROLE } else { CONTROL_READER };
        attach(RegionId(entry.control), settings, domain)?;
        if writes {
            attach(RegionId(entry.output), OUTPUT_PROGRAM, domain)?;
        }
        if reads {
            attach(RegionId(entry.input), INPUT_PROGRAM, domain)?;
        }
        deliver(transport, DATA, &entry.to_bytes())?;
        Ok([0; 4])
    }

    /// Serves `TerminalAttributes`.
    pub fn attributes(&self, [number, settings]: [u64; 2]) -> Result<[u64; 4], Errno> {
        let (number, entry) = at(number, settings)?;
        let Owner { mode, uid, gid, .. } = self.owner(number, &entry);
        Ok([mode.into(), uid.into(), gid.into(), 0])
    }

    /// Serves `TerminalChange`, by the rules of chmod(2) and chown(2).
    pub fn change(
        &mut self,
        who: &Credentials,
        [number_and_which, settings, mode_and_owner, group]: [u64; 4],
    ) -> Result<[u64; 4], Errno> {
        let which = number_and_which >> 32;
        let (number, entry) = at(number_and_which & 0xffff_ffff, settings)?;
        let mut owner = self.owner(number, &entry);
        let (root, owns) = (who.uid == 0, who.uid == owner.uid);
        let (uid, gid) = ((mode_and_owner >> 32) as u32, group as u32);
        let gives = which & CHANGE_UID != 0 && uid != owner.uid;
        let strange = which & CHANGE_GID != 0 && gid != owner.gid && !who.is_member(gid);
        let asked = which & (CHANGE_MODE | CHANGE_UID | CHANGE_GID) != 0;
        if asked && !root && (!owns || gives || strange) {
            return Err(Errno::EPERM);
        }
        if which & CHANGE_MODE != 0 {
            owner.mode = mode_and_owner as u32 & 0o7777;
        }
        if which & CHANGE_UID != 0 {
            owner.uid = uid;
        }
        if which & CHANGE_GID != 0 {
            owner.gid = gid;
        }
        self.owners[number] = owner;
        Ok([0; 4])
    }
}

fn table() -> Result<RegionId, Errno> {
    let id = RegionId(services::get(Service::Terminals));
    if id.is_none() { Err(Errno::ENODEV) } else { Ok(id) }
}

fn read(region: RegionId, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
    let operation = RegionOperation {
        region: region.0,
        role: TABLE_SERVER as u8,
        direction: COPY_OUT,
        address: into.as_mut_ptr() as u64,
        offset,
        len: into.len() as u32,
        ..RegionOperation::default()
    };
    call::region_operate(&operation).map(|_| ()).map_err(refused)
}

fn entry(number: usize) -> Result<Option<Entry>, Errno> {
    let mut bytes = [0; Entry::BYTES];
    read(table()?, Entry::offset(number), &mut bytes)?;
    Ok(Entry::from_bytes(&bytes))
}

fn attach(region: RegionId, role: u16, domain: DomainId) -> Result<(), Errno> {
    call::region_attach(PROCESSES, region, role, domain).map(|_| ()).map_err(refused)
}

fn make(frames: usize) -> Result<RegionId, Errno> {
    let any = [u32::MAX; CONNECTION_FRAMES];
    call::region_alloc(PROCESSES, &any[..frames.min(any.len())]).map_err(refused)
}

/// What one role puts in, unseen by others of that role, and another takes out.
fn make_fifo(frames: usize) -> Result<RegionId, Errno> {
    let any = [u32::MAX; CONNECTION_FRAMES];
    call::fifo_alloc(PROCESSES, &any[..frames.min(any.len())]).map_err(refused)
}

/// Is any of these regions there, of which some may never have been made?
fn last(regions: &[RegionId; 4]) -> bool {
    regions.iter().any(|&id| !id.is_none() && record(id).is_some())
}

/// What came of making a terminal: all its regions, those that were made before it was refused, or
/// its number and entry.
type Made = ([RegionId; 4], Result<(usize, Entry), Errno>);

/// Makes a terminal's regions and its entry, and attaches its master. Where that is refused midway,
/// the regions last to which the caller's domain has been attached.
fn make_regions(caller: EnvId) -> Result<Made, Errno> {
    let domain = domain_of(caller).ok_or(Errno::ESRCH)?;
    let free = |number: &usize| entry(*number).is_ok_and(|entry| entry.is_none());
    let number = (0..TERMINALS).find(free).ok_or(Errno::ENOSPC)?;
    let regions: [(_, fn(usize) -> _); 4] =
        [(INPUT_FRAMES, make), (OUTPUT_FRAMES, make_fifo), (0, make), (CONNECTION_FRAMES, make)];
    let mut made = [RegionId::NONE; 4];
    let mut prepare = || {
        for (place, (frames, make)) in made.iter_mut().zip(regions) {
            *place = make(frames)?;
            attach(*place, CONTROL_ROLE, DomainId::NONE)?;
        }
        let [input, output, control, master] = made.map(|region| region.0);
        lock(made[2])?;
        for looked_at in [input, output] {
            attach(RegionId(looked_at), WATCHER, domain)?;
        }
        attach(RegionId(control), CONTROL_ROLE, domain)?;
        attach(RegionId(master), MASTER, domain)?;
        let entry = Entry { input, output, control, master };
        enter(number, &entry).map(|()| entry)
    };
    let prepared = prepare();
    // From here on they are the master's and the terminal server's; what nobody has is gone.
    for region in made.into_iter().filter(|region| !region.is_none()) {
        let _ = call::region_detach(region, CONTROL_ROLE);
    }
    Ok((made, prepared.map(|entry| (number, entry))))
}

/// The first settings: nobody may open it yet.
fn lock(control: RegionId) -> Result<(), Errno> {
    let bytes = Control { locked: true, ..Control::default() }.to_bytes();
    let operation = RegionOperation {
        region: control.0,
        role: CONTROL_ROLE as u8,
        direction: COPY_IN,
        address: bytes.as_ptr() as u64,
        len: CONTROL_BYTES as u32,
        ..RegionOperation::default()
    };
    call::region_operate(&operation).map(|_| ()).map_err(refused)
}

/// Writes an entry, and wakes the terminal server.
fn enter(number: usize, entry: &Entry) -> Result<(), Errno> {
    let table = table()?;
    let mut sequence = [0; 8];
    read(table, 0, &mut sequence)?;
    let at = Entry::offset(number);
    let bytes = entry.to_bytes();
    let next = u64::from_le_bytes(sequence) + 1;
    let mut operation = RegionOperation {
        region: table.0,
        role: TABLE_SERVER as u8,
        direction: COPY_IN,
        address: bytes.as_ptr() as u64,
        offset: at,
        len: bytes.len() as u32,
        writes: 1,
        ..RegionOperation::default()
    };
    operation.write[0] = WordAt { offset: 0, value: next };
    call::region_operate(&operation).map(|_| ()).map_err(refused)
}

/// Serves `TerminalList`.
pub fn list() -> Result<[u64; 4], Errno> {
    let mut set = 0;
    for number in 0..TERMINALS {
        set |= u64::from(entry(number)?.is_some()) << number;
    }
    Ok([set, 0, 0, 0])
}
