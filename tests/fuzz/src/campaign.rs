//! So many inputs from a seed: generated, or made of what came where no other did.

use std::cell::RefCell;
use std::fmt;

use code::argument::Outcome;

use crate::coverage::Seen;
use crate::input::Input;
use crate::mutation::mutated;
use crate::programs::Random;
use crate::subject::{Subject, Verdict};

/// Inputs that are kept for where they came, at most.
const KEPT_MAX: usize = 8192;
/// Inputs that are kept for a while, because they ran to their end: changes of them add up.
const PASSING: usize = 512;
/// Inputs that are generated before any is changed.
const FIRST: u64 = 200;
/// Percent that are generated later, with counters and without.
const GENERATED: [usize; 2] = [2, 30];

/// What became of the inputs.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    inputs: u64,
    refused: u64,
    returned: u64,
    exhausted: u64,
    outside: u64,
    kept: usize,
    edges: usize,
    counters: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inputs, refused, returned, exhausted, outside, kept, edges, counters } = self;
        write!(
            to,
            "{inputs} inputs: {refused} refused, {returned} returned, {exhausted} exhausted, \
             {outside} outside; {kept} kept, {edges} of {counters} branches"
        )
    }
}

thread_local! {
    /// What is being tried, for whoever tells of a panic.
    static CURRENT: RefCell<Option<Input>> = const { RefCell::new(None) };
}

/// From now on a panic says of which input it is.
fn tell_of_panics(seed: u64) {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        CURRENT.with(|current| {
            if let Ok(current) = current.try_borrow()
                && let Some(input) = &*current
            {
                eprintln!("reproduce: XOK_SEED={seed}\n{input}");
            }
        });
    }));
}

/// Tries one, and gives it back.
fn attempt(subject: &mut Subject, input: Input) -> (Verdict, Input) {
    CURRENT.set(Some(input));
    let verdict = CURRENT.with_borrow(|current| subject.run(current.as_ref().expect("just set")));
    (verdict, CURRENT.take().expect("just set"))
}

/// What inputs are made of.
#[derive(Default)]
struct Pool {
    /// Each came where none before it did.
    kept: Vec<Input>,
    /// The latest that ran to their end.
    passing: Vec<Input>,
}

impl Pool {
    fn pick(&self, random: &mut Random) -> &Input {
        let passing = !self.passing.is_empty() && random.chance(50);
        let from = if passing { &self.passing } else { &self.kept };
        &from[random.below(from.len())]
    }

    fn next(&self, random: &mut Random) -> Input {
        let (one, other) = (self.pick(random), self.pick(random));
        mutated(random, one, other)
    }

    fn put(random: &mut Random, pool: &mut Vec<Input>, most: usize, input: Input) {
        if pool.len() < most {
            pool.push(input);
        } else {
            let at = random.below(most);
            pool[at] = input;
        }
    }
}

/// Tries so many.
///
/// # Panics
/// With the first input that shows a difference.
pub fn run(seed: u64, inputs: u64) -> Counts {
    tell_of_panics(seed);
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut subject = Subject::new();
    let mut seen = Seen::new();
    let mut pool = Pool::default();
    let counted = seen.counters() != 0;
    let generated = GENERATED[usize::from(!counted)];
    let mut counts = Counts { inputs, counters: seen.counters(), ..Counts::default() };
    let mut report = 1 << 20;
    for number in 0..inputs {
        let first = number < FIRST;
        let input = if first || random.chance(generated) {
            Input::generated(&mut random)
        } else {
            pool.next(&mut random)
        };
        seen.begin();
        let (verdict, input) = attempt(&mut subject, input);
        let new = counted && seen.end();
        match verdict {
            Verdict::Refused => counts.refused += 1,
            Verdict::Ran(Outcome::Returned(_)) => counts.returned += 1,
            Verdict::Ran(Outcome::Exhausted) => counts.exhausted += 1,
            Verdict::Ran(Outcome::Outside) => counts.outside += 1,
        }
        if new || first {
            Pool::put(&mut random, &mut pool.kept, KEPT_MAX, input);
        } else if matches!(verdict, Verdict::Ran(Outcome::Returned(_))) && random.chance(5) {
            Pool::put(&mut random, &mut pool.passing, PASSING, input);
        }
        (counts.kept, counts.edges) = (pool.kept.len(), seen.edges);
        if number + 1 == report && report < inputs {
            println!("{}", Counts { inputs: report, ..counts.clone() });
            report *= 2;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::number;

    /// Few of them, without counters: `cargo xtask soak --part fuzz` tries the many.
    #[test]
    fn rbpf_the_interpreter_and_compiled_code_agree() {
        let inputs = number("XOK_INPUTS", if cfg!(debug_assertions) { 20_000 } else { 300_000 });
        let counts = run(number("XOK_SEED", 1), inputs);
        println!("{counts}");
        // A campaign that comes nowhere would prove nothing.
        assert!(counts.returned > inputs / 10, "{counts}");
        assert!(counts.exhausted > inputs / 200, "{counts}");
        assert!(counts.outside > inputs / 200, "{counts}");
        assert!(counts.refused > inputs / 10, "{counts}");
    }
}
