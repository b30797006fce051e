//! Protected methods: what is bound, who may call it, what a call changes, and when it does not.

use super::*;
use abi::limits::{METHOD_SLOTS, METHOD_STEPS, METHODS, Resource, SLICE_NS};
use abi::method::{Binding, Part, refused};
use abi::predicate::{Operator, Source};
use abi::published::Category;
use abi::region::COPY_OUT;
use code::builder::Builder;
use code::error::Why;
use code::instruction::{Condition, Operation as Op, Register, Size};

const R0: Register = Register::R0;
const R1: Register = Register::R1;
const R2: Register = Register::R2;
const R3: Register = Register::R3;

/// A region that nobody has been attached to.
fn region(world: &mut World, frames: u64) -> RegionId {
    world.put(1, &[u64::MAX; 2]);
    let call = Call::RegionAlloc { frames: UserAddress(SCRATCH), count: frames };
    let Outcome::Answer(0, id) = world.by(1, call) else { panic!("RegionAlloc") };
    RegionId(id)
}

fn attach(world: &mut World, index: usize, region: RegionId, role: u16) -> Outcome {
    world.by(index, Call::RegionAttach { region, role, domain: DomainId::NONE })
}

fn program(make: impl FnOnce(&mut Builder)) -> Vec<u8> {
    let mut builder = Builder::new();
    make(&mut builder);
    builder.finish().unwrap()
}

/// Adds the first word to word 0 of its part and answers what was there; `extra` slots more.
fn adder(extra: usize) -> Vec<u8> {
    program(|builder| {
        builder.load(Size::B8, R0, R1, 0).compute(Op::Add, R3, R0).store(Size::B8, R2, 0, R3);
        for _ in 0..extra {
            builder.compute(Op::Move, R3, R3);
        }
        builder.exit();
    })
}

/// 1 if word 0 of the part is below 100.
fn below_a_hundred() -> Vec<u8> {
    program(|builder| {
        let end = builder.label();
        builder.load(Size::B8, R3, R2, 0).set(R0, 1);
        builder.branch(Condition::Less, R3, 100, end).set(R0, 0);
        builder.place(end).exit();
    })
}

fn body() -> Binding {
    Binding { roles: 0b0001, length: 8, ..Binding::default() }
}

fn test(part: Part) -> Binding {
    Binding { part: part as u8, ..Binding::default() }
}

fn put(world: &mut World, index: usize, binding: &Binding, program: &[u8]) {
    let bytes = [&binding.to_bytes(), program].concat();
    let words: Vec<u64> =
        bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect();
    world.put(index, &words);
}

fn bind_call(region: RegionId, program: &[u8]) -> Call {
    let slots = program.len() as u64 / 8;
    Call::MethodBind { region, binding: UserAddress(SCRATCH), slots }
}

/// Binds, however often the call has to run; the answer, and how often.
fn bind(world: &mut World, region: RegionId, binding: &Binding, program: &[u8]) -> (Outcome, u32) {
    put(world, 1, binding, program);
    for times in 1..1000 {
        let outcome = world.by(1, bind_call(region, program));
        if outcome != Outcome::Again {
            return (outcome, times);
        }
    }
    panic!("it never ends");
}

fn call(world: &mut World, index: usize, region: RegionId, role: u16, word: u64) -> Outcome {
    let (first, second, third) = (word, 0, 0);
    world.by(index, Call::MethodCall { region, method: 0, role, first, second, third })
}

fn refusal(part: Part, why: u64) -> Outcome {
    error(Error::Refused, part as u64 | why << 8)
}

