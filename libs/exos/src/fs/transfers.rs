//! Reading and writing (read(2), readv(2), pread(2), lseek(2), sendfile(2), getdents(2)).

use alloc::format;
use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use unix::dirents::{Packer, parse};
use unix::mounts;
use unix::path::below;
use unix::protocol::AT_END;

use super::description::Description;
use super::node::{DEVICE_LINKS, DEVICES, Node};
use super::open_file::{self, CHUNK, OpenFile};
use super::transfer::Memory;
use super::{Files, image_files, proc_files};
use crate::errno::{Answer, Errno};
use crate::process::Process;
use crate::user;

/// `read(fd, …)` into `memory`.
pub fn read(process: &mut Process, fd: i32, memory: &mut Memory<'_>) -> Answer {
    let description = process.files.get(fd)?;
    open_file::read(process, &description, memory)
}

/// `write(fd, …)` from `memory`.
pub fn write(process: &mut Process, fd: i32, memory: &mut Memory<'_>) -> Answer {
    let description = process.files.get(fd)?;
    open_file::write(process, &description, memory)
}

/// `pread64`, `preadv`
pub fn read_at(process: &mut Process, fd: i32, mut memory: Memory<'_>, offset: u64) -> Answer {
    let description = process.files.get(fd)?;
    if !description.readable() {
        return Err(Errno::EBADF);
    }
    if offset > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    open_file::read_at(&process.files, &description, offset, &mut memory)
}

/// `pwrite64`, `pwritev`. What appends writes at the end, whatever the offset (pwrite(2), BUGS).
pub fn write_at(process: &mut Process, fd: i32, mut memory: Memory<'_>, offset: u64) -> Answer {
    let description = process.files.get(fd)?;
    if !description.writable() {
        return Err(Errno::EBADF);
    }
    if offset > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let appends = description.flags()? & raw::O_APPEND != 0;
    let offset = if appends { AT_END } else { offset };
    open_file::write_at(process, &description, offset, &mut memory).map(|(count, _)| count)
}

/// `lseek(fd, offset, whence)`
pub fn lseek(process: &mut Process, fd: i32, offset: i64, whence: u32) -> Answer {
    let description = process.files.get(fd)?;
    if !description.file.seekable() {
        return Err(Errno::ESPIPE);
    }
    let size = || -> Result<u64, Errno> {
        Ok(match &description.file {
            OpenFile::Text(_, text) => text.len() as u64,
            file => file.attributes(&process.files)?.size,
        })
    };
    let base = match whence {
        raw::SEEK_SET => 0,
        raw::SEEK_CUR => description.offset()?,
        raw::SEEK_END => size()?,
        // Every file is one piece of data with a hole behind it.
        raw::SEEK_DATA | raw::SEEK_HOLE => {
            let size = size()?;
            match u64::try_from(offset) {
                Ok(at) if at < size => {
                    let to = if whence == raw::SEEK_DATA { at } else { size };
                    description.set_offset(to)?;
                    return Ok(to);
                }
                _ => return Err(Errno::ENXIO),
            }
        }
        _ => return Err(Errno::EINVAL),
    };
    let to = (base as i64).checked_add(offset).ok_or(Errno::EOVERFLOW)?;
    let to = u64::try_from(to).map_err(|_| Errno::EINVAL)?;
    description.set_offset(to)?;
    Ok(to)
}

/// `splice(in, …, out, …)`: of no two files. Who asks reads and writes then, if that is the answer.
pub fn splice(process: &Process, from: i32, out: i32) -> Answer {
    let (from, out) = (process.files.get(from)?, process.files.get(out)?);
    let may = from.readable() && out.writable();
    Err(if may { Errno::EINVAL } else { Errno::EBADF })
}

/// `sendfile(out, in, offset, count)`
pub fn sendfile(process: &mut Process, out: i32, from: i32, offset: u64, count: u64) -> Answer {
    let source = process.files.get(from)?;
    let target = process.files.get(out)?;
    if !source.readable() || !target.writable() {
        return Err(Errno::EBADF);
    }
    let is_file = matches!(&source.file, OpenFile::Text(..) | OpenFile::Node(_));
    if !is_file || source.file.attributes(&process.files)?.is_directory() {
        return Err(Errno::EINVAL);
    }
    if target.flags()? & raw::O_APPEND != 0 {
        return Err(Errno::EINVAL);
    }
    let start: u64 = if offset == 0 { source.offset()? } else { user::read_value(offset)? };
    if i64::try_from(start).is_err() {
        return Err(Errno::EINVAL);
    }
    let mut buffer = alloc::vec![0; CHUNK];
    let mut done = 0;
    let mut failed = None;
    while done < count {
        let want = (count - done).min(CHUNK as u64) as usize;
        let mut memory = Memory::buffer(&mut buffer[..want]);
        let got = open_file::read_at(&process.files, &source, start + done, &mut memory)? as usize;
        if got == 0 {
            break;
        }
        let mut memory = Memory::buffer(&mut buffer[..got]);
        match open_file::write(process, &target, &mut memory) {
            Ok(written) => {
                done += written;
                if (written as usize) < got {
                    break;
                }
            }
            Err(errno) => {
                failed = Some(errno);
                break;
            }
        }
    }
    if done == 0
        && let Some(errno) = failed
    {
        return Err(errno);
    }
    if offset == 0 {
        source.set_offset(start + done)?;
    } else {
        user::write_value(offset, &(start + done))?;
    }
    Ok(done)
}

