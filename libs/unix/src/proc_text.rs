//! The texts of /proc, in Linux's form (proc(5)), from numbers that the caller has read.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use crate::privileges::{ALL, Sets};
use crate::process_page::nice_that_can_be;

/// Clock ticks in a second, as programs see them (`USER_HZ`).
pub const TICKS: u64 = 100;
const TICK_NS: u64 = 1_000_000_000 / TICKS;
const PAGE: u64 = 4096;

/// What is known of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessRecord {
    /// Process.
    pub pid: u32,
    /// Name.
    pub name: Vec<u8>,
    /// `R`, `S`, `T` or `Z`.
    pub state: u8,
    /// Parent.
    pub ppid: u32,
    /// Group.
    pub pgid: u32,
    /// Session.
    pub sid: u32,
    /// Device number of its terminal, 0: none.
    pub terminal: u32,
    /// Foreground group of that terminal, or -1.
    pub foreground: i32,
    /// Nanoseconds it has run.
    pub run_ns: u64,
    /// Nanoseconds its children ran.
    pub children_ns: u64,
    /// Nice value: the process's own word, so whatever it likes.
    pub nice: i32,
    /// Threads.
    pub threads: u32,
    /// When it began, nanoseconds since boot.
    pub started_ns: u64,
    /// Bytes mapped.
    pub mapped: u64,
    /// Bytes present.
    pub resident: u64,
    /// Signals waiting for its first thread.
    pub directed: u64,
    /// Signals waiting for the process.
    pub pending: u64,
    /// Signals blocked.
    pub blocked: u64,
    /// Signals ignored.
    pub ignored: u64,
    /// Signals caught.
    pub caught: u64,
    /// Real, effective and saved user, and the one by which it acts with files.
    pub users: [u32; 4],
    /// The same of groups.
    pub groups: [u32; 4],
    /// The set of further groups.
    pub more_groups: Vec<u32>,
    /// Processor it ran on last.
    pub cpu: u32,
    /// Open descriptors.
    pub descriptors: u32,
    /// Times it was given a processor.
    pub switches: u64,
    /// File mode mask.
    pub umask: u32,
}

/// `/proc/PID/stat`
pub fn stat(p: &ProcessRecord) -> Vec<u8> {
    let mut text = format!("{} (", p.pid).into_bytes();
    text.extend(&p.name);
    let (ticks, children) = (p.run_ns / TICK_NS, p.children_ns / TICK_NS);
    let nice = nice_that_can_be(p.nice);
    let priority = 20 + nice;
    let state = char::from(p.state);
    let first = format!(
        ") {state} {} {} {} {} {} 4194304 0 0 0 0 {ticks} 0 {children} 0 {priority} {} {} 0 \
         {} {} {}",
        p.ppid,
        p.pgid,
        p.sid,
        p.terminal,
        p.foreground,
        nice,
        p.threads,
        p.started_ns / TICK_NS,
        p.mapped,
        p.resident / PAGE,
    );
    let second = format!(
        " 18446744073709551615 0 0 0 0 0 {} {} {} {} 0 0 0 17 {} 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
        p.pending & 0x7fff_ffff,
        p.blocked & 0x7fff_ffff,
        p.ignored & 0x7fff_ffff,
        p.caught & 0x7fff_ffff,
        p.cpu,
    );
    text.extend(first.bytes());
    text.extend(second.bytes());
    text
}

/// `/proc/PID/statm`
pub fn statm(p: &ProcessRecord) -> Vec<u8> {
    let (mapped, resident) = (p.mapped / PAGE, p.resident / PAGE);
    format!("{mapped} {resident} 0 0 0 {mapped} 0\n").into_bytes()
}

