//! Software regions: operations, roles, attachments.

/// The private half of the table.
#[derive(Default)]
pub struct Regions {}
