//! Files of others: what the file server does for whoever names them.

use super::{
    ANN, NOBODY, ask, ask_as, ask_by, end, failed, look, nobody, node_of, say_held, store,
};
use crate::peers::regions;
use crate::{Seen, Test, expect, forgers, libc};
use abi::call::Call;
use abi::capability::NAME_GROUP;
use abi::domain::SET_OF_GROUPS;
use abi::id::{DomainId, EnvId};
use abi::region::WordAt;
use std::fs::{self, File};
use std::mem::offset_of;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use unix::Errno;
use unix::attributes::Credentials;
use unix::process_page::{HELD, HELD_ANY, ProcessPage};
use unix::protocol::{DATA, LOCK_EXCLUSIVE, NAME_FIRST, OF_IMAGE, Operation};
use xok::published;

/// What holds.
pub const TESTS: [Test; 13] = [
    ("users_act_for_themselves_alone", users_act_for_themselves_alone),
    ("directories_hide_what_is_in_them", directories_hide_what_is_in_them),
    ("locks_need_an_open_file", locks_need_an_open_file),
    ("readers_lock_no_readers_out", readers_lock_no_readers_out),
    ("image_files_are_locked_by_no_writer", image_files_are_locked_by_no_writer),
    ("locks_are_left_for_others", locks_are_left_for_others),
    ("nobody_holds_what_it_did_not_open", nobody_holds_what_it_did_not_open),
    ("nobody_holds_what_it_could_not_open", nobody_holds_what_it_could_not_open),
    ("no_programs_for_other_groups", no_programs_for_other_groups),
    ("group_0_acts_for_itself_alone", group_0_acts_for_itself_alone),
    ("links_of_others_lead_nobody_astray", links_of_others_lead_nobody_astray),
    ("strangers_leave_programs_as_they_are", strangers_leave_programs_as_they_are),
    ("files_of_others_are_not_made", files_of_others_are_not_made),
];

/// `EACCES`.
const DENIED: Option<u16> = Some(13);
const SECRET: &[u8] = b"what only user 0 finds";

/// Reads the files of user 0 by their numbers, whatever directories they lie in: those that lie
/// near `shown`, the number of one that it sees.
fn search(door: door::Door, shown: u64) -> Option<Vec<u8>> {
    let transport = forgers::transport()?;
    let transport = regions().into_iter().find(|&id| id as u32 == transport)?;
    let ages = (0..3_u64).flat_map(|age| (0..2048).map(move |index| age << 36 | index));
    for number in ages.chain(shown.saturating_sub(64)..shown + 64) {
        let Ok([size, seal, ..]) = ask(door, NOBODY, Operation::Open, [number, 0, 0, 0]) else {
            continue;
        };
        if size == SECRET.len() as u64
            && ask(door, NOBODY, Operation::Read, [number, 0, size, seal]).is_ok()
            && let Some(bytes) = look(door, transport, 0, DATA, SECRET.len())
            && bytes == SECRET
        {
            return Some(bytes);
        }
    }
    None
}

/// How the server refuses a user to make a directory of this name where `directory` is.
fn refusal(door: door::Door, directory: u64, name: [u8; 8]) -> Option<u16> {
    let low = forgers::transport()?;
    let transport = regions().into_iter().find(|&id| id as u32 == low)?;
    let name = WordAt { offset: NAME_FIRST, value: u64::from_le_bytes(name) };
    if !store(door, transport, name) {
        return None;
    }
    let arguments = [directory, 8, 0o755, 0];
    ask_by(door, low, NOBODY, Operation::MakeDirectory, arguments).err()
}

/// What lies in a directory that others may not search, they do not read, nor learn its name.
fn directories_hide_what_is_in_them(door: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-private";
    let file = format!("{PLACE}/a-secret");
    fs::create_dir(PLACE).map_err(failed)?;
    libc::set_mode(PLACE, 0o700);
    fs::write(&file, SECRET).map_err(failed)?;
    libc::set_mode(&file, 0o644);
    let known = fs::metadata(&file).map_err(failed)?.ino() - 1;
    let handle = node_of(door, 0, &file).ok_or("it has no handle")?;
    let open = File::open(&file).map_err(failed)?;
    let half = |at: usize| {
        let half = libc::own_page_word(offset_of!(ProcessPage, held) + 4 * at);
        u64::from(half.load(Ordering::SeqCst))
    };
    let held: Vec<u64> = (0..HELD).map(|at| half(2 * at) | half(2 * at + 1) << 32).collect();
    drop(open);
    expect(held.contains(&(known + 1)), || format!("the page says {held:x?}"))?;
    let told = held.iter().any(|word| [handle, handle + 1].contains(word));
    expect(!told && handle != known, || "all see its handle".into())?;
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) || fs::read(&file).is_ok() {
            return 2;
        }
        let Some(place) = node_of(door, NOBODY, PLACE) else { return 3 };
        if node_of(door, NOBODY, &file).is_some() {
            return 3;
        }
        if [*b"a-secret", *b"no-names"].map(|name| refusal(door, place, name)) != [DENIED; 2] {
            return 4;
        }
        i32::from(search(door, known).is_some())
    }));
    fs::remove_file(&file).and_then(|()| fs::remove_dir(PLACE)).map_err(failed)?;
    expect(status == 0, || format!("status {status:#x} (0x100: read; 0x400: its name told)"))?;
    Ok(String::new())
}

