//! The tree's rules, as POSIX and Linux's tmpfs have them.

use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::dirents::{Packer, parse};
use crate::handles::inbox;
use crate::protocol::OF_IMAGE;

const SUPER: Credentials = Credentials::of(0, 0);
const ANN: Credentials = Credentials::of(1000, 1000);
const BOB: Credentials = Credentials::of(1001, 1001);

fn tree() -> Tree {
    Tree::new(Limits { pages: 64, inodes: 40 }, 100, 0, Others::NONE).unwrap()
}

fn file(tree: &mut Tree, directory: Id, name: &[u8]) -> Id {
    tree.create(directory, name, Kind::File, 0o644, &SUPER).unwrap()
}

fn dir(tree: &mut Tree, directory: Id, name: &[u8]) -> Id {
    tree.make_directory(directory, name, 0o755, &SUPER).unwrap()
}

fn names(tree: &mut Tree, id: Id, position: u64, room: usize) -> (Vec<Vec<u8>>, u64) {
    let mut packer = Packer::new(room);
    tree.list(id, position, &mut packer).unwrap();
    let records = parse(&packer.finish());
    let next = records.last().map_or(position, |record| record.next);
    (records.into_iter().map(|record| record.name).collect(), next)
}

#[test]
fn content_with_holes() {
    let mut tree = tree();
    let id = file(&mut tree, ROOT, b"f");
    assert_eq!(tree.write(id, 10_000, b"xyz", &SUPER), Ok(3));
    let attributes = tree.attributes(id).unwrap();
    assert_eq!((attributes.size, attributes.blocks), (10_003, 8));
    let mut bytes = [1; 5];
    assert_eq!(tree.read(id, 9_998, &mut bytes), Ok(5));
    assert_eq!(&bytes, b"\0\0xyz");
    assert_eq!(tree.read(id, 10_003, &mut bytes), Ok(0));
    tree.truncate(id, 10_001, &SUPER).unwrap();
    tree.truncate(id, 10_003, &SUPER).unwrap();
    assert_eq!(tree.read(id, 10_000, &mut bytes), Ok(3));
    assert_eq!(&bytes[..3], b"x\0\0");
    tree.truncate(id, 0, &SUPER).unwrap();
    assert_eq!((tree.attributes(id).unwrap().blocks, tree.pages), (0, 0));
}

/// Whatever lies before a byte, it is one page; and behind the last one that a file may have
/// nothing can be written.
#[test]
fn a_far_byte_costs_one_page() {
    let mut tree = tree();
    let id = file(&mut tree, ROOT, b"f");
    for (at, offset) in [1_000_000_000_000, SIZE_MAX - 1, 0, 1 << 50].into_iter().enumerate() {
        assert_eq!(tree.write(id, offset, b"xy", &SUPER).map(|count| count.min(1)), Ok(1));
        assert_eq!(tree.attributes(id).unwrap().blocks, BLOCKS * (at as u64 + 1));
    }
    assert_eq!(tree.attributes(id).unwrap().size, SIZE_MAX);
    assert_eq!(tree.write(id, SIZE_MAX, b"x", &SUPER), Err(Errno::EFBIG));
    assert_eq!(tree.truncate(id, SIZE_MAX + 1, &SUPER), Err(Errno::EFBIG));
    tree.truncate(id, 1 << 50, &SUPER).unwrap();
    assert_eq!(tree.attributes(id).unwrap().blocks, 2 * BLOCKS);
    let mut byte = [1];
    assert_eq!((tree.read(id, 1_000_000_000_001, &mut byte), byte), (Ok(1), *b"y"));
}

/// What an earlier life of the server called a file is no file, and that is told from one that has
/// ended; the root is the root.
#[test]
fn files_of_an_earlier_life_are_told() {
    let limits = Limits { pages: 64, inodes: 40 };
    let mut lives = [0, 1].map(|life| Tree::new(limits, 100, life, Others::NONE).unwrap());
    let [former, next] = &mut lives;
    let (old, new) = (file(former, ROOT, b"f"), file(next, ROOT, b"f"));
    assert_ne!(old, new);
    assert_eq!(next.read(old, 0, &mut [0]), Err(Errno::EIO));
    assert_eq!(next.walk(old, b"x", &SUPER), Err(Errno::EIO));
    next.unlink(ROOT, b"f", &SUPER).unwrap();
    settle(next);
    assert_eq!(next.read(new, 0, &mut [0]), Err(Errno::ESTALE));
    assert_eq!(next.walk(ROOT, b"", &SUPER).unwrap().node, ROOT);
}

