//! `/status.json`: one look at the published pages.
//!
//! Times are nanoseconds since boot, counts are since boot. `memory.cells` is runs: whose, then how
//! many cells, in turn; whose: 0 absent, 1 free, 2 the kernel's, 3 the boot image's, 4 of a region,
//! 5 other, 16 + n of the domain with index n.

use abi::call::TABLE;
use abi::id::DomainId;
use abi::published::*;
use core::fmt::{self, Display, Write};
use xok::{clock, published};

use super::memory::{self, DOMAINS};
use super::{STATES, Text, name, records, runs};
use crate::site::Counters;

/// The text.
pub fn text(counters: &Counters) -> Result<Text, fmt::Error> {
    let mut json = Json { out: Text::default(), comma: false };
    json.snapshot(counters)?;
    Ok(json.out)
}

/// JSON being written; `comma`: something stands before in this list or object.
struct Json {
    out: Text,
    comma: bool,
}

impl Json {
    fn between(&mut self) -> fmt::Result {
        if core::mem::replace(&mut self.comma, true) {
            self.out.write_char(',')?;
        }
        Ok(())
    }

    /// `key: ` and an object or list between the brackets.
    fn inside(
        &mut self,
        key: &str,
        brackets: [char; 2],
        write: impl FnOnce(&mut Self) -> fmt::Result,
    ) -> fmt::Result {
        self.between()?;
        if !key.is_empty() {
            write!(self.out, "\"{key}\":")?;
        }
        self.out.write_char(brackets[0])?;
        self.comma = false;
        write(self)?;
        self.out.write_char(brackets[1])?;
        self.comma = true;
        Ok(())
    }

    fn object(&mut self, key: &str, write: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        self.inside(key, ['{', '}'], write)
    }

    fn list(&mut self, key: &str, write: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        self.inside(key, ['[', ']'], write)
    }

    fn numbers(&mut self, members: &[(&str, u64)]) -> fmt::Result {
        members.iter().try_for_each(|(key, number)| {
            self.between()?;
            write!(self.out, "\"{key}\":{number}")
        })
    }

    /// A text without control characters.
    fn text(&mut self, key: &str, text: &dyn Display) -> fmt::Result {
        self.between()?;
        write!(self.out, "\"{key}\":\"")?;
        write!(Escaped(&mut self.out), "{text}")?;
        self.out.write_char('"')
    }

    fn snapshot(&mut self, counters: &Counters) -> fmt::Result {
        let picture = memory::picture().ok_or(fmt::Error)?;
        self.object("", |json| {
            let directory = published::directory();
            json.numbers(&[
                ("now_ns", clock::now_ns()),
                ("frames_usable", directory.frames_usable),
                ("frames_free", directory.frames_free),
            ])?;
            let Counters { connections, open, answers, bytes } = *counters;
            json.object("server", |json| {
                json.numbers(&[
                    ("connections", connections),
                    ("open", open),
                    ("answers", answers),
                    ("bytes", bytes),
                ])
            })?;
            json.list("cpus", |json| json.cpus(directory.cpus as usize))?;
            json.list("envs", |json| json.envs(&picture.counts))?;
            json.object("memory", |json| json.memory(&picture))?;
            json.list("filters", Self::filters)?;
            json.list("rings", Self::rings)?;
            json.list("interfaces", Self::interfaces)?;
            json.list("calls", Self::calls)
        })
    }

    fn cpus(&mut self, count: usize) -> fmt::Result {
        records::<CpuRecord>(Table::Cpus).take(count).try_for_each(|record| {
            self.object("", |json| {
                json.numbers(&[
                    ("current", record.current.into()),
                    ("idle_ns", record.idle_ns),
                    ("switches", record.switches),
                    ("interrupts", record.interrupts),
                    ("calls", record.calls),
                    ("faults", record.faults),
                    ("foreign", record.foreign),
                ])
            })
        })
    }

    fn envs(&mut self, frames: &[u32]) -> fmt::Result {
        for (index, record) in records::<EnvRecord>(Table::Envs).enumerate() {
            if record.id == 0 {
                continue;
            }
            let domain = DomainId(record.domain).index();
            let frames = frames.get(usize::from(DOMAINS) + domain).copied().unwrap_or(0);
            let dead = record.state == EnvState::Dead as u32;
            self.object("", |json| {
                json.text("name", &name(index, record.id))?;
                json.text("state", STATES.get(record.state as usize).unwrap_or(&"?"))?;
                json.numbers(&[
                    ("id", record.id.into()),
                    ("domain", domain as u64),
                    ("frames", if dead { 0 } else { frames.into() }),
                    ("cpu", record.cpu.into()),
                    ("run_ns", record.run_ns),
                    ("switches", record.switches),
                    ("upcalls", record.upcalls),
                    ("entries", record.entries),
                    ("born_ns", record.born_ns),
                ])
            })?;
        }
        Ok(())
    }

    fn memory(&mut self, picture: &memory::Picture) -> fmt::Result {
        self.numbers(&[
            ("frames_per_cell", picture.frames_per_cell as u64),
            ("sampled", picture.sampled as u64),
        ])?;
        let others = &picture.counts[..usize::from(DOMAINS).min(picture.counts.len())];
        self.list("others", |json| {
            others.iter().try_for_each(|number| {
                json.between()?;
                write!(json.out, "{number}")
            })
        })?;
        self.list("cells", |json| {
            runs(&picture.cells).try_for_each(|(number, length)| {
                json.between()?;
                write!(json.out, "{number},{length}")
            })
        })
    }

    fn filters(&mut self) -> fmt::Result {
        let used = records::<FilterRecord>(Table::Filters).filter(|record| record.id != 0);
        used.into_iter().try_for_each(|record| {
            self.object("", |json| {
                json.numbers(&[
                    ("id", record.id),
                    ("domain", DomainId(record.domain).index() as u64),
                    ("ring", record.ring),
                    ("atoms", record.atoms.into()),
                    ("matched", record.matched),
                ])
            })
        })
    }

    fn rings(&mut self) -> fmt::Result {
        let used = records::<RingRecord>(Table::Rings).filter(|record| record.id != 0);
        used.into_iter().try_for_each(|record| {
            self.object("", |json| {
                json.numbers(&[
                    ("id", record.id),
                    ("domain", DomainId(record.domain).index() as u64),
                    ("buffers", record.entries.into()),
                    ("delivered", record.delivered),
                    ("dropped", record.dropped),
                ])
            })
        })
    }

    fn interfaces(&mut self) -> fmt::Result {
        let present =
            records::<InterfaceRecord>(Table::Interfaces).filter(|record| record.present != 0);
        present.into_iter().try_for_each(|record| {
            self.object("", |json| {
                json.numbers(&[
                    ("received", record.received),
                    ("unclaimed", record.unclaimed),
                    ("sent", record.sent),
                    ("full", record.full),
                ])
            })
        })
    }

    fn calls(&mut self) -> fmt::Result {
        for row in TABLE {
            let record = published::call_record(row.number.into());
            if record.count > 0 {
                self.object("", |json| {
                    json.text("name", &row.name)?;
                    json.numbers(&[
                        ("count", record.count),
                        ("errors", record.errors),
                        ("ticks", record.ticks),
                    ])
                })?;
            }
        }
        Ok(())
    }
}

/// Puts a `\` before what would end the string.
struct Escaped<'a>(&'a mut Text);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            if matches!(letter, '"' | '\\') {
                self.0.write_char('\\')?;
            }
            self.0.write_char(letter)?;
        }
        Ok(())
    }
}
