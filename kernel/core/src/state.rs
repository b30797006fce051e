//! All that the kernel knows, behind one lock (decisions 19, 20).
//!
//! Tables are slices sized at boot from the machine's memory: the machine layer carves them out
//! of frames and hands them over; on the host they come from vectors. A table whose record is published has
//! two halves: the `abi::published` record, which everybody can read, and a private one here.

/// Everything behind the lock.
pub struct State {}
