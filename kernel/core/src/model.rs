//! A million random calls, and after each of them everything that must always be true.
//!
//! ```text
//!  XOK_SEED=7 XOK_STEPS=1000000 cargo test --release -p kernel-core model
//! ```
//! The seed is drawn anew each time and printed, unless `XOK_SEED` says one.
//! The world is small (some hundred frames, three accounts, six domains, a few pages of each) so
//! that everything runs out, collides and is reused. Three processors act in turn; each has a
//! translation buffer and a cache of the way to level-1 tables, filled at random and emptied only
//! by what the core asks to be flushed, late on processors other than the actor's.

mod act;
mod bytes;
mod calls;
mod check;
mod early;
mod folds;
mod methods;
mod names;
mod network;
mod processor;
mod properties;
mod revocations;
mod share;
mod visits;
mod wild;

use crate::boot::Sizes;
use crate::fake::{self, FakeMachine};
use crate::index::{AccountIndex, DomainIndex};
use crate::state::State;
use crate::{account, domain};
use abi::call::TABLE;
use abi::capability::{ALL, Capability, Name};
use abi::id::{AccountId, DomainId, Frame};
use abi::limits::{CAPABILITIES, RESOURCES};
use abi::published::AccountRecord;
use abi::word::Which;
use core::ops::Range;
use names::Lives;
use processor::Processors;
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

const FRAMES: usize = 160;
/// The same with frames that can be a large page.
const FRAMES_LARGE: usize = 1024;
const DOMAINS: usize = 6;
/// Steps between two walks through everything.
const WALK: u64 = 64;
/// Steps within which the first environment runs: a world that stands still tests nothing.
const STILL: u64 = 20_000;
/// Steps of which one in twelve makes a call that succeeds, from the first to the last.
const WINDOW: u64 = 1_000_000;

/// Numbers from a seed (splitmix64, Steele and others 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// What the model knows of a domain besides what the state says.
struct Known {
    index: DomainIndex,
    id: DomainId,
    capabilities: [Capability; CAPABILITIES],
    /// Pages that may be written, and the frame each was when that was allowed.
    writable: HashMap<u64, Frame>,
    /// Tables at wild addresses, by level: they would fill memory if nobody took them away.
    strays: Vec<(u8, u64)>,
}

impl Known {
    fn new(state: &State, index: DomainIndex, id: DomainId) -> Self {
        let capabilities = state.domains.record(index).capabilities;
        Self { index, id, capabilities, writable: HashMap::new(), strays: Vec::new() }
    }
}

