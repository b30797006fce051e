//! A picture of memory: whose each frame is, or each block of frames.
//!
//! A frame that several share is shown as the one's whose entry is first.

use abi::id::Frame;
use abi::published::Table;
use alloc::vec::Vec;
use xok::published;
use xok::reader::{Owner, Reader};

/// Cells of the picture at most.
const CELLS: usize = 1 << 14;
/// Frames looked at for one picture at most; of more memory it is every second, fourth, ...
const LOOKS: usize = 1 << 16;
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
#[derive(Default)]
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

/// Looks through memory; nothing, where its layout is unknown. `None`: there is no memory for that.
pub fn picture() -> Option<Picture> {
    let Ok(reader) = Reader::open() else { return Some(Picture::default()) };
    let frames = published::table(Table::Frames).count as usize;
    let frames_per_cell = frames.div_ceil(CELLS).next_power_of_two();
    let sampled = sampled(frames);
    let domains = published::table(Table::Domains).count as usize;
    let (mut counts, mut cells) = (Vec::new(), Vec::new());
    counts.try_reserve_exact(usize::from(DOMAINS) + domains).ok()?;
    counts.resize(usize::from(DOMAINS) + domains, 0);
    cells.try_reserve_exact(frames / frames_per_cell + 1).ok()?;
    let mut of_cell = [ABSENT; OF_CELL];
    for cell in (0..frames).step_by(frames_per_cell) {
        let end = (cell + frames_per_cell).min(frames);
        let mut looks = 0;
        for number in (cell..end).step_by(sampled).take(OF_CELL) {
            let owner = self::number(reader.owner(Frame(number as u32)));
            counts[usize::from(owner)] += sampled as u32;
            of_cell[looks] = owner;
            looks += 1;
        }
        cells.push(most_frequent(&of_cell[..looks]));
    }
    Some(Picture { frames_per_cell, sampled, cells, counts })
}

/// Of so many frames one of how many is looked at: no page takes long to make.
pub fn sampled(frames: usize) -> usize {
    frames.div_ceil(LOOKS).next_power_of_two()
}

fn most_frequent(owners: &[u16]) -> u16 {
    let times = |owner: u16| owners.iter().filter(|&&other| other == owner).count();
    let all_alike = owners.windows(2).all(|two| two[0] == two[1]);
    if all_alike {
        return owners.first().copied().unwrap_or(ABSENT);
    }
    owners.iter().copied().max_by_key(|&owner| times(owner)).unwrap_or(ABSENT)
}

/// What the picture has for an owner.
fn number(owner: Owner) -> u16 {
    match owner {
        Owner::Absent => ABSENT,
        Owner::Free => FREE,
        Owner::Kernel => KERNEL,
        Owner::Image => IMAGE,
        Owner::Region => REGION,
        Owner::Domain(index) => DOMAINS + index as u16,
        Owner::Other => OTHER,
    }
}
