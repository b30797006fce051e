//! What a process knows of another user's files from the time when it was that one.
//!
//! A program that logs somebody in looks files up as user 0, steps down, and runs what that user
//! likes. Handles and seals that the file server told are words in its library's memory, and so in
//! its children's; other processes of the new user can have the kernel show that memory to all.

use super::{ANN, NOBODY, ask_by, failed, look, node_of, store};
use crate::peers::regions;
use crate::{Seen, Test, expect, forgers, libc, set_id};
use abi::call::Call;
use abi::id::{AccountId, DomainId, EnvId, RegionId};
use abi::layout::{LIBRARY, PAGE_SIZE};
use abi::published::{RegionRecord, Table};
use abi::region::WordAt;
use abi::setup::{EnvSetup, field};
use abi::word::{UserAddress, Which};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::Ordering;
use unix::protocol::{BY_SEAL, NAME_FIRST, Operation};
use xok::published;

/// What holds.
pub const TESTS: [Test; 6] = [
    ("former_users_files_stay_closed", former_users_files_stay_closed),
    ("programs_find_no_former_users_files", programs_find_no_former_users_files),
    ("heaps_tell_nothing_of_former_users", heaps_tell_nothing_of_former_users),
    ("seals_are_their_askers", seals_are_their_askers),
    ("opened_files_are_passed_on", opened_files_are_passed_on),
    ("former_senders_are_judged", former_senders_are_judged),
];

const PLACE: &str = "/tmp/seals";
const SECRET: &str = "/tmp/seals/shadow";
const TEXT: &str = "root:$6$the-hash-of-user-0-that-nobody-else-is-to-read:19000:0:99999:7:::";
/// A program that any user may execute, and what it is called there.
const PROGRAM: &str = "/tmp/seals-scan";
const SCAN: &str = "seals-scan";
/// The same behind a child that had the file open: frames of one account are not cleared between
/// its programs (decision 0004), and a handle alone opens nothing.
const SCAN_LATER: &str = "seals-scan-later";
const STEPS_DOWN: &str = "seals-steps-down";
const CLOSES: &str = "seals-closes";
/// The library's variables, stacks and heap; and where it has files' pages.
const MEMORY: std::ops::Range<u64> = LIBRARY + 0x0800_0000..LIBRARY + 0x0880_0000;
const SHOWN: std::ops::Range<u64> = LIBRARY + 0x4000_0000..LIBRARY + 0x4020_0000;
/// Reads after which a file's pages are shown.
const READS: usize = 8;
/// Descriptors closed before a program: more than soon come again as something else.
const KEPT: usize = 24;
/// What a scan finds: a good seal, the handle, the text, that a path opens it, nothing to look at.
const A_SEAL: i32 = 1;
const A_HANDLE: i32 = 2;
const THE_TEXT: i32 = 4;
const A_WAY: i32 = 8;
const NO_MEMORY: i32 = 16;

/// It is where the program before it was.
const THE_PLACE: i32 = 32;

/// What [`PROGRAM`] is, by what it is called: it executes another one, or looks for the file with
/// the handle, and whether it is in the domain that its process was in before.
pub fn role(door: Option<door::Door>, words: &[String]) -> Option<u8> {
    let [name, handle, last, user] = words else { return None };
    let handle = Hidden(handle.parse().unwrap_or(0));
    let status = match name.as_str() {
        STEPS_DOWN => step_down(last, handle, user.parse().ok()?),
        CLOSES => close(last, handle, user.parse().ok()?),
        SCAN | SCAN_LATER => {
            let stays = last.parse() == Ok(own_domain().0);
            let place = if stays { THE_PLACE } else { 0 };
            let passes = if name.as_str() == SCAN { 0 } else { A_HANDLE };
            door.map_or(99, |door| scan(door, &memory(), handle) & !passes | place)
        }
        _ => return None,
    };
    Some(status as u8)
}

/// The handle of the file, as a word that is none: the own registers are in the library's memory.
#[derive(Clone, Copy)]
struct Hidden(u64);

impl Hidden {
    fn of(handle: u64) -> Self {
        std::hint::black_box(Self(!handle))
    }

    fn handle(self) -> u64 {
        !std::hint::black_box(self).0
    }
}

