//! Starts the services, runs the tests in order, says the verdicts.

use abi::capability::{DEVICE_CONSOLE, DEVICE_NETWORK, NAME_DEVICE, NAME_IMAGE, READ, WRITE};
use abi::error::Error;
use abi::id::{EnvId, Frame};
use abi::published::{FilterRecord, RingRecord, Table};
use alloc::format;
use alloc::string::String;
use core::sync::atomic::Ordering;
use image::archive::Archive;
use image::elf::Plan;
use xok::call::{self, OWN};
use xok::services::{self, Service};
use xok::spawn::{Gift, Spawned};
use xok::{clock, published};

use crate::control::{Control, nap};
use crate::{ECHO, receive, revoked, servers, transmit};

/// A test: a remark, which may be empty, or why it failed.
type Test = fn(&mut Control) -> Result<String, String>;

/// In order; the first ones need no peer.
const TESTS: [(&str, Test); 9] = [
    ("transmit_refused", transmit::refusals),
    ("transmit_flood", transmit::flood),
    ("transmit_stream", transmit::stream),
    ("transmit_revoked", revoked::transmit),
    ("ring_cuts", receive::cut),
    ("ring_drops", receive::drops),
    ("ring_scribbled", receive::scribbled),
    ("ring_revoked", revoked::ring),
    ("filter_subsets", receive::subsets),
];
/// How long a program may take to start or end.
const PATIENCE: u64 = 10_000_000_000;
/// How long the host's tests may take in all.
const HOST: u64 = 300_000_000_000;

/// Runs everything and ends the machine.
pub fn run() {
    let status = match all() {
        Ok(failed) => u16::from(failed > 0),
        Err(why) => {
            say("judge", Err(why));
            1
        }
    };
    let _ = call::machine_end(OWN, 0, status);
}

/// Says a verdict; how many failed.
fn say(name: &str, verdict: Result<String, String>) -> u32 {
    match verdict {
        Ok(remark) => {
            xok::log!(OWN, "test net/{name} ... ok {remark}");
            0
        }
        Err(why) => {
            xok::log!(OWN, "test net/{name} ... FAILED {why}");
            1
        }
    }
}

fn all() -> Result<u32, String> {
    let image = xok::boot_image::map(OWN).map_err(|why| format!("image: {why:?}"))?;
    let archive = Archive::open_checked(image).map_err(|why| format!("image: {why:?}"))?;
    let mut control = Control::open()?;
    start_arpd(&archive)?;
    let (filters, rings) = in_use();
    start(&archive, "cheetah", b"")?;
    // What follows counts what others hold; Cheetah must have all it wants by then: its port on
    // the wire and the one for this machine alone.
    until("Cheetah to listen", || in_use() == (filters + 2, rings + 1))?;
    if xnet::settings::value("net").as_deref() == Some("serve") {
        xok::log!(OWN, "net: ready");
        return until_end(&mut control).map(|()| 0);
    }
    let mut failed = 0;
    for (name, test) in TESTS {
        failed += say(name, test(&mut control));
    }
    let echo = start(&archive, "net-tests", b"echo")?;
    let bulk = start(&archive, "net-tests", b"bulk")?;
    let tiny = start(&archive, "net-tests", b"tiny")?;
    listens(echo.env)?;
    listens(bulk.env)?;
    listens(tiny.env)?;
    failed += say("port_taken", port_taken(&archive));
    xok::log!(OWN, "net: ready");
    failed += say("death_frees", death_frees(&mut control, echo));
    let echo = start(&archive, "net-tests", b"echo")?;
    failed += say("port_free_again", listens(echo.env).map(|()| String::new()));
    xok::log!(OWN, "net: again");
    until_end(&mut control)?;
    Ok(failed)
}

/// Waits until the host has done what it wanted.
fn until_end(control: &mut Control) -> Result<(), String> {
    let end = clock::now_ns() + HOST;
    while !control.message().is_some_and(|message| message.starts_with(b"end")) {
        nap(50_000_000);
        if clock::now_ns() > end {
            return Err("the host never ended the tests".into());
        }
    }
    Ok(())
}

