//! Command-line arguments: flags in any order, each with its value, then what follows `--`.

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
