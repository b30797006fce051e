//! Terminals: who has one, and what a user without rights does by the regions of one that it has.
//!
//! The terminals' server acts on the words there with rights of its own, for all users: whatever
//! they are, it reaches the terminal's own processes alone, and serves the others.

pub mod forged;
mod fresh;
mod inputs;
mod leaders;
mod numbers;
mod outputs;
mod room;
mod strangers;

use super::{NOBODY, end, failed, look, nobody, operate, say, store};
use crate::{Seen, Test, expect, libc, peers};
use abi::id::{AccountId, EnvId};
use abi::published::{AccountRecord, EnvRecord, EnvState, RegionRecord, Table};
use abi::region::{COPY_IN, RegionOperation, WordAt};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use unix::process_page::ProcessPage;
use xok::services::{self, Service};

/// What holds.
pub const TESTS: [Test; 28] = [
    ("terminals_reach_their_own_alone", terminals_reach_their_own_alone),
    ("nonsense_in_a_terminal_is_its_own", nonsense_in_a_terminal_is_its_own),
    ("an_interrupt_reaches_all_that_fork", an_interrupt_reaches_all_that_fork),
    ("forged_inputs_end_no_server", inputs::forged_inputs_end_no_server),
    ("long_echoes_end_no_server", long_echoes_end_no_server),
    ("nobody_types_at_the_console", nobody_types_at_the_console),
    ("writers_to_a_terminal_do_not_type", writers_to_a_terminal_do_not_type),
    (
        "terminals_and_named_pipes_leave_others_room",
        room::terminals_and_named_pipes_leave_others_room,
    ),
    ("terminals_half_made_are_their_users", room::terminals_half_made_are_their_users),
    ("hung_up_sessions_hear_no_other_terminal", numbers::hung_up_sessions_hear_no_other_terminal),
    ("hung_up_sessions_have_no_terminal", numbers::hung_up_sessions_have_no_terminal),
    ("new_terminals_take_what_is_typed", fresh::new_terminals_take_what_is_typed),
    ("masters_that_close_at_once_hang_up", fresh::masters_that_close_at_once_hang_up),
    ("what_a_lost_terminal_was_typed_is_lost", fresh::what_a_lost_terminal_was_typed_is_lost),
    ("writers_to_a_terminal_see_nothing_shown", outputs::writers_to_a_terminal_see_nothing_shown),
    ("the_console_shows_nothing_to_programs", outputs::the_console_shows_nothing_to_programs),
    ("readers_of_a_terminal_show_nothing", outputs::readers_of_a_terminal_show_nothing),
    ("readers_of_a_terminal_are_its_users", outputs::readers_of_a_terminal_are_its_users),
    ("two_ways_of_a_terminal_are_dev_tty", outputs::two_ways_of_a_terminal_are_dev_tty),
    (
        "strangers_keep_no_shell_in_the_background",
        strangers::strangers_keep_no_shell_in_the_background,
    ),
    ("living_leaders_are_not_hung_up", leaders::living_leaders_are_not_hung_up),
    ("disowned_sessions_are_hung_up", leaders::disowned_sessions_are_hung_up),
    ("hang_ups_do_not_wait_for_what_is_typed", leaders::hang_ups_do_not_wait_for_what_is_typed),
    ("ends_before_a_close_are_told", leaders::ends_before_a_close_are_told),
    ("ends_are_told_where_they_are_said", leaders::ends_are_told_where_they_are_said),
    ("strangers_keep_no_terminal_taken", strangers::strangers_keep_no_terminal_taken),
    ("set_id_programs_believe_no_number", forged::set_id_programs_believe_no_number),
    ("set_id_programs_stop_nobody_elsewhere", forged::set_id_programs_stop_nobody_elsewhere),
];

/// `O_NOCTTY`
const NO_TERMINAL: i32 = 0o400;
/// `TIOCGPTN`
pub(super) const NUMBER: u64 = 0x8004_5430;
/// `TIOCSPTLCK`
pub(super) const LOCK: u64 = 0x4004_5431;
/// `TIOCGPGRP`, `TCFLSH`
const FOREGROUND_OF: u64 = 0x540f;
const FLUSH: u64 = 0x540b;
/// Signals of a terminal: HUP, INT, QUIT, TSTP.
const SIGNALS: [i32; 4] = [1, 2, 3, 20];
/// What is typed for them; a hang-up is the master's end.
const TYPED: [u8; 3] = [0x03, 0x1c, 0x1a];
/// Offset of a terminal's foreground group and session, one word.
pub(super) const FOREGROUND: u64 = 8;
/// How long a server that serves may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where head, tail and the settings' sequence are, and the head and tail of a master's other ring.
const PLACES: [u64; 4] = [0, 8, 2048, 2056];
/// What no ring's counters are, alone or together.
const NONSENSE: [u64; 5] = [u64::MAX, u64::MAX - 7, 1 << 63, (1 << 63) - 1, 1 << 40];

