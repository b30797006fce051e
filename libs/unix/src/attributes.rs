//! What a file is: its attributes, and the three records in which Linux programs ask for them.

use crate::errno::Errno;
use linux_raw_sys::general as raw;

/// Bits of a mode that say what kind of file it is.
pub const KIND_MASK: u32 = raw::S_IFMT;

/// In the mode of a file to be made: the group would execute it, but for the umask.
pub const GROUP_EXECUTES: u32 = 1 << 16;

/// What a file is made with: the set-group-id bit depends on what was asked for, not on what the
/// umask leaves of it (open(2), mknod(2)).
pub fn mode_of_new(kind: u32, mode: u32, umask: u32) -> u32 {
    let executes = if mode & 0o10 != 0 { GROUP_EXECUTES } else { 0 };
    kind | mode & 0o7777 & !umask | executes
}

/// A file's attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// File system.
    pub device: u64,
    /// File in it.
    pub inode: u64,
    /// Kind and permissions.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Device that a device file stands for.
    pub rdevice: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes in use.
    pub blocks: u64,
    /// Last read, nanoseconds since 1970.
    pub read_ns: u64,
    /// Last change of content.
    pub written_ns: u64,
    /// Last change of anything.
    pub changed_ns: u64,
    /// Of a file that a server looked up for a client: its seal for what that client may do.
    pub seal: u64,
    /// How what it lies in is mounted (`MS_NOSUID`).
    pub mount_flags: u64,
}

/// Bytes of [`Attributes`] as they travel between server and client.
pub const ATTRIBUTES_BYTES: usize = 12 * 8;
/// Bytes of `struct stat`.
pub const STAT_BYTES: usize = 144;
/// Bytes of `struct statx`.
pub const STATX_BYTES: usize = 256;
/// Bytes of `struct statfs`.
pub const STATFS_BYTES: usize = 120;
/// Preferred size of reads and writes.
pub const BLOCK_BYTES: u64 = 4096;
const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 24 * 60 * 60 * SECOND;

const _: () = assert!(size_of::<raw::stat>() == STAT_BYTES);
const _: () = assert!(size_of::<raw::statx>() == STATX_BYTES);
const _: () = assert!(size_of::<raw::statfs>() == STATFS_BYTES);

