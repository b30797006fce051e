//! What is published can be read without calls, and written by nobody.

use super::roles;
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground};
use abi::published::*;
use alloc::format;
use alloc::string::String;
use xok::published;
use xok::start::APPLICATION_PAGE;

/// thesis98 Z-40: stores to every published table fault.
pub fn published_read_only(_: &Ground) -> Result<String, Failure> {
    for number in 0..TABLES {
        let base = abi::layout::PUBLISHED + core::mem::offset_of!(Directory, tables) as u64;
        let address = base + (number * core::mem::size_of::<TableInfo>()) as u64;
        expect!(!faults::store(address, 1), "the directory was written at {address:#x}");
    }
    for table in [Table::Envs, Table::Frames, Table::Clock, Table::Calls, Table::Slices] {
        let address = published::record_address(table, 0);
        expect!(faults::load(address).is_some(), "{table:?} is not readable");
        expect!(!faults::store(address, 1), "{table:?} was written");
    }
    Ok(String::new())
}

/// Times that the judge has entered the kernel, by calls and by faults.
pub fn kernel_entries() -> u64 {
    published::record::<EnvRecord>(Table::Envs, 1).map_or(0, |judge| judge.entries)
}

/// xok97 T49, thesis98 Z-39: free map, reverse map, environments, clock: zero kernel entries.
pub fn published_without_calls(_: &Ground) -> Result<String, Failure> {
    let before = kernel_entries();
    let mut sum = 0_u64;
    let frames = published::table(Table::Frames).count as usize;
    for number in (0..frames).step_by(16) {
        let record: FrameRecord = published::record(Table::Frames, number).ok_or("no record")?;
        sum += u64::from(record.references) + u64::from(record.chain);
    }
    for index in 0..published::table(Table::Envs).count as usize {
        sum += u64::from(published::record::<EnvRecord>(Table::Envs, index).ok_or("none")?.state);
    }
    sum += published::clock().base_ns + published::directory().frames_free;
    let interface: Option<InterfaceRecord> = published::record(Table::Interfaces, 0);
    sum += interface.map_or(0, |record| record.received + record.queued);
    let after = kernel_entries();
    expect!(after == before, "{} entries while reading", after - before);
    expect!(sum != 0, "nothing was read");
    Ok(format!("({frames} frames)"))
}

/// thesis98 Z-41: readable by all, written by its owner only.
pub fn application_page(ground: &Ground) -> Result<String, Failure> {
    let mine = published::application_page(1).ok_or("no page of environment 1")?;
    expect!(faults::store(APPLICATION_PAGE + 9, 0x5a), "the owner cannot write");
    expect!(faults::load(mine + 9) == Some(0x5a), "the published view differs");
    expect!(!faults::store(mine + 9, 0), "written through the published view");
    let other = assistant::spawn(ground.image, roles::STORE_AT, [mine + 9, 0, 0, 0, 0, 0], &[])?;
    let page = published::application_page(other.env.index()).ok_or("no page of the other")?;
    expect!(!faults::store(page, 1), "another's page was written");
    let word = assistant::finish(other)?;
    expect!(word == roles::STORE_FAULTED, "the other reports {word:#x}");
    expect!(faults::load(mine + 9) == Some(0x5a), "another changed it");
    Ok(String::new())
}
