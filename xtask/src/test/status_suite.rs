//! `/status` in a real browser, while a program in the guest comes and goes.
//!
//! Debian's Chromium, headless, in a namespace as the network's tests have it, looks at a guest in
//! which a witness starts and ends the program, and says what it reads of the published pages.
//! With `XOK_SCREENSHOTS=DIRECTORY` what the browser saw is kept there, to be looked at.

mod browser;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crate::failure::{Failure, Result};
use crate::json::Json;
use crate::machine::{Kind, Machine, Network};
use crate::packages;
use crate::report;
use crate::run::{self, Job};
use crate::tally::{Tally, Verdict};
use crate::workspace;

use super::net_suite::{self, inside};
use browser::Browser;

/// The machine.
const MACHINE: (Kind, u32) = (Kind::Q35, 2);
/// The program that says what the published pages hold.
const WITNESS: &str = "/xok/exos-tests";
/// How long everything may take.
const LIMIT: Duration = Duration::from_secs(300);
/// How long the witness may take for one line.
const PATIENCE: Duration = Duration::from_secs(60);
/// What happens in the guest is on the page so soon, in nanoseconds of the guest's clock.
const SOON_NS: f64 = 1e9;
/// Frames that a process has beside those its program asked for, at most.
const BESIDE: f64 = 600.0;
/// Times that figures may change while they are compared.
const TURNS: usize = 20;

/// Boots the guest once, with all tests.
pub fn run(tally: &mut Tally) -> Result<()> {
    let (kind, cpus) = MACHINE;
    let place = format!("{} x{cpus}", kind.name());
    if !tally.wants_place(&place) {
        return Ok(());
    }
    packages::require(&[browser::CHROMIUM, ("unshare", "util-linux"), ("ip", "iproute2")])?;
    report::step(&format!("status: {place}"));
    let image = run::make_image(&Job::default())?;
    net_suite::in_namespace(tally, &["status-inside"], &image.path, &place)
}

/// `xtask status-inside IMAGE`: inside of the namespace.
pub fn command(words: Vec<String>) -> Result<u8> {
    let [image] = &words[..] else {
        return Err(Failure::new("status-inside: IMAGE").status(2));
    };
    inside::make_device()?;
    let (kind, cpus) = MACHINE;
    let address = format!("{}/24,{}", inside::GUEST, inside::HOST);
    let machine = Machine {
        kind,
        cpus,
        network: Network::Tap(inside::DEVICE.into(), address),
        ..Machine::default()
    };
    let program = Some((WITNESS.to_string(), vec!["witness".into(), "witness".into()]));
    let job = Job { machine, program, limit: Some(LIMIT), ..Job::default() };
    let (orders, input) = mpsc::channel();
    let (sink, output) = crate::guest::collector();
    let image = PathBuf::from(image);
    let guest = std::thread::spawn(move || {
        let input: Box<dyn Read + Send> = Box::new(Orders { orders: input, rest: Vec::new() });
        run::converse(&job, &image, Some(input), sink, |_| {})
    });
    let mut witness = Witness { orders, output, rest: Vec::new() };
    let verdict = look(&mut witness);
    // Its standard input ends with this, and so does the guest.
    drop(witness);
    let captured = guest.join().map_err(|_| Failure::new("the guest's thread panicked"))??;
    let ended = match captured.status {
        Some(0) => Ok(String::new()),
        status => Err(format!("the guest ended with {status:?}")),
    };
    inside::say_in("status", "guest_ends", verdict.and(ended));
    println!("{}", inside::END);
    Ok(0)
}

/// The witness's standard input: lines, as they are ordered.
struct Orders {
    orders: Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl Read for Orders {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            // No more orders: the end.
            self.rest = self.orders.recv().unwrap_or_default();
        }
        let count = self.rest.len().min(into.len());
        into[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Ok(count)
    }
}

/// The program in the guest.
struct Witness {
    orders: Sender<Vec<u8>>,
    output: Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl Witness {
    fn order(&self, word: &str) -> std::result::Result<(), String> {
        self.orders.send(format!("{word}\n").into()).map_err(|_| "the guest has ended".into())
    }

    /// The numbers on the next line, which begins with `word`.
    fn hear<const N: usize>(&mut self, word: &str) -> std::result::Result<[f64; N], String> {
        let end = loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                break end;
            }
            let more = self.output.recv_timeout(PATIENCE);
            self.rest.extend(more.map_err(|_| format!("the witness never says `{word}`"))?);
        };
        let line: Vec<u8> = self.rest.drain(..=end).collect();
        let line = String::from_utf8_lossy(&line).trim().to_string();
        let numbers = line.strip_prefix(word).map(|rest| {
            rest.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<f64>>()
        });
        let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
        numbers.ok_or(format!("`{line}`, not `{word}` and {N} numbers"))
    }
}

