//! The terminal's server: owns the console, edits lines, echoes, and sends ^C to the foreground.
//!
//! A process of its own, because ^C must act while the foreground program computes (decisions 6).
//! It holds the console's ring and the right to post to the processes of its account. Programs
//! reach it through three regions only (`unix::tty::shared`); it never waits for any of them.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod console;
#[cfg(target_os = "none")]
mod foreground;
#[cfg(target_os = "none")]
mod region;
#[cfg(target_os = "none")]
mod terminal;

#[cfg(target_os = "none")]
xok::program!(main);

#[cfg(target_os = "none")]
fn main(_argument: &'static [u8]) {
    match terminal::Terminal::open() {
        Ok(mut terminal) => terminal.serve(),
        Err((error, number)) => {
            xok::log!(console::CONSOLE, "ttyd: {} ({number})", error.name());
            xok::call::exit(1 << 8)
        }
    }
}

#[cfg(not(target_os = "none"))]
fn main() {}
