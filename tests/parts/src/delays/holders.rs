//! Thousands of environments that say that they have files open, beside a client of another user's.

use super::files::{PLACE, prepare};
use super::{Measured, as_user, now, shown};
use crate::deputies::{ANN, NOBODY, ask, ask_by};
use crate::{expect, forgers, libc};
use abi::call::Call;
use abi::id::EnvId;
use std::fs::{self, File};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use unix::process_page::{HELD, HELD_ANY, MAGIC, ProcessPage};
use unix::protocol::Operation;

/// Instructions that a look at attributes may take: without such environments it is 100,000, behind
/// a sleep, and 220,000 now and then.
pub const BOUND: u64 = 500_000;
/// Looks at attributes, and what is between two of them: no multiple of what servers wait.
const LOOKS: usize = 100;
const BETWEEN: Duration = Duration::from_micros(3300);
/// One of so many never runs.
const NEVER: u64 = 16;
/// Bytes of a file that is deleted, and within which time they are free again.
const LARGE: (usize, Duration) = (1 << 20, Duration::from_secs(5));

/// An environment, which has begun or never runs, with a page that is another one's: announced as
/// one that says what it holds.
fn announce(door: door::Door, region: u32, page: u64, runs: bool) -> Option<EnvId> {
    let env = shown::one(door, page)?;
    if runs {
        // Where there is nothing: it stops.
        libc::kernel(door, Call::EnvRelease { env }).ok()?;
    }
    // Who never runs says nothing.
    let holder = ask_by(door, region, NOBODY, Operation::Holder, [env.0.into(), 0, 0, 0]);
    (holder.is_ok() == runs).then_some(env)
}

/// As many as there may be, of which the last one holds a file without a name; how many.
fn crowd(door: door::Door, held: &str) -> Option<u64> {
    // Asked once by the library: so there is a way to the server.
    fs::write(held, "x").ok()?;
    let region = forgers::transport()?;
    let pages = libc::shared(2);
    // Most say that they make files of user 0's, of which the server asks the kernel.
    for (page, user) in [(pages, 0), (pages + 4096, NOBODY)] {
        let words = libc::words(page, 512);
        words[0].store(MAGIC, Ordering::SeqCst);
        let first = offset_of!(ProcessPage, held) / 8;
        words[first..first + HELD].iter().for_each(|place| place.store(HELD_ANY, Ordering::SeqCst));
        let at = offset_of!(ProcessPage, file_user);
        words[at / 8].store(u64::from(user) << (8 * (at & 4)), Ordering::SeqCst);
    }
    let mut last = None;
    let mut made = 0;
    while let Some(env) = announce(door, region, pages, made % NEVER != 0) {
        last = Some(env);
        made += 1;
    }
    let env = last?;
    libc::kernel(door, Call::EnvDestroy { env, word: 0 }).ok()?;
    libc::kernel(door, Call::EnvForget { env }).ok()?;
    announce(door, region, pages + 4096, true)?;
    fs::remove_file(held).ok()?;
    Some(made)
}

/// How long another user's looks take.
pub fn beside(door: door::Door) -> Measured {
    prepare()?;
    let words = libc::words(libc::shared(1), 1);
    let crowd = libc::spawn(|| {
        let made = libc::become_user(NOBODY).then(|| crowd(door, &format!("{PLACE}/held")));
        let Some(made) = made.flatten() else { return 1 };
        words[0].store(made, Ordering::SeqCst);
        loop {
            std::thread::park();
        }
    });
    while words[0].load(Ordering::SeqCst) == 0 && libc::is_alive(crowd) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let victim = look_again(door);
    libc::send(crowd, 9);
    libc::wait(crowd);
    let made = words[0].load(Ordering::SeqCst);
    expect(made > 4000, || format!("there were {made} environments"))?;
    victim
}

fn look_again(door: door::Door) -> Measured {
    as_user(ANN, || {
        let free = || ask(door, ANN, Operation::Space, [0; 4]).map(|[_, free, ..]| free);
        let (kept, large) = (format!("{PLACE}/kept"), format!("{PLACE}/large"));
        fs::write(&kept, "kept").map_err(super::failed)?;
        let file = File::open(&kept).map_err(super::failed)?;
        fs::remove_file(&kept).map_err(super::failed)?;
        let before = free().map_err(|errno| format!("no space: {errno}"))?;
        fs::write(&large, vec![7; LARGE.0]).map_err(super::failed)?;
        fs::remove_file(&large).map_err(super::failed)?;
        let begun = Instant::now();
        while free().unwrap_or(0) + 64 < before && begun.elapsed() < LARGE.1 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let after = free().unwrap_or(0);
        expect(after + 64 >= before, || format!("{} pages are not free again", before - after))?;
        let mut all = Vec::new();
        for at in 0..LOOKS {
            std::thread::sleep(BETWEEN);
            let begun = now();
            let _ = fs::metadata(format!("{PLACE}/none-{at}"));
            all.push((format!("for look {at}"), now() - begun));
        }
        let mut bytes = [0; 4];
        let there = file.read_exact_at(&mut bytes, 0).is_ok() && bytes == *b"kept";
        expect(there, || "a file that is open has gone".into())?;
        Ok(all)
    })
}
