//! Making, removing and moving names; the working directory.

use linux_raw_sys::general as raw;

use super::node::{Node, Place};
use super::open::memory_directory;
use super::walk::{Found, Last};
use crate::errno::{Answer, Errno};
use crate::process::Process;
use crate::user;
use unix::tree::Id;

/// Walks to a name that is to be made.
pub fn to_be_made(process: &Process, directory: i32, path: &[u8]) -> Result<Found, Errno> {
    let found = process.files.walk(directory, path, Last::Name)?;
    if found.place.is_some() { Err(Errno::EEXIST) } else { Ok(found) }
}

/// `mkdirat(directory, path, mode)`
pub fn mkdirat(process: &mut Process, directory: i32, path: u64, mode: u32) -> Answer {
    let path = user::read_path(path)?;
    let found = to_be_made(process, directory, &path)?;
    let parent = memory_directory(&found.parent)?;
    let mode = mode & 0o1777 & !process.files.umask;
    process.files.client()?.make_directory(parent, &found.name, mode)?;
    Ok(0)
}

/// `unlinkat(directory, path, flags)`
pub fn unlinkat(process: &mut Process, directory: i32, path: u64, flags: u32) -> Answer {
    if flags & !raw::AT_REMOVEDIR != 0 {
        return Err(Errno::EINVAL);
    }
    let path = user::read_path(path)?;
    let is_directory = flags & raw::AT_REMOVEDIR != 0;
    // Nothing is mounted below a directory of the memory file system.
    if let Some((_, name, parent)) = process.files.in_memory(directory, &path)? {
        process.files.client()?.remove(parent, name, is_directory)?;
        return Ok(0);
    }
    let found = process.files.walk(directory, &path, Last::Name)?;
    let name = last_name(&found, is_directory)?;
    let place = found.place.as_ref().ok_or(Errno::ENOENT)?;
    if found.slash && !place.node.is_directory(&process.files) {
        return Err(Errno::ENOTDIR);
    }
    if is_mount(&found.parent, place) {
        return Err(if is_directory { Errno::EBUSY } else { Errno::EISDIR });
    }
    let parent = memory_directory(&found.parent)?;
    process.files.client()?.remove(parent, name, is_directory)?;
    Ok(0)
}

/// The last name, if it is one that can be removed.
fn last_name(found: &Found, is_directory: bool) -> Result<&[u8], Errno> {
    match found.name.as_slice() {
        b"" => Err(if is_directory { Errno::EBUSY } else { Errno::EISDIR }),
        b"." => Err(if is_directory { Errno::EINVAL } else { Errno::EISDIR }),
        b".." => Err(if is_directory { Errno::ENOTEMPTY } else { Errno::EISDIR }),
        name => Ok(name),
    }
}

/// Does a mount lie between a directory and its child?
fn is_mount(parent: &Place, place: &Place) -> bool {
    core::mem::discriminant(&parent.node) != core::mem::discriminant(&place.node)
}

/// `renameat2(old directory, old path, new directory, new path, flags)`
pub fn renameat2(process: &mut Process, old: (i32, u64), new: (i32, u64), flags: u32) -> Answer {
    use unix::tree::{RENAME_EXCHANGE, RENAME_NOREPLACE};
    if flags & !(RENAME_EXCHANGE | RENAME_NOREPLACE) != 0
        || flags == RENAME_EXCHANGE | RENAME_NOREPLACE
    {
        return Err(Errno::EINVAL);
    }
    let (old_path, new_path) = (user::read_path(old.1)?, user::read_path(new.1)?);
    let from = process.files.walk(old.0, &old_path, Last::Name)?;
    let to = process.files.walk(new.0, &new_path, Last::Name)?;
    let place = from.place.as_ref().ok_or(Errno::ENOENT)?;
    for found in [&from, &to] {
        if matches!(found.name.as_slice(), b"" | b"." | b"..") {
            return Err(Errno::EBUSY);
        }
        if found.place.as_ref().is_some_and(|place| is_mount(&found.parent, place)) {
            return Err(Errno::EBUSY);
        }
    }
    if (from.slash || to.slash) && !place.node.is_directory(&process.files) {
        return Err(Errno::ENOTDIR);
    }
    let (source, target) = two_directories(&from.parent, &to.parent)?;
    let client = process.files.client()?;
    client.rename((source, &from.name), (target, &to.name), flags)?;
    Ok(0)
}

/// Two directories of the memory file system under one mount, or `EXDEV`.
fn two_directories(one: &Place, other: &Place) -> Result<(Id, Id), Errno> {
    match (one.node, other.node) {
        (Node::Memory(first), Node::Memory(second)) => {
            let mount = |place: &Place| unix::mounts::inside(place.path.as_bytes()).map(|at| at.0);
            if mount(one) == mount(other) { Ok((first, second)) } else { Err(Errno::EXDEV) }
        }
        (Node::Image(_), Node::Image(_)) => Err(Errno::EROFS),
        _ => Err(Errno::EXDEV),
    }
}

