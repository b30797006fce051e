//! `/status/tables`: the published pages as tables.

use abi::call::TABLE;
use abi::published::*;
use core::fmt::{self, Display, Write};
use unix::process_page::Html;
use xok::{clock, published};

use super::{STATES, Text, memory, name, records};
use crate::site::Counters;

const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
    <title>Xok: status</title><style>\
    body{font:14px system-ui,sans-serif;margin:2em;max-width:70em}\
    table{border-collapse:collapse;margin:.5em 0 1.5em}\
    th,td{padding:.15em .8em;text-align:right;border-bottom:1px solid #ddd}\
    th{background:#f4f4f4}th:first-child,td:first-child{text-align:left}\
    h2{font-size:1.1em;margin-bottom:.2em}p{margin:.2em 0}\
    </style></head><body>\n";

const TYPES: [&str; 14] = [
    "free", "data", "table 1", "table 2", "table 3", "table 4", "links", "vector", "region",
    "image", "kernel", "limbo", "absent", "code",
];
const CATEGORY_NAMES: [&str; CATEGORIES] = [
    "kernel image",
    "stacks",
    "exception stacks",
    "per processor",
    "page tables",
    "environments",
    "domains",
    "frame records",
    "regions",
    "filters and rings",
    "device queues",
    "published pages",
    "slack",
    "donated by programs",
    "downloaded code",
];
const RESOURCE_NAMES: [&str; 8] =
    ["frames", "environments", "domains", "slices", "regions", "filters", "rings", "pins"];
/// Accounts told apart in the table of frames; those beyond are one row.
const OWNERS: usize = 16;

/// The page.
pub fn page(counters: &Counters) -> Result<Text, fmt::Error> {
    let mut page = Page(Text::default());
    page.0.write_str(HEAD)?;
    page.sections(counters)?;
    page.0.write_str("</body></html>\n")?;
    Ok(page.0)
}

struct Page(Text);

impl Page {
    fn sections(&mut self, counters: &Counters) -> fmt::Result {
        self.machine(counters)?;
        self.environments()?;
        self.frames()?;
        self.network()?;
        self.kernel_memory()?;
        self.accounts()?;
        self.processors()?;
        self.calls()
    }

    fn table(&mut self, title: &str, columns: &[&str]) -> fmt::Result {
        write!(self.0, "<h2>{title}</h2><table><tr>")?;
        columns.iter().try_for_each(|column| write!(self.0, "<th>{column}</th>"))?;
        self.0.write_str("</tr>\n")
    }

    fn row(&mut self, cells: &[&dyn Display]) -> fmt::Result {
        self.0.write_str("<tr>")?;
        cells.iter().try_for_each(|cell| write!(self.0, "<td>{cell}</td>"))?;
        self.0.write_str("</tr>\n")
    }

    fn end(&mut self) -> fmt::Result {
        self.0.write_str("</table>\n")
    }

    fn machine(&mut self, counters: &Counters) -> fmt::Result {
        let directory = published::directory();
        let uptime_ms = clock::now_ns() / 1_000_000;
        let Counters { connections, open, answers, bytes } = counters;
        writeln!(
            self.0,
            "<h1>Xok</h1><p>Up {}.{:03} s, {} processors, {} of {} frames (4 KiB) free.</p>\
             <p>This server: {connections} connections, {open} open, {answers} answers, \
             {bytes} bytes.</p><p>All of this page was read from published pages: no call was \
             made for it.</p>",
            uptime_ms / 1000,
            uptime_ms % 1000,
            directory.cpus,
            directory.frames_free,
            directory.frames_usable,
        )
    }

    fn environments(&mut self) -> fmt::Result {
        let columns = [
            "environment",
            "name",
            "state",
            "domain",
            "account",
            "holder",
            "cpu",
            "run ms",
            "switches",
            "upcalls",
            "entries",
        ];
        self.table("Environments", &columns)?;
        let used = records::<EnvRecord>(Table::Envs).enumerate();
        for (index, record) in used.filter(|(_, record)| record.id != 0) {
            let state = STATES.get(record.state as usize).unwrap_or(&"?");
            self.row(&[
                &record.id,
                &Html(name(index, record.id)),
                state,
                &record.domain,
                &record.account,
                &record.holder,
                &record.cpu,
                &(record.run_ns / 1_000_000),
                &record.switches,
                &record.upcalls,
                &record.entries,
            ])?;
        }
        self.end()
    }

    fn frames(&mut self) -> fmt::Result {
        let mut counts = [[0u64; TYPES.len()]; OWNERS];
        let sampled = memory::sampled(published::table(Table::Frames).count as usize);
        for record in records::<FrameRecord>(Table::Frames).step_by(sampled) {
            let owner = usize::from(record.account).min(OWNERS - 1);
            if let Some(count) = counts[owner].get_mut(usize::from(record.kind)) {
                *count += sampled as u64;
            }
        }
        self.table("Owners of frames", &["account", "type", "frames"])?;
        for (owner, types) in counts.iter().enumerate() {
            for (kind, count) in types.iter().enumerate().filter(|(_, count)| **count > 0) {
                match owner {
                    0 => self.row(&[&"nobody", &TYPES[kind], count])?,
                    _ => self.row(&[&owner, &TYPES[kind], count])?,
                }
            }
        }
        self.end()
    }

    fn network(&mut self) -> fmt::Result {
        self.table(
            "Interfaces",
            &["interface", "address", "received", "unclaimed", "sent", "copied", "full", "queued"],
        )?;
        let interfaces = records::<InterfaceRecord>(Table::Interfaces).enumerate();
        for (at, record) in interfaces.filter(|(_, record)| record.present != 0) {
            self.row(&[
                &at,
                &xio::ethernet::Mac::from_word(record.mac),
                &record.received,
                &record.unclaimed,
                &record.sent,
                &record.copied,
                &record.full,
                &record.queued,
            ])?;
        }
        self.end()?;

        let columns =
            ["filter", "interface", "domain", "ring", "references", "flags", "atoms", "matched"];
        self.table("Filters", &columns)?;
        for record in records::<FilterRecord>(Table::Filters).filter(|record| record.id != 0) {
            self.row(&[
                &record.id,
                &record.interface,
                &record.domain,
                &record.ring,
                &record.references,
                &record.flags,
                &record.atoms,
                &record.matched,
            ])?;
        }
        self.end()?;

        self.table("Rings", &["ring", "domain", "buffers", "delivered", "dropped", "cut"])?;
        for record in records::<RingRecord>(Table::Rings).filter(|record| record.id != 0) {
            self.row(&[
                &record.id,
                &record.domain,
                &record.entries,
                &record.delivered,
                &record.dropped,
                &record.cut,
            ])?;
        }
        self.end()?;

        self.table("Link addresses", &["address", "link address", "confirmed ms ago"])?;
        if let Some(table) = xnet::addresses::table() {
            let now_us = clock::now_ns() / 1000;
            for entry in (0..table.places()).filter_map(|place| table.place(place)) {
                let age_ms = now_us.saturating_sub(entry.confirmed_us) / 1000;
                self.row(&[&entry.address, &entry.mac, &age_ms])?;
            }
        }
        self.end()
    }

    fn kernel_memory(&mut self) -> fmt::Result {
        self.table("The kernel's memory", &["category", "bytes", "objects"])?;
        let mut total = 0;
        for (record, name) in records::<CensusRecord>(Table::Census).zip(CATEGORY_NAMES) {
            self.row(&[&name, &record.bytes, &record.objects])?;
            if name != CATEGORY_NAMES[Category::Donated as usize] {
                total += record.bytes;
            }
        }
        self.row(&[&"the kernel's, in all", &total, &""])?;
        self.end()
    }

    fn accounts(&mut self) -> fmt::Result {
        self.table("Accounts", &["account", "parent", "resource", "used", "limit"])?;
        for record in records::<AccountRecord>(Table::Accounts).filter(|record| record.id != 0) {
            for (at, name) in RESOURCE_NAMES.iter().enumerate() {
                let (used, limit) = (record.used[at], record.limit[at]);
                self.row(&[&record.id, &record.parent, name, &used, &limit])?;
            }
        }
        self.end()
    }

    fn processors(&mut self) -> fmt::Result {
        let columns = [
            "processor",
            "runs",
            "idle ms",
            "switches",
            "interrupts",
            "calls",
            "faults",
            "foreign",
            "events",
            "predicates",
            "longest &micro;s",
        ];
        self.table("Processors", &columns)?;
        let count = published::directory().cpus as usize;
        for (at, record) in records::<CpuRecord>(Table::Cpus).take(count).enumerate() {
            self.row(&[
                &at,
                &record.current,
                &(record.idle_ns / 1_000_000),
                &record.switches,
                &record.interrupts,
                &record.calls,
                &record.faults,
                &record.foreign,
                &record.events,
                &record.predicates,
                &(record.longest_ns / 1000),
            ])?;
        }
        self.end()
    }

    fn calls(&mut self) -> fmt::Result {
        self.table("Calls", &["call", "made", "refused"])?;
        let calls = TABLE.iter().map(|row| (published::call_record(row.number.into()), row));
        for (record, row) in calls.filter(|(record, _)| record.count > 0) {
            self.row(&[&row.name, &record.count, &record.errors])?;
        }
        self.end()
    }
}
