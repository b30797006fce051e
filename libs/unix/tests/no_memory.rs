//! The file tree without memory: whichever allocation fails, nothing panics and nothing is lost.
//!
//! # Safety
//! The allocator is the system's, but that it refuses where the thread asked for it.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use unix::Errno;
use unix::attributes::Credentials;
use unix::dirents::{Packer, parse};
use unix::locks::{Lock, Locks, Owner};
use unix::tree::{Id, Kind, Limits, Others, PAGE, ROOT, Tree};
use unix::tty::line::{ECHO_MAX, Effects, LINE_MAX, Line};
use unix::tty::termios::Termios;

const SUPER: Credentials = Credentials::of(0, 0);

thread_local! {
    /// Allocations that still succeed; below zero: all.
    static LEFT: Cell<i64> = const { Cell::new(-1) };
    /// From then on each one fails.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
    /// Bytes that are allocated, in the heap's steps.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// What the native programs' heap gives for so many bytes, at most (`xok::heap`).
fn rounded(layout: Layout) -> i64 {
    layout.size().next_power_of_two() as i64
}

struct Failing;

// SAFETY: the system's allocator does it, or nobody.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let left = LEFT.get();
        if left == 0 {
            REFUSED.set(true);
            return std::ptr::null_mut();
        }
        LEFT.set((left - 1).max(-1));
        HELD.set(HELD.get() + rounded(layout));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - rounded(layout));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static MEMORY: Failing = Failing;

/// Does something with `count` allocations at most; did it want more?
fn with<T>(count: i64, what: impl FnOnce() -> T) -> (T, bool) {
    REFUSED.set(false);
    LEFT.set(count);
    let result = what();
    LEFT.set(-1);
    (result, REFUSED.get())
}

fn tree() -> Tree {
    Tree::new(Limits { pages: 4096, inodes: 400 }, 100, 3, Others::NONE).unwrap()
}

/// All that can be seen of a directory and what is in it.
fn seen(tree: &mut Tree, directory: Id) -> Vec<(Vec<u8>, u64, u64, Vec<u8>)> {
    let mut packer = Packer::new(1 << 20);
    tree.list(directory, 0, &mut packer).unwrap();
    let mut all = Vec::new();
    for record in parse(&packer.finish()) {
        let attributes = tree.attributes(record.inode - 1).unwrap();
        let mut bytes = vec![0; 3 * PAGE];
        let count = tree.read(record.inode - 1, 0, &mut bytes).unwrap_or(0);
        bytes.truncate(count);
        all.push((record.name, attributes.size, attributes.blocks, bytes));
    }
    all
}

type Step = fn(&mut Tree) -> Result<(), Errno>;

fn directory(tree: &Tree) -> Id {
    tree.child(ROOT, b"d").unwrap()
}

/// A tree whose next step needs whatever such a step may need: full nodes, names of all sizes.
fn prepared() -> Tree {
    let mut tree = tree();
    let d = tree.make_directory(ROOT, b"d", 0o755, &SUPER).unwrap();
    for number in 0..63 {
        let name = format!("name-that-is-longer-than-short-{number}");
        let id = tree.create(d, name.as_bytes(), Kind::File, 0o644, &SUPER).unwrap();
        tree.write(id, 0, name.as_bytes(), &SUPER).unwrap();
    }
    let f = tree.create(d, b"f", Kind::File, 0o644, &SUPER).unwrap();
    for page in 0..96 {
        tree.write(f, page * 2 * PAGE as u64, b"page", &SUPER).unwrap();
    }
    tree.make_directory(d, b"sub", 0o755, &SUPER).unwrap();
    tree.take_changed(drop);
    tree
}

