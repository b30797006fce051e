//! Library operating systems of three kinds, side by side.
//!
//! ```text
//!  ExOS              ExOS, `sched_yield` replaced       18 tiny ones: `foreign`'s code
//!    └──────────────────────┴───────── one page ─────────────┘
//! ```
//! A tiny one is a domain with a native window of its own and a handler for its program's calls, of
//! which it has one: a number and a square. ExOS's program makes it, by kernel calls of its own.

use crate::{Seen, expect, foreign, libc};
use abi::call::Call;
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId};
use abi::layout::PAGE_SIZE;
use abi::memory::{ANY_FRAME, CLEARED, Item, NO_EXECUTE, Operation, WRITABLE, from_source};
use abi::published::EnvState;
use abi::setup::{EnvSetup, FLAG_BORROW, field};
use abi::word::{UserAddress, Which};
use std::sync::atomic::{AtomicU64, Ordering};
use xok::memory::item;

/// Tiny systems: with the two others more than sixteen.
const TINY: usize = 18;
/// Words of the page that each has, and what stands in them: turns, the last answer of a call, and
/// whether it is to crash.
const WORDS: usize = 8;
const TURNS: usize = 0;
const ANSWER: usize = 1;
const CRASH: usize = 2;
/// Who has which words: the tiny ones first.
const PLAIN: usize = TINY;
const REPLACED: usize = TINY + 1;
/// Turns that everybody is waited for.
const ENOUGH: u64 = 40;

type Refused = (Error, u64);

/// A tiny system that runs.
struct Tiny {
    domain: DomainId,
    env: EnvId,
}

impl Tiny {
    /// Makes one: its text and the shared page are pages of ours, the save area is its own.
    fn start(door: door::Door, text: u64, shared: u64, number: usize) -> Result<Self, Refused> {
        let any = Which::Any;
        let account = AccountId::NONE;
        let domain = libc::kernel(
            door,
            Call::DomainAlloc {
                which: any,
                account,
                root: any,
                window: foreign::NATIVE,
                bytes: PAGE_SIZE,
            },
        )?;
        let domain = DomainId(domain);
        for item in pages(text, shared) {
            let items = UserAddress(&raw const item as u64);
            libc::kernel(door, Call::TableUpdate { domain, items, count: 1 })?;
        }
        let env = libc::kernel(door, Call::EnvAlloc { which: any, domain, account, vector: any })?;
        let env = EnvId(env as u32);
        let setup = EnvSetup {
            rip: foreign::TEXT,
            argument: foreign::SHARED + (8 * WORDS * number) as u64,
            gs_base: foreign::SAVE,
            foreign_entry: foreign::handler(),
            flags: FLAG_BORROW,
            save_area: foreign::SAVE,
            ..EnvSetup::default()
        };
        let fields = field::RIP
            | field::ARGUMENT
            | field::GS_BASE
            | field::FOREIGN_ENTRY
            | field::FLAGS
            | field::SAVE_AREA;
        let setup = UserAddress(&raw const setup as u64);
        libc::kernel(door, Call::EnvSet { env, fields, setup })?;
        libc::kernel(door, Call::EnvRelease { env })?;
        Ok(Self { domain, env })
    }

    fn state(&self) -> u32 {
        xok::published::env(self.env).map_or(EnvState::Dead as u32, |record| record.state)
    }

    fn end(&self, door: door::Door) -> Result<u64, Refused> {
        libc::kernel(door, Call::DomainDestroy { domain: self.domain })
    }
}

/// What a tiny system's space is made of: its text twice, once as its native window.
fn pages(text: u64, shared: u64) -> [Item; 7] {
    let any = |operation, level, address, value| item(operation, level, address, ANY_FRAME, value);
    let table = |level| any(Operation::Table, level, foreign::TEXT, u64::from(ANY_FRAME));
    let data = WRITABLE | NO_EXECUTE;
    [
        table(4),
        table(3),
        table(2),
        any(Operation::Map, 1, foreign::TEXT, from_source(text, 0)),
        any(Operation::Map, 1, foreign::NATIVE, from_source(text, 0)),
        any(Operation::Map, 1, foreign::SHARED, from_source(shared, data)),
        any(Operation::Allocate, 1, foreign::SAVE, data | CLEARED),
    ]
}

