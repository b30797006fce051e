//! The signal frame: what a handler finds on the stack, byte for byte as on Linux.
//!
//! ```text
//!  frame + 0    return address (the restorer)        rsp at the handler's entry
//!        + 8    ucontext: flags, link, stack, 256 bytes of registers, mask      304 bytes
//!        + 312  siginfo                                                         128 bytes
//!          …    XSAVE area, aligned to 64, then FP_XSTATE_MAGIC2
//! ```
//! It begins below the red zone of the interrupted function, or on the alternate stack.

use crate::signal::Info;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;

/// Bytes of return address, ucontext and siginfo.
pub const FRAME_BYTES: u64 = 8 + CONTEXT_BYTES as u64 + INFO_BYTES as u64;
/// Bytes of `struct ucontext` as the kernel has it.
pub const CONTEXT_BYTES: usize = 304;
/// Bytes of `siginfo_t`.
pub const INFO_BYTES: usize = 128;
/// Offset of the registers in the ucontext.
const REGISTERS: usize = 40;
/// Offset of the mask in the ucontext.
const MASK: usize = REGISTERS + 256;
/// Bytes below rsp that belong to the interrupted function (x86-64 psABI).
const RED_ZONE: u64 = 128;

/// Words in the part of the XSAVE area that the processor leaves to software.
const SOFTWARE_AREA: usize = 464;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;

/// The registers in the order of `struct sigcontext`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// r8 … r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags.
    pub words: [u64; 18],
}

/// Flags that a program may have set by returning from a handler (not TF: see docs/caveats.md).
pub const FLAGS_FREE: u64 = 0x0005_0cd5;
/// Always set: interrupts on and the bit that is always one.
pub const FLAGS_SET: u64 = 0x202;

/// Where the parts of a frame lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The frame: rsp at the handler's entry.
    pub frame: u64,
    /// The XSAVE area, a multiple of 64.
    pub vector: u64,
}

/// Places a frame below `top` (a stack pointer, or the end of the alternate stack).
pub fn place(top: u64, red_zone: bool, vector_bytes: u64) -> Option<Place> {
    let top = if red_zone { top.checked_sub(RED_ZONE)? } else { top };
    let vector = top.checked_sub(vector_bytes + 4)? & !63;
    let frame = (vector.checked_sub(FRAME_BYTES)? & !15).checked_sub(8)?;
    Some(Place { frame, vector })
}

/// What goes into a frame.
pub struct Contents<'a> {
    /// Where it goes.
    pub place: Place,
    /// The signal.
    pub signal: u32,
    /// What is known of it.
    pub info: Info,
    /// Where the handler returns to.
    pub restorer: u64,
    /// The interrupted program's registers.
    pub registers: &'a Registers,
    /// Its blocked signals.
    pub mask: u64,
    /// Its alternate stack.
    pub alternate: (u64, u64, u32),
    /// XCR0, 0 if only FXSAVE is there.
    pub features: u64,
    /// The XSAVE area as the processor wrote it.
    pub vector: &'a mut [u8],
}

/// Return address, ucontext and siginfo as bytes; completes the XSAVE area's software words.
pub fn build(contents: &mut Contents<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FRAME_BYTES as usize);
    let mut word = |value: u64| bytes.extend_from_slice(&value.to_le_bytes());
    word(contents.restorer);
    let extended = u64::from(contents.features != 0);
    // UC_FP_XSTATE if there is one, UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS.
    word(extended | 6);
    word(0);
    let (sp, size, flags) = contents.alternate;
    word(sp);
    word(u64::from(flags));
    word(size);
    for value in contents.registers.words {
        word(value);
    }
    // cs 0x33, gs 0, fs 0, ss 0x2b.
    word(0x33 | 0x2b << 48);
    word(contents.info.error);
    word(contents.info.trap);
    word(contents.mask);
    word(contents.info.address);
    word(contents.place.vector);
    for _ in 0..8 {
        word(0);
    }
    word(contents.mask);
    word(u64::from(contents.signal));
    word(u64::from(contents.info.code as u32));
    word(contents.info.first);
    word(contents.info.second);
    bytes.resize(FRAME_BYTES as usize, 0);
    complete_vector(contents.features, contents.vector);
    bytes
}

/// Writes what says how far the XSAVE area goes; its last four bytes are for the second magic word.
fn complete_vector(features: u64, area: &mut [u8]) {
    let len = area.len();
    if features == 0 || len < SOFTWARE_AREA + 48 {
        return;
    }
    let size = (len - 4) as u32;
    area[SOFTWARE_AREA..SOFTWARE_AREA + 48].fill(0);
    area[SOFTWARE_AREA..SOFTWARE_AREA + 4].copy_from_slice(&MAGIC1.to_le_bytes());
    area[SOFTWARE_AREA + 4..SOFTWARE_AREA + 8].copy_from_slice(&(size + 4).to_le_bytes());
    area[SOFTWARE_AREA + 8..SOFTWARE_AREA + 16].copy_from_slice(&features.to_le_bytes());
    area[SOFTWARE_AREA + 16..SOFTWARE_AREA + 20].copy_from_slice(&size.to_le_bytes());
    area[len - 4..].copy_from_slice(&MAGIC2.to_le_bytes());
}

