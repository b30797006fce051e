//! Functions for regions, as the model's environments bind them: good ones, bad ones, endless ones.

use super::Model;
use super::calls::BUFFER;
use abi::call::Call;
use abi::id::RegionId;
use abi::limits::METHODS;
use abi::method::Binding;
use code::builder::Builder;
use code::instruction::{Condition, Operation, Register, Size};

const R0: Register = Register::R0;
const R2: Register = Register::R2;
const R3: Register = Register::R3;

/// Slots of the programs that there are: each has another number.
pub(super) const SLOTS: [u64; 5] = [0, 2, 4, 5, 8];

/// The program with so many slots.
fn program(slots: u64) -> Vec<u8> {
    let mut builder = Builder::new();
    match slots {
        // Agrees, if it is a test.
        2 => builder.set(R0, 1).exit(),
        // Stores beyond its part if the first word is large.
        4 => builder.compute(Operation::Add, R2, R3).store(Size::B1, R2, 0, 7).set(R0, 0).exit(),
        // Reads what it has not written: the verifier's to refuse.
        5 => builder
            .set(R0, 0)
            .compute(Operation::Add, R0, R0)
            .negate(Register::R7)
            .set(R3, 1)
            .exit(),
        // Counts the first word down, if it has the time.
        8 => {
            let (again, end) = (builder.label(), builder.label());
            builder.set(R0, 0).place(again).branch(Condition::Equal, R3, 0, end);
            builder.compute(Operation::Subtract, R3, 1).compute(Operation::Add, R0, 1);
            builder.store(Size::B8, R2, 0, R3).store(Size::B1, R2, 3, R0).jump(again);
            builder.place(end).exit()
        }
        _ => &mut builder,
    };
    builder.finish().unwrap_or_default()
}

impl Model {
    /// Of a region that nobody has been attached to, if there is one.
    pub(super) fn some_bind(&mut self) -> Call {
        let slots = self.random.pick(&SLOTS);
        let regions = self.state.published.regions.iter().zip(self.state.regions.slots.iter());
        let fresh = regions.filter(|(record, slot)| record.id != 0 && !slot.used);
        let fresh: Vec<u64> = fresh.map(|(record, _)| record.id).collect();
        let region = match fresh[..] {
            [] => self.some_region(),
            _ => RegionId(self.random.pick(&fresh)),
        };
        Call::MethodBind { region, binding: BUFFER, slots }
    }
}

/// The argument of a `MethodBind` for a program with so many slots.
pub(super) fn binding(model: &mut Model, slots: u64) -> Vec<u64> {
    let random = &mut model.random;
    let part = if random.one_in(2) { random.below(4) as u8 } else { 0 };
    let body = part == 0 || random.one_in(6);
    let binding = Binding {
        method: if random.one_in(9) { random.below(METHODS + 1) as u8 } else { 0 },
        part,
        roles: if body { 15 - random.below(4) as u8 } else { 0 },
        zero: u8::from(random.one_in(20)),
        budget: random.below(300) as u32,
        offset: if body { random.below(40) as u32 } else { 0 },
        length: if body { 6 + random.below(20) as u32 } else { 0 },
    };
    let bytes = [&binding.to_bytes()[..], &program(slots)].concat();
    bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect()
}

#[test]
fn programs_have_the_slots_that_they_are_known_by() {
    for slots in SLOTS {
        assert_eq!(program(slots).len() as u64, 8 * slots);
    }
}
