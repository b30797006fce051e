//! A program without rights that makes any kernel call with any words, by any of its slots.
//!
//! A third of the words are as they come, the others mean something: every id that is published,
//! addresses of its own and of the borders of the address space, the numbers that stand for "any"
//! and "own". Whoever is killed or ends itself by what it does is followed by another one, whose
//! words are the next ones of the seed.

use crate::libc;
use crate::random::Random;
use abi::call::CAPABILITY_SHIFT;
use abi::layout::{DIRECT_MAP, LIBRARY, OWN_TABLES, PROGRAM_END, PUBLISHED};
use abi::published::Table;
use std::sync::atomic::{AtomicU64, Ordering};
use xok::published;

/// What they may be: a user without rights, a program that has dropped everything it had, one with
/// the network.
pub const KINDS: u64 = 3;
const NOBODY: u32 = 65534;
const NETWORK_GROUP: u32 = 3003;
/// Calls there are, and some there are not.
const NUMBERS: u64 = 58;
/// What one life may make: tables are shared with the victims, who must find room.
const MADE_MOST: u64 = 24;
/// Calls that make something.
const MAKES: [u64; 6] = [8, 13, 19, 24, 30, 33];
/// Calls by which it ends, or stands still, as often as not: made more seldom.
const ENDS: [u64; 11] = [1, 2, 4, 5, 7, 9, 10, 14, 43, 48, 53];
/// One of those in so many.
const SELDOM: u64 = 40;
/// Bytes of a further thread's stack.
const STACK: usize = 128 << 10;
/// Pages of words that calls may be pointed at.
const PAGES: usize = 4;
/// Numbers that mean something: small ones, "any", "own", the hole between the halves.
const SPECIAL: [u64; 18] =
    [0, 1, 2, 3, 7, 8, 16, 64, 255, 4095, 4096, 0xffff, !0, !1, 1 << 31, 1 << 32, 1 << 47, 1 << 63];
/// See [`SPECIAL`].
const ANY: u64 = 0xffff_ffff;
/// Borders of the address space.
const BORDERS: [u64; 5] = [PROGRAM_END, PUBLISHED, LIBRARY, DIRECT_MAP, OWN_TABLES];
/// Ids of each table that a life looks at.
const IDS: usize = 64;

/// How often each call was made and granted, shared with all attackers.
#[derive(Clone, Copy)]
pub struct Tally(u64);

impl Tally {
    /// All zero.
    pub fn new() -> Self {
        Self(libc::shared(1))
    }

    fn made(self, number: u64) -> &'static AtomicU64 {
        &libc::words(self.0, 512)[number as usize]
    }

    fn granted(self, number: u64) -> &'static AtomicU64 {
        &libc::words(self.0, 512)[256 + number as usize]
    }

    /// Calls, those that were granted, and the numbers that were never made.
    pub fn sums(self) -> (u64, u64, Vec<u64>) {
        let sum = |of: fn(Self, u64) -> &'static AtomicU64| -> u64 {
            (0..NUMBERS).map(|number| of(self, number).load(Ordering::Relaxed)).sum()
        };
        let never = |number: &u64| self.made(*number).load(Ordering::Relaxed) == 0;
        (sum(Self::made), sum(Self::granted), (0..NUMBERS).filter(never).collect())
    }
}

/// Begins the life with this number; its process.
pub fn start(seed: u64, life: u64, tally: Tally) -> Result<i32, String> {
    let door = libc::door_address().ok_or("no door")?;
    let pid = libc::spawn(|| {
        libc::silence();
        libc::skip_faults();
        let groups: &[u32] = if life % KINDS == 2 { &[NETWORK_GROUP] } else { &[] };
        if !libc::become_user_of(NOBODY, groups) {
            return 1;
        }
        if life % KINDS == 1 {
            // Its own name, too: what is left is a native program that nobody gave anything.
            (0..16).for_each(|slot| {
                libc::raw_call(door, [18, slot, 0, 0, 0, 0, 0]);
            });
            return live(door, &mut random_of(seed, life, 0), (MADE_MOST, tally));
        }
        live_on_all(door, (seed, life), tally)
    });
    if pid > 0 { Ok(pid) } else { Err(format!("an attacker cannot begin: {pid}")) }
}

/// The words of one thread of a life.
fn random_of(seed: u64, life: u64, thread: u64) -> Random {
    Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (life + 1) << 20 ^ thread << 8 | 1)
}

/// A thread for each processor: what one does to the ids that all see, others undo meanwhile.
fn live_on_all(door: u64, (seed, life): (u64, u64), tally: Tally) -> i32 {
    let threads = u64::from(published::directory().cpus);
    let most = MADE_MOST / threads;
    for thread in 1..threads {
        let act = move || live(door, &mut random_of(seed, life, thread), (most, tally));
        // Without room for another thread there are fewer.
        let _ = std::thread::Builder::new().stack_size(STACK).spawn(act);
    }
    live(door, &mut random_of(seed, life, 0), (most, tally))
}

/// Ids and addresses that mean something.
fn meanings(pages: u64) -> Vec<u64> {
    let mut all = SPECIAL.to_vec();
    all.push(ANY);
    all.extend(BORDERS.iter().flat_map(|border| [border - 4096, border - 8, *border]));
    all.extend(
        (0..PAGES as u64)
            .flat_map(|page| [0, 8, 64, 1000, 4088].map(|at| pages + page * 4096 + at)),
    );
    for table in
        [Table::Envs, Table::Domains, Table::Accounts, Table::Regions, Table::Filters, Table::Rings]
    {
        let records = 0..published::table(table).count as usize;
        let ids = records.filter_map(|at| match table {
            Table::Envs => published::record::<u32>(table, at).map(u64::from),
            _ => published::record::<u64>(table, at),
        });
        all.extend(ids.filter(|&id| id != 0).take(IDS));
    }
    let frames = published::directory().frames;
    all.extend((0..IDS as u64).map(|at| at * frames / IDS as u64));
    all
}

fn word(random: &mut Random, meanings: &[u64]) -> u64 {
    match random.below(6) {
        0 => random.word(),
        1 => 1 << random.below(64),
        2 => random.below(17),
        _ => meanings[random.below(meanings.len() as u64) as usize],
    }
}

/// Calls until it is killed, or has made so much at `most`.
fn live(door: u64, random: &mut Random, (most, tally): (u64, Tally)) -> i32 {
    let pages = libc::shared(PAGES);
    let meanings = meanings(pages);
    let words = libc::words(pages, PAGES * 512);
    let mut made = 0;
    while made < most {
        for _ in 0..4 {
            let at = random.below(words.len() as u64) as usize;
            words[at].store(word(random, &meanings), Ordering::Relaxed);
        }
        let number = random.below(NUMBERS);
        if ENDS.contains(&number) && random.below(SELDOM) != 0 {
            continue;
        }
        let mut call = [0; 7];
        call[0] = number | random.below(16) << CAPABILITY_SHIFT;
        call[1..].fill_with(|| word(random, &meanings));
        if number == 1 {
            // Not to sleep for its whole life.
            call[1] = xok::clock::now_ns() + random.below(2_000_000);
        }
        libc::count(tally.made(number));
        if libc::raw_call(door, call).0 == 0 {
            libc::count(tally.granted(number));
            made += u64::from(MAKES.contains(&number));
        }
    }
    0
}