const STEPS: [(&str, Step); 9] = [
    ("create", |tree| {
        let name = [b'n'; 200];
        tree.create(directory(tree), &name, Kind::File, 0o644, &SUPER).map(drop)
    }),
    ("make_directory", |tree| {
        tree.make_directory(directory(tree), &[b'a'; 30], 0o755, &SUPER).map(drop)
    }),
    ("make_link", |tree| tree.make_link(directory(tree), b"l", &[b't'; 3000], &SUPER).map(drop)),
    ("link", |tree| {
        let f = tree.child(directory(tree), b"f").unwrap();
        tree.link(f, directory(tree), &[b'o'; 100], &SUPER)
    }),
    ("rename", |tree| {
        let d = directory(tree);
        tree.rename((d, b"f"), (d, &[b'r'; 90]), 0, &SUPER)
    }),
    ("replace", |tree| {
        let d = directory(tree);
        tree.rename((d, b"f"), (d, b"name-that-is-longer-than-short-7"), 0, &SUPER)
    }),
    ("write", |tree| {
        let f = tree.child(directory(tree), b"f").unwrap();
        tree.write(f, 0x1_0000_0000, b"far away", &SUPER).map(drop)
    }),
    ("truncate", |tree| {
        let f = tree.child(directory(tree), b"f").unwrap();
        tree.truncate(f, 5 * PAGE as u64, &SUPER)
    }),
    ("unlink", |tree| {
        tree.unlink(directory(tree), b"f", &SUPER)?;
        tree.begin_look();
        tree.end_look();
        tree.settle(9, |_| false);
        Ok(())
    }),
];

/// Each step with each of its allocations refused: done, or refused and nothing has changed; and
/// with memory it can be done afterwards.
#[test]
fn whichever_allocation_fails() {
    for (name, step) in STEPS {
        let mut wanted = 0;
        loop {
            let mut tree = prepared();
            let d = directory(&tree);
            let (before, space) = (seen(&mut tree, d), tree.space());
            let (result, refused) = with(wanted, || step(&mut tree));
            match result {
                Ok(()) => {}
                Err(errno) => {
                    assert_eq!((errno, refused), (Errno::ENOSPC, true), "{name} {wanted}");
                    assert_eq!(seen(&mut tree, d), before, "{name} {wanted}");
                    assert_eq!(tree.space(), space, "{name} {wanted}");
                    assert_eq!(step(&mut tree), Ok(()), "{name} {wanted}");
                }
            }
            while tree.work(10) {}
            assert!(
                matches!(name, "truncate" | "unlink") <= result.is_ok(),
                "{name}: no way to free"
            );
            if !refused {
                break;
            }
            wanted += 1;
        }
        assert!(matches!(name, "replace" | "unlink") || wanted > 0, "{name} asks for nothing");
    }
}

/// A tree in which nothing fits any more gives back, and then takes again.
#[test]
fn without_any_memory_files_end() {
    let mut tree = prepared();
    let (d, mut bytes) = (directory(&tree), [0; 4]);
    let f = tree.child(d, b"f").unwrap();
    let z = tree.child(d, b"name-that-is-longer-than-short-2").unwrap();
    let page = PAGE as u64;
    // What fails is looked at later: a panic wants memory, too.
    let (results, _) = with(0, || {
        let create = tree.create(d, &[b'g'; 100], Kind::File, 0, &SUPER).map(drop);
        let read = tree.read(f, 0, &mut bytes).map(drop);
        let truncate = tree.truncate(f, 3 * page, &SUPER);
        let before = tree.read(f, 2 * page, &mut bytes).map(|count| assert!(count == 4));
        let behind = tree.read(f, 3 * page, &mut [0; 4]).map(|count| assert!(count == 0));
        let there = tree.write(f, 64, b"in a page that is there", &SUPER).map(drop);
        let empty = tree.truncate(z, 0, &SUPER);
        // The pages that are dying are taken before it is said that there are none.
        let hole = tree.write(f, page, b"in a hole", &SUPER).map(drop);
        let unlink = tree.unlink(d, b"name-that-is-longer-than-short-1", &SUPER);
        tree.begin_look();
        tree.end_look();
        tree.settle(9, |_| false);
        while tree.work(1) {}
        [create, read, truncate, before, behind, there, empty, hole, unlink]
    });
    let mut expected = [Ok(()); 9];
    expected[0] = Err(Errno::ENOSPC);
    assert_eq!(results, expected);
    assert_eq!(&bytes, b"page");
}