/// `linkat(old directory, old path, new directory, new path, flags)`
pub fn linkat(process: &mut Process, old: (i32, u64), new: (i32, u64), flags: u32) -> Answer {
    if flags & !(raw::AT_SYMLINK_FOLLOW | raw::AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let (old_path, new_path) = (user::read_path(old.1)?, user::read_path(new.1)?);
    let place = if old_path.is_empty() && flags & raw::AT_EMPTY_PATH != 0 {
        process.files.start(old.0)?
    } else {
        let follow = flags & raw::AT_SYMLINK_FOLLOW != 0;
        let last = if follow { Last::Follow } else { Last::Keep };
        process.files.find(old.0, &old_path, last)?
    };
    let to = to_be_made(process, new.0, &new_path)?;
    if to.slash {
        return Err(Errno::ENOENT);
    }
    if place.node.is_directory(&process.files) {
        return Err(Errno::EPERM);
    }
    let (node, parent) = two_directories(&place, &to.parent)?;
    process.files.client()?.link(node, parent, &to.name)?;
    Ok(0)
}

/// `symlinkat(target, directory, path)`
pub fn symlinkat(process: &mut Process, target: u64, directory: i32, path: u64) -> Answer {
    let (target, path) = (user::read_path(target)?, user::read_path(path)?);
    if target.is_empty() {
        return Err(Errno::ENOENT);
    }
    let found = to_be_made(process, directory, &path)?;
    if found.slash {
        return Err(Errno::ENOENT);
    }
    let parent = memory_directory(&found.parent)?;
    process.files.client()?.make_link(parent, &found.name, &target)?;
    Ok(0)
}

/// `readlinkat(directory, path, buffer, bytes)`
pub fn readlinkat(process: &mut Process, directory: i32, path: u64, into: (u64, u64)) -> Answer {
    let path = user::read_path(path)?;
    if into.1 == 0 || into.1 > i32::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let place = if path.is_empty() {
        process.files.start(directory)?
    } else {
        process.files.find(directory, &path, Last::Keep)?
    };
    let target = place.node.target(&process.files).map_err(|errno| match errno {
        // A path that names nothing, and the descriptor is no link's either.
        Errno::EINVAL if path.is_empty() => Errno::ENOENT,
        errno => errno,
    })?;
    let count = (target.len() as u64).min(into.1);
    user::write_bytes(into.0, &target[..count as usize])?;
    Ok(count)
}

/// `chdir(path)`
pub fn chdir(process: &mut Process, path: u64) -> Answer {
    let path = user::read_path(path)?;
    let place = process.files.find(raw::AT_FDCWD, &path, Last::Follow)?;
    enter(process, place)
}

/// `fchdir(fd)`
pub fn fchdir(process: &mut Process, fd: i32) -> Answer {
    let place = process.files.start(fd)?;
    enter(process, place)
}

fn enter(process: &mut Process, place: Place) -> Answer {
    if !place.node.is_directory(&process.files) {
        return Err(Errno::ENOTDIR);
    }
    place.node.permits(&process.files, &process.files.who(), 1)?;
    process.files.enter_directory(place)?;
    Ok(0)
}

/// `chroot(path)`
pub fn chroot(process: &mut Process, path: u64) -> Answer {
    let path = user::read_path(path)?;
    let place = process.files.find(raw::AT_FDCWD, &path, Last::Follow)?;
    if !place.node.is_directory(&process.files) {
        return Err(Errno::ENOTDIR);
    }
    if process.users[1] != 0 {
        return Err(Errno::EPERM);
    }
    process.files.root = place;
    process.files.publish();
    Ok(0)
}

/// Was the working directory taken away? Then no path leads to it, and what has its name now is
/// something else.
fn is_gone(process: &Process) -> bool {
    let node = process.files.directory.node;
    let attributes = matches!(node, Node::Memory(_)).then(|| node.attributes(&process.files));
    attributes.is_some_and(|it| it.is_ok_and(|it| it.links == 0))
}

/// `getcwd(buffer, bytes)`
pub fn getcwd(process: &mut Process, address: u64, room: u64) -> Answer {
    if is_gone(process) {
        return Err(Errno::ENOENT);
    }
    let full = process.files.directory.path.as_bytes();
    let root = process.files.root.path.as_bytes();
    let mut path = alloc::vec::Vec::from(*b"/");
    match unix::path::below(full, root) {
        Some(rest) => path.extend(rest),
        None => path = [b"(unreachable)", full].concat(),
    }
    path.push(0);
    if room < path.len() as u64 {
        return Err(if room == 0 { Errno::EINVAL } else { Errno::ERANGE });
    }
    user::write_bytes(address, &path)?;
    Ok(path.len() as u64)
}
