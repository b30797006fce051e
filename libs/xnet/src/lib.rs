//! `xio` on Xok's rings: what a native program needs to be on the network.
//!
//! ```text
//!   Network ── xio::stack::Stack
//!      ├── Port ── Ring         filled by the kernel, by filter        (Receive)
//!      │     └──── Transmitter  gathered from by the device            (Transmit)
//!      └── AddressBook          arpd's page, read without a call       (Neighbours)
//! ```
//! A program opens a [`Network`], claims what it wants to receive by filters, and then polls and
//! waits in turn. No call is made per received packet; one per packet sent.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

pub mod addresses;
mod memory;
pub mod network;
pub mod port;
pub mod settings;

pub use addresses::AddressBook;
pub use memory::own_page;
pub use network::Network;
pub use port::{Port, Ring, Transmitter};

/// Whoever is in this group may use the network, whatever the user (Android's `AID_INET`).
pub const NETWORK_GROUP: u32 = 3003;