/// A name of the greatest length keeps less than a page, also where all around it have gone: as
/// many names as inodes, and as many of these as pages, are not more than the pages again.
#[test]
fn a_name_keeps_less_than_a_page() {
    const NAMES: usize = 16_384;
    /// Entries of the widest node: of so many names one stays.
    const NODE: usize = 32;
    let name = |at: usize| format!("{at:0>255}").into_bytes();
    let limits = Limits { pages: 1, inodes: 2 * NAMES as u64 };
    let mut tree = Tree::new(limits, 100, 3, Others::NONE).unwrap();
    let f = tree.create(ROOT, b"f", Kind::File, 0o644, &SUPER).unwrap();
    let before = HELD.get();
    for at in 0..NAMES {
        tree.link(f, ROOT, &name(at), &SUPER).unwrap();
    }
    let full = HELD.get() - before;
    for at in (0..NAMES).filter(|at| at % NODE != 0) {
        tree.unlink(ROOT, &name(at), &SUPER).unwrap();
    }
    let thin = (HELD.get() - before) / (NAMES / NODE) as i64;
    let full = full / NAMES as i64;
    assert!((256..1024).contains(&full), "{full} bytes for a name");
    assert!((256..PAGE as i64).contains(&thin), "{thin} bytes for a name that is left");
}

/// A line discipline with the memory that it has asked for wants none: whatever is typed with
/// whatever settings, and as much as it says at most.
#[test]
fn lines_want_what_they_asked_for() {
    const TYPED: &[u8] = b"\x03\x04\x08\t\n\r\x11\x12\x13\x15\x16\x17\x1a\x1c\x7f abz_\xc3\xa4\xff";
    let mut seed = 7_u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let (mut effects, mut line) = (Effects::with_room().unwrap(), Line::default());
    let mut longest = [0; 2];
    for _ in 0..3_000 {
        let usual = Termios::default();
        let mut termios = usual;
        if next(3) > 0 {
            let mut flip = |flags: &mut u32| *flags ^= 1 << next(17) | 1 << next(17);
            flip(&mut termios.input);
            flip(&mut termios.output);
            flip(&mut termios.local);
        }
        let (cells, screen) = line.most();
        let (_, wanted) = with(0, || line.set(termios, &mut effects));
        assert!(!wanted && effects.cells.len() <= cells && effects.screen.len() <= screen);
        effects.clear();
        // Long lines, mostly of one byte, that are erased or shown again.
        let (often, last) = (TYPED[next(TYPED.len())], TYPED[next(TYPED.len())]);
        for at in 0..next(5_000) {
            let byte = match next(50) {
                0 => TYPED[next(TYPED.len())],
                _ if at > 4_090 => last,
                _ => often,
            };
            if effects.is_full() {
                effects.clear();
            }
            line.reserve().unwrap();
            let before = (effects.cells.len(), effects.screen.len());
            let (cells, screen) = line.most();
            let (_, wanted) = with(0, || line.receive(byte, &mut effects));
            assert!(!wanted, "{byte:#x} wants memory, {} cells before", before.0);
            assert!(effects.cells.len() <= before.0 + cells, "{byte:#x}: {before:?}");
            assert!(effects.screen.len() <= before.1 + screen, "{byte:#x}: {before:?}");
            longest[0] = longest[0].max(effects.cells.len());
            longest[1] = longest[1].max(effects.screen.len());
        }
        effects.clear();
        line.trim();
    }
    assert!(longest[0] > LINE_MAX && longest[1] > ECHO_MAX / 2, "{longest:?}");
}

/// Of each allocation of locks the answer to a refusal is ENOLCK, and the locks are as they were.
#[test]
fn locks_without_memory() {
    let lock = |first, last| Lock {
        file: 1,
        owner: Owner::Process(1, 0),
        user: 0,
        exclusive: true,
        first,
        last,
    };
    let other = Lock { owner: Owner::Process(2, 0), ..lock(0, u64::MAX) };
    let mut locks = Locks::default();
    locks.lock(lock(0, 99)).unwrap();
    let (result, refused) = with(0, || {
        (0..40).try_for_each(|at| {
            locks.unlock(1, Owner::Process(1, 0), 2 * at + 1, 2 * at + 1).map(drop)
        })
    });
    assert_eq!((result, refused), (Err(Errno::ENOLCK), true));
    assert_eq!(locks.conflict(&other).map(|held| held.first), Some(0));
}