/// A device number as `st_rdev` holds it (makedev(3), small numbers).
pub const fn device_number(major: u64, minor: u64) -> u64 {
    (major & 0xfff) << 8 | minor & 0xff | (minor & !0xff) << 12
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

impl Attributes {
    /// The kind (`S_IFREG`…).
    pub fn kind(&self) -> u32 {
        self.mode & KIND_MASK
    }

    /// Is it a directory?
    pub fn is_directory(&self) -> bool {
        self.kind() == raw::S_IFDIR
    }

    /// For how many nanoseconds from `now` on reads need not be stamped: while the last one was
    /// since the last change, and within a day (mount(8), relatime).
    pub fn read_stays_noted(&self, now: u64) -> u64 {
        let read = self.read_ns;
        let is_last = read > self.written_ns && read > self.changed_ns;
        if is_last { DAY.saturating_sub(now.saturating_sub(read)) } else { 0 }
    }

    /// Somebody has written at this time, up to `end`.
    pub fn wrote(&mut self, end: u64, now: u64, who: &Credentials) {
        self.size = self.size.max(end);
        self.drop_set_id(who);
        self.changed(now);
    }

    /// Takes the set-id bits that a change of a regular file's content takes (write(2)): whoever
    /// may write must not leave the right to act as the owner behind, but for the superuser.
    #[inline]
    pub fn drop_set_id(&mut self, who: &Credentials) {
        if self.mode & 0o6000 != 0 && who.uid != 0 {
            self.mode &= !(0o4000 | self.dropped_set_group(who));
        }
    }

    /// The set-group-id bit, if it goes when `who` changes the file's content or owner: where the
    /// group executes, and where the asker is not in it. Elsewhere it means locking.
    pub fn dropped_set_group(&self, who: &Credentials) -> u32 {
        if self.mode & 0o10 != 0 { 0o2000 } else { self.foreign_set_group(who) }
    }

    /// The set-id bits that go when `who` changes the owner.
    fn dropped_set_id(&self, who: &Credentials) -> u32 {
        let bits = if self.is_directory() { 0 } else { 0o4000 | self.dropped_set_group(who) };
        self.mode & bits
    }

    /// Its content has changed at this time.
    pub fn changed(&mut self, now: u64) {
        (self.written_ns, self.changed_ns) = (now, now);
    }

    /// As it travels between server and client.
    pub fn to_bytes(&self) -> [u8; ATTRIBUTES_BYTES] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let words = [
            self.device,
            self.inode,
            pair(self.mode, self.links),
            pair(self.uid, self.gid),
            self.rdevice,
            self.size,
            self.blocks,
            self.read_ns,
            self.written_ns,
            self.changed_ns,
            self.seal,
            self.mount_flags,
        ];
        let mut bytes = [0; ATTRIBUTES_BYTES];
        for (at, word) in words.iter().enumerate() {
            put64(&mut bytes, at * 8, *word);
        }
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8; ATTRIBUTES_BYTES]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at * 8..at * 8 + 8]);
            u64::from_le_bytes(word)
        };
        Self {
            device: word(0),
            inode: word(1),
            mode: word(2) as u32,
            links: (word(2) >> 32) as u32,
            uid: word(3) as u32,
            gid: (word(3) >> 32) as u32,
            rdevice: word(4),
            size: word(5),
            blocks: word(6),
            read_ns: word(7),
            written_ns: word(8),
            changed_ns: word(9),
            seal: word(10),
            mount_flags: word(11),
        }
    }

    /// As `struct stat` (stat(2)).
    pub fn to_stat(&self) -> [u8; STAT_BYTES] {
        let mut bytes = [0; STAT_BYTES];
        put64(&mut bytes, 0, self.device);
        put64(&mut bytes, 8, self.inode);
        put64(&mut bytes, 16, u64::from(self.links));
        put32(&mut bytes, 24, self.mode);
        put32(&mut bytes, 28, self.uid);
        put32(&mut bytes, 32, self.gid);
        put64(&mut bytes, 40, self.rdevice);
        put64(&mut bytes, 48, self.size);
        put64(&mut bytes, 56, BLOCK_BYTES);
        put64(&mut bytes, 64, self.blocks);
        for (at, ns) in [self.read_ns, self.written_ns, self.changed_ns].iter().enumerate() {
            put64(&mut bytes, 72 + at * 16, ns / SECOND);
            put64(&mut bytes, 80 + at * 16, ns % SECOND);
        }
        bytes
    }

    /// As `struct statx` with the basic fields (statx(2)).
    pub fn to_statx(&self) -> [u8; STATX_BYTES] {
        let mut bytes = [0; STATX_BYTES];
        put32(&mut bytes, 0, raw::STATX_BASIC_STATS);
        put32(&mut bytes, 4, BLOCK_BYTES as u32);
        put32(&mut bytes, 16, self.links);
        put32(&mut bytes, 20, self.uid);
        put32(&mut bytes, 24, self.gid);
        put16(&mut bytes, 28, self.mode as u16);
        put64(&mut bytes, 32, self.inode);
        put64(&mut bytes, 40, self.size);
        put64(&mut bytes, 48, self.blocks);
        for (at, ns) in [(64, self.read_ns), (96, self.changed_ns), (112, self.written_ns)] {
            put64(&mut bytes, at, ns / SECOND);
            put32(&mut bytes, at + 8, (ns % SECOND) as u32);
        }
        for (at, number) in [(128, self.rdevice), (136, self.device)] {
            put32(&mut bytes, at, (number >> 8 & 0xfff) as u32);
            put32(&mut bytes, at + 4, (number & 0xff | number >> 12 & !0xff) as u32);
        }
        bytes
    }

    /// May somebody do what `mask` says (4 read, 2 write, 1 execute)? The superuser may all but
    /// execute what nobody may (path_resolution(7)).
    pub fn permits(&self, who: &Credentials, mask: u32) -> bool {
        if who.uid == 0 {
            return mask & 1 == 0 || self.is_directory() || self.mode & 0o111 != 0;
        }
        let bits = if who.uid == self.uid {
            self.mode >> 6
        } else if (self.mode >> 3 ^ self.mode) & 7 == 0 || !who.is_member(self.gid) {
            self.mode
        } else {
            self.mode >> 3
        };
        bits & mask == mask
    }

    /// May the asker give it this mode, owner and group (chmod(2), chown(2))?
    pub fn may_be_given(&self, given: &Given, who: &Credentials) -> Result<(), Errno> {
        if who.uid == 0 {
            return Ok(());
        }
        let owner = who.uid == self.uid;
        // Bits are taken by who may change the mode.
        let takes = given.is_of_owners() && self.dropped_set_id(who) != 0;
        let own_group = |gid| owner && (gid == self.gid || who.is_member(gid));
        let refused = (given.mode.is_some() || takes) && !owner
            || given.uid.is_some_and(|uid| uid != self.uid || !owner)
            || given.gid.is_some_and(|gid| !own_group(gid));
        if refused { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Gives it what the asker may give.
    pub fn give(&mut self, given: &Given, who: &Credentials) {
        if let Some(mode) = given.mode {
            self.mode = self.kind() | mode & 0o7777;
        }
        if given.is_of_owners() {
            // A new owner must not inherit the right to act as the old one.
            self.mode &= !self.dropped_set_id(who);
            self.uid = given.uid.unwrap_or(self.uid);
            self.gid = given.gid.unwrap_or(self.gid);
        }
        if given.mode.is_some() {
            self.mode &= !self.foreign_set_group(who);
        }
    }

    /// The set-group-id bit, if the asker may not set it here: it is not in the file's group
    /// (chmod(2)).
    pub fn foreign_set_group(&self, who: &Credentials) -> u32 {
        if who.uid == 0 || who.is_member(self.gid) { 0 } else { 0o2000 }
    }

    /// May the asker give it another name (proc_sys_fs(5), `protected_hardlinks`)? Its owner may;
    /// others one of a regular file that they can read and write, and that has no set-id bits.
    pub fn may_be_linked(&self, who: &Credentials) -> bool {
        let set_group = self.mode & 0o2010 == 0o2010;
        let plain = self.kind() == raw::S_IFREG && self.mode & 0o4000 == 0 && !set_group;
        who.uid == 0 || who.uid == self.uid || plain && self.permits(who, 6)
    }

    /// Does the asker follow this link, which lies in `directory` (proc_sys_fs(5),
    /// `protected_symlinks`)? Where everybody makes names and takes away none of others', that is
    /// its own, or one of the directory's owner.
    pub fn may_be_followed(&self, directory: &Attributes, who: &Credentials) -> bool {
        let open_to_all = directory.mode & 0o1002 == 0o1002;
        !open_to_all || who.uid == self.uid || directory.uid == self.uid
    }

    /// May the asker open this file, which lies in `directory`, by a call that makes files
    /// (proc_sys_fs(5), `protected_regular` 2 and `protected_fifos` 1)? Where others make names and
    /// take away none of its own, that is its own, or one of the directory's owner.
    pub fn may_be_meant(&self, directory: &Attributes, who: &Credentials) -> bool {
        let makers = if self.kind() == raw::S_IFREG { 0o022 } else { 0o002 };
        let sticky = directory.mode & 0o1000 != 0;
        let open_to_others = sticky && directory.mode & makers != 0;
        !open_to_others || who.uid == self.uid || directory.uid == self.uid
    }
}

/// What a file is to be given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Owning group.
    pub gid: Option<u32>,
    /// Was it chown(2) that was asked for, also where it gives nothing?
    pub owner: bool,
}

