//! The bench itself: its controls, that it repeats exactly, and the one figure watched each time.

use crate::bench;
use crate::failure::{Context, Result};
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
const IDLE: &str = "bench/an_idle_guest_leaves_the_host_alone";
const OFTEN: &str = "bench/fifty_thousand_by_the_counter";
const NO_STACK: &str = "bench/calls_without_a_stack";
const FLAT: &str = "bench/notifications_are_flat";
const TRIALS: &str = "bench/ten_trials_and_their_raw_logs";

/// What is done most often: a call, a fault, transfers, a yield.
const OFTEN_ROWS: [&str; 5] = ["n_null", "n_fault", "n_pct_same", "n_pct_other", "n_yield"];
/// How much more or less a condition may cost for how many there are.
const FLAT_WITHIN: f64 = 0.1;
/// How often each is done at least for a figure of time.
const OFTEN_MIN: u64 = 50_000;
/// Samples of each row: those with fewest operations have a hundred, and the first warms up.
const OFTEN_SAMPLES: u32 = 501;

/// Runs those that are wanted: seven boots in all.
pub fn run(tally: &mut Tally) -> Result<()> {
    if tally.wants(BOOT) {
        let total = bench::boot_here()?;
        let said = format!("({total} of {BOOT_MAX} instructions)");
        tally.record(BOOT, "", verdict(total <= BOOT_MAX, said));
    }
    if tally.wants(IDLE) {
        tally.record(IDLE, "", super::idle::share()?);
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
    if tally.wants(FLAT) {
        tally.record(FLAT, "", flat()?);
    }
    if tally.wants(NO_STACK) {
        tally.record(NO_STACK, "", without_a_stack()?);
    }
    if tally.wants(TRIALS) {
        tally.record(TRIALS, "", trials()?);
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

/// One of ten thousand conditions costs what one of ten does, within a tenth; so does one of ten
/// beside a thousand environments asleep on predicates that do not hold.
fn flat() -> Result<Verdict> {
    let rows = ["n_board10", "n_board10k", "n_board_1k_asleep"].map(String::from);
    let figures = bench::native_figures(&rows)?;
    let [few, many, beside] = &figures[..] else {
        return Ok(Err(format!("{} rows of three", figures.len())));
    };
    let said =
        format!("({} of ten, {} of ten thousand, {} beside)", few.total, many.total, beside.total);
    let near = |one: f64| (one / few.total - 1.0).abs() <= FLAT_WITHIN;
    Ok(verdict(near(many.total) && near(beside.total), said))
}

/// aegis95 T20: of the kernel's ways for a call, the one that sets up no stack (a Linux call, which
/// goes back up) costs a third, at most, of the cheapest that does (a native call whose number is
/// refused). What both take, and getpid's like on Linux, is told as it is.
fn without_a_stack() -> Result<Verdict> {
    let names = |name: &str| vec![name.to_string()];
    let none = bench::figures_here(&names("getppid_trap"))?;
    let stack = bench::native_figures(&names("n_null"))?;
    let linux = bench::figures_on_linux(&names("getppid_trap"))?;
    let [ours, theirs] = bench::least_ticks(&names("getppid_trap"))?;
    let ticks = bench::native_times(&names("n_null"), 21)?;
    let (Some(none), Some(stack), Some(linux)) = (none.first(), stack.first(), linux.first())
    else {
        return Ok(Err("a row has no figure".into()));
    };
    let (Some(ours), Some(theirs), Some((_, Ok((_, [null, ..]))))) =
        (ours.first(), theirs.first(), ticks.first())
    else {
        return Ok(Err("a row has no time".into()));
    };
    let said = format!(
        "(in the kernel {} instructions without a stack, {} with one; getppid in all {}, on Linux \
         {}, ratio {:.2}; in an emulator's ticks {ours:.0} and {null}, on Linux {theirs:.0}, ratio \
         {:.2})",
        none.kernel,
        stack.kernel,
        none.total,
        linux.total,
        none.total / linux.total,
        ours / theirs,
    );
    Ok(verdict(3.0 * none.kernel <= stack.kernel, said))
}

/// thesis98 Z-69: a figure of time is the least of ten trials, with their standard deviation beside
/// it, and what each boot said is kept: the least is found again in there.
fn trials() -> Result<Verdict> {
    const ROW: &str = "getppid_trap";
    bench::raw::clear()?;
    let (table, nanoseconds) = bench::trials_here(&[ROW.to_string()])?;
    let line = table.lines().find(|line| line.contains(ROW)).unwrap_or("");
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [_, _, _, trials, least, deviation, ..] = cells[..] else {
        return Ok(Err(table));
    };
    let mut found = Vec::new();
    for file in bench::raw::files()? {
        let text = std::fs::read_to_string(&file).context(file.display())?;
        found.extend(text.lines().filter_map(|line| fastest(line, ROW)));
    }
    let least_found = found.iter().copied().fold(f64::INFINITY, f64::min) * nanoseconds;
    let same = least.parse().is_ok_and(|least: f64| (least - least_found).abs() <= least / 100.0);
    let deviates = deviation.parse().is_ok_and(|deviation: f64| deviation > 0.0);
    let said =
        format!("({least} ns, deviation {deviation}, {trials} trials, {} logs)", found.len());
    let ten = bench::TRIALS as usize;
    let holds = trials == ten.to_string() && found.len() == ten && same && deviates;
    Ok(verdict(holds, format!("{said}{}", if same { "" } else { ", not what the logs have" })))
}

/// Ticks of an operation in the fastest sample but the first, if the line of a log is the row's.
fn fastest(line: &str, row: &str) -> Option<f64> {
    let mut words = line.trim().strip_prefix("row ")?.strip_prefix(row)?.split_whitespace();
    words.find(|word| *word == "operations")?;
    let operations: f64 = words.next()?.parse().ok()?;
    let ticks = words.skip(2).filter_map(|word| word.parse::<f64>().ok());
    Some(ticks.fold(f64::INFINITY, f64::min) / operations)
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