/// Users besides.
const ANOTHER: u32 = 1000;
const THIRD: u32 = 1001;

/// A pseudo-terminal of one's own.
pub struct Terminal {
    /// What types.
    pub master: File,
    slave: File,
    /// Its regions: they were made with it.
    regions: Vec<u64>,
}

impl Terminal {
    /// Opens one; `leads`: it is to be that of one's session.
    pub fn open(leads: bool) -> Option<Self> {
        let before = peers::regions();
        let open = |path: &str, flags| {
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok()
        };
        let master = open("/dev/ptmx", NO_TERMINAL)?;
        libc::control(master.as_raw_fd(), LOCK, 0)?;
        let number = libc::control(master.as_raw_fd(), NUMBER, 0)?;
        let slave = open(&format!("/dev/pts/{number}"), if leads { 0 } else { NO_TERMINAL })?;
        let regions = peers::regions().difference(&before).copied().collect();
        Some(Self { master, slave, regions })
    }

    /// Types a line and reads it: the server serves this terminal.
    fn serves(&mut self) -> bool {
        let mut line = [0; 5];
        self.master.write_all(b"line\n").is_ok()
            && self.slave.read_exact(&mut line).is_ok()
            && line == *b"line\n"
            // The echo, so that the ring is empty again.
            && self.master.read_exact(&mut [0; 6]).is_ok()
    }
}

/// How long a region is.
fn bytes_of(region: u64) -> u32 {
    let count = xok::published::table(Table::Regions).count as usize;
    let mut records = (0..count)
        .filter_map(|index| xok::published::record::<RegionRecord>(Table::Regions, index));
    records.find(|record| record.id == region).map_or(u32::MAX, |record| record.bytes)
}

/// The first word of a region's, and the second.
fn load(door: door::Door, region: u64) -> Option<[u64; 2]> {
    let bytes = (0..2).find_map(|role| look(door, region, role, 0, 16))?;
    let words: Vec<u64> =
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    words.try_into().ok()
}

/// A process that signals of a terminal would end, the leader of its session, with a terminal of
/// its own or none, until `end` is not 0.
fn victim(end: u64, with_terminal: bool) -> i32 {
    let words = libc::words(end, 2);
    if !libc::lead_session() {
        return 1;
    }
    if !with_terminal {
        return wait_for_end(words);
    }
    let Some(mut own) = Terminal::open(true) else { return 2 };
    // Of its own terminal it is the foreground: what is typed there reaches it.
    SIGNALS.iter().for_each(|&signal| libc::handle(signal, count));
    if own.master.write_all(&TYPED[..1]).is_err() {
        return 3;
    }
    while SEEN.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    SEEN.store(0, Ordering::SeqCst);
    let answer = wait_for_end(words);
    if SEEN.load(Ordering::SeqCst) != 0 { 4 } else { answer }
}

static SEEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: i32) {
    SEEN.fetch_add(1, Ordering::SeqCst);
}

fn wait_for_end(words: &[AtomicU64]) -> i32 {
    words[1].fetch_add(1, Ordering::SeqCst);
    while words[0].load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    0
}

/// Says of its own terminal that the victim's session is there and in the foreground, types what
/// makes signals, and hangs up.
fn misdirect(door: door::Door, victim: i32) -> i32 {
    if !libc::become_user(NOBODY) {
        return 1;
    }
    match Terminal::open(false) {
        Some(own) => misdirect_from(door, victim, own),
        None => 2,
    }
}

/// The same at this terminal.
fn misdirect_from(door: door::Door, victim: i32, mut own: Terminal) -> i32 {
    let victims = u64::from(victim as u32) * (1 + (1 << 32));
    // The settings are the smallest region, and tell the foreground.
    let settings = own.regions.iter().min_by_key(|&&region| bytes_of(region)).filter(|&&region| {
        let there = store(door, region, WordAt { offset: FOREGROUND, value: victims });
        there && libc::control(own.master.as_raw_fd(), FOREGROUND_OF, 0) == Some(victim)
    });
    let Some(&settings) = settings else { return 3 };
    // The server looks at settings when their sequence has changed.
    let Some([sequence, _]) = load(door, settings) else { return 4 };
    if !store(door, settings, WordAt { offset: 0, value: sequence + 1 }) {
        return 5;
    }
    for typed in TYPED {
        // Both bytes of the echo: the server has done what there was to do.
        if own.master.write_all(&[typed]).is_err() || own.master.read_exact(&mut [0; 2]).is_err() {
            return 6;
        }
    }
    let Terminal { master, mut slave, .. } = own;
    drop(master);
    // The end, or an error: the terminal was hung up.
    let _ = slave.read(&mut [0; 1]);
    0
}

