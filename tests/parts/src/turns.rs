//! Who is next when the program gives its turn away: the program says.

use crate::{Seen, expect, libc};
use abi::call::Call;
use abi::id::EnvId;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Turns given away.
const TURNS: u64 = 400;
/// Word of the shared page that ends it, and the words that count.
const STOP: usize = 0;
const CHOSEN: usize = 1;
const OTHER: usize = 2;

static DOOR: Mutex<Option<door::Door>> = Mutex::new(None);
static YIELDS: AtomicU64 = AtomicU64::new(0);

/// Gives the turn to the process whose id is in the word at `data`.
extern "C" fn to_partner(data: u64) -> i64 {
    let Some(door) = *DOOR.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) else {
        return -1;
    };
    libc::count(&YIELDS);
    let to = EnvId(libc::words(data, 1)[0].load(Ordering::Relaxed) as u32);
    match libc::kernel(door, Call::Yield { to }) {
        Ok(_) => 0,
        Err((error, _)) => -(error as i64),
    }
}

/// Issue part 12: what `sched_yield` does is a function of the program's, in Rust's
/// `thread::yield_now` as anywhere; it gives the turn to one of two that wait for it, and back.
pub fn own_yield(door: door::Door) -> Seen {
    *DOOR.lock().map_err(|_| "lock".to_string())? = Some(door);
    let page = libc::shared(1);
    let words = libc::words(page, 4);
    let partner = libc::shared(1);
    let parent = u64::from(std::process::id());
    // Both give their turns away all the time; one of them to us, by the same function.
    let other = libc::spawn(|| {
        while words[STOP].load(Ordering::Acquire) == 0 {
            libc::count(&words[OTHER]);
            std::thread::yield_now();
        }
        0
    });
    let chosen = libc::spawn(|| {
        let back = libc::shared(1);
        libc::words(back, 1)[0].store(parent, Ordering::Relaxed);
        if door::parts::yield_by(Some(to_partner), back).is_err() {
            return 1;
        }
        while words[STOP].load(Ordering::Acquire) == 0 {
            libc::count(&words[CHOSEN]);
            std::thread::yield_now();
        }
        0
    });
    libc::words(partner, 1)[0].store(chosen as u64, Ordering::Relaxed);
    while words[CHOSEN].load(Ordering::Acquire) == 0 || words[OTHER].load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    door::parts::yield_by(Some(to_partner), partner)
        .map_err(|error| format!("yield_by: error {error}"))?;
    let before = [CHOSEN, OTHER].map(|word| words[word].load(Ordering::Relaxed));
    for _ in 0..TURNS {
        std::thread::yield_now();
    }
    let after = [CHOSEN, OTHER].map(|word| words[word].load(Ordering::Relaxed));
    let back = door::parts::yield_by(None, 0);
    words[STOP].store(1, Ordering::Release);
    let ends = [chosen, other].map(libc::wait);
    expect(back.is_ok() && ends == [0, 0], || format!("the children ended with {ends:x?}"))?;
    let (chosen, other) = (after[0] - before[0], after[1] - before[1]);
    let yields = YIELDS.load(Ordering::Relaxed);
    expect(yields == TURNS, || format!("{yields} of {TURNS} yields came to the function"))?;
    expect(chosen >= TURNS * 9 / 10, || format!("{chosen} of {TURNS} turns to the one chosen"))?;
    Ok(format!("(of {TURNS} turns {chosen}, beside {other})"))
}
