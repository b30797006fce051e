//! The kernel's memory: categories that sum, and what an environment costs.

use super::roles;
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground};
use abi::call::Call;
use abi::id::{AccountId, DomainId, EnvId, Frame};
use abi::published::*;
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xok::call::{self, OWN};
use xok::clock::now_ns;
use xok::published;

fn line(category: Category) -> CensusRecord {
    published::record(Table::Census, category as usize).unwrap_or_default()
}

/// l4stack 14: the categories sum to the frames that the kernel took.
pub fn sums(_: &Ground) -> Result<String, Failure> {
    let mut bytes = 0;
    for category in 0..CATEGORIES {
        if category != Category::Donated as usize {
            let record: CensusRecord =
                published::record(Table::Census, category).ok_or("a category is missing")?;
            bytes += record.bytes;
        }
    }
    let (mut taken, mut donated) = (0, 0);
    for number in 0..published::table(Table::Frames).count as usize {
        let record: FrameRecord = published::record(Table::Frames, number).ok_or("no record")?;
        taken += u64::from(record.kind == FrameType::Kernel as u8);
        // Tables of four levels, links, vector states, regions; code.
        let range = FrameType::Table1 as u8..=FrameType::Region as u8;
        let code = record.kind == FrameType::Code as u8;
        donated += u64::from(code || range.contains(&record.kind));
    }
    let said = line(Category::Donated);
    expect!(
        said.objects == donated && said.bytes == donated * 4096,
        "{donated} frames are donated, the census says {said:?}"
    );
    expect!(
        bytes == taken * 4096,
        "categories hold {bytes} bytes, the kernel has {}",
        taken * 4096
    );
    let cpus = u64::from(published::directory().cpus);
    let stacks = line(Category::Stacks).objects;
    expect!(stacks == cpus, "{stacks} stacks for {cpus} processors");
    Ok(format!("({} KiB, {stacks} stacks)", bytes / 1024))
}

/// l4stack 1: a blocked environment costs its slot and what it donated, and no stack.
pub fn slope(ground: &Ground) -> Result<String, Failure> {
    let kernel_bytes = || -> u64 {
        (0..CATEGORIES)
            .filter(|&category| category != Category::Donated as usize)
            .filter_map(|category| published::record::<CensusRecord>(Table::Census, category))
            .map(|record| record.bytes)
            .sum()
    };
    let before = (kernel_bytes(), line(Category::Stacks), line(Category::Envs));
    let free = published::directory().frames_free;
    let mut report = String::new();
    let mut sleepers = Vec::new();
    for target in [10, 100] {
        while sleepers.len() < target {
            let sleeper = assistant::spawn(ground.image, roles::SLEEP, [0; 6], &[])?;
            assistant::start(sleeper)?;
            sleepers.push(sleeper);
        }
        let _ = call::sleep(now_ns() + 100_000_000, 0, 0, 0);
        let frames = (free - published::directory().frames_free) / target as u64;
        report.push_str(&format!("{target}: {frames} frames each; "));
        let envs = line(Category::Envs);
        expect!(
            envs.objects - before.2.objects == target as u64,
            "{target} asleep, {} slots more",
            envs.objects - before.2.objects
        );
    }
    let after = (kernel_bytes(), line(Category::Stacks), line(Category::Envs));
    for sleeper in &sleepers {
        call::env_destroy(OWN, sleeper.env, 0).map_err(|why| format!("{why:?}"))?;
        assistant::wait(sleeper.env)?;
    }
    expect!(after.0 == before.0, "the kernel grew from {} to {}", before.0, after.0);
    expect!(after.1.objects == before.1.objects, "stacks were made");
    let table = published::table(Table::Envs).count.max(1);
    let slot = after.2.bytes / u64::from(table);
    expect!(slot <= 512, "a slot takes {slot} bytes");
    Ok(format!("(slot {slot} bytes; {report})"))
}

/// Frames that are the kernel's, in bytes.
fn kernel_bytes() -> u64 {
    let frames = (0..published::table(Table::Frames).count).map(Frame);
    let records = frames.filter_map(published::frame);
    records.filter(|record| record.kind == FrameType::Kernel as u8).count() as u64 * 4096
}

/// Makes environments with these indices: bytes of the kernel's that came with them.
fn with_indices(indices: &[u32]) -> Result<u64, Failure> {
    let before = kernel_bytes();
    let mut made = Vec::new();
    let mut failed = None;
    for &index in indices {
        let (account, vector) = (AccountId::NONE, Which::Any);
        let which = Which::This(index);
        let alloc = Call::EnvAlloc { which, domain: DomainId::NONE, account, vector };
        match call::make(alloc, OWN) {
            Ok(id) => made.push(EnvId(id as u32)),
            Err(why) => failed = Some(format!("index {index}: {why:?}")),
        }
    }
    let grown = kernel_bytes() - before;
    let asked = made.iter().zip(indices).all(|(env, &index)| env.index() == index as usize);
    for env in made {
        call::env_destroy(OWN, env, 0).map_err(|why| format!("{why:?}"))?;
        assistant::wait(env)?;
    }
    expect!(asked, "other indices than asked for");
    failed.map_or(Ok(grown), Err)
}

/// l4stack 13: an environment costs its slot, whether its neighbours' indices are in use (dense) or
/// there is one to a page of slots (sparse).
pub fn sparse_ids(_: &Ground) -> Result<String, Failure> {
    const COUNT: u32 = 32;
    let table = published::table(Table::Envs).count;
    let slot = line(Category::Envs).bytes / u64::from(table.max(1));
    let of_page = (4096 / slot.max(1)) as u32 + 1;
    let free = |index: &u32| {
        published::record::<EnvRecord>(Table::Envs, *index as usize).is_some_and(|env| env.id == 0)
    };
    let dense: Vec<u32> = (1..table).filter(free).take(COUNT as usize).collect();
    let sparse = (1..table / of_page).map(|page| page * of_page).filter(free);
    let sparse: Vec<u32> = sparse.take(COUNT as usize).collect();
    expect!(dense.len() == sparse.len(), "{} and {} free indices", dense.len(), sparse.len());
    let (of_dense, of_sparse) = (with_indices(&dense)?, with_indices(&sparse)?);
    let count = u64::from(COUNT);
    // Made or not, its slot is there: that is what it costs, plus what grew.
    let each = [of_dense, of_sparse].map(|grown| slot + grown / count);
    expect!(each.iter().all(|&bytes| bytes <= 512), "bytes each, dense and sparse: {each:?}");
    Ok(format!("(bytes each: dense {}, sparse, one a page, {})", each[0], each[1]))
}
