//! What files are: `stat`, `access`, `chmod` and their kin.

use linux_raw_sys::general as raw;
use unix::attributes::{Attributes, Space};
use unix::protocol::{
    CHANGE_GID, CHANGE_MODE, CHANGE_MOUNT, CHANGE_OWNER, CHANGE_READ, CHANGE_TOUCH, CHANGE_UID,
    CHANGE_WRITTEN,
};

use super::memory_files::Change;
use super::node::Node;
use super::open_file::OpenFile;
use super::pty;
use super::terminal::Tty;
use super::walk::Last;
use super::whose;
use crate::errno::{Answer, Errno};
use crate::identity;
use crate::process::Process;
use crate::user::{self, Path};

/// `ST_VALID`: the flags of a `statfs` say how it is mounted.
const VALID: u64 = 0x20;

const SECOND: u64 = 1_000_000_000;
/// Type of the boot image's file system (statfs(2) has none for it): "XOKI".
const IMAGE_KIND: u64 = 0x584f_4b49;

/// Flags of a status that say how fresh it must be: it always is.
const SYNC: u32 = raw::AT_STATX_FORCE_SYNC | raw::AT_STATX_DONT_SYNC;
/// What is asked for of a status that there is not yet (statx(2)).
const RESERVED: u64 = 0x8000_0000;

