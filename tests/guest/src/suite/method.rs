//! Protected methods: the only way to a region's bytes, whole or not at all.

mod directory;
mod random;

pub use directory::{ENTER_NAMES, enter_names, unique_names};
pub use random::as_interpreted;

use super::roles;
use super::sched::until;
use crate::assembler::{Assembler, R0, R1, R2, R3, bound, program};
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::error::Error;
use abi::id::{DomainId, RegionId};
use abi::memory::{NO_EXECUTE, Operation as Update};
use abi::method::{Binding, Part, refused};
use abi::published::{FrameRecord, FrameType, Table};
use abi::region::{COPY_IN, COPY_OUT, RegionOperation};
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use code::error::Why;
use code::instruction::{Condition, Instruction, Operand, Operation};
use xok::call::{self, OWN, Refused};
use xok::memory::{DATA, Space, item};
use xok::published;

/// Where the kernel runs downloaded code: nothing that a program may name.
const WINDOW: u64 = 0xffff_ff90_0000_0000;

fn said(why: Refused) -> Failure {
    format!("{why:?}")
}

/// Binds a function, however often somebody else's comes first.
pub fn bind(region: RegionId, binding: Binding, program: &[u8]) -> Result<u64, Refused> {
    let bytes = bound(binding, program);
    loop {
        match call::method_bind(OWN, region, &bytes) {
            Err((Error::WouldBlock, _)) => drop(call::yield_to(abi::id::EnvId::NONE)),
            answer => return answer,
        }
    }
}

fn attach(region: RegionId, domain: DomainId) -> Result<(), Failure> {
    call::region_attach(OWN, region, 0, domain).map(|_| ()).map_err(said)
}

fn refusal(part: Part, why: u64) -> Result<u64, Refused> {
    Err((Error::Refused, part as u64 | why << 8))
}

/// A body of role 0 over the region's first `length` bytes.
fn body(length: u32, budget: u32) -> Binding {
    Binding { roles: 1, length, budget, ..Binding::default() }
}

/// Adds one to words 0 and 1 of its part, with some steps between; answers what word 0 was.
fn count_twice() -> Vec<u8> {
    program(|a: &mut Assembler| {
        let again = a.label();
        a.load(R0, R2, 0).copy(R3, R0).add(R3, 1).store(R2, 0, Operand::Register(R3)).set(R3, 50);
        a.place(again).add(R3, -1).branch(Condition::NotEqual, R3, Operand::Immediate(0), again);
        a.load(R3, R2, 8).add(R3, 1).store(R2, 8, Operand::Register(R3)).exit();
    })
}

/// Answers the word at the offset that its first word says.
pub fn reader() -> Vec<u8> {
    program(|a| {
        a.compute(Operation::Add, R1, Operand::Register(R3)).load(R0, R1, 0).exit();
    })
}

/// thesis98 Z-67: no store, no load, no jump and no other call leads to what a method guards, and
/// a method's own stores end where its part ends.
pub fn no_way_around(ground: &Ground) -> Result<String, Failure> {
    let of = |kind: FrameType| -> Vec<u32> {
        let all = 0..published::table(Table::Frames).count;
        let is = |record: FrameRecord| record.kind == kind as u8;
        all.filter(|&n| published::record(Table::Frames, n as usize).is_some_and(is)).collect()
    };
    let before = [of(FrameType::Region), of(FrameType::Code)].concat();
    let region = call::region_alloc(OWN, &[u32::MAX]).map_err(said)?;
    // Stores 7 at its first word's distance from its part, which is 16 bytes from byte 64 on.
    let wild = program(|a| {
        a.store(R2, 0, Operand::Immediate(1)).compute(Operation::Add, R2, Operand::Register(R3));
        a.store(R2, 0, Operand::Immediate(7)).set(R0, 0).exit();
    });
    refused_programs(region)?;
    let own = Binding { offset: 64, ..body(16, 0) };
    bind(region, own, &wild).map_err(said)?;
    bind(region, Binding { method: 1, ..body(8, 0) }, &reader()).map_err(said)?;
    attach(region, DomainId::NONE)?;
    let store = |at: u64| call::method_call(region, 0, 0, [at, 0, 0]);
    let word = |at: u64| call::method_call(region, 1, 0, [at, 0, 0]);
    for at in [9, 16, 4096 - 64, u64::MAX, 1 << 32, 0u64.wrapping_sub(1 << 32), 1 << 63, 5 << 32] {
        let answer = store(at);
        expect!(answer == refusal(Part::Body, refused::OUTSIDE), "a store at {at:#x}: {answer:?}");
    }
    for at in (0..4096).step_by(8) {
        expect!(word(at) == Ok(0), "byte {at} has changed: {:?}", word(at));
    }
    let beyond = word(4089);
    expect!(beyond == refusal(Part::Body, refused::OUTSIDE), "a load over the end: {beyond:?}");
    expect!(store(8) == Ok(0) && word(72) == Ok(7) && word(64) == Ok(1), "its own part");
    let middle = call::method_call(region, 2, 0, [0; 3]);
    expect!(matches!(middle, Err((Error::BadArgument, 1))), "an entry that is none: {middle:?}");
    not_by_other_calls(region)?;
    let mut frames = [of(FrameType::Region), of(FrameType::Code)].concat();
    frames.retain(|frame| !before.contains(frame));
    expect!(frames.len() == 4, "the region, its table, two pages of code: {}", frames.len());
    Space::own().tables_to(SCRATCH, 1).map_err(said)?;
    for frame in frames {
        for choice in [NO_EXECUTE, DATA, 0] {
            let map = item(Update::Map, 1, SCRATCH, frame, choice);
            let answer = call::table_update(OWN, DomainId::NONE, &[map]);
            expect!(matches!(answer, Err((Error::WrongType, _))), "frame {frame}: {answer:?}");
        }
        let answer = call::frame_revoke(OWN, abi::id::Frame(frame));
        expect!(matches!(answer, Err((Error::WrongType, _))), "frame {frame} revoked: {answer:?}");
    }
    expect!(faults::load(SCRATCH).is_none(), "a frame is mapped");
    for page in 0..4 {
        let at = WINDOW + 4096 * page;
        expect!(faults::load(at).is_none() && !faults::store(at, 0xc3), "the window is open");
        let words = [at + 7, 0, 0, 0, 0, 0];
        let jumper = assistant::spawn(ground.image, roles::JUMP_TO, words, &[])?;
        let left = assistant::finish(jumper)?;
        let fault = xok::start::EXIT_FAULT | abi::upcall::Cause::PageFault as u64;
        expect!(left == fault, "a jump into the window left {left:#x}");
    }
    expect!(word(72) == Ok(7) && word(64) == Ok(1), "after all that");
    call::region_detach(region, 0).map_err(said)?;
    Ok(String::new())
}