/// What a frame says on the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The registers; rflags cut to what a program may set.
    pub registers: Registers,
    /// Signals to block.
    pub mask: u64,
    /// The XSAVE area, 0: none.
    pub vector: u64,
    /// The alternate stack.
    pub alternate: (u64, u64, u32),
}

/// Reads a ucontext.
pub fn restore(context: &[u8; CONTEXT_BYTES]) -> Restored {
    let word = |offset: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&context[offset..offset + 8]);
        u64::from_le_bytes(bytes)
    };
    let mut registers = Registers::default();
    for (at, place) in registers.words.iter_mut().enumerate() {
        *place = word(REGISTERS + 8 * at);
    }
    registers.words[17] = registers.words[17] & FLAGS_FREE | FLAGS_SET;
    let flags = word(24) as u32;
    Restored {
        registers,
        mask: word(MASK),
        vector: word(REGISTERS + 184),
        alternate: (word(16), word(32), flags & (linux::SS_DISABLE | linux::SS_AUTODISARM)),
    }
}

/// Makes an XSAVE area that a program wrote harmless to XRSTOR: features that exist, the standard
/// form, reserved bytes zero, MXCSR without reserved bits.
pub fn sanitise_vector(area: &mut [u8], features: u64) {
    let mxcsr_mask = read32(area, 28);
    let allowed = if mxcsr_mask == 0 { 0xffbf } else { mxcsr_mask };
    let mxcsr = read32(area, 24) & allowed & 0xffff;
    if let Some(place) = area.get_mut(24..28) {
        place.copy_from_slice(&mxcsr.to_le_bytes());
    }
    if features != 0
        && let Some(header) = area.get_mut(512..576)
    {
        let mut present = [0; 8];
        present.copy_from_slice(&header[..8]);
        let present = u64::from_le_bytes(present) & features;
        header.fill(0);
        header[..8].copy_from_slice(&present.to_le_bytes());
    }
}

fn read32(area: &[u8], offset: usize) -> u32 {
    let mut bytes = [0; 4];
    if let Some(found) = area.get(offset..offset + 4) {
        bytes.copy_from_slice(found);
    }
    u32::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handler_finds_its_stack_aligned_as_after_a_call() {
        for rsp in [0x7fff_0000_u64, 0x7fff_0008, 0x7fff_0037] {
            let place = place(rsp, true, 832).unwrap();
            assert_eq!(place.frame % 16, 8);
            assert_eq!(place.vector % 64, 0);
            assert!(place.vector + 836 <= rsp - 128);
            assert!(place.frame + FRAME_BYTES <= place.vector);
        }
        assert_eq!(super::place(100, true, 832), None);
    }

    #[test]
    fn what_goes_in_comes_out() {
        let mut registers = Registers::default();
        for (at, word) in registers.words.iter_mut().enumerate() {
            *word = 0x1000 + at as u64;
        }
        registers.words[17] = 0x246;
        let mut vector = [0; 832 + 4];
        let place = place(0x8000, true, 832).unwrap();
        let mut contents = Contents {
            place,
            signal: 10,
            info: Info { code: 0, first: 42, ..Info::default() },
            restorer: 0x4000,
            registers: &registers,
            mask: 0xff00,
            alternate: (1, 2, 0),
            features: 7,
            vector: &mut vector,
        };
        let bytes = build(&mut contents);
        assert_eq!(bytes.len() as u64, FRAME_BYTES);
        assert_eq!(&bytes[8 + 304..8 + 304 + 4], &10_u32.to_le_bytes());
        let mut context = [0; CONTEXT_BYTES];
        context.copy_from_slice(&bytes[8..8 + CONTEXT_BYTES]);
        let restored = restore(&context);
        assert_eq!(restored.registers, registers);
        assert_eq!(restored.mask, 0xff00);
        assert_eq!(restored.vector, place.vector);
        assert_eq!(&vector[464..468], &MAGIC1.to_le_bytes());
        assert_eq!(&vector[832..836], &MAGIC2.to_le_bytes());
    }

    #[test]
    fn a_forged_area_loses_its_teeth() {
        let mut area = [0xff; 832];
        sanitise_vector(&mut area, 7);
        assert_eq!(&area[512..520], &7_u64.to_le_bytes());
        assert!(area[520..576].iter().all(|&byte| byte == 0));
        assert_eq!(read32(&area, 24) & 0xffff_0000, 0);
    }
}
