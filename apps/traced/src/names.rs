//! What environments are called, told whenever it changes.

use abi::published::{EnvRecord, EnvState, Table};
use alloc::vec::Vec;
use unix::process_page;
use xok::{published, services};

use crate::lines::Lines;

/// By index: the environment that was there, and what it was called.
#[derive(Default)]
pub struct Names {
    known: Vec<(u32, process_page::Name)>,
}

impl Names {
    /// Tells the names that are new.
    pub fn tell(&mut self, lines: &mut Lines) {
        let count = published::table(Table::Envs).count as usize;
        self.known.resize(count, Default::default());
        for index in 1..count {
            let record = published::record::<EnvRecord>(Table::Envs, index).unwrap_or_default();
            // The dead have no page any more.
            if record.id == 0 || record.state == EnvState::Dead as u32 {
                continue;
            }
            let name = match services::name(record.id) {
                Some(name) => process_page::Name::of(name.as_bytes()),
                None => {
                    let word = |offset| published::application_word(index, offset);
                    process_page::name_of(word).unwrap_or_default()
                }
            };
            let known = &mut self.known[index];
            if *known != (record.id, name) && !name.is_empty() {
                *known = (record.id, name);
                lines.line(format_args!("name {:x} {name}", record.id));
            }
        }
    }
}
