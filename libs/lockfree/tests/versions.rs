//! Every order in which a server that moves versions and its clients can meet.
//!
//! What a client takes for so is so, and what it holds is not ended.

mod tried;

use abi::atomic::{Atomic, Ordering};
use lockfree::versions::{self, said};
use loom::sync::atomic::AtomicU64;
use loom::sync::{Arc, Mutex};
use loom::thread;
use tried::{Tried, try_all};

type Word = Tried<AtomicU64>;

/// A file, which clients see in their spaces.
#[derive(Default)]
struct File {
    version: Word,
    content: [Word; 2],
    /// What the server has answered last: the version, and the content.
    answer: Mutex<(u64, u64)>,
}

/// A server that changes a file so often, and a client that reads it so often by one answer.
fn read_shown(switches: usize, changes: u64, answers: u32, reads: u32) {
    try_all(switches, move || {
        let file = Arc::new(File::default());
        let there = file.clone();
        let server = thread::spawn(move || {
            for content in 1..=changes {
                versions::begin(&there.version);
                there.content.iter().for_each(|word| word.store(content, Ordering::Relaxed));
                versions::advance(&there.version);
                let version = versions::told(&there.version);
                *there.answer.lock().expect("an answer") = (version, content);
            }
        });
        for _ in 0..answers {
            let (version, content) = *file.answer.lock().expect("an answer");
            for _ in 0..reads {
                let copied = versions::copy::<Word, _>(
                    || Some(file.content.each_ref().map(|word| word.load(Ordering::Relaxed))),
                    || file.version.load(Ordering::Relaxed) == version,
                );
                assert!(copied.is_none_or(|copied| copied == [content; 2]), "{copied:?}");
            }
        }
        server.join().expect("the server");
    });
}

#[test]
fn what_is_shown_is_what_was_told() {
    read_shown(3, 2, 2, 1);
    read_shown(3, 1, 1, 2);
}

/// Whoever has heard of a change takes nothing for so that was told before it.
#[test]
fn who_has_heard_of_a_change_sees_it() {
    try_all(3, || {
        let file = Arc::new(File::default());
        let there = file.clone();
        let server = thread::spawn(move || {
            there.content[0].store(1, Ordering::Relaxed);
            versions::advance(&there.version);
            there.answer.lock().expect("an answer").1 = 1;
        });
        // Who has asked for it tells another client.
        let heard = file.answer.lock().expect("an answer").1 == 1;
        assert!(!heard || file.version.load(Ordering::Relaxed) != 0);
        // And who sees the version sees what has changed.
        if file.version.load(Ordering::Acquire) != 0 {
            assert_eq!(file.content[0].load(Ordering::Relaxed), 1);
        }
        server.join().expect("the server");
    });
}

/// What the server and a client do at the same time: a file loses its last name, and is opened.
struct Opening {
    version: Word,
    hold: Word,
}

/// A file's number, in a client's word.
const FILE: u64 = 5;
/// Whatever is made next, before one knows its number.
const ANY: u64 = u64::MAX;

impl Opening {
    /// Has the server ended the file?
    fn unlink(&self) -> bool {
        versions::advance(&self.version);
        said::<Word>();
        let held = self.hold.load(Ordering::Relaxed);
        held != FILE && held != ANY
    }

    /// Has the client opened it?
    fn open(&self) -> bool {
        versions::say(&self.hold, FILE);
        said::<Word>();
        self.version.load(Ordering::Relaxed) == 0
    }
}

#[test]
fn what_is_held_is_not_ended() {
    for client_first in [false, true] {
        try_all(4, move || {
            let opening = Arc::new(Opening { version: Word::default(), hold: Word::default() });
            let there = opening.clone();
            let other = move || if client_first { there.unlink() } else { there.open() };
            let other = thread::spawn(other);
            let own = if client_first { opening.open() } else { opening.unlink() };
            assert!(!(own && other.join().expect("the other one")), "ended and open");
        });
    }
}

/// One that is held before it is made, and then by its number, is held all the while.
#[test]
fn what_was_just_made_is_not_ended() {
    try_all(4, || {
        let opening = Arc::new(Opening { version: Word::default(), hold: Word::default() });
        versions::say(&opening.hold, ANY);
        let there = opening.clone();
        // It is made before this; another client takes its name away at once.
        let server = thread::spawn(move || there.unlink());
        versions::say(&opening.hold, FILE);
        assert!(!server.join().expect("the server"), "ended and open");
    });
}