/// Has the library ask the server for the process, so that there is a way; what it is.
fn way() -> Option<u32> {
    let _ = fs::metadata(format!("/tmp/none-{}", std::process::id()));
    forgers::transport()
}

fn own_domain() -> DomainId {
    published::env_domain(EnvId(std::process::id())).unwrap_or(DomainId::NONE)
}

/// Executes the program that looks.
fn execute(program: &str, role: &str, handle: Hidden) -> i32 {
    let words = [role, &handle.0.to_string(), &own_domain().0.to_string(), "0"];
    libc::execute(program, &words.map(str::to_string), &[]);
    102
}

/// Makes the file, and its handle.
fn prepare(door: door::Door) -> Result<Hidden, String> {
    let _ = fs::remove_dir_all(PLACE);
    set_id::copy_program(PROGRAM).map_err(failed)?;
    libc::set_mode(PROGRAM, 0o755);
    fs::create_dir(PLACE).map_err(failed)?;
    fs::write(SECRET, TEXT).map_err(failed)?;
    libc::set_mode(SECRET, 0o600);
    libc::set_mode(PLACE, 0o700);
    node_of(door, 0, SECRET).map(Hidden::of).ok_or("it has no handle".into())
}

/// Does with the file what programs do before they step down.
fn use_it() -> bool {
    let reads = || fs::read_to_string(SECRET).is_ok_and(|text| text == TEXT);
    let Ok(mut file) = File::open(SECRET) else { return false };
    let mut text = String::new();
    let mut again = || {
        text.clear();
        file.seek(SeekFrom::Start(0)).is_ok() && file.read_to_string(&mut text).is_ok()
    };
    (0..READS).all(|_| again()) && reads() && fs::metadata(SECRET).is_ok()
}

/// The words of pages that are there.
fn pages(range: std::ops::Range<u64>) -> Vec<u64> {
    let there = range.step_by(PAGE_SIZE as usize).filter(|&at| xok::own::leaf(at).is_some());
    let words = there.flat_map(|at| libc::words(at, PAGE_SIZE as usize / 8));
    words.map(|word| word.load(Ordering::Relaxed)).collect()
}

/// The own library's memory.
fn memory() -> Vec<u64> {
    pages(MEMORY)
}

/// All of a process's: an environment in its domain that never runs shows page after page to
/// everybody, as its application page.
fn memory_of(door: door::Door, process: i32) -> Vec<u64> {
    let Some(domain) = published::env_domain(EnvId(process as u32)) else { return Vec::new() };
    let (which, vector, account) = (Which::Any, Which::Any, AccountId::NONE);
    let make = |slot| {
        let made = libc::kernel_by(door, Call::EnvAlloc { which, domain, account, vector }, slot);
        made.ok().map(|env| (EnvId(env as u32), slot))
    };
    // By its user's name, or by that which guards the domain of who has stepped down.
    let Some((env, slot)) = (0..32).find_map(make) else { return Vec::new() };
    let mut words = Vec::new();
    for application_page in MEMORY.step_by(PAGE_SIZE as usize) {
        let setup = EnvSetup { application_page, ..Default::default() };
        let setup = UserAddress(&raw const setup as u64);
        let set = Call::EnvSet { env, fields: field::APPLICATION_PAGE, setup };
        if libc::kernel_by(door, set, slot).is_ok()
            && let Some(page) = published::application(env.index())
        {
            words.extend((0..PAGE_SIZE as usize / 8).map(|at| page.word(8 * at)));
        }
    }
    let _ = libc::kernel_by(door, Call::EnvDestroy { env, word: 0 }, slot);
    let _ = libc::kernel_by(door, Call::EnvForget { env }, slot);
    words
}

fn has_text(words: &[u64]) -> bool {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.windows(24).any(|part| part == &TEXT.as_bytes()[..24])
}

/// Is it in a region that the process has?
fn is_in_regions(door: door::Door) -> bool {
    regions().into_iter().any(|id| {
        let record = published::record::<RegionRecord>(Table::Regions, RegionId(id).index());
        let bytes = record.map_or(0, |record| u64::from(record.bytes));
        (0..bytes / PAGE_SIZE).any(|page| {
            let part = (0..4).find_map(|role| look(door, id, role, page * PAGE_SIZE, 4096));
            part.is_some_and(|part| part.windows(24).any(|part| part == &TEXT.as_bytes()[..24]))
        })
    })
}

