//! Every order in which yields by entry code can meet holds of the lock on another processor.
//!
//! Two environments take turns on a processor by entry code (`kernel/src/fast.rs`), whose steps on
//! what processors share are here once more, instruction by instruction, which
//! `entry_code_does_what_is_tried` compares. Meanwhile another processor posts to one of them:
//! the lock and the halves are the kernel's own; what it does with them is a model of
//! `kernel_core::gate::{fold, close}` and `kernel_core::sleep::{post, notify}`.

#[path = "tried/entry.rs"]
mod entry;
mod tried;

use abi::atomic::{Atomic, Ordering};
use abi::shared::{LOAD, STEP};
use entry::store_lowest;
use lockfree::half::{FREE_BY_ENTRY, Half, TAKEN};
use lockfree::spin::Spin;
use loom::cell::Cell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use loom::thread;
use tried::{Tried, try_all};

/// The processor on which somebody posts to the second one, and that on which the two take turns.
const POSTER: usize = 0;
const TURNS: usize = 1;
/// In `called_as` (`kernel_core::gate`).
const CLOSED: u32 = 0;
const MAY_YIELD: u32 = 1 << 30;
const YIELDED: u32 = 2 << 30;
/// The name of an environment, for those who call it.
const NAME: u32 = 6;

struct Machine {
    lock: Spin<Tried<AtomicU8>>,
    halves: [Half<Tried<AtomicU32>>; 2],
    called_as: [Tried<AtomicU32>; 2],
    /// Posted bits, and whether an interrupt for them has been sent.
    pending: [Tried<AtomicU64>; 2],
    interrupt: Tried<AtomicU32>,
    /// Which of the two runs, and yields that nobody has noted yet.
    runs: Cell<usize>,
    yields: Cell<u32>,
    /// Has somebody posted to the second one, so that a yield to it must be looked at?
    posted: Cell<bool>,
    noted: Cell<u32>,
}

impl Machine {
    fn new() -> Self {
        let halves: [Half<Tried<AtomicU32>>; 2] = std::array::from_fn(|_| Half(Tried::default()));
        halves.iter().for_each(Half::begin);
        halves[0].open(0, [&halves[1]].into_iter());
        halves[1].open(1, [&halves[0]].into_iter());
        let called_as: [Tried<AtomicU32>; 2] = Default::default();
        called_as[0].store(MAY_YIELD, Ordering::Relaxed);
        called_as[1].store(YIELDED, Ordering::Relaxed);
        Self {
            lock: Spin::new(Tried::default(), Tried::default()),
            halves,
            called_as,
            pending: Default::default(),
            interrupt: Tried::default(),
            runs: Cell::new(0),
            yields: Cell::new(0),
            posted: Cell::new(false),
            noted: Cell::new(0),
        }
    }

    /// Entry code's half, if no hold has it.
    fn take(&self, cpu: usize) -> bool {
        // lock bts dword ptr [half], 0
        self.halves[cpu].0.fetch_or(TAKEN, Ordering::AcqRel) & TAKEN == 0
    }

    /// Nothing was changed.
    fn otherwise(&self, cpu: usize) -> bool {
        // mov byte ptr [half], {unlocked}
        store_lowest(&self.halves[cpu].0, 0xff, 0);
        false
    }

    /// Who runs yields to the other one; by entry code?
    fn yields(&self, own: usize) -> bool {
        let other = 1 - own;
        if !self.take(TURNS) {
            return false;
        }
        // cmp dword ptr [called_as], {may_yield}; cmp dword ptr [called_as], {yielded}
        let gates = [own, other].map(|one| self.called_as[one].load(Ordering::Acquire));
        // cmp qword ptr [pending], 0
        if gates != [MAY_YIELD, YIELDED] || self.pending[other].load(Ordering::Acquire) != 0 {
            return self.otherwise(TURNS);
        }
        // mov dword ptr [called_as], {yielded}; mov dword ptr [called_as], {may_yield}
        self.called_as[own].store(YIELDED, Ordering::Release);
        self.called_as[other].store(MAY_YIELD, Ordering::Release);
        // Times, registers, who runs. Loom complains if somebody else is at them.
        assert_eq!(self.runs.get(), own);
        assert!(other != 1 || !self.posted.get(), "nobody looks at the bit");
        self.runs.set(other);
        self.yields.set(self.yields.get() + 1);
        // mov word ptr [half], {free}
        store_lowest(&self.halves[TURNS].0, 0xffff, FREE_BY_ENTRY.into());
        true
    }

