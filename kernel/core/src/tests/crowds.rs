//! What a user's crowd does to others' turns: those that sleep, that yield, that are made ready.

use super::predicates::{atom, constant, memory, set};
use super::turns::{process, sleep_for_ever, user};
use super::*;
use abi::call::{TRANSFER_REPLY, TRANSFER_SHIFT, number};
use abi::limits::SLICE_NS;
use abi::predicate::Operator;
use abi::setup::{FLAG_BORROW, FLAG_GIVEN_TIME};

const CPU: CpuIndex = CpuIndex::new(0);
/// A word that a sleeper watches.
const WORD: u64 = SCRATCH + 0x800;

/// So many processes of this user that sleep, whose predicates never hold.
fn sleepers(world: &mut World, of: (AccountId, DomainId), count: usize) {
    for _ in 0..count {
        let index = process(world, of);
        mask(world, index);
        let never = atom(constant(0), Operator::Equal, constant(1));
        assert_eq!(set(world, index, &[never]), OK);
        sleep_for_ever(world, index);
    }
}

/// Makes one that sleeps ready, as an event does.
pub(super) fn wake(world: &mut World, index: usize) {
    let (state, machine) = (&mut world.state, &mut world.machine);
    crate::sleep::end_sleep(state, machine, EnvIndex::new(index));
    sched::make_ready(state, machine, EnvIndex::new(index), true);
}

/// Each of a crowd yields to the next at the end of the slice, which is lengthened for that one:
/// the account pays for it, and others wait no longer than for two slices.
#[test]
fn who_yields_at_the_end_of_a_slice_takes_no_time_of_other_accounts() {
    let mut world = World::of(8192);
    let [many, few] = [(); 2].map(|()| user(&mut world));
    let crowd: [usize; 20] = core::array::from_fn(|_| process(&mut world, many));
    let one = process(&mut world, few);
    sleep_for_ever(&mut world, 1);
    while world.pick(0) != one {
        world.machine.now += SLICE_NS;
    }
    let ran = |world: &World| world.state.published.envs[one].run_ns;
    let (begin, before) = (world.machine.now, ran(&world));
    let (mut left, mut longest) = (begin, 0);
    for _ in 0..1_500 {
        let runs = world.pick(0);
        if runs == one {
            longest = longest.max(world.machine.now - left);
            world.machine.now += SLICE_NS;
            left = world.machine.now;
            continue;
        }
        let end = world.state.sched.cpus[CPU].slice_end_ns;
        world.machine.now = world.machine.now.max(end - 1_000);
        let at = crowd.iter().position(|&index| index == runs).expect("one of the crowd");
        let to = world.id(crowd[(at + 1) % crowd.len()]);
        assert_eq!(world.by(runs, Call::Yield { to }), Outcome::Left);
        world.machine.now = world.machine.now.max(end);
    }
    longest = longest.max(world.machine.now - left);
    let share = (ran(&world) - before) * 100 / (world.machine.now - begin);
    assert!(longest <= 2 * SLICE_NS && share >= 45, "{share} %, waits for {longest} ns");
    crate::turns::check(&world.state);
}

/// What is borrowed and spent in a server is owed by who has borrowed it: a crowd that wakes one
/// after the other, and has a server work, borrows no more than one slice in a round.
#[test]
fn who_borrows_pays_for_the_servers_that_it_calls() {
    let mut world = World::of(8192);
    let [lending, borrowing, serving] = [(); 3].map(|()| user(&mut world));
    let lender = process(&mut world, lending);
    assert_eq!(world.set_flags(lender, EnvId::NONE, FLAG_BORROW), OK);
    let crowd: [usize; 8] = core::array::from_fn(|_| process(&mut world, borrowing));
    let server = process(&mut world, serving);
    for &index in &crowd {
        mask(&mut world, index);
        assert_eq!(world.by(index, WAIT), Outcome::Left);
    }
    mask(&mut world, server);
    let accept = Call::Sleep { deadline: 0, posted: 0, events: 0, flags: 1 };
    assert_eq!(world.by(server, accept), Outcome::Left);
    sleep_for_ever(&mut world, 1);
    world.on(0, lender);
    let mut borrowed = 0;
    for &index in &crowd {
        let env = world.id(index);
        assert_eq!(world.by(lender, Call::Post { env, bits: 1 }), OK);
        if world.pick(0) == index {
            borrowed += 1;
            transfer(&mut world, index, server, 0);
            let end = world.state.sched.cpus[CPU].borrow_end_ns - 1_000;
            world.machine.now = end.min(world.machine.now + SLICE_NS * 6 / 10);
            transfer(&mut world, server, index, TRANSFER_REPLY);
            world.save(index, offset::PENDING, 0);
            assert_eq!(world.by(index, WAIT), Outcome::Left);
        }
        assert_eq!(world.pick(0), lender);
    }
    assert_eq!(borrowed, 2, "a slice, and what the last one took");
    assert_eq!(world.state.envs.slots[EnvIndex::new(server)].debt_ns, 0, "it has borrowed nothing");
    assert_eq!(crate::loan::credit(&world.state, CPU, EnvIndex::new(server)), SLICE_NS);
}