/// A user for one scan: the scan's own stack has the handle, and frames of one account are not
/// cleared between its programs, so that the next scan by the same user could find it there.
fn unused(nth: u32) -> u32 {
    NOBODY - 1 - nth
}

/// What these words, and what else the process has, are good for, if it knew the file's handle.
fn scan(door: door::Door, words: &[u64], handle: Hidden) -> i32 {
    let (own, handle) = (libc::users()[0], handle.handle());
    if words.is_empty() {
        return NO_MEMORY;
    }
    let opens = File::open(SECRET).is_ok();
    let Some(region) = way() else { return NO_MEMORY };
    let is_random = |&word: &u64| !matches!(word >> 48, 0 | 0xffff);
    let mut seals: Vec<u64> = words.iter().copied().filter(is_random).collect();
    seals.sort_unstable();
    seals.dedup();
    let permits = |seal: u64| {
        [4, 2].iter().any(|right| {
            let arguments = [handle, right | BY_SEAL, seal, 0];
            seal & right != 0 && ask_by(door, region, own, Operation::Access, arguments).is_ok()
        })
    };
    let good = seals.iter().any(|&seal| permits(seal));
    let text = has_text(words) || has_text(&pages(SHOWN)) || is_in_regions(door);
    let found = [(good, A_SEAL), (words.contains(&handle), A_HANDLE), (text, THE_TEXT)];
    let found = found.into_iter().chain([(opens, A_WAY)]);
    found.map(|(is, bit)| if is { bit } else { 0 }).sum()
}

fn is_nothing(of: &str, status: i32) -> Result<(), String> {
    let text = fs::read_to_string(SECRET).map_err(failed)?;
    expect(status == 0 && text == TEXT, || {
        let means = "0x100: a seal is good, 0x200 a handle is there, 0x400 the text, 0x800 a way, \
                     0x2000 the same domain";
        format!("{of}: status {status:#x} ({means})")
    })
}

/// Who has used a file as user 0 and is another one now reaches it no more, by nothing that its
/// library has in its memory, and neither do its children.
fn former_users_files_stay_closed(door: door::Door) -> Seen {
    let handle = prepare(door)?;
    let status = libc::wait(libc::spawn(|| {
        if !use_it() || !libc::become_user(unused(0)) {
            return 100;
        }
        scan(door, &memory(), handle)
    }));
    is_nothing("who steps down", status)?;
    let status = libc::wait(libc::spawn(|| {
        if !use_it() || !libc::become_user(unused(1)) {
            return 100;
        }
        libc::wait(libc::spawn(|| scan(door, &memory(), handle))) >> 8
    }));
    is_nothing("its child", status)?;
    let status = libc::wait(libc::spawn(|| {
        if !use_it() {
            return 100;
        }
        libc::wait(libc::spawn(|| match libc::become_user(unused(2)) {
            true => scan(door, &memory(), handle),
            false => 100,
        })) >> 8
    }));
    is_nothing("a child that steps down", status).map(|()| String::new())
}

/// Nor does a program that it executes.
fn programs_find_no_former_users_files(door: door::Door) -> Seen {
    let handle = prepare(door)?;
    let image = std::env::current_exe().map_err(failed)?.to_string_lossy().into_owned();
    for (program, first) in [(PROGRAM, 0), (&*image, 2)] {
        for (role, user) in [(STEPS_DOWN, unused(first)), (CLOSES, unused(first + 1))] {
            // In small memory of its own, which the next program could go on with.
            let words = [role, &handle.0.to_string(), program, &user.to_string()];
            let words = words.map(str::to_string);
            let status = libc::wait(libc::spawn(|| {
                libc::execute(PROGRAM, &words, &[]);
                103
            }));
            is_nothing(&format!("{role}, {program}"), status)?;
        }
    }
    Ok(String::new())
}

/// One that uses the file, and steps down.
fn step_down(program: &str, handle: Hidden, user: u32) -> i32 {
    if !use_it() || !libc::become_user(user) {
        return 100;
    }
    execute(program, SCAN, handle)
}

