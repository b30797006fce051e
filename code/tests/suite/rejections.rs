//! Each rule of the verifier, broken once: what is refused, where, and why.

use code::builder::{BuildError, Builder};
use code::error::{Error, Limit, Why};
use code::instruction::{Condition, Instruction, Operation, Register, Size, Width};
use code::signature::{
    BUDGET_MAX, Dialect, Parameter, Rights, STACK_TOP, Signature, WORD, address,
};
use code::verifier::{Access, Point, SLOTS_MAX, verify};

use crate::programs::{CALLS, GENERAL, PARAMETERS, assemble, refusal, why};

const EXIT: Instruction = Instruction::Exit;
const R0: Register = Register::R0;
const R1: Register = Register::R1;
const R2: Register = Register::R2;
const R3: Register = Register::R3;
const R10: Register = Register::R10;

/// What is said against a program that `build` makes.
fn said_of(build: impl FnOnce(&mut Builder)) -> Option<Error> {
    let mut builder = Builder::new();
    build(&mut builder);
    said(&builder)
}

/// What is said against a program.
fn said(builder: &Builder) -> Option<Error> {
    refusal(&builder.finish().expect("its labels are placed"), &GENERAL)
}

fn at(at: usize, why: Why) -> Option<Error> {
    Some(Error { at, why })
}

#[test]
fn nothing_at_all() {
    assert_eq!(why(&[], &GENERAL), Some(Why::Empty));
}

#[test]
fn half_a_slot() {
    let mut program = assemble(&[EXIT]);
    program.push(0);
    assert_eq!(refusal(&program, &GENERAL), at(1, Why::Truncated));
}

#[test]
fn more_slots_than_allowed() {
    let mut builder = Builder::new();
    for _ in 0..SLOTS_MAX {
        builder.set(R0, 0);
    }
    let program = builder.exit().finish().expect("no labels");
    assert_eq!(why(&program, &GENERAL), Some(Why::TooLong));
}

#[test]
fn more_slots_than_points() {
    let program = assemble(&[Instruction::Jump { offset: 0 }, EXIT]);
    let refused = verify(&program, &GENERAL, &mut [Point::default()]).err();
    assert_eq!(refused, at(1, Why::TooLong));
}

#[test]
fn a_jump_out_of_the_function() {
    for offset in [1, 1000, -2, -1000, i32::MAX, i32::MIN] {
        let program = assemble(&[Instruction::Jump { offset }, EXIT]);
        assert_eq!(refusal(&program, &GENERAL), at(0, Why::JumpOutside), "{offset}");
    }
}

#[test]
fn a_jump_into_a_constant() {
    let constant = Instruction::Constant { destination: R0, value: 0 };
    let program = assemble(&[Instruction::Jump { offset: 1 }, constant, EXIT]);
    assert_eq!(refusal(&program, &GENERAL), at(0, Why::JumpIntoConstant));
}

#[test]
fn a_fall_off_the_end() {
    assert_eq!(said(Builder::new().set(R0, 0)), at(0, Why::FallsOff));
    let branch = said_of(|b| {
        let end = b.label();
        b.set(R0, 0).place(end).branch(Condition::Equal, R0, 0, end);
    });
    assert_eq!(branch, at(1, Why::FallsOff));
}

#[test]
fn code_that_no_path_leads_to() {
    assert_eq!(said(Builder::new().set(R0, 0).exit().exit()), at(2, Why::Unreachable));
}

#[test]
fn a_register_that_nobody_wrote() {
    assert_eq!(said(Builder::new().exit()), at(0, Why::Unwritten(0)));
    let source = said(Builder::new().compute(Operation::Move, R0, Register::R6).exit());
    assert_eq!(source, at(0, Why::Unwritten(6)));
    let operand = said(Builder::new().compute(Operation::Add, R0, 1).exit());
    assert_eq!(operand, at(0, Why::Unwritten(0)));
    let base = said(Builder::new().load(Size::B1, R0, Register::R7, 0).exit());
    assert_eq!(base, at(0, Why::Unwritten(7)));
    let stored = said(Builder::new().store(Size::B1, R10, -1, Register::R8).exit());
    assert_eq!(stored, at(0, Why::Unwritten(8)));
}

