//! `ps`, `top`, `free` and a map of memory, as `xok::reader` reads them: right, and without a call.

use super::exposed::kernel_entries;
use super::roles;
use super::sched::{counter, until};
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::id::{DomainId, EnvId, Frame};
use abi::limits::INDICES;
use abi::memory::ANY_FRAME;
use abi::published::{Directory, FrameType};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use xok::call::{self, OWN, Refused};
use xok::clock::now_ns;
use xok::memory::{DATA, Space};
use xok::published;
use xok::reader::{Memory, Owner, Reader, Sample};

fn refused(why: Refused) -> Failure {
    format!("{why:?}")
}

/// thesis98 Z-39, issue of exposed information: who there is, who ran, how much memory is whose,
/// and whose each frame is, with not one kernel entry while it is read.
pub fn make_no_call(ground: &Ground) -> Result<String, Failure> {
    let reader = Reader::open().map_err(|unknown| format!("{unknown:?}"))?;
    let mut ran = [vec![(0, 0); INDICES], vec![(0, 0); INDICES]];
    let [first, second] = &mut ran;
    let (mut earlier, mut now) = (Sample::new(first), Sample::new(second));
    let spinner = assistant::spawn(ground.image, roles::SPIN, [1, 0, 0, 0, 0, 0], &[])?;
    let sleeper = assistant::spawn(ground.image, roles::SLEEP, [0; 6], &[])?;
    for child in [spinner, sleeper] {
        assistant::start(child)?;
    }
    until(|| counter(spinner.env) > 0, "the spinner to run")?;
    Space::own().allocate(SCRATCH, 1, DATA).map_err(refused)?;
    let own_frame = xok::own::frame(SCRATCH).ok_or("no frame")?;
    let region = call::region_alloc(OWN, &[ANY_FRAME; 2]).map_err(refused)?;
    call::region_attach(OWN, region, 0, DomainId::NONE).map_err(refused)?;
    reader.sample(&mut earlier);
    let _ = call::sleep(now_ns() + 200_000_000, 0, 0, 0);

    let before = kernel_entries();
    reader.sample(&mut now);
    let found = |id: EnvId| reader.environments().filter(|record| record.id == id.0).count();
    let there = [found(EnvId(1)), found(spinner.env), found(sleeper.env)];
    let memory = reader.memory();
    let own_owner = reader.owner(own_frame);
    let map = count(reader);
    let entered = kernel_entries() - before;

    let shares = [spinner, sleeper].map(|child| now.ran_since(&earlier, child.env.0));
    let time = now.at_ns - earlier.at_ns;
    call::region_detach(region, 0).map_err(refused)?;
    Space::own().unmap(SCRATCH, 1).map_err(refused)?;
    for child in [spinner, sleeper] {
        call::env_destroy(OWN, child.env, 0).map_err(refused)?;
        assistant::wait(child.env)?;
    }
    expect!(entered == 0, "{entered} kernel entries while reading");
    expect!(there == [1; 3], "ps has judge, spinner and sleeper so often: {there:?}");
    let own_domain = published::env_domain(EnvId(1)).map_or(0, DomainId::index);
    expect!(own_owner == Owner::Domain(own_domain), "our own page is {own_owner:?}'s");
    expect!(map.own_frames > 0 && map.regions == memory.regions, "the map: {map:?}, {memory:?}");
    agrees(&memory)?;
    let [busy, idle] = shares;
    expect!(busy > time / 2, "who spins ran {busy} of {time} ns");
    expect!(idle < time / 100, "who sleeps ran {idle} of {time} ns");
    Ok(format!("(spinner {} % of {} ms)", busy * 100 / time, time / 1_000_000))
}

/// What a map of memory draws, counted.
#[derive(Debug, Default)]
struct Map {
    own_frames: u64,
    regions: u64,
}

fn count(reader: Reader) -> Map {
    let own = published::env_domain(EnvId(1)).map_or(0, DomainId::index);
    let mut map = Map::default();
    for number in reader.frames() {
        match reader.owner(Frame(number)) {
            Owner::Domain(index) if index == own => map.own_frames += 1,
            Owner::Region => map.regions += 1,
            _ => {}
        }
    }
    map
}

/// The counts by owner against those by type.
fn agrees(memory: &Memory) -> Result<(), Failure> {
    expect!(memory.regions >= 2, "a region of two frames: {memory:?}");
    expect!(memory.counted_free == memory.free, "free, counted and said: {memory:?}");
    let in_use = memory.domains + memory.regions + memory.other;
    expect!(memory.usable == memory.free + in_use, "what programs have: {memory:?}");
    let kernel = (0..published::table(abi::published::Table::Frames).count)
        .filter_map(|number| published::frame(Frame(number)))
        .filter(|record| record.kind == FrameType::Kernel as u8)
        .count() as u64;
    expect!(memory.kernel == kernel, "{kernel} frames of the kernel's: {memory:?}");
    Ok(())
}

/// Layouts have versions, and whoever reads looks at them: in the directory and for each table.
pub fn layouts_have_versions(_: &Ground) -> Result<String, Failure> {
    let directory = published::directory();
    expect!(directory.magic == abi::published::MAGIC, "magic {:#x}", directory.magic);
    expect!(directory.version == abi::published::VERSION, "version {:#x}", directory.version);
    for number in 0..abi::published::TABLES {
        let place = core::mem::offset_of!(Directory, tables) + number * 24;
        let address = abi::layout::PUBLISHED + place as u64 + 16;
        let version = crate::faults::load(address).ok_or("no directory")?;
        expect!(version != 0, "table {number} has no version");
    }
    Ok(String::new())
}
