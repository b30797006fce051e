//! The worked example: a directory in which no name is twice, shared by who don't trust each other.
//!
//! ```text
//!  byte 0   how many entries are used
//!  byte 64  entries of 32 bytes: name (16), inode (8, 0: free), unused (8)
//! ```
//! Bodies keep names unique; a test that looks at each result keeps the count.

use super::{attach, bind, said};
use crate::assembler::{R0, R1, R2, R3, R4, R5, R6, R7, R8, program};
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground};
use abi::id::{DomainId, EnvId, RegionId};
use abi::method::{Binding, Part};
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use code::instruction::{Condition, Operand};
use xok::call::{self, OWN};
use xok::clock::now_ns;
use xok::published;

/// Enters names 0 to its second word into the directory in its first, as inodes from its third on;
/// its report: how many it was first with.
pub const ENTER_NAMES: u64 = 26;

const ENTRIES: i32 = 64;
const FIRST: i32 = 64;
const ENTER: u16 = 0;
const LOOK_UP: u16 = 1;
const REMOVE: u16 = 2;

/// r0 = the address of the entry of the name in r3, r4, and on to `found`; or 0 and on behind. r6
/// is then the first free entry, 0 if there is none.
fn find(a: &mut crate::assembler::Assembler, found: crate::assembler::Label) {
    let (again, used, other) = (a.label(), a.label(), a.label());
    a.set(R6, 0).copy(R0, R2).add(R0, FIRST).copy(R7, R0).add(R7, 32 * ENTRIES);
    a.place(again).load(R8, R0, 16);
    a.branch(Condition::NotEqual, R8, Operand::Immediate(0), used);
    a.branch(Condition::NotEqual, R6, Operand::Immediate(0), other).copy(R6, R0).jump(other);
    a.place(used).load(R8, R0, 0);
    a.branch(Condition::NotEqual, R8, Operand::Register(R3), other).load(R8, R0, 8);
    a.branch(Condition::Equal, R8, Operand::Register(R4), found);
    a.place(other).add(R0, 32).branch(Condition::Less, R0, Operand::Register(R7), again);
    a.set(R0, 0);
}

/// 1 if the inode was entered, 0 if the name is there or nothing is free.
fn enter() -> Vec<u8> {
    program(|a| {
        let no = a.label();
        find(a, no);
        a.branch(Condition::Equal, R6, Operand::Immediate(0), no);
        a.store(R6, 0, Operand::Register(R3)).store(R6, 8, Operand::Register(R4));
        a.store(R6, 16, Operand::Register(R5)).load(R8, R2, 0).add(R8, 1);
        a.store(R2, 0, Operand::Register(R8)).set(R0, 1).exit();
        a.place(no).set(R0, 0).exit();
    })
}

/// The name's inode, or 0.
fn look_up() -> Vec<u8> {
    program(|a| {
        let found = a.label();
        find(a, found);
        a.exit().place(found).load(R0, R0, 16).exit();
    })
}

/// Takes the name away, if the caller knows its inode; 1 if so.
fn remove() -> Vec<u8> {
    program(|a| {
        let (found, no) = (a.label(), a.label());
        find(a, found);
        a.jump(no).place(found).load(R8, R0, 16);
        a.branch(Condition::NotEqual, R8, Operand::Register(R5), no);
        a.store(R0, 16, Operand::Immediate(0)).load(R8, R2, 0).add(R8, -1);
        a.store(R2, 0, Operand::Register(R8)).set(R0, 1).exit();
        a.place(no).set(R0, 0).exit();
    })
}

/// The count is what it was, or by `change` other.
fn counts(change: i32) -> Vec<u8> {
    program(|a| {
        let yes = a.label();
        a.load(R1, R1, 0).load(R2, R2, 0).set(R0, 1);
        a.branch(Condition::Equal, R1, Operand::Register(R2), yes).add(R1, change);
        a.branch(Condition::Equal, R1, Operand::Register(R2), yes).set(R0, 0);
        a.place(yes).exit();
    })
}

fn name(number: u64) -> [u64; 2] {
    // Names of which many have one half in common.
    [0x656d_616e ^ (number / 4), number % 4]
}

pub fn enter_names(region: RegionId, names: u64, inodes: u64) -> u64 {
    (0..names)
        .filter(|&number| {
            let [low, high] = name(number);
            call::method_call(region, ENTER, 0, [low, high, inodes + number]) == Ok(1)
        })
        .count() as u64
}

/// thesis98 M-16: two programs enter the same names at once; each name is there once, and only who
/// knows its inode takes it away.
pub fn unique_names(ground: &Ground) -> Result<String, Failure> {
    const NAMES: u64 = 50;
    let region = call::region_alloc(OWN, &[u32::MAX]).map_err(said)?;
    let whole = |method: u16| Binding {
        method: method as u8,
        roles: 1,
        length: 4096,
        budget: 15 * ENTRIES as u32,
        ..Binding::default()
    };
    for (method, program) in [(ENTER, enter()), (LOOK_UP, look_up()), (REMOVE, remove())] {
        bind(region, whole(method), &program).map_err(said)?;
    }
    for (method, change) in [(ENTER, 1), (REMOVE, -1)] {
        let test = Binding { part: Part::After as u8, method: method as u8, ..Default::default() };
        bind(region, test, &counts(change)).map_err(said)?;
    }
    attach(region, DomainId::NONE)?;
    let words = [region.0, NAMES, 1000, 0, 0, 0];
    let other = assistant::spawn(ground.image, ENTER_NAMES, words, &[])?;
    attach(region, other.domain)?;
    if published::directory().cpus > 1 {
        call::slice_alloc(OWN, 1, Which::Any, other.env).map_err(said)?;
    }
    assistant::start(other)?;
    let first = || {
        let [low, high] = name(0);
        call::method_call(region, LOOK_UP, 0, [low, high, 0]).is_ok_and(|inode| inode != 0)
    };
    let deadline = now_ns() + 5_000_000_000;
    while !first() && now_ns() < deadline {
        let _ = call::yield_to(EnvId::NONE);
    }
    let own = enter_names(region, NAMES, 2000);
    let others = assistant::wait(other.env)?;
    expect!(own + others == NAMES, "{own} and {others} names were entered");
    let method = |method, number: u64, inode| {
        let [low, high] = name(number);
        call::method_call(region, method, 0, [low, high, inode]).map_err(said)
    };
    for number in 0..NAMES {
        let inode = method(LOOK_UP, number, 0)?;
        let known = inode == 1000 + number || inode == 2000 + number;
        expect!(known, "name {number} is inode {inode}");
        expect!(method(ENTER, number, 7)? == 0, "name {number} was entered twice");
        expect!(method(REMOVE, number, inode + 1)? == 0, "taken away by who does not know it");
        expect!(method(REMOVE, number, inode)? == 1, "not taken away");
        expect!(method(LOOK_UP, number, 0)? == 0, "still there");
    }
    // Full, and not beyond.
    let fits = enter_names(region, ENTRIES as u64 + 9, 1);
    expect!(fits == ENTRIES as u64, "{fits} of {ENTRIES} entries were used");
    call::region_detach(region, 0).map_err(said)?;
    Ok(format!("({own} and {others} names)"))
}
