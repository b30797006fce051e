//! Hostile callers of a set-id program: none of them acts as its owner (decision 0044).
//!
//! A set-id program of user 0 says in a file of its own that it ran, and as whom. Callers of other
//! users start it as badly as they can: with descriptors, limits, masks and timers of any kind,
//! killed at any moment; and by kernel calls, with forged ids, files, descriptors, groups, a forged
//! block. Afterwards the files of user 0 are what they were, and each caller that still runs its
//! own code is refused what is not its user's.
//!
//! ```text
//!  caller (65534) ── execve, or a forged request ──► setidd ──► job (set-uid 0)
//!      ▲ killed, stopped, rung at                                  writes to 1, 2, and its ledger
//! ```

use crate::deputies::{guesses, node_of};
use crate::random::Random;
use crate::{Seen, expect, libc};
use abi::call::Call;
use abi::error::Error;
use abi::id::{DomainId, EnvId, RegionId};
use abi::region::{COPY_IN, COPY_NONE, RegionOperation};
use abi::word::UserAddress;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use unix::set_id::{BLOCK_MAX, File, IMAGE, MEMORY, Request};
use xok::services::{self, Service};

/// Callers in a test; soak says how many.
const CALLERS: u64 = 150;
/// Their user.
const NOBODY: u32 = 65534;
/// Where all lies.
const PLACE: &str = "/tmp/set-id";
/// The program.
pub const JOB: &str = "/tmp/set-id/job";
/// One that only user 0 may execute, what nobody may write, and what nobody may read.
const LOCKED: &str = "/tmp/set-id/locked";
/// What the program writes.
pub const LEDGER: &str = "/tmp/set-id/ledger";
/// What nobody but user 0 opens.
pub const DATA: &str = "/tmp/set-id/data";
const SECRET: &str = "/tmp/set-id/secret";
/// What is in the last two.
pub const UNTOUCHED: &str = "nobody has touched this";
/// The name by which the program is started.
pub const NAME: &str = "set-id-job";
/// Its argument if it is to become user 0 wholly first.
pub const WHOLLY: &str = "wholly";
/// Its argument if it is to have memory full of [`SECRET_WORD`], and end.
pub const FILLS: &str = "fills";
/// A word that no other program has.
pub const SECRET_WORD: u64 = 0x5ec7_e75e_c7e7_0ddb;
/// Its argument if it is to act for its starter for a time first.
pub const FOR_A_TIME: &str = "for-a-time";
/// Its argument if it is to note who has sent the signal that waits, and end.
pub const TELLS: &str = "tells";
/// Its argument if it is to become user 0 wholly, and stay until it is sent a signal.
pub const STAYS: &str = "stays";
/// Its argument if it is to note in which groups it is, and how many its page shows, and end.
pub const MEMBER: &str = "member";

/// Its argument if a child of its is to begin a session, once a line has come.
pub const SESSION: &str = "session";
/// Its argument if it is to tell what its page says of the terminal of its session.
pub const TERMINAL: &str = "terminal";
/// Its argument if it is to put the child behind it into its own group.
pub const GROUP: &str = "group";

/// Its argument if it is to run its starter's command.
pub const RUNS_A_COMMAND: &str = "runs-a-command";

/// What a caller found that it must not: a bit each, in a shared word.
const BECAME_ROOT: u64 = 1;
const OPENED: u64 = 2;
const ENTERED: u64 = 4;
const CHANGED: u64 = 8;
const BELIEVED: u64 = 16;

/// The program, when it has been started by that name: what a set-id program does.
pub fn job() -> u8 {
    use std::io::Write;
    let becomes = match std::env::args().nth(1).as_deref() {
        Some(WHOLLY) => libc::become_user(0),
        Some(FILLS) => {
            let filled = std::hint::black_box(vec![SECRET_WORD; 1 << 18]);
            return u8::from(filled[filled.len() - 1] != SECRET_WORD);
        }
        Some(SESSION) => return child_begins_session(),
        Some(TERMINAL) => {
            let at = std::mem::offset_of!(unix::process_page::ProcessPage, terminal);
            return libc::own_page_word(at).load(Ordering::SeqCst) as u8;
        }
        Some(GROUP) => return puts_child_into_its_group(),
        Some(RUNS_A_COMMAND) => return guesses::run_a_command(),
        Some(STAYS) => {
            return u8::from(!libc::become_user(0) || libc::await_signal(10).is_none());
        }
        Some(TELLS) => {
            let told = format!("{:?}", libc::await_signal(10));
            return u8::from(fs::write(LEDGER, told).is_err());
        }
        Some(MEMBER) => return u8::from(fs::write(LEDGER, membership()).is_err()),
        Some(FOR_A_TIME) => libc::act_by(libc::users()[0]) && libc::act_by(0),
        _ => true,
    };
    if !becomes {
        return 2;
    }
    let [real, effective, saved] = libc::users();
    let line = format!("{real} {effective} {saved}\n");
    let ledger = fs::OpenOptions::new().append(true).open(LEDGER);
    let told = ledger.and_then(|mut ledger| ledger.write_all(line.as_bytes()));
    // Whatever these lead to: they were its starter's.
    let _ = std::io::stdout().write_all(b"job\n");
    let _ = std::io::stderr().write_all(b"job\n");
    u8::from(told.is_err())
}

