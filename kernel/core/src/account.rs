//! Accounts: limits and charges in a tree.

/// The private half of the table.
#[derive(Default)]
pub struct Accounts {}
