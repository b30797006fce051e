//! What a description refers to, and the operations that every kind has.

use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use unix::Errno;
use unix::attributes::Attributes;
use unix::protocol::AT_END;
use unix::tree::Id;

use super::description::Description;
use super::epoll::Epoll;
use super::event_counter::EventCounter;
use super::node::{Device, Node, device_attributes, stamped};
use super::pipe::Pipe;
use super::pty::Master;
use super::region::{Done, Heritage, Region};
use super::room::Hope;
use super::shown::READS_BEFORE;
use super::signal_file::SignalFile;
use super::terminal::Tty;
use super::timer_file::TimerFile;
use super::transfer::Memory;
use super::{Files, image_files, pty};
use crate::net::socket::Socket;
use crate::parts::OwnFile;
use crate::process::Process;
use crate::unix_sockets::UnixSocket;

/// Bytes moved through a buffer at a time.
pub const CHUNK: usize = 4096;

/// What is open.
#[derive(Debug)]
pub enum OpenFile {
    /// A file, directory or device.
    Node(Node),
    /// A file of /proc: what it said when it was opened.
    Text(Node, Vec<u8>),
    /// An end (or both) of a pipe.
    Pipe(Pipe),
    /// A counter of events.
    EventCounter(EventCounter),
    /// A timer.
    Timer(TimerFile),
    /// Signals that are read.
    Signals(SignalFile),
    /// Descriptors watched.
    Epoll(Epoll),
    /// A terminal.
    Terminal(Tty),
    /// What makes a terminal of programs' own.
    Master(Master),
    /// A socket.
    Socket(Socket),
    /// A local socket.
    UnixSocket(UnixSocket),
    /// What the program reads and writes by functions of its own.
    Own(OwnFile),
    /// A standard stream of a machine that runs one program: 0 in, 1 out, 2 error.
    Stream(u8),
}

impl OpenFile {
    /// The node, if it has a name.
    pub fn node(&self) -> Option<Node> {
        match self {
            OpenFile::Node(node) | OpenFile::Text(node, _) => Some(*node),
            _ => None,
        }
    }

    /// Can it be read at any offset?
    pub fn seekable(&self) -> bool {
        match self {
            OpenFile::Node(Node::Device(Device::Terminal | Device::Console | Device::Master)) => {
                false
            }
            OpenFile::Node(_) | OpenFile::Text(..) => true,
            _ => false,
        }
    }

    /// Attributes.
    pub fn attributes(&self, files: &Files) -> Result<Attributes, Errno> {
        match self {
            OpenFile::Node(node) | OpenFile::Text(node, _) => node.attributes(files),
            OpenFile::Pipe(pipe) => pipe.attributes(files),
            OpenFile::Socket(socket) => Ok(Attributes {
                device: 0x8,
                inode: u64::from(socket.number),
                mode: raw::S_IFSOCK | 0o777,
                links: 1,
                ..stamped()
            }),
            OpenFile::UnixSocket(socket) => Ok(Attributes {
                device: 0x8,
                inode: u64::from(socket.number),
                mode: raw::S_IFSOCK | 0o777,
                links: 1,
                ..stamped()
            }),
            OpenFile::EventCounter(_)
            | OpenFile::Timer(_)
            | OpenFile::Signals(_)
            | OpenFile::Epoll(_)
            | OpenFile::Own(_) => {
                Ok(Attributes { device: 0xd, inode: 1, mode: 0o600, links: 1, ..stamped() })
            }
            OpenFile::Terminal(Tty { number: Some(number), settings, .. }) => {
                pty::attributes(files, (*number, settings.id))
            }
            OpenFile::Terminal(_) => Ok(device_attributes(Device::Console)),
            OpenFile::Master(_) => Ok(device_attributes(Device::Master)),
            OpenFile::Stream(number) => Ok(Attributes {
                device: 0xc,
                inode: 1 + u64::from(*number),
                mode: raw::S_IFIFO | 0o600,
                links: 1,
                ..stamped()
            }),
        }
    }

