//! Many environments in one space that wait, each for something else, until they are destroyed.
//!
//! # Safety
//! Prepares each one's save area while nobody else refers to it, and enters Rust code on a stack
//! of its own.
#![allow(unsafe_code)]

use abi::call::SLEEP_ACCEPT;
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId};
use abi::layout::PAGE_SIZE;
use abi::limits::PREDICATE_ATOMS;
use abi::predicate::{Atom, Operator, Source};
use abi::published::{EnvState, Table};
use abi::setup::{EnvSetup, FLAG_BORROW, field};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use xok::call::{self, Message, OWN, Refused};
use xok::memory::{DATA, Space};
use xok::published;
use xok::server::Serve;
use xok::upcall::{Beginning, Slot};

/// Asleep on a predicate that does not hold.
pub const ON_A_PREDICATE: u64 = 0;
/// Waiting for the reply to a transfer.
pub const IN_A_TRANSFER: u64 = 1;
/// Asleep until a bit is posted.
pub const ON_A_NOTIFICATION: u64 = 2;

/// Asleep on a predicate of the most comparisons, with the published record of who gathers them and
/// with the clock.
pub const ON_DEAR_PREDICATES: u64 = 3;

/// Never run: as many as there is room for, but for so many frames as the third word says.
pub const NEVER_RUN: u64 = 4;

/// Makes environments and dies: as many as its first word says have ended by then, as many as its
/// second have never run. How many it has made.
pub const LEAVE_RECORDS: u64 = 68;

/// Where the first one's save area is, its stack behind; the next ones' [`BYTES`] further each.
const FIRST: u64 = 0x7100_0000_0000;
const BYTES: u64 = 2 * PAGE_SIZE;
/// The stack that a server needs, in pages.
const SERVER_PAGES: u64 = 4;

/// Whom those that wait for a reply have called.
static SERVER: AtomicU32 = AtomicU32::new(0);

/// See [`LEAVE_RECORDS`].
pub fn leave_records(ended: u64, never: u64) -> u64 {
    for made in 0..ended + never {
        let env = call::env_alloc(OWN, DomainId::NONE, AccountId::NONE);
        let destroyed = env.and_then(|env| {
            if made < ended { call::env_destroy(OWN, env, 0).map(|_| ()) } else { Ok(()) }
        });
        if destroyed.is_err() {
            return made;
        }
    }
    ended + never
}

/// What those with dear predicates sleep until, at the latest.
static EDGE: AtomicU64 = AtomicU64::new(0);
/// Where the record is that they watch.
static WATCHED: AtomicU64 = AtomicU64::new(0);

/// Makes so many that wait for `what`, until `edge` if that is a time, says so, and sleeps.
pub fn gather(what: u64, count: u64, edge: u64) -> u64 {
    EDGE.store(edge, Ordering::Relaxed);
    let table = published::table(Table::Envs);
    let own = table.address + u64::from(table.stride) * super::own_index() as u64;
    WATCHED.store(own, Ordering::Relaxed);
    match make(what, count) {
        Ok(()) => super::count(),
        Err((error, value)) => return (error as u64) << 32 | value & 0xffff_ffff,
    }
    loop {
        let _ = call::sleep(0, 0, 0, 0);
    }
}

fn make(what: u64, count: u64) -> Result<(), Refused> {
    if what == NEVER_RUN {
        let spare = EDGE.load(Ordering::Relaxed);
        while published::directory().frames_free > spare {
            match call::env_alloc(OWN, DomainId::NONE, AccountId::NONE) {
                Ok(_) => {}
                Err((Error::Exhausted, _)) => break,
                Err(why) => return Err(why),
            }
        }
        return Ok(());
    }
    let (entry, state): (extern "C" fn() -> !, _) = match what {
        ON_A_PREDICATE => (predicate, EnvState::Sleeping),
        ON_DEAR_PREDICATES => (dear_predicate, EnvState::Sleeping),
        IN_A_TRANSFER => {
            let place = FIRST - SERVER_PAGES * PAGE_SIZE;
            let server = start(place, SERVER_PAGES * PAGE_SIZE, serve)?;
            come_to(server, EnvState::Sleeping)?;
            SERVER.store(server.0, Ordering::Relaxed);
            (transfer, EnvState::Donating)
        }
        _ => (notification, EnvState::Sleeping),
    };
    for number in 0..count {
        let env = start(FIRST + number * BYTES, BYTES, entry)?;
        come_to(env, state)?;
    }
    Ok(())
}

