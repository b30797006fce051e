//! What assistants do: one function a role; the word they leave is their report.

pub mod clients;
pub mod crowd;
mod ending;
mod events;
pub mod gang;
pub mod holder;
pub mod ledger;
pub mod mirror;
mod missing;
pub mod redirected;
pub mod region;
mod serve;
pub mod stream;
pub mod threads;
mod vectors;
pub mod waits;

use crate::assistant::Role;
use crate::faults;
use crate::random::Random;
use crate::suite::{compiled, method};
use abi::error::Error;
use abi::id::{DomainId, EnvId, RegionId};
use abi::limits::SLICE_NS;
use abi::memory::{ANY_FRAME, NO_EXECUTE, Operation, WRITABLE};
use abi::region::{NO_ROLE, RegionOperation, RegionWait, WordAt};
use abi::setup::{EnvSetup, field};
use abi::upcall::EVENT_SLICE_END;
use xok::call::{self, OWN};
use xok::clock::now_ns;
use xok::memory::{DATA, item};
use xok::start::APPLICATION_PAGE;

pub use ending::{ENDING_CONTENT, set_vectors, vectors};
pub use events::{LAST, QUEUE_CONTENT, TOO_MANY};
pub use missing::{MISSING_CODE, MISSING_SAVE_AREA, MISSING_STACK};
pub use serve::{SERVE_CHOOSY, SERVE_DEATH, SERVE_SLOWLY, SERVE_SUMS, SERVE_SUMS_BY_TURNS};
pub use serve::{TURNED_AWAY, WELCOME};

/// Sleeps for ever.
pub const SLEEP: u64 = 1;
/// Runs for ever; counts when its first word is 1.
pub const SPIN: u64 = 2;
/// Tries to enter the frame in its first word.
pub const MAP_FOREIGN: u64 = 3;
/// Its report when all was refused.
pub const MAP_FOREIGN_REFUSED: u64 = 0x600d;
/// Loads from its first word until that faults, and counts; its report is how often it could.
pub const READ_UNTIL_FAULT: u64 = 4;
/// Loads the byte expected, then stores.
pub const LOAD_THEN_STORE: u64 = 5;
/// Stores at its first word.
pub const STORE_AT: u64 = 6;
/// The report of a store that faulted.
pub const STORE_FAULTED: u64 = 0x600d;
/// Counts, and yields to the environment in its first word.
pub const COUNT_AND_YIELD: u64 = 7;
/// Sleeps until the word at its first word has the value of its second.
pub const SLEEP_UNTIL_WORD: u64 = 8;
/// Answers posts of the environment in its first word, its second word times.
pub const ECHO_POSTS: u64 = 9;
/// Serves transfers of the kind in its first word; its second word is who may call.
pub const SERVE: u64 = 10;
/// Serves transfers by recording every register.
pub const REGISTER_MIRROR: u64 = 11;
/// Accepts an asynchronous transfer and never gives back.
pub const ACCEPT_ASYNC_AND_SPIN: u64 = 12;
/// Calls the server in its first word with its second; its report is the reply's first word.
pub const ASK: u64 = 13;
/// Holds itself.
pub const HOLD_SELF: u64 = 14;
/// Faults with no handler registered.
pub const FAULT_WITHOUT_HANDLER: u64 = 15;
/// Makes regions, attaches to them, sleeps.
pub const HOLD_REGIONS: u64 = 16;
/// Makes random calls until the time in its second word; its first is the seed.
pub const FUZZ: u64 = 17;
/// Tries to get write access to the page at its first word (frame in its second).
pub const BREAK_COPY_ON_WRITE: u64 = 18;
/// Its report when all was refused.
pub const BREAK_REFUSED: u64 = 0x600d;

/// Counts in the region in its first word, its second word times, in turn with who made it.
pub const COUNT_IN_REGION: u64 = 19;

