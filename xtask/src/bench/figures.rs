//! Medians and spreads of samples, for each operation.

use super::collect::Samples;
use super::counts::Counts;

/// A row's figures: medians over its samples, per operation.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Figures {
    pub user: f64,
    pub kernel: f64,
    /// Of both, by the sum of each sample.
    pub total: f64,
    pub repeated: f64,
    /// (largest - smallest) / median of the sums.
    pub spread: f64,
    /// Events that occurred, by name.
    pub events: Vec<(&'static str, f64)>,
}

/// How an event is read from the counters.
type Event = (&'static str, fn(&Counts) -> u64);

const EVENTS: [Event; 7] = [
    ("entry", |counts| counts.entries),
    ("cr3", |counts| counts.cr3),
    ("invlpg", |counts| counts.invlpg),
    ("lock", |counts| counts.locked),
    ("port", |counts| counts.port),
    ("msr", |counts| counts.msr),
    ("vector", |counts| counts.vector),
];

/// Figures of a row's counted samples.
pub fn of(samples: &Samples) -> Figures {
    let each = |value: fn(&Counts) -> u64| {
        let values = samples.counts.iter().map(value);
        median(values.map(|value| value as f64 / samples.operations as f64).collect())
    };
    let totals: Vec<f64> = samples.counts.iter().map(|counts| counts.total() as f64).collect();
    let events = EVENTS.iter().map(|(name, value)| (*name, each(*value)));
    Figures {
        user: each(Counts::user),
        kernel: each(|counts| counts.kernel),
        total: each(Counts::total),
        repeated: each(|counts| counts.repeated),
        spread: spread(&totals),
        events: events.filter(|(_, count)| *count >= 0.005).collect(),
    }
}

/// The middle one, or the mean of the two middle ones.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        length if length % 2 == 1 => values[length / 2],
        length => (values[length / 2 - 1] + values[length / 2]) / 2.0,
    }
}

/// How far apart the values are, as a part of their median.
pub fn spread(values: &[f64]) -> f64 {
    let middle = median(values.to_vec());
    let largest = values.iter().copied().fold(f64::MIN, f64::max);
    let smallest = values.iter().copied().fold(f64::MAX, f64::min);
    if middle == 0.0 { 0.0 } else { (largest - smallest) / middle }
}

/// A figure with three or four digits that say something.
pub fn show(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        small if small < 9.95 => format!("{value:.2}"),
        middle if middle < 99.5 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(Vec::new()), 0.0);
        assert_eq!(spread(&[9.0, 10.0, 12.0]), 0.3);
        assert_eq!(spread(&[]), 0.0);
    }

    #[test]
    fn figures_are_per_operation() {
        let sample =
            |kernel| Counts { program: 10, library: 20, kernel, cr3: 4, ..Counts::default() };
        let samples =
            Samples { operations: 2, counts: vec![sample(70), sample(90)], ticks: Vec::new() };
        let figures = of(&samples);
        assert_eq!((figures.user, figures.kernel, figures.total), (15.0, 40.0, 55.0));
        assert_eq!(figures.events, [("cr3", 2.0)]);
    }

    #[test]
    fn digits_that_say_something() {
        let shown = [0.0, 0.123, 9.876, 98.76, 987.6, 12345.6].map(show);
        assert_eq!(shown, ["0", "0.12", "9.88", "98.8", "988", "12346"]);
    }
}
