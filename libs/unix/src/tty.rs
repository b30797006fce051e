//! Terminals: settings, line discipline, and what is shared between terminal server and programs.

pub mod cells;
pub mod line;
pub mod output;
pub mod shared;
pub mod termios;

#[cfg(test)]
mod tests;
