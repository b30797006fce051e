//! Gives each user an account of its own, and has a domain paid for by the user that it acts for.
//!
//! A process asks when it has become another user, or has built a domain for one
//! (`xok::accounts`). What it asks for is no matter of trust: the kernel says whom the domain acts
//! for, and one that acts for user 0 is user 0's. No process has a right over an account.
//!
//! Capabilities, given by who starts it: 1 the first account and those below (CONTROL), 3 the
//! console's log. Its start block is the number of a region, for its notes.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod notes;
#[cfg(target_os = "none")]
mod server;
#[cfg(any(target_os = "none", test))]
mod shares;

/// Index of the capability over the console's log.
#[cfg(target_os = "none")]
const LOG: u8 = 3;

#[cfg(target_os = "none")]
xok::program!(main);

#[cfg(target_os = "none")]
fn main(argument: &'static [u8]) {
    xok::beat::begin("accountd");
    let region = core::str::from_utf8(argument).ok().and_then(|text| text.parse().ok());
    match notes::Notes::read(abi::id::RegionId(region.unwrap_or(0))) {
        Ok(notes) => {
            let server =
                alloc::boxed::Box::leak(alloc::boxed::Box::new(server::Server::new(notes)));
            xok::server::run(server)
        }
        Err((error, _)) => {
            xok::log!(LOG, "accountd: no notes: {}", error.name());
            xok::call::exit(1 << 8)
        }
    }
}

#[cfg(not(target_os = "none"))]
fn main() {}
