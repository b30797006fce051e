//! The terminals' server: owns the console, edits lines, echoes, and sends ^C to the foreground.
//!
//! A process of its own, because ^C must act while the foreground program computes (decisions 6).
//! It holds the console's ring and SIGNAL over the names of all users. Programs
//! reach a terminal through three regions only (`unix::tty::shared`); it never waits for them. A
//! pseudo-terminal is one more, with its master in the console's place.
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
mod hung_up;
#[cfg(target_os = "none")]
mod leader;
#[cfg(target_os = "none")]
mod master;
#[cfg(target_os = "none")]
mod region;
#[cfg(target_os = "none")]
mod scratch;
#[cfg(target_os = "none")]
mod server;
#[cfg(target_os = "none")]
mod terminal;

#[cfg(target_os = "none")]
xok::program!(main);

#[cfg(target_os = "none")]
fn main(_argument: &'static [u8]) {
    xok::beat::begin("ttyd");
    match server::Server::open() {
        Ok(mut server) => server.serve(),
        Err((error, number)) => {
            xok::log!(console::CONSOLE, "ttyd: {} ({number})", error.name());
            xok::call::exit(1 << 8)
        }
    }
}

#[cfg(not(target_os = "none"))]
fn main() {}
