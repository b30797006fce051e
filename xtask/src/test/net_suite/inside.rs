//! Inside of the namespace: the tap device, the guest, and the conversation with its judge.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::machine::{Kind, Machine, Network};
use crate::process;
use crate::run::{self, Job};

use super::{fetch, peer};

/// The last line of a run that came to its end.
pub const END: &str = "net: end";
/// The guest's judge.
const JUDGE: &str = "/xok/net-tests";
/// The tap device.
pub const DEVICE: &str = "tap0";
/// Our addresses: the second one never asks for the guest's link address.
pub const HOST: &str = "10.1.0.1";
/// See [`HOST`].
pub const STRANGER: &str = "10.1.0.5";
/// The guest's address.
pub const GUEST: &str = "10.1.0.2";
/// The guest's link address, as QEMU gives it to the first card.
const GUEST_MAC: &str = "52:54:00:12:34:56";
/// How long a boot with all tests may take.
const LIMIT: Duration = Duration::from_secs(180);
/// How long the judge may take from one line to the next.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the judge's log says, line by line.
pub struct Judge {
    lines: Receiver<String>,
}

impl Judge {
    /// Serves the judge until it says `line`: `Err`, with what was said last, if it never does.
    pub fn until(&mut self, line: &str) -> std::result::Result<(), String> {
        let end = Instant::now() + PATIENCE;
        let mut last = String::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(said) = self.lines.recv_timeout(left) else {
                return Err(format!("the guest never said `{line}`; its last line: `{last}`"));
            };
            if said.starts_with("test ") {
                println!("{said}");
            } else if let Some(order) = said.strip_prefix("net: send ") {
                peer::send_datagrams(order)?;
            } else if said == line {
                return Ok(());
            }
            last = said;
        }
    }
}

/// `xtask net-inside MACHINE CPUS IMAGE`: says verdicts on standard output, and [`END`] at last.
pub fn command(words: Vec<String>) -> Result<u8> {
    let [kind, cpus, image] = &words[..] else {
        return Err(Failure::new("net-inside: MACHINE CPUS IMAGE").status(2));
    };
    let cpus = cpus.parse().map_err(|_| Failure::new(format!("{cpus}: no number")))?;
    make_device()?;
    let network = Network::Tap(DEVICE.into(), format!("{GUEST}/24,{HOST}"));
    let machine = Machine { kind: Kind::parse(kind)?, cpus, network, ..Machine::default() };
    let settings = vec![("init".to_string(), JUDGE.to_string())];
    let job = Job { machine, settings, limit: Some(LIMIT), ..Job::default() };

    let (sender, lines) = mpsc::channel();
    let tests = std::thread::spawn(move || converse(&mut Judge { lines }));
    let captured = run::capture(&job, Path::new(image), None, move |line| {
        // After the tests nobody listens.
        let _ = sender.send(line.to_string());
    })?;
    let verdict = tests.join().unwrap_or_else(|_| Err("the peer's thread panicked".into()));
    say("guest_ends", verdict.and_then(|()| end_status(captured.status)));
    println!("{END}");
    Ok(0)
}

fn end_status(status: Option<u8>) -> std::result::Result<String, String> {
    match status {
        // The judge's own failures are verdicts of their own.
        Some(0 | 1) => Ok(String::new()),
        Some(status) => Err(format!("status {status}")),
        None => Err("it was ended: it took too long".into()),
    }
}

/// The whole conversation: the judge's own tests, then ours, then the end.
fn converse(judge: &mut Judge) -> std::result::Result<(), String> {
    judge.until("net: ready")?;
    fetch::run();
    peer::run(judge);
    judge.until("net: again")?;
    peer::run_again();
    peer::end()
}

/// Says a test's verdict.
pub fn say(name: &str, verdict: std::result::Result<String, String>) {
    say_in("net", name, verdict);
}

/// As [`say`], of another suite's test.
pub fn say_in(suite: &str, name: &str, verdict: std::result::Result<String, String>) {
    match verdict {
        Ok(remark) => println!("test {suite}/{name} ... ok {remark}"),
        Err(why) => println!("test {suite}/{name} ... FAILED {}", why.replace('\n', " ")),
    }
}

/// A connection to a port of a guest that may still be starting.
pub fn connect_within(port: u16, patience: Duration) -> std::result::Result<TcpStream, String> {
    let end = Instant::now() + patience;
    loop {
        match peer::connect(port, Duration::from_secs(1)) {
            Err(why) if Instant::now() >= end => return Err(why),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
            stream => return stream,
        }
    }
}

/// Makes the tap device, in the namespace that we are in.
pub fn make_device() -> Result<()> {
    let stranger = format!("{STRANGER}/24");
    let own = format!("{HOST}/24");
    let commands: [&[&str]; 6] = [
        &["link", "set", "lo", "up"],
        &["tuntap", "add", DEVICE, "mode", "tap"],
        &["address", "add", &own, "dev", DEVICE],
        &["address", "add", &stranger, "dev", DEVICE],
        &["link", "set", DEVICE, "up"],
        // With this entry we never ask the guest who it is, so that it has to ask us.
        &["neighbour", "add", GUEST, "lladdr", GUEST_MAC, "dev", DEVICE],
    ];
    for arguments in commands {
        process::output(Command::new("ip").args(arguments))?;
    }
    Ok(())
}