/// What a server does for a client while another one's time is borrowed: a lender, a client whose
/// request the server has begun, and a third user's program that hands its loan to the server.
struct Unfinished {
    world: World,
    lender: usize,
    server: usize,
    client: usize,
    hands_on: usize,
}

impl Unfinished {
    fn new() -> Self {
        let mut world = World::of(8192);
        let [lending, asking, impatient, serving] = [(); 4].map(|()| user(&mut world));
        let [lender, client] = [lending, asking].map(|of| process(&mut world, of));
        let [hands_on, server] = [impatient, serving].map(|of| process(&mut world, of));
        assert_eq!(world.set_flags(lender, EnvId::NONE, FLAG_BORROW), OK);
        let accept = Call::Sleep { deadline: 0, posted: 0, events: 0, flags: 1 };
        mask(&mut world, server);
        assert_eq!(world.by(server, accept), Outcome::Left);
        sleep_for_ever(&mut world, 1);
        world.on(0, client);
        transfer(&mut world, client, server, 0);
        // Its time is over in the midst of the request.
        world.on(0, lender);
        let mut all = Self { world, lender, server, client, hands_on };
        mask(&mut all.world, hands_on);
        assert_eq!(all.world.by(hands_on, WAIT), Outcome::Left);
        all.world.on(0, lender);
        all
    }

    /// The third one is woken, and has the server run; false: it has borrowed enough.
    fn hands_on(&mut self) -> bool {
        let (world, index) = (&mut self.world, self.hands_on);
        let env = world.id(index);
        assert_eq!(world.by(self.lender, Call::Post { env, bits: 1 }), OK);
        if world.pick(0) != index {
            return false;
        }
        world.save(index, offset::PENDING, 0);
        let to = world.id(self.server);
        assert_eq!(world.by(index, Call::Yield { to }), Outcome::Left);
        assert_eq!(world.pick(0), self.server);
        true
    }

    /// What the account of the environment at `index` owes.
    fn owes(&self, index: usize) -> u64 {
        let account = crate::turns::account_of(&self.world.state, EnvIndex::new(index));
        let left = crate::loan::credit(&self.world.state, CPU, EnvIndex::new(index));
        assert!(account.at() != 0 && left <= SLICE_NS);
        SLICE_NS - left
    }
}

/// Sleeps until the first bit is posted.
pub(super) const WAIT: Call = Call::Sleep { deadline: 0, posted: 1, events: 0, flags: 0 };

/// A transfer from one to the other, which runs then.
fn transfer(world: &mut World, from: usize, to: usize, bits: u64) {
    let word = transfer_word(world, to, bits);
    let outcome = world.raw(0, from, Call::TransferSync {}, word);
    assert_eq!(outcome, Outcome::Enter(EnvIndex::new(to)));
    assert_eq!(world.pick(0), to);
}

/// What `rax` holds for a transfer to this environment.
pub(super) fn transfer_word(world: &World, to: usize, bits: u64) -> u64 {
    u64::from(number::TransferSync) | u64::from(world.id(to).0) << TRANSFER_SHIFT | bits
}

