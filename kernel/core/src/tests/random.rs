//! Random calls, faults and time on two processors: what must hold holds, and nothing is left.

use crate::index::EnvIndex;

use super::*;
use abi::limits::SLICE_NS;
use abi::region::Step;

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

fn env_id(world: &World, random: &mut Random) -> EnvId {
    match random.below(8) {
        0 => EnvId::NONE,
        1 => EnvId(random.below(1 << 14) as u32),
        _ => world.id(1 + random.below(10) as usize),
    }
}

fn region_id(world: &World, random: &mut Random) -> RegionId {
    RegionId(world.state.published.regions[1 + random.below(6) as usize].id)
}

fn domain_id(world: &World, random: &mut Random) -> DomainId {
    DomainId(world.state.published.domains[random.below(8) as usize].id)
}

/// Where the words of region operations lie.
const REGION_WORDS: UserAddress = UserAddress(SCRATCH + 0x900);

/// Where each program has a binding of method 0 to 8 bytes, for all roles, and a function behind it
/// that answers 1.
const METHOD: UserAddress = UserAddress(SCRATCH + 0xa00);
const METHOD_WORDS: [u64; 4] = [0xf_0000, 8 << 32, 0x1_0000_00b7, 0x95];

/// Word 0 of some region, if it is 0 or 1, becomes 0 or 1.
fn region_words(world: &mut World, random: &mut Random, index: usize) {
    let mut words = [0; 23];
    let (compares, writes, role) = (random.below(2), random.below(2), random.below(3));
    words[0] = region_id(world, random).0;
    words[3] = compares << 32 | writes << 40 | role << 56;
    (words[5], words[13], words[21]) = (random.below(2), random.below(2), random.below(2));
    words[22] = if random.below(2) == 0 { u64::MAX } else { random.below(4) };
    for (at, word) in words.into_iter().enumerate() {
        world.poke(index, REGION_WORDS.0 + 8 * at as u64, word);
    }
}

fn call(world: &World, random: &mut Random, index: usize) -> Call {
    let env = env_id(world, random);
    let soon = world.machine.now + random.below(4 * SLICE_NS);
    let domain = domain_id(world, random);
    let region = region_id(world, random);
    let role = random.below(5) as u16;
    let count = random.below(4);
    let at = UserAddress(SCRATCH + 8 * random.below(8));
    match random.below(37) {
        0..=2 => Call::Yield { to: env },
        3..=6 => Call::Sleep {
            deadline: if random.below(3) == 0 { 0 } else { soon },
            posted: random.below(4),
            events: random.below(256),
            flags: random.below(2),
        },
        7..=9 => Call::TransferSync {},
        10 => Call::TransferAsync {},
        11 | 12 => Call::Post { env, bits: random.below(4) },
        13 => Call::EnvHold { env },
        14 | 15 => Call::EnvRelease { env },
        // The first one is left alive, to clean up.
        16 if env.0 != 1 && !(env.is_none() && index == 1) => Call::EnvDestroy { env, word: 7 },
        16 => Call::Entropy {},
        17 => Call::EnvForget { env },
        18 => Call::EnvEntrust { env, holder: env_id(world, random) },
        19 => Call::SliceAlloc { cpu: random.below(2) as u16, position: Which::Any, env },
        20 => Call::SliceFree { cpu: random.below(2) as u16, position: random.below(6) as u32 },
        21 => Call::RegionAlloc { frames: UserAddress(SCRATCH + 0x800), count },
        22 => Call::RegionAttach { region, role, domain },
        23 => Call::RegionDetach { region, role },
        24 => Call::PredicateSet { atoms: at, count },
        25 | 26 => Call::RegionOperate { operation: REGION_WORDS },
        27 | 28 => {
            let deadline = if random.below(3) == 0 { 0 } else { soon };
            let (posted, events) = (random.below(4), random.below(256));
            Call::RegionAwait { wait: REGION_WORDS, deadline, posted, events }
        }
        29 | 30 => {
            let step = Step {
                region: region.0,
                role: random.below(3) as u8,
                peer: if random.below(2) == 0 { u8::MAX } else { random.below(4) as u8 },
                flags: random.below(4) as u8,
                len: 0,
                events: random.below(256) as u16,
                ..Step::default()
            };
            let [which, piece, words] = step.to_words();
            let (from, other) = (random.below(2), random.below(4));
            if random.below(2) == 0 {
                Call::RegionStep { which, address: at.0, piece, words, from, beside: other }
            } else {
                Call::RegionStepOrWait { which, address: at.0, piece, words, from, posted: other }
            }
        }
        31 => Call::MethodBind { region, binding: METHOD, slots: 2 },
        32 | 33 => {
            let (first, second, third) = (count, 0, 0);
            Call::MethodCall { region, method: 0, role, first, second, third }
        }
        34 => Call::Entropy {},
        _ => Call::TimerSet { deadline: soon },
    }
}