/// A seal for an inbox opens no file: no file has its number, whichever its place and its life, and
/// however many have had its place.
#[test]
fn no_file_has_an_inboxs_number() {
    let limits = Limits { pages: 64, inodes: 40 };
    let mut tree = Tree::new(limits, 100, LIVES - 1, Others::NONE).unwrap();
    let place = Tree::index(file(&mut tree, ROOT, b"f"));
    let end = |tree: &mut Tree| {
        tree.unlink(ROOT, b"f", &SUPER).unwrap();
        settle(tree);
    };
    end(&mut tree);
    tree.slot_mut(place).unwrap().tag |= ((1 << GENERATION_BITS) - 1) << LIFE_BITS;
    let last = file(&mut tree, ROOT, b"f");
    assert_eq!(Tree::index(last), place);
    let greatest = last | INODES_MAX;
    assert!(greatest < END && END <= inbox(0) && inbox(1 << 62) < OF_IMAGE, "{last:#x}");
    // There is none behind it.
    end(&mut tree);
    let next = file(&mut tree, ROOT, b"f");
    assert!(Tree::index(next) != place && next < END, "{next:#x}");
}

/// What a file had that has ended is given back in pieces, and what is written meanwhile takes of
/// it.
#[test]
fn a_file_ends_in_pieces() {
    let mut tree = tree();
    let id = file(&mut tree, ROOT, b"f");
    assert_eq!(tree.write(id, 0, &vec![7; 64 * PAGE], &SUPER), Ok(64 * PAGE));
    tree.truncate(id, PAGE as u64 + 1, &SUPER).unwrap();
    assert_eq!(tree.space().blocks_free, 62);
    let pieces = (0..).take_while(|_| tree.work(10)).count();
    assert_eq!(pieces, 6);
    let mut bytes = [1; 2];
    assert_eq!(tree.read(id, PAGE as u64, &mut bytes), Ok(1));
}

#[test]
fn full_means_enospc_and_gives_back() {
    let mut tree = tree();
    let id = file(&mut tree, ROOT, b"f");
    assert_eq!(tree.write(id, 0, &vec![7; 65 * PAGE], &SUPER), Ok(64 * PAGE));
    assert_eq!(tree.write(id, 64 * PAGE as u64, b"x", &SUPER), Err(Errno::ENOSPC));
    assert_eq!(tree.space().blocks_free, 0);
    tree.unlink(ROOT, b"f", &SUPER).unwrap();
    settle(&mut tree);
    assert_eq!(tree.space().blocks_free, 64);
    for at in 0..39 {
        file(&mut tree, ROOT, &[b'a', at + 1 + b'/']);
    }
    assert_eq!(tree.create(ROOT, b"x", Kind::File, 0, &SUPER), Err(Errno::ENOSPC));
}

/// Ends what nobody holds.
fn settle(tree: &mut Tree) {
    tree.begin_look();
    tree.end_look();
    assert!(!tree.settle(9, |_| false));
}

/// Makes files until there is no room; them, and how many pages went into the first.
fn take_all(tree: &mut Tree, who: &Credentials, first: u8) -> (Vec<Id>, usize) {
    let name = |at: u8| [first, b'a' + at / 26, b'a' + at % 26];
    let make = |at| tree.create(ROOT, &name(at), Kind::File, 0o600, who).ok();
    let made: Vec<Id> = (0..200).map_while(make).collect();
    let pages = tree.write(made[0], 0, &vec![7; 99 * PAGE], &SUPER).unwrap() / PAGE;
    (made, pages)
}