#[test]
fn a_method_alone_reaches_the_bytes() {
    for frames in [0, 1] {
        let mut world = World::new();
        let before = world.census();
        let id = region(&mut world, frames);
        assert_eq!(bind(&mut world, id, &body(), &adder(0)).0, OK);
        assert_eq!(call(&mut world, 1, id, 0, 1), error(Error::NotPermitted, 0), "not attached");
        assert_eq!(attach(&mut world, 1, id, 0), OK);
        assert_eq!(attach(&mut world, 1, id, 1), OK);
        assert_eq!(call(&mut world, 1, id, 0, 7), OK);
        assert_eq!(call(&mut world, 1, id, 0, 5), Outcome::Answer(0, 7));
        assert_eq!(call(&mut world, 1, id, 0, 0), Outcome::Answer(0, 12));
        let operations = world.state.published.regions[id.index()].operations;
        assert_eq!(operations, 3);
        // Role 1 may not, nor anybody in another way.
        assert_eq!(call(&mut world, 1, id, 1, 0), error(Error::NotPermitted, 0));
        assert_eq!(call(&mut world, 1, id, 4, 0), error(Error::BadArgument, 2));
        for (direction, role) in [(0, 0), (COPY_OUT, 0), (COPY_OUT, 1), (COPY_OUT, 2)] {
            let last = 8 | u64::from(direction) << 48 | role << 56;
            world.put(1, &[id.0, SCRATCH + 0x400, 0, last]);
            let operation = UserAddress(SCRATCH);
            let answer = world.by(1, Call::RegionOperate { operation });
            assert_eq!(answer, error(Error::NotPermitted, 0));
            let wait = Call::RegionAwait { wait: operation, deadline: 0, posted: 0, events: 0 };
            assert_eq!(world.by(1, wait), error(Error::NotPermitted, 0));
        }
        let step = abi::region::Step { region: id.0, ..Default::default() };
        let [which, piece, words] = step.to_words();
        let (address, from, beside) = (SCRATCH, 0, 0);
        let step = Call::RegionStep { which, address, piece, words, from, beside };
        assert_eq!(world.by(1, step), error(Error::NotPermitted, 0));
        let [equal, source] = [Operator::Equal as u64, Source::Region as u64];
        world.put(1, &[equal | source << 8 | 1 << 24, id.0, 0, 12, 0]);
        let predicate = Call::PredicateSet { atoms: UserAddress(SCRATCH), count: 1 };
        assert_eq!(world.by(1, predicate), error(Error::NotPermitted, 0));
        for role in 0..2 {
            assert_eq!(world.by(1, Call::RegionDetach { region: id, role }), OK);
        }
        assert_eq!(call(&mut world, 1, id, 0, 0), error(Error::NoSuchRegion, 0));
        assert_eq!(world.census(), before);
        assert_eq!(world.state.published.census[Category::Code as usize].objects, 0);
    }
}

#[test]
fn what_is_not_agreed_with_changes_nothing() {
    let mut world = World::new();
    let id = region(&mut world, 1);
    // Stores, then loops until there is nothing left, or stores where word 2 says, or answers.
    let program = program(|builder| {
        let (spin, end) = (builder.label(), builder.label());
        builder.store(Size::B8, R2, 0, R3).set(R0, 3).branch(Condition::Equal, R3, 0, end);
        builder.branch(Condition::Greater, R3, 1000, end);
        builder.compute(Op::Add, R2, R3).store(Size::B8, R2, 0, 1);
        builder.place(spin).jump(spin);
        builder.place(end).exit();
    });
    let binding = Binding { length: 64, offset: 8, budget: 50, ..body() };
    assert_eq!(bind(&mut world, id, &binding, &program).0, OK);
    assert_eq!(bind(&mut world, id, &test(Part::After), &below_a_hundred()).0, OK);
    let before = program_word_3_is_not_13();
    assert_eq!(bind(&mut world, id, &test(Part::Before), &before).0, OK);
    assert_eq!(attach(&mut world, 1, id, 0), OK);
    let frame = world.state.regions.slots[RegionIndex::new(id.index())].frames[0];
    let bytes = |world: &World| {
        (0..512).map(|at| world.machine.word(frame.address() + 8 * at)).collect::<Vec<_>>()
    };
    for (word, expected) in [
        (13, refusal(Part::Before, refused::DISAGREED)),
        (2000, refusal(Part::After, refused::DISAGREED)),
        (56, refusal(Part::Body, refused::BUDGET)),
        (57, refusal(Part::Body, refused::OUTSIDE)),
        (999, refusal(Part::Body, refused::OUTSIDE)),
    ] {
        assert_eq!(call(&mut world, 1, id, 0, word), expected, "{word}");
        assert!(bytes(&world).iter().all(|&word| word == 0), "{word}: it has changed");
    }
    assert_eq!(world.state.published.regions[id.index()].operations, 0);
    assert_eq!(call(&mut world, 1, id, 0, 0), Outcome::Answer(0, 3));
    assert_eq!(world.state.published.regions[id.index()].operations, 1);
}

fn program_word_3_is_not_13() -> Vec<u8> {
    program(|builder| {
        let end = builder.label();
        builder.set(R0, 0).branch(Condition::Equal, R3, 13, end).set(R0, 1);
        builder.place(end).exit();
    })
}

