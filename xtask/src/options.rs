//! Command-line arguments: flags in any order, each with its value, then what follows `--`.

use std::ops::RangeInclusive;

use crate::failure::{Failure, Result};

/// The arguments not yet taken.
pub struct Options {
    words: std::vec::IntoIter<String>,
}

impl Options {
    /// Arguments of one command.
    pub fn new(words: Vec<String>) -> Self {
        Self { words: words.into_iter() }
    }

    /// The next argument.
    pub fn next(&mut self) -> Option<String> {
        self.words.next()
    }

    /// The value that must follow `flag`.
    pub fn value(&mut self, flag: &str) -> Result<String> {
        self.next().ok_or_else(|| Failure::new(format!("{flag} needs a value")).next(HELP))
    }

    /// The number that must follow `flag`.
    pub fn number<T: std::str::FromStr>(&mut self, flag: &str) -> Result<T> {
        let value = self.value(flag)?;
        value.parse().map_err(|_| Failure::new(format!("{flag} {value}: not a number")).next(HELP))
    }

    /// The number that must follow `flag`, one of `range`.
    pub fn number_in<T>(&mut self, flag: &str, range: RangeInclusive<T>) -> Result<T>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        let number = self.number(flag)?;
        if range.contains(&number) {
            return Ok(number);
        }
        let (least, most) = range.into_inner();
        Err(Failure::new(format!("{flag} {number}: {least} to {most} work")).next(HELP))
    }

    /// Everything that is left.
    pub fn rest(self) -> Vec<String> {
        self.words.collect()
    }
}

/// What to type when arguments are not understood.
pub const HELP: &str = "cargo xtask help";

/// Refuses an argument.
pub fn unknown(command: &str, word: &str) -> Failure {
    Failure::new(format!("{command}: unknown argument {word}")).next(HELP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_their_range_are_refused() {
        let number = |text: &str| {
            let words = vec![text.to_string()];
            Options::new(words).number_in("--seconds", 1..=60_u64)
        };
        assert_eq!((number("1").unwrap(), number("60").unwrap()), (1, 60));
        let refused = number("0").unwrap_err().to_string();
        assert!(refused.starts_with("error: --seconds 0: 1 to 60 work"), "{refused}");
        assert!(number("61").is_err() && number("-1").is_err() && number("x").is_err());
    }
}