#[test]
fn a_user_leaves_half_to_others() {
    let mut tree = tree();
    let all = Change { mode: Some(0o777), ..Change::default() };
    tree.change(ROOT, &all, &SUPER).unwrap();
    let (anns, pages) = take_all(&mut tree, &ANN, b'a');
    assert_eq!((anns.len(), pages), (20, 32));
    // In holes as well.
    assert_eq!(tree.write(anns[1], 1 << 30, b"x", &SUPER), Err(Errno::ENOSPC));
    // Given to another one, by user 0, it is that one's.
    let given = Change { uid: Some(1001), ..Change::default() };
    assert_eq!(tree.change(anns[0], &given, &ANN), Err(Errno::EPERM));
    tree.change(anns[0], &given, &SUPER).unwrap();
    assert_eq!(tree.write(anns[1], 0, &vec![7; 99 * PAGE], &SUPER), Ok(32 * PAGE));
    tree.truncate(anns[0], 0, &SUPER).unwrap();
    let (bobs, pages) = take_all(&mut tree, &BOB, b'b');
    // One is the root directory's.
    assert_eq!((bobs.len(), pages), (19, 32));
    tree.unlink(ROOT, b"aab", &ANN).unwrap();
    settle(&mut tree);
    let rooms =
        [1000, 1001, 0].map(|user| tree.room_of(user)).map(|room| (room.pages, room.inodes));
    assert_eq!(rooms, [(32, 1), (0, 0), (32, 1)]);
}

/// Hard links of one file until there is no room for more.
fn link_all(tree: &mut Tree, id: Id, who: &Credentials, first: u8) -> usize {
    let name = |at: u8| [first, b'a' + at / 26, b'a' + at % 26];
    (0..200).take_while(|&at| tree.link(id, ROOT, &name(at), who).is_ok()).count()
}

/// A name is charged to the user that made it, whoever has the file and wherever it goes.
#[test]
fn a_user_leaves_half_of_the_names_to_others() {
    let mut tree = tree();
    let all = Change { mode: Some(0o777), ..Change::default() };
    tree.change(ROOT, &all, &SUPER).unwrap();
    let names = |tree: &Tree| [1000, 1001, 0].map(|user| tree.room_of(user).names);
    // What all may write, all may link: it is user 0's still, the names are not.
    let shared = file(&mut tree, ROOT, b"shared");
    tree.change(shared, &Change { mode: Some(0o666), ..all }, &SUPER).unwrap();
    assert_eq!(names(&tree), [20, 20, 39]);
    assert_eq!(link_all(&mut tree, shared, &ANN, b'a'), 20);
    assert_eq!(names(&tree), [0, 19, 19]);
    let made = tree.create(ROOT, b"f", Kind::File, 0o600, &ANN);
    assert_eq!((made, tree.room_of(1000).inodes), (Err(Errno::ENOSPC), 20));
    assert_eq!(tree.make_directory(ROOT, b"d", 0o700, &ANN), Err(Errno::ENOSPC));
    // Moving takes nothing, whoever moves it, and it stays the same one's.
    tree.rename((ROOT, b"aaa"), (ROOT, b"moved"), 0, &BOB).unwrap();
    let bobs = tree.create(ROOT, b"bob", Kind::File, 0o600, &BOB).unwrap();
    tree.rename((ROOT, b"bob"), (ROOT, b"moved"), RENAME_EXCHANGE, &BOB).unwrap();
    assert_eq!((tree.child(ROOT, b"moved"), names(&tree)), (Some(bobs), [0, 18, 18]));
    tree.unlink(ROOT, b"bob", &BOB).unwrap();
    assert_eq!(names(&tree), [1, 19, 19]);
    // What is replaced has gone, and was its user's.
    tree.rename((ROOT, b"moved"), (ROOT, b"aab"), 0, &BOB).unwrap();
    assert_eq!((tree.child(ROOT, b"aab"), names(&tree)), (Some(bobs), [2, 19, 20]));
    tree.unlink(ROOT, b"aab", &BOB).unwrap();
    assert_eq!(names(&tree), [2, 20, 21]);
    tree.remove_directory(ROOT, b"none", &SUPER).unwrap_err();
    let directory = tree.make_directory(ROOT, b"d", 0o700, &ANN).unwrap();
    tree.create(directory, b"f", Kind::Fifo, 0o600, &ANN).unwrap();
    assert_eq!(
        (tree.make_link(directory, b"l", b"f", &ANN), names(&tree)[0]),
        (Err(Errno::ENOSPC), 0)
    );
    tree.unlink(directory, b"f", &ANN).unwrap();
    tree.remove_directory(ROOT, b"d", &ANN).unwrap();
    assert_eq!(link_all(&mut tree, shared, &BOB, b'b'), 20);
    assert_eq!(names(&tree), [1, 0, 1]);
    file(&mut tree, ROOT, b"last");
    assert_eq!(tree.link(shared, ROOT, b"one-more", &SUPER), Err(Errno::ENOSPC));
}

