//! The network over a wire of our own: what a switch with bad manners does to the guest.
//!
//! QEMU puts each frame into a datagram on the local host, so the peer needs no privilege and may
//! send what no operating system would: runts, giants, wrong sums, forged senders. Its own TCP is
//! `xio`'s stack, over a wire that loses, repeats and delays what a seed tells it to.

mod forge;
mod wire;

use std::net::SocketAddrV4;
use std::sync::mpsc;
use std::time::Duration;

use xio::stack::Error;

use crate::failure::{Context, Failure, Result};
use crate::machine::{Kind, Machine, Network};
use crate::report;
use crate::run::{self, Job};
use crate::tally::{Tally, Verdict};

use super::net_suite;
use wire::{GUEST, HOST, Weather, Wire};

/// The guest's judge, which only starts the servers here.
const JUDGE: &str = "/xok/net-tests";
/// The machines: both kinds.
const MACHINES: [Kind; 2] = [Kind::Q35, Kind::Microvm];
/// How long a boot with all tests may take.
const LIMIT: Duration = Duration::from_secs(90);
/// How long the guest may take to start its servers.
const START: Duration = Duration::from_secs(30);
/// How long one transfer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long an answer to a right frame may take.
const ALIVE: Duration = Duration::from_secs(2);
/// Mutated frames, and handshakes that nobody ends.
const MUTATED: usize = 10_000;
/// See [`MUTATED`].
const HANDSHAKES: u32 = 3000;
/// Seeds of the bad weather.
const SEEDS: [u64; 3] = [1, 2, 3];
/// What is lost, repeated and delayed then, in percent.
const BAD: Weather = Weather { loss: 3, repeat: 2, delay: 10 };

/// What is recorded besides [`weather`]; each needs what comes before it.
const NAMES: [&str; 5] = [
    "wire/fetch",
    "wire/wrong_frames",
    "wire/mutated_frames",
    "wire/flood_of_handshakes",
    "wire/guest_ends",
];

fn weather(seed: u64) -> String {
    format!("wire/fetch_in_bad_weather_{seed}")
}

/// Boots each machine and does it all, if any of it is asked for.
pub fn run(tally: &mut Tally) -> Result<()> {
    let asked = NAMES.iter().any(|name| tally.wants(name))
        || SEEDS.iter().any(|&seed| tally.wants(&weather(seed)));
    if !asked {
        return Ok(());
    }
    let image = run::make_image(&Job { extras: vec![net_suite::make_files()?], ..Job::default() })?;
    for kind in MACHINES {
        report::step(&format!("wire: {}", kind.name()));
        let mut wire = Wire::new().context("a wire")?;
        let network = Network::Datagrams(wire.there, wire.here, format!("{GUEST}/24,{HOST}"));
        let machine = Machine { kind, network, ..Machine::default() };
        let settings = vec![("init".into(), JUDGE.into()), ("net".into(), "serve".into())];
        let job = Job { machine, settings, limit: Some(LIMIT), ..Job::default() };
        let (sender, lines) = mpsc::channel();
        let path = image.path.clone();
        let guest = std::thread::spawn(move || {
            run::capture(&job, &path, None, move |line| {
                // After the tests nobody listens.
                let _ = sender.send(line.to_string());
            })
        });
        let place = kind.name();
        let verdict = match wait_for(&lines, "net: ready") {
            Ok(()) => converse(tally, &mut wire, place),
            Err(why) => Err(why),
        };
        let captured = guest.join().map_err(|_| Failure::new("the guest's thread panicked"))??;
        let verdict = verdict.and_then(|()| match captured.status {
            Some(0) => Ok(String::new()),
            status => Err(format!("the guest ended with {status:?}")),
        });
        tally.record("wire/guest_ends", place, verdict);
    }
    Ok(())
}

fn wait_for(lines: &mpsc::Receiver<String>, line: &str) -> std::result::Result<(), String> {
    while let Ok(said) = lines.recv_timeout(START) {
        if said == line {
            return Ok(());
        }
    }
    Err(format!("the guest never said `{line}`"))
}