/// The client owes what the server does for it, and goes on after the reply on time of its own:
/// what the third one has borrowed is not used up by either.
#[test]
fn clients_pay_for_what_others_have_a_server_finish() {
    let mut all = Unfinished::new();
    assert!(all.hands_on());
    let took = SLICE_NS / 4;
    all.world.machine.now += took;
    let before = all.owes(all.client);
    transfer(&mut all.world, all.server, all.client, TRANSFER_REPLY);
    assert_eq!(all.owes(all.client) - before, took, "the request was the client's");
    assert_eq!(all.owes(all.hands_on), 0);
    let this = &all.world.state.sched.cpus[CPU];
    let account = crate::turns::account_of(&all.world.state, EnvIndex::new(all.client));
    assert_eq!(this.borrower, account.link(), "it borrows itself");
    assert_eq!(this.borrow_end_ns, all.world.machine.now + SLICE_NS - before - took);
    all.world.machine.now += took;
    assert_eq!(all.world.by(all.client, WAIT), Outcome::Left);
    assert_eq!(all.world.pick(0), all.lender);
    assert_eq!(all.owes(all.client) - before, 2 * took);
    assert_eq!(all.owes(all.hands_on), 0);
}

/// A client whose account has borrowed all it may is ready after the reply, and does not run.
#[test]
fn clients_that_owe_a_turn_do_not_go_on_in_anothers_loan() {
    let mut all = Unfinished::new();
    assert!(all.hands_on());
    all.world.machine.now += SLICE_NS - 50_000;
    let word = transfer_word(&all.world, all.client, TRANSFER_REPLY);
    let outcome = all.world.raw(0, all.server, Call::TransferSync {}, word);
    assert_eq!(outcome, Outcome::Left);
    assert_eq!(all.world.pick(0), all.lender);
    assert_eq!(all.world.state_of(all.client), EnvState::Ready);
    // The vector registers are of the reply.
    let vector = env::vector(&all.world.state, EnvIndex::new(all.client)).unwrap();
    assert_eq!(all.world.machine.word(vector.address()), u64::from_le_bytes(*b"vectors\0"));
}

/// A client that waits for ever pays for its server no more than a slice in a round: after that
/// those pay that have borrowed the time, until they may borrow no more.
#[test]
fn who_borrows_for_a_friends_server_has_no_more_than_both_may_borrow() {
    let mut all = Unfinished::new();
    let begin = all.world.machine.now;
    let mut loans = 0;
    while all.hands_on() {
        loans += 1;
        assert!(loans < 8, "borrows without end");
        let end = all.world.state.sched.cpus[CPU].borrow_end_ns;
        all.world.machine.now = end;
        assert_eq!(all.world.pick(0), all.lender);
        let now = all.world.machine.now;
        all.world.state.sched.cpus[CPU].slice_end_ns = now + SLICE_NS;
        assert_eq!(all.world.by(all.hands_on, WAIT), Outcome::Left);
        all.world.on(0, all.lender);
    }
    let borrowed = all.world.machine.now - begin;
    assert!(borrowed <= 3 * SLICE_NS, "{borrowed} ns in {loans} loans");
}

/// Clients of one account, each with a server that it has work without end, beside a program that
/// computes: the part of 100 of the processor's time that the program has.
fn share_beside_servers(count: usize, work_ns: u64) -> u64 {
    let mut world = World::of(8192);
    let [computing, asking] = [(); 2].map(|()| user(&mut world));
    let program = process(&mut world, computing);
    let clients: Vec<usize> = (0..count).map(|_| process(&mut world, asking)).collect();
    let mut servers = Vec::new();
    for &client in &clients {
        let account = user(&mut world);
        let server = process(&mut world, account);
        let accept = Call::Sleep { deadline: 0, posted: 0, events: 0, flags: 1 };
        mask(&mut world, server);
        assert_eq!(world.by(server, accept), Outcome::Left);
        servers.push((server, client, work_ns));
    }
    sleep_for_ever(&mut world, 1);
    let begin = world.machine.now;
    let mut computed = 0;
    while world.machine.now < begin + 40 * SLICE_NS {
        let runs = world.pick(0);
        let left = world.state.sched.cpus[CPU].end_ns().saturating_sub(world.machine.now);
        if runs == program {
            computed += left;
            world.machine.now += left;
        } else if let Some((_, client, to_do)) = servers.iter_mut().find(|at| at.0 == runs) {
            let works = left.min(*to_do);
            (world.machine.now, *to_do) = (world.machine.now + works, *to_do - works);
            if *to_do == 0 {
                *to_do = work_ns;
                let word = transfer_word(&world, *client, TRANSFER_REPLY);
                world.raw(0, runs, Call::TransferSync {}, word);
            }
        } else {
            let at = servers.iter().find(|at| at.1 == runs).expect("a client");
            world.machine.now += 2_000;
            let word = transfer_word(&world, at.0, 0);
            world.raw(0, runs, Call::TransferSync {}, word);
        }
    }
    crate::turns::check(&world.state);
    computed * 100 / (world.machine.now - begin)
}

