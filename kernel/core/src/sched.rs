//! Slice vectors, the running order, directed yield, wake-ups.

/// The private half of the table.
#[derive(Default)]
pub struct Scheduler {}
