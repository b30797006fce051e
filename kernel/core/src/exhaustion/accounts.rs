//! Three accounts, three domains and a region that they pay for.

use super::{Ground, exhaust, work, world};
use crate::dispatch::Outcome;
use crate::index::{AccountIndex, EnvIndex};
use crate::tests::{OK, World};
use crate::{account, env};
use abi::call::Call;
use abi::domain::Property;
use abi::id::{AccountId, DomainId, RegionId};
use abi::limits::{RESOURCES, Resource};
use abi::published::DomainRecord;
use abi::word::{UserAddress, Which};
use std::vec;
use std::vec::Vec;

/// What is counted here.
const COUNTED: [Resource; 4] =
    [Resource::Envs, Resource::Domains, Resource::Regions, Resource::Attachments];
/// Places of what moves make; place 1 is the first program's.
const PLACES: [usize; 2] = [2, 3];
/// How often it is attached to, at most.
const ATTACHED: u64 = 2;

#[derive(Clone, Copy, Debug)]
enum Move {
    Account {
        place: usize,
        parent: usize,
    },
    Limit {
        place: usize,
        domains: u32,
    },
    AccountDestroy {
        place: usize,
    },
    /// The first program's domain is to be paid for by this account.
    PaidBy {
        place: usize,
    },
    Domain {
        place: usize,
        account: usize,
    },
    DomainDestroy {
        place: usize,
    },
    Region,
    Attach {
        domain: usize,
    },
    Detach,
    Work,
}

struct Accounts {
    world: World,
    /// Two domains' region beside the accounts, or three domains.
    of_regions: bool,
    start: (u32, [u32; RESOURCES], usize, usize, usize),
}

impl Accounts {
    fn new(of_regions: bool) -> Self {
        let mut world = world();
        let start = world.census();
        Self { world, of_regions, start }
    }

    fn account(&self, place: usize) -> AccountId {
        AccountId(self.world.state.published.accounts[place].id)
    }

    fn domain(&self, place: usize) -> DomainId {
        DomainId(self.world.state.published.domains[place].id)
    }

    fn region(&self) -> Option<RegionId> {
        let mut regions = self.world.state.published.regions.iter();
        regions.find(|record| record.id != 0).map(|record| RegionId(record.id))
    }

    /// Does this account, or one below it, pay for the first program? Its environment follows its
    /// domain later.
    fn keeps_the_first(&self, place: usize) -> bool {
        let published = &self.world.state.published;
        let payers = [published.domains[1].account, published.envs[1].account];
        let above = AccountIndex::new(place);
        let below = |id| account::is_below(&self.world.state, AccountId(id).into(), above);
        payers.into_iter().any(below)
    }

    fn pay_by(&mut self, place: usize) -> Outcome {
        let (property, value) = (Property::Account as u16, self.account(place).0);
        self.world.by(1, Call::DomainSet { domain: DomainId::NONE, property, value })
    }

    /// What stands charged to an account, from the objects themselves.
    fn due(&self, place: usize, resource: Resource) -> u32 {
        let published = &self.world.state.published;
        let of_domain = |record: &DomainRecord| match resource {
            Resource::Domains => 1,
            Resource::Attachments => record.attachments,
            _ => 0,
        };
        let [is_env, is_region] = [Resource::Envs, Resource::Regions].map(|one| resource == one);
        let envs = published.envs.iter().map(|record| (record.account, 1)).filter(|_| is_env);
        let domains = published.domains.iter().map(|record| (record.account, of_domain(record)));
        let regions = published.regions.iter().map(|record| (record.account, 1));
        let pays = |&(id, _): &(u64, u32)| {
            id != 0
                && account::is_below(
                    &self.world.state,
                    AccountId(id).into(),
                    AccountIndex::new(place),
                )
        };
        let paid = domains.chain(regions.filter(|_| is_region)).chain(envs).filter(pays);
        paid.map(|(_, count)| count).sum()
    }
}

impl Ground for Accounts {
    type Move = Move;

    fn moves(&self) -> Vec<Move> {
        let mut all = vec![Move::Work];
        for place in PLACES {
            let others = || (1..4).filter(move |&other| other != place);
            all.extend(others().map(|parent| Move::Account { place, parent }));
            all.push(Move::AccountDestroy { place });
        }
        let domains = if self.of_regions { &PLACES[..1] } else { &PLACES };
        for &place in domains {
            all.extend((1..4).map(|account| Move::Domain { place, account }));
            all.push(Move::DomainDestroy { place });
        }
        if self.of_regions {
            all.extend((1..4).map(|place| Move::PaidBy { place }));
            all.extend([1, 2].map(|domain| Move::Attach { domain }));
            all.extend([Move::Region, Move::Detach]);
        } else {
            all.extend([1, u32::MAX].map(|domains| Move::Limit { place: 2, domains }));
        }
        all
    }

