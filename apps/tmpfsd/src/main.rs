//! The memory file system's server: /tmp and every other name that can be written.
//!
//! A process of its own, because names that many share and change need somebody whom no client can
//! corrupt (decisions 6). It answers requests that arrive by control transfer (`unix::protocol`),
//! each with data in a region of the client's; the rules are in `unix::tree`.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod clients;
#[cfg(target_os = "none")]
mod file_locks;
#[cfg(target_os = "none")]
mod requests;
#[cfg(target_os = "none")]
mod seed;
#[cfg(target_os = "none")]
mod server;
#[cfg(target_os = "none")]
mod shown;
#[cfg(target_os = "none")]
mod sockets;
#[cfg(target_os = "none")]
mod terminals;
#[cfg(target_os = "none")]
mod versions;

#[cfg(target_os = "none")]
xok::program!(main);

#[cfg(target_os = "none")]
fn main(_argument: &'static [u8]) {
    let server = alloc::boxed::Box::leak(alloc::boxed::Box::new(server::Server::new()));
    xok::server::run(server)
}

#[cfg(not(target_os = "none"))]
fn main() {}