/// The groups of its set, as its library has them, and how many of them its page shows others.
fn membership() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let shown = std::mem::offset_of!(unix::process_page::ProcessPage, groups_len);
    let shown = libc::own_page_word(shown).load(Ordering::SeqCst);
    format!("{}, {shown} shown", groups.unwrap_or("unknown").trim())
}

/// A child tells its number, and begins a session once a byte has come: its status.
fn child_begins_session() -> u8 {
    use std::io::{Read, Write};
    let child = libc::spawn(|| {
        let told = writeln!(std::io::stdout(), "{}", std::process::id());
        let came = std::io::stdin().read_exact(&mut [0]);
        if told.is_err() || came.is_err() {
            return 2;
        }
        i32::from(!libc::lead_session())
    });
    (libc::wait(child) >> 8) as u8
}

/// Puts the child whose number is its second argument into its own group, and lets it follow.
fn puts_child_into_its_group() -> u8 {
    let child = std::env::args().nth(2).and_then(|number| number.parse().ok());
    let put = child.is_some_and(|child| libc::set_group(child, libc::group()));
    std::thread::sleep(std::time::Duration::from_millis(100));
    u8::from(!put)
}

/// A program's file without what is not loaded: it is read whole each time.
fn loaded(mut file: Vec<u8>) -> Vec<u8> {
    let half = |at: usize| usize::from(u16::from_le_bytes([file[at], file[at + 1]]));
    let word = |at: usize| u64::from_le_bytes(*file[at..].first_chunk().unwrap_or(&[0; 8]));
    let headers = (0..half(56)).map(|number| word(32) as usize + number * half(54));
    // Where a segment begins in the file, and its bytes there.
    let ends = headers.map(|at| word(at + 8) + word(at + 32));
    let end = ends.max().unwrap_or(0) as usize;
    file.truncate(end);
    // There are no sections.
    file[40..48].fill(0);
    file[58..64].fill(0);
    file
}

/// Copies this program.
pub fn copy_program(to: &str) -> std::io::Result<()> {
    fs::write(to, loaded(fs::read("/proc/self/exe")?))
}

/// Makes the files anew.
pub fn prepare() -> std::io::Result<()> {
    let _ = fs::remove_dir_all(PLACE);
    fs::create_dir(PLACE)?;
    libc::set_mode(PLACE, 0o755);
    copy_program(JOB)?;
    libc::set_mode(JOB, 0o4755);
    fs::write(LOCKED, "locked")?;
    libc::set_mode(LOCKED, 0o4700);
    for (path, text) in [(LEDGER, ""), (DATA, UNTOUCHED), (SECRET, UNTOUCHED)] {
        fs::write(path, text)?;
        libc::set_mode(path, 0o600);
    }
    Ok(())
}

/// The handles by which the file server knows the files: as if the callers had learnt them.
#[derive(Clone, Copy)]
struct Numbers {
    job: u64,
    locked: u64,
    data: u64,
    secret: u64,
    /// What all see of the first and of the data (`st_ino`).
    shown: [u64; 2],
}

fn shown() -> [u64; 2] {
    [JOB, DATA].map(|path| fs::metadata(path).map_or(0, |found| found.ino()))
}

fn number(door: door::Door, path: &str) -> u64 {
    node_of(door, 0, path).unwrap_or(0)
}

/// A list of words, as the library writes its block.
struct Block(Vec<u8>);

impl Block {
    fn word(&mut self, word: u64) {
        self.0.extend(word.to_le_bytes());
    }