/// A terminal's signals reach the processes that have it as their session's, whatever session and
/// foreground its settings name.
fn terminals_reach_their_own_alone(door: door::Door) -> Seen {
    for with_terminal in [true, false] {
        let end = libc::shared(1);
        let words = libc::words(end, 2);
        let pid = libc::spawn(|| victim(end, with_terminal));
        while words[1].load(Ordering::SeqCst) == 0 && libc::is_alive(pid) {
            std::thread::yield_now();
        }
        let status = libc::wait(libc::spawn(|| misdirect(door, pid)));
        words[0].store(1, Ordering::SeqCst);
        let victims = libc::wait(pid);
        expect(status == 0 && victims == 0, || {
            format!("terminal {with_terminal}: attacker {status:#x}, victim {victims:#x}")
        })?;
    }
    Ok(String::new())
}

/// The environment of the terminals' server, and its heartbeats.
fn server() -> (EnvId, u64) {
    let env = EnvId(services::get(Service::Terminal) as u32);
    (env, xok::beat::of(env))
}

/// Does the server go on, as it was, until it has beaten once more?
fn beats(env: EnvId) -> bool {
    let (_, before) = server();
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let (now, beats) = server();
        if now != env {
            return false;
        }
        if beats != before {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Stores nonsense into all regions of its own terminal and the console's, uses both, ends.
fn scribble(door: door::Door, round: usize) -> i32 {
    if !libc::become_user(NOBODY) {
        return 1;
    }
    let Some(own) = Terminal::open(false) else { return 2 };
    let console = [Service::TerminalInput, Service::TerminalOutput, Service::TerminalState];
    let regions = own.regions.iter().copied().chain(console.map(services::get));
    let mut stored = 0;
    for region in regions {
        for (at, offset) in PLACES.into_iter().enumerate() {
            // One of them alone, then all.
            let alone = round / NONSENSE.len();
            if alone < PLACES.len() && at != alone {
                continue;
            }
            let value = NONSENSE[(round + at) % NONSENSE.len()];
            stored += usize::from(store(door, region, WordAt { offset, value }));
        }
    }
    libc::set_waits(own.slave.as_raw_fd(), false);
    libc::set_waits(own.master.as_raw_fd(), false);
    for _ in 0..4 {
        libc::write(own.master.as_raw_fd(), b"typed\n");
        // The server finds what was stored, before a reader has put it right.
        std::thread::sleep(Duration::from_millis(1));
        libc::write(own.slave.as_raw_fd(), b"shown\n");
        libc::read(own.slave.as_raw_fd(), &mut [0; 64]);
        libc::read(own.master.as_raw_fd(), &mut [0; 64]);
        // Which changes the settings, and their sequence.
        libc::control(own.slave.as_raw_fd(), FLUSH, 2);
    }
    if stored == 0 { 3 } else { 0 }
}

/// Nonsense in a terminal's regions is that terminal's trouble: the server goes on, and so do
/// programs at other terminals.
fn nonsense_in_a_terminal_is_its_own(door: door::Door) -> Seen {
    let (env, _) = server();
    let mut own = Terminal::open(false).ok_or("no terminal")?;
    let rounds = (PLACES.len() + 1) * NONSENSE.len();
    for round in 0..rounds {
        // What is printed here is shown before the console's ring is spoilt.
        let output = services::get(Service::TerminalOutput);
        while load(door, output).is_some_and(|[head, tail]| head != tail) {
            std::thread::yield_now();
        }
        let status = libc::wait(libc::spawn(|| scribble(door, round)));
        expect(status == 0, || format!("round {round}: status {status:#x}"))?;
        let (serves, beats) = (own.serves(), beats(env));
        expect(serves && beats, || {
            format!("round {round}: serves {serves}, the same server beats {beats}")
        })?;
    }
    Ok(format!("({rounds} rounds)"))
}

/// Processes that fork without end when ^C is typed, and that there may have been in all.
const FORKERS: (u64, u64) = (150, 5000);

/// Makes children that do the same, until it is interrupted.
fn fork_on(born: &AtomicU64) -> i32 {
    libc::default_action(2);
    loop {
        if born.load(Ordering::SeqCst) >= FORKERS.1 {
            std::thread::yield_now();
            continue;
        }
        let pid = libc::spawn(|| {
            born.fetch_add(1, Ordering::SeqCst);
            fork_on(born)
        });
        if pid < 0 {
            std::thread::yield_now();
        }
    }
}

/// How many live in a group.
fn members(group: u32) -> usize {
    let count = xok::published::table(Table::Envs).count as usize;
    let lives = |index: &usize| {
        let page = xok::published::application(*index);
        let in_group = page.is_some_and(|page| page.half(offset_of!(ProcessPage, group)) == group);
        let record: Option<EnvRecord> = xok::published::record(Table::Envs, *index);
        let there = record.is_some_and(|env| env.id != 0 && env.state != EnvState::Dead as u32);
        there && in_group
    };
    (1..count).filter(lives).count()
}

/// ^C ends all of the foreground, also what is made while the terminals' server looks for it.
fn an_interrupt_reaches_all_that_fork(_: door::Door) -> Seen {
    let words = libc::words(libc::shared(1), 3);
    let pid = libc::spawn(|| {
        libc::handle(2, count);
        let leads = libc::lead_session();
        let Some(mut own) = Terminal::open(true).filter(|_| leads) else { return 1 };
        libc::spawn(|| fork_on(&words[0]));
        while words[0].load(Ordering::SeqCst) < FORKERS.0 {
            std::thread::yield_now();
        }
        words[1].store(words[0].load(Ordering::SeqCst), Ordering::SeqCst);
        if own.master.write_all(&TYPED[..1]).is_err() {
            return 2;
        }
        // Oneself alone is left.
        let begun = Instant::now();
        while members(std::process::id()) > 1 && begun.elapsed() < PATIENCE / 12 {
            std::thread::sleep(Duration::from_millis(20));
        }
        words[2].store(members(std::process::id()) as u64, Ordering::SeqCst);
        libc::send(0, 9);
        0
    });
    libc::wait(pid);
    let [born, typed, left] = [0, 1, 2].map(|at| words[at].load(Ordering::SeqCst));
    expect(left == 1 && typed < FORKERS.1, || {
        format!("{left} processes are left of {born}; there were {typed} when ^C was typed")
    })?;
    Ok(format!("({typed} when it was typed, {born} at the end)"))
}

/// Has a line of control characters shown again for each byte that is typed (`VREPRINT`), and takes
/// none of it.
fn reprint(terminal: &Terminal) -> bool {
    let master = terminal.master.as_raw_fd();
    libc::set_waits(master, false);
    let mut typed = 0;
    let mut shown = [0; 8192];
    while typed < 4000 {
        typed += libc::write(master, &[1; 1000][..(4000 - typed).min(1000) as usize]).max(0);
        libc::read(master, &mut shown);
        std::thread::yield_now();
    }
    // The line is there once its end is shown no more.
    let begun = Instant::now();
    while libc::read(master, &mut shown) > 0 && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    libc::write(master, &[0x12; 1000]) > 0
}

/// What a line's echo may take of the server's memory, in a turn and until it is read, has a bound.
fn long_echoes_end_no_server(_: door::Door) -> Seen {
    let (env, _) = server();
    let mut own = Terminal::open(false).ok_or("no terminal")?;
    let attacker = nobody(|| {
        let terminals: Vec<Terminal> = (0..8).map_while(|_| Terminal::open(false)).collect();
        let all = terminals.len() == 8 && terminals.iter().all(reprint);
        std::mem::forget(terminals);
        i32::from(!all)
    })?;
    let (serves, beats) = (own.serves(), beats(env));
    let within = frames_of(env).is_some_and(|(used, kept)| used <= kept);
    end(attacker)?;
    expect(serves && beats && within, || {
        let frames = frames_of(env);
        format!("serves {serves}, the same server beats {beats}, frames used, kept {frames:?}")
    })?;
    Ok(String::new())
}

/// How many frames the account of a server has in use, and how many are kept for it.
fn frames_of(env: EnvId) -> Option<(u32, u32)> {
    let record: EnvRecord = xok::published::record(Table::Envs, env.index())?;
    let account = AccountId(record.account);
    let account: AccountRecord = xok::published::record(Table::Accounts, account.index())?;
    Some((account.used[0], account.reserve[0]))
}

/// Who has no terminal types nothing at the console: a shell of user 0's would do it.
fn nobody_types_at_the_console(door: door::Door) -> Seen {
    for order in ORDERS {
        types_nothing(door, order).map_err(|why| format!("{order:?}: {why}"))?;
    }
    Ok(String::new())
}

/// How a process loses the console.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// By its descriptors.
    Silence,
    /// By a session of its own.
    Lead,
    /// By becoming another user.
    Become,
}

/// The orders in which that may be.
const ORDERS: [[Step; 3]; 4] = [
    [Step::Silence, Step::Lead, Step::Become],
    [Step::Become, Step::Silence, Step::Lead],
    [Step::Silence, Step::Become, Step::Lead],
    [Step::Lead, Step::Become, Step::Silence],
];

fn types_nothing(door: door::Door, order: [Step; 3]) -> Result<(), String> {
    const TYPED: &[u8] = b"poweroff\n";
    /// `unix::tty::shared`: where cells are, how many.
    const CELLS: (u64, u64) = (64, 4096);
    let status = libc::wait(libc::spawn(|| {
        // Nothing of the terminal is left to it, which it has as its session's until it leads one.
        say(offset_of!(ProcessPage, terminal), 1);
        for step in order {
            let done = match step {
                Step::Silence => {
                    libc::silence();
                    true
                }
                Step::Lead => libc::lead_session(),
                Step::Become => libc::become_user(NOBODY),
            };
            if !done {
                return 1;
            }
        }
        if File::open("/dev/console").is_ok() || File::open("/dev/tty").is_ok() {
            return 2;
        }
        let region = services::get(Service::TerminalInput);
        if (0..4).any(|role| look(door, region, role, CELLS.0, 8).is_some()) {
            return 3;
        }
        let cells: Vec<u8> = TYPED.iter().flat_map(|&byte| [byte, 0]).collect();
        for role in 0..2 {
            let Some(counters) = look(door, region, role, 8, 8) else { continue };
            let tail = counters.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let mut operation = RegionOperation {
                region,
                role,
                writes: 1,
                direction: COPY_IN,
                address: cells.as_ptr() as u64,
                offset: CELLS.0 + 2 * (tail % CELLS.1),
                len: cells.len() as u32,
                ..Default::default()
            };
            operation.write[0] = WordAt { offset: 0, value: tail + TYPED.len() as u64 };
            operate(door, &operation);
        }
        0
    }));
    let mut bytes = [0; 64];
    libc::set_waits(0, false);
    let got = libc::read(0, &mut bytes);
    libc::set_waits(0, true);
    let typed = bytes.windows(TYPED.len()).any(|part| part == TYPED);
    expect(status == 0 && !typed, || {
        format!("status {status:#x}; user 0 reads {got} bytes, typed by nobody: {typed}")
    })
}

/// Who may write to a terminal (mesg(1)) neither types there nor reads what is typed.
fn writers_to_a_terminal_do_not_type(door: door::Door) -> Seen {
    const CELLS: u64 = 64;
    let before = peers::regions();
    let open = |path: &str| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(0o400).open(path).map_err(failed)
    };
    let mut master = open("/dev/ptmx")?;
    libc::control(master.as_raw_fd(), LOCK, 0).ok_or("locked")?;
    let number = libc::control(master.as_raw_fd(), NUMBER, 0).ok_or("no number")?;
    let path = format!("/dev/pts/{number}");
    let mut slave = open(&path)?;
    libc::set_mode(&path, 0o622);
    let fresh: Vec<u64> = peers::regions().difference(&before).copied().collect();
    master.write_all(b"secret\n").map_err(failed)?;
    let status = libc::wait(libc::spawn(|| {
        libc::silence();
        if !libc::become_user(NOBODY) {
            return 1;
        }
        let options = OpenOptions::new().write(true).custom_flags(0o400).open(&path);
        let (Ok(_terminal), Err(_)) = (options, File::open(&path)) else { return 2 };
        let mut done = 0;
        // The server takes what was typed meanwhile.
        std::thread::sleep(Duration::from_millis(300));
        for &region in &fresh {
            let cells = look(door, region, 1, CELLS, 12);
            let secret: Vec<u8> = b"secret".iter().flat_map(|&byte| [byte, 0]).collect();
            if cells.is_some_and(|cells| cells == secret) {
                done |= 16;
                let first = WordAt { offset: CELLS, value: 0x0065_0072_0065_0068 };
                done |= 32 * i32::from(store(door, region, first));
            }
        }
        done
    }));
    let mut line = [0; 7];
    slave.read_exact(&mut line).map_err(failed)?;
    let line = String::from_utf8_lossy(&line).into_owned();
    expect(status == 0 && line == "secret\n", || {
        format!("status {status:#x} (0x1000: it read, 0x2000: it typed); user 0 reads {line:?}")
    })?;
    Ok(String::new())
}