#[test]
fn what_may_not_be_bound_is_named() {
    let mut world = World::new();
    let id = region(&mut world, 1);
    let small = adder(0);
    let bad = |position| error(Error::BadArgument, position);
    let cases = [
        (Binding { method: METHODS as u8, ..body() }, bad(1)),
        (Binding { part: 3, ..body() }, bad(1)),
        (Binding { roles: 16, ..body() }, bad(1)),
        (Binding { zero: 1, ..body() }, bad(1)),
        (Binding { length: 7, ..body() }, error(Error::BadAddress, 0)),
        (Binding { length: 4097, ..body() }, error(Error::BadAddress, 0)),
        (Binding { offset: 4089, ..body() }, error(Error::BadAddress, 0)),
        (Binding { offset: u32::MAX, ..body() }, error(Error::BadAddress, 0)),
        (Binding { budget: METHOD_STEPS, ..body() }, error(Error::TooLarge, METHOD_STEPS.into())),
        (Binding { budget: u32::MAX, ..body() }, error(Error::TooLarge, METHOD_STEPS.into())),
        (test(Part::After), error(Error::WrongState, 0)),
        (Binding { roles: 1, ..test(Part::After) }, bad(1)),
    ];
    for (binding, expected) in cases {
        assert_eq!(bind(&mut world, id, &binding, &small).0, expected, "{binding:?}");
    }
    let long = METHOD_SLOTS as u64;
    let call = Call::MethodBind { region: id, binding: UserAddress(SCRATCH), slots: long + 1 };
    assert_eq!(world.by(1, call), error(Error::TooLarge, long));
    let nothing = bind(&mut world, id, &body(), &[]).0;
    assert_eq!(nothing, error(Error::NotVerified, u64::from(Why::Empty.number()) << 32));
    let outside = program(|builder| {
        builder.set(R0, 0).store(Size::B8, R2, 1, R0).exit();
    });
    let expected = u64::from(Why::Outside(0).number()) << 32 | 1;
    assert_eq!(bind(&mut world, id, &body(), &outside).0, error(Error::NotVerified, expected));
    let whole = program(|builder| {
        builder.set(R0, 0).store(Size::B8, R1, 0, R0).exit();
    });
    let expected = u64::from(Why::ReadOnly(0).number()) << 32 | 1;
    assert_eq!(bind(&mut world, id, &body(), &whole).0, error(Error::NotVerified, expected));
    assert_eq!(bind(&mut world, id, &body(), &small).0, OK);
    assert_eq!(bind(&mut world, id, &body(), &small).0, error(Error::Taken, 0));
    // Its slots and its tests' are one sum.
    let budget = METHOD_STEPS - 2 * small.len() as u32 / 8;
    let after = Binding { budget, ..test(Part::After) };
    let over = Binding { budget: budget + 1, ..after };
    let expected = error(Error::TooLarge, METHOD_STEPS.into());
    assert_eq!(bind(&mut world, id, &over, &small).0, expected);
    put(&mut world, 1, &body(), &small);
    let own = bind_call(id, &small);
    assert_eq!(world.with(1, 0, own), error(Error::NotPermitted, 0), "the guard is another's");
    assert_eq!(attach(&mut world, 1, id, 0), OK);
    let late = Binding { method: 1, ..body() };
    assert_eq!(bind(&mut world, id, &late, &small).0, error(Error::WrongState, 0));
    let two = region(&mut world, 2);
    assert_eq!(bind(&mut world, two, &body(), &small).0, error(Error::TooLarge, 4096));
}

#[test]
fn long_functions_are_bound_in_pieces() {
    let mut world = World::new();
    let id = region(&mut world, 0);
    let (outcome, times) = bind(&mut world, id, &body(), &adder(METHOD_SLOTS - 4));
    assert_eq!(outcome, OK);
    assert!(times > 4, "{times} pieces");
    let other = Binding { method: 1, ..body() };
    let long = adder(200);
    put(&mut world, 1, &other, &long);
    assert_eq!(world.by(1, bind_call(id, &long)), Outcome::Again);
    // Meanwhile it is nobody else's turn, unless the caller stays away or dies.
    let stranger = world.domain();
    let stranger = world.spawn(stranger);
    put(&mut world, stranger, &Binding { method: 2, ..body() }, &long);
    assert_eq!(world.by(stranger, bind_call(id, &long)), error(Error::WouldBlock, 0));
    world.machine.now += 3 * SLICE_NS;
    put(&mut world, 1, &other, &long);
    assert_eq!(world.by(stranger, bind_call(id, &long)), Outcome::Again);
    assert_eq!(world.by(1, bind_call(id, &long)), error(Error::WouldBlock, 0));
    let env = world.id(stranger);
    assert_eq!(world.by(1, Call::EnvDestroy { env, word: 0 }), OK);
    // What is bound is what the call was last made with.
    assert_eq!(world.by(1, bind_call(id, &long)), Outcome::Again);
    let (outcome, _) = bind(&mut world, id, &Binding { roles: 3, ..other }, &adder(0));
    assert_eq!(outcome, OK);
    assert_eq!(attach(&mut world, 1, id, 1), OK);
    let (first, second, third) = (4, 0, 0);
    let call = Call::MethodCall { region: id, method: 1, role: 1, first, second, third };
    assert_eq!(world.by(1, call), OK);
    assert_eq!(world.by(1, call), Outcome::Answer(0, 4));
}