/// Gives it what is left of our slices until it waits.
fn come_to(env: EnvId, state: EnvState) -> Result<(), Refused> {
    while published::env(env).is_some_and(|env| env.state != state as u32) {
        call::yield_to(env)?;
    }
    Ok(())
}

fn start(save_area: u64, bytes: u64, entry: extern "C" fn() -> !) -> Result<EnvId, Refused> {
    Space::own().allocate_zeroed(save_area, bytes / PAGE_SIZE, DATA)?;
    let top = save_area + bytes;
    // No event comes to who is masked.
    let beginning =
        Beginning { save_area, stacks: [top; 4], handler: ignore, trivial: &[], sample: 0 };
    // SAFETY: the page was mapped above, zeroed, and is known to nobody yet.
    unsafe { xok::upcall::prepare(save_area, &beginning) };
    let env = call::env_alloc(OWN, DomainId::NONE, AccountId::NONE)?;
    let setup = EnvSetup {
        rip: entry as *const () as u64,
        // As after a call, which pushes a return address.
        rsp: top - 8,
        gs_base: save_area,
        flags: FLAG_BORROW,
        save_area,
        ..EnvSetup::default()
    };
    let fields = field::RIP | field::RSP | field::GS_BASE | field::FLAGS | field::SAVE_AREA;
    call::env_set(OWN, env, fields, &setup)?;
    call::env_release(OWN, env)?;
    Ok(env)
}

/// Sleeps until the clock is zero.
extern "C" fn predicate() -> ! {
    let never = Atom {
        operator: Operator::Equal as u8,
        left: Source::Clock as u8,
        right: Source::Constant as u8,
        last: 1,
        ..Atom::default()
    };
    loop {
        if call::predicate_set(&[never]).and_then(|_| call::sleep(0, 0, 0, 0)).is_err() {
            call::exit(1);
        }
    }
}

/// Sleeps until the edge, then for ever; looks at the record in each comparison but the last.
extern "C" fn dear_predicate() -> ! {
    let mut atoms = [Atom {
        operator: Operator::Below as u8,
        left: Source::Memory as u8,
        right: Source::Memory as u8,
        last: 1,
        left_value: WATCHED.load(Ordering::Relaxed),
        right_value: WATCHED.load(Ordering::Relaxed),
        ..Atom::default()
    }; PREDICATE_ATOMS];
    atoms[PREDICATE_ATOMS - 1] = Atom {
        operator: Operator::AtLeast as u8,
        left: Source::Clock as u8,
        right: Source::Constant as u8,
        last: 1,
        right_value: EDGE.load(Ordering::Relaxed),
        ..Atom::default()
    };
    loop {
        if call::predicate_set(&atoms).and_then(|_| call::sleep(0, 0, 0, 0)).is_err() {
            call::exit(1);
        }
        atoms[PREDICATE_ATOMS - 1].right_value = u64::MAX;
    }
}

extern "C" fn transfer() -> ! {
    loop {
        // Who has just been called is not there at once.
        let _ = call::transfer(EnvId(SERVER.load(Ordering::Relaxed)), [0; 6]);
    }
}

extern "C" fn notification() -> ! {
    loop {
        let _ = call::sleep(0, 1, 0, 0);
    }
}

/// Answers nobody: it accepts the next one instead.
struct Silent;

impl Serve for Silent {
    fn request(&mut self, _: EnvId, _: &mut Message) {
        loop {
            let _ = call::sleep(0, 0, 0, SLEEP_ACCEPT);
        }
    }

    fn events(&mut self) -> u64 {
        0
    }
}

extern "C" fn serve() -> ! {
    xok::server::run(Box::leak(Box::new(Silent)))
}

extern "C" fn ignore(slot: &mut Slot, _cause: u64, _address: u64) {
    slot.mask = 1;
}