/// Runs for ever, in instructions that cost no more than others.
pub const HOG: u64 = 30;
/// Yields when it is told that its slice ends; the second time so many slices and a half late.
pub const DAWDLE: u64 = 31;
/// Faults while a page that its handler needs is missing, `MISSING_…` in its first word.
pub const FAULT_WITHOUT_PAGE: u64 = 32;
/// Has its own context switch at the end of its slices; saves its vector registers if its first
/// word is 1.
pub const SEE_ENDS: u64 = 33;
/// Keeps patterns in its vector registers, and yields to the environment in its first word.
pub const KEEP_VECTORS: u64 = 34;
/// Has no vector registers but at times, and yields to the environment in its first word.
pub const DO_WITHOUT_VECTORS: u64 = 35;
/// Works in critical sections as many nanoseconds long as its first word says.
pub const WORK_IN_SECTIONS: u64 = 36;
/// Stays in a critical section.
pub const STAY_IN_SECTION: u64 = 37;
/// Reads its queue of events, full of posts of the environment in its first word.
pub const READ_QUEUE: u64 = 38;
/// Keeps patterns in every register, counts, and yields to the environment in its first word, until
/// one has changed.
pub const KEEP_AND_YIELD: u64 = 39;
/// Its report when the fault was handled after all.
pub const FAULT_HANDLED: u64 = 0x600d;
/// Makes as many environments as its second word says, which wait for what its first one says, and
/// counts when they do.
pub const GATHER: u64 = 61;
/// Has its faults answered by the environment in its first word.
pub const REDIRECTED: u64 = 63;
/// Answers them.
pub const JUDGE: u64 = 64;
/// Runs several threads, one of which waits in a fault until it is posted to.
pub const THREADS: u64 = 62;
/// Gives its slices to members of two gangs, as its words say.
pub const LEAD_GANGS: u64 = 65;
/// A member of a gang: counts in step with the one of its place in its word.
pub const KEEP_STEP: u64 = 66;
/// Loads from its first word whenever it is posted to, and counts.
pub const TOUCH: u64 = 60;
/// Jumps to its first word.
pub const JUMP_TO: u64 = 24;
/// Tries to map the page behind the last one.
pub const TRY_THE_LAST_PAGE: u64 = 67;
/// Makes pages and tables and destroys them, for ever.
pub const DESTROY: u64 = 69;
/// Calls method 0 of the region in its first word for ever.
pub const CALL_METHOD_FOR_EVER: u64 = 25;