/// One that has descriptors which the next program does not get.
fn close(program: &str, handle: Hidden, user: u32) -> i32 {
    let open = || OpenOptions::new().read(true).write(true).open(SECRET).ok();
    let Some(kept) = (0..KEPT).map(|_| open()).collect::<Option<Vec<File>>>() else {
        return 100;
    };
    if !libc::become_user(user) {
        return 101;
    }
    // The next one, still trusted, has no other memory than its own.
    let pid = libc::spawn(|| {
        kept.iter().for_each(|one| libc::close(one.as_raw_fd()));
        execute(program, SCAN, handle)
    });
    match libc::wait(pid) >> 8 {
        0 => execute(program, SCAN_LATER, handle),
        status => status,
    }
}

/// Nor is there anything in the memory of a child of who has stepped down, the library's heap
/// included: others of the new user do not see it, but what it may be made to tell is nothing.
fn heaps_tell_nothing_of_former_users(door: door::Door) -> Seen {
    let handle = prepare(door)?;
    let status = libc::wait(libc::spawn(|| {
        if !use_it() || !libc::become_user(NOBODY) {
            return 100;
        }
        let own = || memory_of(door, std::process::id() as i32);
        libc::wait(libc::spawn(|| scan(door, &own(), handle))) >> 8
    }));
    is_nothing("a child's memory", status)?;
    Ok(String::new())
}

/// A seal is worth nothing to another user, to another process, and to its owner as another user.
fn seals_are_their_askers(door: door::Door) -> Seen {
    let handle = prepare(door)?.handle();
    let region = forgers::transport().ok_or("no way to the server")?;
    let [_, seal, ..] = ask_by(door, region, 0, Operation::Open, [handle, 2, 0, 0])
        .map_err(|errno| format!("open: {errno}"))?;
    let good = |user: u32| {
        let Some(region) = way() else { return 50 };
        let ask = |operation, arguments| ask_by(door, region, user, operation, arguments).is_ok();
        let by_seal = ask(Operation::Access, [handle, 6 | BY_SEAL, seal, 0]);
        let domain = own_domain();
        let ids = u64::from(user) | u64::from(user) << 32;
        let passes = ask(Operation::Seal, [handle, seal, domain.0, ids]);
        let reads = user != 0 && ask(Operation::Read, [handle, 0, 64, seal]);
        i32::from(by_seal) | i32::from(passes) << 1 | i32::from(reads) << 2
    };
    let own = good(0);
    expect(own == 3, || format!("its own: {own}, not 3"))?;
    for user in [NOBODY, ANN] {
        let status = libc::wait(libc::spawn(|| match libc::become_user(user) {
            true => good(user),
            false => 100,
        }));
        expect(status == 0, || format!("user {user}: status {status:#x}"))?;
    }
    let status = libc::wait(libc::spawn(|| good(0)));
    expect(status == 0, || format!("another process of user 0's: status {status:#x}"))?;
    // One that is told it itself, and steps down.
    let status = libc::wait(libc::spawn(|| {
        let Some(region) = way() else { return 50 };
        let Ok([_, seal, ..]) = ask_by(door, region, 0, Operation::Open, [handle, 2, 0, 0]) else {
            return 51;
        };
        if !libc::become_user(NOBODY) {
            return 52;
        }
        let Some(region) = way() else { return 53 };
        let access = [handle, 4 | BY_SEAL, seal, 0];
        i32::from(ask_by(door, region, NOBODY, Operation::Access, access).is_ok())
            | i32::from(
                ask_by(door, region, NOBODY, Operation::Read, [handle, 0, 64, seal]).is_ok(),
            ) << 1
    }));
    expect(status == 0, || format!("who stepped down: status {status:#x}"))?;
    Ok(String::new())
}

/// Reads the whole, and adds to it, by a descriptor.
fn works(file: &mut File, text: &str) -> bool {
    let mut seen = String::new();
    file.seek(SeekFrom::Start(0)).is_ok()
        && file.read_to_string(&mut seen).is_ok()
        && seen == text
        && file.seek(SeekFrom::Start(0)).is_ok()
        && file.write_all(text.as_bytes()).is_ok()
}

