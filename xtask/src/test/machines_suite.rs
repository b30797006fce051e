//! The table of machines, as far as every two properties meet.

pub use crate::machines::test as run;