/// A jump into the middle of an instruction, out of the function, a store outside, r10.
fn refused_programs(region: RegionId) -> Result<(), Failure> {
    let constant = Instruction::Constant { destination: R0, value: 0x95_0000_0000 };
    let jump = |offset| Instruction::Jump { offset };
    let exit = Instruction::Exit;
    let store = |base, offset| Instruction::Store {
        size: code::instruction::Size::B8,
        base,
        offset,
        source: Operand::Immediate(0),
    };
    let cases: [(&[Instruction], usize, Why); 6] = [
        (&[jump(1), constant, exit], 0, Why::JumpIntoConstant),
        (&[constant, jump(1), exit], 2, Why::JumpOutside),
        (&[constant, jump(-4), exit], 2, Why::JumpOutside),
        (&[constant, store(R2, 9), exit], 2, Why::Outside(0)),
        (&[constant, store(R1, 0), exit], 2, Why::ReadOnly(0)),
        (&[constant, store(R3, 0)], 2, Why::FallsOff),
    ];
    for (instructions, at, why) in cases {
        let bytes = program(|a| {
            for &instruction in instructions {
                a.raw(instruction);
            }
        });
        let answer = bind(region, body(16, 0), &bytes);
        let expected = Err((Error::NotVerified, at as u64 | u64::from(why.number()) << 32));
        expect!(answer == expected, "{why:?}: {answer:?}");
    }
    Ok(())
}

fn not_by_other_calls(region: RegionId) -> Result<(), Failure> {
    let mut word = 7u64;
    let address = &raw mut word as u64;
    for direction in [0, COPY_IN, COPY_OUT] {
        for role in 0..4 {
            let plain = RegionOperation {
                region: region.0,
                direction,
                role,
                address,
                ..Default::default()
            };
            for writes in 0..2 {
                let answer = call::region_operate(&RegionOperation { len: 8, writes, ..plain });
                let not = matches!(answer, Err((Error::NotPermitted, _)));
                expect!(not, "direction {direction}, role {role}: {answer:?}");
            }
        }
    }
    let step = abi::region::Step { region: region.0, ..Default::default() };
    let answer = call::region_step(&step, address, 0, 0);
    expect!(matches!(answer, Err((Error::NotPermitted, _))), "a step: {answer:?}");
    let late = bind(region, Binding { method: 3, ..body(8, 0) }, &reader());
    expect!(matches!(late, Err((Error::WrongState, _))), "bound behind one's back: {late:?}");
    Ok(())
}

