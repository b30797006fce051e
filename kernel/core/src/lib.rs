//! What is allowed: every decision of the kernel, as safe Rust that runs on the host too.
//!
//! The machine layer (`kernel/`) enters here with decoded calls, faults and interrupts; what must
//! be done to the machine goes back through the [`machine::Machine`] trait. Nothing here is
//! `unsafe`, allocates, or panics on what a user sent.
//!
//! ```text
//!   kernel/ syscall.rs, trap.rs          this crate
//!   ───────────────────────────          ─────────────────────────────────────────────
//!   call   ─ decode, copy in, lock ────► call::dispatch ─► frame, table, env, region, …
//!   fault  ─ no lock ──────────────────► upcall::deliver
//!   tick   ─ lock ─────────────────────► sched::tick, sched::pick
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod context;
pub mod machine;
pub mod state;