impl Given {
    fn is_of_owners(&self) -> bool {
        self.owner || self.uid.is_some() || self.gid.is_some()
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// How further groups are looked up; `None`: there are none.
    pub more: Option<Membership>,
}

impl Credentials {
    /// A user and one group.
    pub const fn of(uid: u32, gid: u32) -> Self {
        Self { uid, gid, more: None }
    }

    /// Is the asker in this group?
    pub fn is_member(&self, group: u32) -> bool {
        self.gid == group || self.more.is_some_and(|more| (more.asks)(more.of, group))
    }
}

/// Where an asker's further groups are looked up: of what, and by which function.
#[derive(Clone, Copy, Debug)]
pub struct Membership {
    /// Whose they are, as the function understands it.
    pub of: u64,
    /// Is it in this group?
    pub asks: fn(u64, u32) -> bool,
}

impl PartialEq for Membership {
    fn eq(&self, other: &Self) -> bool {
        self.of == other.of
    }
}

impl Eq for Membership {}

/// A file system's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Magic number of the file system's type (statfs(2)).
    pub kind: u64,
    /// Blocks of [`BLOCK_BYTES`].
    pub blocks: u64,
    /// Free ones.
    pub blocks_free: u64,
    /// Files there may be.
    pub files: u64,
    /// Files there may be more.
    pub files_free: u64,
    /// `ST_RDONLY` and the like.
    pub flags: u64,
}

