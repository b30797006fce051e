//! The first Linux process: the shell on the terminal, or the `run=` program with raw streams.

use abi::capability::{
    ALL, DERIVE, DEVICE_CONSOLE, DEVICE_NETWORK, DEVICE_POWER, NAME_DEVICE, NAME_GROUP, NAME_IMAGE,
    NAME_USER, READ, USER_RIGHTS, WRITE,
};
use abi::domain::Property;
use abi::id::{AccountId, DomainId, EnvId};
use abi::layout::PAGE_SIZE;
use abi::memory::NO_EXECUTE;
use abi::predicate::Operator;
use abi::published::{COMMAND_LINE, EnvRecord, EnvState, Table};
use abi::setup::{EnvSetup, FLAG_TAKES_RECORDS, field};
use abi::upcall::EVENT_CHILD;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::mem::offset_of;
use exos::capabilities::{ALL_GROUPS_SLOT, GROUP_SLOTS, REAL_SLOT, SAVED_SLOT, USER_SLOTS};
use exos::exec;
use exos::fs::Program;
use exos::layout::TEXT;
use exos::process::Process;
use exos::start_block::{self, Command};
use exos::{library, page, start};
use image::elf::{ElfError, Plan};
use unix::Errno;
use xok::call::{self, OWN, Refused};
use xok::memory::Space;
use xok::services::{INIT_INDEX, Service};
use xok::{clock, published};

use crate::keeper::Keeper;
use crate::payer;
use crate::programs::Image;
use crate::publish;
use crate::servers::{self, gift};
use crate::settings::{self, Settings};
use crate::terminal::Terminal;

/// Init's slot with the name of all users: that of user 0, whose process it starts.
const USERS_SLOT: u8 = 1;
/// Status of a program that cannot be executed, as a shell has it.
const NOT_EXECUTABLE: u16 = 126;
/// Status of a program that is not there.
const NOT_FOUND: u16 = 127;

/// Nanoseconds that the shell may have the processor for itself before the network is served.
const PROMPT_NS: u64 = 500_000_000;
/// Nanoseconds that keepers of sockets get for what peers have not taken yet.
const LINGER: u64 = 5_000_000_000;
/// How many ends of children wake init within a time, in nanoseconds; then it lets others run.
const WAKES: u32 = 8;
/// See [`WAKES`].
const WAKES_NS: u64 = 20_000_000;
/// Nanoseconds between two looks through the table of environments.
const FORGET_NS: u64 = 100_000_000;
/// The word of what is ended with the session: SIGKILL.
const KILLED: u64 = 9;

