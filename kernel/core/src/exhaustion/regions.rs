//! Three regions, and three domains that make them and are attached to them.

use super::{Ground, exhaust, work, world};
use crate::dispatch::Outcome;
use crate::index::{DomainIndex, RegionIndex};
use crate::region;
use crate::tests::{OK, ROOT, SCRATCH, World};
use abi::call::Call;
use abi::id::{AccountId, DomainId, RegionId};
use abi::limits::RESOURCES;
use abi::word::{UserAddress, Which};
use std::vec;
use std::vec::Vec;

/// Places of regions.
const REGIONS: [usize; 3] = [1, 2, 3];
/// Places of domains; the first program's is 1. In the second an environment makes calls.
const DOMAINS: [usize; 3] = [1, 2, 3];
const SECOND: usize = 2;
/// How often each region is attached to, at most.
const ATTACHED: u64 = 2;
const ROLE: u8 = 0;
/// Where each list has the name that its domain was made with.
const OWN: u8 = 0;

#[derive(Clone, Copy, Debug)]
enum Move {
    Domain { place: usize },
    DomainDestroy { place: usize },
    Region { maker: usize },
    Attach { region: usize, domain: usize },
    Detach { region: usize, domain: usize },
    Work,
}

struct Regions {
    world: World,
    start: (u32, [u32; RESOURCES], usize, usize, usize),
    /// The environment in the second domain.
    second: Option<usize>,
}

impl Regions {
    fn new() -> Self {
        let mut world = world();
        let start = world.census();
        Self { world, start, second: None }
    }

    fn domain(&self, place: usize) -> DomainId {
        DomainId(self.world.state.published.domains[place].id)
    }

    fn region(&self, place: usize) -> RegionId {
        RegionId(self.world.state.published.regions[place].id)
    }

    /// The environment that makes calls in this domain.
    fn actor(&self, place: usize) -> Option<usize> {
        match place {
            SECOND => self.second.filter(|_| self.lives(SECOND)),
            place => Some(place),
        }
    }

    fn lives(&self, place: usize) -> bool {
        let id = self.domain(place);
        id != DomainId::NONE && crate::domain::find(&self.world.state, id).is_ok()
    }

    fn make_domain(&mut self, place: usize) {
        let (which, account) = (Which::This(place as u32), AccountId::NONE);
        let (root, window, bytes) = (Which::Any, 0, u64::MAX);
        let call = Call::DomainAlloc { which, account, root, window, bytes };
        let Outcome::Answer(0, id) = self.world.by(1, call) else { return };
        if place == SECOND {
            self.forget();
            let id = DomainId(id);
            self.world.map(id.index(), SCRATCH);
            self.second = Some(self.world.spawn(id));
        }
    }

    /// The first program hears that the second domain's environment has ended.
    fn forget(&mut self) {
        if let Some(index) = self.second.take() {
            let env = self.world.id(index);
            assert_eq!(self.world.by(1, Call::EnvForget { env }), OK);
        }
    }
}

impl Ground for Regions {
    type Move = Move;

    fn moves(&self) -> Vec<Move> {
        let mut all = vec![Move::Work];
        for place in [SECOND, 3] {
            all.extend([Move::Domain { place }, Move::DomainDestroy { place }]);
        }
        for place in [1, SECOND] {
            all.push(Move::Region { maker: place });
            all.extend(REGIONS.map(|region| Move::Detach { region, domain: place }));
        }
        for region in REGIONS {
            all.extend(DOMAINS.map(|domain| Move::Attach { region, domain }));
        }
        all
    }

    fn make(&mut self, step: Move) {
        let (actor, call) = match step {
            Move::Domain { place } => return self.make_domain(place),
            Move::DomainDestroy { place } => {
                (Some(1), Call::DomainDestroy { domain: self.domain(place) })
            }
            Move::Region { maker } => {
                (self.actor(maker), Call::RegionAlloc { frames: UserAddress(0), count: 0 })
            }
            Move::Attach { region, domain } => {
                let attached = self.world.state.published.regions[region].attached;
                if attached[usize::from(ROLE)] >= ATTACHED || !self.lives(domain) {
                    return;
                }
                let (region, domain) = (self.region(region), self.domain(domain));
                (Some(1), Call::RegionAttach { region, role: ROLE.into(), domain })
            }
            Move::Detach { region, domain } => {
                let region = self.region(region);
                (self.actor(domain), Call::RegionDetach { region, role: ROLE.into() })
            }
            Move::Work => return work(&mut self.world),
        };
        // By the name that each domain was made with; the first one has all others, too.
        let capability = if actor == Some(1) { ROOT } else { OWN };
        if let Some(actor) = actor {
            self.world.with(actor, capability, call);
        }
    }

    fn key(&self) -> Vec<u64> {
        let state = &self.world.state;
        let mut key = vec![];
        for place in DOMAINS {
            let record = &state.published.domains[place];
            let private = state.domains.record(DomainIndex::new(place));
            key.extend([record.id != 0, private.dying].map(u64::from));
            key.push(record.attachments.into());
        }
        for place in REGIONS {
            let record = &state.published.regions[place];
            let private = &state.regions.slots[RegionIndex::new(place)];
            key.extend([record.id.min(1), record.attached[usize::from(ROLE)], private.used.into()]);
            // Of one that has been attached to nobody asks for the maker.
            key.push(if private.used { 0 } else { DomainId(record.domain).index() as u64 });
            let attached = |domain| region::attached_any(state, domain, RegionIndex::new(place));
            key.extend(DOMAINS.map(|domain| u64::from(attached(DomainIndex::new(domain)))));
        }
        key.push(u64::from(state.accounts.record(crate::account::FIRST).left.tables != 0));
        key
    }

    fn check(&mut self) {
        let state = &self.world.state;
        let attachments = |place: usize| state.published.domains[place].attachments;
        for place in DOMAINS {
            let attached = REGIONS.iter().filter(|&&at| {
                region::attached_any(state, DomainIndex::new(place), RegionIndex::new(at))
            });
            assert_eq!(attached.count(), attachments(place) as usize, "of domain {place}");
        }
        for place in REGIONS {
            let record = &state.published.regions[place];
            let holders = DOMAINS.iter().filter(|&&at| {
                region::attached_any(state, DomainIndex::new(at), RegionIndex::new(place))
            });
            let holders = holders.count() as u64;
            if record.id == 0 {
                assert_eq!((holders, record.attached), (0, [0; 4]), "to no region");
                continue;
            }
            let count = record.attached[usize::from(ROLE)];
            assert!(holders <= count && (holders == 0) == (count == 0), "{holders} of {count}");
            // It lasts as long as a domain is attached to it, or may still be by its maker.
            let maker = DomainId(record.domain);
            let is_made = state.published.domains[maker.index()].id == record.domain;
            let private = &state.regions.slots[RegionIndex::new(place)];
            assert!(if private.used { count != 0 } else { is_made }, "region {place} is left over");
        }
    }

    fn clear(&mut self) {
        for place in [SECOND, 3] {
            self.make(Move::DomainDestroy { place });
        }
        self.world.settle();
        self.check();
        self.forget();
        for region in REGIONS {
            self.make(Move::Attach { region, domain: 1 });
            for _ in 0..=ATTACHED {
                self.make(Move::Detach { region, domain: 1 });
            }
        }
        assert_eq!(self.world.census(), self.start);
    }
}

#[test]
fn regions_and_the_domains_attached() {
    exhaust(&mut Regions::new(), 5_294);
}