/// All tests, one after the other on one page. What stands in the way of them all is an error.
fn look(witness: &mut Witness) -> Verdict {
    let [_pid] = witness.hear("ready")?;
    inside::connect_within(80, PATIENCE)?;
    let profile = workspace::output().join(format!("chromium-{}", std::process::id()));
    let url = format!("http://{}/status", inside::GUEST);
    let mut browser = Browser::open(&profile, &url)?;
    browser.until("typeof last !== 'undefined' && last && last.envs.length > 3")?;

    let program = appears(witness, &mut browser);
    let (verdict, program) = match program {
        Ok((remark, program)) => (Ok(remark), Some(program)),
        Err(why) => (Err(why), None),
    };
    inside::say_in("status", "page_shows_a_program", verdict);
    keep_pictures(&mut browser)?;
    let goes = match &program {
        Some(program) => goes(witness, &mut browser, program),
        None => Err("it never came".into()),
    };
    inside::say_in("status", "page_forgets_a_program", goes);
    inside::say_in("status", "figures_agree", figures(witness, &mut browser));
    inside::say_in("status", "page_is_sound", sound(&mut browser));
    drop(browser);
    // A directory too many harms nobody.
    let _ = std::fs::remove_dir_all(&profile);
    Ok(String::new())
}

/// A program that the witness has started.
struct Program {
    id: f64,
    /// Its colour on the page, as `r,g,b`.
    colour: String,
    /// Free frames when it was there.
    free: f64,
}

/// Points of the picture that have a colour.
fn points(browser: &mut Browser, colour: &str) -> std::result::Result<f64, String> {
    let expression = format!(
        "(() => {{ const canvas = document.getElementById('picture'); \
         const draw = canvas.getContext('2d'); \
         const {{ data }} = draw.getImageData(0, 0, canvas.width, canvas.height); \
         let count = 0; for (let at = 0; at < data.length; at += 4) \
         if ([data[at], data[at + 1], data[at + 2]].join() === '{colour}') count++; \
         return count; }})()"
    );
    number(browser, &expression)
}

fn number(browser: &mut Browser, expression: &str) -> std::result::Result<f64, String> {
    let value = browser.value(&format!("Number({expression})"))?;
    value.number().ok_or(format!("{expression}: {value:?}"))
}

/// The page's own time: when the look that it shows was taken.
const SHOWN_NS: &str = "document.body.dataset.nowNs";

/// A program starts: its line, its frames and its colour in the picture of memory appear.
fn appears(
    witness: &mut Witness,
    browser: &mut Browser,
) -> std::result::Result<(String, Program), String> {
    witness.order("spawn")?;
    let [id, spawned_ns, pages] = witness.hear("spawned")?;
    let row = format!("document.querySelector('tr[data-env=\"{id}\"]')");
    browser.until(&format!("{row} && {row}.dataset.frames >= {pages}"))?;
    let late = number(browser, SHOWN_NS)? - spawned_ns;
    if late > SOON_NS {
        return Err(format!("it is on the page {:.0} ms late", late / 1e6));
    }
    let frames = number(browser, &format!("{row}.dataset.frames"))?;
    if frames > pages + BESIDE {
        return Err(format!("{frames} frames, of which it asked for {pages}"));
    }
    let swatch = format!("getComputedStyle({row}.querySelector('.swatch')).backgroundColor");
    let colour = browser.value(&format!("{swatch}.match(/\\d+/g).slice(0, 3).join()"))?;
    let colour = colour.text().ok_or("no colour")?.to_string();
    let of_point = number(browser, "last.memory.frames_per_cell")?;
    let seen = points(browser, &colour)? * of_point;
    if seen < 0.9 * pages || seen > 1.1 * frames {
        return Err(format!("{seen} frames are of its colour, {frames} its own"));
    }
    let free = number(browser, "document.getElementById('free').dataset.value")?;
    let remark = format!("(after {:.0} ms, {frames} frames)", late.max(0.0) / 1e6);
    Ok((remark, Program { id, colour, free }))
}

