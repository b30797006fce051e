//! What `traced` says, read back: records, losses, names.

use std::collections::BTreeMap;

use abi::call::TABLE;
use abi::error::Error;
use abi::trace::{Event, Kind};
use abi::upcall::Cause;

/// What stands before each of its lines.
pub const MARK: &str = "trace: ";

/// One thing that happened on a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A record.
    Event(Event),
    /// So many records are missing before the next one.
    Lost(u64),
}

/// When and where it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Nanoseconds since boot.
    pub ns: u64,
    /// Processor.
    pub cpu: usize,
    /// What.
    pub what: What,
}

/// A whole trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Everything in order of time.
    pub items: Vec<Item>,
    /// What each environment was called last.
    pub names: BTreeMap<u32, String>,
    /// Processors.
    pub cpus: usize,
    /// Records told lost.
    pub lost: u64,
    /// Did `traced` send all of it?
    pub ended: bool,
}

impl Trace {
    /// Reads the lines of a kernel's log.
    pub fn read<'a>(log: impl Iterator<Item = &'a str>) -> Result<Trace, String> {
        let mut trace = Trace::default();
        let mut clock = [0; 5];
        for line in log.filter_map(|line| line.strip_prefix(MARK)) {
            let wrong = || format!("traced said `{line}`");
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "clock" => {
                    clock = numbers(rest).ok_or_else(wrong)?;
                    trace.cpus = clock[0] as usize;
                }
                "name" => {
                    let (env, name) = rest.split_once(' ').ok_or_else(wrong)?;
                    let env = u32::from_str_radix(env, 16).map_err(|_| wrong())?;
                    trace.names.insert(env, name.to_string());
                }
                "lost" => {
                    let [cpu, count] = numbers(rest).ok_or_else(wrong)?;
                    trace.lost += count;
                    trace.items.push(Item { ns: 0, cpu: cpu as usize, what: What::Lost(count) });
                }
                "record" => trace.items.push(record(rest, &clock).ok_or_else(wrong)?),
                "end" => trace.ended = true,
                _ => return Err(wrong()),
            }
        }
        trace.order()?;
        Ok(trace)
    }

    /// Losses get the time of the record behind them; then all is put into order of time.
    fn order(&mut self) -> Result<(), String> {
        let mut next = vec![u64::MAX; self.cpus];
        for item in self.items.iter_mut().rev() {
            let next = next.get_mut(item.cpu).ok_or(format!("processor {}?", item.cpu))?;
            match item.what {
                What::Lost(_) => item.ns = *next,
                What::Event(_) if item.ns > *next => {
                    return Err(format!("time runs backwards on processor {}", item.cpu));
                }
                What::Event(_) => *next = item.ns,
            }
        }
        let last = self.items.iter().map(|item| item.ns).filter(|ns| *ns != u64::MAX).max();
        for item in &mut self.items {
            item.ns = item.ns.min(last.unwrap_or(0));
        }
        self.items.sort_by_key(|item| item.ns);
        Ok(())
    }

    /// What an environment is called, with its id.
    pub fn name(&self, env: u32) -> String {
        match self.names.get(&env) {
            Some(name) => format!("{name} ({env})"),
            None => format!("environment {env}"),
        }
    }
}

fn numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    let all: Option<Vec<u64>> =
        text.split(' ').map(|word| u64::from_str_radix(word, 16).ok()).collect();
    all?.try_into().ok()
}

fn record(text: &str, clock: &[u64; 5]) -> Option<Item> {
    let [cpu, _, tsc, kind, detail, env, argument] = numbers(text)?;
    let [_, base_tsc, base_ns, multiplier, shift] = *clock;
    let kind = Kind::from_number(u8::try_from(kind).ok()?)?;
    let ticks = u128::from(tsc.saturating_sub(base_tsc));
    let ns = base_ns + ((ticks * u128::from(multiplier)) >> shift) as u64;
    let (detail, env) = (u16::try_from(detail).ok()?, u32::try_from(env).ok()?);
    let what = What::Event(Event { kind, detail, env, argument });
    Some(Item { ns, cpu: cpu as usize, what })
}

/// The name of a call.
pub fn call_name(number: u16) -> &'static str {
    TABLE.get(usize::from(number)).map_or("no such call", |row| row.name)
}

/// What an upcall of this cause is about.
pub fn cause_name(cause: u16) -> String {
    let known = [
        (0, "division"),
        (6, "invalid opcode"),
        (13, "protection"),
        (14, "page fault"),
        (Cause::Foreign as u16, "foreign call"),
        (Cause::Event as u16, "event"),
    ];
    let name = known.iter().find(|(number, _)| *number == cause);
    name.map_or_else(|| format!("exception {cause}"), |(_, name)| name.to_string())
}

/// An error's name.
pub fn error_name(number: u64) -> &'static str {
    Error::from_number(number).map_or("no such error", Error::name)
}
