//! Filters, rings and transmissions: who gets and who may send a packet.

/// The private half of the table.
#[derive(Default)]
pub struct Network {}
