//! Cheetah: an HTTP/1.1 server linked straight to the network library.
//!
//! No sockets, no descriptors, no select: one loop that takes packets from its own ring, lets each
//! connection go as far as it can, and sleeps until something arrives or is due. Files are read
//! where they lie in the boot image (`www=` on the command line, else /www); `/status` shows the
//! machine as the published pages have it.
//!
//! Capabilities, given by who starts it: 1 the network interface (WRITE), 2 the boot image (READ),
//! 3 the console's log. Its start block, if it has one, is the port in decimal, else 80.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod client;
#[cfg(target_os = "none")]
mod server;
#[cfg(target_os = "none")]
mod site;
#[cfg(target_os = "none")]
mod status;

#[cfg(target_os = "none")]
xok::program!(main);

/// Index of the capability over the network interface.
#[cfg(target_os = "none")]
const NETWORK: u8 = 1;
/// Index of the capability over the boot image.
#[cfg(target_os = "none")]
const IMAGE: u8 = 2;
/// Index of the capability over the console, for the log.
#[cfg(target_os = "none")]
const LOG: u8 = 3;
/// The port, unless the start block names another.
#[cfg(target_os = "none")]
const PORT: u16 = 80;

/// Status of a server that can't serve.
#[cfg(target_os = "none")]
const EXIT_CANNOT: u64 = 1 << 8;
/// Status of a server whose port is another program's.
#[cfg(target_os = "none")]
const EXIT_TAKEN: u64 = 2 << 8;

#[cfg(target_os = "none")]
fn main(argument: &'static [u8]) {
    xok::beat::begin("cheetah");
    let port = core::str::from_utf8(argument).ok().and_then(|text| text.parse().ok());
    let port = port.unwrap_or(PORT);
    match xok::heap::provide(server::TURN_PAGES).and_then(|()| server::Server::open(port)) {
        Ok(mut server) => server.run(),
        Err((abi::error::Error::Overlap, filter)) => {
            xok::log!(LOG, "cheetah: port {port} is taken by the owner of filter {filter}");
            xok::call::exit(EXIT_TAKEN)
        }
        Err(refused) => {
            xok::log!(LOG, "cheetah: {refused:?}");
            xok::call::exit(EXIT_CANNOT)
        }
    }
}

#[cfg(not(target_os = "none"))]
fn main() {}
