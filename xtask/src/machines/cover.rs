//! Which cells are booted: few in which every two properties' values still meet.

use std::cmp::Reverse;

use super::cell::{Cell, PROPERTIES};

/// An index into each property's values.
type Values = [usize; PROPERTIES.len()];

/// Every cell.
pub fn everything() -> Vec<Cell> {
    all_values().map(Cell::of).collect()
}

/// Cells such that each value of each property meets each value of each other one: the cell that
/// brings the most pairs together that have not met, until all have.
pub fn pairs() -> Vec<Cell> {
    let mut left: Vec<[(usize, usize); 2]> = all_values().flat_map(pairs_of).collect();
    left.sort_unstable();
    left.dedup();
    let mut chosen = Vec::new();
    while !left.is_empty() {
        let gain = |values: &Values| {
            pairs_of(*values).filter(|pair| left.binary_search(pair).is_ok()).count()
        };
        // The first of those that gain most, so that the table is always the same.
        let Some(best) = all_values().max_by_key(|values| (gain(values), Reverse(*values))) else {
            break;
        };
        left.retain(|pair| !pairs_of(best).any(|met| met == *pair));
        chosen.push(Cell::of(best));
    }
    chosen
}

fn all_values() -> impl Iterator<Item = Values> {
    (0..PROPERTIES.iter().product()).map(|number: usize| {
        let mut rest = number;
        PROPERTIES.map(|count| {
            let value = rest % count;
            rest /= count;
            value
        })
    })
}

/// What meets in a cell: two properties, each with its value.
fn pairs_of(values: Values) -> impl Iterator<Item = [(usize, usize); 2]> {
    let count = values.len();
    (0..count).flat_map(move |first| {
        (first + 1..count).map(move |second| [(first, values[first]), (second, values[second])])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_two_values_meet() {
        let cells = pairs();
        // By the cells themselves, not by the numbers that they were chosen by.
        let values_of = |cell: &Cell| {
            [
                cell.machine.name.to_string(),
                cell.memory.to_string(),
                format!("x{}", cell.cpus),
                cell.model.name.into(),
                format!("disk {}", cell.disk),
                format!("network {}", cell.network),
                format!("rng {}", cell.rng),
            ]
        };
        for wanted in everything() {
            let wanted = values_of(&wanted);
            for first in 0..PROPERTIES.len() {
                for second in 0..first {
                    let meets = |cell: &Cell| {
                        let values = values_of(cell);
                        values[first] == wanted[first] && values[second] == wanted[second]
                    };
                    let (first, second) = (&wanted[first], &wanted[second]);
                    assert!(cells.iter().any(meets), "{first} and {second} never meet");
                }
            }
        }
        assert!(cells.len() < 50, "{} cells", cells.len());
    }
}