/// It is killed: line, colour and frames go.
fn goes(witness: &mut Witness, browser: &mut Browser, program: &Program) -> Verdict {
    let Program { id, colour, free } = program;
    witness.order("kill")?;
    let [killed_ns] = witness.hear("killed")?;
    browser.until(&format!(
        "!document.querySelector('tr[data-env=\"{id}\"]') && \
         document.getElementById('free').dataset.value >= {free} + 4096"
    ))?;
    let late = number(browser, SHOWN_NS)? - killed_ns;
    if late > SOON_NS {
        return Err(format!("it is gone from the page {:.0} ms late", late / 1e6));
    }
    match points(browser, colour)? {
        0.0 => Ok(format!("(after {:.0} ms)", late.max(0.0) / 1e6)),
        left => Err(format!("{left} points of its colour are left")),
    }
}

/// Three figures of the page are those that the witness reads: how many environments, how many
/// free frames, how many domains were ever made.
fn figures(witness: &mut Witness, browser: &mut Browser) -> Verdict {
    let mut last = String::new();
    for _ in 0..TURNS {
        witness.order("figures")?;
        let before: [f64; 3] = witness.hear("figures")?;
        // A look that began after that.
        let shown = number(browser, SHOWN_NS)?;
        browser.until(&format!("{SHOWN_NS} > {shown} + 1e9"))?;
        let page = browser.value(
            "['count', 'free'].map(id => Number(document.getElementById(id).dataset.value))\
             .concat(Number(document.querySelector('[data-call=DomainAlloc]').dataset.count))",
        )?;
        let page: Vec<f64> = page.list().unwrap_or(&[]).iter().filter_map(Json::number).collect();
        witness.order("figures")?;
        let after: [f64; 3] = witness.hear("figures")?;
        if before == after && page == before {
            return Ok(format!("({page:?})"));
        }
        last = format!("the page has {page:?}, the witness {before:?}, then {after:?}");
    }
    Err(last)
}

/// Nothing failed in the page, it needs nobody else, it can be listened to, and it is dark for who
/// likes that.
fn sound(browser: &mut Browser) -> Verdict {
    if !browser.complaints.is_empty() {
        return Err(browser.complaints.join("; "));
    }
    let live = browser.value("document.getElementById('live').textContent")?;
    if live.text() != Some("live") {
        return Err(format!("it says that it is {live:?}"));
    }
    let foreign = number(
        browser,
        "performance.getEntriesByType('resource').filter(one => \
         new URL(one.name).origin !== location.origin && !one.name.startsWith('data:')).length",
    )?;
    let unlabelled = number(
        browser,
        "[...document.querySelectorAll('canvas')].filter(one => \
         !(one.getAttribute('aria-label') || '').includes(':')).length + \
         [...document.querySelectorAll('section')].filter(one => \
         !document.getElementById(one.getAttribute('aria-labelledby'))).length",
    )?;
    if (foreign, unlabelled) != (0.0, 0.0) {
        return Err(format!("{foreign} foreign resources, {unlabelled} parts without a label"));
    }
    let mut background = |scheme| -> std::result::Result<f64, String> {
        browser.prefer(scheme)?;
        let colour = "getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]";
        number(browser, colour)
    };
    let (dark, light) = (background("dark")?, background("light")?);
    if dark < 64.0 && light > 192.0 {
        return Ok(String::new());
    }
    Err(format!("red of the background: {dark} where dark is liked, {light} where light is"))
}

/// What the browser sees, in light and in dark, for people.
fn keep_pictures(browser: &mut Browser) -> std::result::Result<(), String> {
    let Some(directory) = std::env::var_os("XOK_SCREENSHOTS") else { return Ok(()) };
    let directory = Path::new(&directory);
    std::thread::sleep(Duration::from_secs(20));
    for scheme in ["light", "dark"] {
        browser.prefer(scheme)?;
        let shown = number(browser, SHOWN_NS)?;
        browser.until(&format!("{SHOWN_NS} > {shown} + 1e9"))?;
        let path = directory.join(format!("status-{scheme}.png"));
        let picture = browser.picture()?;
        std::fs::write(&path, picture).map_err(|why| format!("{}: {why}", path.display()))?;
    }
    browser.prefer("light")
}