/// `getdents64(fd, buffer, bytes)`
pub fn getdents64(process: &mut Process, fd: i32, address: u64, room: u64) -> Answer {
    let description = process.files.get(fd)?;
    let OpenFile::Node(node) = description.file else { return Err(Errno::ENOTDIR) };
    let position = description.offset()?;
    let room = room.min(32 * 1024) as usize;
    let bytes = records(&process.files, &description, node, position, room)?;
    if let Some(last) = parse(&bytes).last() {
        user::write_bytes(address, &bytes)?;
        description.set_offset(last.next)?;
    }
    Ok(bytes.len() as u64)
}

fn records(
    files: &Files,
    description: &Description,
    node: Node,
    position: u64,
    room: usize,
) -> Result<Vec<u8>, Errno> {
    let mut packer = Packer::new(room);
    let more = match node {
        Node::Memory(id) => {
            let client = files.client_of(description, 0)?;
            let bytes = client.list((id, description.seal.get()), position, room as u64)?;
            if bytes.is_empty() && room < 280 {
                return Err(Errno::EINVAL);
            }
            return Ok(bytes);
        }
        Node::Proc(item) => {
            proc_files::list(files, item, position, &mut packer)?;
            position == 0
        }
        Node::Image(index) => {
            let archive = image_files::archive().ok_or(Errno::EIO)?;
            let directory = archive.entry(index).ok_or(Errno::EIO)?;
            if directory.kind != image::archive::Kind::Directory {
                return Err(Errno::ENOTDIR);
            }
            let children = archive.children(&directory).map(|entry| {
                let attributes = image_files::attributes(&entry);
                (entry.name().as_bytes(), attributes.inode, attributes.mode)
            });
            let known = |name: &str| archive.child(&directory, name).is_some();
            let here = description.path.as_bytes();
            let mounted = ["/dev", "/proc"]
                .into_iter()
                .chain(mounts::WRITABLE.iter().map(|mount| mount.0))
                .filter_map(|path| {
                    let name = core::str::from_utf8(below(path.as_bytes(), here)?).ok()?;
                    let direct = !name.is_empty() && !name.contains('/') && !known(name);
                    direct.then_some((name.as_bytes(), 1, raw::S_IFDIR))
                });
            let own = u64::from(directory.index) + 1;
            let parent = u64::from(directory.parent) + 1;
            pack(&mut packer, position, (own, parent), children.chain(mounted))
        }
        Node::Devices => {
            let devices = DEVICES.iter().map(|entry| (entry.0, raw::S_IFCHR));
            let links = DEVICE_LINKS.iter().map(|entry| (entry.0, raw::S_IFLNK));
            let shared = [("shm", raw::S_IFDIR), ("pts", raw::S_IFDIR)];
            let all = devices.chain(links).chain(shared).enumerate();
            let all = all.map(|(at, (name, mode))| (name.as_bytes(), 2 + at as u64, mode));
            pack(&mut packer, position, (1, 1), all)
        }
        Node::Terminals => {
            let set = files.client()?.terminals()?;
            let there = (0..u64::BITS).filter(|number| set >> number & 1 != 0);
            let names: Vec<_> = there.map(|number| (number, format!("{number}"))).collect();
            let all = names
                .iter()
                .map(|(number, name)| (name.as_bytes(), 3 + u64::from(*number), raw::S_IFCHR));
            pack(&mut packer, position, (1, 1), all)
        }
        _ => return Err(Errno::ENOTDIR),
    };
    if packer.is_empty() && more {
        return Err(Errno::EINVAL);
    }
    Ok(packer.finish())
}

/// Packs `.`, `..` and `entries` from `position` on; was there anything to pack?
fn pack<'a>(
    packer: &mut Packer,
    position: u64,
    (own, parent): (u64, u64),
    entries: impl Iterator<Item = (&'a [u8], u64, u32)>,
) -> bool {
    let fixed = [(&b"."[..], own, raw::S_IFDIR), (b"..", parent, raw::S_IFDIR)];
    let mut any = false;
    for (at, (name, inode, mode)) in fixed.into_iter().chain(entries).enumerate() {
        if (at as u64) < position {
            continue;
        }
        any = true;
        if !packer.push(inode, at as u64 + 1, mode, name) {
            break;
        }
    }
    any
}
