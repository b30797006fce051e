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
mod holders;
#[cfg(target_os = "none")]
mod inbox;
#[cfg(target_os = "none")]
mod principals;
#[cfg(target_os = "none")]
mod requests;
#[cfg(target_os = "none")]
mod seals;
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
fn main(argument: &'static [u8]) {
    xok::beat::begin("tmpfsd");
    let life = core::str::from_utf8(argument).ok().and_then(|text| text.parse().ok());
    match unix::map::leaked(|| server::Server::new(life.unwrap_or(0))) {
        Ok(server) => xok::server::run(server),
        Err(_) => {
            xok::log!(seed::LOG, "tmpfsd: no memory to begin with");
            xok::call::exit(1 << 8)
        }
    }
}

#[cfg(not(target_os = "none"))]
fn main() {}