fn start(archive: &Archive<'static>, name: &str, argument: &[u8]) -> Result<Spawned, String> {
    let entry = archive.lookup(&format!("/xok/{name}")).ok_or(format!("no /xok/{name}"))?;
    let file = archive.data(&entry);
    let plan = Plan::parse(file).map_err(|why| format!("{name}: {why:?}"))?;
    let (first, _) = xok::boot_image::place();
    let frame = Frame(first.0 + (entry.data_offset / 4096) as u32);
    let gift = |slot, extend, rights| Gift { from: OWN, slot, extend, rights };
    let gifts = [
        gift(1, &[NAME_DEVICE, DEVICE_NETWORK], WRITE),
        gift(2, &[NAME_IMAGE], READ),
        gift(3, &[NAME_DEVICE, DEVICE_CONSOLE], WRITE),
    ];
    let spawned = xok::spawn::native(&plan, file, Some(frame), argument, &gifts)
        .map_err(|why| format!("{name}: {why:?}"))?;
    call::env_release(OWN, spawned.env).map_err(|why| format!("{name}: {why:?}"))?;
    Ok(spawned)
}

/// Starts arpd, publishes it as init does, and waits for its table.
fn start_arpd(archive: &Archive<'static>) -> Result<(), String> {
    let arpd = start(archive, "arpd", b"")?;
    let page = xnet::own_page();
    page[Service::Addresses as usize].store(u64::from(arpd.env.0), Ordering::Relaxed);
    page[Service::Magic as usize].store(services::MAGIC, Ordering::Release);
    until("arpd's table", || xnet::addresses::table().is_some())
}

fn until(what: &str, done: impl Fn() -> bool) -> Result<(), String> {
    let end = clock::now_ns() + PATIENCE;
    while !done() {
        if clock::now_ns() > end {
            return Err(format!("waited in vain for {what}"));
        }
        nap(5_000_000);
    }
    Ok(())
}

fn claim(env: EnvId, word: usize) -> u64 {
    published::application_word(env.index(), 8 * word).unwrap_or(0)
}

fn listens(env: EnvId) -> Result<(), String> {
    until("a server to listen", || claim(env, servers::LISTENS) != 0)
}

fn left(env: EnvId) -> Result<u64, String> {
    let end = clock::now_ns() + PATIENCE;
    loop {
        match call::env_forget(env) {
            Ok(word) => return Ok(word),
            Err((Error::WrongState, _)) if clock::now_ns() < end => nap(5_000_000),
            Err(why) => return Err(format!("forget: {why:?}")),
        }
    }
}

/// A third program that asks for a port that is taken is refused.
fn port_taken(archive: &Archive<'static>) -> Result<String, String> {
    let third = start(archive, "net-tests", b"echo")?;
    match left(third.env)? {
        servers::EXIT_TAKEN => Ok(String::new()),
        word => Err(format!("it left {word:#x}")),
    }
}

/// Filters and rings in use.
fn in_use() -> (usize, usize) {
    let filters = (0..).map_while(|at| published::record::<FilterRecord>(Table::Filters, at));
    let rings = (0..).map_while(|at| published::record::<RingRecord>(Table::Rings, at));
    (filters.filter(|record| record.id != 0).count(), rings.filter(|record| record.id != 0).count())
}

/// The host has the echo server ask for its death; its filter and ring go with it.
fn death_frees(control: &mut Control, echo: Spawned) -> Result<String, String> {
    let end = clock::now_ns() + HOST;
    while claim(echo.env, servers::KILL_ME) == 0 {
        // What the host says meanwhile is not for us.
        control.message();
        nap(5_000_000);
        if clock::now_ns() > end {
            return Err("the host never asked for it".into());
        }
    }
    let (filters, rings) = in_use();
    call::env_destroy(OWN, echo.env, 9).map_err(|why| format!("destroy: {why:?}"))?;
    let word = left(echo.env)?;
    let freed = until("filter and ring to go", || in_use() == (filters - 2, rings - 1));
    xok::log!(OWN, "net: killed");
    freed?;
    if word == 9 { Ok(format!("(port {ECHO})")) } else { Err(format!("it left {word:#x}")) }
}