/// Plays the role; the word to leave.
pub fn play(role: &Role) -> u64 {
    let words = role.words;
    match role.role {
        SLEEP => loop {
            let _ = call::sleep(0, 0, 0, 0);
        },
        SPIN => spin(words[0]),
        TOUCH => touch(words[0]),
        TRY_THE_LAST_PAGE => super::exits::play_stranger(),
        DESTROY => super::neighbours::destroy(words[0] != 0),
        GATHER => crowd::gather(words[0], words[1], words[2]),
        crowd::LEAVE_RECORDS => crowd::leave_records(words[0], words[1]),
        THREADS => threads::run(),
        LEAD_GANGS => gang::lead(words),
        KEEP_STEP => gang::keep_step(words[0] as usize),
        REDIRECTED => redirected::run(EnvId(words[0] as u32)),
        JUDGE => redirected::judge(),
        MAP_FOREIGN => map_foreign(words[0] as u32),
        READ_UNTIL_FAULT => read_until_fault(words[0]),
        LOAD_THEN_STORE => match faults::load(words[0]) {
            Some(byte) if u64::from(byte) == words[1] => store_at(words[0]),
            _ => 1,
        },
        STORE_AT => store_at(words[0]),
        COUNT_AND_YIELD => loop {
            count();
            let _ = call::yield_to(EnvId(words[0] as u32));
        },
        KEEP_AND_YIELD => keep_and_yield(EnvId(words[0] as u32)),
        SLEEP_UNTIL_WORD => sleep_until_word(words[0], words[1]),
        ECHO_POSTS => echo_posts(EnvId(words[0] as u32), words[1]),
        SERVE => serve::run(words[0], words[1]),
        REGISTER_MIRROR => mirror::serve(),
        ACCEPT_ASYNC_AND_SPIN => mirror::accept_async(),
        ASK => match call::transfer(EnvId(words[0] as u32), [words[1], 0, 0, 0, 0, 0]) {
            Ok(reply) => reply[0],
            Err((error, _)) => error as u64,
        },
        HOLD_SELF => loop {
            let _ = call::env_hold(OWN, EnvId::NONE);
        },
        FAULT_WITHOUT_HANDLER => fault_without_handler(),
        HOLD_REGIONS => hold_regions(),
        FUZZ => fuzz(words[0], words[1]),
        BREAK_COPY_ON_WRITE => break_copy_on_write(words[0], words[1] as u32),
        COUNT_IN_REGION => count_in_turn(RegionId(words[0]), 1, words[1]),
        HOG => loop {
            // Long stretches without a jump: an emulator is quick with those.
            core::hint::black_box(core::array::from_fn::<usize, 64, _>(core::hint::black_box));
        },
        DAWDLE => dawdle(words[0]),
        WORK_IN_SECTIONS => events::work_in_sections(words[0]),
        STAY_IN_SECTION => events::stay_in_section(),
        READ_QUEUE => events::read_queue(words[0] as u32),
        SEE_ENDS => ending::see_ends(words[0]),
        KEEP_VECTORS => vectors::keep(EnvId(words[0] as u32), words[1]),
        DO_WITHOUT_VECTORS => vectors::do_without(EnvId(words[0] as u32)),
        FAULT_WITHOUT_PAGE => missing::fault_without(words[0]),
        clients::TRASH => clients::trash(),
        clients::ASK_OFTEN => clients::ask_often(EnvId(words[0] as u32), words[1], words[2]),
        clients::CALL_AND_COMPARE => clients::call_and_compare(words[0], words[1] == 1),
        stream::ECHO => stream::echo(EnvId(words[0] as u32), words[1]),
        stream::SUM => stream::sum(EnvId(words[0] as u32), words[1], words[2]),
        stream::GARBAGE => stream::garbage(EnvId(words[0] as u32), words[1], words[2]),
        waits::WAIT => waits::wait(words[0], words[1], words[2]),
        ledger::LEDGER => ledger::run(),
        holder::ENTER_TOKEN => holder::enter_token(words[0] as usize, words[1] as u32),
        holder::MAP_UNTIL_RETRACTED => holder::map_until_retracted(words[0] as u32),
        region::READ_A_REGION => {
            region::read_a_region(RegionId(words[0]), words[1] as u32, words[2] as u8)
        }
        holder::BEHAVE_AS_OWNER => holder::behave_as_owner(words[0] as u32),
        compiled::SLEEP_OVER_STRUCTURES => {
            compiled::sleep_over_structures(RegionId(words[0]), words[1])
        }
        JUMP_TO => faults::jump(words[0]),
        CALL_METHOD_FOR_EVER => loop {
            let _ = call::method_call(RegionId(words[0]), 0, 0, [0; 3]);
        },
        method::ENTER_NAMES => method::enter_names(RegionId(words[0]), words[1], words[2]),
        _ => 0xbad,
    }
}

/// Makes word 0 of a region one more whenever it is even (`first` 0) or odd (1), so many times;
/// waits for that inside the operation. How often it did so before two seconds passed in vain.
pub fn count_in_turn(region: RegionId, first: u64, rounds: u64) -> u64 {
    for round in 0..rounds {
        let value = 2 * round + first;
        let mut wait = RegionWait {
            operation: RegionOperation {
                region: region.0,
                compares: 1,
                writes: 1,
                ..RegionOperation::default()
            },
            unchanged: WordAt { offset: 0, value: value.wrapping_sub(1) },
            peer: NO_ROLE,
        };
        wait.operation.compare[0] = WordAt { offset: 0, value };
        wait.operation.write[0] = WordAt { offset: 0, value: value + 1 };
        if call::region_await(&wait, now_ns() + 2_000_000_000, 0, 0).is_err() {
            return round;
        }
    }
    rounds
}

fn put(offset: u64, value: u64) {
    for (at, byte) in value.to_le_bytes().iter().enumerate() {
        faults::store(APPLICATION_PAGE + offset + at as u64, *byte);
    }
}

