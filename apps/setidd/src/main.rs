//! The set-id server: builds the domains in which programs act for their files' owners.
//!
//! A process that executes a set-id program can't be given its owner's rights: its memory, its
//! threads and whatever else it is made of are its user's. So it asks here, and moves into a domain
//! that it has no right over (docs/decisions/0044-set-id.md). What the program is, whose, and who
//! asks, the server hears from the file server and the kernel; of the asker it takes a block of
//! bytes that it does not read, for the next life to judge.
//!
//! ```text
//!  server  requests, and domains that wait for their guests
//!  files   what the file server and the image say
//!  life    a domain with a library, capabilities, a prepared environment
//! ```
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod files;
#[cfg(target_os = "none")]
mod life;
#[cfg(target_os = "none")]
mod server;

#[cfg(target_os = "none")]
xok::program!(main);

#[cfg(target_os = "none")]
fn main(argument: &'static [u8]) {
    xok::beat::begin("setidd");
    let life = core::str::from_utf8(argument).ok().and_then(|text| text.parse().ok());
    match unix::map::leaked(|| server::Server::open(life.unwrap_or(0))) {
        Ok(server) => xok::server::run(server),
        Err(_) => {
            xok::log!(life::LOG, "setidd: it lacks something to begin with");
            xok::call::exit(1 << 8)
        }
    }
}

#[cfg(not(target_os = "none"))]
fn main() {}