#[test]
fn a_register_that_one_path_wrote() {
    let refused = said_of(|b| {
        let skip = b.label();
        b.branch(Condition::Equal, R1, 0, skip).set(R0, 0).place(skip).exit();
    });
    assert_eq!(refused, at(2, Why::Unwritten(0)));
}

#[test]
fn a_register_lost_at_the_second_visit() {
    // The first time around r6 is written; the way back has not written it.
    let refused = said_of(|b| {
        let (again, first) = (b.label(), b.label());
        b.set(R0, 0).set(Register::R1, 0).jump(first);
        b.place(again).call(2).set(R1, 0).place(first);
        b.compute(Operation::Add, R0, R2).branch(Condition::Less, R0, 9, again).exit();
    });
    assert_eq!(refused, at(5, Why::Unwritten(2)));
}

#[test]
fn an_argument_after_a_call() {
    let refused = said(Builder::new().call(2).compute(Operation::Add, R0, R1).exit());
    assert_eq!(refused, at(1, Why::Unwritten(1)));
}

#[test]
fn a_call_without_its_arguments() {
    let refused = said(Builder::new().call(2).call(1).exit());
    assert_eq!(refused, at(1, Why::Unwritten(1)));
}

#[test]
fn a_store_to_the_stack_pointer() {
    let writes = [
        Instruction::Constant { destination: R10, value: 0 },
        Instruction::Load { size: Size::B8, signed: false, destination: R10, base: R2, offset: 0 },
        Instruction::Compute {
            width: Width::W64,
            operation: Operation::Add,
            destination: R10,
            source: (-8).into(),
        },
    ];
    for write in writes {
        let program = assemble(&[write, EXIT]);
        assert_eq!(refusal(&program, &GENERAL), at(0, Why::WritesStackPointer), "{write}");
    }
}

#[test]
fn an_access_over_an_areas_end() {
    // Area 2 has 64 bytes, the stack 512.
    let area = said(Builder::new().load(Size::B4, R0, R2, 61).exit());
    assert_eq!(area, at(0, Why::Outside(address(2) + 61)));
    let below = said(Builder::new().load(Size::B1, R0, R2, -1).exit());
    assert_eq!(below, at(0, Why::Outside(address(2) - 1)));
    let above = said(Builder::new().load(Size::B1, R0, R10, 0).exit());
    assert_eq!(above, at(0, Why::Outside(STACK_TOP)));
    let too_deep = said(Builder::new().load(Size::B1, R0, R10, -513).exit());
    assert_eq!(too_deep, at(0, Why::Outside(STACK_TOP - 513)));
    assert_eq!(said(Builder::new().load(Size::B4, R0, R2, 60).exit()), None);
    assert_eq!(said(Builder::new().load(Size::B8, R0, R10, -512).exit()), None);
}

#[test]
fn an_access_to_no_area() {
    let null = said(Builder::new().set(R1, 0).load(Size::B8, R0, R1, 0).exit());
    assert_eq!(null, at(1, Why::Outside(0)));
    // The first parameter is a number, and there is no seventh area.
    for number in [1, 4, 7, 8] {
        let refused =
            said(Builder::new().set(R1, address(number)).load(Size::B1, R0, R1, 0).exit());
        assert_eq!(refused, at(2, Why::Outside(address(number))));
    }
}

#[test]
fn an_address_by_known_arithmetic() {
    let refused = said_of(|b| {
        b.compute(Operation::Move, R1, R2).compute(Operation::Add, R1, 64);
        b.load(Size::B1, R0, R1, 0).exit();
    });
    assert_eq!(refused, at(2, Why::Outside(address(2) + 64)));
}

#[test]
fn a_store_where_only_reading_is_allowed() {
    let refused = said(Builder::new().set(R0, 0).store(Size::B1, R2, 0, 1).exit());
    assert_eq!(refused, at(1, Why::ReadOnly(address(2))));
    assert_eq!(said(Builder::new().set(R0, 0).store(Size::B1, R3, 0, 1).exit()), None);
}

#[test]
fn a_call_that_is_not_offered() {
    assert_eq!(said(Builder::new().call(4).exit()), at(0, Why::UnknownCall(4)));
}