/// `/proc/PID/status`
///
/// The name is bytes that the process likes: it ends no line here.
pub fn status(p: &ProcessRecord) -> Vec<u8> {
    let mut text = Vec::from(*b"Name:\t");
    for &byte in &p.name {
        match byte {
            b'\n' => text.extend(*b"\\n"),
            b'\\' => text.extend(*b"\\\\"),
            byte => text.push(byte),
        }
    }
    let state = match p.state {
        b'R' => "R (running)",
        b'T' => "T (stopped)",
        b'Z' => "Z (zombie)",
        _ => "S (sleeping)",
    };
    let four = |[real, effective, saved, files]: [u32; 4]| {
        format!("{real}\t{effective}\t{saved}\t{files}")
    };
    let more: Vec<String> = p.more_groups.iter().map(|group| format!("{group}")).collect();
    let (mapped, resident) = (p.mapped / 1024, p.resident / 1024);
    let mut rest = String::new();
    let _ = writeln!(rest, "\nUmask:\t{:04o}\nState:\t{state}", p.umask);
    let _ = writeln!(rest, "Tgid:\t{0}\nNgid:\t0\nPid:\t{0}\nPPid:\t{1}", p.pid, p.ppid);
    let _ = writeln!(rest, "TracerPid:\t0\nUid:\t{}\nGid:\t{}", four(p.users), four(p.groups));
    let _ = writeln!(rest, "FDSize:\t{}\nGroups:\t{} ", p.descriptors, more.join(" "));
    let _ = writeln!(rest, "NStgid:\t{0}\nNSpid:\t{0}", p.pid);
    let _ = writeln!(rest, "NSpgid:\t{}\nNSsid:\t{}", p.pgid, p.sid);
    let _ = writeln!(rest, "VmPeak:\t{mapped:8} kB\nVmSize:\t{mapped:8} kB");
    let _ = writeln!(rest, "VmRSS:\t{resident:8} kB\nThreads:\t{}", p.threads);
    let _ = writeln!(rest, "SigQ:\t{}/64", p.pending.count_ones());
    let _ = writeln!(rest, "SigPnd:\t{:016x}\nShdPnd:\t{:016x}", p.directed, p.pending);
    let _ = writeln!(rest, "SigBlk:\t{:016x}\nSigIgn:\t{:016x}", p.blocked, p.ignored);
    let _ = writeln!(rest, "SigCgt:\t{:016x}", p.caught);
    let [real, effective, saved, files] = p.users;
    let sets = Sets::of([real, effective, saved], files);
    let rows = [
        ("CapInh", 0),
        ("CapPrm", sets.permitted),
        ("CapEff", sets.effective),
        ("CapBnd", ALL),
        ("CapAmb", 0),
    ];
    for (name, set) in rows {
        let _ = writeln!(rest, "{name}:\t{set:016x}");
    }
    let _ = writeln!(rest, "voluntary_ctxt_switches:\t{}", p.switches);
    let _ = writeln!(rest, "nonvoluntary_ctxt_switches:\t0");
    text.extend(rest.bytes());
    text
}

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryRecord {
    /// All that programs may have.
    pub total: u64,
    /// Free now.
    pub free: u64,
    /// In files of the memory file system.
    pub files: u64,
}

/// `/proc/meminfo`
pub fn meminfo(m: &MemoryRecord) -> Vec<u8> {
    let rows = [
        ("MemTotal", m.total),
        ("MemFree", m.free),
        ("MemAvailable", m.free),
        ("Buffers", 0),
        ("Cached", m.files),
        ("SwapCached", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 0),
        ("Writeback", 0),
        ("Shmem", m.files),
        ("Slab", 0),
        ("SReclaimable", 0),
        ("SUnreclaim", 0),
    ];
    let mut text = String::new();
    for (name, bytes) in rows {
        let label = format!("{name}:");
        let _ = writeln!(text, "{label:<16}{:8} kB", bytes / 1024);
    }
    text.into_bytes()
}

/// Seconds with two decimals.
fn hundredths(ns: u64) -> String {
    let ticks = ns / TICK_NS;
    format!("{}.{:02}", ticks / TICKS, ticks % TICKS)
}

/// `/proc/uptime`: since boot, and idle over all processors.
pub fn uptime(now_ns: u64, idle_ns: u64) -> Vec<u8> {
    format!("{} {}\n", hundredths(now_ns), hundredths(idle_ns)).into_bytes()
}

/// `/proc/loadavg`: nobody keeps averages, so the present number stands for all three.
pub fn loadavg(running: u32, processes: u32, last: u32) -> Vec<u8> {
    format!("{running}.00 {running}.00 {running}.00 {running}/{processes} {last}\n").into_bytes()
}

/// A processor's times.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTimes {
    /// Nanoseconds running programs.
    pub busy_ns: u64,
    /// Nanoseconds idle.
    pub idle_ns: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Switches.
    pub switches: u64,
}

