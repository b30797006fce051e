//! Web servers beside each other: instructions and time of a request, over a tap device.
//!
//! The client is this program, in a network namespace of its own (`bench-inside`); the guest has
//! one processor and is what limits. Baseline is one source for both systems.

pub mod client;
mod servers;

use std::path::PathBuf;
use std::process::Command;

use super::counts::{self, Counts};
use super::figures::{median, show, spread};
use super::{plugin, table};
use crate::failure::{Context, Failure, Result};
use crate::packages;
use crate::process;
use crate::report;
use client::Load;
use servers::{Files, Running, SERVERS, Server};

/// Sizes of the documents, with their names.
pub const SIZES: [(&str, usize); 4] =
    [("100", 100), ("1k", 1 << 10), ("10k", 10 << 10), ("100k", 100 << 10)];
/// Connections at one time.
const CONNECTIONS: usize = 16;
/// Requests before anything is measured, and of one measurement with the plugin.
const WARM: usize = 200;
const COUNTED: usize = 600;
/// How long a timed measurement shall last, in seconds.
const SECONDS: f64 = 1.0;

/// What one request of a row costs: user, kernel, events beside.
type Cost = (f64, f64);

/// `cargo xtask bench --http`: runs ourselves in a namespace. No rounds: our servers' instructions
/// alone.
pub fn print(rounds: u32) -> Result<()> {
    packages::require(&[("unshare", "util-linux"), ("ip", "iproute2")])?;
    servers::prepare()?;
    let mut command = Command::new("unshare");
    // Whoever isn't root is it in a namespace of users of its own.
    command.args(if process::is_root() { &["--net"][..] } else { &["--net", "--map-root-user"] });
    command.arg("--").arg(std::env::current_exe().context("this program")?);
    let shown = process::show(&command);
    let status = command.args(["bench-inside", &rounds.to_string()]).status().context(&shown)?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("{shown}: {status}"))) }
}

/// `xtask bench-inside ROUNDS`: inside of the namespace.
pub fn inside(words: Vec<String>) -> Result<()> {
    let rounds: u32 = words.first().and_then(|word| word.parse().ok()).unwrap_or(1);
    servers::make_device()?;
    let files = servers::prepare()?;
    let mut costs = Vec::new();
    let counts = if rounds == 0 { &SERVERS[..LINUX_BASELINE] } else { &SERVERS[..] };
    for &server in counts {
        report::step(&format!("http: counting {}", server.name()));
        costs.push(counted(server, &files)?);
    }
    println!("{}", render_costs(&costs));
    if rounds == 0 {
        return Ok(());
    }
    let mut rates: Vec<Vec<Vec<f64>>> = vec![vec![Vec::new(); loads().len()]; SERVERS.len()];
    for round in 1..=rounds {
        for (server, rates) in SERVERS.into_iter().zip(&mut rates) {
            report::step(&format!("http: round {round} of {rounds}, {}", server.name()));
            for (rates, rate) in rates.iter_mut().zip(timed(server, &files)?) {
                rates.push(rate);
            }
        }
    }
    println!("{}", render_rates(&rates));
    Ok(())
}

/// Document and whether connections stay: the rows.
fn loads() -> Vec<(usize, bool)> {
    [true, false].into_iter().flat_map(|keep| (0..SIZES.len()).map(move |at| (at, keep))).collect()
}

fn load(server: Server, (at, keep): (usize, bool)) -> Load {
    let (name, size) = SIZES[at];
    Load { address: server.address(), path: server.path(name), size, keep }
}

/// Instructions of a request, for each row.
fn counted(server: Server, files: &Files) -> Result<Vec<Cost>> {
    let output = super::file("http.counts")?;
    let counters = super::file("http.counters")?;
    let running = Running::start(server, files, Some(plugin::watching(&output, &counters)?))?;
    let read = || standing(&output, &counters);
    let mut costs = Vec::new();
    for row in loads() {
        let load = load(server, row);
        load.run(CONNECTIONS, WARM)?;
        let before = read()?;
        load.run(CONNECTIONS, COUNTED)?;
        let after = read()?;
        let each =
            |value: fn(&Counts) -> u64| (value(&after) - value(&before)) as f64 / COUNTED as f64;
        costs.push((each(Counts::user), each(|counts| counts.kernel)));
    }
    running.end()?;
    Ok(costs)
}

fn standing(output: &PathBuf, counters: &PathBuf) -> Result<Counts> {
    let head = std::fs::read_to_string(output).context(output.display())?;
    counts::standing(&head, &std::fs::read(counters).context(counters.display())?)
}

/// Requests in a second, for each row.
fn timed(server: Server, files: &Files) -> Result<Vec<f64>> {
    let running = Running::start(server, files, None)?;
    let mut rates = Vec::new();
    for row in loads() {
        let load = load(server, row);
        let warm = load.run(CONNECTIONS, WARM)?.as_secs_f64();
        let requests = (WARM as f64 / warm * SECONDS) as usize;
        let taken = load.run(CONNECTIONS, requests.max(WARM))?.as_secs_f64();
        rates.push(requests.max(WARM) as f64 / taken);
    }
    running.end()?;
    Ok(rates)
}

fn head(servers: usize) -> Vec<&'static str> {
    let names = SERVERS.iter().take(servers).map(|server| server.name());
    let last = (servers > LINUX_BASELINE).then_some("ratio of the Baselines");
    ["document", "connections"].into_iter().chain(names).chain(last).collect()
}

fn row((at, keep): (usize, bool)) -> Vec<String> {
    vec![SIZES[at].0.into(), if keep { "kept" } else { "one a request" }.into()]
}

/// Instructions of a request: user + kernel.
fn render_costs(costs: &[Vec<Cost>]) -> String {
    let line = |(number, load): (usize, (usize, bool))| {
        let mut cells = row(load);
        for costs in costs {
            let (user, kernel) = costs[number];
            cells.push(format!("{} + {}", show(user), show(kernel)));
        }
        let total = |costs: &Vec<Cost>| costs[number].0 + costs[number].1;
        if let Some(linux) = costs.get(LINUX_BASELINE) {
            cells.push(format!("{:.2}", total(&costs[0]) / total(linux)));
        }
        cells
    };
    let lines = loads().into_iter().enumerate().map(line).collect();
    table::markdown(&head(costs.len()), lines)
}

/// The place of Baseline on Linux among the servers; ours is the first.
const LINUX_BASELINE: usize = 2;

/// Requests in a second: median and spread of the rounds.
fn render_rates(rates: &[Vec<Vec<f64>>]) -> String {
    let line = |(number, load): (usize, (usize, bool))| {
        let mut cells = row(load);
        for rates in rates {
            let rounds = &rates[number];
            let spread = spread(rounds) * 100.0;
            cells.push(format!("{} ({spread:.0}%)", show(median(rounds.clone()))));
        }
        let middle = |server: usize| median(rates[server][number].clone());
        cells.push(format!("{:.2}", middle(0) / middle(LINUX_BASELINE)));
        cells
    };
    let lines = loads().into_iter().enumerate().map(line).collect();
    table::markdown(&head(SERVERS.len()), lines)
}
