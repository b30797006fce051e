//! Every order in which entry code and holds of the lock can meet at the gates of one environment.
//!
//! The fast path of transfers is assembly (`kernel/src/fast.rs`); its steps on what processors
//! share are here once more, instruction by instruction, and `entry_code_does_what_is_tried`
//! compares the two. A processor's plain loads and stores order as acquire and release do. What a
//! hold does with the gates is a model of `kernel_core::gate::{fold, close}`; how it takes the lock
//! and the halves is the kernel's own.

#[path = "tried/entry.rs"]
mod entry;
mod tried;

use abi::atomic::{Atomic, Ordering};
use abi::shared::STORE;
use entry::store_lowest;
use lockfree::half::{FREE_BY_ENTRY, Half, TAKEN};
use lockfree::spin::Spin;
use loom::cell::Cell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use loom::thread;
use tried::{Tried, try_all};

/// Names: of the server, and of the client on each processor.
const SERVER: u64 = 7;
const CLIENTS: [u64; 2] = [11, 13];
/// What the caller exchanges the name for: where the callee lies.
const DISTANCE: u64 = 0x700;

/// In `gate`: `serves` below, `called_as` above (`kernel_core::gate::Gate`).
const ABOVE: u32 = 32;
const BELOW: u64 = (1 << ABOVE) - 1;

/// An environment that is called, and the processors' halves.
struct Machine {
    lock: Spin<Tried<AtomicU8>>,
    halves: [Half<Tried<AtomicU32>>; 2],
    gate: Tried<AtomicU64>,
    accepting: Tried<AtomicU64>,
    /// Its times, its context: whose registers it has, and how often it was called.
    server: Cell<(u64, u32)>,
    /// Has a hold closed the gates?
    closed: Cell<bool>,
    /// A mistake: a reply lets others call before all else has been stored.
    early: bool,
}

impl Machine {
    fn new(accepting: u64, early: bool) -> Self {
        let halves: [Half<Tried<AtomicU32>>; 2] = std::array::from_fn(|_| Half(Tried::default()));
        halves.iter().for_each(Half::begin);
        halves[0].open(0, [&halves[1]].into_iter());
        halves[1].open(1, [&halves[0]].into_iter());
        let (gate, word) = (Tried::<AtomicU64>::default(), Tried::<AtomicU64>::default());
        gate.store(SERVER << ABOVE, Ordering::Relaxed);
        word.store(accepting, Ordering::Relaxed);
        let (lock, server, closed) =
            (Spin::new(Tried::default(), Tried::default()), Cell::new((0, 0)), Cell::new(false));
        Self { lock, halves, gate, accepting: word, server, closed, early }
    }

    /// A 32-bit step on one half of the gate: as one on the whole, of which it leaves the rest.
    fn set_half(&self, shift: u32, value: u64) {
        let keep = !(BELOW << shift);
        let change = |old| Some(old & keep | value << shift);
        let _ = self.gate.0.fetch_update(Ordering::Release, Ordering::Relaxed, change);
    }

    fn give_back(&self, cpu: usize) {
        // mov word ptr [half], {free}
        store_lowest(&self.halves[cpu].0, 0xffff, FREE_BY_ENTRY.into());
    }

    /// Nothing was changed.
    fn otherwise(&self, cpu: usize) -> bool {
        // mov byte ptr [half], {unlocked}
        store_lowest(&self.halves[cpu].0, 0xff, 0);
        false
    }

    /// Entry code's half, if no hold has it.
    fn take(&self, cpu: usize) -> bool {
        // lock bts dword ptr [half], 0
        self.halves[cpu].0.fetch_or(TAKEN, Ordering::AcqRel) & TAKEN == 0
    }

    /// The client on this processor calls; did it go by this path?
    fn call(&self, cpu: usize) -> bool {
        if !self.take(cpu) {
            return false;
        }
        // lock cmpxchg [called_as], r11d
        let take = |old| (old >> ABOVE == SERVER).then_some(old & BELOW | DISTANCE << ABOVE);
        if self.gate.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_err() {
            return self.otherwise(cpu);
        }
        // btr dword ptr [accepting], 0
        let accepts = self.accepting.load(Ordering::Acquire) & 1 != 0;
        if !accepts {
            // mov [called_as], eax
            self.set_half(ABOVE, SERVER);
            return self.otherwise(cpu);
        }
        self.accepting.store(0, Ordering::Release);
        // mov [serves], rcx: both halves of the gate
        self.gate.store(CLIENTS[cpu], Ordering::Release);
        // Times and registers. Loom complains if the other processor is at them.
        let (nobody, times) = self.server.get();
        assert_eq!(nobody, 0, "it serves somebody else");
        assert!(!self.closed.get(), "its gates are closed");
        self.server.set((CLIENTS[cpu], times + 1));
        self.give_back(cpu);
        true
    }

    /// The server replies to this processor's client, which runs on; did it go by this path?
    fn reply(&self, cpu: usize) -> bool {
        if !self.take(cpu) {
            return false;
        }
        // cmp ecx, [serves]
        if self.gate.load(Ordering::Acquire) & BELOW != CLIENTS[cpu] {
            return self.otherwise(cpu);
        }
        // mov dword ptr [serves], 0
        self.set_half(0, 0);
        // mov qword ptr [accepting], 1
        self.accepting.store(1, Ordering::Release);
        if self.early {
            self.set_half(ABOVE, SERVER);
        }
        let (whom, times) = self.server.get();
        assert_eq!(whom, CLIENTS[cpu], "another one's registers");
        assert!(!self.closed.get(), "its gates are closed");
        self.server.set((0, times));
        // mov [called_as], ecx
        self.set_half(ABOVE, SERVER);
        self.give_back(cpu);
        true
    }