    /// Somebody on the other processor would call the first one by its name: it does not accept.
    fn call(&self) {
        if self.take(POSTER) {
            // lock cmpxchg [called_as], r11d
            let word = &self.called_as[0];
            let taken =
                word.compare_exchange(NAME, CLOSED, Ordering::AcqRel, Ordering::Acquire).is_ok();
            assert!(!taken, "it does not sleep");
            self.otherwise(POSTER);
        }
    }

    /// A hold of the lock: all that was done is noted, and `act` told who runs.
    fn hold(&self, cpu: usize, act: impl FnOnce(usize)) {
        let (own, of) = (&self.halves[cpu], |cpu: usize| &self.halves[cpu]);
        if !self.lock.try_take() {
            self.lock.wait(|| ());
        }
        if !own.is_quiet() && own.take_all(of) {
            self.noted.set(self.noted.get() + self.yields.replace(0));
        }
        assert_eq!(self.yields.get(), 0, "done and not noted");
        act(self.runs.get());
        if !own.may_stay(|| true) {
            own.give_all_back(of);
        }
        self.lock.give_back();
    }

    /// `sleep::post` to the second one.
    fn post(&self) {
        self.hold(POSTER, |runs| {
            self.called_as[1].store(CLOSED, Ordering::Relaxed);
            self.pending[1].fetch_or(1, STEP);
            self.posted.set(true);
            if runs == 1 {
                self.interrupt.swap(1, Ordering::SeqCst);
            }
        });
    }

    /// A yield by the long way, which looks at the bits of who is next, and opens the gates if it
    /// has none. Has it one?
    fn yields_slowly(&self, own: usize) -> bool {
        let mut told = false;
        self.hold(TURNS, |runs| {
            assert_eq!(runs, own);
            self.runs.set(1 - own);
            told = self.pending[1 - own].load(LOAD) != 0;
            let gates = if self.posted.get() { [CLOSED; 2] } else { [YIELDED, MAY_YIELD] };
            self.called_as[own].store(gates[0], Ordering::Relaxed);
            self.called_as[1 - own].store(gates[1], Ordering::Relaxed);
        });
        told
    }
}

fn meet(switches: usize, yields: usize) {
    try_all(switches, move || {
        let machine = Arc::new(Machine::new());
        let other = machine.clone();
        let poster = thread::spawn(move || {
            other.call();
            other.post();
        });
        let (mut own, mut told) = (0, false);
        for _ in 0..yields {
            if !machine.yields(own) {
                told |= machine.yields_slowly(own);
            }
            own = 1 - own;
        }
        poster.join().expect("who posts");
        machine.hold(TURNS, |runs| assert_eq!(runs, own));
        // The second one runs, and was told or is just told; or whoever yields to it is looked at.
        let interrupted = machine.interrupt.load(Ordering::Relaxed) != 0;
        assert!(own != 1 || told || interrupted, "it runs on and was not told");
        assert!(!machine.yields(0), "its gate is open");
    });
}

#[test]
fn a_post_meets_those_who_take_turns() {
    meet(3, 1);
    meet(3, 2);
    meet(2, 3);
}

/// What entry code does of all this, in order.
#[test]
fn entry_code_does_what_is_tried() {
    let text = include_str!("../../../kernel/src/fast.rs");
    let begin = text.find("\nentry_yield:").expect("a label");
    let piece = &text[begin..];
    let piece = &piece[..piece.find("iretq").expect("its end")];
    let shared = ["{half}", "{called_as}", "{pending}", "{events}", "{mask}"];
    let steps = piece.lines().filter(|line| shared.iter().any(|word| line.contains(word)));
    let steps: Vec<&str> = steps.map(str::trim).collect();
    let expected = [
        "lock bts dword ptr [rip + entry_start + {half}], 0",
        "cmp dword ptr [rsp + {called_as}], {may_yield}",
        "cmp dword ptr [r11 + {called_as}], {yielded}",
        "cmp qword ptr [rcx + {mask}], 0",
        "cmp qword ptr [rcx + {pending}], 0",
        "cmp qword ptr [rcx + {events}], 0",
        "mov dword ptr [rsp + {called_as}], {yielded}",
        "mov dword ptr [r11 + {called_as}], {may_yield}",
        "mov word ptr [rip + entry_start + {half}], {free}",
    ];
    assert_eq!(steps, expected);
}
