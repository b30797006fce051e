//! A picture of memory: whose each frame is, or each block of frames.
//!
//! The reverse map leads from a frame to a table that maps it, and the table's record to the domain
//! that it was made for. A frame that several share is shown as the one's whose entry is first.

use abi::published::{DomainRecord, FrameRecord, FrameType, Table};
use alloc::vec;
use alloc::vec::Vec;
use xok::published;

use super::records;

/// Cells of the picture at most.
const CELLS: usize = 1 << 14;
/// Frames looked at for one picture at most; of more memory it is every second, fourth, ...
const LOOKS: usize = 1 << 18;
/// Frames looked at for one cell at most.
const OF_CELL: usize = LOOKS / CELLS;

/// What a cell shows that is no domain's.
const ABSENT: u16 = 0;
const FREE: u16 = 1;
const KERNEL: u16 = 2;
const IMAGE: u16 = 3;
const REGION: u16 = 4;
const OTHER: u16 = 5;
/// A domain's frames have its index added to this.
pub const DOMAINS: u16 = 16;

/// The picture, and what was counted for it.
pub struct Picture {
    /// Frames of a cell.
    pub frames_per_cell: usize,
    /// One of so many frames was looked at; counts are multiplied by it.
    pub sampled: usize,
    /// By cell, whose most of its frames are.
    pub cells: Vec<u16>,
    /// Frames by whose they are: the numbers above, then domains.
    pub counts: Vec<u32>,
}

/// Looks through memory.
pub fn picture() -> Picture {
    let frames = published::table(Table::Frames).count as usize;
    let frames_per_cell = frames.div_ceil(CELLS).next_power_of_two();
    let sampled = frames.div_ceil(LOOKS).next_power_of_two();
    let domains: Vec<DomainRecord> = records(Table::Domains).collect();
    let mut counts = vec![0; usize::from(DOMAINS) + domains.len()];
    let mut cells = Vec::with_capacity(frames / frames_per_cell + 1);
    let mut of_cell = [ABSENT; OF_CELL];
    for cell in (0..frames).step_by(frames_per_cell) {
        let end = (cell + frames_per_cell).min(frames);
        let mut looks = 0;
        for number in (cell..end).step_by(sampled).take(OF_CELL) {
            let owner = owner(number, &domains);
            counts[usize::from(owner)] += sampled as u32;
            of_cell[looks] = owner;
            looks += 1;
        }
        cells.push(most_frequent(&of_cell[..looks]));
    }
    Picture { frames_per_cell, sampled, cells, counts }
}

fn most_frequent(owners: &[u16]) -> u16 {
    let times = |owner: u16| owners.iter().filter(|&&other| other == owner).count();
    let all_alike = owners.windows(2).all(|two| two[0] == two[1]);
    if all_alike {
        return owners.first().copied().unwrap_or(ABSENT);
    }
    owners.iter().copied().max_by_key(|&owner| times(owner)).unwrap_or(ABSENT)
}

fn owner(number: usize, domains: &[DomainRecord]) -> u16 {
    const DATA: u8 = FrameType::Data as u8;
    const FIRST_TABLE: u8 = FrameType::Table1 as u8;
    const LAST_TABLE: u8 = FrameType::Table3 as u8;
    let Some(record) = published::record::<FrameRecord>(Table::Frames, number) else {
        return ABSENT;
    };
    match record.kind {
        DATA if record.chain != 0 => {
            let table = (record.chain >> 9) as usize;
            let table = published::record::<FrameRecord>(Table::Frames, table);
            // The table may have gone since.
            let is_table = |table: &FrameRecord| table.kind == FIRST_TABLE;
            table.filter(is_table).map_or(OTHER, |table| of_domain(table.chain, domains))
        }
        FIRST_TABLE..=LAST_TABLE => of_domain(record.chain, domains),
        kind if kind == FrameType::Table4 as u8 => {
            let own = |domain: &DomainRecord| domain.id != 0 && domain.root as usize == number;
            domains.iter().position(own).map_or(OTHER, |index| DOMAINS + index as u16)
        }
        kind if kind == FrameType::Free as u8 => FREE,
        kind if kind == FrameType::Kernel as u8 => KERNEL,
        kind if kind == FrameType::Image as u8 => IMAGE,
        kind if kind == FrameType::Region as u8 => REGION,
        kind if kind == FrameType::Absent as u8 => ABSENT,
        _ => OTHER,
    }
}

/// A domain's number in the picture; one that has ended left its tables to others.
fn of_domain(id: u32, domains: &[DomainRecord]) -> u16 {
    let index = abi::id::DomainId(id).index();
    let lives = domains.get(index).is_some_and(|domain| domain.id == id && id != 0);
    if lives { DOMAINS + index as u16 } else { OTHER }
}