/// The state, the machine, and what the model remembers.
struct Model {
    state: State,
    machine: FakeMachine,
    random: Random,
    processors: Processors,
    domains: Vec<Known>,
    /// Ids of domains that have ended.
    stale: Vec<DomainId>,
    /// Names that objects have had, and those that were there after the last step.
    names: names::Names,
    /// How long places last.
    lives: Lives,
    /// Ids of environments that were kept after the last step.
    kept: names::Kept,
    /// Pins and plain references that the model holds.
    pins: Vec<Frame>,
    references: Vec<Frame>,
    vectors: Vec<Frame>,
    /// The frames of a large page, which the model refers to; or none.
    block: Range<u32>,
    /// How many frames there are, and how many of them are the kernel's.
    frames: usize,
    kernel_frames: u32,
    /// How often a table was folded, a frame got a type, an environment went to another domain.
    folded: u64,
    typed: u64,
    visits: u64,
    /// How often a last holder asked for a frame that a processor still remembered for another.
    early: u64,
    /// The account whose program memory the frame last was; 0: none's, or registers.
    last: Vec<AccountIndex>,
    /// What dying accounts were charged at the last walk, by index, with their ids.
    dying: HashMap<usize, (u64, [u32; RESOURCES])>,
    /// What accounts, by index, were charged and could be after the last step, with their ids.
    charged: Vec<AccountRecord>,
    /// Answers by error number, 0 for done: a model that only meets refusals tests nothing.
    answers: [u64; 40],
    /// Calls by row, those refused and those done; and those of them that name the first account.
    rows: [[u64; 2]; TABLE.len()],
    on_first: [[u64; 2]; TABLE.len()],
    /// Calls that ended in a page fault of their caller's.
    faults: u64,
    /// Calls with any words that were made.
    wild_calls: u64,
    /// The step at which the first environment was last seen running.
    ran: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        Self::with(seed, FRAMES, Lives::SomeShort)
    }

    /// A world of so many frames: of more than the usual ones, only a block of 512 is to be had.
    fn with(seed: u64, frames: usize, lives: Lives) -> Self {
        let hole = FRAMES as u32..frames.saturating_sub(512).max(FRAMES) as u32;
        let kernel_frames = fake::KERNEL_FRAMES + hole.len() as u32;
        let (domains, accounts, regions, filters, rings) = (8, 12, 8, 12, 8);
        let sizes = Sizes::for_frames(frames);
        let sizes = match lives {
            Lives::SomeShort => sizes,
            Lives::AllShort => Sizes { domains, accounts, regions, filters, rings, ..sizes },
        };
        let (state, machine) = fake::with_sizes(sizes, hole);
        assert!(sizes.domains > DOMAINS);
        let mut model = Self {
            state,
            machine,
            random: Random(seed),
            processors: Processors::default(),
            domains: Vec::new(),
            stale: Vec::new(),
            names: names::Names::default(),
            lives,
            kept: names::Kept::default(),
            pins: Vec::new(),
            references: Vec::new(),
            vectors: Vec::new(),
            last: vec![AccountIndex::NONE; frames],
            block: 0..0,
            frames,
            kernel_frames,
            folded: 0,
            typed: 0,
            visits: 0,
            early: 0,
            dying: HashMap::new(),
            charged: Vec::new(),
            answers: [0; 40],
            rows: [[0; 2]; TABLE.len()],
            on_first: [[0; 2]; TABLE.len()],
            faults: 0,
            wild_calls: 0,
            ran: 0,
        };
        model.shorten_lives(lives);
        model.accounts();
        for payer in [1, 2, 3] {
            model.domain(AccountIndex::new(payer));
        }
        if frames > FRAMES {
            model.take_block();
        }
        model.start();
        model
    }

    /// Account 2 below 1, account 3 below 2, with limits that bite; again when they have died.
    fn accounts(&mut self) {
        let root = Capability { rights: ALL, zero: 0, name: Name::ROOT };
        self.limit(
            &root,
            AccountId::new(1, 0),
            [u32::MAX, 10, 6, 8, 40, 8, 6, 60, 40, 9, 63, 60, 20, 9, 6],
        );
        for (index, frames) in [(2, 80), (3, 40)] {
            let parent = AccountId(self.state.published.accounts[index - 1].id);
            let which = Which::This(index as u32);
            if let Ok(id) = account::allocate(&mut self.state, &root, which, parent) {
                self.limit(
                    &root,
                    AccountId(id),
                    [frames, 6, 4, 4, 8, 3, 3, 16, 8, 3, 30, 9, 4, 1, 2],
                );
            }
        }
    }

    fn limit(&mut self, named: &Capability, id: AccountId, limits: [u32; RESOURCES]) {
        for (resource, limit) in limits.into_iter().enumerate() {
            // Half of it is kept, if there is room: not of the frames, of which it has most.
            let reserve = if id.index() == 1 { 0 } else { limit / 2 };
            let given = [(limit, reserve), (limit, 0)].into_iter().any(|both| {
                account::limit(&mut self.state, named, id, resource as u16, both).is_ok()
            });
            assert!(given);
        }
    }

    /// A domain of this account, if there is room; the first one has the root name too.
    fn domain(&mut self, payer: AccountIndex) {
        let asked = domain::Request {
            which: Which::Any,
            account: AccountId::NONE,
            root: Which::Any,
            window: 0,
            bytes: u64::MAX,
        };
        let guard = Name::of(&[256 + payer.link()]);
        let (state, machine) = (&mut self.state, &mut self.machine);
        let Ok(id) = domain::create(state, machine, payer, guard, &asked) else { return };
        let index = id.index();
        if self.domains.is_empty() {
            let root = Capability { rights: ALL, zero: 0, name: Name::ROOT };
            state.domains.records[DomainIndex::new(index)].capabilities[1] = root;
        }
        self.domains.push(Known::new(&self.state, DomainIndex::new(index), id));
    }

    fn step(&mut self, step: u64) {
        // Some begin with little room left, so that what is long is cut anywhere.
        let spent = self.random.below(2 * crate::work::PIECE as usize) as u32;
        self.state.spent = spent.saturating_sub(crate::work::PIECE);
        self.act();
        self.settle();
        self.check_step();
        self.check_alive(step);
        if step.is_multiple_of(WALK) {
            self.check_all();
        }
    }
}

/// A number from the environment.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}

/// The seed asked for (`XOK_SEED`), or one that nobody has had. An interpreter has no clock.
pub(crate) fn seed() -> u64 {
    if cfg!(miri) {
        return number("XOK_SEED", 1);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos());
    let seed = number("XOK_SEED", Random(now as u64).next() >> 16);
    eprintln!("seed {seed}");
    seed
}

