//! Shares of processor time by a scheduler that is a program: its figures, and their picture.
//!
//! The guest's own test (`guest/stride_three_to_two_to_one`) is run for ten seconds and tells, as
//! it goes, how long each client has run.

use std::fmt::Write;
use std::time::Duration;

use crate::failure::{Failure, Result};
use crate::machine::{Kind, Machine};
use crate::report;
use crate::run::{self, Job};

/// Milliseconds of the test.
const LENGTH_MS: u64 = 10_000;
/// How long it may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Tickets of the clients, as the test has them.
const TICKETS: [f64; 3] = [3.0, 2.0, 1.0];
const COLOURS: [&str; 3] = ["#2a7f62", "#3a6ea5", "#c2553a"];
/// The picture's pixels.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const EDGE: f64 = 48.0;

/// Microseconds since the beginning, and nanoseconds that each client has run.
type Sample = [u64; 4];

/// Runs the test and prints what it said; the picture, if it is wanted.
pub fn print() -> Result<String> {
    report::step("ten seconds of stride scheduling");
    let length = LENGTH_MS.to_string();
    let settings = [
        ("init", crate::test::GUEST_TESTS),
        ("only", "stride"),
        ("stride-ms", &length),
        ("stride-samples", "1"),
    ];
    let job = Job {
        machine: Machine { kind: Kind::Q35, ..Machine::default() },
        settings: settings.map(|(key, value)| (key.to_string(), value.to_string())).to_vec(),
        limit: Some(LIMIT),
        ..Job::default()
    };
    let image = run::make_image(&job)?;
    let captured = run::capture(&job, &image.path, None, |_| {})?;
    let samples: Vec<Sample> = captured.log.iter().filter_map(|line| sample(line)).collect();
    let verdicts = captured.log.iter().filter(|line| line.contains("test guest/stride"));
    verdicts.for_each(|line| println!("{line}"));
    let Some(last) = samples.last().filter(|_| captured.status == Some(0)) else {
        let text = captured.log.join("\n");
        return Err(Failure::new(format!("status {:?}; its log:\n{text}", captured.status)));
    };
    let (ran, all) = (&last[1..], last[1..].iter().sum::<u64>() as f64);
    for (ran, tickets) in ran.iter().zip(TICKETS) {
        let due = all * tickets / TICKETS.iter().sum::<f64>();
        let ran = *ran as f64;
        println!("{tickets} tickets: {:.1} ms, {:+.2} %", ran / 1e6, 100.0 * (ran - due) / due);
    }
    Ok(render(&samples))
}

fn sample(line: &str) -> Option<Sample> {
    let mut words = line.rsplit_once("stride ")?.1.split_whitespace();
    let mut next = || words.next()?.parse().ok();
    Some([next()?, next()?, next()?, next()?])
}

fn render(samples: &[Sample]) -> String {
    let most = |at: fn(&Sample) -> u64| samples.iter().map(at).max().unwrap_or(1).max(1) as f64;
    let (time, ran) = (most(|sample| sample[0]), most(|sample| sample[1]));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{EDGE}\" y=\"20\">Time that each client ran, two hogs beside: 3 : 2 : 1</text>\n\
         <text x=\"{EDGE}\" y=\"{}\">0 to {:.1} s</text>\n",
        HEIGHT - 16.0,
        time / 1e6
    );
    for (at, (tickets, colour)) in TICKETS.iter().zip(COLOURS).enumerate() {
        let mut points = String::new();
        let (mut x, mut y) = (EDGE, HEIGHT - EDGE);
        for sample in samples {
            x = EDGE + (WIDTH - 3.0 * EDGE) * sample[0] as f64 / time;
            y = HEIGHT - EDGE - (HEIGHT - 2.0 * EDGE) * sample[at + 1] as f64 / ran;
            let _ = write!(points, "{x:.1},{y:.1} ");
        }
        let seconds = samples.last().map_or(0, |last| last[at + 1]) as f64 / 1e9;
        let _ = write!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <text x=\"{:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{tickets}: {seconds:.2} s</text>\n",
            x + 4.0
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_log_become_samples() {
        assert_eq!(sample("[  1.2] stride 200 3 2 1"), Some([200, 3, 2, 1]));
        assert_eq!(sample("test guest/stride_three ... ok"), None);
        let svg = render(&[[0, 0, 0, 0], [100, 30, 20, 10]]);
        assert_eq!(svg.matches("<polyline").count(), 3);
    }
}