/// Nobody locks a file that it may not open.
fn locks_need_an_open_file(door: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-locked";
    fs::write(PLACE, b"").map_err(failed)?;
    libc::set_mode(PLACE, 0o600);
    let attacker = nobody(|| {
        let own = File::create("/tmp/deputies-own");
        let Ok(own) = own else { return 1 };
        let Some(node) = node_of(door, NOBODY, PLACE) else { return 3 };
        if File::open(PLACE).is_ok() || own.lock().is_err() {
            return 2;
        }
        let last = i64::MAX as u64;
        let done = regions().into_iter().any(|id| {
            let what = LOCK_EXCLUSIVE | u64::from(id as u32) << 32;
            ask(door, NOBODY, Operation::Lock, [node, what, 0, last])
                .is_ok_and(|answer| answer[0] == 0)
        });
        std::mem::forget(own);
        // A server that refuses it is what we want.
        // That it was done is seen from the other side.
        let _ = done;
        0
    })?;
    let file = File::open(PLACE).map_err(failed)?;
    let free = file.try_lock().is_ok();
    end(attacker)?;
    let _ = fs::remove_file("/tmp/deputies-own");
    fs::remove_file(PLACE).map_err(failed)?;
    expect(free, || "user 0 waits for its own file, mode 0600, that the attacker locked".into())?;
    Ok(String::new())
}

/// Who may only read a file keeps nobody from reading it, by an exclusive lock of a process.
fn readers_lock_no_readers_out(door: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-read";
    const OWN: &str = "/tmp/deputies-own";
    fs::write(PLACE, b"").map_err(failed)?;
    libc::set_mode(PLACE, 0o644);
    let attacker = nobody(|| {
        let node = fs::write(OWN, b"").ok().and_then(|()| node_of(door, NOBODY, PLACE));
        let Some(node) = node else { return 1 };
        // Whether it is refused is seen from the other side.
        let _ = ask(door, NOBODY, Operation::Lock, [node, LOCK_EXCLUSIVE, 0, u64::MAX]);
        0
    })?;
    let shared = node_of(door, 0, PLACE).map(|node| ask(door, 0, Operation::Lock, [node, 0, 0, 9]));
    end(attacker)?;
    [PLACE, OWN].into_iter().try_for_each(fs::remove_file).map_err(failed)?;
    let free = matches!(shared, Some(Ok([0, ..])));
    expect(free, || format!("user 0's lock for reading is answered {shared:?}"))?;
    Ok(String::new())
}

/// No process may write a file of the boot image, and so none keeps its readers out.
fn image_files_are_locked_by_no_writer(door: door::Door) -> Seen {
    let number = fs::metadata("/bin/busybox").map_err(failed)?.ino() - 1;
    let file = OF_IMAGE | number;
    // Each is a client once it has asked for something.
    let asks = || fs::metadata("/tmp").is_ok();
    let attacker = nobody(|| {
        if !asks() {
            return 1;
        }
        // Whether it is refused is seen from the other side.
        let _ = ask(door, NOBODY, Operation::Lock, [file, LOCK_EXCLUSIVE, 0, u64::MAX]);
        0
    })?;
    let shared = asks().then(|| ask(door, 0, Operation::Lock, [file, 0, 0, 9]));
    end(attacker)?;
    let free = matches!(shared, Some(Ok([0, ..])));
    expect(free, || format!("user 0's lock for reading is answered {shared:?}"))?;
    Ok(String::new())
}

