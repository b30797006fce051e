//! Who may do what with the tree's files.

use super::*;

const SUPER: Credentials = Credentials::of(0, 0);
const ANN: Credentials = Credentials::of(1000, 1000);
const BOB: Credentials = Credentials::of(1001, 1001);

fn tree() -> Tree {
    Tree::new(Limits { pages: 64, inodes: 40 }, 100, 0, Others::NONE).unwrap()
}

#[test]
fn permissions() {
    let mut tree = tree();
    let shared = tree.make_directory(ROOT, b"tmp", 0o1777, &SUPER).unwrap();
    let id = tree.create(shared, b"ann", Kind::File, 0o600, &ANN).unwrap();
    assert_eq!(tree.check(id, &BOB, 4), Err(Errno::EACCES));
    assert_eq!(tree.unlink(shared, b"ann", &BOB), Err(Errno::EPERM));
    assert_eq!(tree.create(ROOT, b"x", Kind::File, 0o600, &BOB), Err(Errno::EACCES));
    let mode = Change { mode: Some(0o4755), ..Change::default() };
    assert_eq!(tree.change(id, &mode, &BOB), Err(Errno::EPERM));
    tree.change(id, &mode, &ANN).unwrap();
    let owner = Change { uid: Some(1001), ..Change::default() };
    assert_eq!(tree.change(id, &owner, &ANN), Err(Errno::EPERM));
    tree.change(id, &owner, &SUPER).unwrap();
    assert_eq!(tree.attributes(id).unwrap().mode & 0o7777, 0o755, "set-id is dropped");
    let private = tree.make_directory(shared, b"p", 0o700, &ANN).unwrap();
    tree.create(private, b"f", Kind::File, 0o644, &ANN).unwrap();
    assert_eq!(tree.walk(shared, b"p/f", &BOB), Err(Errno::EACCES));
    let touch = Change { written_ns: Some(5), touch: true, ..Change::default() };
    assert_eq!(tree.change(id, &touch, &ANN), Err(Errno::EACCES));
}

/// Who may write a file that it does not own sets its times to the present one alone (utime(2)).
#[test]
fn writers_touch_at_the_present_time() {
    let mut tree = tree();
    let shared = tree.make_directory(ROOT, b"tmp", 0o1777, &SUPER).unwrap();
    let id = tree.create(shared, b"ann", Kind::File, 0o666, &ANN).unwrap();
    tree.set_now(77);
    let asked = Change { read_ns: Some(5), written_ns: Some(6), ..Change::default() };
    assert_eq!(tree.change(id, &asked, &BOB), Err(Errno::EPERM));
    tree.change(id, &Change { touch: true, ..asked }, &BOB).unwrap();
    let times = |tree: &Tree| {
        let attributes = tree.attributes(id).unwrap();
        (attributes.read_ns, attributes.written_ns)
    };
    assert_eq!(times(&tree), (77, 77));
    tree.change(id, &asked, &ANN).unwrap();
    assert_eq!(times(&tree), (5, 6), "its owner's");
}

/// A set-group-id bit of a group's is given by its members (inode_init_owner, setattr_prepare).
#[test]
fn no_bit_acts_for_a_group_of_others() {
    let mut tree = tree();
    let shared = tree.make_directory(ROOT, b"s", 0o1777, &SUPER).unwrap();
    let group = Change { gid: Some(7), mode: Some(0o3777), ..Change::default() };
    tree.change(shared, &group, &SUPER).unwrap();
    let mode = |tree: &Tree, id| tree.attributes(id).unwrap().mode & 0o7777;
    let one = tree.create(shared, b"one", Kind::File, 0o2755, &ANN).unwrap();
    assert_eq!((tree.attributes(one).unwrap().gid, mode(&tree, one)), (7, 0o755), "made");
    let set = Change { mode: Some(0o6755), ..Change::default() };
    tree.change(one, &set, &ANN).unwrap();
    assert_eq!(mode(&tree, one), 0o4755, "changed");
    let below = tree.make_directory(shared, b"d", 0o755, &ANN).unwrap();
    assert_eq!(mode(&tree, below), 0o2755, "directories inherit it");
    tree.change(below, &set, &ANN).unwrap();
    assert_eq!(mode(&tree, below), 0o4755);
    let member = Credentials::of(1001, 7);
    let two = tree.create(shared, b"two", Kind::File, 0o2755, &member).unwrap();
    tree.change(two, &set, &member).unwrap();
    assert_eq!(mode(&tree, two), 0o6755, "a member's");
    tree.change(one, &set, &SUPER).unwrap();
    assert_eq!(mode(&tree, one), 0o6755, "user 0's");
}

/// Who may not search a directory is answered the same of each name in it, taken or not.
#[test]
fn closed_directories_tell_no_names() {
    let mut tree = tree();
    let closed = tree.make_directory(ROOT, b"ann", 0o700, &SUPER).unwrap();
    tree.create(closed, b"there", Kind::File, 0o644, &SUPER).unwrap();
    let own = tree.make_directory(ROOT, b"bob", 0o777, &SUPER).unwrap();
    let file = tree.create(own, b"f", Kind::File, 0o644, &BOB).unwrap();
    let answers = |tree: &mut Tree, directory, name: &[u8], who: &Credentials| {
        [
            tree.create(directory, name, Kind::File, 0o644, who).err(),
            tree.make_directory(directory, name, 0o755, who).err(),
            tree.make_link(directory, name, b"to", who).err(),
            tree.link(file, directory, name, who).err(),
            tree.unlink(directory, name, who).err(),
            tree.remove_directory(directory, name, who).err(),
            tree.rename((own, b"f"), (directory, name), 0, who).err(),
            tree.rename((own, b"f"), (directory, name), RENAME_NOREPLACE, who).err(),
            tree.rename((directory, name), (own, b"g"), 0, who).err(),
        ]
    };
    for name in [&b"there"[..], b"not"] {
        assert_eq!(answers(&mut tree, closed, name, &BOB), [Some(Errno::EACCES); 9]);
    }
    // Who may search, and not write, is told that a name is there (mkdir(2)).
    let open = Change { mode: Some(0o755), ..Change::default() };
    tree.change(closed, &open, &SUPER).unwrap();
    let made = tree.create(closed, b"there", Kind::File, 0o644, &BOB);
    assert_eq!(made, Err(Errno::EEXIST));
    let made = tree.create(closed, b"not", Kind::File, 0o644, &BOB);
    assert_eq!(made, Err(Errno::EACCES));
}
