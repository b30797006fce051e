//! Two domains' lists, a token, and what is taken back: beside them what must come of it.
//!
//! The expectation is a list of its own, changed at once and without any bookkeeping: a capability
//! that has been taken back is gone from it, wherever the kernel has come with emptying lists.

use super::{Ground, exhaust, work, world};
use crate::dispatch::Outcome;
use crate::index::DomainIndex;
use crate::tests::{OK, ROOT, SCRATCH, World, error};
use crate::{capability, retract};
use abi::call::Call;
use abi::capability::{ALL, CONTROL, Capability, DERIVE, Name, WRITE};
use abi::error::Error;
use abi::id::{AccountId, DomainId};
use abi::limits::RESOURCES;
use abi::word::Which;
use std::vec;
use std::vec::Vec;

/// The slots that moves change, by domain.
const PLACES: [(usize, u8); 3] = [(1, 2), (SECOND, 2), (SECOND, 3)];
/// The second domain; an environment there makes calls, too.
const SECOND: usize = 2;
/// What names are extended by, and how long they get.
const COMPONENT: u16 = 9;
const LONGEST: u8 = 2;
const RIGHTS: [u8; 2] = [ALL, ALL & !WRITE];

#[derive(Clone, Copy, Debug)]
enum Move {
    /// `from`: 1 is the capability of everything that the first domain has.
    Derive {
        actor: usize,
        from: u8,
        to: (usize, u8),
        extend: u16,
        rights: u8,
    },
    Drop {
        actor: usize,
        slot: u8,
    },
    Retract {
        actor: usize,
        slot: u8,
        extend: u16,
    },
    Token {
        actor: usize,
        slot: u8,
    },
    Enter {
        actor: usize,
        slot: u8,
    },
    Domain,
    DomainDestroy,
    Work,
}

/// A token that somebody has written down.
#[derive(Clone, Copy)]
struct Told {
    words: [u64; 3],
    capability: Capability,
    is_good: bool,
}

struct Capabilities {
    world: World,
    start: (u32, [u32; RESOURCES], usize, usize, usize),
    /// The environment in the second domain.
    second: Option<usize>,
    expected: [Option<Capability>; PLACES.len()],
    token: Option<Told>,
}

fn place(domain: usize, slot: u8) -> Option<usize> {
    PLACES.iter().position(|&place| place == (domain, slot))
}

impl Capabilities {
    fn new() -> Self {
        let mut world = world();
        let start = world.census();
        Self { world, start, second: None, expected: [None; PLACES.len()], token: None }
    }

    fn second_domain(&self) -> DomainId {
        DomainId(self.world.state.published.domains[SECOND].id)
    }

    fn lives(&self) -> bool {
        crate::domain::find(&self.world.state, self.second_domain()).is_ok()
    }

    fn actor(&self, domain: usize) -> Option<usize> {
        if domain == 1 { Some(1) } else { self.second.filter(|_| self.lives()) }
    }

    fn held(&self, domain: usize, slot: u8) -> Option<Capability> {
        match place(domain, slot) {
            Some(place) => self.expected[place],
            None => Some(Capability { rights: ALL, zero: 0, name: Name::ROOT }),
        }
    }

    /// Is a name just now being taken back from that list?
    fn must_wait(&self, answer: Outcome) -> bool {
        answer == error(Error::WouldBlock, 0) && retract::under_way(&self.world.state)
    }

    fn forget(&mut self) {
        if let Some(index) = self.second.take() {
            let env = self.world.id(index);
            assert_eq!(self.world.by(1, Call::EnvForget { env }), OK);
        }
    }

    fn make_domain(&mut self) {
        let (which, account) = (Which::This(SECOND as u32), AccountId::NONE);
        let (root, window, bytes) = (Which::Any, 0, u64::MAX);
        let call = Call::DomainAlloc { which, account, root, window, bytes };
        let Outcome::Answer(0, id) = self.world.by(1, call) else { return };
        self.forget();
        let id = DomainId(id);
        self.world.map(id.index(), SCRATCH);
        self.second = Some(self.world.spawn(id));
    }