/// Why there is no session.
pub struct Failure {
    /// The sentence.
    pub text: String,
    /// The machine's status.
    pub status: u16,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Refused> for Failure {
    fn from((error, number): Refused) -> Self {
        let text = alloc::format!("refused: {} ({number})", error.name());
        Self { text, status: NOT_EXECUTABLE }
    }
}

fn failure(status: u16, text: String) -> Failure {
    Failure { text, status }
}

/// Starts everything, waits for the session's end; the machine's status.
pub fn run() -> Result<u16, Failure> {
    let mut line = [0; COMMAND_LINE];
    let settings = settings::parse(published::command_line(&mut line));
    let streams = settings.run.is_some() && !settings.terminal;
    call::capability_derive(OWN, DomainId::NONE, u16::from(USERS_SLOT), &[NAME_USER], ALL)?;
    let image = Image::open()?
        .ok_or_else(|| failure(NOT_EXECUTABLE, "the boot image is damaged".into()))?;
    let command = command(&image, &settings)?;

    payer::own()?;
    // Keepers of sockets end after the processes that made them: we look at their records.
    let setup = EnvSetup { flags: FLAG_TAKES_RECORDS, ..EnvSetup::default() };
    call::env_set(OWN, EnvId::NONE, field::FLAGS, &setup)?;
    let domain = call::domain_alloc(USERS_SLOT, AccountId::NONE, TEXT, start::text_bytes())?;
    let env = call::env_alloc(USERS_SLOT, domain, AccountId::NONE)?;
    let terminal = Terminal::make(streams)?;
    terminal.set_up(env.0, streams)?;
    publish::set(Service::Session, u64::from(env.0));
    publish::open();
    let tracer = servers::start_tracer(&image, &settings);
    let mut keeper = Keeper::new(terminal);
    servers::start_own(&image, &mut keeper);
    // Who sits at the terminal sees the prompt first; a program finds all that there is.
    if streams {
        servers::start_others(&image, &settings, &mut keeper);
    }

    terminal.attach_program(domain)?;
    give_capabilities(domain)?;
    // User 0 pays for its process; if it cannot, init does.
    xok::accounts::join(domain, 0);
    let entry = map_library(&image)?;
    start_process(domain, env, entry, &command, streams)?;
    if !streams {
        await_rest(env);
        servers::start_others(&image, &settings, &mut keeper);
    }
    let status = await_end(env, &mut keeper);
    await_keepers(env, &mut keeper);
    terminal.drain(|| {
        keeper.look();
    });
    servers::end_tracer(tracer);
    Ok(status)
}

/// What to run.
fn command(image: &Image, settings: &Settings) -> Result<Command, Failure> {
    let asked = settings.run.clone().unwrap_or_else(|| b"/bin/sh".to_vec());
    let arguments = match (&settings.run, settings.arguments.is_empty()) {
        (None, _) => alloc::vec![b"-sh".to_vec()],
        (Some(path), true) => alloc::vec![path.clone()],
        (Some(_), false) => settings.arguments.clone(),
    };
    let shown = String::from_utf8_lossy(&asked).into_owned();
    let find = |path: &[u8]| {
        let path = core::str::from_utf8(path).map_err(|_| Errno::ENOENT)?;
        let file = image.file(path).ok_or(Errno::ENOENT)?;
        if file.mode & 0o111 == 0 {
            return Err(Errno::EACCES);
        }
        let image = Some((file.offset, file.size));
        Ok(Program { path: file.path, image, bytes: Vec::new(), hidden: false, origin: None })
    };
    let environment = environment(settings);
    let found = exec::resolve(find, asked, arguments, environment);
    found.map(|(command, _)| command).map_err(|errno| match errno {
        Errno::ENOENT => failure(NOT_FOUND, alloc::format!("{shown}: not found")),
        errno => failure(NOT_EXECUTABLE, alloc::format!("{shown}: cannot be run ({errno:?})")),
    })
}

fn environment(settings: &Settings) -> Vec<Vec<u8>> {
    let defaults: [&[u8]; 6] = [
        b"PATH=/bin:/sbin:/usr/bin:/usr/sbin",
        b"HOME=/root",
        b"USER=root",
        b"LOGNAME=root",
        b"SHELL=/bin/sh",
        b"TERM=linux",
    ];
    let name = |text: &[u8]| text.split(|&byte| byte == b'=').next().map(<[u8]>::to_vec);
    let given: Vec<_> = settings.environment.iter().map(|text| name(text)).collect();
    let kept = defaults.iter().filter(|text| !given.contains(&name(text)));
    kept.map(|text| text.to_vec()).chain(settings.environment.iter().cloned()).collect()
}

/// What the first Linux process, user 0's, holds: see `exos::capabilities`.
fn give_capabilities(domain: DomainId) -> Result<(), Refused> {
    let gifts = [
        gift(1, &[NAME_IMAGE], READ | DERIVE),
        gift(3, &[NAME_DEVICE, DEVICE_NETWORK], WRITE | DERIVE),
        gift(4, &[NAME_DEVICE, DEVICE_CONSOLE], WRITE | DERIVE),
        gift(5, &[NAME_DEVICE, DEVICE_POWER], WRITE | DERIVE),
    ];
    let users = USER_SLOTS.map(|slot| gift(slot.into(), &[NAME_USER], USER_RIGHTS));
    let groups = GROUP_SLOTS.map(|slot| gift(slot.into(), &[NAME_GROUP, 0, 0], USER_RIGHTS));
    let all_groups = gift(ALL_GROUPS_SLOT.into(), &[NAME_GROUP], USER_RIGHTS);
    for gift in gifts.iter().chain(&users).chain(&groups).chain([&all_groups]) {
        call::capability_derive(gift.from, domain, gift.slot, gift.extend, gift.rights)?;
    }
    let slots = u64::from(REAL_SLOT) | u64::from(SAVED_SLOT) << 8;
    call::domain_set(OWN, domain, Property::Signals, slots)?;
    Ok(())
}

/// Maps ExOS's text and constants where every process shares them; its entry point.
fn map_library(image: &Image) -> Result<u64, Failure> {
    let damaged = |error: ElfError| failure(NOT_EXECUTABLE, alloc::format!("exos: {error}"));
    let file =
        image.file("/xok/exos").ok_or_else(|| failure(NOT_FOUND, "no exos in the image".into()))?;
    let plan = Plan::parse_in(file.bytes, 0x1000..u64::MAX).map_err(damaged)?;
    let mut own = Space::own();
    for segment in plan.segments().iter().filter(|segment| !segment.write) {
        let pages = segment.pages();
        let first = file.frame().0 + (segment.file_offset / PAGE_SIZE) as u32;
        let choice = if segment.execute { 0 } else { NO_EXECUTE };
        let count = (pages.end - pages.start) / PAGE_SIZE;
        own.map(pages.start, abi::id::Frame(first), count, choice)?;
    }
    Ok(plan.entry)
}

/// Builds the process in `domain` and lets it run.
fn start_process(
    domain: DomainId,
    env: EnvId,
    entry: u64,
    command: &Command,
    streams: bool,
) -> Result<(), Failure> {
    let process = Process { id: env, ..Process::default() };
    let block = start_block::head(&process, 0, command);
    let mut page = page::empty();
    page.group = env.0;
    page.session = env.0;
    page.terminal = u32::from(!streams);
    exec::fill_page(&mut page, command);
    library::build_fresh(domain, page::bytes_of(&page), &block)?;
    let (setup, fields) = library::fresh_setup(entry, block.len());
    call::env_set(USERS_SLOT, env, fields, &setup)?;
    call::env_release(USERS_SLOT, env)?;
    Ok(())
}

/// Waits until the session's process waits for something itself, such as its first line or its
/// first child, or has had long enough.
fn await_rest(env: EnvId) {
    let atom = |operator: Operator, state: EnvState| {
        published::env_atom(env, offset_of!(EnvRecord, state), operator, state as u32)
    };
    let rests = atom(Operator::Equal, EnvState::Sleeping);
    let has_ended = atom(Operator::AtLeast, EnvState::Stopped);
    if call::predicate_set(&[rests, has_ended]).is_ok() {
        // Whatever ends the sleep, the rest is started then.
        let _ = call::sleep(clock::now_ns() + PROMPT_NS, 0, 0, 0);
    }
    let _ = call::predicate_set(&[]);
}

/// How often init wakes for the ends of children: whoever likes leaves it records, and ends what
/// they are of, and what init does for that is done in its own turns.
#[derive(Default)]
struct Pace {
    /// When the first wakes of this time were, and how many there are.
    begun_ns: u64,
    wakes: u32,
    /// Has a child ended since init looked which records it need not keep?
    stale: bool,
    /// No such look before.
    due_ns: u64,
}

impl Pace {
    /// Notes that init woke, by the end of a child or otherwise; has time come to look which
    /// records it need not keep?
    fn wake(&mut self, by_child: bool, now: u64) -> bool {
        if now >= self.begun_ns + WAKES_NS {
            (self.begun_ns, self.wakes) = (now, 0);
        }
        self.wakes += u32::from(by_child);
        self.stale |= by_child;
        let looks = self.stale && now >= self.due_ns;
        if looks {
            (self.stale, self.due_ns) = (false, now + FORGET_NS);
        }
        looks
    }

