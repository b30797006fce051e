//! What waits in the kernel: killed, robbed of what it waits for, timed out; and it takes no time.

use super::roles::{self, waits};
use super::sched::until;
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::error::Error;
use abi::id::{DomainId, EnvId, Frame, RegionId};
use abi::memory::NO_EXECUTE;
use abi::published::EnvState;
use abi::region::{COPY_IN, RegionOperation};
use abi::upcall::woken;
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN, Refused};
use xok::clock::now_ns;
use xok::memory::{DATA, Space};
use xok::published;
use xok::spawn::Spawned;

/// What the killer says.
const KILLED: u64 = 0x77;
/// How long the waits last that time out, nanoseconds.
const SHORT: u64 = 30_000_000;
/// A word of the regions that no wait is for.
const UNAWAITED: u64 = 48;
/// How long is looked whether somebody runs, nanoseconds.
const LOOK: u64 = 60_000_000;

fn refused(why: Refused) -> Failure {
    format!("{why:?}")
}

/// The ways of waiting: what for, the state that it shows, how it ends when what is waited for
/// breaks, and by a time-out, if it can have one.
const WAYS: [(u64, EnvState, u64, Option<u64>); 5] = [
    (
        waits::PREDICATE,
        EnvState::Sleeping,
        waits::answered(woken::PREDICATE),
        Some(waits::refused(Error::TimedOut)),
    ),
    (
        waits::ACCEPT,
        EnvState::Sleeping,
        waits::answered(woken::PREDICATE),
        Some(waits::refused(Error::TimedOut)),
    ),
    (
        waits::AWAIT,
        EnvState::Sleeping,
        waits::refused(Error::Changed),
        Some(waits::refused(Error::TimedOut)),
    ),
    (
        waits::STEP,
        EnvState::Sleeping,
        waits::refused(Error::Changed),
        Some(waits::refused(Error::WouldBlock)),
    ),
    // Who waits for a reply has no deadline of its own: the callee has its slices.
    (waits::REPLY, EnvState::Donating, waits::refused(Error::Dead), None),
];

/// Something that waits, and what it waits for.
struct Waiter {
    child: Spawned,
    frame: Option<Frame>,
    region: Option<RegionId>,
    server: Option<EnvId>,
}

impl Waiter {
    fn start(ground: &Ground, way: u64, deadline: u64) -> Result<Waiter, Failure> {
        let (mut frame, mut region, mut server) = (None, None, None);
        let what = match way {
            waits::PREDICATE | waits::ACCEPT => {
                Space::own().allocate_zeroed(SCRATCH, 1, DATA).map_err(refused)?;
                frame = xok::own::frame(SCRATCH);
                SCRATCH
            }
            waits::AWAIT | waits::STEP => {
                let id = call::region_alloc(OWN, &[]).map_err(refused)?;
                let role = u16::from(waits::PEER_ROLE);
                call::region_attach(OWN, id, role, DomainId::NONE).map_err(refused)?;
                region = Some(id);
                id.0
            }
            _ => {
                let words = [roles::SERVE_SLOWLY, 0, 0, 0, 0, 0];
                let slow = assistant::spawn(ground.image, roles::SERVE, words, &[])?;
                assistant::start(slow)?;
                until(|| super::sched::counter(slow.env) == 1, "the server to be ready")?;
                let ready = || call::transfer(slow.env, [0; 6]).is_ok();
                until(ready, "the server to accept")?;
                server = Some(slow.env);
                slow.env.0.into()
            }
        };
        let words = [way, deadline, what, 0, 0, 0];
        let child = assistant::spawn(ground.image, waits::WAIT, words, &[])?;
        if let Some(frame) = frame {
            Space::of(child.domain, OWN).map(SCRATCH, frame, 1, NO_EXECUTE).map_err(refused)?;
        }
        if let Some(region) = region {
            let role = u16::from(waits::OWN_ROLE);
            call::region_attach(OWN, region, role, child.domain).map_err(refused)?;
        }
        assistant::start(child)?;
        Ok(Waiter { child, frame, region, server })
    }

    fn state(&self) -> Option<u32> {
        published::env(self.child.env).map(|record| record.state)
    }

    /// Takes away what it waits for.
    fn rob(&mut self) -> Result<(), Failure> {
        if let Some(frame) = self.frame {
            call::frame_revoke(OWN, frame).map_err(refused)?;
        }
        if let Some(region) = self.region.take() {
            call::region_detach(region, waits::PEER_ROLE.into()).map_err(refused)?;
        }
        self.end_server()
    }