    fn derive(&mut self, actor: usize, from: u8, to: (usize, u8), extend: u16, rights: u8) {
        let source = self.held(actor, from);
        if source.is_some_and(|held| held.name.length + extend as u8 > LONGEST)
            || to.0 == SECOND && !self.lives()
        {
            return;
        }
        let domain = if to.0 == actor { DomainId::NONE } else { self.second_domain() };
        let components = if extend == 0 { 0 } else { COMPONENT.into() };
        let (slot, rights) = (to.1.into(), u16::from(rights));
        let call = Call::CapabilityDerive { domain, slot, extend, components, rights };
        let Some(index) = self.actor(actor) else { return };
        let answer = self.world.with(index, from, call);
        let rights = rights as u8;
        let within = source.filter(|held| rights & !held.rights == 0);
        let may = within.filter(|held| to.0 == actor || held.rights & DERIVE != 0);
        // From what has all there is, to a list of one's own: nothing else is in the way.
        let must = may.filter(|held| to.0 == actor || held.name == Name::ROOT);
        assert!(answer == OK || must.is_none() || self.must_wait(answer), "{answer:?}");
        if answer == OK {
            let held = may.expect("more than it was derived from");
            let name = if extend == 0 { held.name } else { held.name.child(COMPONENT).unwrap() };
            self.expected[place(to.0, to.1).unwrap()] = Some(Capability { rights, zero: 0, name });
        }
    }

    fn retract(&mut self, actor: usize, slot: u8, extend: u16) {
        let Some(index) = self.actor(actor) else { return };
        let Some(held) = self.held(actor, slot) else { return };
        if held.name.length + extend as u8 > LONGEST || held.name.length + extend as u8 == 0 {
            return;
        }
        let components = if extend == 0 { 0 } else { COMPONENT.into() };
        let answer = self.world.with(index, slot, Call::CapabilityRetract { extend, components });
        if answer == Outcome::Again {
            // Another one is under way. It takes its call back.
            return;
        }
        assert_eq!(answer, OK);
        assert_ne!(held.rights & CONTROL, 0);
        let name = if extend == 0 { held.name } else { held.name.child(COMPONENT).unwrap() };
        let takes = |one: &Capability| {
            name.is_prefix_of(&one.name) && (one.rights & WRITE == 0 || held.rights & WRITE != 0)
        };
        for ((domain, _), one) in PLACES.iter().zip(&mut self.expected) {
            if *domain != actor && one.is_some_and(|one| takes(&one)) {
                *one = None;
            }
        }
        if let Some(token) = &mut self.token {
            token.is_good &= !name.is_prefix_of(&token.capability.name);
        }
    }

    fn tell(&mut self, actor: usize, slot: u8) {
        let Some(index) = self.actor(actor) else { return };
        let Some(capability) = self.held(actor, slot) else { return };
        let mut words = [0; 3];
        for (word, told) in (0..).zip(&mut words) {
            let answer = self.world.with(index, slot, Call::CapabilityToken { word });
            let Outcome::Answer(0, value) = answer else { panic!("{answer:?}") };
            *told = value;
        }
        self.token = Some(Told { words, capability, is_good: true });
    }

    fn enter(&mut self, actor: usize, slot: u8) {
        let Some(index) = self.actor(actor) else { return };
        let Some(token) = self.token else { return };
        let [first, second, seal] = token.words;
        let call = Call::CapabilityEnter { slot: slot.into(), first, second, seal };
        let answer = self.world.by(index, call);
        if self.must_wait(answer) {
            assert!(token.is_good, "waits for nothing");
            return;
        }
        assert_eq!(answer == OK, token.is_good, "{answer:?}");
        if answer == OK {
            self.expected[place(actor, slot).unwrap()] = Some(token.capability);
        }
    }
}