/// thesis98 Z-5: a method that never ends is ended, and leaves nothing, however it loops.
pub fn endless(_: &Ground) -> Result<String, Failure> {
    let region = call::region_alloc(OWN, &[]).map_err(said)?;
    let spin = program(|a| {
        let again = a.label();
        a.store(R2, 0, Operand::Immediate(9)).place(again).jump(again);
    });
    let both = program(|a| {
        let again = a.label();
        a.place(again).store(R2, 8, Operand::Register(R3)).add(R3, 1);
        a.branch(Condition::NotEqual, R3, Operand::Immediate(0), again).set(R0, 0).jump(again);
    });
    for (method, program, budget) in [(0, &spin, 1990), (1, &both, 1990), (2, &spin, 0)] {
        bind(region, Binding { method, ..body(64, budget) }, program).map_err(said)?;
    }
    bind(region, Binding { method: 3, ..body(8, 0) }, &reader()).map_err(said)?;
    attach(region, DomainId::NONE)?;
    for round in 0..300 {
        let answer = call::method_call(region, round % 3, 0, [1, 0, 0]);
        expect!(answer == refusal(Part::Body, refused::BUDGET), "method {}: {answer:?}", round % 3);
    }
    for at in (0..64).step_by(8) {
        let left = call::method_call(region, 3, 0, [at, 0, 0]);
        expect!(left == Ok(0), "an endless method left {left:?} at {at}");
    }
    call::region_detach(region, 0).map_err(said)?;
    Ok(String::new())
}

/// A test's no: before the body, and when it has stored.
pub fn tests_decide(_: &Ground) -> Result<String, Failure> {
    let region = call::region_alloc(OWN, &[]).map_err(said)?;
    let take = program(|a| {
        a.store(R2, 0, Operand::Register(R3)).set(R0, 5).exit();
    });
    // Not below what was there; not above 1,000.
    let before = program(|a| {
        let end = a.label();
        a.load(R1, R1, 0).set(R0, 1);
        a.branch(Condition::GreaterOrEqual, R3, Operand::Register(R1), end).set(R0, 0);
        a.place(end).exit();
    });
    let after = program(|a| {
        a.load(R2, R2, 0);
        let end = a.label();
        a.set(R0, 1).branch(Condition::LessOrEqual, R2, Operand::Immediate(1000), end).set(R0, 0);
        a.place(end).exit();
    });
    let test = |part: Part| Binding { part: part as u8, ..Binding::default() };
    bind(region, body(8, 0), &take).map_err(said)?;
    bind(region, test(Part::Before), &before).map_err(said)?;
    bind(region, test(Part::After), &after).map_err(said)?;
    bind(region, Binding { method: 1, ..body(8, 0) }, &reader()).map_err(said)?;
    attach(region, DomainId::NONE)?;
    let put = |word: u64| call::method_call(region, 0, 0, [word, 0, 0]);
    for (word, expected, left) in [
        (10, Ok(5), 10),
        (9, refusal(Part::Before, refused::DISAGREED), 10),
        (1001, refusal(Part::After, refused::DISAGREED), 10),
        (u64::MAX, refusal(Part::After, refused::DISAGREED), 10),
        (1000, Ok(5), 1000),
    ] {
        let answer = put(word);
        expect!(answer == expected, "{word}: {answer:?}");
        let found = call::method_call(region, 1, 0, [0; 3]);
        expect!(found == Ok(left), "{word} left {found:?}");
    }
    call::region_detach(region, 0).map_err(said)?;
    Ok(String::new())
}

/// Two processors call at once, and callers die at any moment: both words always count the same,
/// and no call is lost.
pub fn whole_or_not_at_all(ground: &Ground) -> Result<String, Failure> {
    const LIVES: u64 = 12;
    let region = call::region_alloc(OWN, &[]).map_err(said)?;
    bind(region, body(16, 300), &count_twice()).map_err(said)?;
    bind(region, Binding { method: 1, ..body(8, 0) }, &reader()).map_err(said)?;
    attach(region, DomainId::NONE)?;
    let word = |at: u64| call::method_call(region, 1, 0, [at, 0, 0]).map_err(said);
    let cpus = published::directory().cpus;
    let mut own = 0;
    for life in 0..LIVES {
        let words = [region.0, 0, 0, 0, 0, 0];
        let caller = assistant::spawn(ground.image, roles::CALL_METHOD_FOR_EVER, words, &[])?;
        attach(region, caller.domain)?;
        if cpus > 1 {
            call::slice_alloc(OWN, 1, Which::Any, caller.env).map_err(said)?;
        }
        let before = word(0)?;
        assistant::start(caller)?;
        until(|| word(0).is_ok_and(|now| now > before + 50 * (life + 1)), "the other to call")?;
        for _ in 0..200 {
            own += u64::from(call::method_call(region, 0, 0, [0; 3]).is_ok());
            // Each call of the reader sees one state, the two of them may see two.
            let (second, first) = (word(8)?, word(0)?);
            expect!(first >= second, "word 1 is ahead: {second} of {first}");
        }
        call::env_destroy(OWN, caller.env, 0).map_err(said)?;
        assistant::wait(caller.env)?;
        let (first, second) = (word(0)?, word(8)?);
        expect!(first == second, "a caller that died left {first} and {second}");
    }
    expect!(own == 200 * LIVES, "{own} calls of one's own came through");
    call::region_detach(region, 0).map_err(said)?;
    Ok(format!("({cpus} processors, {LIVES} deaths)"))
}
