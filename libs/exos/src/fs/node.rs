//! What a path names, in any of the file systems.

use image::archive::Kind;
use linux_raw_sys::general as raw;
use unix::Errno;
use unix::attributes::{Attributes, Credentials, device_number};
use unix::path::Canonical;
use unix::tree::Id;

use super::proc_files::Item;
use super::{Files, image_files, proc_files, pty};
use alloc::vec::Vec;

/// A file, wherever it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// An entry of the boot image.
    Image(u32),
    /// An inode of the memory file system.
    Memory(Id),
    /// /dev
    Devices,
    /// A device.
    Device(Device),
    /// /dev/pts
    Terminals,
    /// A terminal in it.
    Slave(u32),
    /// A symbolic link in /dev, by its place in [`DEVICE_LINKS`].
    DeviceLink(usize),
    /// Something in /proc.
    Proc(Item),
    /// An open descriptor, named by /proc/self/fd, that has no path.
    Descriptor(u32),
}

/// Devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Nothing.
    Null,
    /// Zeros.
    Zero,
    /// Zeros, and no room.
    Full,
    /// Random bytes.
    Random,
    /// Random bytes.
    Urandom,
    /// The terminal of the session.
    Terminal,
    /// The terminal.
    Console,
    /// What makes terminals.
    Master,
}

/// Names in /dev: name, device, major and minor number, permissions.
pub const DEVICES: &[(&str, Device, u64, u64, u32)] = &[
    ("console", Device::Console, 5, 1, 0o600),
    ("full", Device::Full, 1, 7, 0o666),
    ("null", Device::Null, 1, 3, 0o666),
    ("ptmx", Device::Master, 5, 2, 0o666),
    ("random", Device::Random, 1, 8, 0o666),
    ("tty", Device::Terminal, 5, 0, 0o666),
    ("urandom", Device::Urandom, 1, 9, 0o666),
    ("zero", Device::Zero, 1, 5, 0o666),
];

/// Symbolic links in /dev.
pub const DEVICE_LINKS: &[(&str, &str)] = &[
    ("fd", "/proc/self/fd"),
    ("stderr", "/proc/self/fd/2"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
];

/// Device number of /dev itself.
const DEVICES_DEVICE: u64 = 0x5;
const DEVICES_INODE: u64 = 1;

/// A node and the canonical path by which it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The node.
    pub node: Node,
    /// Its path.
    pub path: Canonical,
}

impl Default for Place {
    fn default() -> Self {
        Self { node: Node::Image(0), path: Canonical::default() }
    }
}

/// The device of a name in /dev.
pub fn device_named(name: &[u8]) -> Option<Node> {
    let device = DEVICES.iter().find(|entry| entry.0.as_bytes() == name);
    if name == b"pts" {
        return Some(Node::Terminals);
    }
    let link = || DEVICE_LINKS.iter().position(|entry| entry.0.as_bytes() == name);
    device.map(|entry| Node::Device(entry.1)).or_else(|| link().map(Node::DeviceLink))
}

/// Attributes of a device.
pub fn device_attributes(device: Device) -> Attributes {
    let at = DEVICES.iter().position(|entry| entry.1 == device).unwrap_or(0);
    let (_, _, major, minor, mode) = DEVICES[at];
    Attributes {
        device: DEVICES_DEVICE,
        inode: 2 + at as u64,
        mode: raw::S_IFCHR | mode,
        links: 1,
        gid: if matches!(device, Device::Terminal | Device::Console | Device::Master) {
            5
        } else {
            0
        },
        rdevice: device_number(major, minor),
        ..stamped()
    }
}

/// Attributes whose times are those of boot: nothing in /dev and /proc changes.
pub fn stamped() -> Attributes {
    let wall = xok::published::clock().wall_ns;
    Attributes { read_ns: wall, written_ns: wall, changed_ns: wall, ..Attributes::default() }
}

impl Node {
    /// Attributes.
    pub fn attributes(&self, files: &Files) -> Result<Attributes, Errno> {
        match *self {
            Node::Image(index) => {
                let entry = image_files::entry(index).ok_or(Errno::EIO)?;
                Ok(image_files::attributes(&entry))
            }
            Node::Memory(id) => files.client()?.attributes(id),
            Node::Devices => Ok(Attributes {
                device: DEVICES_DEVICE,
                inode: DEVICES_INODE,
                mode: raw::S_IFDIR | 0o755,
                links: 3,
                ..stamped()
            }),
            Node::Device(device) => Ok(device_attributes(device)),
            Node::Terminals => Ok(Attributes {
                device: 0x18,
                inode: 1,
                mode: raw::S_IFDIR | 0o755,
                links: 2,
                ..stamped()
            }),
            Node::Slave(number) => pty::attributes(files, pty::whichever(number)),
            Node::DeviceLink(at) => Ok(Attributes {
                device: DEVICES_DEVICE,
                inode: 100 + at as u64,
                mode: raw::S_IFLNK | 0o777,
                links: 1,
                size: DEVICE_LINKS.get(at).map_or(0, |link| link.1.len() as u64),
                ..stamped()
            }),
            Node::Proc(item) => proc_files::attributes(item),
            Node::Descriptor(fd) => files.any(fd as i32)?.file.attributes(files),
        }
    }

    /// Is it a directory? Without a call where that is known.
    pub fn is_directory(&self, files: &Files) -> bool {
        match *self {
            Node::Image(index) => {
                image_files::entry(index).is_some_and(|entry| entry.kind == Kind::Directory)
            }
            Node::Devices | Node::Terminals => true,
            Node::Device(_) | Node::DeviceLink(_) | Node::Descriptor(_) | Node::Slave(_) => false,
            _ => self.attributes(files).is_ok_and(|attributes| attributes.is_directory()),
        }
    }

    /// Where a symbolic link leads; `EINVAL` for anything else.
    pub fn target(&self, files: &Files) -> Result<Vec<u8>, Errno> {
        match *self {
            Node::Image(index) => match image_files::entry(index) {
                Some(entry) if entry.kind == Kind::Symlink => Ok(image_files::data(index).to_vec()),
                _ => Err(Errno::EINVAL),
            },
            Node::Memory(id) => files.client()?.link_target(id),
            Node::DeviceLink(at) => {
                DEVICE_LINKS.get(at).map(|link| link.1.as_bytes().to_vec()).ok_or(Errno::EINVAL)
            }
            Node::Proc(item) => proc_files::target(files, item),
            _ => Err(Errno::EINVAL),
        }
    }

    /// May `who` do what `mask` says (4 read, 2 write, 1 execute or search)?
    pub fn permits(&self, files: &Files, who: &Credentials, mask: u32) -> Result<(), Errno> {
        if let Node::Memory(id) = *self {
            return files.client()?.access(id, mask);
        }
        let attributes = self.attributes(files)?;
        if mask & 2 != 0 && matches!(self, Node::Image(_)) {
            return Err(Errno::EROFS);
        }
        if attributes.permits(who, mask) { Ok(()) } else { Err(Errno::EACCES) }
    }
}
