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
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use unix::process_page::{Name, name_of};
use xio::http::Lookup;
use xok::{clock, published, services};

use crate::site::{Counters, File};

/// The page itself.
const PAGE: &[u8] = include_bytes!("status/page.html");
const HTML: &str = "text/html; charset=utf-8";

/// How many times as long as it took to make a page it is good for.
const GOOD_FOR: u64 = 16;
/// Nanoseconds by which a page may be made before the one made last has been good for long enough:
/// who asks now and then gets what is so now.
const EARLY_NS: u64 = 50_000_000;
/// Nanoseconds for which a page is good at most, also where making it takes long: `page.html` asks
/// twice a second, and gets a new one each time.
const GOOD_NS: u64 = 500_000_000;

/// A page that is made when it is asked for.
#[derive(Default)]
struct Page {
    text: Option<Rc<Vec<u8>>>,
    /// Until then those made last are good, one after the other.
    good_ns: u64,
}

/// The pages.
#[derive(Default)]
pub struct Status {
    json: Page,
    tables: Page,
}

impl Status {
    /// What lies under this name, if it is one of ours.
    pub fn open(&mut self, name: &str, counters: &Counters) -> Option<Lookup<File>> {
        match name {
            "status" => Some(Lookup::File(File::Fixed(PAGE, HTML))),
            "status.json" => Some(self.json.open("application/json", || snapshot::text(counters))),
            "status/tables" => Some(self.tables.open(HTML, || tables::page(counters))),
            _ => None,
        }
    }
}

impl Page {
    /// The page, made now unless making it has taken much of the last time: whoever asks for it
    /// again and again gets the one made last, and takes no time from other connections.
    fn open(
        &mut self,
        kind: &'static str,
        make: impl FnOnce() -> Result<Text, fmt::Error>,
    ) -> Lookup<File> {
        let begun = clock::now_ns();
        if begun + EARLY_NS >= self.good_ns {
            // Its memory first: there may be no other.
            self.text = None;
            self.text = make().ok().map(|text| Rc::new(text.0.into_bytes()));
            let took = clock::now_ns() - begun;
            let good_ns = self.good_ns.max(begun) + GOOD_FOR * took;
            self.good_ns = good_ns.min(begun + GOOD_NS);
        }
        let text = self.text.clone();
        text.map_or(Lookup::NoMemory, |text| Lookup::File(File::Made(text, kind)))
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
