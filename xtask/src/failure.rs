//! What went wrong, and what to type next.

use std::fmt;
use std::io;

/// The result of everything that can fail here.
pub type Result<T> = std::result::Result<T, Failure>;

/// A cause in one sentence, and the next command where there is one.
#[derive(Debug)]
pub struct Failure {
    cause: String,
    next: Option<String>,
    status: u8,
}

impl Failure {
    /// A failure with its cause.
    pub fn new(cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), next: None, status: 1 }
    }

    /// Adds the command that helps.
    pub fn next(mut self, command: impl Into<String>) -> Self {
        self.next = Some(command.into());
        self
    }

    /// Sets the exit status that the command ends with; it is 1 otherwise.
    pub fn status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// The exit status that the command ends with.
    pub fn exit_status(&self) -> u8 {
        self.status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.cause)?;
        match &self.next {
            Some(next) => write!(f, "\n next: {next}"),
            None => Ok(()),
        }
    }
}

/// Names what was being done when the operating system refused.
pub trait Context<T> {
    /// Turns the error into a [`Failure`] that begins with `what`.
    fn context(self, what: impl fmt::Display) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure::new(format!("{what}: {error}")))
    }
}
