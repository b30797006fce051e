//! A terminal, and web servers under load, while programs beside them compute without end.
//!
//! Keystrokes are answered in time: `bench/keys.rs` says how they are timed.
//!
//! wrk's sixty-four connections, kept or one a request, ask Baseline (an unmodified Linux program)
//! and Cheetah for documents of four sizes; as many processes as the guest has processors run a
//! loop meanwhile. Not one answer may be wrong, refused or cut off; and as wrk leaves when its time
//! is up, whatever is under way then, a client of ours asks once more and waits for each answer.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use crate::bench::{Load, keys};
use crate::boot_image::Extra;
use crate::compile;
use crate::failure::{Failure, Result};
use crate::machine::{Kind, Machine, Network};
use crate::packages;
use crate::process;
use crate::report;
use crate::run::{self, Captured, Job};
use crate::tally::{Tally, Verdict};
use crate::workspace;

use super::net_suite::{self, inside};

/// Makes the load.
const WRK: (&str, &str) = ("wrk", "wrk");
/// Its script.
const SCRIPT: &str = "tests/load/count.lua";
/// The machines: the number of processors is that of the programs that compute.
const MACHINES: [(Kind, u32); 2] = [(Kind::Q35, 1), (Kind::Microvm, 2)];
/// Sizes of the documents, with their names.
const SIZES: [(&str, usize); 4] =
    [("100", 100), ("1k", 1 << 10), ("10k", 10 << 10), ("100k", 100 << 10)];
/// Where they lie in the guest.
const DOCUMENTS: &str = "/www/load";
/// The servers: name, port, path of the documents.
const SERVERS: [(&str, u16, &str); 2] = [("baseline", 8000, ""), ("cheetah", 80, "/load")];
/// A connection here ends the guest.
const END_PORT: u16 = 9000;
/// Connections at one time.
const CONNECTIONS: usize = 64;
/// Requests that are waited for, of each connection.
const AWAITED: usize = 2;
/// How long a boot may take.
const START: Duration = Duration::from_secs(60);
/// What a guest may take longer than its loads do by themselves.
const MARGIN: Duration = Duration::from_secs(240);
/// How long one answer may take, for wrk: the host may have other work.
const PATIENCE: &str = "--timeout=20s";
/// The least share of a hog's time that it must have had, in hundredths of a second: one that
/// does nothing proves nothing.
const LEAST_TICKS: u64 = 100;

/// Nine of ten keystrokes are answered within this, of the guest's time.
const KEY_LIMIT: Duration = Duration::from_millis(5);

/// Memory of a machine of which half is more than a gibibyte.
const BOMB_MEMORY: &str = "2560M";
/// What a user does beside another one, and what is left of it.
const BOMB: &str = "stty raw -echo; free=$(/bomb free); /bomb attack 61000 & \
    until [ -e /tmp/full ]; do sleep 0.1; done; \
    printf 'listening\\r\\n'; \
    /bomb as 61001 /bin/sh -c \
    'while read -r -n 1 key; do printf %s $key; [ $key != . ] || exit; done'; \
    /bomb end 61000 && /bomb free $free && printf 'memory is back\\r\\n' || \
    { echo \"of $free pages\"; /xok/xokstat ps; }; \
    /bomb count 61000; printf 'over\\r\\n'";
/// Ninety-nine of a hundred keystrokes are answered within this, of the guest's time.
const BOMB_KEY_LIMIT: Duration = Duration::from_millis(100);
/// User 0 ends the other one's processes within this.
const BOMB_END_LIMIT: Duration = Duration::from_secs(1);

/// The document in which user 0 finds how to end another user's bomb, and how its lines begin that
/// make the user, the bomb, and an end of it.
const USERS: &str = "docs/two-users.md";
const USERS_LINES: [&str; 3] = ["echo 'bob:x:1001:1001:", "su bob -c 'b() {", "/xok/enduser "];
/// Processes of the bomb's when it is ended.
const BOMB_PROCESSES: u32 = 150;

/// Keystrokes, then a second for each cell.
pub fn run(tally: &mut Tally) -> Result<()> {
    if tally.wants("load/keystrokes") && tally.wants_place("q35 x1") {
        report::step("load: keystrokes");
        tally.record("load/keystrokes", "q35 x1", keystrokes());
    }
    if tally.wants("load/another_users_bomb") && tally.wants_place("q35 x1") {
        report::step("load: another user's bomb");
        tally.record("load/another_users_bomb", "q35 x1", bomb());
    }
    if tally.wants("load/a_shell_ends_a_bomb") && tally.wants_place("q35 x1") {
        report::step("load: a shell ends a bomb");
        let verdict = shell_ends_bomb().unwrap_or_else(|failure| Err(failure.to_string()));
        tally.record("load/a_shell_ends_a_bomb", "q35 x1", verdict);
    }
    let alone = ["load/keystrokes", "load/another_users_bomb", "load/a_shell_ends_a_bomb"];
    if tally.only().is_some_and(|only| alone.iter().any(|name| name.contains(only))) {
        return Ok(());
    }
    for machine in MACHINES {
        let place = place(machine);
        if tally.wants_place(&place) {
            report::step(&format!("load: {place}"));
            on(tally, machine, 1)?;
        }
    }
    Ok(())
}

