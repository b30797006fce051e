//! What an account sees: all that is published, its memory, its registers.

use super::ground::Ground;
use crate::domain;
use crate::index::DomainIndex;
use crate::machine::Machine;
use crate::table::Leaf;
use abi::id::Frame;
use abi::layout::{LIBRARY_SLOT, PAGE_SIZE, PROGRAM_SLOTS};
use abi::memory::{ADDRESS, LARGE, NO_EXECUTE, PRESENT, WRITABLE};
use std::fmt::Debug;
use std::fmt::Write;

/// The pages that a domain's own tables show, in order.
pub(super) fn leaves(ground: &Ground, domain: usize) -> Vec<(u64, Leaf)> {
    let mut found = vec![];
    let root = domain::root(ground.state(), DomainIndex::new(domain));
    below(ground, root, 4, (0, true, true), &mut found);
    found
}

fn below(
    ground: &Ground,
    table: Frame,
    level: u8,
    (first, writable, executable): (u64, bool, bool),
    found: &mut Vec<(u64, Leaf)>,
) {
    for index in 0..512 {
        if level == 4 && index >= PROGRAM_SLOTS && index != LIBRARY_SLOT {
            continue;
        }
        let entry = ground.machine().entry(table, index);
        if entry & PRESENT == 0 {
            continue;
        }
        let sign = if level == 4 && index >= PROGRAM_SLOTS { !0 << 48 } else { 0 };
        let first = first | sign | (index as u64) << (12 + 9 * u32::from(level - 1));
        let frame = Frame::containing(entry & ADDRESS);
        let writable = writable && entry & WRITABLE != 0;
        let executable = executable && entry & NO_EXECUTE == 0;
        if level == 1 {
            found.push((first, Leaf { frame, writable, executable }));
        } else if entry & LARGE != 0 {
            for page in 0..512 {
                let frame = Frame(frame.0 + page);
                found.push((
                    first + u64::from(page) * PAGE_SIZE,
                    Leaf { frame, writable, executable },
                ));
            }
        } else {
            below(ground, frame, level - 1, (first, writable, executable), found);
        }
    }
}

/// Everything that the attacker sees, as lines: of two worlds they are to be the same.
pub(super) fn of_attacker(ground: &mut Ground) -> String {
    let mut seen = String::new();
    published(ground, &mut seen);
    let state = ground.state();
    let own = |account: u64| ground.is_attackers(abi::id::AccountId(account).into());
    let domains: Vec<usize> = (1..state.published.domains.len())
        .filter(|&at| own(state.published.domains[at].account))
        .collect();
    let envs: Vec<usize> =
        (1..state.envs.slots.len()).filter(|&at| own(state.published.envs[at].account)).collect();
    for domain in domains {
        for (page, leaf) in leaves(ground, domain) {
            let first = leaf.frame.address();
            let words = (0..PAGE_SIZE / 8).map(|at| ground.machine().word(first + 8 * at));
            let sum = words.fold(0, |sum, word| super::mixed(sum ^ word).wrapping_add(1));
            let _ = writeln!(seen, "domain {domain} page {page:#x} {leaf:?}: {sum:#x}");
        }
    }
    for event in core::mem::take(&mut ground.parts().1.traced) {
        let _ = writeln!(seen, "{event:?}");
    }
    for env in envs {
        let context = *ground.parts().1.context(env);
        let _ = writeln!(seen, "environment {env}: {context:x?}");
    }
    seen
}

/// All published records, by table.
fn published(ground: &Ground, seen: &mut String) {
    let published = &ground.state().published;
    let directory = &published.directory;
    let _ = writeln!(seen, "free {} usable {}", directory.frames_free, directory.frames_usable);
    table(seen, "env", published.envs);
    table(seen, "domain", published.domains);
    table(seen, "account", published.accounts);
    table(seen, "frame", published.frames);
    table(seen, "age", published.ages);
    table(seen, "region", published.regions);
    table(seen, "filter", published.filters);
    table(seen, "ring", published.rings);
    table(seen, "slice", published.slices);
    table(seen, "cpu", published.cpus);
    table(seen, "census", published.census);
    table(seen, "interface", published.interfaces);
    let _ = writeln!(seen, "{:?}", published.clock);
    for (cpu, calls) in published.calls.iter().enumerate().take(2) {
        table(seen, &format!("calls of {cpu}:"), calls);
    }
    for (index, page) in ground.machine().application_pages.iter().enumerate() {
        let Some(frame) = page else { continue };
        let words = (0..PAGE_SIZE / 8).map(|at| ground.machine().word(frame.address() + 8 * at));
        let sum = words.fold(0, |sum, word| super::mixed(sum ^ word).wrapping_add(1));
        let _ = writeln!(seen, "application page {index}: {sum:#x}");
    }
}

fn table<T: Debug>(seen: &mut String, name: &str, records: &[T]) {
    for (index, record) in records.iter().enumerate() {
        let _ = writeln!(seen, "{name} {index}: {record:?}");
    }
}
