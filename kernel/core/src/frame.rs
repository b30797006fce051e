//! Physical memory by number: references, guards, pins, reverse chains, limbo.

/// The private half of the table.
#[derive(Default)]
pub struct Frames {}