/// A terminal's program answers although eight others compute.
fn keystrokes() -> Verdict {
    let taken = keys::here(keys::LOOPS).map_err(|why| why.to_string())?;
    let [median, most] = [50, 90].map(|at| keys::quantile(&taken, at));
    let shown = format!("(half within {median:.2?}, nine of ten within {most:.2?})");
    if most <= KEY_LIMIT { Ok(shown) } else { Err(shown) }
}

/// A user forks without end, writes a gibibyte of memory and opens all descriptors: another one's
/// program answers keystrokes, user 0 ends it all, and the memory is there again.
fn bomb() -> Verdict {
    let told = |why: Failure| why.to_string();
    let program = compile::directory("tests/bomb", "bomb", &["-static"]).map_err(told)?;
    let extras = vec![Extra { host: program, guest: "/bomb".into() }];
    let seen = keys::beside(BOMB_MEMORY, extras, BOMB).map_err(told)?;
    let [median, most] = [50, 98].map(|at| keys::quantile(&seen.taken, at));
    let ended = seen.ended;
    let processes = seen.said.split(' ').next().unwrap_or_default();
    let shown =
        format!("(99 % within {most:.2?}, half {median:.2?}; {processes} ended in {ended:.2?})");
    let is_back = seen.said.contains("memory is back");
    let in_time = most <= BOMB_KEY_LIMIT && ended <= BOMB_END_LIMIT;
    if in_time && is_back { Ok(shown) } else { Err(format!("{shown}: {}", seen.said)) }
}

/// User 0's shell ends another user's bomb, by the lines of the document.
fn shell_ends_bomb() -> Result<Verdict> {
    let text = workspace::read(USERS)?;
    let find = |begins: &str| {
        let line = text.lines().find(|line| line.starts_with(begins));
        line.ok_or_else(|| Failure::new(format!("{USERS}: no line `{begins}…`")))
    };
    let [user, bomb, end] = USERS_LINES.map(find);
    let script = format!(
        "{}\n{}\n\
         until [ $(ps | grep -c '[0-9] bob') -ge {BOMB_PROCESSES} ]; do sleep 0.1; done\n\
         {} 2>/dev/null\n\
         ps | grep -c '[0-9] bob'; exit 0",
        user?, bomb?, end?
    );
    let program = Some(("/bin/sh".into(), ["sh", "-c", &script].map(str::to_string).to_vec()));
    let job = Job { program, limit: Some(START), ..Job::default() };
    let image = run::make_image(&job)?;
    let captured = run::capture(&job, &image.path, None, |_| {})?;
    let said = String::from_utf8_lossy(&captured.output);
    Ok(match (captured.status, said.as_ref()) {
        (Some(0), "ended\n0\n") => Ok(String::new()),
        (status, _) => Err(format!("status {status:?}, {said:?}")),
    })
}

/// So many seconds for each cell, for `soak`.
pub fn long(machine: usize, seconds: u64) -> Result<()> {
    let mut tally = Tally::new(None, None, false);
    on(&mut tally, MACHINES[machine % MACHINES.len()], seconds)?;
    if tally.failed() == 0 && tally.passed() > 0 {
        return Ok(());
    }
    Err(Failure::new(format!("{} loads failed", tally.failed())))
}

fn place((kind, cpus): (Kind, u32)) -> String {
    format!("{} x{cpus}", kind.name())
}

fn on(tally: &mut Tally, machine: (Kind, u32), seconds: u64) -> Result<()> {
    packages::require(&[WRK, ("unshare", "util-linux"), ("ip", "iproute2")])?;
    let image = run::make_image(&Job { extras: extras()?, ..Job::default() })?;
    let (kind, cpus) = machine;
    let words = ["load-inside", kind.name(), &cpus.to_string(), &seconds.to_string()];
    net_suite::in_namespace(tally, &words, &image.path, &place(machine))
}

fn extras() -> Result<Vec<Extra>> {
    let baseline = compile::directory("tests/bench-http", "baseline", &["-static"])?;
    let documents = workspace::output().join("load");
    net_suite::make_documents(&documents, &SIZES)?;
    Ok(vec![
        Extra { host: baseline, guest: "/baseline".into() },
        Extra { host: documents, guest: DOCUMENTS.into() },
    ])
}

/// What the guest runs: programs that compute, Baseline, and somebody who waits for the end; then
/// it says how long each of the first ones has computed (field 14 of proc_pid_stat(5)).
fn script(hogs: u32) -> String {
    format!(
        "for n in $(seq {hogs}); do while :; do :; done & all=\"$all $!\"; done\n\
         /baseline {} {DOCUMENTS} & nc -l -p {END_PORT} </dev/null\n\
         for hog in $all; do cut -d ' ' -f 14 /proc/$hog/stat; done",
        SERVERS[0].1
    )
}

