//! Environments that hand on what they have of a slice, and beyond its end, in a ring.

use super::{Beside, LEAST_SHARE, WINDOW, beside, spin};
use crate::{Seen, expect, libc};
use abi::call::Call;
use abi::id::{AccountId, DomainId, EnvId};
use abi::limits::SLICE_NS;
use abi::setup::{EnvSetup, FLAG_SLICE_END, field};
use abi::word::{UserAddress, Which};
use std::sync::atomic::{AtomicU64, Ordering};
use xok::clock::now_ns;

/// Environments in the ring.
const RING: usize = 3;
/// How long each has the processor before it hands it on.
const HOLD_NS: u64 = 3_000_000;
/// Between two looks at the clock: the processor was another one's, and not just the host busy.
const AWAY_NS: u64 = SLICE_NS / 2;
/// How long the ring goes on: where nothing else ends its turn, the test shall still end.
const LASTS_NS: u64 = 5 * WINDOW.as_nanos() as u64;
/// How often they are to hand it on in the window: two or three times in each of their slices, of
/// which there are some 75; on a busy host half as often.
const HANDED: u64 = 40;
const STACK_PAGES: usize = 4;

/// One of the ring.
struct Member {
    door: door::Door,
    /// To which it hands on. None: it yields to any, and returns at the end.
    next: EnvId,
    /// When it ceases to hand on.
    ends_ns: u64,
    /// How often the ring has handed on.
    handed: &'static AtomicU64,
}

/// What a member does all the time.
extern "C" fn hand_on(member: &Member) {
    let mut since = now_ns();
    let mut last = since;
    while last < member.ends_ns {
        let now = now_ns();
        if now - last > AWAY_NS {
            since = now;
        }
        last = now;
        if now - since < HOLD_NS {
            continue;
        }
        if libc::kernel(member.door, Call::Yield { to: member.next }).is_ok() {
            member.handed.fetch_add(1, Ordering::Relaxed);
        }
        since = now_ns();
        last = since;
    }
    if member.next != EnvId::NONE {
        spin();
    }
}

/// Makes the ring in a domain of one's own; the status, if that fails.
fn make_ring(door: door::Door, handed: &'static AtomicU64) -> Result<(), i32> {
    // All that it touches is there afterwards: no member has a handler of faults.
    let ends_ns = now_ns() + 2 * HOLD_NS;
    hand_on(&Member { door, next: EnvId::NONE, ends_ns, handed });
    let mut ring = [EnvId::NONE; RING];
    for env in &mut ring {
        let (which, vector) = (Which::Any, Which::Any);
        let (domain, account) = (DomainId::NONE, AccountId::NONE);
        let make = Call::EnvAlloc { which, domain, account, vector };
        *env = EnvId(libc::kernel(door, make).map_err(|_| 101)? as u32);
    }
    let ends_ns = now_ns() + LASTS_NS;
    for (at, &env) in ring.iter().enumerate() {
        let next = ring[(at + 1) % RING];
        let member: &Member = Box::leak(Box::new(Member { door, next, ends_ns, handed }));
        let stack = libc::private(STACK_PAGES);
        libc::bytes(stack, STACK_PAGES * 4096).fill(1);
        let setup = EnvSetup {
            rip: hand_on as *const () as u64,
            // As a call leaves it.
            rsp: stack + STACK_PAGES as u64 * 4096 - 8,
            argument: &raw const *member as u64,
            flags: FLAG_SLICE_END,
            ..EnvSetup::default()
        };
        let fields = field::RIP | field::RSP | field::ARGUMENT | field::FLAGS;
        let setup = UserAddress(&raw const setup as u64);
        libc::kernel(door, Call::EnvSet { env, fields, setup }).map_err(|_| 102)?;
    }
    for env in ring {
        libc::kernel(door, Call::EnvRelease { env }).map_err(|_| 103)?;
    }
    Ok(())
}

/// Two users have a processor each half, also if one's environments hand on to each other what
/// they have, and each of them may put the end of a slice off. The processor is not theirs for
/// good: the watch, of user 0, ends in time.
pub fn cost_others_nothing(door: door::Door) -> Seen {
    let count = &libc::words(libc::shared(1), 1)[0];
    let mut handed = 0;
    let watch = || {
        let before = count.load(Ordering::Relaxed);
        std::thread::sleep(WINDOW);
        handed = count.load(Ordering::Relaxed) - before;
    };
    let Beside { share, took } = beside(|| make_ring(door, count), watch)?;
    let seen = format!("{share} % of the time for the other user, handed on {handed} times");
    expect(took < 3 * WINDOW, || format!("{seen}, the watch took {took:?}"))?;
    expect(handed >= HANDED, || seen.clone())?;
    expect(share >= LEAST_SHARE, || seen.clone())?;
    Ok(format!("({seen})"))
}