    fn make(&mut self, step: Move) {
        let call = match step {
            Move::Account { place, parent } => {
                let which = Which::This(place as u32);
                let parent = self.account(parent);
                let made = self.world.by(1, Call::AccountAlloc { which, parent });
                if let Outcome::Answer(0, id) = made {
                    for resource in 0..RESOURCES as u16 {
                        let (account, limit) = (AccountId(id), u32::MAX);
                        let call = Call::AccountLimit { account, resource, limit, reserve: 0 };
                        assert_eq!(self.world.by(1, call), OK);
                    }
                }
                return;
            }
            Move::Limit { place, domains: limit } => {
                let (account, resource) = (self.account(place), Resource::Domains as u16);
                Call::AccountLimit { account, resource, limit, reserve: 0 }
            }
            // The first program would end with it, and nothing could be done any more.
            Move::AccountDestroy { place } if self.keeps_the_first(place) => return,
            Move::AccountDestroy { place } => Call::AccountDestroy { account: self.account(place) },
            Move::PaidBy { place } => {
                self.pay_by(place);
                return;
            }
            Move::Domain { place, account } => Call::DomainAlloc {
                which: Which::This(place as u32),
                account: self.account(account),
                root: Which::Any,
                window: 0,
                bytes: u64::MAX,
            },
            Move::DomainDestroy { place } => Call::DomainDestroy { domain: self.domain(place) },
            Move::Region if self.region().is_some() => return,
            Move::Region => Call::RegionAlloc { frames: UserAddress(0), count: 0 },
            Move::Attach { domain } => {
                let Some(region) = self.region() else { return };
                let (role, domain) = (0, self.domain(domain));
                let all = self.world.state.published.regions[region.index()].attached[0];
                if domain == DomainId::NONE || all >= ATTACHED {
                    return;
                }
                Call::RegionAttach { region, role, domain }
            }
            Move::Detach => {
                let Some(region) = self.region() else { return };
                Call::RegionDetach { region, role: 0 }
            }
            Move::Work => return work(&mut self.world),
        };
        self.world.by(1, call);
    }

    fn key(&self) -> Vec<u64> {
        let state = &self.world.state;
        let mut key = vec![];
        for (record, private) in state.published.accounts.iter().zip(state.accounts.records.iter())
        {
            let dying = u64::from(private.dying) << 1 | u64::from(record.id != 0);
            key.extend([
                dying,
                private.parent.into(),
                record.limit[Resource::Domains as usize].into(),
            ]);
            key.extend(COUNTED.map(|resource| u64::from(record.used[resource as usize])));
        }
        for (record, private) in state.published.domains.iter().zip(state.domains.records.iter()) {
            let maker = u64::from(private.maker);
            key.extend([
                u64::from(record.id != 0),
                private.account.into(),
                private.dying.into(),
                maker,
            ]);
        }
        for (record, private) in state.published.regions.iter().zip(state.regions.slots.iter()) {
            let payer = AccountId(record.account).index() as u64;
            key.extend([u64::from(record.id != 0), payer, record.attached[0], private.used.into()]);
        }
        for record in state.published.domains.iter() {
            key.push(record.attachments.into());
        }
        key.push(AccountId(state.published.envs[1].account).index() as u64);
        for account::Record { left, .. } in state.accounts.records.iter() {
            key.extend([left.frames == 0, left.lighter, left.tables != 0].map(u64::from));
        }
        key.extend(crate::retract::shown(state));
        key
    }

    fn check(&mut self) {
        let state = &self.world.state;
        let mut dying = 0;
        for place in 1..4 {
            let record = &state.published.accounts[place];
            let private = state.accounts.record(AccountIndex::new(place));
            if record.id == 0 {
                assert_eq!((record.used, private.below), ([0; RESOURCES], 0), "of no account");
                continue;
            }
            dying += u16::from(private.dying);
            for resource in COUNTED {
                assert_eq!(record.used[resource as usize], self.due(place, resource));
            }
            let has_parent = |child: &usize| {
                state.published.accounts[*child].id != 0
                    && usize::from(state.accounts.record(AccountIndex::new(*child)).parent) == place
            };
            assert_eq!(usize::from(private.below), (2..4).filter(has_parent).count());
            if place != 1 {
                let parent = usize::from(private.parent);
                assert_eq!(
                    state.published.accounts[parent].id, record.parent,
                    "an end before its heirs'"
                );
                assert!(
                    private.dying || !state.accounts.record(AccountIndex::new(parent)).dying,
                    "of a dying parent"
                );
                assert_eq!(
                    private.depth,
                    state.accounts.record(AccountIndex::new(parent)).depth + 1
                );
            }
        }
        assert_eq!(state.accounts.dying, dying);
        // Nothing is paid for by an account that has ended.
        let accounts = state.published.domains.iter().map(|record| record.account);
        let accounts = accounts.chain(state.published.regions.iter().map(|record| record.account));
        for account in accounts.filter(|&account| account != 0) {
            assert_eq!(state.published.accounts[AccountId(account).index()].id, account);
        }
        assert_eq!(env::domain(state, EnvIndex::new(1)).index(), 1);
    }

    fn clear(&mut self) {
        assert_eq!(self.pay_by(1), OK);
        self.world.settle();
        for place in PLACES {
            self.make(Move::DomainDestroy { place });
        }
        self.world.settle();
        self.check();
        self.make(Move::Attach { domain: 1 });
        for _ in 0..=ATTACHED {
            self.make(Move::Detach);
        }
        for place in PLACES {
            self.make(Move::AccountDestroy { place });
            self.world.settle();
        }
        for place in PLACES {
            self.make(Move::AccountDestroy { place });
        }
        assert_eq!(self.world.census(), self.start);
    }
}

#[test]
fn accounts_and_domains() {
    exhaust(&mut Accounts::new(false), 2_620);
}

#[test]
fn accounts_and_a_region() {
    exhaust(&mut Accounts::new(true), 25_934);
}