    fn end_server(&mut self) -> Result<(), Failure> {
        if let Some(server) = self.server.take() {
            call::env_destroy(OWN, server, 0).map_err(refused)?;
            assistant::wait(server)?;
        }
        Ok(())
    }

    /// Gives back what is ours; what it left.
    fn end(mut self) -> Result<u64, Failure> {
        let word = assistant::wait(self.child.env)?;
        if let Some(region) = self.region {
            call::region_detach(region, waits::PEER_ROLE.into()).map_err(refused)?;
        }
        if self.frame.is_some() {
            Space::own().unmap(SCRATCH, 1).map_err(refused)?;
        }
        self.end_server()?;
        Ok(word)
    }
}

/// l4stack 20: in each way of waiting one is killed, one loses what it waits for, one's time is up;
/// each ends as its call says, and leaves nothing (the judge compares the counts).
pub fn broken_in_every_way(ground: &Ground) -> Result<String, Failure> {
    let mut ends = 0;
    for (way, state, robbed, timed_out) in WAYS {
        let waiting = |waiter: &Waiter| {
            until(|| waiter.state() == Some(state as u32), &format!("way {way} to wait"))
        };
        let waiter = Waiter::start(ground, way, 0)?;
        waiting(&waiter)?;
        call::env_destroy(OWN, waiter.child.env, KILLED).map_err(refused)?;
        let word = waiter.end()?;
        expect!(word == KILLED, "way {way}, killed: it left {word:#x}");

        let mut waiter = Waiter::start(ground, way, 0)?;
        waiting(&waiter)?;
        waiter.rob()?;
        let word = waiter.end().map_err(|why| format!("way {way}, robbed: {why}"))?;
        expect!(word == robbed, "way {way}, robbed: it left {word:#x}, not {robbed:#x}");
        ends += 2;
        if let Some(timed_out) = timed_out {
            let waiter = Waiter::start(ground, way, now_ns() + SHORT)?;
            let word = waiter.end().map_err(|why| format!("way {way}, timed out: {why}"))?;
            expect!(word == timed_out, "way {way}, timed out: {word:#x}, not {timed_out:#x}");
            ends += 1;
        }
    }
    Ok(format!("({ends} ends of {} ways)", WAYS.len()))
}

/// l4stack 21: who waits does not run: no time, no switch, in any way of waiting.
pub fn blocked_use_no_time(ground: &Ground) -> Result<String, Failure> {
    for (way, state, ..) in WAYS {
        let waiter = Waiter::start(ground, way, 0)?;
        until(|| waiter.state() == Some(state as u32), &format!("way {way} to wait"))?;
        let spent = stands_still(waiter.child.env, waiter.region);
        call::env_destroy(OWN, waiter.child.env, KILLED).map_err(refused)?;
        waiter.end()?;
        spent.map_err(|why| format!("way {way}: {why}"))?;
    }
    let held = assistant::spawn(ground.image, roles::HOLD_SELF, [0; 6], &[])?;
    assistant::start(held)?;
    let state = || published::env(held.env).map(|record| record.state);
    until(|| state() == Some(EnvState::Held as u32), "one to be held")?;
    let spent = stands_still(held.env, None);
    call::env_destroy(OWN, held.env, 0).map_err(refused)?;
    assistant::wait(held.env)?;
    spent.map_err(|why| format!("held: {why}"))?;
    Ok(format!("({} ways, and held)", WAYS.len()))
}

/// Stores a word of the region that nobody waits for.
fn change(region: RegionId) -> Result<(), Failure> {
    let word = now_ns();
    let operation = RegionOperation {
        region: region.0,
        direction: COPY_IN,
        role: waits::PEER_ROLE,
        offset: UNAWAITED,
        address: (&raw const word) as u64,
        len: 8,
        ..RegionOperation::default()
    };
    call::region_operate(&operation).map(|_| ()).map_err(refused)
}

/// Looks at an environment's time and switches for a while, in which the region changes that it
/// waits for, but not the word.
fn stands_still(env: EnvId, region: Option<RegionId>) -> Result<(), Failure> {
    // The step into its wait is over once its state shows it.
    let look =
        || published::env(env).map(|record| (record.run_ns, record.switches, record.entries));
    let before = look();
    let _ = call::sleep(now_ns() + LOOK, 0, 0, 0);
    // Nor while others run, in whose turns it is asked whether it still waits.
    let end = now_ns() + LOOK;
    while now_ns() < end {
        let _ = call::yield_to(EnvId::NONE);
        if let Some(region) = region {
            change(region)?;
        }
    }
    let after = look();
    expect!(before.is_some() && before == after, "(ns, switches, entries): {before:?} {after:?}");
    Ok(())
}
