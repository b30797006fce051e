//! What an archive answers, and each reason to refuse one.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::random::Random;

fn sample() -> Vec<u8> {
    let mut builder = Builder::new();
    let read = Attributes::mode(0o644);
    let owned = Attributes { mode: 0o755, uid: 7, gid: 8, mtime: 1_700_000_000 };
    builder.file("/bin/busybox", owned, vec![0x7f; 5000]).unwrap();
    builder.symlink("/bin/sh", "busybox").unwrap();
    builder.file("/bin-extra", read, b"x".to_vec()).unwrap();
    builder.file("/etc/empty", read, Vec::new()).unwrap();
    builder.file("/etc/passwd", read, b"root:x:0:0::/root:/bin/sh\n".to_vec()).unwrap();
    builder.directory("/tmp", Attributes::mode(0o1777)).unwrap();
    builder.build().unwrap()
}

/// The order of paths is: / /bin /bin-extra /bin/busybox /bin/sh /etc /etc/empty /etc/passwd /tmp.
const BIN_EXTRA: usize = 2;
const BUSYBOX: usize = 3;
const SH: usize = 4;
const PASSWD: usize = 7;

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn get64(bytes: &[u8], at: usize) -> u64 {
    word64(bytes, at).unwrap()
}

/// Makes the checksums right again, so that the check behind them is the one that answers.
fn seal(bytes: &mut [u8]) {
    let end = (get64(bytes, header::NAMES_OFFSET)).saturating_add(get64(bytes, header::NAMES_SIZE))
        as usize;
    if let Some(directory) = bytes.get(PAGE_SIZE..end) {
        let crc = crc32(directory);
        put32(bytes, header::DIRECTORY_CRC, crc);
    }
    let crc = crc32(&bytes[..header::HEADER_CRC]);
    put32(bytes, header::HEADER_CRC, crc);
}

/// What opening says after `change`, with right checksums.
fn refusal(change: impl FnOnce(&mut Vec<u8>)) -> ArchiveError {
    let mut bytes = sample();
    change(&mut bytes);
    seal(&mut bytes);
    Archive::open(&bytes).unwrap_err()
}

fn at(entry: usize, field: usize) -> usize {
    PAGE_SIZE + entry * ENTRY_SIZE + field
}

#[test]
fn finds_what_was_put_in() {
    let bytes = sample();
    let archive = Archive::open(&bytes).unwrap();
    let busybox = archive.lookup("/bin/busybox").unwrap();
    assert_eq!(busybox.kind, Kind::File);
    assert_eq!((busybox.mode, busybox.uid, busybox.gid), (0o755, 7, 8));
    assert_eq!((busybox.mtime, busybox.size), (1_700_000_000, 5000));
    assert_eq!(busybox.data_offset % PAGE_SIZE as u64, 0);
    assert_eq!(archive.data(&busybox), vec![0x7f; 5000]);
    assert_eq!((busybox.name(), busybox.path()), ("busybox", "/bin/busybox"));

    let sh = archive.lookup("/bin/sh").unwrap();
    assert_eq!(archive.target(&sh), Some("busybox"));
    assert_eq!(archive.target(&busybox), None);
    let empty = archive.lookup("/etc/empty").unwrap();
    assert!(archive.data(&empty).is_empty());
    assert_eq!(archive.lookup("/tmp").unwrap().mode, 0o1777);
    for missing in ["", "bin", "/bin/", "/bin/shell", "/zzz", "/bi", "/etc/passwd/"] {
        assert!(archive.lookup(missing).is_none(), "{missing}");
    }
    assert!(archive.entry(archive.entry_count()).is_none());
}

#[test]
fn lists_directories() {
    let bytes = sample();
    let archive = Archive::open(&bytes).unwrap();
    let names = |path| -> Vec<&str> {
        archive.children(&archive.lookup(path).unwrap()).map(|entry| entry.name()).collect()
    };
    assert_eq!(names("/"), ["bin", "bin-extra", "etc", "tmp"]);
    assert_eq!(names("/bin"), ["busybox", "sh"]);
    assert_eq!(names("/etc"), ["empty", "passwd"]);
    assert_eq!(names("/tmp"), [""; 0]);
    assert_eq!(names("/bin-extra"), [""; 0]);
}

#[test]
fn finds_children_by_name() {
    let bytes = sample();
    let archive = Archive::open(&bytes).unwrap();
    let root = archive.root().unwrap();
    let bin = archive.child(&root, "bin").unwrap();
    assert_eq!(archive.child(&bin, "sh").unwrap().path(), "/bin/sh");
    assert_eq!(archive.child(&root, "tmp").unwrap().path(), "/tmp");
    for missing in ["", "s", "shh", "/", "busybox/", "zz"] {
        assert!(archive.child(&bin, missing).is_none(), "{missing}");
    }
    assert!(archive.child(&root, "bin/sh").is_none());
}