/// One user's locks leave others theirs.
fn locks_are_left_for_others(door: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-lock";
    const OWN: &str = "/tmp/deputies-own";
    fs::write(PLACE, b"").map_err(failed)?;
    let attacker = nobody(|| {
        let node = fs::write(OWN, b"").ok().and_then(|()| node_of(door, NOBODY, OWN));
        let Some(node) = node else { return 1 };
        let lock =
            |at: u64| ask(door, NOBODY, Operation::Lock, [node, LOCK_EXCLUSIVE, 2 * at, 2 * at]);
        let taken = (0..5000).take_while(|&at| lock(at).is_ok()).count();
        i32::from(taken < 1000)
    })?;
    let locked = File::open(PLACE).map_err(failed)?.lock();
    end(attacker)?;
    fs::remove_file(PLACE).and_then(|()| fs::remove_file(OWN)).map_err(failed)?;
    expect(locked.is_ok(), || format!("user 0's flock: {locked:?}"))?;
    Ok(String::new())
}

/// What user 0 deletes is room again, whatever others say that they hold.
fn nobody_holds_what_it_did_not_open(door: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-large";
    is_room_again(door, PLACE, 0o600, |_| HELD_ANY)
}

/// Numbers of files are public, also of what all may read in a directory that only user 0 may
/// search.
fn nobody_holds_what_it_could_not_open(door: door::Door) -> Seen {
    const DIRECTORY: &str = "/tmp/deputies-shut";
    fs::create_dir_all(format!("{DIRECTORY}/below")).map_err(failed)?;
    libc::set_mode(DIRECTORY, 0o700);
    let place = format!("{DIRECTORY}/below/large");
    let seen = is_room_again(door, &place, 0o644, |number| number);
    fs::remove_dir_all(DIRECTORY).map_err(failed)?;
    seen
}

/// User 0 deletes a file; another user's process says that it holds what `claims` makes of the
/// file's number.
fn is_room_again(door: door::Door, place: &str, mode: u32, claims: impl Fn(u64) -> u64) -> Seen {
    const BYTES: usize = 8 << 20;
    let free = || ask(door, 0, Operation::Space, [0; 4]).map(|[_, free, ..]| free);
    fs::write(place, b"").map_err(failed)?;
    let before = free().map_err(|errno| format!("no space: {errno}"))?;
    fs::write(place, vec![7; BYTES]).map_err(failed)?;
    libc::set_mode(place, mode);
    let number = fs::metadata(place).map_err(failed)?.ino();
    let attacker = nobody(|| {
        let own = std::process::id();
        if fs::metadata("/tmp").is_err() {
            return 1;
        }
        say_held(claims(number));
        libc::own_page_word(offset_of!(ProcessPage, file_user)).store(0, Ordering::SeqCst);
        i32::from(ask(door, NOBODY, Operation::Holder, [own.into(), 0, 0, 0]).is_err())
    })?;
    fs::remove_file(place).map_err(failed)?;
    let begun = Instant::now();
    let mut after = 0;
    while after + 64 < before && begun.elapsed() < Duration::from_secs(3) {
        after = free().unwrap_or(0);
        std::thread::sleep(Duration::from_millis(20));
    }
    end(attacker)?;
    expect(after + 64 >= before, || {
        let stay = before.saturating_sub(after);
        format!("of user 0's deleted {} pages, mode {mode:o}, {stay} stay", BYTES / 4096)
    })?;
    Ok(String::new())
}

/// Nobody makes programs that act for a group that it is not in.
fn no_programs_for_other_groups(_: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-group";
    const NETWORK: u32 = 3003;
    fs::create_dir(PLACE).map_err(failed)?;
    std::os::unix::fs::chown(PLACE, Some(0), Some(NETWORK)).map_err(failed)?;
    libc::set_mode(PLACE, 0o3777);
    let path = format!("{PLACE}/program");
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) || fs::write(&path, b"#").is_err() {
            return 1;
        }
        libc::set_mode(&path, 0o2755);
        0
    }));
    let data = fs::metadata(&path).map_err(failed)?;
    let (mode, group) = (data.permissions().mode(), data.gid());
    fs::remove_dir_all(PLACE).map_err(failed)?;
    expect(status == 0 && (mode & 0o2000 == 0 || group == NOBODY), || {
        format!("status {status:#x}: user {NOBODY} has a program {mode:o} of group {group}")
    })?;
    Ok(String::new())
}

