//! The file server.

use super::{Children, Measured, as_user, now};
use crate::deputies::{ANN, NOBODY, ask_by, node_of};
use crate::{expect, forgers, libc};
use std::fs::{self, File};
use std::io::Write;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use unix::process_page::{HELD, HELD_ANY, ProcessPage};
use unix::protocol::{AT_END, LOCK_EXCLUSIVE, Operation, SHOWN_PAGES, TRANSFER_BYTES, inline};

pub(super) const PLACE: &str = "/tmp/delays";

/// Pages of the large file.
const LARGE: u64 = 4096;
/// Directories above each other.
const DEPTH: usize = 8000;
/// Names in one directory.
const NAMES: usize = 4000;
/// Locks on one file.
const LOCKS: u64 = 2000;
/// Open files, then sockets, that end at once, as far as there is room for them.
const OPEN: usize = 900;
/// Processes that say that they hold everything, and files of user 0's.
const HOLDERS: usize = 60;
const ROOTS: usize = 40;
/// What an answer may take while programs with many files open end: 3,013,113 beside the 2,107 that
/// a user may have, if the server lets go of all at once.
pub const ENDS_BOUND: u64 = 2_400_000;
/// Processes that end with [`OPEN`] files open.
const HOLDERS_OF_MANY: usize = 4;
/// Writes of another user's meanwhile: longer than the server waits before it looks for ends.
const ANSWERS_IN_A_ROW: usize = 200_000;
/// Programs that fill files, and how large these are.
const PROGRAMS: usize = 4;
const FILE_MIB: usize = 24;
/// Clients that ask for as much as they can, and answers that another one gets meanwhile, at times
/// that fall anywhere in their slices.
const ATTACKERS: usize = 3;
const ANSWERS: usize = 100;
const SECOND: Duration = Duration::from_secs(2);
pub(super) const PAUSE: Duration = Duration::from_millis(23);

/// A client of the file server.
struct Asker {
    door: door::Door,
    region: u32,
    all: Vec<(String, u64)>,
}

impl Asker {
    /// By a wide region.
    fn new(door: door::Door) -> Option<Self> {
        let place = format!("{PLACE}/wide-{}", std::process::id());
        fs::write(&place, vec![1; TRANSFER_BYTES as usize]).ok()?;
        fs::remove_file(&place).ok()?;
        Some(Self { door, region: forgers::transport()?, all: Vec::new() })
    }

    fn ask(
        &mut self,
        what: &str,
        operation: Operation,
        arguments: [u64; 4],
    ) -> Result<[u64; 4], String> {
        self.try_ask(what, operation, arguments).map_err(|errno| format!("{what}: {errno}"))
    }

    fn try_ask(
        &mut self,
        what: &str,
        operation: Operation,
        arguments: [u64; 4],
    ) -> Result<[u64; 4], u16> {
        let begun = now();
        let answer = ask_by(self.door, self.region, NOBODY, operation, arguments);
        let took = now() - begun;
        match self.all.iter_mut().find(|(known, _)| known == what) {
            Some((_, longest)) => *longest = took.max(*longest),
            None => self.all.push((what.into(), took)),
        }
        answer
    }

    fn named(&self, directory: u64, name: &[u8], what: u64) -> [u64; 4] {
        let [first, second] = inline(name).unwrap_or_default();
        [directory, name.len() as u64 | what, first, second]
    }

    /// Makes a file or finds it.
    fn file(&mut self, directory: u64, name: &[u8]) -> Result<u64, String> {
        let words = self.named(directory, name, 0o644 << 32);
        Ok(self.ask("make", Operation::Make, words)?[0])
    }

    fn fill(&mut self, file: u64) -> Result<(), String> {
        for _ in 0..LARGE * 4096 / TRANSFER_BYTES {
            self.ask("write", Operation::Write, [file, AT_END, TRANSFER_BYTES, 0])?;
        }
        Ok(())
    }

    /// Asks for little until nothing more is left of what was done before.
    fn rest(&mut self, what: &str) -> Result<(), String> {
        for _ in 0..200 {
            self.ask(&format!("after {what}"), Operation::Space, [0; 4])?;
        }
        Ok(())
    }
}

