//! Thousands of environments that say that they sleep for a word, beside a user's wakes of it.

use super::{Measured, as_user, now, shown};
use crate::deputies::{ANN, NOBODY};
use crate::{expect, futex, libc};
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::time::Duration;
use unix::process_page::{MAGIC, ProcessPage};

/// Instructions that a wake may take: 6,500,000 if it rings at all that say they sleep.
pub const BOUND: u64 = 2_500_000;
/// Wakes, and what is between two of them.
const WAKES: usize = 50;
const BETWEEN: Duration = Duration::from_micros(3300);
/// Where a page's address lies in an entry of the tables.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Environments that never run, as many as there may be, whose page says that they sleep for the
/// word that is known by this; how many.
fn crowd(door: door::Door, key: u64) -> u64 {
    let page = libc::shared(1);
    let words = libc::words(page, 512);
    words[0].store(MAGIC, Ordering::SeqCst);
    words[offset_of!(ProcessPage, futex) / 8].store(key, Ordering::SeqCst);
    shown::all(door, page)
}

/// How long another user's wakes of a shared word take, for which no thread of its own sleeps.
pub fn beside(door: door::Door) -> Measured {
    let (word, told) = (libc::shared(1), libc::words(libc::shared(1), 1));
    libc::words(word, 1)[0].store(7, Ordering::SeqCst);
    let key = xok::own::leaf(word).ok_or("the word is nowhere")? & ADDRESS;
    let crowd = libc::spawn(|| {
        let made = libc::become_user(NOBODY).then(|| crowd(door, key));
        told[0].store(made.unwrap_or(1), Ordering::SeqCst);
        loop {
            std::thread::park();
        }
    });
    while told[0].load(Ordering::SeqCst) == 0 && libc::is_alive(crowd) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let victim = as_user(ANN, || {
        let mut all = Vec::new();
        for at in 0..WAKES {
            std::thread::sleep(BETWEEN);
            let begun = now();
            let woken = futex::wake(word, 1);
            all.push((format!("for wake {at}, of {woken}"), now() - begun));
        }
        Ok(all)
    });
    libc::send(crowd, 9);
    libc::wait(crowd);
    let made = told[0].load(Ordering::SeqCst);
    expect(made > 4000, || format!("there were {made} environments"))?;
    victim
}
