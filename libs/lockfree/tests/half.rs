//! Every order in which holds of the kernel's lock and entry code on other processors can meet.
//!
//! Entry code is assembly (`kernel/src/fast.rs`); what it does to its half is here once more,
//! instruction by instruction, and `entry_code_does_what_is_tried` compares the two.

#[path = "tried/entry.rs"]
mod entry;
mod tried;

use abi::atomic::{Atomic, Ordering};
use entry::store_lowest;
use lockfree::half::{FREE_BY_ENTRY, Half, SHUT, TAKEN};
use lockfree::spin::Spin;
use loom::cell::Cell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU32};
use loom::thread;
use tried::{Tried, try_all};

const CPUS: usize = 2;

/// What processors share: the lock, the halves, and what is changed with them.
struct Kernel {
    lock: Spin<Tried<AtomicU8>>,
    halves: [Half<Tried<AtomicU32>>; CPUS],
    /// What entry code has done on each processor and nobody knows of yet.
    done: [Cell<u32>; CPUS],
    /// What who had the lock knows.
    known: Cell<u32>,
}

impl Kernel {
    fn new() -> Self {
        let halves = std::array::from_fn(|_| Half(Tried::default()));
        halves.iter().for_each(Half::begin);
        let done = std::array::from_fn(|_| Cell::new(0));
        let known = Cell::new(0);
        Self { lock: Spin::new(Tried::default(), Tried::default()), halves, done, known }
    }

    /// Entry code on this processor: has it gone the fast path?
    fn enter(&self, cpu: usize, changes: bool) -> bool {
        let word = &self.halves[cpu].0;
        for _ in 0..2 {
            // lock bts dword ptr [half], 0
            if word.fetch_or(TAKEN, Ordering::AcqRel) & TAKEN == 0 {
                if !changes {
                    // mov byte ptr [half], {unlocked}
                    store_lowest(word, 0xff, 0);
                    return false;
                }
                // Loom complains if anybody else is at it.
                self.done[cpu].set(self.done[cpu].get() + 1);
                // mov word ptr [half], {free}
                store_lowest(word, 0xffff, FREE_BY_ENTRY.into());
                return true;
            }
            // test byte ptr [half], {shut}
            if word.load(Ordering::Acquire) & SHUT != 0 {
                return false;
            }
            Tried::<AtomicU32>::pause();
        }
        false
    }

    /// A hold of the lock, as `kernel/src/{run,locked}.rs` have it: knows of everything that has
    /// been done; opens this processor's half, or not; the fast path may be gone behind it, or not.
    fn hold(&self, cpu: usize, opens: bool, may: bool) {
        let (own, of) = (&self.halves[cpu], |cpu: usize| &self.halves[cpu]);
        if !self.lock.try_take() {
            self.lock.wait(|| ());
        }
        let mut new = 0;
        if !own.is_quiet() && own.take_all(of) {
            new = self.done.iter().map(|done| done.replace(0)).sum();
        }
        // Loom complains if anybody else is at any of them.
        assert!(self.done.iter().all(|done| done.get() == 0), "done and not known of");
        self.known.set(self.known.get() + new);
        if opens && !own.is_open() {
            let others = (0..CPUS).filter(|other| *other != cpu).map(of);
            own.open(cpu, others);
        }
        if !own.may_stay(|| may) {
            if may {
                own.give_all_back(of);
            } else {
                self.halves.iter().for_each(Half::begin);
            }
        }
        self.lock.give_back();
    }
}

/// What a processor does.
#[derive(Clone, Copy)]
enum Step {
    /// Entry code, and the long way if the fast path is not open.
    Enter,
    /// Entry code that finds a gate closed.
    Try,
    /// A hold that opens the half.
    Open,
    /// One that leaves all as it is.
    Hold,
    /// One behind which the fast path may not be gone.
    Shut,
}

/// Processors that do these steps: each sees all that the others have done before.
fn processors(switches: usize, steps: [&'static [Step]; CPUS]) {
    use Step::{Enter, Hold, Open, Shut, Try};
    try_all(switches, move || {
        let kernel = Arc::new(Kernel::new());
        let run = |kernel: &Kernel, cpu: usize, steps: &[Step]| {
            steps
                .iter()
                .map(|step| match step {
                    Enter => kernel.enter(cpu, true).then_some(()).map_or_else(
                        || {
                            kernel.hold(cpu, false, true);
                            0
                        },
                        |()| 1,
                    ),
                    Try => u32::from(kernel.enter(cpu, false)),
                    Open | Hold | Shut => {
                        kernel.hold(cpu, matches!(step, Open), !matches!(step, Shut));
                        0
                    }
                })
                .sum::<u32>()
        };
        // Both are open to begin with.
        (0..CPUS).for_each(|cpu| kernel.hold(cpu, true, true));
        let other = kernel.clone();
        let second = thread::spawn(move || run(&other, 1, steps[1]));
        let first = run(&kernel, 0, steps[0]);
        let made = first + second.join().expect("the second processor");
        kernel.hold(0, false, true);
        assert_eq!(kernel.known.get(), made);
    });
}

#[test]
fn one_holds_at_a_time() {
    use Step::Hold;
    processors(4, [&[Hold, Hold], &[Hold, Hold]]);
}

#[test]
fn who_holds_knows_what_entry_code_has_done() {
    use Step::{Enter, Hold};
    processors(4, [&[Enter, Enter], &[Hold, Hold]]);
}

#[test]
fn entry_code_on_two_processors_and_holds() {
    use Step::{Enter, Hold, Try};
    processors(3, [&[Enter, Hold], &[Enter, Try, Hold]]);
}

#[test]
fn what_is_shut_is_shut_and_opened_again() {
    use Step::{Enter, Hold, Open, Shut};
    processors(3, [&[Enter, Enter, Hold], &[Shut, Open, Enter]]);
    processors(3, [&[Shut, Open, Enter], &[Open, Shut, Enter]]);
}

/// The instructions by which entry code changes its half or looks at it, in order.
#[test]
fn entry_code_does_what_is_tried() {
    let text = include_str!("../../../kernel/src/fast.rs");
    let half = text.lines().filter(|line| line.contains("entry_start + {half}"));
    let half: Vec<String> =
        half.map(|line| line.trim().replace("[rip + entry_start + {half}]", "[half]")).collect();
    let take = "lock bts dword ptr [half], 0";
    let give = "mov word ptr [half], {free}";
    assert_eq!(
        half,
        [
            // Ends of a transfer and of a reply give it back.
            give,
            give,
            // A transfer takes it.
            take,
            // So does a yield, which gives it back.
            take,
            give,
            // Who finds it taken looks whether it is shut, and again.
            "8:  test byte ptr [half], {shut}",
            "test byte ptr [half], {taken}",
            // Nothing was changed.
            "11: mov byte ptr [half], {unlocked}",
        ]
    );
}
