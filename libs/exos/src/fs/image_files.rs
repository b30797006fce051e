//! Files of the boot image: read where they lie, without a call.

use image::archive::{Archive, Entry, Kind};
use linux_raw_sys::general as raw;
use unix::attributes::Attributes;

/// Device number shown for the image.
pub const DEVICE: u64 = 0x1;
const SECOND: u64 = 1_000_000_000;

/// The archive.
pub fn archive() -> Option<Archive<'static>> {
    Archive::open_checked(crate::start::image()).ok()
}

/// The entry of a number.
pub fn entry(index: u32) -> Option<Entry<'static>> {
    archive()?.entry(index)
}

/// A file's bytes, a link's target.
pub fn data(index: u32) -> &'static [u8] {
    let Some(archive) = archive() else { return &[] };
    archive.entry(index).map_or(&[], |entry| archive.data(&entry))
}

/// Attributes of an entry.
pub fn attributes(entry: &Entry<'static>) -> Attributes {
    let (kind, links) = match entry.kind {
        Kind::File => (raw::S_IFREG, 1),
        Kind::Symlink => (raw::S_IFLNK, 1),
        Kind::Directory => (raw::S_IFDIR, 2 + subdirectories(entry)),
    };
    let time = entry.mtime.saturating_mul(SECOND);
    Attributes {
        device: DEVICE,
        inode: u64::from(entry.index) + 1,
        mode: kind | entry.mode,
        links,
        uid: entry.uid,
        gid: entry.gid,
        size: if entry.kind == Kind::Directory { 4096 } else { entry.size },
        blocks: entry.size.div_ceil(4096) * 8,
        read_ns: time,
        written_ns: time,
        changed_ns: time,
        ..Attributes::default()
    }
}

fn subdirectories(entry: &Entry<'static>) -> u32 {
    let Some(archive) = archive() else { return 0 };
    archive.children(entry).filter(|child| child.kind == Kind::Directory).count() as u32
}
