//! Protection domains: root table, capabilities, native window, attachments.

/// The private half of the table.
#[derive(Default)]
pub struct Domains {}