/// Prints the line that reproduces a failure.
struct Reproduce {
    seed: u64,
    step: u64,
}

impl Drop for Reproduce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, step } = self;
            eprintln!(
                "reproduce: XOK_SEED={seed} XOK_STEPS={} cargo test -p kernel-core model",
                *step + 1
            );
        }
    }
}

/// How many times as long a world may go on that has not done all that it is to do.
const LONGER: u64 = 8;

fn run(model: Model, seed: u64, steps: u64) -> Model {
    run_until(model, seed, steps, |_| true)
}

/// So many steps, and more until the world has done enough.
fn run_until(
    mut model: Model,
    seed: u64,
    steps: u64,
    has_done_enough: impl Fn(&Model) -> bool,
) -> Model {
    let mut place = Reproduce { seed, step: 0 };
    let mut done = 0;
    for step in 0..LONGER * steps {
        if step >= steps && has_done_enough(&model) {
            break;
        }
        place.step = step;
        model.step(step);
        if (step + 1).is_multiple_of(WINDOW) {
            let succeeded = model.answers[0] - core::mem::replace(&mut done, model.answers[0]);
            assert!(succeeded > WINDOW / 12, "too few calls succeed: {:?}", model.answers);
        }
    }
    model.check_all();
    model
}

#[test]
fn random_calls_keep_every_invariant() {
    let steps = match (cfg!(miri), cfg!(debug_assertions)) {
        (true, _) => 300,
        (false, true) => 40_000,
        (false, false) => 1_000_000,
    };
    let steps = number("XOK_STEPS", steps);
    let seed = seed();
    let is_long = steps >= 1_000_000;
    // The rarest row is done five times in a million steps, or by chance not once.
    let has_done_enough = |model: &Model| !is_long || model.never_done().is_empty();
    let model = run_until(Model::new(seed), seed, steps, has_done_enough);
    if is_long {
        use abi::error::Error;
        let met = |error: Error| model.answers[error as usize];
        let (typed, visits) = (model.typed, model.visits);
        assert!(typed > 50 && visits > 20, "{typed} types and {visits} visits");
        assert!(model.early > 50, "too few last holders come early: {}", model.early);
        assert!(model.faults > 10, "too few calls fault: {}", model.faults);
        for error in [
            Error::BadArgument,
            Error::BadAddress,
            Error::NotPermitted,
            Error::NoSuchFrame,
            Error::Taken,
            Error::Exhausted,
            Error::OverQuota,
            Error::WrongState,
            Error::Pinned,
            Error::WrongType,
            Error::NoTable,
            Error::NotEmpty,
            Error::TooLarge,
            Error::NotVerified,
            Error::Refused,
        ] {
            assert!(met(error) > 10, "{} hardly met: {:?}", error.name(), model.answers);
        }
        model.check_rows();
    }
}

/// Where serials have two bits, as it were: the places of small tables are used up after four
/// objects each, until a world can make hardly anything.
#[test]
fn random_calls_with_two_bit_serials_keep_every_invariant() {
    // Steps of a world, and of all.
    let (short, all) = match (cfg!(miri), cfg!(debug_assertions)) {
        (true, _) => (300, 300),
        (false, true) => (8_000, 16_000),
        (false, false) => (32_000, 1_000_000),
    };
    let all = number("XOK_STEPS", all);
    let seed = seed();
    let (mut retired, mut worlds) = ([0; names::PLACES], 0);
    while worlds * short < all {
        let seed = seed + worlds;
        let mut model = run(Model::with(seed, FRAMES, Lives::AllShort), seed, short);
        retired.iter_mut().zip(model.retired()).for_each(|(all, one)| *all += one);
        worlds += 1;
    }
    let few = retired.iter().any(|&count| count < worlds as usize / 2);
    assert!(!few || all < 1_000_000, "{retired:?} places are used up in {worlds} worlds");
}

/// The same where 512 frames can be folded in every space, by whoever maps them all.
#[test]
fn random_calls_on_large_pages_keep_every_invariant() {
    let steps = match (cfg!(miri), cfg!(debug_assertions)) {
        (true, _) => 100,
        (false, true) => 5_000,
        (false, false) => 100_000,
    };
    let steps = number("XOK_STEPS", steps);
    let seed = seed();
    let model = run(Model::with(seed, FRAMES_LARGE, Lives::SomeShort), seed, steps);
    let least = if cfg!(miri) { 0 } else { 1 + steps / 1000 };
    assert!(model.folded >= least, "hardly anything is folded: {}", model.folded);
}