/// `/proc/stat`
pub fn machine_stat(cpus: &[CpuTimes], boot_s: u64, made: u64, running: u32) -> Vec<u8> {
    let mut text = String::new();
    let sum = |field: fn(&CpuTimes) -> u64| cpus.iter().map(field).sum::<u64>();
    let mut row = |name: &str, busy: u64, idle: u64| {
        let (busy, idle) = (busy / TICK_NS, idle / TICK_NS);
        let _ = writeln!(text, "{name} {busy} 0 0 {idle} 0 0 0 0 0 0");
    };
    row("cpu ", sum(|cpu| cpu.busy_ns), sum(|cpu| cpu.idle_ns));
    for (at, cpu) in cpus.iter().enumerate() {
        row(&format!("cpu{at}"), cpu.busy_ns, cpu.idle_ns);
    }
    let _ = writeln!(text, "intr {}", sum(|cpu| cpu.interrupts));
    let _ = writeln!(text, "ctxt {}\nbtime {boot_s}", sum(|cpu| cpu.switches));
    let _ = writeln!(text, "processes {made}\nprocs_running {running}\nprocs_blocked 0");
    text.into_bytes()
}

/// A processor as CPUID describes it.
#[derive(Clone, Debug, Default)]
pub struct CpuModel {
    /// Twelve letters.
    pub vendor: String,
    /// Its name.
    pub name: String,
    /// Family, model, stepping.
    pub numbers: [u32; 3],
    /// Clock rate of the time-stamp counter.
    pub mhz: u32,
    /// Address bits, physical and virtual.
    pub address_bits: [u32; 2],
}

/// `/proc/cpuinfo`
pub fn cpuinfo(cpus: u32, model: &CpuModel) -> Vec<u8> {
    let mut text = String::new();
    let [family, number, stepping] = model.numbers;
    for cpu in 0..cpus {
        let _ = writeln!(text, "processor\t: {cpu}\nvendor_id\t: {}", model.vendor);
        let _ = writeln!(text, "cpu family\t: {family}\nmodel\t\t: {number}");
        let _ = writeln!(text, "model name\t: {}\nstepping\t: {stepping}", model.name);
        let _ = writeln!(text, "cpu MHz\t\t: {}.000\nphysical id\t: 0", model.mhz);
        let _ = writeln!(text, "siblings\t: {cpus}\ncore id\t\t: {cpu}\ncpu cores\t: {cpus}");
        let _ = writeln!(text, "apicid\t\t: {cpu}\nfpu\t\t: yes");
        let [physical, linear] = model.address_bits;
        let _ =
            writeln!(text, "address sizes\t: {physical} bits physical, {linear} bits virtual\n");
    }
    text.into_bytes()
}

/// `/proc/mounts`: device, path, type, options of each.
pub fn mounts(rows: &[(&str, &str, &str, &str)]) -> Vec<u8> {
    let mut text = String::new();
    for (device, path, kind, options) in rows {
        let _ = writeln!(text, "{device} {path} {kind} {options} 0 0");
    }
    text.into_bytes()
}

/// A line of `/proc/PID/maps`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapRecord {
    /// First address.
    pub start: u64,
    /// First address behind.
    pub end: u64,
    /// `PROT_…`
    pub protection: u32,
    /// Seen by others that map the same?
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Path, or a name such as `[stack]`.
    pub name: String,
}

/// `/proc/PID/maps`
pub fn maps(records: &[MapRecord]) -> Vec<u8> {
    let mut text = String::new();
    for map in records {
        let bit = |mask: u32, letter| if map.protection & mask != 0 { letter } else { '-' };
        let (r, w, x) = (bit(1, 'r'), bit(2, 'w'), bit(4, 'x'));
        let kind = if map.shared { 's' } else { 'p' };
        let line = format!(
            "{:08x}-{:08x} {r}{w}{x}{kind} {:08x} 00:00 0 ",
            map.start, map.end, map.offset
        );
        if map.name.is_empty() {
            let _ = writeln!(text, "{line}");
        } else {
            let _ = writeln!(text, "{line:<73}{}", map.name);
        }
    }
    text.into_bytes()
}

