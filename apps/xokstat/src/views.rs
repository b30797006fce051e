//! The four views: who there is, who runs, how much memory is whose, and where it lies.

use abi::id::{DomainId, EnvId, Frame};
use abi::published::{EnvRecord, EnvState};
use core::fmt::{self, Write};
use unix::process_page::{Name, name_of};
use xok::reader::{Owner, Reader, Sample};
use xok::{published, services};

/// States of environments by number.
const STATES: [&str; 9] =
    ["free", "new", "ready", "running", "sleeping", "donating", "held", "stopped", "dead"];
/// Letters in a line of the map, and lines at most.
const COLUMNS: u32 = 64;
const LINES: u32 = 32;

fn name(record: &EnvRecord) -> Name {
    let index = EnvId(record.id).index();
    match services::name(record.id) {
        Some(name) => Name::of(name.as_bytes()),
        None => name_of(|offset| published::application_word(index, offset)).unwrap_or_default(),
    }
}

fn state(record: &EnvRecord) -> &'static str {
    STATES.get(record.state as usize).unwrap_or(&"?")
}

/// Who there is.
pub fn ps(reader: Reader, out: &mut impl Write) -> fmt::Result {
    writeln!(
        out,
        "{:>6} {:>6} {:<8} {:>3} {:>9}  NAME",
        "ENV", "DOMAIN", "STATE", "CPU", "RAN(ms)"
    )?;
    for record in reader.environments() {
        let domain = DomainId(record.domain).index();
        let ran = record.run_ns / 1_000_000;
        let (id, cpu) = (record.id, record.cpu);
        writeln!(
            out,
            "{id:>6} {domain:>6} {:<8} {cpu:>3} {ran:>9}  {}",
            state(&record),
            name(&record)
        )?;
    }
    Ok(())
}

/// Who ran between two samples, in thousandths of that time.
pub fn top(reader: Reader, earlier: &Sample, now: &Sample, out: &mut impl Write) -> fmt::Result {
    let time = (now.at_ns - earlier.at_ns).max(1);
    let share = |ns: u64| ns * 1000 / time;
    write!(out, "in {} ms; idle:", time / 1_000_000)?;
    for (cpu, _) in reader.processors().enumerate() {
        let idle = share(now.idle_ns[cpu].saturating_sub(earlier.idle_ns[cpu]));
        write!(out, " cpu{cpu} {}.{} %", idle / 10, idle % 10)?;
    }
    writeln!(out, "\n{:>6} {:>6} {:<8}  NAME", "ENV", "%", "STATE")?;
    for record in reader.environments().filter(|record| record.state != EnvState::Dead as u32) {
        let ran = share(now.ran_since(earlier, record.id));
        if ran != 0 {
            let (whole, tenth) = (ran / 10, ran % 10);
            let (id, state) = (record.id, state(&record));
            writeln!(out, "{id:>6} {whole:>4}.{tenth} {state:<8}  {}", name(&record))?;
        }
    }
    Ok(())
}

/// How much memory is whose.
pub fn free(reader: Reader, out: &mut impl Write) -> fmt::Result {
    let memory = reader.memory();
    let lines = [
        ("for programs", memory.usable),
        ("free", memory.counted_free),
        ("in domains", memory.domains),
        ("in regions", memory.regions),
        ("in use otherwise", memory.other),
        ("boot image", memory.image),
        ("kernel", memory.kernel),
    ];
    lines.iter().try_for_each(|(what, frames)| writeln!(out, "{what:<18}{:>10} KiB", frames * 4))
}

/// Whose each piece of memory is: a letter for the owner of the most of its frames.
pub fn map(reader: Reader, out: &mut impl Write) -> fmt::Result {
    let frames = reader.frames();
    let piece = frames.end.div_ceil(COLUMNS * LINES).max(1).next_power_of_two();
    writeln!(
        out,
        "{} KiB a letter: . free  K kernel  I boot image  R regions  - other  \
         a-z the domains, by index from 1, again from a behind z",
        piece * 4
    )?;
    for first in frames.clone().step_by(piece as usize) {
        if first % (piece * COLUMNS) == 0 {
            write!(
                out,
                "{}{:#012x} ",
                if first == 0 { "" } else { "\n" },
                u64::from(first) * 4096
            )?;
        }
        out.write_char(letter(reader, first, (first + piece).min(frames.end)))?;
    }
    writeln!(out)
}

fn letter(reader: Reader, first: u32, end: u32) -> char {
    const KINDS: usize = 6;
    const LETTERS: usize = 26;
    let mut counts = [0_u32; KINDS + LETTERS];
    for number in first..end {
        let place = match reader.owner(Frame(number)) {
            Owner::Absent => 0,
            Owner::Free => 1,
            Owner::Kernel => 2,
            Owner::Image => 3,
            Owner::Region => 4,
            Owner::Other => 5,
            Owner::Domain(index) => KINDS + (index + LETTERS - 1) % LETTERS,
        };
        counts[place] += 1;
    }
    let most = (0..counts.len()).max_by_key(|&place| counts[place]).unwrap_or(0);
    match most {
        0..KINDS => [' ', '.', 'K', 'I', 'R', '-'][most],
        _ => (b'a' + (most - KINDS) as u8) as char,
    }
}