    /// The region that the file is, if it is one.
    fn held(&self) -> Option<Region> {
        match self {
            OpenFile::EventCounter(counter) => Some(counter.words),
            OpenFile::Timer(timer) => Some(timer.words),
            OpenFile::Signals(file) => Some(file.words),
            _ => None,
        }
    }

    /// Attaches another domain to the regions that the file itself has.
    pub fn attach(&self, heritage: &mut Heritage) -> Result<(), Errno> {
        match self {
            OpenFile::Pipe(pipe) => pipe.attach(heritage),
            OpenFile::Socket(socket) => socket.attach(heritage),
            OpenFile::UnixSocket(socket) => socket.attach(heritage),
            OpenFile::Terminal(tty) => tty.attach(heritage),
            OpenFile::Master(master) => master.attach(heritage),
            _ => self.held().map_or(Ok(()), |words| heritage.add(&words)),
        }
    }

    /// Gives the file's own attachments back: the last descriptor is closed.
    pub fn close(&self) {
        match self {
            OpenFile::Pipe(pipe) => pipe.detach(),
            OpenFile::Socket(socket) => socket.close(),
            OpenFile::UnixSocket(socket) => socket.close(),
            OpenFile::Terminal(tty) => tty.detach(),
            OpenFile::Master(master) => master.detach(),
            _ => {
                if let Some(words) = self.held() {
                    words.detach();
                }
            }
        }
    }
}

/// Reads from `description` at its offset.
pub fn read(
    process: &mut Process,
    description: &Description,
    memory: &mut Memory<'_>,
) -> Result<u64, Errno> {
    if !description.readable() {
        return Err(Errno::EBADF);
    }
    match &description.file {
        OpenFile::Pipe(pipe) => return pipe.read(process, description, memory),
        OpenFile::Socket(socket) => {
            let nonblocking = description.nonblocking();
            return socket.receive(process, memory, 0, nonblocking).map(|got| got.count);
        }
        OpenFile::UnixSocket(socket) => {
            if memory.left() == 0 {
                return Ok(0);
            }
            let waits = !description.nonblocking();
            return socket.receive(process, memory, 0, waits).map(|got| got.count);
        }
        OpenFile::EventCounter(counter) => return counter.read(process, description, memory),
        OpenFile::Timer(timer) => return timer.read(process, description, memory),
        OpenFile::Signals(file) => return file.read(process, description, memory),
        OpenFile::Epoll(_) => return Err(Errno::EINVAL),
        OpenFile::Own(file) => return file.read(memory),
        OpenFile::Terminal(tty) => return tty.read(process, description, memory),
        OpenFile::Master(master) => return master.read(process, description, memory),
        OpenFile::Stream(0) => return Tty::console()?.read(process, description, memory),
        OpenFile::Stream(_) => return Err(Errno::EBADF),
        _ => {}
    }
    if !description.is_shared() {
        let offset = description.offset()?;
        let count = read_at(&process.files, description, offset, memory)?;
        description.set_offset(offset + count)?;
        return Ok(count);
    }
    // The bytes are taken first, so that two readers never get the same ones.
    let size = match &description.file {
        OpenFile::Text(_, text) => text.len() as u64,
        OpenFile::Node(Node::Device(_)) => u64::MAX,
        file => file.attributes(&process.files)?.size,
    };
    let (offset, most) = loop {
        let offset = description.offset()?;
        let most = size.saturating_sub(offset).min(memory.left());
        if most == 0 || description.move_offset(offset, offset + most)? == Done::Yes {
            break (offset, most);
        }
    };
    let result = read_most(&process.files, description, offset, most, memory);
    let count = result.unwrap_or(0);
    if count < most {
        description.move_offset(offset + most, offset + count)?;
    }
    result
}