/// A request that says that it is another user's is refused: the file server asks the kernel. So a
/// file that its mode shuts is neither read nor changed by naming user 0.
fn users_act_for_themselves_alone(door: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-root";
    fs::write(PLACE, SECRET).map_err(failed)?;
    libc::set_mode(PLACE, 0o600);
    let node = node_of(door, 0, PLACE).ok_or("it has no handle")?;
    let attacker = nobody(|| {
        // A request of the library's makes the way.
        let _ = fs::metadata(PLACE);
        let asks = [
            (Operation::Access, [node, 4, 0, 0]),
            (Operation::Open, [node, 0, 0, 0]),
            (Operation::Attributes, [node, 0, 0, 0]),
        ];
        let refused = asks
            .into_iter()
            .all(|(operation, words)| ask(door, 0, operation, words) == Err(Errno::EPERM.0));
        let own = ask(door, NOBODY, Operation::Access, [node, 4, 0, 0]);
        i32::from(!refused) + 2 * i32::from(own != Err(Errno::EACCES.0))
    });
    let ended = attacker.and_then(end);
    fs::remove_file(PLACE).map_err(failed)?;
    ended.map(|()| String::new())
}

/// Who is in group 0 says that it acts for another group: the kernel knows better, and the file
/// server asks it.
fn group_0_acts_for_itself_alone(door: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-team";
    const TEAM: u32 = 3003;
    fs::write(PLACE, b"the team's").map_err(failed)?;
    std::os::unix::fs::chown(PLACE, Some(0), Some(TEAM)).map_err(failed)?;
    libc::set_mode(PLACE, 0o060);
    let node = node_of(door, 0, PLACE).ok_or("it has no handle")?;
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user_in(NOBODY, 0) {
            return 1;
        }
        let own = published::env(EnvId(std::process::id())).map(|record| DomainId(record.domain));
        let Some(domain) = own else { return 2 };
        let holds =
            |kind, number| libc::kernel(door, Call::DomainHolds { domain, kind, number }).is_ok();
        if !holds(NAME_GROUP, 0) || holds(NAME_GROUP, TEAM) || holds(SET_OF_GROUPS, 0) {
            return 3;
        }
        // A request of the library's makes the way.
        if fs::metadata(PLACE).is_err() {
            return 4;
        }
        let Some(region) = forgers::transport() else { return 5 };
        let as_group = |gid| {
            let who = Credentials::of(NOBODY, gid);
            ask_as(door, region, who, Operation::Access, [node, 4, 0, 0])
        };
        i32::from(as_group(TEAM).is_ok()) * 6 + i32::from(as_group(0) != Err(Errno::EACCES.0)) * 7
    }));
    fs::remove_file(PLACE).map_err(failed)?;
    expect(status == 0, || format!("status {status:#x}: a member of group 0 is the team's"))?;
    Ok(String::new())
}

/// Where all make names, as in /tmp, nobody writes through another user's link at a path's end; in
/// the midst of a path it leads on.
fn links_of_others_lead_nobody_astray(_: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-all";
    const TARGET: &str = "/tmp/deputies-target";
    const FRESH: &str = "/tmp/deputies-fresh";
    let at = |name: &str| format!("{PLACE}/{name}");
    fs::create_dir(PLACE).map_err(failed)?;
    libc::set_mode(PLACE, 0o1777);
    fs::write(TARGET, SECRET).map_err(failed)?;
    symlink(TARGET, at("own")).map_err(failed)?;
    end(nobody(|| {
        let links = [(TARGET, "link"), (FRESH, "nowhere"), ("/tmp", "way")];
        let made = links.iter().all(|(target, name)| symlink(target, at(name)).is_ok());
        let follows = fs::metadata(at("link")).is_ok() && fs::metadata(at("own")).is_ok();
        i32::from(!made) + 2 * i32::from(!follows)
    })?)?;
    let denied = |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    let written = [
        fs::write(at("link"), b"").is_err_and(denied),
        fs::write(at("nowhere"), b"").is_err_and(denied),
        fs::set_permissions(at("link"), fs::Permissions::from_mode(0o666)).is_err_and(denied),
        fs::read(at("link")).is_err_and(denied),
        fs::read_link(at("link")).is_ok(),
        fs::read(at("way/deputies-target")).is_ok_and(|bytes| bytes == SECRET),
        fs::write(at("way/deputies-made"), b"").is_ok(),
        fs::read(at("own")).is_ok(),
    ];
    // Where all take away each other's names it may be anybody's.
    libc::set_mode(PLACE, 0o777);
    let open = fs::read(at("link")).is_ok();
    let fresh = fs::exists(FRESH).map_err(failed)?;
    fs::remove_dir_all(PLACE).map_err(failed)?;
    for path in [TARGET, "/tmp/deputies-made"] {
        fs::remove_file(path).map_err(failed)?;
    }
    expect(!fresh, || "user 0 has made a file where another user said".into())?;
    expect(written.iter().all(|&is| is) && open, || format!("{written:?} {open}"))?;
    Ok(String::new())
}

