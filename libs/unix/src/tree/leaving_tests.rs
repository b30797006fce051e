//! What others see of a file that is cut is the owner's until they see it no more.

use super::leaving::TAKEN;
use super::{Kind, Limits, Others, PAGE, PageBox, ROOT, Tree};
use crate::attributes::Credentials;
use crate::errno::Errno;
use std::cell::{Cell, RefCell};
use std::vec;
use std::vec::Vec;

const ANN: Credentials = Credentials::of(1000, 1000);
const BOB: Credentials = Credentials::of(1001, 1001);

std::thread_local! {
    /// Pages that others see still.
    static SEEN: RefCell<Vec<PageBox>> = const { RefCell::new(Vec::new()) };
    /// Do they look on?
    static LOOK_ON: Cell<bool> = const { Cell::new(true) };
}

fn release(page: PageBox) -> Option<u64> {
    let place = core::ptr::from_ref(&*page) as u64;
    SEEN.with_borrow_mut(|seen| seen.push(page));
    Some(place)
}

fn has_left(place: u64) -> bool {
    if !LOOK_ON.get() {
        SEEN.with_borrow_mut(|seen| {
            let before = seen.len();
            seen.retain(|page| core::ptr::from_ref(&**page) as u64 != place);
            assert_eq!(seen.len(), before - 1, "asked about once");
        });
    }
    !LOOK_ON.get()
}

/// A tree of so many pages, in which all may make files.
fn tree(pages: u64) -> Tree {
    let limits = Limits { pages, inodes: 40 };
    let mut tree = Tree::new(limits, 100, 0, Others { release, has_left }).unwrap();
    let all = super::Change { mode: Some(0o777), ..super::Change::default() };
    tree.change(ROOT, &all, &Credentials::of(0, 0)).unwrap();
    tree
}

/// Makes a file with as many pages as there is room for, which others see; how many.
fn shown(tree: &mut Tree, who: &Credentials, name: &[u8]) -> Result<u64, Errno> {
    let id = tree.create(ROOT, name, Kind::File, 0o644, who)?;
    let written = tree.write(id, 0, &vec![7; 4096 * PAGE], who)?;
    for index in 0..written / PAGE {
        assert!(tree.show(id, index as u64).unwrap().is_some());
    }
    Ok((written / PAGE) as u64)
}

fn end(tree: &mut Tree, who: &Credentials, name: &[u8]) {
    tree.unlink(ROOT, name, who).unwrap();
    tree.begin_look();
    tree.end_look();
    tree.settle(9, |_| false);
}

/// A tree of 64 pages, of which this user's half was a file that has ended, and that others see.
fn left_by(who: &Credentials) -> Tree {
    LOOK_ON.set(true);
    let mut tree = tree(64);
    assert_eq!(shown(&mut tree, who, b"left"), Ok(32));
    end(&mut tree, who, b"left");
    while tree.work(10) {}
    tree
}

#[test]
fn pages_that_others_see_are_charged_until_they_do_not() {
    let mut tree = left_by(&ANN);
    assert!(tree.is_left_by_pages());
    assert_eq!(shown(&mut tree, &ANN, b"b"), Err(Errno::ENOSPC));
    assert_eq!(tree.space().blocks_free, 32);
    // Another one has its half.
    assert_eq!(shown(&mut tree, &BOB, b"c"), Ok(32));
    LOOK_ON.set(false);
    while tree.is_left_by_pages() {
        tree.work(10);
    }
    assert_eq!(tree.space().blocks_free, 32);
    assert!(SEEN.with_borrow(Vec::is_empty), "all have been asked about");
    end(&mut tree, &ANN, b"b");
    assert_eq!(shown(&mut tree, &ANN, b"d"), Ok(32));
}

