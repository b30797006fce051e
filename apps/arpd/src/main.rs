//! Answers ARP requests and pings, and keeps the table of link addresses that all may read.
//!
//! It alone receives ARP packets and echo requests (its filters), and alone writes the table, which
//! is its application page (`xio::arp::Table`). Others read it without a call; to have an address
//! found out they transfer control here (`xnet::addresses`).
//!
//! Capabilities, given by who starts it: 1 the network interface (WRITE), 3 the console's log.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod server;

#[cfg(target_os = "none")]
xok::program!(main);

/// Index of the capability over the network interface.
#[cfg(target_os = "none")]
const NETWORK: u8 = 1;
/// Index of the capability over the console, for the log.
#[cfg(target_os = "none")]
const LOG: u8 = 3;
/// Free pages for the server and its settings.
#[cfg(target_os = "none")]
const START_PAGES: usize = 8;

#[cfg(target_os = "none")]
fn main(_argument: &'static [u8]) {
    xok::beat::begin("arpd");
    // What the beginning takes without asking; later nothing is taken.
    match xok::heap::provide(START_PAGES).and_then(|()| server::Server::open()) {
        Ok(server) => {
            let server = alloc::boxed::Box::leak(alloc::boxed::Box::new(server));
            // None is asked for, so there are as many.
            let _ = xok::heap::provide(0);
            xok::server::run(server)
        }
        Err(refused) => {
            xok::log!(LOG, "arpd: {refused:?}");
            xok::call::exit(1 << 8)
        }
    }
}

#[cfg(not(target_os = "none"))]
fn main() {}
