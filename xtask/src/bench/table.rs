//! What was measured, as a table for people.

use super::collect::Measured;
use super::figures::{self, Figures, show};
use super::program::Row;

/// Prints our own figures.
pub fn print(rows: &[Row], measured: &[Measured]) {
    println!(
        "{:12} {:10} {:>10} {:>10} {:>10} {:>9} {:>7}  events",
        "row", "way", "user", "kernel", "sum", "rep", "spread"
    );
    for (name, outcome) in measured {
        let way = rows.iter().find(|row| row.name == *name).map_or("", |row| row.way.as_str());
        match outcome {
            Ok(samples) => println!("{name:12} {way:10} {}", line(&figures::of(samples))),
            Err(reason) => println!("{name:12} {way:10} {:>10} {reason}", "-"),
        }
    }
}

fn line(figures: &Figures) -> String {
    let events = figures.events.iter().map(|(name, count)| format!("{name} {}", show(*count)));
    format!(
        "{:>10} {:>10} {:>10} {:>9} {:>6.1}%  {}",
        show(figures.user),
        show(figures.kernel),
        show(figures.total),
        show(figures.repeated),
        figures.spread * 100.0,
        events.collect::<Vec<_>>().join(", ")
    )
}
