//! `/status`: the machine as the published pages show it, without a call.
//!
//! ```text
//!  /status         a page that draws what follows, twice a second
//!  /status.json    environments, processors, memory by owner, filters, rings, calls (`snapshot`)
//!  /status/tables  the same and more as tables, for who has no script
//! ```

mod memory;
mod snapshot;
mod tables;

use abi::published::Table;
use alloc::string::String;
use alloc::vec::Vec;
use unix::process_page::{Name, name_of};
use xok::{published, services};

use crate::site::{Counters, File};

/// The page itself.
const PAGE: &[u8] = include_bytes!("status/page.html");
const HTML: &str = "text/html; charset=utf-8";

/// What lies under this name, if it is one of ours.
pub fn open(name: &str, counters: &Counters) -> Option<File> {
    let made = |text: String, kind| File::Made(text.into_bytes(), kind);
    match name {
        "status" => Some(File::Fixed(PAGE, HTML)),
        "status.json" => Some(made(snapshot::text(counters), "application/json")),
        "status/tables" => Some(made(tables::page(counters), HTML)),
        _ => None,
    }
}

/// Every record of a table, used or not.
fn records<T: Copy>(table: Table) -> impl Iterator<Item = T> {
    let count = published::table(table).count as usize;
    (0..count).map_while(move |at| published::record::<T>(table, at))
}

/// What the environment at `index` is called: as init or its own page says; may be empty.
fn name(index: usize, id: u32) -> Name {
    match services::name(id) {
        Some(name) => Name::of(name.as_bytes()),
        None => name_of(|offset| published::application_word(index, offset)).unwrap_or_default(),
    }
}

/// The states of environments by number.
const STATES: [&str; 9] =
    ["free", "new", "ready", "running", "sleeping", "donating", "held", "stopped", "dead"];

/// Runs of equal numbers: number and length in turn.
fn runs(numbers: &[u16]) -> Vec<u32> {
    let mut runs: Vec<u32> = Vec::new();
    for &number in numbers {
        match &mut runs[..] {
            [.., last, length] if *last == u32::from(number) => *length += 1,
            _ => runs.extend([u32::from(number), 1]),
        }
    }
    runs
}
