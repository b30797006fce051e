//! The network's judge in the guest: tests rings, filters and transmission against a real peer.
//!
//! Started by the kernel as the first program (`init=/xok/net-tests`) with every right, it starts
//! arpd, Cheetah and two servers of its own (this program again, by its start block), and speaks
//! with the host's half, `xtask`'s net suite, through the log:
//!
//! ```text
//!   net: send PORT COUNT SIZE FROM   the host sends datagrams: number (u32), then the pattern
//!   net: ready                       servers run: the host begins its own tests
//!   net: killed / net: again         the echo server was destroyed / runs again
//!   test NAME ... ok | FAILED why    a verdict
//! ```
//! With `net=serve` on the command line it only starts arpd and Cheetah, for `xtask`'s wire suite.
//! The host answers by datagrams to [`CONTROL`]: `sent`, `end`.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod control;
#[cfg(target_os = "none")]
mod judge;
#[cfg(target_os = "none")]
mod pages;
#[cfg(target_os = "none")]
mod receive;
#[cfg(target_os = "none")]
mod revoked;
#[cfg(target_os = "none")]
mod servers;
#[cfg(target_os = "none")]
mod tiny;
#[cfg(target_os = "none")]
mod transmit;

#[cfg(target_os = "none")]
xok::program!(main);

/// Where the host's datagrams to the judge arrive.
#[cfg(target_os = "none")]
const CONTROL: u16 = 9000;
/// The echo server's port.
#[cfg(target_os = "none")]
const ECHO: u16 = 7;
/// The bulk sender's port.
#[cfg(target_os = "none")]
const BULK: u16 = 19;
/// The port of the server with another TCP.
#[cfg(target_os = "none")]
const TINY: u16 = 13;

#[cfg(target_os = "none")]
fn main(argument: &'static [u8]) {
    match argument {
        [] => judge::run(),
        b"echo" => servers::echo(ECHO),
        b"bulk" => servers::bulk(BULK),
        b"tiny" => tiny::serve(TINY),
        _ => xok::call::exit(1 << 8),
    }
}

#[cfg(not(target_os = "none"))]
fn main() {}