#[test]
fn same_entries_give_same_bytes() {
    let mut builder = Builder::new();
    builder.directory("/tmp", Attributes::mode(0o1777)).unwrap();
    builder.symlink("/bin/sh", "busybox").unwrap();
    builder.file("/etc/passwd", Attributes::mode(0o600), b"old".to_vec()).unwrap();
    let read = Attributes::mode(0o644);
    builder.file("/etc/passwd", read, b"root:x:0:0::/root:/bin/sh\n".to_vec()).unwrap();
    builder.file("/etc/empty", read, Vec::new()).unwrap();
    let owned = Attributes { mode: 0o755, uid: 7, gid: 8, mtime: 1_700_000_000 };
    builder.file("/bin-extra", read, b"x".to_vec()).unwrap();
    builder.file("/bin/busybox", owned, vec![0x7f; 5000]).unwrap();
    assert!(builder.build().unwrap() == sample());
}

#[test]
fn builder_refuses() {
    let mut builder = Builder::new();
    let read = Attributes::mode(0o644);
    let long = "/".to_string() + &"x".repeat(NAME_MAX + 1);
    for path in ["", "bin", "/", "/bin/", "//bin", "/bin/../sh", "/./bin", "/a\0b", &long] {
        let answer = builder.file(path, read, Vec::new());
        assert_eq!(answer, Err(BuildError::BadPath(path.to_string())));
    }
    assert!(matches!(builder.symlink("/a", ""), Err(BuildError::BadTarget(_))));
    let wide = Attributes::mode(0o10000);
    assert!(matches!(builder.directory("/a", wide), Err(BuildError::BadMode(_))));
    builder.file("/a", read, Vec::new()).unwrap();
    builder.file("/a/b", read, Vec::new()).unwrap();
    assert!(matches!(builder.build(), Err(BuildError::ParentNotDirectory(_))));
}

#[test]
fn an_empty_archive_is_its_root() {
    let bytes = Builder::new().build().unwrap();
    let archive = Archive::open(&bytes).unwrap();
    assert_eq!(archive.entry_count(), 1);
    assert_eq!(archive.children(&archive.root().unwrap()).count(), 0);
    assert_eq!(archive.root().unwrap().name(), "");
}

#[test]
fn refuses_a_damaged_header() {
    let change = |at: usize, to: u8| {
        let mut bytes = sample();
        bytes[at] = to;
        Archive::open(&bytes).unwrap_err()
    };
    assert_eq!(change(0, b'Y'), ArchiveError::BadMagic);
    assert_eq!(change(header::VERSION, 2), ArchiveError::BadVersion(2));
    assert_eq!(change(header::TOTAL_SIZE + 5, 1), ArchiveError::BadHeaderChecksum);
    assert_eq!(change(header::ZERO_AFTER, 1), ArchiveError::NotZero);
    assert_eq!(change(PAGE_SIZE + 9, 1), ArchiveError::BadDirectoryChecksum);
}

#[test]
fn refuses_every_truncation_and_any_addition() {
    let mut bytes = sample();
    for length in (0..bytes.len()).step_by(61).chain(bytes.len() - 1..bytes.len()) {
        let error = Archive::open(&bytes[..length]).unwrap_err();
        assert!(matches!(error, ArchiveError::Truncated(_, _)), "{length}: {error}");
    }
    let whole = bytes.len() as u64;
    bytes.push(0);
    assert_eq!(Archive::open(&bytes).unwrap_err(), ArchiveError::Oversized(whole, whole + 1));
}

#[test]
fn refuses_tables_that_do_not_fit() {
    let layout = |at: usize, value: u64| refusal(|bytes| put64(bytes, at, value));
    assert_eq!(layout(header::ENTRIES_OFFSET, 8192), ArchiveError::BadLayout);
    assert_eq!(layout(header::NAMES_OFFSET, 4096), ArchiveError::BadLayout);
    assert_eq!(layout(header::NAMES_SIZE, 1 << 40), ArchiveError::BadLayout);
    let count = |value: u32| refusal(|bytes| put32(bytes, header::ENTRY_COUNT, value));
    assert_eq!(count(0), ArchiveError::BadEntryCount(0));
    assert_eq!(count(1 << 20), ArchiveError::BadEntryCount(1 << 20));
    assert_eq!(count(5), ArchiveError::BadLayout);
    let unaligned = refusal(|bytes| {
        bytes.pop();
        let size = bytes.len() as u64;
        put64(bytes, header::TOTAL_SIZE, size);
    });
    assert_eq!(unaligned, ArchiveError::BadLayout);
    assert_eq!(refusal(|bytes| put32(bytes, header::ZERO, 9)), ArchiveError::NotZero);
}