    fn words(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.word(*word));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        self.0.extend(bytes);
    }

    /// One that is well formed, and says nothing true: `start_block` and `fs::saved` read it.
    fn forged(random: &mut Random, numbers: Numbers, region: u64) -> Vec<u8> {
        let mut block = Self(Vec::new());
        block.word(u64::from_le_bytes(*b"EXOSLIFE"));
        block.word(1);
        block.words(&[0; 6]);
        let count = random.of(&[0, 1, 65_536, u64::from(u32::MAX)]);
        block.word(count);
        // A false word of its groups ends the program: what comes behind is read as well.
        let lies = random.one_in(4);
        let (first, third) = if lies { (region, random.of(&[0, region, 77])) } else { (0, 0) };
        block.words(&[first, 0, third, 0]);
        block.word(random.word());
        block.word(1);
        block.words(&[random.below(70), random.word(), random.word()]);
        block.word(random.word());
        for _ in 0..6 {
            let time = random.of(&[0, 0, 0, 0, 0, 0, 0, 1, u64::MAX, 1 << 63]);
            block.word(time);
        }
        block.words(&[u64::MAX, 3]);
        for _ in 0..16 {
            block.words(&[u64::MAX, random.of(&[0, u64::MAX, u64::MAX, u64::MAX, 8 << 20, 100])]);
        }
        block.word(2);
        block.words(&[1, 1, 0, random.below(40), 0, 0]);
        // A program of its own choice, in the image and out of it.
        block.words(&[random.below(2), random.below(1 << 20), 4096, 4096]);
        block.bytes(random.of(&[&b"/tmp/set-id/evil"[..], b"/bin/busybox", b"", b"\xff\xfe"]));
        block.bytes(b"/proc/self/exe");
        block.word(1);
        block.bytes(NAME.as_bytes());
        block.word(1);
        block.bytes(b"XOK_STRACE=1");
        block.files(random, numbers, region);
        block.0
    }

    fn place(&mut self, node: u64, path: &[u8]) {
        self.words(&[2, node]);
        self.bytes(path);
    }

    fn files(&mut self, random: &mut Random, numbers: Numbers, region: u64) {
        self.word(u64::MAX);
        self.place(numbers.secret, b"/root");
        match random.below(12) {
            0 => self.place(numbers.data, b"/tmp/set-id"),
            _ => {
                self.words(&[1, 0]);
                self.bytes(b"/");
            }
        }
        let open = 3;
        self.word(open);
        for _ in 0..open {
            self.words(&[random.of(&[0, 1, 2]), random.of(&[0, 6, u64::MAX, region])]);
            self.word(region);
            self.place(random.of(&[numbers.data, numbers.secret]), DATA.as_bytes());
            let sockets = random.one_in(20);
            let kind =
                if sockets { random.of(&[5, 10]) } else { random.of(&[0, 0, 0, 2, 3, 6, 8, 9, 4]) };
            self.word(kind | random.below(8) << 8);
            let more = [0, 0, 1, 4, 0, 9, 1, 0, 1, 1, 5][kind as usize];
            (0..more).for_each(|_| self.word(region));
        }
        self.word(random.of(&[0, u64::MAX]));
        let descriptors = 4;
        self.word(descriptors);
        for fd in 0..descriptors {
            let fd = if random.one_in(64) { random.word() } else { fd };
            self.words(&[fd & 0xffff_ffff | random.below(open) << 32, 0]);
        }
    }
}

/// A region of the caller's with a block in it.
pub fn offer(door: door::Door, block: &[u8], page: u64) -> Option<RegionId> {
    let bytes = libc::bytes(page, 4096);
    let count = block.len().div_ceil(4096).clamp(1, 17);
    bytes[..4 * count].fill(0xff);
    let make = Call::RegionAlloc { frames: UserAddress(page), count: count as u64 };
    let region = RegionId(libc::kernel_by(door, make, 2).ok()?);
    let attach = Call::RegionAttach { region, role: 0, domain: DomainId::NONE };
    libc::kernel(door, attach).ok()?;
    for (at, piece) in block.chunks(2048).enumerate() {
        bytes[2048..2048 + piece.len()].copy_from_slice(piece);
        let operation = RegionOperation {
            region: region.0,
            direction: if piece.is_empty() { COPY_NONE } else { COPY_IN },
            address: page + 2048,
            offset: 2048 * at as u64,
            len: piece.len() as u32,
            ..RegionOperation::default()
        };
        let operation = UserAddress(&raw const operation as u64);
        libc::kernel(door, Call::RegionOperate { operation }).ok()?;
    }
    Some(region)
}

