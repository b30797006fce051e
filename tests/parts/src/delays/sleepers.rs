//! Thousands of environments that say that they sleep for a word, beside a user's wakes of it.

use super::{Measured, as_user, now};
use crate::deputies::{ANN, NOBODY};
use crate::{expect, futex, libc};
use abi::call::Call;
use abi::id::{AccountId, DomainId, EnvId};
use abi::setup::{EnvSetup, field};
use abi::word::{UserAddress, Which};
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
fn crowd(door: door::Door, key: u64) -> Option<u64> {
    let page = libc::shared(1);
    let words = libc::words(page, 512);
    words[0].store(MAGIC, Ordering::SeqCst);
    words[offset_of!(ProcessPage, futex) / 8].store(key, Ordering::SeqCst);
    let mut made = 0;
    loop {
        let (which, vector) = (Which::Any, Which::Any);
        let (domain, account) = (DomainId::NONE, AccountId::NONE);
        let make = Call::EnvAlloc { which, domain, account, vector };
        let Ok(env) = libc::kernel(door, make) else { return Some(made) };
        let setup = EnvSetup { application_page: page, ..EnvSetup::default() };
        let (fields, setup) = (field::APPLICATION_PAGE, UserAddress(&raw const setup as u64));
        libc::kernel(door, Call::EnvSet { env: EnvId(env as u32), fields, setup }).ok()?;
        made += 1;
    }
}

/// How long another user's wakes of a shared word take, for which no thread of its own sleeps.
pub fn beside(door: door::Door) -> Measured {
    let (word, told) = (libc::shared(1), libc::words(libc::shared(1), 1));
    libc::words(word, 1)[0].store(7, Ordering::SeqCst);
    let key = xok::own::leaf(word).ok_or("the word is nowhere")? & ADDRESS;
    let crowd = libc::spawn(|| {
        let made = libc::become_user(NOBODY).then(|| crowd(door, key)).flatten();
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
