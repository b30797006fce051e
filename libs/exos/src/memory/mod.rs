//! The program's memory: promises ([`areas`]), what is there ([`tables`]), and [`fault`] between.

pub mod areas;
pub mod calls;
pub mod fault;
pub mod frames;
pub mod space;
pub mod tables;

pub use space::{Space, space};