/// A user's programs that have servers work without end have no turns of these, however many
/// servers there are: what another user's program that computes has of the processor, in parts of
/// 100, by how long a request takes.
#[test]
fn servers_give_none_of_their_turns_to_clients() {
    const SHARES: [(u64, u64); 5] =
        [(270_000, 45), (3_000_000, 45), (5_000_000, 44), (9_000_000, 45), (15_000_000, 39)];
    for count in [1, 2, 3] {
        for (work_ns, least) in SHARES {
            let share = share_beside_servers(count, work_ns);
            assert!(share >= least, "{share} % beside {count} servers, {work_ns} ns for a request");
        }
    }
}

/// Looks at a crowd of sleepers are not all that a walk has, in each walk: one of another account's
/// is looked at when its turn comes, while a third account computes.
#[test]
fn a_crowd_of_sleepers_takes_no_looks_of_others() {
    for count in [1, 20, 31, 32, 33, 40, 48] {
        for crowds in [1, 2] {
            let mut world = World::of(8192);
            let all: Vec<_> = (0..crowds).map(|_| user(&mut world)).collect();
            let [few, third] = [(); 2].map(|()| user(&mut world));
            let sleeper = process(&mut world, few);
            let computes = process(&mut world, third);
            all.into_iter().for_each(|many| sleepers(&mut world, many, count));
            mask(&mut world, sleeper);
            let watch = atom(memory(WORD), Operator::Equal, constant(1));
            assert_eq!(set(&mut world, sleeper, &[watch]), OK);
            sleep_for_ever(&mut world, sleeper);
            sleep_for_ever(&mut world, 1);
            // Where another one is idle all sleepers are looked at in each slice.
            world.state.sched.online = 1;
            world.machine.now += SLICE_NS;
            while world.pick(0) != computes {}
            world.poke(sleeper, WORD, 1);
            let mut slices = 0;
            while world.state_of(sleeper) == EnvState::Sleeping {
                assert!(slices < 8, "beside {crowds} of {count} it is never looked at");
                world.machine.now += SLICE_NS;
                while world.pick(0) == 0 {}
                slices += 1;
            }
        }
    }
}

/// What the kernel writes while an idle processor looks at all sleepers, for which few of them are
/// looked at, and that some of them end meanwhile, makes it look past none of them.
#[test]
fn an_idle_processor_looks_at_all_sleepers() {
    for (writes, ends) in [(false, false), (true, false), (false, true)] {
        for at in 0..20 {
            let mut world = World::of(8192);
            world.state.sched.online = 1;
            let [many, few] = [(); 2].map(|()| user(&mut world));
            sleepers(&mut world, many, 5 * at);
            let first = world.state.sched.watch;
            let sleeper = process(&mut world, few);
            mask(&mut world, sleeper);
            let watch = atom(memory(WORD), Operator::Equal, constant(1));
            assert_eq!(set(&mut world, sleeper, &[watch]), OK);
            sleep_for_ever(&mut world, sleeper);
            sleepers(&mut world, many, 100 - 5 * at);
            sleep_for_ever(&mut world, 1);
            while world.pick(0) != 0 || world.state.sched.cpus[CPU].to_look == 0 {}
            world.poke(sleeper, WORD, 1);
            world.state.sched.cpus[CPU].to_look = 0;
            let (mut more, mut victim) = (true, EnvIndex::from(first));
            while more {
                if writes {
                    // As after a write that nobody is looked at for.
                    let next = crate::list::next;
                    for _ in 0..33 {
                        let sched = &mut world.state.sched;
                        let head = EnvIndex::from(sched.watch);
                        let kind = crate::list::Kind::Watch;
                        sched.watch = next(&world.state.envs.slots, kind, head).link();
                    }
                }
                if ends && victim != EnvIndex::NONE && victim.at() != sleeper {
                    let (state, machine) = (&mut world.state, &mut world.machine);
                    let next =
                        crate::list::next(&state.envs.slots, crate::list::Kind::Watch, victim);
                    crate::sleep::end_sleep(state, machine, victim);
                    crate::death::hold_now(state, machine, victim);
                    victim = next;
                }
                world.pick(0);
                more = world.state.sched.cpus[CPU].more;
                if world.state_of(sleeper) != EnvState::Sleeping {
                    break;
                }
            }
            let found = world.state_of(sleeper) != EnvState::Sleeping;
            assert!(found, "writes {writes}, ends {ends}, at {at}");
        }
    }
}

