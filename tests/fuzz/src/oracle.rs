//! What rbpf says of a program: its outcome, what it stored, what it called, what is left.

use std::cell::{Cell, RefCell};

use code::argument::Outcome;
use code::signature::{AREAS, STACK, STACK_BYTES, Signature};

use crate::executable::World;
use crate::memory::Area;
use crate::translation::{HIDDEN_BYTES, NARROW, REMAINDER, translate};

/// Numbers of the functions that a translated program calls.
pub const PAY: u32 = 1000;
pub const DIVIDE: u32 = 1001;
/// The area of what is put aside: beyond all that a program can name by luck.
const HIDDEN: usize = 0x1bd1;

thread_local! {
    /// Functions of rbpf are plain ones: what they work on lies here.
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static SPENT: Cell<bool> = const { Cell::new(false) };
    static WORLD: RefCell<World> = RefCell::default();
}

/// Takes what a jump or a call costs; other than 0: it is not there.
fn pay(cost: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    let left = LEFT.get();
    SPENT.set(cost > left);
    LEFT.set(left.saturating_sub(cost));
    u64::from(cost > left)
}

/// Signed division as RFC 9669 has it, in numbers of twice the width.
fn divide(a: u64, b: u64, kind: u64, _: u64, _: u64) -> u64 {
    let narrow = kind & NARROW as u64 != 0;
    let wide = |word: u64| if narrow { i128::from(word as i32) } else { i128::from(word as i64) };
    let (a, b) = (wide(a), wide(b));
    let result = match (kind & REMAINDER as u64 != 0, b) {
        (false, 0) => 0,
        (false, b) => a / b,
        (true, 0) => a,
        (true, b) => a % b,
    };
    if narrow { u64::from(result as u32) } else { result as u64 }
}

fn one(a: u64, b: u64, _: u64, _: u64, _: u64) -> u64 {
    WORLD.with_borrow_mut(|world| world.call(1, &[a, b]))
}

fn two(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    WORLD.with_borrow_mut(|world| world.call(2, &[]))
}

fn three(a: u64, b: u64, c: u64, d: u64, e: u64) -> u64 {
    WORLD.with_borrow_mut(|world| world.call(3, &[a, b, c, d, e]))
}

/// rbpf's own look at a program is for its own rules: here our verifier is the one that is tried.
fn accept(_: &[u8]) -> Result<(), rbpf::lib::Error> {
    Ok(())
}

/// The memory of the areas, and the machine that runs on it.
pub struct Oracle {
    areas: Vec<(usize, Area)>,
    hidden: Area,
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub struct End {
    pub outcome: Outcome,
    /// What is left of the budget.
    pub budget: u64,
    pub world: World,
}

impl Oracle {
    /// The one oracle of the process: its memory is at fixed addresses.
    pub fn new() -> Self {
        let numbers = [2, 3, 5, STACK];
        let areas = numbers.into_iter().map(|number| (number, Area::new(number))).collect();
        Self { areas, hidden: Area::new(HIDDEN) }
    }

    /// The memory of a parameter.
    pub fn memory(&mut self, number: usize, bytes: usize) -> &mut [u8] {
        let found = self.areas.iter_mut().find(|(area, _)| *area == number);
        found.expect("the tests' signature has it").1.bytes(bytes)
    }

    /// Runs a program with these words for the parameters that are numbers; the other memory is as
    /// it was left.
    pub fn run(&mut self, program: &[u8], signature: &Signature, words: [u64; 2]) -> End {
        self.memory(STACK, STACK_BYTES as usize).fill(0);
        LEFT.set(signature.budget.into());
        SPENT.set(false);
        WORLD.set(World::default());
        let mut registers = vec![];
        for (register, value) in
            [(1, words[0]), (2, 2 << 32), (3, 3 << 32), (4, words[1]), (5, 5 << 32)]
        {
            if signature.parameter(register - 1).is_some() {
                registers.push((register as u8, value));
            }
        }
        let cost = |number| signature.call(number).map_or(0, |(_, call)| call.cost);
        let hidden = self.hidden.address();
        let translated = translate(program, &registers, hidden, cost);
        let result = self.execute(&translated, signature);
        let outcome = match result {
            Some(_) if SPENT.get() => Outcome::Exhausted,
            Some(value) => Outcome::Returned(value),
            None => Outcome::Outside,
        };
        End { outcome, budget: LEFT.get(), world: WORLD.take() }
    }

    /// rbpf's answer; `None`: it has refused an access.
    fn execute(&self, translated: &[u8], signature: &Signature) -> Option<u64> {
        let mut vm = rbpf::EbpfVmNoData::new(None).expect("no program yet");
        vm.set_verifier(accept).expect("no program yet");
        vm.set_program(translated).expect("what is translated is accepted");
        let helpers: [(u32, rbpf::Helper); 5] =
            [(1, one), (2, two), (3, three), (PAY, pay), (DIVIDE, divide)];
        for (number, helper) in helpers {
            vm.register_helper(number, helper).expect("it is interpreted");
        }
        for number in 1..AREAS {
            let Some((bytes, _)) = signature.area(number) else { continue };
            let at = (number as u64) << 32;
            vm.register_allowed_memory(at..at + u64::from(bytes));
        }
        let hidden = self.hidden.address();
        vm.register_allowed_memory(hidden..hidden + HIDDEN_BYTES as u64);
        vm.execute_program().ok()
    }
}
