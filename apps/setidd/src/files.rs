//! What the file server and the boot image say of a file, and whether an asker may execute it.

use abi::capability::NAME_USER;
use abi::domain::{GROUPS_OF_LIST, SET_OF_GROUPS};
use abi::error::Error;
use abi::id::{DomainId, EnvId, RegionId};
use abi::published::{RegionRecord, Table};
use abi::region::{COPY_OUT, RegionOperation};
use exos::fs::image_files;
use linux_raw_sys::general as raw;
use unix::Errno;
use unix::attributes::{ATTRIBUTES_BYTES, Attributes, Credentials, Membership};
use unix::protocol::{self, CLIENT, DATA, Operation, TRANSPORT_FRAMES};
use unix::seals;
use unix::set_id::{self, File, Ids, READER, Request};
use xok::services::{self, Service};
use xok::{accounts, call, published};

use crate::life::USERS;

/// The way to the file server.
#[derive(Debug)]
pub struct Files {
    region: RegionId,
}

/// What a refusal of the kernel's is to an asker.
pub fn refused((error, _): call::Refused) -> Errno {
    match error {
        Error::Exhausted | Error::OverQuota => Errno::ENOMEM,
        Error::NotPermitted | Error::NoSuchCapability => Errno::EPERM,
        _ => Errno::EAGAIN,
    }
}

fn copy_out(region: RegionId, role: u16, offset: usize, into: &mut [u8]) -> Result<(), Errno> {
    let operation = RegionOperation {
        region: region.0,
        direction: COPY_OUT,
        role: role as u8,
        address: into.as_mut_ptr() as u64,
        offset: offset as u64,
        len: into.len() as u32,
        ..RegionOperation::default()
    };
    call::region_operate(&operation).map(|_| ()).map_err(refused)
}

/// Copies the block that the domain has written into a region of its own.
pub fn fetch(domain: DomainId, request: &Request, into: &mut [u8]) -> Result<(), Errno> {
    let region = RegionId(request.region);
    let record: Option<RegionRecord> = published::record(Table::Regions, region.index());
    let record = record.filter(|record| record.id == region.0).ok_or(Errno::EINVAL)?;
    if record.domain != domain.0 {
        return Err(Errno::EPERM);
    }
    call::region_attach(USERS, region, READER, DomainId::NONE).map_err(refused)?;
    const PIECE: usize = 4096;
    let mut pieces = (0..).step_by(PIECE).zip(into.chunks_mut(PIECE));
    let copied = pieces.try_for_each(|(at, piece)| copy_out(region, READER, at, piece));
    // It may have ended meanwhile: then there is nothing to give back.
    let _ = call::region_detach(region, READER);
    copied
}

/// Does the processor let programs act for these users?
pub fn takes(ids: &Ids) -> Result<(), Errno> {
    if ids.users.into_iter().all(accounts::takes) { Ok(()) } else { Err(Errno::EPERM) }
}

/// Does the domain act for these users and groups? A group of its set alone is none that it could
/// make its real or its effective one.
pub fn holds(domain: DomainId, ids: &Ids) -> Result<(), Errno> {
    let users = ids.users.map(|id| (NAME_USER, id));
    let groups = ids.groups.map(|id| (GROUPS_OF_LIST, id));
    for (kind, id) in users.into_iter().chain(groups) {
        call::domain_holds(domain, kind, id).map_err(|_| Errno::EPERM)?;
    }
    Ok(())
}

/// Has its set this group? In its list are also groups that it could take back.
pub fn is_in(domain: u64, group: u32) -> bool {
    call::domain_holds(DomainId(domain), SET_OF_GROUPS, group).is_ok()
}

/// May the domain do what `mask` says (4 read; 1 execute, or search) with what has these
/// attributes, as its effective user?
pub fn permits(
    domain: DomainId,
    ids: &Ids,
    attributes: &Attributes,
    mask: u32,
) -> Result<(), Errno> {
    let more = Some(Membership { of: domain.0, asks: is_in });
    let who = Credentials { more, ..Credentials::of(ids.users[1], ids.groups[1]) };
    if attributes.permits(&who, mask) { Ok(()) } else { Err(Errno::EACCES) }
}

impl Files {
    /// Opens the way, by which all that is asked is asked for user 0.
    pub fn open() -> Result<Self, Errno> {
        let [narrow, _] = TRANSPORT_FRAMES;
        let region = call::region_alloc(USERS, &[u32::MAX; 2][..narrow]).map_err(refused)?;
        call::region_attach(USERS, region, CLIENT, DomainId::NONE).map_err(refused)?;
        Ok(Self { region })
    }

    fn ask(&self, operation: Operation, arguments: [u64; 4]) -> Result<[u64; 4], Errno> {
        let server = EnvId(services::get(Service::Files) as u32);
        let (region, who) = (self.region.0 as u32, Credentials::of(0, 0));
        let request = protocol::Request { operation, region, arguments, who };
        match call::transfer_when_free(server, request.to_words()) {
            Ok(reply) => protocol::answer(&reply),
            // The next one knows nothing of the file.
            Err(_) => Err(Errno::EIO),
        }
    }

    /// What the file is now.
    pub fn attributes(&self, file: File) -> Result<Attributes, Errno> {
        match file.kind {
            set_id::IMAGE => {
                let index = u32::try_from(file.number).map_err(|_| Errno::ENOENT)?;
                let entry = image_files::entry(index).ok_or(Errno::ENOENT)?;
                Ok(image_files::attributes(&entry))
            }
            set_id::MEMORY => {
                self.ask(Operation::Attributes, [file.number, 0, 0, 0])?;
                let mut bytes = [0; ATTRIBUTES_BYTES];
                copy_out(self.region, CLIENT, DATA as usize, &mut bytes)?;
                Ok(Attributes::from_bytes(&bytes))
            }
            _ => Err(Errno::EACCES),
        }
    }

    /// Does it begin as a script does? Then somebody else would have to read it.
    pub fn is_script(&self, file: File, seal: u64) -> Result<bool, Errno> {
        const MARK: [u8; 2] = *b"#!";
        if file.kind == set_id::IMAGE {
            let index = u32::try_from(file.number).map_err(|_| Errno::ENOENT)?;
            return Ok(image_files::data(index).starts_with(&MARK));
        }
        let [count, ..] = self.ask(Operation::Read, [file.number, 0, MARK.len() as u64, seal])?;
        let mut bytes = [0; MARK.len()];
        copy_out(self.region, CLIENT, DATA as usize, &mut bytes)?;
        Ok(count == MARK.len() as u64 && bytes == MARK)
    }

    /// A seal by which we may read the file.
    pub fn seal(&self, file: File) -> Result<u64, Errno> {
        if file.kind != set_id::MEMORY {
            return Ok(0);
        }
        Ok(self.ask(Operation::Open, [file.number, raw::O_RDONLY.into(), 0, 0])?[1])
    }

    /// The one by which the next life may, which acts for these in that domain.
    pub fn pass(
        &self,
        (file, seal): (File, u64),
        domain: DomainId,
        ids: &Ids,
    ) -> Result<u64, Errno> {
        if seal == 0 {
            return Ok(0);
        }
        let heir = seals::ids(ids.users[1], ids.groups[1]);
        Ok(self.ask(Operation::Seal, [file.number, seal, domain.0, heir])?[0])
    }
}
