//! The bytes of stubs and patches, and the way back from an address in a stub.

use crate::sites::{Form, Site};
use crate::{Object, SYSCALL_BYTES};

/// Bytes of a stub; it begins at a multiple of them.
pub const STUB_BYTES: u64 = 32;
/// Where every stub loads rcx; what is displaced ends here.
const LOAD: u64 = 16;
/// Where every stub leaves.
const LEAVE: u64 = LOAD + 7;
/// Where its last byte tells how long the displaced instruction is.
const LENGTH: usize = 31;
const INT3: u8 = 0xcc;
const JUMP: u8 = 0xe9;
const JUMP_BYTES: u64 = 5;
const SHORT_JUMP: u8 = 0xeb;

/// Bytes to be put in place of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Where.
    pub address: u64,
    bytes: [u8; 5],
    len: usize,
}

impl Patch {
    /// What.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

fn distance(from: u64, to: u64) -> Option<[u8; 4]> {
    let distance = i64::try_from(i128::from(to) - i128::from(from)).ok()?;
    Some(i32::try_from(distance).ok()?.to_le_bytes())
}

fn jump(address: u64, to: u64) -> Option<Patch> {
    let distance = distance(address + JUMP_BYTES, to)?;
    let mut bytes = [JUMP; 5];
    bytes[1..].copy_from_slice(&distance);
    Some(Patch { address, bytes, len: 5 })
}

fn short_jump(address: u64, to: u64) -> Option<Patch> {
    let distance = i128::from(to) - i128::from(address + SYSCALL_BYTES);
    let distance = i8::try_from(distance).ok()?;
    Some(Patch { address, bytes: [SHORT_JUMP, distance as u8, 0, 0, 0], len: 2 })
}

impl Site {
    fn displaced(&self) -> u64 {
        match self.form {
            Form::Displaced { at } => self.syscall - at,
            Form::Padded { .. } => 0,
        }
    }

    /// The stub at `slot` for a program loaded `base` behind its own addresses; it leaves through
    /// the word `entry` bytes behind GS base. `None`: something is too far away.
    pub fn stub(&self, object: &Object<'_>, base: u64, slot: u64, entry: u32) -> Option<[u8; 32]> {
        let mut bytes = [INT3; STUB_BYTES as usize];
        let len = self.displaced();
        let place = slot + LOAD - len;
        if let Form::Displaced { at } = self.form {
            let code = object.code(at)?.get(..len as usize)?;
            let room = bytes.get_mut((LOAD - len) as usize..LOAD as usize)?;
            room.copy_from_slice(code);
            if self.relative {
                // Its last four bytes count from its end, which is now elsewhere.
                let (_, last) = room.split_last_chunk_mut::<4>()?;
                let target =
                    (base + self.syscall).wrapping_add_signed(i64::from(i32::from_le_bytes(*last)));
                *last = distance(place + len, target)?;
            }
        }
        let behind = base + self.syscall + SYSCALL_BYTES;
        // lea rcx, [rip + distance]; jmp gs:[entry]
        bytes[16..19].copy_from_slice(&[0x48, 0x8d, 0x0d]);
        bytes[19..23].copy_from_slice(&distance(slot + LEAVE, behind)?);
        bytes[23..27].copy_from_slice(&[0x65, 0xff, 0x24, 0x25]);
        bytes[27..31].copy_from_slice(&entry.to_le_bytes());
        bytes[LENGTH] = len as u8;
        Some(bytes)
    }

    /// What makes the site jump to its stub at `slot`: to be stored in this order.
    pub fn patches(&self, base: u64, slot: u64) -> Option<[Option<Patch>; 2]> {
        Some(match self.form {
            Form::Displaced { at } => {
                [Some(jump(base + at, slot + LOAD - self.displaced())?), None]
            }
            Form::Padded { padding } => [
                Some(jump(base + padding, slot + LOAD)?),
                Some(short_jump(base + self.syscall, base + padding)?),
            ],
        })
    }
}

/// The address in the program that `rip`, in the stub at `slot` with these bytes, stands for: the
/// displaced instruction until it is done, then the `syscall`.
pub fn original(rip: u64, slot: u64, stub: &[u8; 32]) -> u64 {
    let mut distance = [0; 4];
    distance.copy_from_slice(&stub[19..23]);
    let behind = (slot + LEAVE).wrapping_add_signed(i64::from(i32::from_le_bytes(distance)));
    let syscall = behind.wrapping_sub(SYSCALL_BYTES);
    if rip.wrapping_sub(slot) < LOAD {
        syscall.wrapping_sub(u64::from(stub[LENGTH]))
    } else {
        syscall
    }
}

/// The stub that the padding at `rip` with these bytes leads to, if it is a jump to the place where
/// a stub of form 2 begins.
pub fn aimed_at(rip: u64, bytes: &[u8; 5]) -> Option<u64> {
    let (first, distance) = bytes.split_first_chunk::<1>()?;
    let distance = i32::from_le_bytes(*distance.first_chunk()?);
    let target = rip.wrapping_add(JUMP_BYTES).wrapping_add_signed(i64::from(distance));
    (*first == [JUMP] && target % STUB_BYTES == LOAD).then(|| target - LOAD)
}