fn keep_and_yield(to: EnvId) -> u64 {
    for seed in 1.. {
        count();
        match mirror::across_yield(to, seed) {
            Some(0) => {}
            Some(wrong) => return wrong,
            // It sleeps.
            None => drop(call::yield_to(EnvId::NONE)),
        }
    }
    u64::MAX
}

/// Adds one to the first word of the application page.
pub fn count() {
    let page = xok::published::application_word(own_index(), 0).unwrap_or(0);
    mirror::set_application_word(page + 1);
}

/// The index of one's own environment: the one whose application page shows what is put into it.
pub fn own_index() -> usize {
    static INDEX: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
    let known = INDEX.load(core::sync::atomic::Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let secret = xok::clock::tsc() | 1;
    put(0xff8, secret);
    let count = xok::published::table(abi::published::Table::ApplicationPages).count as usize;
    let found = (1..count)
        .find(|&index| {
            let live = xok::published::record::<abi::published::EnvRecord>(
                abi::published::Table::Envs,
                index,
            )
            .is_some_and(|record| record.id != 0);
            live && xok::published::application_word(index, 0xff8) == Some(secret)
        })
        .unwrap_or(0);
    INDEX.store(found, core::sync::atomic::Ordering::Relaxed);
    found
}

fn spin(counting: u64) -> u64 {
    loop {
        if counting == 1 {
            count();
        }
        core::hint::spin_loop();
    }
}

fn dawdle(slices: u64) -> u64 {
    let mut ends = 0;
    loop {
        if faults::seen().event_bits & EVENT_SLICE_END == 0 {
            continue;
        }
        faults::forget_bits();
        ends += 1;
        if ends == 2 {
            let late = slices.saturating_mul(SLICE_NS).saturating_add(SLICE_NS / 2);
            let until = now_ns().saturating_add(late);
            while now_ns() < until {}
        }
        let _ = call::yield_to(EnvId::NONE);
    }
}

fn store_at(address: u64) -> u64 {
    if faults::store(address, 0xee) { 2 } else { STORE_FAULTED }
}

pub const SPOT: u64 = 0x0000_3000_0000_0000;

fn map_foreign(frame: u32) -> u64 {
    let mut space = xok::memory::Space::own();
    if space.tables_to(SPOT, 1).is_err() {
        return 1;
    }
    for (bit, choice) in [(2, DATA), (4, NO_EXECUTE)] {
        let change = item(Operation::Map, 1, SPOT, frame, choice);
        let answer = call::table_update(OWN, DomainId::NONE, &[change]);
        if !matches!(answer, Err((Error::NotPermitted, _))) {
            return bit;
        }
    }
    let take = item(Operation::Allocate, 1, SPOT, frame, DATA);
    if !matches!(call::table_update(OWN, DomainId::NONE, &[take]), Err((Error::Taken, _))) {
        return 8;
    }
    if faults::load(SPOT).is_some() { 16 } else { MAP_FOREIGN_REFUSED }
}

fn read_until_fault(address: u64) -> u64 {
    let mut loads = 0;
    while faults::load(address).is_some() {
        loads += 1;
        mirror::set_application_word(loads);
    }
    loads
}

fn sleep_until_word(address: u64, value: u64) -> u64 {
    let atom = abi::predicate::Atom {
        operator: abi::predicate::Operator::Equal as u8,
        left: abi::predicate::Source::Memory as u8,
        last: 1,
        left_value: address,
        right_value: value,
        ..Default::default()
    };
    if let Err((error, _)) = call::predicate_set(&[atom]) {
        return 0x100 | error as u64;
    }
    mirror::set_application_word(1);
    match call::sleep(0, 0, 0, 0) {
        Ok(why) => why,
        Err((error, _)) => 0x200 | error as u64,
    }
}

fn echo_posts(to: EnvId, rounds: u64) -> u64 {
    xok::upcall::set_mask(true);
    mirror::set_application_word(1);
    for round in 0..rounds {
        while xok::upcall::take_pending() & 2 == 0 {
            if call::sleep(now_ns() + 4_000_000_000, 2, 0, 0).is_err() {
                return round;
            }
        }
        // Slot 1: control over the one who started us.
        if call::post(1, to, 4).is_err() {
            return round;
        }
    }
    rounds
}

fn touch(address: u64) -> u64 {
    xok::upcall::set_mask(true);
    loop {
        if xok::upcall::take_pending() & 1 != 0 {
            faults::load(address);
            count();
        }
        let _ = call::sleep(0, 1, 0, 0);
    }
}

fn fault_without_handler() -> u64 {
    let none = EnvSetup::default();
    let _ = call::env_set(OWN, EnvId::NONE, field::FAULT_ENTRY | field::EVENT_ENTRY, &none);
    faults::illegal();
    3
}

fn hold_regions() -> u64 {
    let mut made = 0;
    for pages in [0_usize, 1, 4] {
        let frames = [ANY_FRAME; 4];
        if let Ok(region) = call::region_alloc(OWN, &frames[..pages])
            && call::region_attach(OWN, region, 0, DomainId::NONE).is_ok()
            && call::region_attach(OWN, region, 1, DomainId::NONE).is_ok()
        {
            made += 1;
        }
    }
    if made != 3 {
        return made;
    }
    loop {
        let _ = call::sleep(0, 0, 0, 0);
    }
}

fn break_copy_on_write(address: u64, frame: u32) -> u64 {
    if faults::load(address) != Some(9) || faults::store(address, 1) {
        return 1;
    }
    let elsewhere = SPOT;
    let mut space = xok::memory::Space::own();
    if space.tables_to(elsewhere, 1).is_err() {
        return 2;
    }
    let tries = [
        item(Operation::Protect, 1, address, 0, WRITABLE | NO_EXECUTE),
        item(Operation::Map, 1, elsewhere, frame, DATA),
        item(Operation::Map, 1, address, frame, DATA),
    ];
    for (number, change) in tries.iter().enumerate() {
        if call::table_update(OWN, DomainId::NONE, core::slice::from_ref(change)).is_ok() {
            return 0x10 + number as u64;
        }
    }
    if call::frame_revoke(OWN, abi::id::Frame(frame)).is_ok() {
        return 3;
    }
    if call::region_alloc(OWN, &[frame]).is_ok() {
        return 4;
    }
    if faults::store(address, 1) { 5 } else { BREAK_REFUSED }
}

impl Random {
    /// An argument that means something now and then.
    fn word(&mut self, place: u64) -> u64 {
        let random = self.next();
        match random % 12 {
            0 => 0,
            1 => 1,
            2 => random >> 60,
            3 => random >> 52,
            4 => u64::from(u32::MAX),
            5 => random,
            6 => super::fuzz::WILD[(random >> 8) as usize % super::fuzz::WILD.len()],
            7 => place,
            8 => place + (random >> 20) % 4096,
            9 => SPOT + ((random >> 20) % 64) * 4096,
            10 => 1 << (random >> 58),
            _ => (random >> 40) & 0x3fff_ffff,
        }
    }
}

fn fuzz(seed: u64, end: u64) -> u64 {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut place = [0_u64; 512];
    let mut calls = 0;
    while now_ns() < end {
        for _ in 0..8 {
            let at = (random.next() % 512) as usize;
            let address = place.as_ptr() as u64;
            place[at] = random.word(address);
        }
        let address = place.as_ptr() as u64;
        let number = random.next() % 45;
        let mut words = [0; 6];
        for word in &mut words {
            *word = random.word(address);
        }
        if number == u64::from(abi::call::number::Sleep) {
            words[0] = now_ns() + 100_000;
        }
        // Its own end would only shorten the run; others' ends are tried.
        if number == u64::from(abi::call::number::EnvDestroy) && words[0] == 0 {
            continue;
        }
        let capability = random.next() % 20;
        let target = random.next() % 40;
        mirror::wild(number | capability << 16 | target << 32, words);
        calls += 1;
        mirror::set_application_word(calls);
    }
    calls
}
