//! The first program: starts the servers, then shell or `run=` program, then ends the machine.
//!
//! With a shell, the network's servers are started after its first prompt.
//!
//! It holds the root name and every right; what it starts gets as little as it needs. Its own
//! application page tells everybody where the servers are (`xok::services`).
//!
//! ```text
//!  settings  the command line        terminal  the regions that ttyd and programs share
//!  programs  files of the image      session   the first Linux process
//!  servers   which there are         keeper    starts those again that end
//!  payer     accounts of init's and of the servers'
//! ```
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

extern crate alloc;

#[cfg(target_os = "none")]
mod keeper;
#[cfg(target_os = "none")]
mod payer;
#[cfg(target_os = "none")]
mod programs;
#[cfg(target_os = "none")]
mod publish;
#[cfg(target_os = "none")]
mod servers;
#[cfg(target_os = "none")]
mod session;
#[cfg(any(target_os = "none", test))]
mod settings;
#[cfg(target_os = "none")]
mod terminal;

#[cfg(target_os = "none")]
xok::program!(main);

#[cfg(target_os = "none")]
fn main(_argument: &'static [u8]) {
    xok::upcall::set_mask(true);
    let status = match session::run() {
        Ok(status) => status,
        Err(failure) => {
            xok::tell!(0, "init: {failure}");
            failure.status
        }
    };
    // Only a kernel without power control comes back.
    let _ = xok::call::machine_end(0, 0, status);
}

#[cfg(not(target_os = "none"))]
fn main() {}
