//! Every order in which a pipe's two ends can meet, by loom: bytes come once, in order, not early.

use lockfree::Word;
use lockfree::pipe::{Broken, Byte, Pipe, Reader, Writer};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use loom::thread;

/// A position, of loom's.
struct Tried(AtomicU64);

impl Word for Tried {
    fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn store(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    fn swap(&self, _: u64) -> u64 {
        unreachable!("a pipe's words are stored by one each")
    }

    fn set_bits(&self, _: u64) -> u64 {
        unreachable!("a pipe's words are stored by one each")
    }

    fn fence() {
        unreachable!("a pipe needs none")
    }
}

/// A byte of the ring, of loom's.
struct Place(AtomicU8);

impl Byte for Place {
    fn load(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    fn store(&self, value: u8) {
        self.0.store(value, Ordering::Relaxed);
    }
}

type Small = Pipe<Tried, Place, 2>;

/// Lets the other end go on, as a yield does; it lives.
fn wait() -> bool {
    thread::yield_now();
    true
}

/// Writes pieces of these lengths, the bytes counted from 1, and reads all of them, in every way
/// with so many switches that neither end asked for.
fn try_all(switches: usize, pieces: &'static [usize], into: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.check(move || {
        let word = || Tried(AtomicU64::new(0));
        let pipe = Arc::new(Small::new(word, || Place(AtomicU8::new(0))));
        let mut writer = Writer::new(pipe.clone());
        let all: Vec<u8> = (1..=pieces.iter().sum::<usize>() as u8).collect();
        let mut rest = all.clone();
        let other = thread::spawn(move || {
            for &piece in pieces {
                let bytes: Vec<u8> = rest.drain(..piece).collect();
                assert_eq!(writer.write(&bytes, wait), Ok(()));
            }
        });
        let mut reader = Reader::new(pipe);
        let mut read: Vec<u8> = Vec::new();
        while read.len() < all.len() {
            let mut some = vec![0; into];
            let count = reader.read(&mut some, wait).expect("an honest writer");
            assert!((1..=into).contains(&count));
            read.extend(&some[..count]);
        }
        assert_eq!(read, all);
        other.join().expect("the writer");
    });
}

#[test]
fn bytes_come_through_a_pipe_one_by_one() {
    try_all(3, &[1, 1, 1], 1);
}

#[test]
fn bytes_come_through_a_pipe_that_is_full_at_times() {
    try_all(3, &[3, 1], 2);
}

/// A writer that dies with bytes in the pipe: they are read, then it is at its end; and a position
/// that cannot be is told, whoever looks at it.
#[test]
fn ends_and_nonsense_are_told() {
    loom::model(|| {
        let word = || Tried(AtomicU64::new(0));
        let pipe = Arc::new(Small::new(word, || Place(AtomicU8::new(0))));
        let mut writer = Writer::new(pipe.clone());
        let mut reader = Reader::new(pipe.clone());
        assert_eq!(writer.write(&[1, 2, 3], || false), Err(Broken::NoReader));
        let mut some = [0; 4];
        assert_eq!(reader.read(&mut some, || false), Ok(2));
        assert_eq!(reader.read(&mut some, || false), Ok(0));
        assert_eq!(some, [1, 2, 0, 0]);
        // Ends that begin where others have been: two bytes were read that this one never wrote.
        let mut late = Writer::new(pipe.clone());
        assert_eq!(late.write(&[1], || true), Err(Broken::Garbage));
        let mut early = Reader::new(pipe);
        assert_eq!(early.read(&mut some[..1], || true), Ok(1));
        assert_eq!(writer.write(&[4], || true), Ok(()));
        assert_eq!(writer.write(&[5], || false), Err(Broken::NoReader));
    });
}
