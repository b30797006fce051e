//! What the tree begins with: the directories that are mounted, and what the boot image has there.

use image::archive::{Archive, Kind};
use unix::attributes::Credentials;
use unix::tree::{self, Change, ROOT, Tree};

/// Index of the capability over the boot image, given by init.
const IMAGE: u8 = 1;
/// Index of the capability over the console, for the log.
pub const LOG: u8 = 3;
const SUPER: Credentials = Credentials::of(0, 0);
const SECOND: u64 = 1_000_000_000;

/// Makes the directories and copies the image's files into them. What does not fit or cannot be
/// read is left out: the log says so.
pub fn fill(tree: &mut Tree) {
    for &(path, mode) in unix::mounts::WRITABLE {
        let name = unix::mounts::name(path);
        if tree.make_directory(ROOT, name, mode, &SUPER).is_err() {
            xok::log!(LOG, "tmpfsd: no directory for {path}");
        }
    }
    let Ok(bytes) = xok::boot_image::map(IMAGE) else { return };
    let Ok(archive) = Archive::open_checked(bytes) else { return };
    for index in 0..archive.entry_count() {
        let Some(entry) = archive.entry(index) else { break };
        let Some((directory, rest)) = unix::mounts::inside(entry.path().as_bytes()) else {
            continue;
        };
        if rest.is_empty() {
            continue;
        }
        let (parents, name) = match rest.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (&rest[..0], rest),
        };
        let Some(mount) = tree.child(ROOT, directory) else { continue };
        let Ok(walk) = tree.walk(mount, parents, &SUPER) else { continue };
        let who = Credentials::of(entry.uid, entry.gid);
        let made = match entry.kind {
            Kind::Directory => tree.make_directory(walk.node, name, entry.mode, &SUPER),
            Kind::Symlink => tree.make_link(walk.node, name, archive.data(&entry), &SUPER),
            Kind::File => tree
                .create(walk.node, name, tree::Kind::File, entry.mode, &SUPER)
                .and_then(|id| tree.write(id, 0, archive.data(&entry), &SUPER).map(|_| id)),
        };
        let time = Some(entry.mtime.saturating_mul(SECOND));
        let change = Change {
            uid: Some(who.uid),
            gid: Some(who.gid),
            read_ns: time,
            written_ns: time,
            ..Change::default()
        };
        if made.and_then(|id| tree.change(id, &change, &SUPER)).is_err() {
            xok::log!(LOG, "tmpfsd: {} left out", entry.path());
        }
    }
}