/// Makes another environment, in a domain of its own or an old one.
fn populate(world: &mut World, random: &mut Random, domains: &mut Vec<DomainId>) {
    let used = world.state.published.envs.iter().filter(|record| record.id != 0).count();
    if used > 9 || random.below(4) != 0 {
        return;
    }
    domains.retain(|&id| domain::find(&world.state, id).is_ok());
    let domain = if domains.len() < 5 || random.below(2) == 0 {
        world.domain()
    } else {
        domains[random.below(domains.len() as u64) as usize]
    };
    if domains.contains(&domain) || domains.len() < 5 {
        if !domains.contains(&domain) {
            domains.push(domain);
        }
        if usable(world) {
            let index = world.spawn(domain);
            // Never equal: a word of the page and a constant.
            let atom = [0x0100_0101, 0, SCRATCH + 0x700, 5, 0];
            world.put(index, &[atom, atom].concat());
        }
    }
}

/// Can the first environment act now?
fn usable(world: &World) -> bool {
    matches!(world.state_of(1), EnvState::Running | EnvState::Ready)
}

/// The first environment is put back on processor 0, whatever it was doing.
fn recall(world: &mut World) {
    let other = 1
        + (2..world.state.envs.slots.len())
            .find(|&index| world.state_of(index) == EnvState::Free)
            .unwrap_or(0);
    assert_ne!(other, 0);
    match world.state_of(1) {
        EnvState::Running | EnvState::Ready => {}
        EnvState::Stopped | EnvState::Held | EnvState::Sleeping | EnvState::Donating => {
            if world.state_of(1) == EnvState::Donating
                || world.state.envs.slots[EnvIndex::new(1)].pending == env::Pending::Reply
            {
                crate::transfer::end_wait(&mut world.state, EnvIndex::new(1));
            }
            crate::sleep::end_sleep(&mut world.state, &mut world.machine, EnvIndex::new(1));
            sched::dequeue(&mut world.state, EnvIndex::new(1));
            sched::make_ready(&mut world.state, &mut world.machine, EnvIndex::new(1), false);
        }
        state => panic!("{state:?}"),
    }
}

/// Says in which world it was.
struct Reproduce(u64);

impl Drop for Reproduce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::eprintln!(
                "reproduce: XOK_SEEDS={} cargo test -p kernel-core leave_nothing",
                self.0
            );
        }
    }
}

/// Seeds that are tried, and steps of each.
const SEEDS: u64 = if cfg!(miri) { 1 } else { 6 };
const STEPS: u32 = if cfg!(miri) { 500 } else { 10_000 };

