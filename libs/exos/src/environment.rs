//! The environment that a program was started with, for `/proc/PID/environ`.
//!
//! Published pages hold no secrets, and passwords travel in environments: so it lies in a region
//! that only processes of the user may read, and the page tells which. All that run the program,
//! fork children too, are attached to it; with the last of them it goes.

use crate::capabilities::{REAL_SLOT, USER_SLOT};
use crate::errno::{Errno, from_kernel};
use crate::fs::region::{self, Region};
use crate::page::{self, ProcessPage};
use crate::process::Process;
use abi::id::{DomainId, EnvId, RegionId};
use abi::layout::PAGE_SIZE;
use abi::limits::REGION_FRAMES;
use abi::published::RegionRecord;
use alloc::vec::Vec;
use xok::{call, published};

/// Role of those who run the program.
const OWNER: u16 = 0;
/// Role of those who look.
const READER: u16 = 2;
/// Bytes kept; the rest of a longer one is not shown.
const BYTES_MAX: usize = REGION_FRAMES * PAGE_SIZE as usize;

/// Shows a new program's environment. Without a region nothing is shown: the program runs as well.
pub fn show(environment: &[Vec<u8>]) {
    let mut text: Vec<u8> =
        environment.iter().flat_map(|text| text.iter().copied().chain([0])).collect();
    text.truncate(BYTES_MAX);
    if text.is_empty() {
        return;
    }
    if let Ok(id) = put(&text) {
        let page = page::own();
        page.environment = id.0;
        page.environment_len = text.len() as u32;
    }
}

/// Takes back what [`show`] showed.
pub fn hide() {
    let page = page::own();
    let id = RegionId(core::mem::take(&mut page.environment));
    page.environment_len = 0;
    if !id.is_none() {
        Region { id, role: OWNER }.detach();
    }
}

fn put(text: &[u8]) -> Result<RegionId, Errno> {
    let region = Region { id: region::make_for(text.len())?, role: OWNER };
    attach(&region)?;
    let pieces = (0..).step_by(PAGE_SIZE as usize).zip(text.chunks(PAGE_SIZE as usize));
    for (offset, piece) in pieces {
        if let Err(errno) = region.copy_in(offset, piece, &[], &[]) {
            region.detach();
            return Err(errno);
        }
    }
    Ok(region.id)
}

fn attach(region: &Region) -> Result<(), Errno> {
    let by = |slot| call::region_attach(slot, region.id, region.role, DomainId::NONE);
    let attached = by(USER_SLOT).or_else(|_| by(REAL_SLOT));
    attached.map(|_| ()).map_err(|(error, _)| from_kernel(error))
}

/// The region it is shown in, for a fork child's domain to hold, too.
pub fn region() -> Option<Region> {
    let id = RegionId(page::own().environment);
    (!id.is_none()).then_some(Region { id, role: OWNER })
}

/// Is the region what the process `id` may show as its own: made by its domain, or paid for as that
/// is? Its page says any number, and who looks as user 0 would tell what is another one's.
fn is_its(id: EnvId, region: RegionId) -> bool {
    let domain = published::env_home(id).unwrap_or(DomainId::NONE);
    let payer = published::domain(domain).map(|domain| domain.account);
    let made = |one: RegionRecord| one.domain == domain.0 || Some(one.account) == payer;
    region::record(region).is_some_and(made)
}

/// The environment of the process `id` with this page, as `process` may see it.
pub fn read(process: &Process, id: EnvId, of: &ProcessPage) -> Result<Vec<u8>, Errno> {
    let user = process.users[1];
    if user != 0 && user != of.user {
        return Err(Errno::EACCES);
    }
    let shown = RegionId(of.environment);
    let mut text = alloc::vec![0; (of.environment_len as usize).min(BYTES_MAX)];
    if shown.is_none() || text.is_empty() {
        return Ok(Vec::new());
    }
    if !is_its(id, shown) {
        return Err(Errno::EACCES);
    }
    let region = Region { id: shown, role: READER };
    // Gone meanwhile: as of a process that has ended.
    attach(&region).map_err(|_| Errno::ESRCH)?;
    let pieces = (0..).step_by(PAGE_SIZE as usize).zip(text.chunks_mut(PAGE_SIZE as usize));
    let mut copied = Ok(());
    for (offset, piece) in pieces {
        copied = copied.and(region.copy_out(offset, piece, &[], &[]).map(|_| ()));
    }
    region.detach();
    copied.map(|()| text)
}
