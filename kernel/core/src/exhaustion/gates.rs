//! Three environments that transfer and yield to each other: by entry code, and the long way.
//!
//! Entry code changes gates alone; `gate::fold` works out from them what has been. In every state
//! the two sides, one of which has no fast path, must agree to the register.

use crate::index::EnvIndex;

use super::{Ground, exhaust, world};
use crate::env::Pending;
use crate::gate;
use crate::index::CpuIndex;
use crate::tests::gates::Side;
use abi::call::{Call, SLEEP_ACCEPT, TRANSFER_REPLY, TRANSFER_SHIFT, TRANSFER_WAIT, number};
use abi::published::EnvState;
use abi::upcall::offset;
use std::vec;
use std::vec::Vec;

const ENVS: [usize; 3] = [1, 2, 3];
/// Steps within which everything has come home: more are a deadlock.
const HOME: usize = 40;
/// What wakes those that sleep here; the event that [`Side::event`] sends.
const ACCEPT: Call = Call::Sleep { deadline: 0, posted: 1, events: 2, flags: SLEEP_ACCEPT };

#[derive(Clone, Copy, Debug)]
enum Move {
    /// A call, or the reply if the target waits for one.
    Transfer {
        to: usize,
        accept: bool,
    },
    /// A call that waits until the target accepts it.
    Wait {
        to: usize,
    },
    Yield {
        to: usize,
    },
    Accept,
    Event {
        to: usize,
    },
    /// The kernel is entered for something else.
    Enter,
}

struct Gates {
    /// The long way, and by entry code.
    sides: [Side; 2],
}

impl Gates {
    fn new() -> Self {
        let mut sides = [false, true].map(|fast| Side::of(world(), ENVS.len(), fast));
        // On several processors a busy server that refuses a call notes who asks, until the next.
        sides.iter_mut().for_each(|side| side.world.state.sched.online = 1);
        Self { sides }
    }

    fn is(&self, index: usize, state: EnvState) -> bool {
        self.sides[0].world.state.envs.slots[EnvIndex::new(index)].state == state
    }

    /// The one that waits for a reply of the one that runs.
    fn donor(&self) -> Option<usize> {
        let Side { world, runs, .. } = &self.sides[0];
        let own = world.id(*runs).0;
        let waits = |&at: &usize| world.state.published.envs[at].donated_to == own;
        ENVS.into_iter().filter(waits).find(|&at| !self.is_kept_off(at))
    }

    /// Does it wait until a server accepts?
    fn is_kept_off(&self, index: usize) -> bool {
        let env = &self.sides[0].world.state.envs.slots[EnvIndex::new(index)];
        env.pending == Pending::Busy
    }
}

impl Gates {
    /// Makes a move on both sides. Which of two that are ready runs behind one that sleeps is not
    /// said here: entry code leaves the order of turns as it is.
    fn make_both(&mut self, step: Move) {
        let runs = self.sides[0].runs;
        for side in &mut self.sides {
            // As `syscall` leaves them.
            (side.live.rcx, side.live.r11) = (side.live.rip, side.live.rflags);
            match step {
                Move::Event { to } => side.event(to),
                _ if runs == 0 => {}
                Move::Transfer { to, accept } => {
                    let word = u64::from(number::TransferSync)
                        | if accept { TRANSFER_REPLY } else { 0 }
                        | u64::from(side.world.id(to).0) << TRANSFER_SHIFT;
                    side.transfer(word);
                }
                Move::Wait { to } => {
                    let word = u64::from(number::TransferSync)
                        | TRANSFER_WAIT
                        | u64::from(side.world.id(to).0) << TRANSFER_SHIFT;
                    side.transfer(word);
                }
                Move::Yield { to } => {
                    let to = side.world.id(to);
                    side.yield_to(to);
                }
                Move::Accept => side.call(ACCEPT),
                Move::Enter => side.call(Call::TimerSet { deadline: 0 }),
            }
        }
    }

    fn ready(&self) -> impl Iterator<Item = usize> {
        ENVS.into_iter().filter(|&at| self.is(at, EnvState::Ready))
    }

    fn forget_events(&mut self) {
        for index in ENVS {
            for side in &mut self.sides {
                for at in [offset::PENDING, offset::EVENTS, offset::MASK, offset::DEPTH] {
                    side.world.save(index, at, 0);
                }
            }
        }
    }