#[test]
fn random_calls_keep_what_must_hold_and_leave_nothing() {
    for seed in 1..=crate::model::number("XOK_SEEDS", SEEDS) {
        let _place = Reproduce(seed);
        let mut random = Random(seed);
        let mut world = World::new();
        let before = world.census();
        let mut domains = vec![];
        let mut made = [0u32; 2];
        for _ in 0..STEPS {
            if usable(&world) {
                populate(&mut world, &mut random, &mut domains);
            } else if random.below(20) == 0 {
                recall(&mut world);
            }
            let cpu = random.below(2) as usize;
            world.machine.now += random.below(SLICE_NS / 4);
            let index = world.pick(cpu);
            if index == 0 {
                continue;
            }
            if random.below(50) == 0 {
                let (state, machine) = (&mut world.state, &mut world.machine);
                crate::upcall::deliver_fault(state, machine, EnvIndex::new(index), 6, 0, 0);
                continue;
            }
            if random.below(3) == 0 {
                world.save(index, offset::MASK, random.below(2));
                world.save(index, offset::DEPTH, 0);
                world.save(index, offset::PENDING, 0);
                world.save(index, offset::EVENTS, 0);
            }
            let call = call(&world, &mut random, index);
            if matches!(call, Call::MethodBind { .. }) {
                for (at, word) in METHOD_WORDS.into_iter().enumerate() {
                    world.poke(index, METHOD.0 + 8 * at as u64, word);
                }
            }
            if matches!(call, Call::RegionOperate { .. } | Call::RegionAwait { .. }) {
                region_words(&mut world, &mut random, index);
            }
            let number = u64::from(call.encode().0);
            let target = u64::from(world.id(1 + random.below(9) as usize).0);
            let word = number | u64::from(ROOT) << 16 | random.below(2) << 24 | target << 32;
            let outcome = world.raw(cpu, index, call, word);
            made[usize::from(!matches!(outcome, Outcome::Answer(1.., _)))] += 1;
        }
        assert!(made[1] > STEPS / 20, "{made:?}");
        clean_up(&mut world);
        assert_eq!(world.census(), before, "seed {seed}");
    }
}

/// The first environment ends everything else.
fn clean_up(world: &mut World) {
    recall(world);
    for index in 2..world.state.envs.slots.len() {
        if world.state_of(index) != EnvState::Free {
            let env = world.id(index);
            world.by(1, Call::EnvDestroy { env, word: 0 });
            // One that runs dies when its processor enters the kernel, and the first one may be on
            // either.
            world.pick(0);
            world.pick(1);
        }
    }
    // Records whose holders are dead are nobody's now.
    world.settle();
    for index in 2..world.state.envs.slots.len() {
        if world.state_of(index) != EnvState::Free {
            let holder = EnvId(world.state.published.envs[index].holder);
            assert_eq!(holder, EnvId(1));
            assert!(matches!(
                world.by(1, Call::EnvForget { env: world.id(index) }),
                Outcome::Answer(0, _)
            ));
        }
    }
    // What dies in pieces has died.
    world.settle();
    // Those that the test made and put nobody into.
    for index in 1..world.state.published.domains.len() {
        let domain = DomainId(world.state.published.domains[index].id);
        if domain.0 != 0 && domain != env::domain(&world.state, EnvIndex::new(1)) {
            assert_eq!(world.by(1, Call::DomainDestroy { domain }), OK);
        }
    }
    // They may have been attached by others, and are until they have ended.
    world.settle();
    detach(world);
    for (cpu, position) in (0..2).flat_map(|cpu| (0..128).map(move |at| (cpu, at))) {
        if (cpu, position) != (0, 0) {
            let _ = world.by(1, Call::SliceFree { cpu, position });
        }
    }
    assert_eq!(world.by(1, Call::TimerSet { deadline: 0 }), OK);
    let call = Call::PredicateSet { atoms: UserAddress(SCRATCH), count: 0 };
    assert_eq!(world.by(1, call), OK);
}

/// The first environment leaves every region; nobody else is in any.
fn detach(world: &mut World) {
    for index in 1..world.state.regions.slots.len() {
        while world.state.published.regions[index].id != 0 {
            let region = RegionId(world.state.published.regions[index].id);
            if world.state.published.regions[index].attached == [0; 4] {
                let domain = DomainId::NONE;
                let attach = Call::RegionAttach { region, role: 0, domain };
                assert_eq!(world.by(1, attach), OK);
            }
            let mut detached = 0;
            for role in 0..4 {
                while world.by(1, Call::RegionDetach { region, role }) == OK {
                    detached += 1;
                }
            }
            let record = &world.state.published.regions[index];
            assert!(detached > 0, "somebody else is attached: {record:?}");
        }
    }
}
