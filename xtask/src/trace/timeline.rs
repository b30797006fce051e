//! The trace as a timeline: Chrome's trace-event format, which Perfetto and chrome://tracing open.
//!
//! ```text
//!  process 1, "processors"     a track for each: who runs, and above it what the kernel does
//!  process 2, "environments"   a track for each: its calls, from entry until it goes on
//! ```
//! A call that makes its caller wait is long on the caller's track, and on the processor's it ends
//! where the processor goes to somebody else. Upcalls, refusals, packets and losses are instants.
//! The format: "Trace Event Format", Google, 2016; times are microseconds.

use std::collections::BTreeMap;
use std::fmt::Write;

use abi::trace::{Event, Kind};

use super::lines::{Trace, What, call_name, cause_name, error_name};
use crate::json::quote;

/// Process of the processors' tracks.
pub const PROCESSORS: u32 = 1;
/// Process of the environments' tracks.
pub const ENVIRONMENTS: u32 = 2;

/// The call by which environments end.
const ENDS: &str = "EnvDestroy";

/// What is on a track and not over yet.
#[derive(Clone, Debug)]
struct Open {
    since: u64,
    name: String,
    category: &'static str,
}

#[derive(Default)]
struct Processor {
    run: Option<Open>,
    kernel: Option<Open>,
}

struct Timeline<'a> {
    trace: &'a Trace,
    out: String,
    processors: Vec<Processor>,
    /// By environment, with the processor it was made on.
    calls: BTreeMap<u32, (usize, Open)>,
}

/// The file's text.
pub fn timeline(trace: &Trace) -> String {
    let mut timeline = Timeline {
        trace,
        out: String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"),
        processors: Vec::new(),
        calls: BTreeMap::new(),
    };
    timeline.processors.resize_with(trace.cpus, Processor::default);
    timeline.name_tracks();
    for item in &trace.items {
        match item.what {
            What::Event(event) => timeline.event(item.ns, item.cpu, &event),
            What::Lost(count) => timeline.lost(item.ns, item.cpu, count),
        }
    }
    let end = trace.items.last().map_or(0, |item| item.ns);
    for cpu in 0..trace.cpus {
        timeline.end_kernel(end, cpu);
        timeline.end_run(end, cpu);
    }
    timeline.end_calls(end, |_, _| true);
    // The last event's comma.
    let text = timeline.out.trim_end_matches([',', '\n']);
    format!("{text}\n]}}\n")
}

/// Nanoseconds as the format's microseconds.
fn microseconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