/// A symbolic link of more than some bytes takes a page, as in Linux's tmpfs.
#[test]
fn a_long_link_takes_a_page() {
    let mut tree = tree();
    let all = Change { mode: Some(0o777), ..Change::default() };
    tree.change(ROOT, &all, &SUPER).unwrap();
    let short = tree.make_link(ROOT, b"short", &[b'x'; LINK_INLINE], &ANN).unwrap();
    let long = tree.make_link(ROOT, b"long", &[b'x'; LINK_INLINE + 1], &ANN).unwrap();
    let blocks = [short, long].map(|id| tree.attributes(id).unwrap().blocks);
    assert_eq!((blocks, tree.room_of(1000).pages), ([0, BLOCKS], 31));
    tree.unlink(ROOT, b"long", &ANN).unwrap();
    settle(&mut tree);
    assert_eq!(tree.room_of(1000).pages, 32);
    let file = tree.create(ROOT, b"f", Kind::File, 0o600, &ANN).unwrap();
    assert_eq!(tree.write(file, 0, &vec![7; 99 * PAGE], &SUPER), Ok(32 * PAGE));
    assert_eq!(tree.make_link(ROOT, b"long", &[b'x'; 200], &ANN), Err(Errno::ENOSPC));
}

#[test]
fn an_open_file_outlives_its_name() {
    let mut tree = tree();
    let id = file(&mut tree, ROOT, b"f");
    tree.write(id, 0, b"data", &SUPER).unwrap();
    tree.hold(id).unwrap();
    tree.unlink(ROOT, b"f", &SUPER).unwrap();
    assert_eq!(tree.child(ROOT, b"f"), None);
    let mut bytes = [0; 4];
    assert_eq!(tree.read(id, 0, &mut bytes), Ok(4));
    assert!(tree.has_orphans());
    assert_eq!(tree.link(id, ROOT, b"g", &SUPER), Err(Errno::ENOENT));
    tree.release(id);
    assert!(!tree.has_orphans());
    tree.begin_look();
    assert!(tree.is_in_doubt(id));
    tree.note_held(id);
    tree.end_look();
    assert!(!tree.is_in_doubt(id) && !tree.settle(9, |_| false));
    assert_eq!(tree.read(id, 0, &mut bytes), Ok(4), "somebody says that it is in use");
    tree.begin_look();
    tree.end_look();
    tree.settle(9, |user| user == 0);
    assert_eq!(tree.read(id, 0, &mut bytes), Ok(4), "its user is spared");
    tree.begin_look();
    tree.hold(id).unwrap();
    tree.release(id);
    assert!(!tree.is_in_doubt(id));
    tree.end_look();
    tree.settle(9, |_| false);
    assert_eq!(tree.read(id, 0, &mut bytes), Ok(4), "it had a holder after the look began");
    settle(&mut tree);
    assert_eq!(tree.read(id, 0, &mut bytes), Err(Errno::ESTALE));
    let again = file(&mut tree, ROOT, b"g");
    assert_ne!(again, id, "a stale id finds nothing");
}

#[test]
fn walking() {
    let mut tree = tree();
    let a = dir(&mut tree, ROOT, b"a");
    let b = dir(&mut tree, a, b"b");
    let f = file(&mut tree, b, b"f");
    tree.make_link(a, b"l", b"b/f", &SUPER).unwrap();
    let walk = |path: &[u8]| tree.walk(ROOT, path, &SUPER);
    let done = |path: &[u8]| {
        let walk = walk(path).unwrap();
        assert_eq!(walk.outcome, Outcome::Done);
        (walk.node, walk.parent, walk.used)
    };
    assert_eq!(done(b"a/./b/../b//f"), (f, b, 13));
    assert_eq!(done(b"a/b/"), (b, a, 4));
    assert_eq!(done(b""), (ROOT, ROOT, 0));
    let seen = |path: &[u8]| {
        let walk = walk(path).unwrap();
        walk.seen[..walk.seen_count].to_vec()
    };
    assert_eq!(seen(b"a/b/f"), [ROOT, a, b, f]);
    assert_eq!(seen(b"a/none/x"), [ROOT, a]);
    assert_eq!(walk(b"a/b/../b/../b/../b/f").unwrap().seen_count, 10);
    assert_eq!(walk(b"a/b/f/"), Err(Errno::ENOTDIR));
    assert_eq!(walk(b"a/b/f/x"), Err(Errno::ENOTDIR));
    assert_eq!(walk(&[b'x'; 256]), Err(Errno::ENAMETOOLONG));
    let missing = walk(b"a/none/x").unwrap();
    assert_eq!((missing.outcome, missing.node, missing.used), (Outcome::Missing, a, 1));
    let link = walk(b"a/l/y").unwrap();
    assert_eq!((link.outcome, link.parent, link.used), (Outcome::Link, a, 3));
    assert_eq!(tree.target(link.node), Ok(&b"b/f"[..]));
    let up = walk(b"a/../../x").unwrap();
    assert_eq!((up.outcome, up.used), (Outcome::Up, 7));
}