fn contents(asker: &mut Asker, own: u64) -> Result<(), String> {
    let file = asker.file(own, b"large")?;
    asker.fill(file)?;
    asker.ask("read", Operation::Read, [file, 0, TRANSFER_BYTES, 0])?;
    // Over and over at one place, whose tables are there.
    let space = libc::shared(SHOWN_PAGES);
    libc::bytes(space, SHOWN_PAGES * 4096).fill(1);
    for first in (0..LARGE).step_by(SHOWN_PAGES) {
        asker.ask("show", Operation::Show, [file, first, space, 0])?;
    }
    asker.ask("cut", Operation::Truncate, [file, 4096, 0, 0])?;
    asker.rest("cut")?;
    asker.fill(file)?;
    asker.ask("far", Operation::Truncate, [file, i64::MAX as u64, 0, 0])?;
    asker.ask("far write", Operation::Write, [file, 1 << 60, TRANSFER_BYTES, 0])?;
    let words = asker.named(own, b"large", 0);
    asker.ask("remove", Operation::Remove, words)?;
    asker.rest("remove")
}

fn names(asker: &mut Asker, own: u64) -> Result<(), String> {
    for name in 0..NAMES {
        asker.file(own, format!("{name}").as_bytes())?;
    }
    let mut position = 0;
    while position < 3 * NAMES as u64 / 2 {
        asker.ask("list", Operation::List, [own, position, 4096, 0])?;
        position += 50;
    }
    for name in 0..NAMES {
        let words = asker.named(own, format!("{name}").as_bytes(), 0);
        asker.ask("remove name", Operation::Remove, words)?;
    }
    Ok(())
}

/// `MakeDirectory` takes the name from the region: two names lie there already.
fn depth(asker: &mut Asker) -> Result<(), String> {
    let base = format!("{PLACE}/deep");
    fs::create_dir_all(format!("{base}/d")).map_err(|why| why.to_string())?;
    fs::create_dir_all(format!("{base}/e")).map_err(|why| why.to_string())?;
    // The first name in the region is `e` now: that is what is made, one in the other.
    let mut at = node_of(asker.door, NOBODY, &format!("{base}/d")).ok_or("no directory")?;
    let other = node_of(asker.door, NOBODY, &base).ok_or("no directory")?;
    for _ in 0..DEPTH {
        at = asker.ask("make directory", Operation::MakeDirectory, [at, 1, 0o755, 0])?[0];
    }
    // Now the first name in the region is `m`, the second one `n`.
    let [m, n] = ["m", "n"].map(|name| format!("{base}/{name}"));
    let both = fs::create_dir(&m).and_then(|()| fs::rename(&m, &n));
    both.and_then(|()| fs::create_dir(&m)).map_err(|why| why.to_string())?;
    asker.ask("move", Operation::Rename, [other, at, 1 | 1 << 32, 0])?;
    Ok(())
}

fn locks(asker: &mut Asker, own: u64) -> Result<(), String> {
    let file = asker.file(own, b"locked")?;
    for at in 0..LOCKS {
        asker
            .try_ask("lock", Operation::Lock, [file, LOCK_EXCLUSIVE, 2 * at, 2 * at])
            .map_err(|why| format!("lock {at}: {why}"))?;
    }
    asker.ask("lock all", Operation::Lock, [file, LOCK_EXCLUSIVE, 0, u64::MAX])?;
    Ok(())
}