/// Who sees many pages of files that end keeps the server from other requests for a few of them.
#[test]
fn few_pages_are_taken_from_others_at_a_time() {
    LOOK_ON.set(true);
    let mut tree = tree(200);
    assert_eq!(shown(&mut tree, &ANN, b"a"), Ok(100));
    end(&mut tree, &ANN, b"a");
    let (mut before, mut more) = (SEEN.with_borrow(Vec::len), true);
    while more {
        more = tree.work(256);
        let seen = SEEN.with_borrow(Vec::len);
        assert!(seen - before <= 32, "{} at a time", seen - before);
        before = seen;
    }
    assert_eq!(SEEN.with_borrow(Vec::len), 100);
}

/// A cut in the middle: what stays in the file stays, and what nobody has seen is free at once.
#[test]
fn what_nobody_has_seen_is_free_at_once() {
    LOOK_ON.set(true);
    let mut tree = tree(64);
    let id = tree.create(ROOT, b"f", Kind::File, 0o644, &ANN).unwrap();
    assert_eq!(tree.write(id, 0, &vec![7; 8 * PAGE], &ANN), Ok(8 * PAGE));
    tree.show(id, 1).unwrap();
    tree.show(id, 6).unwrap();
    tree.truncate(id, 4 * PAGE as u64, &ANN).unwrap();
    while tree.work(10) {}
    assert_eq!(tree.space().blocks_free, 64 - 5, "one of four is seen still");
    LOOK_ON.set(false);
    tree.work(0);
    assert_eq!(tree.space().blocks_free, 64 - 4);
    assert!(!tree.is_left_by_pages());
    assert_eq!(tree.read(id, 0, &mut [0; 4 * PAGE]), Ok(4 * PAGE));
}

/// One user's pages fill half of the places for those that are being taken back.
#[test]
fn a_user_leaves_half_of_the_places_to_others() {
    LOOK_ON.set(true);
    let mut tree = tree(4 * TAKEN as u64);
    assert_eq!(shown(&mut tree, &ANN, b"a"), Ok(2 * TAKEN as u64));
    end(&mut tree, &ANN, b"a");
    while tree.work(10) {}
    assert_eq!(SEEN.with_borrow(Vec::len), TAKEN / 2);
    assert_eq!(shown(&mut tree, &BOB, b"b"), Ok(2 * TAKEN as u64));
    end(&mut tree, &BOB, b"b");
    while tree.work(10) {}
    assert_eq!(SEEN.with_borrow(Vec::len), TAKEN, "behind what the first one waits for");
    LOOK_ON.set(false);
    while tree.is_left_by_pages() {
        tree.work(10);
    }
    assert_eq!(tree.space().blocks_free, 4 * TAKEN as u64);
}

/// The owner is known as long as it pays for anything.
#[test]
fn one_who_has_only_pages_that_others_see_is_not_forgotten() {
    LOOK_ON.set(true);
    let mut tree = tree(64);
    shown(&mut tree, &ANN, b"a").unwrap();
    end(&mut tree, &ANN, b"a");
    assert_eq!(tree.room_of(1000).pages, 0);
    LOOK_ON.set(false);
    while tree.is_left_by_pages() {
        tree.work(3);
    }
    assert_eq!(tree.room_of(1000).pages, 32);
}

/// Room is to come for the user whose pages have left files, and for no other.
#[test]
fn room_is_to_come_when_pages_leave() {
    let mut tree = left_by(&BOB);
    let id = tree.create(ROOT, b"a", Kind::File, 0o644, &ANN).unwrap();
    assert_eq!(tree.write(id, 0, &vec![7; 64 * PAGE], &ANN), Ok(32 * PAGE));
    assert_eq!(tree.room_to_come(id, None, 0), Ok(None), "half is full, and stays so");
    let bobs = tree.create(ROOT, b"c", Kind::File, 0o644, &BOB).unwrap();
    let asked = tree.room_to_come(bobs, None, 0).unwrap().unwrap();
    assert_eq!(tree.room_to_come(bobs, None, asked), Ok(Some(asked)));
    // Pages are no room for files.
    assert_eq!(tree.room_to_come(ROOT, Some(1001), 0), Ok(None));
    LOOK_ON.set(false);
    while tree.is_left_by_pages() {
        tree.work(10);
    }
    assert_eq!(tree.room_to_come(bobs, None, asked), Ok(None));
}

