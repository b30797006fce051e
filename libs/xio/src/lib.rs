//! Networking as libraries without I/O of their own: packets, ARP, TCP/IP, HTTP.
//!
//! Nothing here makes a system call, reads a clock or blocks: packets come and go through two small
//! traits, time is an argument, and every table has a named limit. So the same code runs in a
//! program on Xok's rings, in ExOS behind Linux sockets, and in a test on the host where the wire
//! loses what a seed tells it to.
//!
//! ```text
//!        cheetah          ExOS sockets         arpd
//!      http::Connection        │                │
//!           └───────┬──────────┘                │
//!              stack::Stack  ──looks up──▶  arp::Table ◀──writes── arp::Resolver
//!                   │                           │
//!            stack::{Receive, Transmit}      frames
//!                   └──────── rings and filters (filter::…) ────────┘
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod filter;
pub mod http;
pub mod icmp;
pub mod ipv4;
pub mod pace;
pub mod stack;
