//! Progress, on stderr, with the time since the start.

use std::sync::OnceLock;
use std::time::Instant;

static START: OnceLock<Instant> = OnceLock::new();

/// Starts the clock that each line shows.
pub fn start() {
    START.get_or_init(Instant::now);
}

/// Seconds since the start.
pub fn elapsed() -> f64 {
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// Says what begins now.
pub fn step(what: &str) {
    eprintln!("[{:7.1}s] {what}", elapsed());
}
