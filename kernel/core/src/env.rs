//! Environments: states, entry points, holders, death.

/// The private half of the table.
#[derive(Default)]
pub struct Envs {}