/// `xtask load-inside MACHINE CPUS SECONDS IMAGE`: inside of the namespace.
pub fn command(words: Vec<String>) -> Result<u8> {
    let [kind, cpus, seconds, image] = &words[..] else {
        return Err(Failure::new("load-inside: MACHINE CPUS SECONDS IMAGE").status(2));
    };
    let number = |word: &str| word.parse().map_err(|_| Failure::new(format!("{word}: no number")));
    let (cpus, seconds) = (number(cpus)? as u32, number(seconds)?);
    inside::make_device()?;
    let address = format!("{}/24,{}", inside::GUEST, inside::HOST);
    let network = Network::Tap(inside::DEVICE.into(), address);
    let machine = Machine { kind: Kind::parse(kind)?, cpus, network, ..Machine::default() };
    let words = ["sh", "-c", &script(cpus)].map(str::to_string).to_vec();
    let cells = (SERVERS.len() * SIZES.len() * 2) as u64;
    let limit = Some(MARGIN + Duration::from_secs(cells * seconds));
    let job = Job { machine, program: Some(("/bin/sh".into(), words)), limit, ..Job::default() };
    let (sender, ended) = mpsc::channel();
    let path = Path::new(image).to_path_buf();
    std::thread::spawn(move || sender.send(run::capture(&job, &path, None, |_| {})));

    let verdict = wait_for_servers().and_then(|()| {
        load_all(seconds);
        inside::connect_within(END_PORT, START).map(drop)
    });
    let captured = ended.recv().map_err(|_| Failure::new("the guest's thread panicked"))??;
    inside::say_in("load", "hogs_compute", verdict.and_then(|()| hogs(&captured, cpus)));
    println!("{}", inside::END);
    Ok(0)
}

fn wait_for_servers() -> std::result::Result<(), String> {
    SERVERS.iter().try_for_each(|(_, port, _)| inside::connect_within(*port, START).map(drop))
}

/// Did the programs beside get time, all of them?
fn hogs(captured: &Captured, count: u32) -> Verdict {
    let text = String::from_utf8_lossy(&captured.output);
    let ticks: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let all = ticks.len() == count as usize && ticks.iter().all(|&ticks| ticks >= LEAST_TICKS);
    let error = String::from_utf8_lossy(&captured.error);
    match captured.status {
        Some(0) if all => Ok(format!("(hundredths of seconds: {ticks:?})")),
        status => Err(format!("status {status:?}, {text:?}, {error:?}")),
    }
}

/// Every cell: server, size, kind of connection.
fn load_all(seconds: u64) {
    for (server, port, path) in SERVERS {
        for keep in [true, false] {
            for (name, size) in SIZES {
                let document = format!("{path}/{name}");
                let cell = format!("{server}_{name}_{}", if keep { "kept" } else { "apart" });
                let verdict = wrk(port, &document, size, keep, seconds)
                    .and_then(|remark| await_answers(port, &document, size, keep).map(|()| remark));
                inside::say_in("load", &cell, verdict);
            }
        }
    }
}

fn wrk(port: u16, document: &str, size: usize, keep: bool, seconds: u64) -> Verdict {
    let mut command = Command::new(WRK.0);
    command.args(["--threads=1", &format!("--connections={CONNECTIONS}"), PATIENCE]);
    command.arg(format!("--duration={seconds}s")).arg("--script");
    command.arg(workspace::root().join(SCRIPT));
    if !keep {
        command.args(["--header", "Connection: close"]);
    }
    command.arg(format!("http://{}:{port}{document}", inside::GUEST));
    command.args(["--", &size.to_string()]);
    let said = process::output(&mut command).map_err(|why| why.to_string())?;
    judge(&said)
}

/// What wrk's script counted, if it is what it should be.
fn judge(said: &str) -> Verdict {
    let line = said.lines().find_map(|line| line.strip_prefix("counted: "));
    let line = line.ok_or_else(|| format!("wrk counted nothing: {said}"))?;
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [answers, 0, 0, 0, 0, 0, 0] if answers > 0 => Ok(format!("({answers} answers)")),
        _ => Err(line.into()),
    }
}

/// Asks on every connection, and waits until all have their answers.
fn await_answers(
    port: u16,
    document: &str,
    size: usize,
    keep: bool,
) -> std::result::Result<(), String> {
    let address = format!("{}:{port}", inside::GUEST).parse().map_err(|_| "no address")?;
    let load = Load { address, path: document.into(), size, keep };
    load.run(CONNECTIONS, AWAITED * CONNECTIONS).map(drop).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_answer_of_many_is_an_error() {
        let line = |counts: &str| format!("Running 1s test\ncounted: {counts} timeout\n");
        assert!(judge(&line("9 answers, 0 wrong, errors: 0 a, 0 b, 0 c, 0 d, 0")).is_ok());
        assert!(judge(&line("9 answers, 1 wrong, errors: 0 a, 0 b, 0 c, 0 d, 0")).is_err());
        assert!(judge(&line("9 answers, 0 wrong, errors: 0 a, 0 b, 0 c, 0 d, 1")).is_err());
        assert!(judge(&line("0 answers, 0 wrong, errors: 0 a, 0 b, 0 c, 0 d, 0")).is_err());
        assert!(judge("Running 1s test\n").is_err());
    }
}
