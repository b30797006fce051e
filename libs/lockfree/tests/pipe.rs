//! Every order in which a pipe's two ends can meet, by loom: bytes come once, in order, not early.

mod tried;

use lockfree::pipe::{Broken, Pipe, Reader, Writer};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU64};
use loom::thread;
use tried::{Tried, try_all};

type Small = Pipe<Tried<AtomicU64>, Tried<AtomicU8>, 2>;

/// Lets the other end go on, as a yield does; it lives.
fn wait() -> bool {
    thread::yield_now();
    true
}

/// Writes pieces of these lengths, the bytes counted from 1, and reads all of them, in every way
/// with so many switches that neither end asked for.
fn meet(switches: usize, pieces: &'static [usize], into: usize) {
    try_all(switches, move || {
        let pipe = Arc::new(Small::new(Tried::default, Tried::default));
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
    meet(3, &[1, 1, 1], 1);
}

#[test]
fn bytes_come_through_a_pipe_that_is_full_at_times() {
    meet(3, &[3, 1], 2);
}

/// A writer that dies with bytes in the pipe: they are read, then it is at its end; and a position
/// that cannot be is told, whoever looks at it.
#[test]
fn ends_and_nonsense_are_told() {
    loom::model(|| {
        let pipe = Arc::new(Small::new(Tried::default, Tried::default));
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