/// `/proc/PID/limits`: names, soft and hard limits, units.
pub fn limits(rows: &[(&str, u64, u64, &str)]) -> Vec<u8> {
    let mut text = String::new();
    let shown =
        |limit: u64| if limit == u64::MAX { "unlimited".into() } else { format!("{limit}") };
    let (limit, soft, hard) = ("Limit", "Soft Limit", "Hard Limit");
    let _ = writeln!(text, "{limit:<26}{soft:<21}{hard:<21}Units     ");
    for (name, soft, hard, unit) in rows {
        let (soft, hard) = (shown(*soft), shown(*hard));
        let _ = writeln!(text, "{name:<26}{soft:<21}{hard:<21}{unit:<10}");
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell() -> ProcessRecord {
        ProcessRecord {
            pid: 4097,
            name: Vec::from(*b"my (sh)"),
            state: b'S',
            ppid: 1,
            pgid: 4097,
            sid: 4097,
            terminal: 0x501,
            foreground: 4097,
            run_ns: 1_230_000_000,
            started_ns: 500_000_000,
            mapped: 3 << 20,
            resident: 1 << 20,
            threads: 1,
            blocked: 1 << 33 | 2,
            ..ProcessRecord::default()
        }
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn stat_has_52_fields_in_their_places() {
        let text = text(stat(&shell()));
        let (start, rest) = text.rsplit_once(") ").unwrap();
        assert_eq!(start, "4097 (my (sh)");
        let fields: Vec<&str> = rest.trim_end().split(' ').collect();
        assert_eq!(fields.len(), 50);
        // Numbers as proc(5) counts them; the first two are before the parenthesis.
        let field = |number: usize| fields[number - 3];
        assert_eq!((field(3), field(4), field(7), field(14)), ("S", "1", "1281", "123"));
        assert_eq!((field(18), field(20), field(22)), ("20", "1", "50"));
        assert_eq!((field(23), field(24), field(38)), ("3145728", "256", "17"));
        assert_eq!(field(32), "2");
    }

    #[test]
    fn a_nice_value_that_cannot_be_is_the_next_that_can() {
        for (nice, shown) in [(i32::MAX, "39 19"), (i32::MIN, "0 -20"), (5, "25 5")] {
            let text = text(stat(&ProcessRecord { nice, ..shell() }));
            let fields: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
            assert_eq!(fields[15..17].join(" "), shown);
        }
    }

    #[test]
    fn status_and_memory() {
        let status = text(status(&shell()));
        assert!(status.starts_with("Name:\tmy (sh)\nUmask:\t0000\nState:\tS (sleeping)\n"));
        assert!(status.contains("\nSigBlk:\t0000000200000002\n"));
        assert!(status.contains("\nVmRSS:\t    1024 kB\n"));
        let name = Vec::from(*b"a\nUid:\t0\\");
        let forged = self::text(super::status(&ProcessRecord { name, ..shell() }));
        assert!(forged.starts_with("Name:\ta\\nUid:\t0\\\\\nUmask:\t0000\n"), "{forged}");
        let memory = MemoryRecord { total: 512 << 20, free: 100 << 20, files: 0 };
        assert!(text(meminfo(&memory)).starts_with("MemTotal:         524288 kB\nMemFree: "));
    }

    #[test]
    fn times() {
        assert_eq!(text(uptime(61_234_567_890, 5)), "61.23 0.00\n");
        assert_eq!(text(loadavg(2, 7, 4100)), "2.00 2.00 2.00 2/7 4100\n");
        let cpu = CpuTimes { busy_ns: 10 * TICK_NS, idle_ns: 20 * TICK_NS, ..CpuTimes::default() };
        let stat = text(machine_stat(&[cpu, cpu], 1000, 9, 1));
        assert!(stat.starts_with("cpu  20 0 0 40 0 0 0 0 0 0\ncpu0 10 0 0 20 "));
        assert!(stat.contains("\nbtime 1000\nprocesses 9\n"));
    }

    #[test]
    fn maps_align_their_names() {
        let map = MapRecord {
            start: 0x40_0000,
            end: 0x5f_f000,
            protection: 5,
            name: "/bin/busybox".into(),
            ..MapRecord::default()
        };
        let text = text(maps(&[map]));
        assert!(text.starts_with("00400000-005ff000 r-xp 00000000 00:00 0 "));
        assert_eq!(text.find("/bin/busybox"), Some(73));
    }
}