/// What a process may have many of, and what makes them.
type Kind = (&'static str, fn() -> usize);

/// Processes that have many of something end: all at once they are nobody's.
fn ends(asker: &mut Asker) -> Result<(), String> {
    let kinds: [Kind; 3] = [
        ("files", || many(|_| File::create(format!("{PLACE}/open")).ok())),
        ("inboxes", || {
            many(|at| UnixDatagram::bind(format!("{PLACE}/inbox-{}-{at}", std::process::id())).ok())
        }),
        ("ports", || {
            many(|at| UnixListener::bind(format!("{PLACE}/port-{}-{at}", std::process::id())).ok())
        }),
    ];
    let mut counts = Vec::new();
    for (what, make) in kinds {
        let children = Children::of(3, || Some(make() as u16))?;
        counts.push(children.said.iter().map(|&said| usize::from(said)).sum::<usize>());
        children.end();
        asker.rest(&format!("the end of {what}"))?;
        // Whatever the user has had it may have again: with nobody's help, after a second.
        std::thread::sleep(SECOND);
        // So that it looks for what has ended, whatever it has kept until now.
        let more = File::create(format!("{PLACE}/more"));
        asker.rest(&format!("the end of {what}, and an open"))?;
        drop(more);
    }
    let enough = counts.iter().all(|&count| count > 100);
    expect(enough, || format!("{counts:?} files, inboxes and ports only"))
}

/// Makes many, and leaves them open; how many.
fn many<T>(make: impl Fn(usize) -> Option<T>) -> usize {
    let all: Vec<T> = (0..OPEN).map_while(make).collect();
    std::mem::ManuallyDrop::new(all).len()
}

/// Says in the own page that it holds whatever there is.
fn hold_all(door: door::Door) -> Option<u16> {
    // Asked once by the library: so there is a way to the server.
    fs::write(format!("{PLACE}/holds-{}", std::process::id()), "x").ok()?;
    let own = u64::from(std::process::id());
    ask_by(door, forgers::transport()?, NOBODY, Operation::Holder, [own, 0, 0, 0]).ok()?;
    for half in 0..2 * HELD {
        let place = libc::own_page_word(offset_of!(ProcessPage, held) + 4 * half);
        place.store(HELD_ANY as u32, Ordering::SeqCst);
    }
    Some(1)
}

/// Processes that say that they hold everything, while files of another user's lose their names.
fn holders(asker: &mut Asker) -> Result<(), String> {
    let directory = node_of(asker.door, NOBODY, PLACE).ok_or("no directory")?;
    let door = asker.door;
    let children = Children::of(HOLDERS, || hold_all(door))?;
    for at in 0..ROOTS {
        let words = asker.named(directory, format!("root-{at}").as_bytes(), 0);
        asker.ask("the end of what is said to be held", Operation::Remove, words)?;
    }
    asker.rest("the end of what is said to be held")?;
    children.end();
    asker.rest("the end of holders")
}

pub(super) fn prepare() -> Result<(), String> {
    let _ = fs::remove_dir_all(PLACE);
    fs::create_dir(PLACE).map_err(|why| why.to_string())?;
    libc::set_mode(PLACE, 0o777);
    let roots = (0..ROOTS).try_for_each(|at| fs::write(format!("{PLACE}/root-{at}"), "x"));
    roots.map_err(|why| why.to_string())
}

/// One client asks for what is dearest: so long the server is busy at most.
pub fn alone(door: door::Door) -> Measured {
    prepare()?;
    as_user(NOBODY, || {
        let mut asker = Asker::new(door).ok_or("no way to the file server")?;
        fs::create_dir(format!("{PLACE}/own")).map_err(|why| why.to_string())?;
        let own = node_of(door, NOBODY, &format!("{PLACE}/own")).ok_or("no directory")?;
        contents(&mut asker, own)?;
        names(&mut asker, own)?;
        depth(&mut asker)?;
        locks(&mut asker, own)?;
        ends(&mut asker)?;
        holders(&mut asker)?;
        Ok(asker.all)
    })
}

/// Clients that ask for what is dear without end, and one of another user's that asks for little
/// now and then: how long it waits.
pub fn beside(door: door::Door) -> Measured {
    prepare()?;
    let done = libc::words(libc::shared(1), ATTACKERS);
    let attackers: Vec<i32> =
        done.iter().map(|done| libc::spawn(|| attack(door, done).unwrap_or(1))).collect();
    let victim = write_again(ANSWERS);
    for attacker in attackers {
        libc::send(attacker, 9);
        libc::wait(attacker);
    }
    let done: Vec<u64> = done.iter().map(libc::count).collect();
    // Each of them has been served meanwhile, and more than now and then.
    expect(done.iter().all(|&done| done > 1000), || format!("they have done {done:?}"))?;
    victim
}

/// Programs that fill files and remove them, as Linux programs do: each waits for the server while
/// it is busy, and there are always some that wait.
pub fn beside_programs(_: door::Door) -> Measured {
    prepare()?;
    let done = &libc::words(libc::shared(1), 1)[0];
    let programs: Vec<i32> =
        (0..PROGRAMS).map(|_| libc::spawn(|| end_files(done).unwrap_or(1))).collect();
    while done.load(Ordering::SeqCst) < PROGRAMS as u64
        && programs.iter().all(|&program| libc::is_alive(program))
    {
        std::thread::sleep(PAUSE);
    }
    let victim = write_again(ANSWERS);
    let alive = programs.iter().all(|&program| libc::is_alive(program));
    for program in programs {
        libc::send(program, 9);
        libc::wait(program);
    }
    expect(alive, || "the programs have ended".into())?;
    victim
}

/// Fills a file and removes it, again and again.
fn end_files(done: &AtomicU64) -> Option<i32> {
    if !libc::become_user(NOBODY) {
        return None;
    }
    let place = format!("{PLACE}/ends-{}", std::process::id());
    let piece = vec![1; 1 << 20];
    loop {
        let mut file = File::create(&place).ok()?;
        for _ in 0..FILE_MIB {
            file.write_all(&piece).ok()?;
        }
        fs::remove_file(&place).ok()?;
        done.fetch_add(1, Ordering::SeqCst);
    }
}

/// Programs with many files open that end at once: each description is a region that the server
/// lets go of.
pub fn beside_ends(_: door::Door) -> Measured {
    prepare()?;
    let opens = || {
        if !libc::become_user(NOBODY) {
            return None;
        }
        let place = format!("{PLACE}/open-{}", std::process::id());
        File::create(&place).ok()?;
        let files: Vec<File> = (0..OPEN).map_while(|_| File::open(&place).ok()).collect();
        let count = files.len() as u16;
        std::mem::forget(files);
        Some(count)
    };
    let programs = Children::of(HOLDERS_OF_MANY, opens)?;
    let open: usize = programs.said.iter().map(|&count| usize::from(count)).sum();
    expect(open >= HOLDERS_OF_MANY * OPEN / 2, || format!("{open} descriptions"))?;
    let killer = libc::spawn(|| {
        programs.pids.iter().for_each(|&program| libc::send(program, 9));
        0
    });
    let victim = write_in_rows(ANSWERS_IN_A_ROW, ANSWERS_IN_A_ROW, Duration::ZERO);
    libc::wait(killer);
    programs.end();
    let mut all = victim?;
    all.iter_mut().for_each(|(what, _)| *what += &format!(", of {open} descriptions that end"));
    Ok(all)
}

/// How long the longest of so many writes of one byte takes another user, so many in a row, with
/// this pause before each row.
pub(super) fn write_in_rows(count: usize, in_row: usize, pause: Duration) -> Measured {
    as_user(ANN, || {
        let file = File::create(format!("{PLACE}/ann")).map_err(|why| why.to_string())?;
        let mut longest = (String::new(), 0);
        for at in 0..count {
            if at % in_row == 0 {
                std::thread::sleep(pause);
            }
            let begun = now();
            file.write_all_at(b"x", 0).map_err(|why| why.to_string())?;
            let took = now() - begun;
            if took > longest.1 {
                longest = (format!("for answer {at}"), took);
            }
        }
        Ok(vec![longest])
    })
}

/// How long another user's writes of one byte take, at times that fall anywhere in others' slices.
pub(super) fn write_again(count: usize) -> Measured {
    as_user(ANN, || {
        let file = File::create(format!("{PLACE}/ann")).map_err(|why| why.to_string())?;
        let mut all = Vec::new();
        for at in 0..count {
            std::thread::sleep(PAUSE);
            let begun = now();
            file.write_all_at(b"x", 0).map_err(|why| why.to_string())?;
            all.push((format!("for answer {at}"), now() - begun));
        }
        Ok(all)
    })
}

/// Writes as much as one request may, again and again.
fn attack(door: door::Door, done: &AtomicU64) -> Option<i32> {
    if !libc::become_user(NOBODY) {
        return None;
    }
    let mut asker = Asker::new(door)?;
    let place = format!("{PLACE}/dear-{}", std::process::id());
    let _file = File::create(&place).ok()?;
    let node = node_of(door, NOBODY, &place)?;
    loop {
        asker.ask("write", Operation::Write, [node, 0, TRANSFER_BYTES, 0]).ok()?;
        done.fetch_add(1, Ordering::SeqCst);
    }
}
