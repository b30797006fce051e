//! The thinnest binding to the kernel: the call instruction, upcalls, start-up.
//!
//! ```text
//!  call      the `syscall` instruction, one function a call        published  reading kernel state
//!  upcall    entry and way back of faults, events, foreign calls   own        own page tables
//!  server    being called by control transfer                      memory     shaping a space
//!  start     from the first instruction of a native program        spawn      making another
//!  critical  instead of a lock                                     queue      what happened
//!  rpc       calling a server: trusted or not, typed               pipe       bytes in a page
//!  board     thousands of conditions in a page                     threads    of one environment
//!  redirect  faults that others answer, software interrupts        gang       at the same time
//!  compartment  a second domain, which sees less
//!  reader    who runs, and whose memory is: ps, top, free, a map   stride     sharing out time
//!  heap      pages, as they are needed                             print      lines for the log
//!  boot_image  the image's files                                   clock      time without a call
//!  services  which server does what                                accounts   a user's account
//!  keeping   one's slice, a while longer                           beat       a server's heartbeat
//!  window    a page that is mapped for a moment                    trace      what was recorded
//!  static_program  what a Linux program needs that only reads what is published
//! ```
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

pub mod accounts;
pub mod beat;
pub mod board;
pub mod boot_image;
pub mod call;
pub mod clock;
pub mod compartment;
pub mod critical;
pub mod gang;
pub mod heap;
pub mod keeping;
pub mod memory;
pub mod own;
pub mod pipe;
pub mod print;
pub mod published;
pub mod queue;
pub mod reader;
pub mod redirect;
pub mod rpc;
pub mod server;
pub mod services;
pub mod spawn;
pub mod start;
pub mod static_program;
pub mod stride;
pub mod threads;
pub mod trace;
pub mod upcall;
pub mod window;

pub use abi;