impl Timeline<'_> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.out, "{{{line}}},");
    }

    fn name_tracks(&mut self) {
        let label = |kind: &str, (process, track): (u32, u32), name: &str| {
            let name = quote(name);
            format!(
                "\"ph\":\"M\",\"name\":\"{kind}\",\"pid\":{process},\"tid\":{track},\
                 \"args\":{{\"name\":{name}}}"
            )
        };
        let mut labels = vec![
            label("process_name", (PROCESSORS, 0), "processors"),
            label("process_name", (ENVIRONMENTS, 0), "environments"),
        ];
        for cpu in 0..self.trace.cpus as u32 {
            labels.push(label("thread_name", (PROCESSORS, cpu), &format!("processor {cpu}")));
        }
        let mut envs: Vec<u32> = self.trace.names.keys().copied().collect();
        envs.extend(self.trace.items.iter().filter_map(|item| match item.what {
            What::Event(event) if event.env != 0 => Some(event.env),
            _ => None,
        }));
        envs.sort_unstable();
        envs.dedup();
        for env in envs {
            labels.push(label("thread_name", (ENVIRONMENTS, env), &self.trace.name(env)));
        }
        for text in labels {
            self.line(format_args!("{text}"));
        }
    }

    fn slice(&mut self, (process, track): (u32, u32), open: &Open, end: u64) {
        let (name, since) = (quote(&open.name), microseconds(open.since));
        let length = microseconds(end.saturating_sub(open.since));
        let category = open.category;
        self.line(format_args!(
            "\"ph\":\"X\",\"cat\":\"{category}\",\"name\":{name},\"pid\":{process},\
             \"tid\":{track},\"ts\":{since},\"dur\":{length}"
        ));
    }

    fn instant(&mut self, ns: u64, (process, track): (u32, u32), category: &str, name: &str) {
        let (name, at) = (quote(name), microseconds(ns));
        self.line(format_args!(
            "\"ph\":\"i\",\"s\":\"t\",\"cat\":\"{category}\",\"name\":{name},\"pid\":{process},\
             \"tid\":{track},\"ts\":{at}"
        ));
    }

    fn end_kernel(&mut self, ns: u64, cpu: usize) {
        if let Some(open) = self.processors[cpu].kernel.take() {
            self.slice((PROCESSORS, cpu as u32), &open, ns);
        }
    }

    fn end_run(&mut self, ns: u64, cpu: usize) {
        if let Some(open) = self.processors[cpu].run.take() {
            self.slice((PROCESSORS, cpu as u32), &open, ns);
        }
    }

    fn end_call(&mut self, ns: u64, env: u32) {
        if let Some((_, open)) = self.calls.remove(&env) {
            self.slice((ENVIRONMENTS, env), &open, ns);
        }
    }

    /// Ends the calls, made on this processor, that `which` wants.
    fn end_calls(&mut self, ns: u64, which: impl Fn(usize, &Open) -> bool) {
        let over = self.calls.iter().filter(|(_, (cpu, open))| which(*cpu, open));
        for env in over.map(|(env, _)| *env).collect::<Vec<_>>() {
            self.end_call(ns, env);
        }
    }

    fn event(&mut self, ns: u64, cpu: usize, event: &Event) {
        let Event { kind, detail, env, argument } = *event;
        let of_env = (ENVIRONMENTS, env);
        let track = if env == 0 { (PROCESSORS, cpu as u32) } else { of_env };
        match kind {
            Kind::Call => {
                let name = call_name(detail).to_string();
                let open = Open { since: ns, name, category: "call" };
                self.end_kernel(ns, cpu);
                self.end_call(ns, env);
                self.processors[cpu].kernel = Some(open.clone());
                self.calls.insert(env, (cpu, open));
            }
            Kind::Leave => {
                self.end_kernel(ns, cpu);
                self.end_call(ns, env);
            }
            Kind::Switch => {
                self.end_kernel(ns, cpu);
                self.end_run(ns, cpu);
                // Who ends itself doesn't go on.
                self.end_calls(ns, |of, open| of == cpu && open.name == ENDS);
                let name = self.trace.name(env);
                let open = Open { since: ns, name, category: "run" };
                self.processors[cpu].run = (env != 0).then_some(open);
            }
            Kind::Interrupt => {
                let name = format!("interrupt {detail:#x}");
                let processor = &mut self.processors[cpu];
                if processor.run.is_some() && processor.kernel.is_none() {
                    processor.kernel = Some(Open { since: ns, name, category: "interrupt" });
                } else {
                    self.instant(ns, (PROCESSORS, cpu as u32), "interrupt", &name);
                }
            }
            Kind::Refused => {
                let name = format!("{}: {}", call_name(detail), error_name(argument));
                self.instant(ns, of_env, "refused", &name);
            }
            Kind::Upcall => self.instant(ns, of_env, "upcall", &cause_name(detail)),
            Kind::PacketIn => {
                let whose = if env == 0 { ", nobody's" } else { "" };
                self.instant(ns, track, "packet", &format!("packet in, {detail} bytes{whose}"));
            }
            Kind::PacketDropped => {
                self.instant(ns, track, "packet", &format!("packet dropped, {detail} bytes"));
            }
            Kind::PacketOut => {
                self.instant(ns, track, "packet", &format!("packet out, {detail} bytes"));
            }
            Kind::BlockAsked | Kind::BlockAnswered => {
                self.instant(ns, track, "block", kind.name());
            }
        }
    }

    /// What was going on may be over long since: it ends where the gap is seen.
    fn lost(&mut self, ns: u64, cpu: usize, count: u64) {
        self.end_kernel(ns, cpu);
        self.end_run(ns, cpu);
        self.end_calls(ns, |of, _| of == cpu);
        let name = format!("{count} records lost");
        self.instant(ns, (PROCESSORS, cpu as u32), "lost", &name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;
    use crate::trace::lines::Item;
    use crate::trace::rules;
    use abi::call::number;

    fn trace(cpus: usize, items: &[(u64, usize, What)]) -> Trace {
        let items = items.iter().map(|&(ns, cpu, what)| Item { ns, cpu, what }).collect();
        let names = [(7, "one \"quoted\"".to_string()), (8, "two".to_string())].into();
        Trace { items, names, cpus, lost: 0, ended: true }
    }

    fn event(kind: Kind, detail: u16, env: u32) -> What {
        What::Event(Event::new(kind, detail, env))
    }

    /// Name, process, track, beginning and length of each slice, in microseconds.
    fn slices(text: &str) -> Vec<(String, f64, f64, f64, f64)> {
        let file = Json::parse(text).unwrap();
        let events = file.get("traceEvents").and_then(Json::list).unwrap();
        let number = |event: &Json, key| event.get(key).and_then(Json::number).unwrap();
        events
            .iter()
            .filter(|event| event.get("ph").and_then(Json::text) == Some("X"))
            .map(|event| {
                let name = event.get("name").and_then(Json::text).unwrap().to_string();
                let [pid, tid, ts, dur] = ["pid", "tid", "ts", "dur"].map(|key| number(event, key));
                (name, pid, tid, ts, dur)
            })
            .collect()
    }

    #[test]
    fn a_call_that_waits_is_long_for_its_caller_only() {
        let sleep = event(Kind::Call, number::Sleep, 7);
        let items = [
            (1000, 0, event(Kind::Switch, 0, 7)),
            (2000, 0, sleep),
            (2500, 0, event(Kind::Switch, 0, 8)),
            (2600, 0, event(Kind::Leave, 0, 8)),
            (2700, 0, event(Kind::Interrupt, 0xf0, 0)),
            (2800, 0, event(Kind::Leave, 0, 8)),
            (9000, 1, event(Kind::Switch, 0, 7)),
            (9100, 1, event(Kind::Leave, 0, 7)),
            (9500, 1, event(Kind::Upcall, 14, 7)),
        ];
        let text = timeline(&trace(2, &items));
        rules::check(&text).unwrap();
        let slice = |name: &str, pid, tid, ts, dur| (name.to_string(), pid, tid, ts, dur);
        let expected = [
            slice("Sleep", 1.0, 0.0, 2.0, 0.5),
            slice("one \"quoted\" (7)", 1.0, 0.0, 1.0, 1.5),
            slice("interrupt 0xf0", 1.0, 0.0, 2.7, 0.1),
            slice("Sleep", 2.0, 7.0, 2.0, 7.1),
            slice("two (8)", 1.0, 0.0, 2.5, 7.0),
            slice("one \"quoted\" (7)", 1.0, 1.0, 9.0, 0.5),
        ];
        assert_eq!(slices(&text), expected);
        assert!(text.contains("\"page fault\""), "{text}");
    }

    #[test]
    fn a_gap_ends_what_was_going_on() {
        let items = [
            (1000, 0, event(Kind::Switch, 0, 7)),
            (2000, 0, event(Kind::Call, number::Yield, 7)),
            (5000, 0, What::Lost(9)),
            (5000, 0, event(Kind::Leave, 0, 9)),
            (6000, 0, event(Kind::Call, number::EnvDestroy, 9)),
            (6500, 0, event(Kind::Switch, 0, 0)),
            (8000, 0, event(Kind::Interrupt, 0xf0, 0)),
        ];
        let text = timeline(&trace(1, &items));
        rules::check(&text).unwrap();
        assert!(text.contains("9 records lost"), "{text}");
        let ends = slices(&text).into_iter().find(|slice| slice.1 == 2.0 && slice.2 == 9.0);
        assert_eq!(ends.map(|slice| slice.4), Some(0.5), "who ends itself is gone");
        let empty = timeline(&trace(1, &[]));
        rules::check(&empty).unwrap();
    }
}