/// Reads at `offset`, leaving the description's own alone.
pub fn read_at(
    files: &Files,
    description: &Description,
    offset: u64,
    memory: &mut Memory<'_>,
) -> Result<u64, Errno> {
    read_most(files, description, offset, u64::MAX, memory)
}

/// As `read_at`, at most `most` bytes.
fn read_most(
    files: &Files,
    description: &Description,
    offset: u64,
    most: u64,
    memory: &mut Memory<'_>,
) -> Result<u64, Errno> {
    let cut = |data: &'_ [u8]| (data.len() as u64).min(most) as usize;
    match &description.file {
        OpenFile::Node(Node::Image(index)) => {
            let Some(entry) = image_files::entry(*index) else { return Err(Errno::EIO) };
            if entry.kind == image::archive::Kind::Directory {
                return Err(Errno::EISDIR);
            }
            let data = image_files::data(*index);
            let rest = usize::try_from(offset).ok().and_then(|at| data.get(at..)).unwrap_or(&[]);
            Ok(memory.put(&rest[..cut(rest)])? as u64)
        }
        OpenFile::Node(Node::Memory(id)) => {
            let (whole, mut done) = read_shown(files, description, *id, offset, most, memory);
            if whole {
                return Ok(done);
            }
            let client = files.client_of(description, memory.left().min(most - done))?;
            let sealed = (*id, description.seal.get());
            while memory.left().min(most - done) > 0 {
                let room = memory.left().min(most - done).min(client.room());
                let (count, put) = match client.read_into(sealed, offset + done, room, memory) {
                    Ok(result) => result,
                    Err(_) if done > 0 => break,
                    Err(errno) => return Err(errno),
                };
                done += put;
                if count < room || put < count {
                    break;
                }
            }
            Ok(done)
        }
        OpenFile::Node(Node::Device(device)) => read_device(*device, memory),
        OpenFile::Text(_, text) => {
            let rest = usize::try_from(offset).ok().and_then(|at| text.get(at..)).unwrap_or(&[]);
            Ok(memory.put(&rest[..cut(rest)])? as u64)
        }
        OpenFile::Node(_) => Err(Errno::EISDIR),
        _ => Err(Errno::ESPIPE),
    }
}

/// Reads from what the server shows, of a file that is read often: is that all, and how many bytes?
fn read_shown(
    files: &Files,
    description: &Description,
    id: Id,
    offset: u64,
    most: u64,
    memory: &mut Memory<'_>,
) -> (bool, u64) {
    let reads = description.reads.get();
    if reads < READS_BEFORE {
        description.reads.set(reads + 1);
        return (false, 0);
    }
    let mut done = 0;
    while memory.left().min(most - done) > 0 {
        match files.read_shown(id, offset + done, most - done, memory) {
            None => return (false, done),
            Some(0) => break,
            Some(count) => done += count,
        }
    }
    (true, done)
}

fn read_device(device: Device, memory: &mut Memory<'_>) -> Result<u64, Errno> {
    match device {
        Device::Null => Ok(0),
        Device::Zero | Device::Full => memory.put_zeros(memory.left()),
        Device::Random | Device::Urandom => {
            let mut done = 0;
            while memory.left() > 0 {
                let Ok(word) = xok::call::entropy() else { return Err(Errno::EIO) };
                let put = match memory.put(&word.to_le_bytes()) {
                    Err(errno) if done == 0 => return Err(errno),
                    other => other.unwrap_or(0),
                };
                done += put as u64;
                if put < size_of::<u64>() {
                    break;
                }
            }
            Ok(done)
        }
        Device::Terminal | Device::Console | Device::Master => Err(Errno::ENXIO),
    }
}