/// Who makes others ready without end, on another processor, which have no turns here: one that has
/// is found all the same, behind that user's sleepers.
#[test]
fn who_makes_others_ready_hides_nobody_behind_a_crowd() {
    let mut world = World::of(8192);
    let [many, few, third] = [(); 3].map(|()| user(&mut world));
    let one = process(&mut world, few);
    let [given, busy] = [(); 2].map(|()| process(&mut world, many));
    sleepers(&mut world, many, 60);
    // The round of the idle processor ends behind either of both.
    sleepers(&mut world, third, 1);
    let flags = FLAG_GIVEN_TIME as u8;
    world.state.envs.slots[EnvIndex::new(given)].flags |= flags;
    sched::turns_changed(&mut world.state, EnvIndex::new(given));
    for index in [1, one] {
        sleep_for_ever(&mut world, index);
    }
    world.on(1, busy);
    for idle in 60..68 {
        for _ in 0..idle {
            world.pick(0);
        }
        wake(&mut world, one);
        let (env, mut picks) = (world.id(given), 0);
        while world.pick(0) != one {
            picks += 1;
            assert!(picks < 64, "it is not found");
            assert_eq!(world.by(busy, Call::EnvHold { env }), OK);
            assert_eq!(world.by(busy, Call::EnvRelease { env }), OK);
        }
        sleep_for_ever(&mut world, one);
    }
}

/// One that was asked for something on processor 1 has left that by a short way before it heard: as
/// there, nobody has looked at what is asked. Another one runs there.
fn asked_and_gone(kills: bool) -> (World, [usize; 2]) {
    let mut world = World::new();
    let domain = world.domain();
    let [asked, next] = [(); 2].map(|()| world.spawn(domain));
    let cpu = CpuIndex::new(1);
    world.on(1, asked);
    let env = world.id(asked);
    let call = if kills { Call::EnvDestroy { env, word: 3 } } else { Call::EnvHold { env } };
    assert_eq!(world.by(1, call), OK);
    sched::leave(&mut world.state, &mut world.machine, cpu);
    sched::stay_ready(&mut world.state, EnvIndex::new(asked));
    let now = world.machine.now;
    sched::run(&mut world.state, cpu, EnvIndex::new(next), now);
    world.state.sched.cpus[cpu].slice_end_ns = now + SLICE_NS;
    (world, [asked, next])
}

/// What it was asked for is not forgotten when another one is asked there.
#[test]
fn what_is_asked_is_served_if_another_one_is_asked() {
    let (mut world, [asked, next]) = asked_and_gone(false);
    assert_eq!(world.by(1, Call::EnvHold { env: world.id(next) }), OK);
    world.pick(1);
    assert_eq!([asked, next].map(|index| world.state_of(index)), [EnvState::Held; 2]);
}

/// Nor is it done to one that runs on a further processor by then: that one has to hear of it.
#[test]
fn what_is_asked_goes_along_to_another_processor() {
    for kills in [false, true] {
        let (mut world, [asked, _]) = asked_and_gone(kills);
        let to = world.id(asked);
        assert_eq!(world.by(1, Call::Yield { to }), Outcome::Left);
        assert_eq!(world.state_of(asked), EnvState::Running);
        world.pick(1);
        assert_eq!(world.state_of(asked), EnvState::Running, "on processor 0");
        world.pick(0);
        let ends = if kills { EnvState::Dead } else { EnvState::Held };
        assert_eq!(world.state_of(asked), ends);
    }
}
