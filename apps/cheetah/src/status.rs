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
use core::fmt::{self, Write};
use unix::process_page::{Name, name_of};
use xio::http::Lookup;
use xok::{published, services};

use crate::site::{Counters, File};

/// The page itself.
const PAGE: &[u8] = include_bytes!("status/page.html");
const HTML: &str = "text/html; charset=utf-8";

/// What lies under this name, if it is one of ours.
pub fn open(name: &str, counters: &Counters) -> Option<Lookup<File>> {
    let made = |text: Result<Text, fmt::Error>, kind| match text {
        Ok(text) => Lookup::File(File::Made(text.0.into_bytes(), kind)),
        Err(fmt::Error) => Lookup::NoMemory,
    };
    match name {
        "status" => Some(Lookup::File(File::Fixed(PAGE, HTML))),
        "status.json" => Some(made(snapshot::text(counters), "application/json")),
        "status/tables" => Some(made(tables::page(counters), HTML)),
        _ => None,
    }
}

/// A text that grows as it is written; where there is no memory for it writing fails.
#[derive(Default)]
struct Text(String);

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.try_reserve(text.len()).map_err(|_| fmt::Error)?;
        self.0.push_str(text);
        Ok(())
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

/// Runs of equal numbers: each number with how often it stands there.
fn runs(numbers: &[u16]) -> impl Iterator<Item = (u16, usize)> {
    numbers.chunk_by(|one, next| one == next).map(|run| (run[0], run.len()))
}