#[test]
fn refuses_wrong_entries() {
    let with32 = |entry, field, value| refusal(|bytes| put32(bytes, at(entry, field), value));
    assert_eq!(with32(1, field::KIND, 4), ArchiveError::BadKind(1));
    assert_eq!(with32(1, field::KIND, 0), ArchiveError::BadKind(1));
    assert_eq!(with32(1, field::MODE, 0o10000), ArchiveError::BadMode(1));
    assert_eq!(with32(1, field::PATH_OFFSET, u32::MAX), ArchiveError::PathOutOfRange(1));
    assert_eq!(with32(1, field::PATH_LENGTH, 1 << 30), ArchiveError::PathOutOfRange(1));
    assert_eq!(with32(1, field::PATH_LENGTH, 0), ArchiveError::BadPath(1));
    assert_eq!(with32(1, field::ZERO, 1), ArchiveError::NotZero);
    assert_eq!(with32(1, field::ZERO + 8, 1), ArchiveError::NotZero);
    assert_eq!(with32(BUSYBOX, field::PARENT, 0), ArchiveError::BadParent(3));
    assert_eq!(with32(BUSYBOX, field::PARENT, 3), ArchiveError::BadParent(3));
    assert_eq!(with32(BUSYBOX, field::PARENT, BIN_EXTRA as u32), ArchiveError::BadParent(3));
    assert_eq!(with32(0, field::PARENT, 1), ArchiveError::BadParent(0));
    assert_eq!(with32(0, field::KIND, 1), ArchiveError::BadParent(0));
}

#[test]
fn refuses_wrong_paths_and_order() {
    let path = |entry: usize, to: &[u8]| {
        refusal(|bytes| {
            let names = get64(bytes, header::NAMES_OFFSET) as usize;
            let offset = word32(bytes, at(entry, field::PATH_OFFSET)).unwrap() as usize;
            bytes[names + offset..names + offset + to.len()].copy_from_slice(to);
        })
    };
    assert_eq!(path(SH, b"/bin/\xff"), ArchiveError::BadPath(4));
    assert_eq!(path(SH, b"/bin/."), ArchiveError::Unsorted(4));
    assert_eq!(path(SH, b"/bin/.."), ArchiveError::BadPath(4));
    assert_eq!(path(SH, b"/bin/\0"), ArchiveError::BadPath(4));
    assert_eq!(path(SH, b"xbin/sh"), ArchiveError::BadPath(4));
    assert_eq!(path(SH, b"/bin/ab"), ArchiveError::Unsorted(4));
    assert_eq!(path(BUSYBOX, b"/bin/zu"), ArchiveError::Unsorted(4));
    assert_eq!(path(SH, b"/boo/sh"), ArchiveError::BadParent(4));
}

#[test]
fn refuses_wrong_data() {
    let offset = |entry, value| refusal(|bytes| put64(bytes, at(entry, field::DATA_OFFSET), value));
    let size = |entry, value| refusal(|bytes| put64(bytes, at(entry, field::SIZE), value));
    assert_eq!(offset(BUSYBOX, 1 << 40), ArchiveError::DataOutOfRange(3));
    assert_eq!(offset(BUSYBOX, u64::MAX - 4095), ArchiveError::DataOutOfRange(3));
    assert_eq!(size(BUSYBOX, 1 << 40), ArchiveError::DataOutOfRange(3));
    assert_eq!(offset(BUSYBOX, 8193), ArchiveError::Misaligned(3));
    assert_eq!(offset(BUSYBOX, 0), ArchiveError::Overlapping(3));
    let bytes = sample();
    let first = get64(&bytes, at(BIN_EXTRA, field::DATA_OFFSET));
    assert_eq!(offset(BUSYBOX, first), ArchiveError::Overlapping(3));
    assert_eq!(size(1, 1), ArchiveError::DataOutOfRange(1));
    assert_eq!(offset(SH, 0), ArchiveError::DataOutOfRange(4));
    assert_eq!(size(SH, 1 << 20), ArchiveError::DataOutOfRange(4));
    assert_eq!(size(SH, 0), ArchiveError::BadTarget(4));
    assert_eq!(size(PASSWD, u64::MAX), ArchiveError::DataOutOfRange(7));
}

/// Walks everything that an archive offers.
fn walk(archive: &Archive<'_>) -> usize {
    let mut seen = 0;
    for index in 0..archive.entry_count() {
        let Some(entry) = archive.entry(index) else { continue };
        seen += archive.data(&entry).len() + archive.children(&entry).count();
        seen += usize::from(archive.lookup(entry.path()).is_some());
        seen += usize::from(archive.child(&entry, "sh").is_some()) + entry.name().len();
    }
    seen
}

#[test]
fn mutations_never_panic() {
    let original = sample();
    let mut random = Random(0x5eed);
    let mut refused = 0;
    for round in 0..20_000 {
        let mut bytes = original.clone();
        let end = if round % 2 == 0 { HEADER_SIZE } else { PAGE_SIZE + 1024 };
        random.mutate(&mut bytes[..end]);
        if random.below(2) == 0 {
            seal(&mut bytes);
        }
        match Archive::open(&bytes) {
            Ok(archive) => assert!(walk(&archive) > 0),
            Err(_) => refused += 1,
        }
        if let Ok(archive) = Archive::open_checked(&bytes) {
            walk(&archive);
        }
    }
    assert!(refused > 5_000, "{refused}");
}
