//! `cargo xtask trace`: the timeline is well-formed, and tells what a known program did.

use super::{expect, xtask};
use crate::failure::{Context, Failure, Result};
use crate::json::Json;
use crate::tally::Verdict;
use crate::trace;
use crate::workspace;

/// A slice on an environment's track: name, beginning and length in microseconds.
type Slice = (String, f64, f64);

/// What a run of `cargo xtask trace` left.
struct Traced {
    text: String,
    events: Vec<Json>,
}

fn traced(options: &[&str], program: &[&str]) -> Result<std::result::Result<Traced, String>> {
    let [timeline, text] = ["json", "txt"]
        .map(|kind| workspace::output().join(format!("trace-{}.{kind}", std::process::id())));
    let [timeline_path, text_path] =
        [&timeline, &text].map(|path| path.to_string_lossy().into_owned());
    let mut words = vec!["trace", "--output", &timeline_path, "--text", &text_path];
    words.extend(options);
    words.push("--");
    words.extend(program);
    let output = xtask(&words, b"")?;
    if output.status.code() != Some(0) {
        return Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let file = std::fs::read_to_string(&timeline).context(&timeline_path)?;
    let shown = std::fs::read_to_string(&text).context(&text_path)?;
    for path in [&timeline, &text] {
        std::fs::remove_file(path).context(path.display())?;
    }
    if let Err(why) = trace::check(&file) {
        return Ok(Err(format!("the timeline: {why}")));
    }
    let parsed = Json::parse(&file).map_err(Failure::new)?;
    let events = parsed.get("traceEvents").and_then(Json::list).unwrap_or(&[]).to_vec();
    Ok(Ok(Traced { text: shown, events }))
}

impl Traced {
    /// The slices of the environment whose name begins so, in order of time.
    fn slices(&self, name: &str) -> Vec<Slice> {
        let label = |event: &Json| event.get("args")?.get("name")?.text().map(str::to_string);
        let number = |event: &Json, key: &str| event.get(key).and_then(Json::number);
        let own = |event: &&Json| number(event, "pid") == Some(2.0);
        let track = self
            .events
            .iter()
            .filter(own)
            .find(|event| label(event).is_some_and(|label| label.starts_with(name)))
            .and_then(|event| number(event, "tid"));
        let of_track = |event: &&Json| track.is_some() && number(event, "tid") == track;
        let mut slices: Vec<Slice> = self
            .events
            .iter()
            .filter(own)
            .filter(of_track)
            .filter_map(|event| {
                let name = event.get("name")?.text()?.to_string();
                Some((name, number(event, "ts")?, number(event, "dur")?))
            })
            .collect();
        slices.sort_by(|one, other| one.1.total_cmp(&other.1));
        slices
    }
}

/// A program that sleeps for 60 ms and ends: its calls are there in that order, the sleep about as
/// long.
pub fn in_order() -> Result<Verdict> {
    let traced = match traced(&["--cpus", "2"], &["busybox", "sleep", "0.06"])? {
        Ok(traced) => traced,
        Err(why) => return Ok(Err(why)),
    };
    let slices = traced.slices("busybox ");
    let names: Vec<&str> = slices.iter().map(|slice| slice.0.as_str()).collect();
    let long = slices.iter().position(|(name, _, length)| name == "Sleep" && *length >= 50_000.0);
    let update = names.iter().position(|name| *name == "TableUpdate");
    let in_order = update.is_some() && update < long && names.last() == Some(&"EnvDestroy");
    if !in_order {
        return Ok(Err(format!("no Sleep of 50 ms between TableUpdate and EnvDestroy: {names:?}")));
    }
    let lines: Vec<&str> =
        traced.text.lines().filter(|line| line.contains("  busybox (")).collect();
    let place = |what: &str| lines.iter().rposition(|line| line.ends_with(what));
    let (sleep, end) = (place("call Sleep"), place("call EnvDestroy"));
    if sleep.is_none() || sleep >= end {
        return Ok(Err(format!("the text has Sleep at {sleep:?}, EnvDestroy at {end:?}")));
    }
    let lost = traced.text.lines().filter(|line| line.ends_with("records lost")).count();
    Ok(expect("gaps", lost, 0).map(|_| format!("({} calls)", names.len())))
}

/// With rings of 256 records the end of the boot is all that is left of it: text and timeline say
/// so.
pub fn loss() -> Result<Verdict> {
    let traced = match traced(&["--records", "256"], &["busybox", "true"])? {
        Ok(traced) => traced,
        Err(why) => return Ok(Err(why)),
    };
    let gaps = |line: &&str| line.ends_with(" records lost");
    let lines = traced.text.lines().filter(gaps).count();
    let named = |event: &&Json| event.get("name").and_then(Json::text).is_some_and(|n| gaps(&n));
    let instants = traced.events.iter().filter(named).count();
    Ok(expect("gaps in the timeline", instants, lines)
        .and(expect("there are gaps", lines > 0, true))
        .map(|_| format!("({lines} gaps)")))
}