impl Ground for Capabilities {
    type Move = Move;

    fn moves(&self) -> Vec<Move> {
        let mut all = vec![Move::Domain, Move::DomainDestroy, Move::Work];
        let whole = |&(actor, from): &(usize, u8)| (actor, from);
        let sources = PLACES.iter().map(whole).chain([(1, ROOT)]);
        for (actor, from) in sources {
            for &to in PLACES.iter().filter(|&&(domain, _)| actor == 1 || domain == actor) {
                let extends: &[u16] = if from == ROOT { &[1] } else { &[0, 1] };
                all.extend(extends.iter().flat_map(|&extend| {
                    RIGHTS.map(|rights| Move::Derive { actor, from, to, extend, rights })
                }));
            }
            if from == ROOT {
                all.push(Move::Retract { actor, slot: from, extend: 1 });
            } else {
                let slot = from;
                all.extend([0, 1].map(|extend| Move::Retract { actor, slot, extend }));
                all.extend([Move::Drop { actor, slot }, Move::Enter { actor, slot }]);
            }
        }
        all.push(Move::Token { actor: 1, slot: PLACES[0].1 });
        all
    }

    fn make(&mut self, step: Move) {
        match step {
            Move::Derive { actor, from, to, extend, rights } => {
                self.derive(actor, from, to, extend, rights);
            }
            Move::Drop { actor, slot } => {
                let Some(index) = self.actor(actor) else { return };
                assert_eq!(self.world.by(index, Call::CapabilityDrop { slot: slot.into() }), OK);
                self.expected[place(actor, slot).unwrap()] = None;
            }
            Move::Retract { actor, slot, extend } => self.retract(actor, slot, extend),
            Move::Token { actor, slot } => self.tell(actor, slot),
            Move::Enter { actor, slot } => self.enter(actor, slot),
            Move::Domain => self.make_domain(),
            Move::DomainDestroy => {
                let domain = self.second_domain();
                self.world.by(1, Call::DomainDestroy { domain });
                if !self.lives() {
                    (self.expected[1], self.expected[2]) = (None, None);
                }
            }
            Move::Work => work(&mut self.world),
        }
    }

    fn key(&self) -> Vec<u64> {
        let state = &self.world.state;
        let mut key = vec![state.published.domains[SECOND].id.min(1), u64::from(self.lives())];
        let told = self.token.map(|token| token.capability);
        key.push(u64::from(self.token.is_some_and(|token| token.is_good)));
        for held in self.expected.into_iter().chain([told]) {
            key.push(
                held.map_or(0, |held| u64::from(held.name.length) << 8 | u64::from(held.rights)),
            );
        }
        // What stands in the lists still, of what has been taken back.
        for (domain, slot) in PLACES {
            let held =
                state.domains.record(DomainIndex::new(domain)).capabilities[usize::from(slot)];
            key.push(u64::from(held.name.length) << 8 | u64::from(held.rights));
        }
        key.extend(crate::retract::shown(state));
        key
    }

    fn check(&mut self) {
        for ((domain, slot), expected) in PLACES.into_iter().zip(self.expected) {
            let lives = domain == 1 || self.lives();
            let held = capability::get(&self.world.state, DomainIndex::new(domain), slot)
                .ok()
                .filter(|_| lives);
            assert_eq!(held, expected, "slot {slot} of domain {domain}");
        }
    }

    fn clear(&mut self) {
        self.make(Move::DomainDestroy);
        self.world.settle();
        self.check();
        self.forget();
        self.make(Move::Drop { actor: 1, slot: PLACES[0].1 });
        self.token = None;
        assert_eq!(self.world.census(), self.start);
    }
}

#[test]
fn capabilities_and_what_takes_them_back() {
    exhaust(&mut Capabilities::new(), 9_230);
}