/// Counts turns in `word` until it is told to end.
fn count_turns(word: &[AtomicU64]) -> i32 {
    while word[CRASH].load(Ordering::Acquire) == 0 {
        libc::count(&word[TURNS]);
        std::thread::yield_now();
    }
    0
}

extern "C" fn give_way(_: u64) -> i64 {
    match door::Door::find().map(|door| libc::kernel(door, Call::Yield { to: EnvId::NONE })) {
        Some(Ok(_)) => 0,
        _ => -1,
    }
}

/// Waits until all of `who` have had so many turns more.
fn wait_for_turns(words: &[AtomicU64], who: &[usize]) {
    let turns = |one: usize| words[one * WORDS + TURNS].load(Ordering::Acquire);
    let before: Vec<u64> = who.iter().map(|&one| turns(one)).collect();
    while who.iter().zip(&before).any(|(&one, before)| turns(one) < before + ENOUGH) {
        std::thread::yield_now();
    }
}

/// aegis95 T34, thesis98 Z-86 (the page): twenty library systems of three kinds share a page; one
/// of each of two kinds crashes, and the others go on.
pub fn library_systems_side_by_side(door: door::Door) -> Seen {
    let shared = libc::shared(1);
    let words = libc::words(shared, WORDS * (TINY + 2));
    let own = |number: usize| &words[number * WORDS..(number + 1) * WORDS];
    let text = libc::shared(1);
    foreign::copy_to(libc::bytes(text, PAGE_SIZE as usize));
    libc::count(&own(0)[WORDS - 1]);
    let plain = libc::spawn(|| count_turns(own(PLAIN)));
    let replaced = libc::spawn(|| match door::parts::yield_by(Some(give_way), 0) {
        Ok(()) => count_turns(own(REPLACED)),
        Err(_) => 1,
    });
    let tiny: Result<Vec<Tiny>, Refused> =
        (0..TINY).map(|number| Tiny::start(door, text, shared, number)).collect();
    let tiny = tiny.map_err(|refused| format!("a tiny system: {refused:?}"))?;
    let all: Vec<usize> = (0..TINY + 2).collect();
    wait_for_turns(words, &all);
    for number in 0..TINY {
        let answer = own(number)[ANSWER].load(Ordering::Acquire);
        let root = answer.wrapping_sub(foreign::NUMBER).isqrt();
        expect(root > 0 && root * root + foreign::NUMBER == answer, || {
            format!("system {number} answered {answer}")
        })?;
    }
    // One of a kind crashes, one of the other is killed.
    let victim = TINY / 2;
    own(victim)[CRASH].store(1, Ordering::Release);
    while tiny[victim].state() != EnvState::Stopped as u32 {
        std::thread::yield_now();
    }
    libc::send(replaced, 9);
    let status = libc::wait(replaced);
    let others: Vec<usize> =
        all.iter().copied().filter(|&one| one != victim && one != REPLACED).collect();
    let dead = own(victim)[TURNS].load(Ordering::Acquire);
    wait_for_turns(words, &others);
    let still = own(victim)[TURNS].load(Ordering::Acquire) == dead;
    own(PLAIN)[CRASH].store(1, Ordering::Release);
    let ended = libc::wait(plain);
    let destroyed: Result<Vec<u64>, Refused> = tiny.iter().map(|one| one.end(door)).collect();
    expect(destroyed.is_ok(), || format!("the end of a tiny system: {destroyed:?}"))?;
    expect((status, ended) == (9, 0) && still, || {
        format!("statuses {status:#x} {ended:#x}, the one that crashed stands still: {still}")
    })?;
    Ok(format!("({TINY} tiny ones and two of ExOS)"))
}
