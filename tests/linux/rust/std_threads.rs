//! Threads as Rust's standard library makes them: channels, barriers, locks, scopes, panics.
use std::sync::{mpsc, Arc, Barrier, Condvar, Mutex, RwLock};
use std::thread;
fn main() {
    let (send, receive) = mpsc::channel();
    let workers: Vec<_> = (0..16u64)
        .map(|n| {
            let send = send.clone();
            thread::spawn(move || {
                for k in 0..500 {
                    send.send(n * k).unwrap();
                }
                n
            })
        })
        .collect();
    drop(send);
    println!("{}", receive.iter().sum::<u64>());
    println!("{}", workers.into_iter().map(|w| w.join().unwrap()).sum::<u64>());
    let barrier = Arc::new(Barrier::new(8));
    let all: Vec<_> = (0..8)
        .map(|_| {
            let barrier = barrier.clone();
            thread::spawn(move || (0..50).filter(|_| barrier.wait().is_leader()).count())
        })
        .collect();
    println!("{}", all.into_iter().map(|w| w.join().unwrap()).sum::<usize>());
    let lock = RwLock::new(vec![0u64; 4]);
    thread::scope(|s| {
        for n in 0..8 {
            let lock = &lock;
            s.spawn(move || {
                for _ in 0..200 {
                    if n % 2 == 0 {
                        lock.write().unwrap()[n / 2] += 1
                    } else {
                        assert!(lock.read().unwrap().len() == 4)
                    }
                }
            });
        }
    });
    println!("{:?}", lock.read().unwrap());
    let pair = (Mutex::new(false), Condvar::new());
    thread::scope(|s| {
        s.spawn(|| {
            *pair.0.lock().unwrap() = true;
            pair.1.notify_all();
        });
        let mut g = pair.0.lock().unwrap();
        while !*g {
            g = pair.1.wait(g).unwrap();
        }
    });
    let r = thread::spawn(|| -> () { panic!("on purpose") }).join();
    println!("{}", r.is_err());
    thread_local!(static OWN: std::cell::Cell<u32> = const { std::cell::Cell::new(1) });
    thread::spawn(|| OWN.set(2)).join().unwrap();
    println!("{} {}", OWN.get(), thread::available_parallelism().is_ok());
}