/// A caller that asks the server itself. It comes back unless it has become the program.
fn forge(door: door::Door, random: &mut Random, numbers: Numbers, page: u64) -> u64 {
    let Some(scrap) = offer(door, b"", page) else { return 0 };
    let mut block = Block::forged(random, numbers, scrap.0);
    if random.one_in(3) {
        for _ in 0..=random.below(4) {
            let at = random.below(block.len() as u64) as usize;
            block[at] = random.word() as u8;
        }
    }
    if random.one_in(8) {
        block.truncate(random.below(block.len() as u64) as usize);
    }
    let Some(region) = offer(door, &block, page) else { return 0 };
    let own = std::process::id();
    let mut request = Request {
        process: own,
        file: File { kind: MEMORY, number: numbers.job },
        directory: File { kind: IMAGE, number: 0 },
        users: [NOBODY; 2],
        groups: [NOBODY; 2],
        region: region.0,
        bytes: block.len(),
    };
    if random.one_in(2) {
        let secret = File { kind: MEMORY, number: numbers.secret };
        match random.below(9) {
            0 => request.users[0] = random.of(&[0, 1000]),
            1 => request.users[1] = random.of(&[0, 1000]),
            2 => request.groups[random.below(2) as usize] = random.of(&[0, 5]),
            3 => request.file.number = numbers.locked,
            4 => {
                let wild = File { kind: random.below(16) as u8, number: random.word() };
                request.file = random.of(&[secret, wild])
            }
            5 => request.directory = secret,
            6 => request.process = random.of(&[1, std::os::unix::process::parent_id(), u32::MAX]),
            7 => request.region = random.of(&[0, 77, u64::MAX]),
            _ => request.bytes = random.of(&[BLOCK_MAX, BLOCK_MAX + 1]),
        }
    }
    let lies = (request.users, request.groups) != ([NOBODY; 2], [NOBODY; 2])
        || request.file.number != numbers.job
        || request.directory.kind == MEMORY
        || (request.process, request.region) != (own, region.0)
        || request.bytes > 4096 * block.len().div_ceil(4096);
    let server = EnvId(services::get(Service::SetId) as u32);
    let answer = libc::transfer(door, server, request.to_words());
    let Ok([0, domain, ..]) = answer else { return 0 };
    if lies {
        return BELIEVED;
    }
    let domain = DomainId(domain);
    let found = reach(door, domain, page);
    if random.one_in(4) {
        return found;
    }
    for (region, role) in [(scrap, 0_u64), (region, 0), (RegionId(77), 2)] {
        libc::bytes(page, 16)[..8].copy_from_slice(&region.0.to_le_bytes());
        libc::bytes(page, 16)[8..].copy_from_slice(&role.to_le_bytes());
        let _ =
            libc::kernel(door, Call::RegionPass { domain, places: UserAddress(page), count: 1 });
    }
    // It may become the program; whether it may, its own code never runs as that.
    let setup = UserAddress(page);
    let _ = libc::kernel(door, Call::EnvMove { domain, fields: u64::MAX >> 49, setup });
    found | reach(door, domain, page)
}

/// What the asker tries with the domain that was built for it: all is refused.
fn reach(door: door::Door, domain: DomainId, page: u64) -> u64 {
    use abi::id::AccountId;
    use abi::word::Which;
    let (which, vector, account) = (Which::Any, Which::Any, AccountId::NONE);
    let calls = [
        Call::EnvAlloc { which, domain, account, vector },
        Call::TableUpdate { domain, items: UserAddress(page), count: 0 },
        Call::CapabilityDerive { domain, slot: 9, extend: 0, components: 0, rights: 1 },
        Call::CapabilityPass { domain, slots: 2 },
        Call::DomainSet { domain, property: 0, value: 0 },
        Call::DomainSwitch { domain },
        Call::DomainDestroy { domain },
    ];
    let done =
        (0..16).any(|slot| calls.iter().any(|call| libc::kernel_by(door, *call, slot).is_ok()));
    if done { ENTERED } else { 0 }
}

/// What a caller tries that is still itself.
fn probe(numbers: Numbers) -> u64 {
    let mut found = 0;
    if libc::try_root() {
        found |= BECAME_ROOT;
    }
    if fs::read(SECRET).is_ok() || fs::OpenOptions::new().write(true).open(DATA).is_ok() {
        found |= OPENED;
    }
    if shown()[0] != numbers.shown[0] || fs::write(JOB, "mine").is_ok() {
        found |= CHANGED;
    }
    found
}

/// A caller that executes the program as Linux has it, in a bad state.
fn execute(random: &mut Random) {
    for fd in 0..3 {
        if random.one_in(3) {
            libc::close(fd);
        }
    }
    libc::hostile_state(random.word(), 1 + random.below(30_000));
    let text = |random: &mut Random, most: u64| "x".repeat(random.below(most) as usize);
    let most = random.of(&[2, 2, 50, 9000]);
    let mut arguments = vec![NAME.to_string()];
    (0..random.below(8)).for_each(|_| arguments.push(text(random, most)));
    let environment: Vec<String> =
        (0..random.below(8)).map(|_| format!("XOK_STRACE={}", text(random, most))).collect();
    libc::execute(JOB, &arguments, &environment);
}

