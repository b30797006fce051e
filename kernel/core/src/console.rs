//! The console's input ring and who is told of it.

/// The private half of the table.
#[derive(Default)]
pub struct Console {}
