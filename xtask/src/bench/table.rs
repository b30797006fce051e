//! What was measured, as tables: Markdown that can be read unrendered.

use super::collect::Measured;
use super::figures::{self, Figures, show};
use super::program::Row;

/// One system's figures of all rows.
pub type Column = Vec<(String, std::result::Result<Figures, String>)>;

/// Figures of everything measured.
pub fn column(measured: &[Measured]) -> Column {
    let figures = |(name, outcome): &Measured| {
        (name.clone(), outcome.as_ref().map(figures::of).map_err(Clone::clone))
    };
    measured.iter().map(figures).collect()
}

/// Our own figures alone.
pub fn alone(rows: &[Row], ours: &Column) -> String {
    let head = ["row", "way", "user", "kernel", "sum", "rep", "spread", "events"];
    let line = |(name, outcome): &(String, std::result::Result<Figures, String>)| {
        let mut cells = vec![name.clone(), way(rows, name)];
        match outcome {
            Ok(figures) => {
                cells.extend(parts(figures));
                cells.push(show(figures.repeated));
                cells.push(percent(figures.spread));
                cells.push(events(figures));
            }
            Err(reason) => cells.extend(["-", "-", "-", "-", "-", reason].map(String::from)),
        }
        cells
    };
    markdown(&head, ours.iter().map(line).collect())
}

/// Ours beside Linux's: instructions, repeated steps, events.
pub fn beside(rows: &[Row], ours: &Column, tuned: &Column, stock: &Column) -> String {
    let head = [
        "row",
        "way",
        "ours: user",
        "kernel",
        "sum",
        "rep",
        "Linux: user",
        "kernel",
        "sum",
        "rep",
        "stock",
        "ratio",
        "spreads",
        "events: ours",
        "Linux",
    ];
    let line = |(at, (name, own)): (usize, &(String, std::result::Result<Figures, String>))| {
        let (tuned, stock) = (&tuned[at].1, &stock[at].1);
        let mut cells = vec![name.clone(), way(rows, name)];
        for side in [own, tuned] {
            match side {
                Ok(figures) => {
                    cells.extend(parts(figures));
                    cells.push(show(figures.repeated));
                }
                Err(_) => cells.extend(["-"; 4].map(String::from)),
            }
        }
        cells.push(stock.as_ref().map_or("-".into(), |stock| show(stock.total)));
        cells.push(match (own, tuned) {
            (Ok(own), Ok(tuned)) => format!("{:.2}", own.total / tuned.total),
            _ => "-".into(),
        });
        let spread = |side: &std::result::Result<Figures, String>| {
            side.as_ref().map_or("-".into(), |figures| percent(figures.spread))
        };
        cells.push(format!("{} {}", spread(own), spread(tuned)));
        for side in [own, tuned] {
            cells.push(side.as_ref().map_or_else(Clone::clone, events));
        }
        cells
    };
    markdown(&head, ours.iter().enumerate().map(line).collect())
}

fn way(rows: &[Row], name: &str) -> String {
    rows.iter().find(|row| row.name == name).map_or(String::new(), |row| row.way.clone())
}

fn parts(figures: &Figures) -> [String; 3] {
    [figures.user, figures.kernel, figures.total].map(show)
}

fn percent(part: f64) -> String {
    format!("{:.1}%", part * 100.0)
}

/// Events that occurred, with their numbers.
pub fn events(figures: &Figures) -> String {
    let events = figures.events.iter().map(|(name, count)| format!("{name} {}", show(*count)));
    events.collect::<Vec<_>>().join(", ")
}

/// A table whose columns stand below each other.
pub fn markdown(head: &[&str], lines: Vec<Vec<String>>) -> String {
    let width = |column: usize| {
        let cells =
            lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let row = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
    };
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let head: Vec<String> = head.iter().map(|name| name.to_string()).collect();
    let body: String = lines.iter().map(|line| row(line)).collect();
    row(&head) + &row(&rule) + &body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(user: f64) -> std::result::Result<Figures, String> {
        Ok(Figures { user, total: user, ..Figures::default() })
    }

    #[test]
    fn columns_stand_below_each_other() {
        let table = markdown(&["a", "long"], vec![vec!["value".into(), "b".into()]]);
        assert_eq!(table, "| a     | long |\n| ----- | ---- |\n| value | b    |\n");
    }

    #[test]
    fn a_row_that_cannot_run_is_a_dash_with_its_reason() {
        let name = "x".to_string();
        let ours = vec![(name.clone(), Err("no such call".to_string()))];
        let linux = vec![(name, measured(50.0))];
        let table = beside(&[], &ours, &linux, &linux);
        let last = table.lines().last().unwrap();
        assert!(last.contains("| - ") && last.contains("no such call"), "{last}");
        assert!(!last.contains("0.00"), "{last}");
    }

    #[test]
    fn the_ratio_is_ours_to_tuned_linux() {
        let column = |value: f64| vec![("x".to_string(), measured(value))];
        let table = beside(&[], &column(50.0), &column(200.0), &column(400.0));
        assert!(table.lines().last().unwrap().contains("| 0.25 "), "{table}");
    }
}