#[test]
fn directories_count_links_and_must_be_empty() {
    let mut tree = tree();
    let a = dir(&mut tree, ROOT, b"a");
    dir(&mut tree, a, b"b");
    assert_eq!(tree.attributes(a).unwrap().links, 3);
    assert_eq!(tree.remove_directory(ROOT, b"a", &SUPER), Err(Errno::ENOTEMPTY));
    assert_eq!(tree.unlink(ROOT, b"a", &SUPER), Err(Errno::EISDIR));
    tree.remove_directory(a, b"b", &SUPER).unwrap();
    assert_eq!(tree.attributes(a).unwrap().links, 2);
    tree.hold(a).unwrap();
    tree.remove_directory(ROOT, b"a", &SUPER).unwrap();
    assert_eq!(tree.create(a, b"x", Kind::File, 0, &SUPER), Err(Errno::ENOENT));
    file(&mut tree, ROOT, b"f");
    assert_eq!(tree.remove_directory(ROOT, b"f", &SUPER), Err(Errno::ENOTDIR));
    assert_eq!(tree.remove_directory(ROOT, b"no", &SUPER), Err(Errno::ENOENT));
    assert_eq!(tree.make_directory(ROOT, b"f", 0, &SUPER), Err(Errno::EEXIST));
}

#[test]
fn renaming() {
    let mut tree = tree();
    let a = dir(&mut tree, ROOT, b"a");
    let b = dir(&mut tree, ROOT, b"b");
    let f = file(&mut tree, a, b"f");
    let g = file(&mut tree, b, b"g");
    assert_eq!(tree.rename((a, b"f"), (b, b"g"), RENAME_NOREPLACE, &SUPER), Err(Errno::EEXIST));
    tree.rename((a, b"f"), (b, b"g"), 0, &SUPER).unwrap();
    assert_eq!((tree.child(b, b"g"), tree.child(a, b"f")), (Some(f), None));
    settle(&mut tree);
    assert_eq!(tree.attributes(g), Err(Errno::ESTALE));
    assert_eq!(tree.rename((ROOT, b"a"), (ROOT, b"b"), 0, &SUPER), Err(Errno::ENOTEMPTY));
    assert_eq!(tree.rename((ROOT, b"a"), (a, b"x"), 0, &SUPER), Err(Errno::EINVAL));
    assert_eq!(tree.rename((b, b"g"), (ROOT, b"a"), 0, &SUPER), Err(Errno::EISDIR));
    assert_eq!(tree.rename((ROOT, b"a"), (b, b"g"), 0, &SUPER), Err(Errno::ENOTDIR));
    tree.rename((ROOT, b"b"), (a, b"in"), 0, &SUPER).unwrap();
    assert_eq!(tree.walk(b, b"..", &SUPER).unwrap().node, a);
    let links = |tree: &Tree, id| tree.attributes(id).unwrap().links;
    assert_eq!((links(&tree, ROOT), links(&tree, a)), (3, 3));
    tree.link(f, a, b"same", &SUPER).unwrap();
    tree.rename((a, b"same"), (b, b"g"), 0, &SUPER).unwrap();
    assert_eq!(tree.child(a, b"same"), Some(f), "two names of one file stay");
    tree.rename((a, b"same"), (a, b"in"), RENAME_EXCHANGE, &SUPER).unwrap();
    assert_eq!((tree.child(a, b"in"), tree.child(a, b"same")), (Some(f), Some(b)));
    let missing = tree.rename((a, b"in"), (a, b"no"), RENAME_EXCHANGE, &SUPER);
    assert_eq!(missing, Err(Errno::ENOENT));
}