impl Space {
    /// As `struct statfs`.
    pub fn to_statfs(&self) -> [u8; STATFS_BYTES] {
        let mut bytes = [0; STATFS_BYTES];
        let words = [
            self.kind,
            BLOCK_BYTES,
            self.blocks,
            self.blocks_free,
            self.blocks_free,
            self.files,
            self.files_free,
            0,
            255,
            BLOCK_BYTES,
            self.flags,
        ];
        for (at, word) in words.iter().enumerate() {
            put64(&mut bytes, at * 8, *word);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Attributes {
        Attributes {
            device: 5,
            inode: 1 << 40 | 7,
            mode: raw::S_IFREG | 0o640,
            links: 2,
            uid: 1000,
            gid: 100,
            rdevice: device_number(5, 1),
            size: 12345,
            blocks: 32,
            read_ns: 3 * SECOND + 1,
            written_ns: 4 * SECOND + 2,
            changed_ns: 5 * SECOND + 3,
            seal: 77,
            mount_flags: 14,
        }
    }

    #[test]
    fn fields_lie_where_linux_has_them() {
        use core::mem::offset_of;
        let bytes = sample().to_stat();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(word(offset_of!(raw::stat, st_size)), 12345);
        assert_eq!(word(offset_of!(raw::stat, st_ino)), 1 << 40 | 7);
        assert_eq!(word(offset_of!(raw::stat, st_mtime)), 4);
        assert_eq!(word(offset_of!(raw::stat, st_ctime_nsec)), 3);
        assert_eq!(word(offset_of!(raw::stat, st_blocks)), 32);
        let bytes = sample().to_statx();
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(half(offset_of!(raw::statx, stx_mtime)), 4);
        assert_eq!(half(offset_of!(raw::statx, stx_ctime)), 5);
        assert_eq!(half(offset_of!(raw::statx, stx_rdev_major)), 5);
        assert_eq!(half(offset_of!(raw::statx, stx_rdev_minor)), 1);
        assert_eq!(half(offset_of!(raw::statx, stx_mode)) & 0xffff, raw::S_IFREG | 0o640);
    }

    #[test]
    fn attributes_travel_unchanged() {
        assert_eq!(Attributes::from_bytes(&sample().to_bytes()), sample());
    }

    #[test]
    fn permissions_are_those_of_the_first_class_that_fits() {
        let file = Attributes { mode: raw::S_IFREG | 0o604, ..sample() };
        assert!(file.permits(&Credentials::of(1000, 1), 6));
        assert!(!file.permits(&Credentials::of(1000, 1), 1));
        assert!(!file.permits(&Credentials::of(1, 100), 4));
        assert!(file.permits(&Credentials::of(1, 1), 4));
        assert!(file.permits(&Credentials::of(0, 0), 6));
        assert!(!file.permits(&Credentials::of(0, 0), 1));
        let more = Some(Membership { of: 3, asks: |of, group| of == 3 && group == 100 });
        assert!(file.permits(&Credentials { more, ..Credentials::of(1, 1) }, 0));
        let shared = Attributes { mode: raw::S_IFREG | 0o660, uid: 1000, gid: 100, ..file };
        assert!(shared.permits(&Credentials { more, ..Credentials::of(1, 1) }, 6));
        assert!(!shared.permits(&Credentials::of(1, 1), 4));
        let other = Attributes { gid: 101, ..shared };
        assert!(!other.permits(&Credentials { more, ..Credentials::of(1, 1) }, 4));
    }
}