/// Who changes nothing of another user's program, again and again, keeps nobody from executing it:
/// a set-id program, and one that may not be read, is begun if it stays as it was looked at.
fn strangers_leave_programs_as_they_are(door: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-tools";
    const TOOLS: [(&str, u32); 2] = [("set-id", 0o4755), ("hidden", 0o711)];
    const RUNS: usize = 20;
    let paths = TOOLS.map(|(name, _)| format!("{PLACE}/{name}/true"));
    for (path, (name, mode)) in paths.iter().zip(TOOLS) {
        fs::create_dir_all(format!("{PLACE}/{name}")).map_err(failed)?;
        fs::copy("/bin/busybox", path).map_err(failed)?;
        libc::set_mode(path, mode);
    }
    let changed = || paths.each_ref().map(|path| fs::metadata(path).map(|it| it.ctime_nsec()).ok());
    let before = changed();
    let attacker = libc::spawn(|| {
        let [set_id, hidden] = &paths;
        // The way to the file server is its own from here on.
        if !libc::become_user(NOBODY) || fs::metadata(set_id).is_err() {
            return 1;
        }
        let Some(node) = node_of(door, NOBODY, set_id) else { return 2 };
        loop {
            // Whether these are refused is not what counts.
            let _ = ask(door, NOBODY, Operation::Change, [node, 0, 0, 0]);
            let _ = chown(hidden, None, None);
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    let victim = libc::spawn(|| {
        if !libc::become_user(ANN) {
            return 100;
        }
        let runs = paths.iter().cycle().take(2 * RUNS);
        let fails = |path: &&String| !Command::new(path).status().is_ok_and(|it| it.success());
        runs.filter(fails).count() as i32
    });
    let status = libc::wait(victim);
    let lived = libc::is_alive(attacker);
    libc::send(attacker, 9);
    let ended = libc::wait(attacker);
    let after = changed();
    fs::remove_dir_all(PLACE).map_err(failed)?;
    expect(lived, || format!("the attacker ended with {ended:#x}"))?;
    expect(status == 0, || format!("{:#x} of {} runs failed", status >> 8, 2 * RUNS))?;
    expect(before == after, || format!("changed at {before:?}, then {after:?}"))?;
    Ok(String::new())
}

/// Where all make names, a call that makes a file opens none that another user has put there: it
/// would be that one who reads what is written.
fn files_of_others_are_not_made(_: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-makers";
    let at = |name: &str| format!("{PLACE}/{name}");
    fs::create_dir(PLACE).map_err(failed)?;
    libc::set_mode(PLACE, 0o1777);
    fs::write(at("ours"), b"").map_err(failed)?;
    libc::set_mode(&at("ours"), 0o666);
    end(nobody(|| {
        let made = fs::write(at("theirs"), b"").is_ok() && libc::make_pipe(&at("pipe"));
        ["theirs", "pipe"].iter().for_each(|name| libc::set_mode(&at(name), 0o666));
        // The directory's owner is believed.
        i32::from(!made) + 2 * i32::from(fs::write(at("ours"), b"").is_err())
    })?)?;
    let makes = |name: &str| {
        File::options().create(true).truncate(false).read(true).write(true).open(at(name))
    };
    let denied = |name: &str| {
        let is_denied =
            |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
        makes(name).is_err_and(is_denied)
    };
    let refused = [denied("theirs"), denied("pipe")];
    // Looked at before, too.
    let known = fs::metadata(at("theirs")).is_ok() && denied("theirs") && denied("theirs");
    let told = File::options().write(true).open(at("theirs")).is_ok();
    let own = makes("ours").is_ok();
    // The directory's group makes names of files, too; of pipes that is no matter.
    libc::set_mode(PLACE, 0o1775);
    let of_group = [denied("theirs"), makes("pipe").is_ok()];
    libc::set_mode(PLACE, 0o777);
    let open = makes("theirs").is_ok();
    fs::remove_dir_all(PLACE).map_err(failed)?;
    expect(refused == [true; 2] && known, || {
        format!("user 0 has opened another user's file as if it made it: {refused:?} {known}")
    })?;
    expect(told && own && open && of_group == [true; 2], || {
        format!("{told} {own} {open} {of_group:?}")
    })?;
    Ok(String::new())
}