/// Who begins another function in each of its turns, and ends none, keeps no other account from
/// binding its own.
#[test]
fn who_binds_without_end_keeps_nobody_from_binding() {
    let mut world = World::new();
    let [attacker, victim] = [(); 2].map(|()| {
        let user = super::turns::user(&mut world);
        super::turns::process(&mut world, user)
    });
    let id = region(&mut world, 0);
    let long = adder(200);
    for turn in 0..12 {
        for budget in [turn, 100 + turn] {
            put(&mut world, attacker, &Binding { budget, ..body() }, &long);
            let answer = world.by(attacker, bind_call(id, &long));
            assert!([Outcome::Again, error(Error::WouldBlock, 0)].contains(&answer), "{answer:?}");
        }
        world.machine.now += SLICE_NS;
        put(&mut world, victim, &Binding { method: 1, ..body() }, &long);
        let mut answer = Outcome::Again;
        while answer == Outcome::Again {
            answer = world.by(victim, bind_call(id, &long));
        }
        if answer == OK {
            return;
        }
        assert_eq!(answer, error(Error::WouldBlock, 0));
        world.machine.now += SLICE_NS / 2;
    }
    panic!("its turn never comes");
}

/// Pages of the window are paid for by the region's account.
#[test]
fn pages_of_code_are_paid_for() {
    let mut world = World::new();
    let id = region(&mut world, 0);
    let slot = Resource::Code as usize;
    world.state.published.accounts[1].limit[slot] = 1;
    assert_eq!(bind(&mut world, id, &body(), &adder(0)).0, OK);
    let over = error(Error::OverQuota, slot as u64);
    let other = Binding { method: 1, ..body() };
    assert_eq!(bind(&mut world, id, &other, &adder(0)).0, over);
    assert_eq!(attach(&mut world, 1, id, 0), OK);
    assert_eq!(world.by(1, Call::RegionDetach { region: id, role: 0 }), OK);
    world.settle();
    assert_eq!(world.state.published.accounts[1].used[slot], 0);
}

#[test]
fn methods_go_with_their_region_and_its_account() {
    let mut world = World::new();
    let before = world.census();
    let domain = world.domain();
    let maker = world.spawn(domain);
    world.put(maker, &[u64::MAX]);
    let make = Call::RegionAlloc { frames: UserAddress(SCRATCH), count: 1 };
    let Outcome::Answer(0, id) = world.by(maker, make) else { panic!("RegionAlloc") };
    let id = RegionId(id);
    for method in 0..METHODS as u8 {
        assert_eq!(bind(&mut world, id, &Binding { method, ..body() }, &adder(100)).0, OK);
    }
    let objects = |world: &World| world.state.published.census[Category::Code as usize].objects;
    assert_eq!(objects(&world), METHODS as u64);
    assert_eq!(attach(&mut world, maker, id, 0), OK);
    let env = world.id(maker);
    assert_eq!(world.by(1, Call::EnvDestroy { env, word: 0 }), OK);
    world.settle();
    assert_eq!(world.by(1, Call::EnvForget { env }), OK);
    assert_eq!(objects(&world), 0);
    assert_eq!(world.census(), before);
}

/// The number is looked at before anything else is: also by who may not call at all.
#[test]
fn call_a_method_beyond_the_last() {
    let mut world = World::new();
    let region = region(&mut world, 1);
    for (method, expected) in [
        (METHODS as u16, error(Error::BadArgument, 1)),
        (u16::MAX, error(Error::BadArgument, 1)),
        (METHODS as u16 - 1, error(Error::NotPermitted, 0)),
    ] {
        let call = Call::MethodCall { region, method, role: 0, first: 0, second: 0, third: 0 };
        assert_eq!(world.by(1, call), expected, "{method}");
    }
}
