//! The bench itself: its controls, that it repeats exactly, and the one figure watched each time.

use crate::bench;
use crate::failure::Result;
use crate::tally::{Tally, Verdict};

/// Most instructions of `getppid` by a trap.
const GETPPID_MAX: f64 = 150.0;
/// Most instructions from power-on, firmware's among them, to a shell's first command: a fiftieth
/// of the tuned Linux's 1,505,535,251 (docs/results/0002-bench.md).
const BOOT_MAX: f64 = 30_110_705.0;
/// Instructions that the copy of 64 KiB takes at least: five for each of its words.
const COPY_MIN: f64 = 5.0 * 8192.0;

const CONTROLS: &str = "bench/a_copy_costs_its_own_instructions_alone";
const EXACT: &str = "bench/two_runs_count_the_same";
const GETPPID: &str = "bench/getppid_within_its_limit";
const BOOT: &str = "bench/boot_within_its_limit";
const PATHS: &str = "bench/no_path_has_grown";
const OFTEN: &str = "bench/fifty_thousand_by_the_counter";

/// What is done most often: a call, a fault, transfers, a yield.
const OFTEN_ROWS: [&str; 5] = ["n_null", "n_fault", "n_pct_same", "n_pct_other", "n_yield"];
/// How often each is done at least for a figure of time.
const OFTEN_MIN: u64 = 50_000;
/// Samples of each row: those with fewest operations have a hundred, and the first warms up.
const OFTEN_SAMPLES: u32 = 501;

/// Runs those that are wanted: five boots in all.
pub fn run(tally: &mut Tally) -> Result<()> {
    if tally.wants(BOOT) {
        let total = bench::boot_here()?;
        let said = format!("({total} of {BOOT_MAX} instructions)");
        tally.record(BOOT, "", verdict(total <= BOOT_MAX, said));
    }
    if tally.wants(OFTEN) {
        tally.record(OFTEN, "", often()?);
    }
    if tally.wants(PATHS) {
        let measured = bench::paths::measured()?;
        let grown = bench::paths::grown(&bench::paths::written()?, &measured);
        let said = if grown.is_empty() { format!("({measured:?})") } else { grown.join(", ") };
        tally.record(PATHS, "", verdict(grown.is_empty(), said));
    }
    if ![CONTROLS, EXACT, GETPPID].iter().any(|name| tally.wants(name)) {
        return Ok(());
    }
    let rows = ["getppid_trap".to_string(), "copy64k".to_string()];
    let first = bench::figures_here(&rows)?;
    let second = bench::figures_here(&rows)?;
    let [getppid, copy] = &first[..] else {
        tally.record(EXACT, "", Err(format!("{} rows of two", first.len())));
        return Ok(());
    };
    if tally.wants(CONTROLS) {
        let own = copy.user >= COPY_MIN && copy.user < COPY_MIN * 1.001 && copy.kernel == 0.0;
        let said = format!("({} and {} in the kernel)", copy.user, copy.kernel);
        tally.record(CONTROLS, "", verdict(own, said));
    }
    if tally.wants(EXACT) {
        let said = format!("{first:?}, then {second:?}");
        tally.record(EXACT, "", if first == second { Ok(String::new()) } else { Err(said) });
    }
    if tally.wants(GETPPID) {
        let said = format!("({} of {GETPPID_MAX} instructions)", getppid.total);
        tally.record(GETPPID, "", verdict(getppid.total <= GETPPID_MAX, said));
    }
    Ok(())
}

/// l4stack 23: no figure of time comes from less than fifty thousand operations, timed by the
/// processor's own counter; and it says what ran them.
fn often() -> Result<Verdict> {
    let rows = OFTEN_ROWS.map(String::from);
    let (mut figures, mut wrong) = (Vec::new(), Vec::new());
    for (name, outcome) in bench::native_times(&rows, OFTEN_SAMPLES)? {
        match outcome {
            Ok((operations, ticks)) if operations >= OFTEN_MIN => {
                let [least, median, most] = ticks;
                figures.push(format!("{name} {least}/{median}/{most}"));
            }
            Ok((operations, _)) => wrong.push(format!("{name}: {operations} operations")),
            Err(why) => wrong.push(format!("{name}: {why}")),
        }
    }
    if figures.len() != OFTEN_ROWS.len() {
        return Ok(Err(format!("{}; of {} rows", wrong.join(", "), figures.len())));
    }
    let figures = figures.join(", ");
    let ran = "in an emulator, not comparable with hardware";
    Ok(Ok(format!("(ticks least/median/most, {ran}: {figures})")))
}

fn verdict(holds: bool, said: String) -> Verdict {
    if holds { Ok(said) } else { Err(said) }
}