#[test]
fn links_count() {
    let mut tree = tree();
    let f = file(&mut tree, ROOT, b"f");
    tree.link(f, ROOT, b"g", &SUPER).unwrap();
    assert_eq!(tree.attributes(f).unwrap().links, 2);
    assert_eq!(tree.link(f, ROOT, b"g", &SUPER), Err(Errno::EEXIST));
    tree.unlink(ROOT, b"f", &SUPER).unwrap();
    assert_eq!(tree.attributes(f).unwrap().links, 1);
    let d = dir(&mut tree, ROOT, b"d");
    assert_eq!(tree.link(d, ROOT, b"e", &SUPER), Err(Errno::EPERM));
}

#[test]
fn a_listing_goes_on_while_names_come_and_go() {
    let mut tree = tree();
    for name in [b"a", b"b", b"c", b"d"] {
        file(&mut tree, ROOT, name);
    }
    let (first, at) = names(&mut tree, ROOT, 0, 24 * 4);
    assert_eq!(first, vec![b".".to_vec(), b"..".to_vec(), b"a".to_vec(), b"b".to_vec()]);
    tree.unlink(ROOT, b"a", &SUPER).unwrap();
    tree.unlink(ROOT, b"c", &SUPER).unwrap();
    file(&mut tree, ROOT, b"e");
    let (second, at) = names(&mut tree, ROOT, at, 4096);
    assert_eq!(second, vec![b"d".to_vec(), b"e".to_vec()]);
    assert_eq!(names(&mut tree, ROOT, at, 4096).0, Vec::<Vec<u8>>::new());
}

/// Every change that somebody could see is told, and nothing else: what clients keep hangs on it.
#[test]
fn what_changes_is_told() {
    let mut tree = tree();
    let a = dir(&mut tree, ROOT, b"a");
    let f = file(&mut tree, a, b"f");
    let changed = |tree: &mut Tree| {
        let mut list = Vec::new();
        tree.take_changed(|id| list.push(id));
        list.sort_unstable();
        list.dedup();
        list
    };
    changed(&mut tree);
    tree.walk(ROOT, b"a/f", &SUPER).unwrap();
    tree.hold(f).unwrap();
    tree.read(f, 0, &mut [0]).unwrap();
    assert_eq!(changed(&mut tree), [f], "its first read is noted");
    tree.set_now(200);
    tree.read(f, 0, &mut [0]).unwrap();
    tree.release(f);
    assert_eq!(changed(&mut tree), [f], "a read at the time of the last change may be before it");
    tree.read(f, 0, &mut [0]).unwrap();
    names(&mut tree, a, 0, 100);
    assert_eq!(changed(&mut tree), [a]);
    names(&mut tree, a, 0, 100);
    assert_eq!(changed(&mut tree), []);
    tree.write(f, 0, b"x", &SUPER).unwrap();
    assert_eq!(changed(&mut tree), [f]);
    tree.truncate(f, 0, &SUPER).unwrap();
    assert_eq!(changed(&mut tree), [f]);
    let mode = Change { mode: Some(0o600), ..Change::default() };
    tree.change(f, &mode, &SUPER).unwrap();
    assert_eq!(changed(&mut tree), [f]);
    tree.link(f, ROOT, b"g", &SUPER).unwrap();
    assert_eq!(changed(&mut tree), [ROOT, f]);
    tree.rename((ROOT, b"g"), (a, b"h"), 0, &SUPER).unwrap();
    assert_eq!(changed(&mut tree), [ROOT, a, f]);
    tree.unlink(a, b"h", &SUPER).unwrap();
    assert_eq!(changed(&mut tree), [a, f]);
    let b = dir(&mut tree, a, b"b");
    assert_eq!(changed(&mut tree), [a, b]);
    tree.rename((a, b"b"), (ROOT, b"b"), 0, &SUPER).unwrap();
    assert_eq!(changed(&mut tree), [ROOT, a, b], "its parent is another one");
    tree.remove_directory(ROOT, b"b", &SUPER).unwrap();
    assert_eq!(changed(&mut tree), [ROOT, b]);
}

