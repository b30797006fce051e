//! Time is bounded: loops end where the budget does, for both who run them, and not before.

use code::argument::{Argument, Outcome};
use code::builder::Builder;
use code::instruction::{Condition, Operation, Register, Size};
use code::interpreter::interpret;
use code::signature::{BUDGET_MAX, Parameter, Rights, Signature};
use code::verifier::{Point, verify};

use crate::executable::{Executable, World};
use crate::programs::GENERAL;

const R0: Register = Register::R0;
const R1: Register = Register::R1;

/// Counts in memory for ever: slot 0 loads, 1 adds, 2 stores, 3 goes back to 0.
fn for_ever() -> Vec<u8> {
    let mut builder = Builder::new();
    let again = builder.label();
    builder.place(again).load(Size::B8, R0, R1, 0).compute(Operation::Add, R0, 1);
    builder.store(Size::B8, R1, 0, R0).jump(again);
    builder.finish().expect("it is placed")
}

/// Runs a program on one word of memory both ways; answers the outcome, the word and the steps.
fn run(program: &[u8], budget: u32) -> (Outcome, u64, u64) {
    let parameters = [Parameter::area(8, Rights::Write)];
    let signature = Signature { parameters: &parameters, budget, ..GENERAL };
    let mut points = [Point::default(); 32];
    let mut function = verify(program, &signature, &mut points).expect("a good program");
    let mut memory = [[0; 8]; 2];
    let [interpreted, compiled] = &mut memory;
    let mut world = World::default();
    let callee = &mut |number, arguments: &[u64]| world.call(number, arguments);
    let report =
        interpret(&function, &mut [Argument::Write(interpreted)], callee).expect("it fits");
    assert!(report.steps <= function.steps_max());
    let mut executable = Executable::new(function.slots());
    executable.load(&mut function, 5);
    let arguments = &mut [Argument::Write(compiled)];
    let (outcome, left) = executable.run(&signature, arguments, &mut World::default());
    assert_eq!(outcome, report.outcome);
    assert_eq!(left, report.budget);
    assert_eq!(memory[0], memory[1]);
    (outcome, u64::from_le_bytes(memory[0]), report.steps)
}

/// thesis98 Z-5: an endless loop ends when its budget does, and what it had stored stays.
#[test]
fn endless_loops_end() {
    // Each time around costs 4: what is left at the jump decides.
    for (budget, rounds) in [(0, 1), (3, 1), (4, 2), (7, 2), (8, 3), (400, 101)] {
        let (outcome, count, steps) = run(&for_ever(), budget);
        assert_eq!((outcome, count), (Outcome::Exhausted, rounds), "budget {budget}");
        assert_eq!(steps, 4 * rounds);
    }
    let rounds = u64::from(BUDGET_MAX) / 4 + 1;
    assert_eq!(run(&for_ever(), BUDGET_MAX), (Outcome::Exhausted, rounds, 4 * rounds));
}

/// The bound is not only kept but reached: the loop above, run to its end.
#[test]
fn the_bound_is_tight() {
    let (_, _, steps) = run(&for_ever(), 400);
    assert_eq!(steps, 4 + 400);
}

#[test]
fn jumps_that_are_not_taken_cost_nothing() {
    let mut builder = Builder::new();
    let again = builder.label();
    builder.set(R0, 1).place(again).branch(Condition::Equal, R0, 0, again).exit();
    let program = builder.finish().expect("it is placed");
    assert_eq!(run(&program, 0), (Outcome::Returned(1), 0, 3));
}

#[test]
fn a_jump_to_itself_costs_one() {
    let mut builder = Builder::new();
    let again = builder.label();
    builder.place(again).jump(again);
    let program = builder.finish().expect("it is placed");
    assert_eq!(run(&program, 10), (Outcome::Exhausted, 0, 11));
}

#[test]
fn calls_cost_what_the_signature_says() {
    // Call 2 costs 3.
    let mut builder = Builder::new();
    builder.call(2).call(2).exit();
    let program = builder.finish().expect("no labels");
    assert!(matches!(run(&program, 6).0, Outcome::Returned(_)));
    assert_eq!(run(&program, 5).0, Outcome::Exhausted);
    assert_eq!(run(&program, 2).2, 1);
}

/// thesis98 Z-6: a second run on the same context finds the stack as the first did.
#[test]
fn nothing_stays_from_one_run_to_the_next() {
    let mut builder = Builder::new();
    let top = Register::R10;
    builder.load(Size::B8, R0, top, -16).compute(Operation::Add, R0, 1);
    builder.store(Size::B8, top, -16, R0).load(Size::B8, R0, top, -16).exit();
    let program = builder.finish().expect("no labels");
    let signature = Signature { parameters: &[], ..GENERAL };
    let mut points = [Point::default(); 8];
    let mut function = verify(&program, &signature, &mut points).expect("a good program");
    assert_eq!(function.stack_bytes(), 16);
    let mut executable = Executable::new(8);
    executable.load(&mut function, 1);
    let outcomes = executable.run_twice(&signature);
    assert_eq!(outcomes, [Outcome::Returned(1); 2]);
}