/// A descriptor goes on in whoever has it: after ids have changed, in children, in theirs.
fn opened_files_are_passed_on(door: door::Door) -> Seen {
    prepare(door)?;
    let status = libc::wait(libc::spawn(|| {
        let Ok(mut file) = OpenOptions::new().read(true).write(true).open(SECRET) else {
            return 1;
        };
        if !works(&mut file, TEXT) {
            return 2;
        }
        let first = libc::wait(libc::spawn(|| {
            let as_root = works(&mut file, TEXT);
            let steps = libc::become_user(NOBODY) && works(&mut file, TEXT);
            i32::from(!as_root) * 3 + i32::from(!steps) * 4
        }));
        if first != 0 {
            return first >> 8;
        }
        if !libc::become_user(NOBODY) || !works(&mut file, TEXT) {
            return 10;
        }
        let second = libc::wait(libc::spawn(|| {
            let child = works(&mut file, TEXT);
            let grandchild = libc::wait(libc::spawn(|| i32::from(!works(&mut file, TEXT))));
            i32::from(!child) * 11 + i32::from(grandchild != 0) * 12
        }));
        if second != 0 {
            return second >> 8;
        }
        // For writing alone it stays: no mode permits it any more.
        i32::from(fs::read(SECRET).is_ok() || !works(&mut file, TEXT)) * 13
    }));
    is_nothing("the holders", status).map(|()| String::new())
}

/// Who was connected to a socket of user 0's by a name that is closed to it now sends there by the
/// socket alone.
fn former_senders_are_judged(door: door::Door) -> Seen {
    const INBOX: &str = "/tmp/seals-inbox";
    const DATAGRAM: u64 = 2;
    let _ = fs::remove_file(INBOX);
    let inbox = UnixDatagram::bind(INBOX).map_err(failed)?;
    libc::set_mode(INBOX, 0o600);
    let node = node_of(door, 0, INBOX).ok_or("it has no handle")?;
    let status = libc::wait(libc::spawn(|| {
        libc::close(inbox.as_raw_fd());
        let Ok(socket) = UnixDatagram::unbound() else { return 1 };
        if socket.connect(INBOX).is_err() {
            return 2;
        }
        let Some(region) = forgers::transport() else { return 3 };
        let connect = [node, DATAGRAM, 0, 0];
        let Ok([_, _, seal, handle]) = ask_by(door, region, 0, Operation::SocketConnect, connect)
        else {
            return 4;
        };
        if !libc::become_user(NOBODY) || socket.send(b"first").is_err() {
            return 5;
        }
        let Some(region) = forgers::transport() else { return 6 };
        let ids = u64::from(NOBODY) | u64::from(NOBODY) << 32;
        let send =
            |what| ask_by(door, region, NOBODY, Operation::SocketSend, [handle, 0, what, ids]);
        let by_handle = send(8).is_ok();
        // The seal that user 0 was told, where senders put theirs.
        let Some(id) = published::region_with(region) else { return 7 };
        let put = seal != 0 && store(door, id.0, WordAt { offset: NAME_FIRST, value: seal });
        let by_seal = send(8 | BY_SEAL).is_ok();
        let by_name = UnixDatagram::unbound().is_ok_and(|one| one.send_to(b"x", INBOX).is_ok());
        let child = libc::wait(libc::spawn(|| i32::from(socket.send(b"second").is_err())));
        let found = [!put, by_seal, by_handle, by_name, child != 0];
        found.into_iter().zip(3..).map(|(is, bit)| i32::from(is) << bit).sum()
    }));
    inbox.set_nonblocking(true).map_err(failed)?;
    let mut bytes = [0; 64];
    let mut got = Vec::new();
    while let Ok(len) = inbox.recv(&mut bytes) {
        got.push(bytes[..len].to_vec());
    }
    fs::remove_file(INBOX).map_err(failed)?;
    let words: Vec<&[u8]> = got.iter().map(|bytes| &bytes[..]).collect();
    expect(
        status == 0 && words.contains(&&b"first"[..]) && words.contains(&&b"second"[..]),
        || {
            let means =
                "0x1000: by user 0's seal, 0x2000 handle, 0x4000 name; 0x8000: no child sends";
            format!("status {status:#x} ({means}), {got:?}")
        },
    )?;
    Ok(String::new())
}
