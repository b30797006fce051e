//! What is allowed: every decision of the kernel, as safe Rust that runs on the host too.
//!
//! The machine layer (`kernel/`) enters here with decoded calls, faults and interrupts; what must
//! be done to the machine goes back through the [`machine::Machine`] trait. Nothing here is
//! `unsafe`, allocates, or panics on what a user sent.
//!
//! ```text
//!   kernel/ syscall.rs, traps.rs         this crate
//!   ───────────────────────────          ─────────────────────────────────────────────
//!   call   ─ decode, copy in, lock ────► dispatch::call ─► frame, table, env, region, …
//!   fault  ────────────────────────────► upcall::deliver_fault
//!   tick   ─ lock ─────────────────────► sched::tick, sched::pick
//! ```
#![cfg_attr(not(any(test, feature = "fake")), no_std)]
#![forbid(unsafe_code)]

pub mod account;
pub mod ages;
pub mod alone;
pub mod answer;
mod arrival;
pub mod attachment;
pub mod boot;
mod busy;
mod bytes;
pub mod capability;
pub mod chain;
pub mod compiled;
pub mod console;
pub mod context;
mod count;
pub mod create;
pub mod death;
pub mod dispatch;
pub mod domain;
mod dying;
pub mod env;
#[cfg(test)]
mod exhaustion;
pub mod exit;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod fifo;
pub mod fold;
mod forgetting;
pub mod frame;
pub mod gate;
pub mod generator;
mod guests;
pub mod handover;
pub mod identity;
pub mod index;
mod left;
mod lent;
pub mod list;
pub mod loader;
mod loan;
pub mod machine;
pub mod method;
#[cfg(test)]
mod model;
pub mod net;
#[cfg(test)]
mod noninterference;
pub mod operate;
pub mod overtime;
pub mod pci;
mod places;
pub mod predicate;
pub mod principal;
mod queue;
pub mod rate;
pub mod region;
pub mod relay;
mod request;
pub mod retract;
pub mod revoke;
mod round;
pub mod sched;
pub mod sleep;
pub mod slice;
pub mod speculation;
pub mod state;
pub mod step;
pub mod sweep;
pub mod table;
pub mod timer;
pub mod token;
pub mod trace;
pub mod transfer;
pub mod turns;
pub mod upcall;
mod update;
pub mod visit;
mod voided;
pub mod window;
pub mod work;
pub mod workshop;
mod yields;

#[cfg(test)]
mod tests;