    /// Sleeps until `deadline` at the latest; another child's end wakes it if there were not too
    /// many.
    fn sleep(&self, deadline: u64) {
        let deadline = if self.stale { deadline.min(self.due_ns) } else { deadline };
        // Whatever ends the sleep, the loop looks again.
        let _ = match self.wakes < WAKES {
            true => call::sleep(deadline, 0, EVENT_CHILD, 0),
            false => call::sleep(deadline.min(self.begun_ns + WAKES_NS), 0, 0, 0),
        };
    }
}

/// Waits until the session's process is dead; what the machine ends with.
fn await_end(env: EnvId, keeper: &mut Keeper) -> u16 {
    let mut pace = Pace { stale: true, ..Pace::default() };
    loop {
        let by_child = xok::upcall::take_events() & EVENT_CHILD != 0;
        match published::env(env) {
            Some(record) if record.state != EnvState::Dead as u32 => {}
            Some(record) => return status(record.word),
            None => return NOT_EXECUTABLE,
        }
        if pace.wake(by_child, clock::now_ns()) {
            forget_entrusted(env, keeper);
        }
        pace.sleep(keeper.look());
        xok::upcall::take_pending();
    }
}

/// What was written to a shared socket leaves before the machine ends: whatever else the session
/// left running is ended, so that keepers of sockets have no more users, and they may finish.
fn await_keepers(session: EnvId, keeper: &mut Keeper) {
    if !entrusted(session).any(|record| is_process(&record)) {
        return;
    }
    for record in others().filter(is_process).filter(|record| record.holder != own_id()) {
        // One that has ended meanwhile is what we want.
        let _ = call::env_destroy(USERS_SLOT, EnvId(record.id), KILLED);
    }
    let end = clock::now_ns() + LINGER;
    loop {
        xok::upcall::take_events();
        if !entrusted(session).any(|record| is_process(&record)) || clock::now_ns() >= end {
            return;
        }
        let deadline = keeper.look();
        // Whatever ends the sleep, the loop looks again.
        let _ = call::sleep(end.min(deadline), 0, EVENT_CHILD, 0);
        xok::upcall::take_pending();
    }
}

/// Forgets the dead whose records processes left to us: keepers of sockets. Servers are kept.
fn forget_entrusted(session: EnvId, keeper: &Keeper) {
    let dead = entrusted(session).filter(|record| record.state == EnvState::Dead as u32);
    for record in dead.filter(|record| !keeper.has(EnvId(record.id))) {
        // Ours to forget, and dead.
        let _ = call::env_forget(EnvId(record.id));
    }
}

/// Whose records are ours, servers and the keepers of sockets.
fn entrusted(session: EnvId) -> impl Iterator<Item = EnvRecord> {
    let own = own_id();
    others().filter(move |record| record.holder == own && record.id != session.0)
}

fn own_id() -> u32 {
    published::record::<EnvRecord>(Table::Envs, INIT_INDEX).map_or(0, |own| own.id)
}

/// Everybody but ourselves.
fn others() -> impl Iterator<Item = EnvRecord> {
    let count = published::table(Table::Envs).count as usize;
    let indices = (1..count).filter(|&index| index != INIT_INDEX);
    let records = indices.filter_map(|index| published::record::<EnvRecord>(Table::Envs, index));
    records.filter(|record| record.id != 0)
}

/// Lives, and is signalled by users, as no server is: no bit may be posted to others.
fn is_process(record: &EnvRecord) -> bool {
    call::post(USERS_SLOT, EnvId(record.id), 0).is_ok()
}

/// A wait status as a shell shows it: 128 + n for signal n.
fn status(word: u64) -> u16 {
    match word & 0x7f {
        0 => (word >> 8 & 0xff) as u16,
        signal => 128 + signal as u16,
    }
}
