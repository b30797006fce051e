//! Whether a timeline file is what the trace-event format says, as far as we use it.
//!
//! Each event has a phase we know with the members that it needs; each track is named once; slices
//! of a track lie in each other or apart, as nothing else can be drawn.

use std::collections::{BTreeMap, BTreeSet};

use crate::json::Json;

type Track = (u64, u64);

/// What is wrong with the file's text, if anything is.
pub fn check(text: &str) -> Result<(), String> {
    let file = Json::parse(text)?;
    let events = file.get("traceEvents").and_then(Json::list).ok_or("no list traceEvents")?;
    let mut named = BTreeSet::new();
    let mut slices: BTreeMap<Track, Vec<(u64, u64)>> = BTreeMap::new();
    let mut used = BTreeSet::new();
    for (at, event) in events.iter().enumerate() {
        let wrong = |what: &str| format!("event {at}: {what}: {event:?}");
        let text = |key| event.get(key).and_then(Json::text);
        let whole = |key| natural(event.get(key), 1.0);
        let name = text("name").filter(|name| !name.is_empty()).ok_or(wrong("no name"))?;
        let track = whole("pid").zip(whole("tid")).ok_or(wrong("no track"))?;
        let time = |key| natural(event.get(key), 1000.0).ok_or(wrong("no time"));
        match text("ph") {
            Some("M") => {
                let label = event.get("args").and_then(|args| args.get("name"));
                label.and_then(Json::text).ok_or(wrong("no label"))?;
                match name {
                    "process_name" => {}
                    "thread_name" if named.insert(track) => {}
                    _ => return Err(wrong("no label that we know, or a second one")),
                }
            }
            Some("X") => {
                let (since, length) = (time("ts")?, time("dur")?);
                slices.entry(track).or_default().push((since, since + length));
                used.insert(track);
            }
            Some("i") => {
                time("ts")?;
                if !matches!(text("s"), Some("t" | "p" | "g")) {
                    return Err(wrong("an instant without a scope"));
                }
                used.insert(track);
            }
            _ => return Err(wrong("no phase that we know")),
        }
    }
    if let Some(track) = used.difference(&named).next() {
        return Err(format!("track {track:?} has no name"));
    }
    slices.into_iter().try_for_each(|(track, slices)| nested(track, slices))
}

/// A number, in thousandths if `scale` says so, that is not negative and has nothing behind that.
fn natural(value: Option<&Json>, scale: f64) -> Option<u64> {
    let scaled = value?.number()? * scale;
    let whole = scaled.round();
    ((scaled - whole).abs() < 1e-3 && (0.0..9e15).contains(&whole)).then_some(whole as u64)
}

fn nested(track: Track, mut slices: Vec<(u64, u64)>) -> Result<(), String> {
    // The longer of two that begin together is outside.
    slices.sort_by_key(|&(since, end)| (since, std::cmp::Reverse(end)));
    let mut around: Vec<u64> = Vec::new();
    for (since, end) in slices {
        while around.last().is_some_and(|outer| *outer <= since) {
            around.pop();
        }
        if let Some(outer) = around.last().filter(|outer| **outer < end) {
            return Err(format!("track {track:?}: {since}..{end} ns crosses the end of {outer}"));
        }
        around.push(end);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = r#"{"ph":"M","name":"thread_name","pid":1,"tid":0,"args":{"name":"a"}}"#;

    fn file(events: &[&str]) -> String {
        format!("{{\"traceEvents\":[{}]}}", events.join(","))
    }

    fn slice(ts: &str, dur: &str) -> String {
        format!(r#"{{"ph":"X","name":"x","pid":1,"tid":0,"ts":{ts},"dur":{dur}}}"#)
    }

    #[test]
    fn slices_lie_in_each_other_or_apart() {
        let of = |slices: &[(&str, &str)]| {
            let mut events: Vec<String> = vec![NAMES.into()];
            events.extend(slices.iter().map(|(ts, dur)| slice(ts, dur)));
            let events: Vec<&str> = events.iter().map(String::as_str).collect();
            check(&file(&events))
        };
        assert_eq!(of(&[("1", "10"), ("1", "2.5"), ("3.5", "7.5"), ("11", "1")]), Ok(()));
        assert!(of(&[("1", "10"), ("10.999", "0.002")]).is_err(), "they cross");
        assert!(of(&[("1", "-1")]).is_err(), "a negative length");
        assert!(of(&[("1", "0.0001")]).is_err(), "less than a nanosecond");
    }

    #[test]
    fn what_the_format_does_not_know_is_refused() {
        assert_eq!(check(&file(&[NAMES])), Ok(()));
        let wrong = [
            slice("1", "1"),
            NAMES.replace("thread_name", "thread_label") + "," + NAMES,
            format!("{NAMES},{NAMES}"),
            NAMES.replace("\"ph\":\"M\"", "\"ph\":\"Q\""),
            format!("{NAMES},{}", slice("1", "1").replace("\"tid\":0,", "")),
            format!(r#"{NAMES},{{"ph":"i","name":"x","pid":1,"tid":0,"ts":1}}"#),
            format!(r#"{NAMES},{{"ph":"i","s":"t","name":"","pid":1,"tid":0,"ts":1}}"#),
        ];
        for events in wrong {
            assert!(check(&file(&[&events])).is_err(), "{events}");
        }
        assert!(check("[]").is_err() && check("{\"traceEvents\":[").is_err());
    }
}
