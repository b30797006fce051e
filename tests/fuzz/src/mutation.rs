//! Changes of an input, by slots and their fields: most of what comes of them decodes.

use crate::input::{Input, SLOT, SLOTS_MAX};
use crate::programs::Random;

/// Opcodes of all that has a meaning, and of some that has none here.
fn opcode(random: &mut Random) -> u8 {
    let class = random.below(8) as u8;
    let high = 16 * random.below(16) as u8;
    match class {
        // The one that is no packet load; loads and stores of memory, plain and signed.
        0 => 0x18,
        1 => 0x61 + 8 * random.below(4) as u8 + if random.chance(30) { 0x20 } else { 0 },
        2 | 3 => 0x60 + class + 8 * random.below(4) as u8,
        5 if random.chance(20) => [0x05, 0x85, 0x95][random.below(3)],
        _ => class | high | if random.chance(50) { 8 } else { 0 },
    }
}

fn offset(random: &mut Random, slots: usize) -> i16 {
    match random.below(8) {
        0 => 0,
        1 => [1, 8, 16, 32][random.below(4)],
        2 => random.word() as i16,
        3 => -(random.below(520) as i16),
        4 => random.below(110) as i16,
        _ => random.below(2 * slots + 1) as i16 - slots as i16,
    }
}

fn immediate(random: &mut Random, slots: usize) -> i32 {
    match random.below(6) {
        0 => 0,
        1 => [16, 32, 64, 1, 2, 3][random.below(6)],
        2 => random.below(2 * slots + 1) as i32 - slots as i32,
        _ => random.word() as i32,
    }
}

/// Changes one field of a slot, or several.
fn change(random: &mut Random, program: &mut [u8]) {
    let slots = program.len() / SLOT;
    let Some(slot) = program.chunks_exact_mut(SLOT).nth(random.below(slots.max(1))) else { return };
    match random.below(9) {
        0 => slot[0] = opcode(random),
        1 => slot[1] = slot[1] & 0xf0 | random.below(11) as u8,
        2 => slot[1] = slot[1] & 15 | (random.below(11) as u8) << 4,
        3 | 4 => slot[2..4].copy_from_slice(&offset(random, slots).to_le_bytes()),
        5 => slot[4..].copy_from_slice(&immediate(random, slots).to_le_bytes()),
        // Between an operand that is a register and one that is a constant.
        6 => {
            slot[0] ^= 8;
            slot[1] &= 15;
            slot[4..].fill(0);
        }
        7 => slot[random.below(SLOT)] ^= 1 << random.below(8),
        _ => {
            // The area whose address a constant is.
            let area = random.below(8) as u32;
            slot[4..].copy_from_slice(&area.to_le_bytes());
        }
    }
}

/// A whole instruction, as one that decodes.
fn instruction(random: &mut Random, slots: usize) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    slot[0] = opcode(random);
    let registers = [random.below(10) as u8, random.below(11) as u8];
    let by_register = slot[0] & 8 != 0;
    let class = slot[0] & 7;
    let source = if by_register || class == 1 || class == 3 { registers[1] << 4 } else { 0 };
    slot[1] = registers[0] | source;
    if class != 4 && class != 7 || random.chance(10) {
        slot[2..4].copy_from_slice(&offset(random, slots).to_le_bytes());
    }
    if source == 0 && class != 1 {
        slot[4..].copy_from_slice(&immediate(random, slots).to_le_bytes());
    }
    slot
}

/// Takes the slots `from` of one program in place of the slots `to` of the other.
fn splice(program: &mut Vec<u8>, at: usize, removed: usize, inserted: &[u8]) {
    let from = (at * SLOT).min(program.len());
    let to = ((at + removed) * SLOT).min(program.len());
    program.splice(from..to, inserted.iter().copied());
    program.truncate(SLOTS_MAX * SLOT);
}

/// Another input, made of this one and of pieces of `other`.
pub fn mutated(random: &mut Random, input: &Input, other: &Input) -> Input {
    let mut new = input.clone();
    for _ in 0..1 + random.below(4) {
        let program = &mut new.program;
        let slots = program.len() / SLOT;
        let at = random.below(slots + 1);
        match random.below(20) {
            0 | 1 => {
                let instruction = instruction(random, slots);
                let removed = random.below(2);
                splice(program, at, removed, &instruction);
            }
            2 => splice(program, at, 1 + random.below(3), &[]),
            3 => {
                let copied = 1 + random.below(4);
                let piece: Vec<u8> =
                    program.iter().skip(at * SLOT).take(copied * SLOT).copied().collect();
                splice(program, random.below(slots + 1), 0, &piece);
            }
            4 | 5 => {
                let from = random.below(other.program.len() / SLOT + 1) * SLOT;
                let piece = &other.program[from..];
                let piece = &piece[..piece.len().min((1 + random.below(12)) * SLOT)];
                splice(program, at, random.below(4), piece);
            }
            6 => new.signature = random.below(3) as u8,
            7 => {
                let most = if random.chance(3) { 2000 } else { 40 };
                new.budget = random.below(most) as u16;
            }
            8 => new.words = [random.word(), random.word()],
            9 if random.chance(5) => drop(program.pop()),
            9 => new.seed = random.next(),
            _ => change(random, program),
        }
    }
    new
}