/// Writes to `description` at its offset, or at the end if it appends.
pub fn write(
    process: &mut Process,
    description: &Description,
    memory: &mut Memory<'_>,
) -> Result<u64, Errno> {
    if !description.writable() {
        return Err(Errno::EBADF);
    }
    match &description.file {
        OpenFile::Pipe(pipe) => return pipe.write(process, description, memory),
        OpenFile::Socket(socket) => {
            return socket.send(process, memory, None, 0, description.nonblocking());
        }
        OpenFile::UnixSocket(socket) => {
            let waits = !description.nonblocking();
            return socket.send(process, memory, (None, None), 0, waits);
        }
        OpenFile::EventCounter(counter) => return counter.write(process, description, memory),
        OpenFile::Epoll(_) | OpenFile::Timer(_) | OpenFile::Signals(_) => {
            return Err(Errno::EINVAL);
        }
        OpenFile::Own(file) => return file.write(memory),
        OpenFile::Terminal(tty) => return tty.write(process, description, memory),
        OpenFile::Master(master) => return master.write(process, description, memory),
        OpenFile::Stream(number) if *number > 0 => {
            return Tty::console_stream(*number == 2)?.write(process, description, memory);
        }
        OpenFile::Stream(_) => return Err(Errno::EBADF),
        _ => {}
    }
    let appends = description.flags()? & raw::O_APPEND != 0;
    if appends {
        let (count, behind) = write_at(process, description, AT_END, memory)?;
        if count > 0 {
            description.set_offset(behind)?;
        }
        return Ok(count);
    }
    // The place is taken first, so that two writers never write the same one.
    let len = memory.left();
    let offset = loop {
        let offset = description.offset()?;
        if description.move_offset(offset, offset + len)? == Done::Yes {
            break offset;
        }
    };
    let result = write_at(process, description, offset, memory);
    let written = result.map_or(0, |(count, _)| count);
    if written < len {
        description.move_offset(offset + len, offset + written)?;
    }
    result.map(|(count, _)| count)
}

/// Writes at `offset` (`AT_END`: at the end); how many bytes, and the offset behind them.
pub fn write_at(
    process: &mut Process,
    description: &Description,
    offset: u64,
    memory: &mut Memory<'_>,
) -> Result<(u64, u64), Errno> {
    match &description.file {
        OpenFile::Node(Node::Memory(id)) => {
            let limit = process.limit(raw::RLIMIT_FSIZE);
            let client = process.files.client_of(description, memory.left())?;
            let sealed = (*id, description.seal.get());
            let (mut done, mut behind, mut hope) = (0, offset, Hope::default());
            // How much may be put to the end is known by where that is now.
            let grows = offset == AT_END && limit <= i64::MAX as u64;
            let end = if grows { client.attributes(*id)?.size } else { offset };
            while memory.left() > 0 {
                let mut room = memory.left().min(client.room());
                let place = if behind == AT_END { end } else { behind };
                if place != AT_END && place.saturating_add(room) > limit {
                    room = limit.saturating_sub(place);
                    if room == 0 {
                        if done > 0 {
                            break;
                        }
                        process.raise(raw::SIGXFSZ);
                        return Err(Errno::EFBIG);
                    }
                }
                // What is put to the end is put behind what others have put there meanwhile.
                let at = if offset == AT_END { AT_END } else { behind };
                let (count, after) = match client.write_from(sealed, at, (room, &mut hope), memory)
                {
                    Ok(result) => result,
                    Err(_) if done > 0 => break,
                    Err(errno) => return Err(errno),
                };
                done += count;
                behind = after;
                // Where less was written than asked for, the rest may have room later.
                if count == 0 {
                    break;
                }
            }
            Ok((done, if behind == AT_END { 0 } else { behind }))
        }
        OpenFile::Node(Node::Device(device)) => match device {
            Device::Full => Err(Errno::ENOSPC),
            Device::Terminal | Device::Console | Device::Master => Err(Errno::ENXIO),
            _ => {
                let count = memory.left();
                memory.advance(count);
                Ok((count, offset.saturating_add(count)))
            }
        },
        OpenFile::Node(_) | OpenFile::Text(..) => Err(Errno::EINVAL),
        _ => Err(Errno::ESPIPE),
    }
}