/// Room is to come until a look is over that began when there was none, and that spared no files.
#[test]
fn room_is_to_come_when_files_without_names_end() {
    let mut tree = tree(64);
    let gone = tree.create(ROOT, b"gone", Kind::File, 0o644, &ANN).unwrap();
    let id = tree.create(ROOT, b"a", Kind::File, 0o644, &ANN).unwrap();
    assert_eq!(tree.write(gone, 0, &vec![7; 64 * PAGE], &ANN), Ok(32 * PAGE));
    assert_eq!(tree.room_to_come(id, None, 0), Ok(None), "it has a name");
    // A look that has begun before says nothing of it.
    tree.begin_look();
    tree.unlink(ROOT, b"gone", &ANN).unwrap();
    let asked = tree.room_to_come(id, None, 0).unwrap().unwrap();
    tree.end_look();
    assert!(!tree.settle(9, |_| false));
    assert_eq!(tree.room_to_come(id, None, asked), Ok(Some(asked)));
    // One that spares it, as a process of its user's makes a file, says nothing either.
    tree.begin_look();
    tree.end_look();
    assert_eq!(tree.room_to_come(id, None, asked), Ok(Some(asked)));
    assert!(!tree.settle(9, |_| true));
    let next = tree.room_to_come(id, None, asked).unwrap().unwrap();
    assert!(next > asked);
    // Another user has nothing of that, neither has user 0 in whose directory the name was.
    for other in [0, 1001] {
        assert_eq!(tree.room_to_come(ROOT, Some(other), 0), Ok(None));
    }
    assert_eq!(tree.room_to_come(ROOT, None, 0), Ok(None));
    assert!(tree.room_to_come(ROOT, Some(1000), 0).unwrap().is_some());
    // One that finds it open says that it stays.
    tree.begin_look();
    tree.note_held(gone);
    tree.end_look();
    assert!(!tree.settle(9, |_| true));
    assert_eq!(tree.room_to_come(id, None, next), Ok(None));
    assert_eq!(tree.write(id, 0, b"x", &ANN), Err(Errno::ENOSPC));
    // It may be closed since.
    let asked = tree.room_to_come(id, None, 0).unwrap().unwrap();
    tree.begin_look();
    tree.end_look();
    assert!(!tree.settle(9, |_| false));
    assert_eq!(tree.room_to_come(id, None, asked), Ok(None));
    assert_eq!(tree.write(id, 0, b"x", &ANN), Ok(1));
}

/// A file without a name that has got a holder since is looked after as one that lost its name
/// while it was held.
#[test]
fn files_that_are_held_later_are_orphans() {
    let mut tree = tree(64);
    let gone = tree.create(ROOT, b"gone", Kind::File, 0o644, &ANN).unwrap();
    tree.unlink(ROOT, b"gone", &ANN).unwrap();
    tree.hold(gone).unwrap();
    tree.begin_look();
    tree.end_look();
    assert!(!tree.settle(9, |_| false));
    assert!(tree.has_orphans());
    tree.release(gone);
    assert!(!tree.has_orphans());
    assert!(tree.room_to_come(ROOT, Some(1000), 0).unwrap().is_some());
}

/// What is given to another user, and then ends, makes room for that one.
#[test]
fn room_is_to_come_to_the_owner_of_now() {
    let mut tree = tree(64);
    let supers = Credentials::of(0, 0);
    let gone = tree.create(ROOT, b"gone", Kind::File, 0o644, &supers).unwrap();
    let come = |tree: &Tree| [0, 1000].map(|user| tree.room_to_come(ROOT, Some(user), 0).unwrap());
    tree.unlink(ROOT, b"gone", &supers).unwrap();
    assert!(matches!(come(&tree), [Some(_), None]));
    let to_ann = super::Change { uid: Some(1000), ..super::Change::default() };
    tree.change(gone, &to_ann, &supers).unwrap();
    assert!(matches!(come(&tree), [None, Some(_)]));
    tree.begin_look();
    tree.end_look();
    assert!(!tree.settle(9, |_| false));
    assert_eq!(come(&tree), [None, None]);
}