fn converse(tally: &mut Tally, wire: &mut Wire, place: &str) -> std::result::Result<(), String> {
    let mut record = |name: &str, verdict: Verdict| tally.record(name, place, verdict);
    record("wire/fetch", fetch(wire, 1, Weather::default(), "100k"));
    let silence = wrong_frames(wire);
    let is_silent = silence.is_err();
    record("wire/wrong_frames", silence);
    if is_silent {
        return Err("after the wrong frames".into());
    }
    for seed in SEEDS {
        record(&weather(seed), fetch(wire, seed, BAD, "100k"));
    }
    record("wire/mutated_frames", mutated(wire));
    record("wire/flood_of_handshakes", handshakes(wire));
    wire.send_datagram(9000, b"end")
}

/// Fetches a file with our own TCP; it must come whole whatever the weather.
fn fetch(wire: &mut Wire, seed: u64, weather: Weather, name: &str) -> Verdict {
    wire.set_weather(seed, weather);
    let result = fetch_now(wire, name);
    wire.set_weather(0, Weather::default());
    result
}

fn fetch_now(wire: &mut Wire, name: &str) -> Verdict {
    let path = net_suite::files().join(format!("{name}.bin"));
    let expected = std::fs::read(&path).map_err(|why| why.to_string())?;
    let server = SocketAddrV4::new(GUEST, 80);
    let port = wire.next_port();
    let id = wire.stack.tcp_connect(server, port).map_err(|why| format!("connect: {why:?}"))?;
    let request = format!("GET /net/{name}.bin HTTP/1.0\r\n\r\n");
    let (mut asked, mut answer) = (false, Vec::new());
    let ended = wire.run(PATIENCE, |wire| {
        if !asked {
            asked = wire.stack.tcp_send(id, request.as_bytes()).is_ok();
        }
        let mut chunk = [0; 4096];
        loop {
            match wire.stack.tcp_receive(id, &mut chunk) {
                Ok(0) => return Some(Ok(())),
                Ok(length) => answer.extend_from_slice(&chunk[..length]),
                Err(Error::WouldBlock) => return None,
                Err(why) => return Some(Err(format!("{why:?}"))),
            }
        }
    });
    // Fails only if it is gone already.
    let _ = wire.stack.tcp_close(id);
    let got = answer.len();
    ended.unwrap_or(Err("it took too long".into())).map_err(|why| format!("{why}, {got} bytes"))?;
    if answer.ends_with(&expected) && answer.starts_with(b"HTTP/1.1 200 ") {
        return Ok(format!("({})", wire.weather_report()));
    }
    Err(format!("{got} bytes came, or others"))
}

/// Each frame that nobody should send: no answer, and arpd's table stays as it was.
fn wrong_frames(wire: &mut Wire) -> Verdict {
    wire.settle();
    let mut count = 0;
    for (what, frame) in forge::wrong_frames(wire.guest_mac()?) {
        wire.watch();
        wire.put(&frame);
        wire.settle();
        if let Some(answer) = wire.watched().first() {
            return Err(format!("{what}: answered by {:02x?}", &answer[..answer.len().min(60)]));
        }
        // A right one is answered, so that silence means something.
        wire.watch();
        wire.put(&forge::ping(wire.guest_mac()?, 100));
        if wire.run(ALIVE, |wire| wire.watched().first().map(drop)).is_none() {
            return Err(format!("{what}: a ping behind it was not answered"));
        }
        count += 1;
    }
    fetch_now(wire, "100")?;
    Ok(format!("({count} frames)"))
}

/// Right frames with wrong bytes, some with their sums put right again.
fn mutated(wire: &mut Wire) -> Verdict {
    let mut random = wire::Random::new(11);
    let guest = wire.guest_mac()?;
    for count in 0..MUTATED {
        let mut frame = forge::any_right_frame(guest, &mut random);
        forge::mutate(&mut frame, &mut random);
        wire.put(&frame);
        if count % 16 == 15 {
            wire.rest();
        }
    }
    wire.settle();
    fetch_now(wire, "100k")?;
    Ok(format!("({MUTATED} frames)"))
}

/// SYNs from stations that aren't there; who is there is served soon after.
fn handshakes(wire: &mut Wire) -> Verdict {
    let guest = wire.guest_mac()?;
    for number in 0..HANDSHAKES {
        let forged = std::net::Ipv4Addr::from_bits(0x0b00_0000 + number);
        wire.put(&forge::syn(guest, forged, number));
        if number % 16 == 15 {
            wire.rest();
        }
    }
    wire.settle();
    fetch_now(wire, "100k")?;
    Ok(format!("({HANDSHAKES} handshakes)"))
}
