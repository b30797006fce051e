//! What thousands of environments cost the kernel: slope and intercept of its bytes.
//!
//! ```text
//!  bytes ▲                      ╱  every table of the kernel, less the slots that nobody has,
//!        │                 ╱       at 100, 1,000 and 10,000 environments of one space
//!        │            ╱   slope: bytes of each
//!        ├───────                  intercept: everything else
//!        └──────────────────────►  environments
//! ```

use super::roles;
use super::roles::crowd::{IN_A_TRANSFER, ON_A_NOTIFICATION, ON_A_PREDICATE};
use super::sched::counter;
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground};
use abi::limits::Resource;
use abi::published::*;
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN};
use xok::clock::now_ns;
use xok::published;

/// How many environments there are at a time.
const CROWDS: [u64; 3] = [100, 1_000, 10_000];
/// How long making or ending one of them may take.
const PATIENCE_NS: u64 = 60_000_000_000;
/// Most bytes of the kernel's for each, beside what it has donated.
const BYTES_MAX: u64 = 512;

/// The kernel's memory, as the census tells it.
#[derive(Clone, Copy)]
struct Kernel {
    /// Bytes by category.
    bytes: [u64; CATEGORIES],
    /// Environments.
    envs: u64,
    /// Stacks, those for exceptions among them.
    stacks: u64,
}

impl Kernel {
    fn now() -> Self {
        let record = |category| -> CensusRecord {
            published::record(Table::Census, category).unwrap_or_default()
        };
        let objects = |category: Category| record(category as usize).objects;
        let account: AccountRecord = published::record(Table::Accounts, 1).unwrap_or_default();
        Kernel {
            bytes: core::array::from_fn(|category| record(category).bytes),
            // The census tells of them from one tick to the next; their account does at once.
            envs: account.used[Resource::Envs as usize].into(),
            stacks: objects(Category::Stacks) + objects(Category::ExceptionStacks),
        }
    }

    fn donated(&self) -> u64 {
        self.bytes[Category::Donated as usize]
    }

    /// Everything that the kernel took, in use or not.
    fn taken(&self) -> u64 {
        self.bytes.iter().sum::<u64>() - self.donated()
    }

    /// The same without the slots, and what else there is for each environment, that nobody has.
    fn in_use(&self, each: u64) -> u64 {
        let room = u64::from(published::table(Table::Envs).count);
        self.taken() - (room - self.envs) * each
    }
}

/// Slope, in thousandths, and intercept of the straight line nearest to the points.
fn line(points: [(u64, u64); 3]) -> (i128, i128) {
    let n = points.len() as i128;
    let sum = |of: fn(i128, i128) -> i128| -> i128 {
        points.iter().map(|&(x, y)| of(x.into(), y.into())).sum()
    };
    let (x, y, xx, xy) = (sum(|x, _| x), sum(|_, y| y), sum(|x, _| x * x), sum(|x, y| x * y));
    let slope = (n * xy - x * y) * 1000 / (n * xx - x * x);
    (slope, (1000 * y - slope * x) / (1000 * n))
}

fn until(mut holds: impl FnMut() -> bool, what: &str) -> Result<(), Failure> {
    let deadline = now_ns() + PATIENCE_NS;
    while !holds() {
        expect!(now_ns() < deadline, "waited in vain for {what}");
        let _ = call::sleep(now_ns() + 10_000_000, 0, 0, 0);
    }
    Ok(())
}

/// The kernel with so many waiting for `what` and with none, and what each of them has donated.
fn with(ground: &Ground, what: u64, count: u64) -> Result<(Kernel, u64), Failure> {
    let words = [what, count, 0, 0, 0, 0];
    let gatherer = assistant::spawn(ground.image, roles::GATHER, words, &[])?;
    let before = Kernel::now();
    assistant::start(gatherer)?;
    let outcome = until(|| counter(gatherer.env) > 0, "the crowd to wait");
    let after = Kernel::now();
    let ended = |env| EnvState::Dead as u32 == published::env(env).map_or(0, |env| env.state);
    if !ended(gatherer.env) {
        call::domain_destroy(OWN, gatherer.domain).map_err(|why| format!("{why:?}"))?;
    }
    let word = assistant::wait(gatherer.env)?;
    outcome.map_err(|why| format!("{why}; it left {word:#x}"))?;
    until(|| Kernel::now().envs < before.envs, "the crowd to be gone")?;
    let more = after.envs - before.envs;
    expect!(more >= count, "{more} environments of {count}");
    expect!(after.stacks == before.stacks, "{} stacks more", after.stacks - before.stacks);
    Ok((after, (after.donated() - before.donated()) / count))
}

/// l4stack 1, 7.1, 7.2 (bytes by environment): in whatever state it waits, one more
/// costs its slot and what it donated; no stack, and nothing elsewhere.
pub fn costs_its_slots(ground: &Ground) -> Result<String, Failure> {
    let room = u64::from(published::table(Table::Envs).count);
    expect!(room > CROWDS[2] + 16, "a machine for {room} environments");
    // Beside its slot: its published record, and its entry in the table of application pages.
    let shown = u64::from(published::table(Table::Envs).stride) + 8;
    let mut report = String::new();
    for (what, name) in [
        (ON_A_PREDICATE, "on a predicate"),
        (IN_A_TRANSFER, "in a transfer"),
        (ON_A_NOTIFICATION, "on a notification"),
    ] {
        let (mut points, mut total, mut taken) = ([(0, 0); 3], [(0, 0); 3], [0; 3]);
        let mut donated = 0;
        for (at, count) in CROWDS.into_iter().enumerate() {
            let (kernel, each) = with(ground, what, count)?;
            let slot = kernel.bytes[Category::Envs as usize] / room;
            points[at] = (kernel.envs, kernel.in_use(slot));
            total[at] = (kernel.envs, kernel.in_use(slot + shown));
            (taken[at], donated) = (kernel.taken(), each);
        }
        let (slope, intercept) = line(points);
        let (whole, _) = line(total);
        let [few, more, many] = points.map(|(_, bytes)| bytes);
        report.push_str(&format!(
            "{name}: {few}, {more}, {many} bytes, slope {}.{:03}, intercept {intercept}; \
             with what is published of it {}.{:03}; each donates {donated}; ",
            slope / 1000,
            slope % 1000,
            whole / 1000,
            whole % 1000,
        ));
        expect!(
            taken.iter().all(|&bytes| bytes == taken[0]),
            "{report}the kernel took more: {taken:?}"
        );
        expect!(slope <= 1000 * i128::from(BYTES_MAX), "{report}more than {BYTES_MAX}");
    }
    let longest = published::record::<CpuRecord>(Table::Cpus, 0).unwrap_or_default();
    Ok(format!(
        "({report}longest {} us in call {})",
        longest.longest_ns / 1000,
        longest.longest_call
    ))
}