    /// A hold of the lock: `act` is told whom the server serves, and answers whom it does then. How
    /// often was it called since the last one?
    fn hold(&self, cpu: usize, act: impl FnOnce(u64) -> u64) -> u32 {
        let (own, of) = (&self.halves[cpu], |cpu: usize| &self.halves[cpu]);
        if !self.lock.try_take() {
            self.lock.wait(|| ());
        }
        let done = !own.is_quiet() && own.take_all(of);
        let (whom, times) = self.server.get();
        assert!(done || times == 0, "done and not noted");
        if !self.closed.get() {
            let open = if whom == 0 { SERVER << ABOVE } else { whom };
            assert_eq!(self.gate.load(Ordering::Relaxed), open, "half done");
        }
        self.server.set((act(whom), 0));
        if !own.may_stay(|| true) {
            own.give_all_back(of);
        }
        self.lock.give_back();
        times
    }
}

/// Clients on two processors call one server so often; how often did they get through, in all?
fn meet(switches: usize, [accepting, early]: [bool; 2], calls: u32, got: fn(u32)) {
    try_all(switches, move || {
        let machine = Arc::new(Machine::new(accepting.into(), early));
        let run = move |machine: &Machine, cpu: usize| {
            let calls = (0..calls).filter(|_| {
                let called = machine.call(cpu);
                assert!(!called || machine.reply(cpu), "nobody holds the lock");
                called
            });
            calls.count() as u32
        };
        let other = machine.clone();
        let second = thread::spawn(move || run(&other, 1));
        let all = run(&machine, 0) + second.join().expect("the second processor");
        assert_eq!(machine.server.get(), (0, all));
        assert_eq!(machine.gate.load(Ordering::Acquire), SERVER << ABOVE);
        got(all);
    });
}

#[test]
fn one_of_two_callers_has_the_callee() {
    meet(4, [true, false], 2, |all| assert!((2..=4).contains(&all)));
}

#[test]
#[should_panic]
fn who_accepts_before_all_is_stored_is_found_out() {
    meet(4, [true; 2], 2, |_| {});
}

/// One that sleeps for a call, but does not say so, is nobody's, and can be called still.
#[test]
fn who_does_not_accept_is_given_back() {
    meet(4, [false; 2], 2, |all| assert_eq!(all, 0));
}

/// A client calls so often, and gets its replies by this path or the long one, while a hold on
/// another processor closes the server's gates.
fn meet_a_hold(switches: usize, calls: u32) {
    try_all(switches, move || {
        let machine = Arc::new(Machine::new(1, false));
        let other = machine.clone();
        let client = thread::spawn(move || {
            let (mut made, mut noted) = (0, 0);
            for _ in 0..calls {
                if !other.call(1) {
                    continue;
                }
                made += 1;
                if !other.reply(1) {
                    noted += other.hold(1, |whom| {
                        assert_eq!(whom, CLIENTS[1]);
                        let open = if other.closed.get() { 0 } else { SERVER << ABOVE };
                        other.gate.store(open, Ordering::Relaxed);
                        other.accepting.store(1, STORE);
                        0
                    });
                }
            }
            (made, noted)
        });
        let mut noted = machine.hold(0, |whom| {
            machine.gate.store(0, Ordering::Relaxed);
            machine.closed.set(true);
            whom
        });
        let (made, by_client) = client.join().expect("the client");
        noted += by_client + machine.hold(0, |whom| whom);
        assert_eq!(noted, made);
        assert!(!machine.call(0) && !machine.call(1), "its gates are closed");
    });
}

#[test]
fn nobody_gets_through_closed_gates() {
    meet_a_hold(3, 1);
    meet_a_hold(3, 2);
}

/// What entry code does of all this, in order: a call; its reply; both ways back.
#[test]
fn entry_code_does_what_is_tried() {
    let text = include_str!("../../../kernel/src/fast.rs");
    let between = |from: &str, to: &str| {
        let begin = text.find(from).expect("a label") + from.len();
        let piece = &text[begin..begin + text[begin..].find(to).expect("a label")];
        let shared = ["{half}", "{called_as}", "{serves}", "{accepting}"];
        let steps = piece.lines().filter(|line| shared.iter().any(|word| line.contains(word)));
        let far =
            ["r11 + {slots} + ", "r11 + ", "rsp + ", "rip + entry_start + ", "rcx + ", "rax + "];
        let step =
            |line: &str| far.iter().fold(line.trim().into(), |s: String, f| s.replace(f, ""));
        steps.map(step).collect::<Vec<_>>()
    };
    let call = [
        "lock bts dword ptr [{half}], 0",
        "lock cmpxchg [{called_as}], r11d",
        "btr dword ptr [{accepting}], 0",
        "mov [{serves}], rcx",
    ];
    assert_eq!(between("\nentry_transfer:", "enter_callee\n"), call);
    let end = "mov word ptr [{half}], {free}";
    assert_eq!(between(".macro enter_callee\n", "iretq"), [end]);
    let reply = [
        "5:  cmp ecx, [{serves}]",
        "mov dword ptr [{serves}], 0",
        "mov qword ptr [{accepting}], 1",
    ];
    let begin = "Then the caller accepts the next transfer.\n";
    assert_eq!(between(begin, "resume_caller\n"), reply);
    assert_eq!(between(".macro resume_caller\n", "iretq"), ["mov [{called_as}], ecx", end]);
    let otherwise = ["10: mov [{called_as}], eax", "11: mov byte ptr [{half}], {unlocked}"];
    assert_eq!(between("look_again 16b, 12f", "jmp entry_switch"), otherwise);
}