#[test]
fn a_read_is_noted_if_it_is_the_first_since_a_change_or_of_a_day() {
    let mut tree = tree();
    let id = file(&mut tree, ROOT, b"f");
    let mut read_at = |now| {
        tree.set_now(now);
        tree.read(id, 0, &mut [0]).unwrap();
        tree.attributes(id).unwrap().read_ns
    };
    assert_eq!([read_at(200), read_at(300)], [200, 200]);
    let day = 24 * 60 * 60 * 1_000_000_000;
    assert_eq!([read_at(199 + day), read_at(200 + day)], [200, 200 + day]);
    tree.set_now(300 + day);
    tree.write(id, 0, b"x", &SUPER).unwrap();
    tree.set_now(400 + day);
    tree.read(id, 0, &mut [0]).unwrap();
    assert_eq!(tree.attributes(id).unwrap().read_ns, 400 + day);
}

#[test]
fn times_are_stamped() {
    let mut tree = tree();
    let id = file(&mut tree, ROOT, b"f");
    tree.set_now(200);
    tree.write(id, 0, b"x", &SUPER).unwrap();
    tree.set_now(300);
    tree.read(id, 0, &mut [0]).unwrap();
    let attributes = tree.attributes(id).unwrap();
    assert_eq!((attributes.read_ns, attributes.written_ns, attributes.changed_ns), (300, 200, 200));
    tree.set_now(400);
    tree.unlink(ROOT, b"f", &SUPER).unwrap();
    assert_eq!(tree.attributes(ROOT).unwrap().written_ns, 400);
}

#[test]
fn what_is_mounted_without_set_id_says_so_of_all_that_is_in_it() {
    let mut tree = tree();
    let mount = tree.make_directory(ROOT, b"tmp", 0o777, &SUPER).unwrap();
    let other = tree.make_directory(ROOT, b"var", 0o777, &SUPER).unwrap();
    let inner = tree.make_directory(mount, b"in", 0o755, &SUPER).unwrap();
    let file = tree.create(inner, b"f", Kind::File, 0o4755, &SUPER).unwrap();
    let flags = |tree: &Tree, id| tree.attributes(id).unwrap().mount_flags;
    assert_eq!(tree.remount(mount, 2, &Credentials::of(7, 7)), Err(Errno::EPERM));
    for wrong in [ROOT, inner, file] {
        assert_eq!(tree.remount(wrong, 2, &SUPER), Err(Errno::EINVAL));
    }
    assert_eq!(flags(&tree, file), 0);
    tree.remount(mount, 2, &SUPER).unwrap();
    assert_eq!([mount, inner, file, other, ROOT].map(|id| flags(&tree, id)), [2, 2, 2, 0, 0]);
    tree.remount(mount, 0, &SUPER).unwrap();
    assert_eq!(flags(&tree, file), 0);
}

/// Who could find a file by one of the names that it has lost may have it open.
#[test]
fn what_has_no_name_could_be_found_by_who_searches() {
    let mut tree = tree();
    let shut = tree.make_directory(ROOT, b"shut", 0o700, &SUPER).unwrap();
    let below = tree.make_directory(shut, b"below", 0o755, &SUPER).unwrap();
    let [hidden, moved, replaced, linked] =
        [(below, b"a"), (ROOT, b"b"), (below, b"c"), (below, b"d")]
            .map(|(directory, name)| file(&mut tree, directory, name));
    let by_all = |tree: &Tree, id| tree.could_be_found(id, |above| above.mode & 1 != 0);
    tree.link(linked, ROOT, b"d", &SUPER).unwrap();
    tree.unlink(ROOT, b"d", &SUPER).unwrap();
    for name in [b"a", b"d"] {
        tree.unlink(below, name, &SUPER).unwrap();
    }
    tree.rename((ROOT, b"b"), (below, b"c"), 0, &SUPER).unwrap();
    tree.unlink(below, b"c", &SUPER).unwrap();
    for (id, found) in [(hidden, false), (replaced, false), (moved, true), (linked, true)] {
        assert_eq!(by_all(&tree, id), found);
        assert!(tree.could_be_found(id, |_| true));
    }
    // By the modes as they are now.
    let opened = Change { mode: Some(0o711), ..Change::default() };
    tree.change(shut, &opened, &SUPER).unwrap();
    assert!(by_all(&tree, hidden));
}