/// Refuses flags other than `known`, and those that say how a path is taken.
fn check_flags(flags: u32, known: u32) -> Result<(), Errno> {
    let known = known | raw::AT_SYMLINK_NOFOLLOW | raw::AT_EMPTY_PATH;
    if flags & !known != 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

fn last(flags: u32) -> Last {
    if flags & raw::AT_SYMLINK_NOFOLLOW != 0 { Last::Keep } else { Last::Follow }
}

/// Attributes of what a `…at` call means.
fn attributes(
    process: &Process,
    directory: i32,
    path: u64,
    flags: u32,
) -> Result<Attributes, Errno> {
    let files = &process.files;
    check_flags(flags, SYNC | raw::AT_NO_AUTOMOUNT)?;
    let empty_allowed = flags & raw::AT_EMPTY_PATH != 0;
    let path = if path == 0 && empty_allowed { Path::EMPTY } else { user::read_path(path)? };
    if path.is_empty() && empty_allowed {
        if directory == raw::AT_FDCWD {
            return files.directory.node.attributes(files);
        }
        return files.any(directory)?.file.attributes(files);
    }
    files.find_attributes(directory, &path, last(flags))
}

/// `newfstatat(directory, path, buffer, flags)`
pub fn fstatat(process: &mut Process, directory: i32, path: u64, into: u64, flags: u32) -> Answer {
    let found = attributes(process, directory, path, flags)?;
    user::write_bytes(into, &found.to_stat())?;
    Ok(0)
}

/// `fstat(fd, buffer)`
pub fn fstat(process: &mut Process, fd: i32, into: u64) -> Answer {
    let found = process.files.any(fd)?.file.attributes(&process.files)?;
    user::write_bytes(into, &found.to_stat())?;
    Ok(0)
}

/// `statx(directory, path, flags, mask, buffer)`
pub fn statx(process: &mut Process, words: [u64; 6]) -> Answer {
    let [directory, path, flags, asked, into, _] = words;
    if asked & RESERVED != 0 || flags as u32 & SYNC == SYNC {
        return Err(Errno::EINVAL);
    }
    let found = attributes(process, directory as i32, path, flags as u32)?;
    user::write_bytes(into, &found.to_statx())?;
    Ok(0)
}

fn space(process: &Process, node: Option<Node>) -> Result<Space, Errno> {
    Ok(match node {
        Some(Node::Image(_)) => {
            let bytes = xok::published::directory().image_bytes;
            let files = super::image_files::archive().map_or(0, |archive| archive.entry_count());
            let blocks = bytes.div_ceil(4096);
            // ST_RDONLY
            Space { kind: IMAGE_KIND, blocks, files: files.into(), flags: 1, ..Space::default() }
        }
        Some(node @ Node::Memory(_)) => {
            let flags = VALID | node.attributes(&process.files)?.mount_flags;
            Space { flags, ..process.files.client()?.space()? }
        }
        Some(Node::Proc(_)) => Space { kind: 0x9fa0, ..Space::default() },
        Some(_) => Space { kind: 0x0102_1994, ..Space::default() },
        None => Space { kind: 0x5049_5045, ..Space::default() },
    })
}

/// `mount(source, path, type, flags, data)`: what is mounted stays, but how can be changed.
pub fn mount(process: &mut Process, path: u64, flags: u64) -> Answer {
    if process.users[1] != 0 {
        return Err(Errno::EPERM);
    }
    let ignored = u64::from(raw::MS_SILENT | raw::MS_RELATIME);
    let path = user::read_path(path)?;
    let place = process.files.find(raw::AT_FDCWD, &path, Last::Follow)?;
    let kept = flags & u64::from(raw::MS_NOSUID);
    if flags & !ignored != u64::from(raw::MS_REMOUNT) | kept {
        return Err(Errno::EPERM);
    }
    let is_mount = unix::mounts::inside(place.path.as_bytes()).is_some_and(|at| at.1.is_empty());
    match place.node {
        Node::Memory(id) if is_mount => {
            let change = Change { which: CHANGE_MOUNT, words: [kept, 0, 0, 0, 0] };
            process.files.client()?.change(id, &change).map(|()| 0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `statfs(path, buffer)`
pub fn statfs(process: &mut Process, path: u64, into: u64) -> Answer {
    let path = user::read_path(path)?;
    let place = process.files.find(raw::AT_FDCWD, &path, Last::Follow)?;
    user::write_bytes(into, &space(process, Some(place.node))?.to_statfs())?;
    Ok(0)
}

/// `fstatfs(fd, buffer)`
pub fn fstatfs(process: &mut Process, fd: i32, into: u64) -> Answer {
    let node = process.files.any(fd)?.file.node();
    user::write_bytes(into, &space(process, node)?.to_statfs())?;
    Ok(0)
}

/// `faccessat2(directory, path, mode, flags)`
pub fn faccessat(
    process: &mut Process,
    directory: i32,
    path: u64,
    mode: u32,
    flags: u32,
) -> Answer {
    if mode & !7 != 0 {
        return Err(Errno::EINVAL);
    }
    check_flags(flags, raw::AT_EACCESS)?;
    let path = user::read_path(path)?;
    let asked = |process: &mut Process| {
        let files = &process.files;
        let node = if !path.is_empty() || flags & raw::AT_EMPTY_PATH == 0 {
            Some(files.find(directory, &path, last(flags))?.node)
        } else if directory == raw::AT_FDCWD {
            Some(files.directory.node)
        } else {
            files.any(directory)?.file.node()
        };
        match node {
            _ if mode == 0 => {}
            Some(node) => node.permits(files, &files.who(), mode)?,
            None => {
                let attributes = files.any(directory)?.file.attributes(files)?;
                if !attributes.permits(&files.who(), mode) {
                    return Err(Errno::EACCES);
                }
            }
        }
        Ok(0)
    };
    if flags & raw::AT_EACCESS != 0 {
        asked(process)
    } else {
        identity::by_real_ids(process, asked)
    }
}

/// Changes attributes of a node: only those of the memory file system's can be changed, and whose a
/// terminal is.
fn change(process: &Process, node: Option<Node>, change: &Change) -> Answer {
    let owners = CHANGE_MODE | CHANGE_UID | CHANGE_GID | CHANGE_OWNER;
    match node {
        Some(Node::Slave(number)) if change.which & !owners == 0 => {
            process.files.client()?.terminal_change(pty::whichever(number), change)?;
        }
        Some(Node::Memory(id)) => process.files.client()?.change(id, change)?,
        Some(Node::Image(_)) => return Err(Errno::EROFS),
        Some(Node::Descriptor(fd)) if change.which & !owners == 0 => {
            return change_open(process, fd as i32, change);
        }
        _ => return Err(Errno::EPERM),
    }
    Ok(0)
}

fn change_at(process: &Process, directory: i32, path: u64, flags: u32, what: &Change) -> Answer {
    check_flags(flags, 0)?;
    let path = user::read_path(path)?;
    let node = if path.is_empty() && flags & raw::AT_EMPTY_PATH != 0 {
        process.files.start(directory)?.node
    } else {
        process.files.find(directory, &path, last(flags))?.node
    };
    change(process, Some(node), what)
}

fn change_open(process: &Process, fd: i32, what: &Change) -> Answer {
    let node = match &process.files.get(fd)?.file {
        OpenFile::Terminal(Tty { number: Some(number), settings, .. }) => {
            // Its number may be another one's by now.
            process.files.client()?.terminal_change((*number, settings.id), what)?;
            return Ok(0);
        }
        OpenFile::Pipe(pipe) => match pipe.whose.get().node {
            Some(id) => Some(Node::Memory(id)),
            None => return whose::change(process, pipe, what),
        },
        file => file.node(),
    };
    change(process, node, what)
}

/// `fchmodat(directory, path, mode)`
pub fn fchmodat(process: &mut Process, directory: i32, path: u64, mode: u32) -> Answer {
    change_at(process, directory, path, 0, &mode_change(mode))
}

/// `fchmod(fd, mode)`
pub fn fchmod(process: &mut Process, fd: i32, mode: u32) -> Answer {
    change_open(process, fd, &mode_change(mode))
}

fn mode_change(mode: u32) -> Change {
    Change { which: CHANGE_MODE, words: [u64::from(mode & 0o7777), 0, 0, 0, 0] }
}

fn owner_change(uid: u32, gid: u32) -> Change {
    let which =
        if uid == u32::MAX { 0 } else { CHANGE_UID } | if gid == u32::MAX { 0 } else { CHANGE_GID };
    Change { which: which | CHANGE_OWNER, words: [0, u64::from(uid), u64::from(gid), 0, 0] }
}

/// `fchownat(directory, path, uid, gid, flags)`
pub fn fchownat(process: &mut Process, words: [u64; 6]) -> Answer {
    let [directory, path, uid, gid, flags, _] = words;
    let what = owner_change(uid as u32, gid as u32);
    change_at(process, directory as i32, path, flags as u32, &what)
}

/// `fchown(fd, uid, gid)`
pub fn fchown(process: &mut Process, fd: i32, uid: u32, gid: u32) -> Answer {
    change_open(process, fd, &owner_change(uid, gid))
}

/// `utimensat(directory, path, times, flags)`
pub fn utimensat(
    process: &mut Process,
    directory: i32,
    path: u64,
    times: u64,
    flags: u32,
) -> Answer {
    let now = xok::clock::wall_ns().unwrap_or_else(xok::clock::now_ns);
    let mut what = Change::default();
    let pair = if times == 0 {
        [0, i64::from(raw::UTIME_NOW), 0, i64::from(raw::UTIME_NOW)]
    } else {
        user::read_value(times)?
    };
    let mut all_now = true;
    for (at, bit) in [(0, CHANGE_READ), (1, CHANGE_WRITTEN)] {
        let (seconds, fraction) = (pair[2 * at], pair[2 * at + 1]);
        let time = match u32::try_from(fraction) {
            Ok(raw::UTIME_OMIT) => {
                all_now = false;
                continue;
            }
            Ok(raw::UTIME_NOW) => now,
            Ok(fraction) if u64::from(fraction) < SECOND => {
                all_now = false;
                (seconds.max(0) as u64).saturating_mul(SECOND) + u64::from(fraction)
            }
            _ => return Err(Errno::EINVAL),
        };
        what.which |= bit;
        what.words[3 + at] = time;
    }
    if all_now {
        what.which |= CHANGE_TOUCH;
    }
    if what.which == 0 {
        // Nothing is asked of any file, nor whether it is there.
        return Ok(0);
    }
    if path == 0 && directory != raw::AT_FDCWD {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        return match process.files.get(directory)?.file {
            // Times of pipes and the terminal are kept by nobody.
            OpenFile::Node(node) | OpenFile::Text(node, _) => change(process, Some(node), &what),
            _ => Ok(0),
        };
    }
    change_at(process, directory, path, flags, &what)
}

/// `utime(path, times)`: two numbers of seconds.
pub fn utime(process: &mut Process, path: u64, times: u64) -> Answer {
    if times == 0 {
        return utimensat(process, raw::AT_FDCWD, path, 0, 0);
    }
    let [read, written]: [i64; 2] = user::read_value(times)?;
    let ns = |seconds: i64| -> Result<u64, Errno> {
        Ok(u64::try_from(seconds).map_err(|_| Errno::EINVAL)?.saturating_mul(SECOND))
    };
    let which = CHANGE_READ | CHANGE_WRITTEN;
    let what = Change { which, words: [0, 0, 0, ns(read)?, ns(written)?] };
    change_at(process, raw::AT_FDCWD, path, 0, &what)
}

/// `utimes(path, times)`: two `timeval`s.
pub fn utimes(process: &mut Process, path: u64, times: u64) -> Answer {
    if times == 0 {
        return utimensat(process, raw::AT_FDCWD, path, 0, 0);
    }
    let pair: [i64; 4] = user::read_value(times)?;
    let ns = |at: usize| -> Result<u64, Errno> {
        let seconds = u64::try_from(pair[at]).map_err(|_| Errno::EINVAL)?;
        let micro = u64::try_from(pair[at + 1]).map_err(|_| Errno::EINVAL)?;
        Ok(seconds.saturating_mul(SECOND).saturating_add(micro * 1000))
    };
    let which = CHANGE_READ | CHANGE_WRITTEN;
    let what = Change { which, words: [0, 0, 0, ns(0)?, ns(2)?] };
    change_at(process, raw::AT_FDCWD, path, 0, &what)
}

/// `truncate(path, size)`
pub fn truncate(process: &mut Process, path: u64, size: u64) -> Answer {
    let path = user::read_path(path)?;
    let size = checked_size(size)?;
    match process.files.find(raw::AT_FDCWD, &path, Last::Follow)?.node {
        node @ Node::Memory(id) => {
            if size > process.limit(raw::RLIMIT_FSIZE) {
                node.permits(&process.files, &process.files.who(), 2)?;
                check_growth(process, &OpenFile::Node(node), size)?;
            }
            process.files.client()?.truncate((id, 0), size)?;
        }
        Node::Image(_) => return Err(Errno::EROFS),
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// `ftruncate(fd, size)`
pub fn ftruncate(process: &mut Process, fd: i32, size: u64) -> Answer {
    let description = process.files.get(fd)?;
    let size = checked_size(size)?;
    match description.file {
        _ if !description.writable() => Err(Errno::EINVAL),
        OpenFile::Node(Node::Memory(id)) => {
            check_growth(process, &description.file, size)?;
            process
                .files
                .client_of(&description, 0)?
                .truncate((id, description.seal.get()), size)?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// May a file be made so long (setrlimit(2), `RLIMIT_FSIZE`)?
fn check_growth(process: &mut Process, file: &OpenFile, size: u64) -> Result<(), Errno> {
    let limit = process.limit(raw::RLIMIT_FSIZE);
    if size <= limit || size <= file.attributes(&process.files)?.size {
        return Ok(());
    }
    process.raise(raw::SIGXFSZ);
    Err(Errno::EFBIG)
}

fn checked_size(size: u64) -> Result<u64, Errno> {
    if size > i64::MAX as u64 { Err(Errno::EINVAL) } else { Ok(size) }
}

/// `fallocate(fd, 0, offset, bytes)`: the size grows; pages are found when they are written.
pub fn fallocate(process: &mut Process, words: [u64; 6]) -> Answer {
    let [fd, mode, offset, bytes, ..] = words;
    if mode != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let description = process.files.get(fd as i32)?;
    if (offset as i64) < 0 || bytes as i64 <= 0 {
        return Err(Errno::EINVAL);
    }
    let end = offset.checked_add(bytes).ok_or(Errno::EFBIG)?;
    let size = checked_size(end).map_err(|_| Errno::EFBIG)?;
    match description.file {
        _ if !description.writable() => Err(Errno::EBADF),
        OpenFile::Node(Node::Memory(id)) => {
            check_growth(process, &description.file, size)?;
            process
                .files
                .client_of(&description, 0)?
                .lengthen((id, description.seal.get()), size)?;
            Ok(0)
        }
        OpenFile::Pipe(_) => Err(Errno::ESPIPE),
        _ => Err(Errno::ENODEV),
    }
}