/// thesis98 Z-4, xok97 T3: a deterministic function may not read the clock; another may.
#[test]
fn the_clock_in_a_deterministic_function() {
    let strict = Signature { dialect: Dialect::Deterministic, ..GENERAL };
    let program = assemble(&[Instruction::Call { number: 2 }, EXIT]);
    assert_eq!(why(&program, &strict), Some(Why::NotDeterministic(2)));
    assert_eq!(why(&program, &GENERAL), None);
    let pure = assemble(&[Instruction::Call { number: 1 }, Instruction::Exit]);
    assert_eq!(why(&pure, &strict), None);
}

/// What is no input is not there for a deterministic function: neither in its register nor in
/// memory.
#[test]
fn what_is_no_input_of_a_deterministic_function() {
    let parameters = [WORD.outside(), Parameter::area(64, Rights::Read).outside()];
    let general = Signature { parameters: &parameters, ..GENERAL };
    let strict = Signature { dialect: Dialect::Deterministic, ..general };
    let mut word = Builder::new();
    word.compute(Operation::Move, R0, R1).exit();
    let mut page = Builder::new();
    page.load(Size::B8, R0, R2, 0).exit();
    let mut forged = Builder::new();
    forged.set(R2, address(2)).load(Size::B8, R0, R2, 0).exit();
    let cases =
        [(word, Why::Unwritten(1)), (page, Why::Unwritten(2)), (forged, Why::Outside(address(2)))];
    for (builder, expected) in cases {
        let program = builder.finish().expect("no labels");
        assert_eq!(why(&program, &strict), Some(expected));
        assert_eq!(why(&program, &general), None);
    }
}

#[test]
fn a_signature_beyond_its_limits() {
    let program = assemble(&[EXIT]);
    let refused = |signature: Signature| why(&program, &signature);
    let said = |limit| Some(Why::Signature(limit));
    let six = [WORD; 6];
    assert_eq!(refused(Signature { parameters: &six, ..GENERAL }), said(Limit::Parameters));
    for bytes in [0, 7, (1 << 24) + 1, u32::MAX] {
        let area = [Parameter::area(bytes, Rights::Read)];
        assert_eq!(refused(Signature { parameters: &area, ..GENERAL }), said(Limit::AreaBytes));
    }
    let mut calls = CALLS;
    calls[0].arguments = 6;
    assert_eq!(refused(Signature { calls: &calls, ..GENERAL }), said(Limit::CallArguments));
    let mut calls = CALLS;
    calls[0].cost = BUDGET_MAX + 1;
    assert_eq!(refused(Signature { calls: &calls, ..GENERAL }), said(Limit::Budget));
    let many = [CALLS[0]; 65];
    assert_eq!(refused(Signature { calls: &many, ..GENERAL }), said(Limit::Calls));
    assert_eq!(refused(Signature { budget: BUDGET_MAX + 1, ..GENERAL }), said(Limit::Budget));
    assert_eq!(refused(Signature { parameters: &PARAMETERS, ..GENERAL }), Some(Why::Unwritten(0)));
}

#[test]
fn paths_that_disagree_lose_the_proof() {
    // One path comes with area 2, the other with area 3: the load is masked, not proved.
    let mut builder = Builder::new();
    let skip = builder.label();
    builder.branch(Condition::Equal, R1, 0, skip).compute(Operation::Move, R2, R3);
    builder.place(skip).load(Size::B1, R0, R2, 0).load(Size::B1, R0, R3, 1).exit();
    let program = builder.finish().expect("it is placed");
    let mut points = [Point::default(); 8];
    let function = verify(&program, &GENERAL, &mut points).expect("it may run");
    assert_eq!(function.access(2), Some(Access::Masked));
    assert_eq!(function.access(3), Some(Access::Proved { area: 3, offset: 1 }));
    assert_eq!(function.masked(), 1);
}

#[test]
fn builders_that_lost_a_label() {
    let mut builder = Builder::new();
    let label = builder.label();
    builder.jump(label);
    assert_eq!(builder.finish(), Err(BuildError::NotPlaced(label)));
    builder.place(label).place(label);
    assert_eq!(builder.finish(), Err(BuildError::PlacedTwice(label)));
    let mut far = Builder::new();
    let label = far.label();
    far.set(R0, 0).branch(Condition::Equal, R0, 0, label);
    for _ in 0..40_000 {
        far.set(R0, 0);
    }
    far.place(label).exit();
    assert_eq!(far.finish(), Err(BuildError::TooFar(label)));
}