    /// Until the first runs and the others accept.
    fn go_home(&mut self) {
        for _ in 0..HOME {
            self.forget_events();
            if self.sides[0].runs != self.sides[1].runs {
                // The order of turns is another on each side: anew, with one order.
                let taken = self.sides[1].taken;
                *self = Self::new();
                self.sides[1].taken = taken;
            }
            let runs = self.sides[0].runs;
            let home = ENVS[1..].iter().all(|&at| self.is(at, EnvState::Sleeping));
            if runs == 1 && home && self.donor().is_none() {
                return;
            }
            let ready = self.ready().next();
            let envs = &self.sides[0].world.state.envs.slots;
            let sleep = ENVS.into_iter().filter(|&at| self.is(at, EnvState::Sleeping));
            // One that another waits for, else the first.
            let sleeps = sleep.min_by_key(|&at| (envs[EnvIndex::new(at)].donors == 0, at));
            self.make_both(match (runs, self.donor(), ready) {
                (1.., Some(to), _) => Move::Transfer { to, accept: runs != 1 },
                (1.., None, _) if ENVS.into_iter().any(|at| self.is_kept_off(at)) => Move::Accept,
                (1, None, Some(to)) => Move::Yield { to },
                (2.., None, _) => Move::Accept,
                _ => Move::Event { to: sleeps.expect("all wait for each other") },
            });
        }
        panic!("not at home after {HOME} moves");
    }
}

impl Ground for Gates {
    type Move = Move;

    fn moves(&self) -> Vec<Move> {
        let mut all = vec![Move::Accept, Move::Enter];
        for to in ENVS {
            all.extend([true, false].map(|accept| Move::Transfer { to, accept }));
            all.extend([Move::Yield { to }, Move::Event { to }, Move::Wait { to }]);
        }
        all
    }

    fn make(&mut self, step: Move) {
        let kept_off = ENVS.into_iter().filter(|&at| self.is_kept_off(at));
        if !matches!(step, Move::Accept) || self.ready().chain(kept_off).count() < 2 {
            self.make_both(step);
        }
        assert_eq!(self.sides[0].runs, self.sides[1].runs);
    }

    fn key(&self) -> Vec<u64> {
        let Side { world, runs, .. } = &self.sides[1];
        let state = &world.state;
        let mut key = vec![*runs as u64, state.open.into(), state.settled.into()];
        let of_name = |word: u32, name: fn(abi::id::EnvId) -> u32| {
            let named = ENVS.into_iter().find(|&at| name(world.id(at)) == word);
            named.map_or(u64::from(word), |at| 100 + at as u64)
        };
        key.extend(state.sched.cpus[CpuIndex::new(0)].awaits.map(u64::from));
        for index in ENVS {
            let env = &state.envs.slots[EnvIndex::new(index)];
            let gate::Gate { serves, called_as, turns, yields } = env.gate;
            key.extend([of_name(serves, gate::reply_name), of_name(called_as, |id| id.0)]);
            key.extend([u64::from(turns != 0), u64::from(yields != 0), env.state as u64]);
            let sleeps = u64::from(env.state == EnvState::Sleeping) * u64::MAX;
            key.extend([env.pending as u64, env.donors.into(), env.posted & sleeps]);
            key.push(env.events & sleeps);
            key.push(env.is_waited_for().into());
            let client = crate::loan::client_of(state, EnvIndex::new(index));
            key.push(client.map_or(0, |at| at.at() as u64));
            let waits_for = state.published.envs[index].donated_to;
            key.push(ENVS.into_iter().find(|&at| world.id(at).0 == waits_for).unwrap_or(0) as u64);
            let saved = [offset::PENDING, offset::EVENTS, offset::MASK, offset::ACCEPTING];
            key.extend(saved.map(|at| world.saved(index, at)));
        }
        key
    }

    fn check(&mut self) {
        let [long, fast] = self.sides.each_mut().map(|side| {
            side.enter();
            side.digest()
        });
        long.lines().zip(fast.lines()).for_each(|(long, fast)| assert_eq!(long, fast));
        self.sides.iter_mut().for_each(Side::leave);
    }

    fn clear(&mut self) {
        self.go_home();
        // Each accepts anew, for the same reasons and with its gates closed.
        for to in [3, 2] {
            self.make(Move::Event { to });
            self.make(Move::Yield { to });
            self.forget_events();
            self.make(Move::Accept);
        }
        self.go_home();
    }
}

#[test]
fn transfers_and_yields_both_ways() {
    let mut gates = Gates::new();
    exhaust(&mut gates, 11_557);
    let taken = gates.sides[1].taken;
    assert!(taken.iter().all(|&times| times > 30), "calls, replies, yields: {taken:?}");
}