/// One caller, and what falls on it from outside.
fn caller(door: door::Door, seed: u64, numbers: Numbers, page: u64, found: &AtomicU64) {
    let mut random = Random(seed | 1);
    // Until seeds that lie close together say different things.
    for _ in 0..20 {
        random.word();
    }
    let (forges, moment) = (random.one_in(2), random.below(60_000));
    let blow = random.of(&[0, 0, 9, 15, 19, 10]);
    let pid = libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 1;
        }
        if forges {
            found.fetch_or(forge(door, &mut random, numbers, page), Ordering::SeqCst);
        } else {
            execute(&mut random);
        }
        found.fetch_or(probe(numbers), Ordering::SeqCst);
        0
    });
    (0..moment).for_each(|_| std::hint::spin_loop());
    if blow != 0 {
        libc::send(pid, blow);
    }
    libc::wait_for_end(pid);
}

/// What is left: files as they were, a ledger in which only that user stands.
fn judge(numbers: Numbers, found: u64) -> Result<usize, String> {
    expect(found == 0, || format!("a caller found {found:#x}"))?;
    for path in [DATA, SECRET] {
        let text = fs::read_to_string(path).unwrap_or_default();
        expect(text == UNTOUCHED, || format!("{path} is {text:?}"))?;
        let mode = fs::metadata(path).map_or(0, |found| found.mode());
        expect(mode & 0o7777 == 0o600, || format!("{path} has mode {mode:o}"))?;
    }
    expect(shown() == numbers.shown, || "the data is another file".into())?;
    let ledger = fs::read_to_string(LEDGER).unwrap_or_default();
    let wrong = ledger.lines().find(|line| *line != format!("{NOBODY} 0 0"));
    expect(wrong.is_none(), || format!("it ran as {wrong:?}"))?;
    Ok(ledger.lines().count())
}

/// So many callers from this seed.
pub fn many(door: door::Door, callers: u64, seed: u64) -> Seen {
    prepare().map_err(|error| format!("{PLACE}: {error}"))?;
    let [job, locked, data, secret] = [JOB, LOCKED, DATA, SECRET].map(|path| number(door, path));
    let numbers = Numbers { job, locked, data, secret, shown: shown() };
    let (page, word) = (libc::shared(1), libc::shared(1));
    let found = &libc::words(word, 1)[0];
    for at in 0..callers {
        caller(
            door,
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(at << 17),
            numbers,
            page,
            found,
        );
        if at % 50 == 49 {
            judge(numbers, found.load(Ordering::SeqCst))
                .map_err(|what| format!("caller {at}, seed {seed}: {what}"))?;
        }
    }
    let ran = judge(numbers, found.load(Ordering::SeqCst))?;
    expect(ran as u64 >= callers / 30, || format!("it ran {ran} times of {callers}: too few"))?;
    let _ = fs::remove_dir_all(PLACE);
    Ok(format!("({callers} callers, {ran} programs, seed {seed})"))
}

/// Some of them, from a seed of their own each time.
pub fn hostile_callers(door: door::Door) -> Seen {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    many(door, CALLERS, now.map_or(1, |now| now.as_nanos() as u64))
}

/// The domain that the server of set-id programs builds for the caller, which is of user 65534,
/// and for the program at `path`, with this block to begin with. `page` is room for a page.
pub fn domain_of(door: door::Door, block: &[u8], page: u64, path: &str) -> Option<DomainId> {
    domain_for(door, (std::process::id(), [NOBODY; 2]), block, page, path)
}

/// The same for a caller that says that this is its process, and that these are its real and its
/// effective group.
pub fn domain_for(
    door: door::Door,
    (process, groups): (u32, [u32; 2]),
    block: &[u8],
    page: u64,
    path: &str,
) -> Option<DomainId> {
    let region = offer(door, block, page)?;
    let request = Request {
        process,
        file: File { kind: MEMORY, number: node_of(door, NOBODY, path)? },
        directory: File { kind: IMAGE, number: 0 },
        users: [NOBODY; 2],
        groups,
        region: region.0,
        bytes: block.len(),
    };
    let server = EnvId(services::get(Service::SetId) as u32);
    let answer = loop {
        match libc::transfer(door, server, request.to_words()) {
            Err((Error::Busy, _)) => std::thread::yield_now(),
            other => break other,
        }
    };
    match answer {
        Ok([0, domain, ..]) => Some(DomainId(domain)),
        _ => None,
    }
}
