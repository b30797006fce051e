//! The signal frame: what a handler finds on the stack, byte for byte as on Linux.
//!
//! ```text
//!  frame + 0    return address (the restorer)        rsp at the handler's entry
//!        + 8    ucontext: flags, link, stack, 256 bytes of registers, mask      304 bytes
//!        + 312  siginfo                                                         128 bytes
//!          …    XSAVE area, aligned to 64 (`vector`)
//! ```
//! It begins below the red zone of the interrupted function, or on the alternate stack.

use crate::signal::Info;
use xok::upcall::Slot;

/// Bytes of return address, ucontext and siginfo.
pub const FRAME_BYTES: u64 = size_of::<Frame>() as u64;
/// Bytes below rsp that belong to the interrupted function (x86-64 psABI).
const RED_ZONE: u64 = 128;

/// Flags that a program may have set by returning from a handler (not TF: see docs/caveats.md).
pub const FLAGS_FREE: u64 = 0x0005_0cd5;
/// Always set: interrupts on and the bit that is always one.
pub const FLAGS_SET: u64 = 0x202;
/// cs, gs, fs, ss, 16 bits each, as they always are.
const SELECTORS: u64 = 0x33 | 0x2b << 48;
/// `UC_FP_XSTATE`: there is more than FXSAVE's part.
const EXTENDED: u64 = 1;
/// `UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`
const STACK_SELECTOR: u64 = 6;

/// `struct rt_sigframe`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Frame {
    /// Where the handler returns to.
    pub restorer: u64,
    /// The interrupted program.
    pub context: Context,
    /// `siginfo_t`
    pub info: [u64; 16],
}

/// `struct ucontext` as the kernel has it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Context {
    flags: u64,
    link: u64,
    /// The alternate stack: address, flags, bytes.
    pub alternate: [u64; 3],
    registers: Registers,
    selectors: u64,
    error: u64,
    trap: u64,
    old_mask: u64,
    address: u64,
    /// Address of the XSAVE area, 0: none.
    pub vector: u64,
    reserved: [u64; 8],
    /// Blocked signals.
    pub mask: u64,
}

/// The registers in the order of `struct sigcontext`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Registers {
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rsp: u64,
    pub rip: u64,
    pub rflags: u64,
}

/// From the stack pointer of a handler that has returned to the rax that the way back restores.
pub const RETURNED_RAX: usize = core::mem::offset_of!(Frame, context)
    + core::mem::offset_of!(Context, registers)
    + core::mem::offset_of!(Registers, rax)
    - size_of::<u64>();

const _: () = assert!(size_of::<Frame>() == 440 && size_of::<Context>() == 304);

/// Where the parts of a frame lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The frame: rsp at the handler's entry.
    pub frame: u64,
    /// The XSAVE area, a multiple of 64.
    pub vector: u64,
}

impl Place {
    /// Address of the ucontext.
    pub fn context(self) -> u64 {
        self.frame + core::mem::offset_of!(Frame, context) as u64
    }

    /// Address of the siginfo.
    pub fn info(self) -> u64 {
        self.frame + core::mem::offset_of!(Frame, info) as u64
    }
}

/// Places a frame with a vector area of `vector_bytes` below `top`.
pub fn place(top: u64, vector_bytes: u64) -> Option<Place> {
    let vector = top.checked_sub(vector_bytes)? & !63;
    let frame = (vector.checked_sub(FRAME_BYTES)? & !15).checked_sub(8)?;
    Some(Place { frame, vector })
}

/// The stack pointer of an interrupted function, without what it may use below.
pub fn below_red_zone(rsp: u64) -> u64 {
    rsp.wrapping_sub(RED_ZONE)
}

/// An alternate signal stack: address, bytes, flags.
pub type Alternate = (u64, u64, u32);

/// What goes into a frame beside the interrupted program's registers.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// The signal.
    pub signal: u32,
    /// What is known of it.
    pub info: &'a Info,
    /// Where the handler returns to.
    pub restorer: u64,
    /// The interrupted program's blocked signals.
    pub mask: u64,
    /// Its alternate stack.
    pub alternate: Alternate,
    /// Where the vector area is.
    pub vector: u64,
    /// Is there more in it than FXSAVE's part?
    pub extended: bool,
}

/// Return address, ucontext and siginfo.
#[inline]
pub fn build(slot: &Slot, contents: &Contents<'_>) -> Frame {
    let Contents { signal, info, restorer, mask, alternate, vector, extended } = *contents;
    let context = Context {
        flags: STACK_SELECTOR | if extended { EXTENDED } else { 0 },
        link: 0,
        alternate: [alternate.0, u64::from(alternate.2), alternate.1],
        registers: registers(slot),
        selectors: SELECTORS,
        error: info.error,
        trap: info.trap,
        old_mask: mask,
        address: info.address,
        vector,
        reserved: [0; 8],
        mask,
    };
    let mut told = [0; 16];
    told[0] = u64::from(signal);
    told[1] = u64::from(info.code as u32);
    told[2] = info.first;
    told[3] = info.second;
    Frame { restorer, context, info: told }
}

/// The slot's registers in the order of the signal context.
fn registers(slot: &Slot) -> Registers {
    Registers {
        r8: slot.r8,
        r9: slot.r9,
        r10: slot.r10,
        r11: slot.r11,
        r12: slot.r12,
        r13: slot.r13,
        r14: slot.r14,
        r15: slot.r15,
        rdi: slot.rdi,
        rsi: slot.rsi,
        rbp: slot.rbp,
        rbx: slot.rbx,
        rdx: slot.rdx,
        rax: slot.rax,
        rcx: slot.rcx,
        rsp: slot.rsp,
        rip: slot.rip,
        rflags: slot.rflags,
    }
}

/// Makes the slot's registers those of `context`; rflags are cut to what a program may set.
#[inline]
pub fn restore(slot: &mut Slot, context: &Context) {
    let from = &context.registers;
    slot.r8 = from.r8;
    slot.r9 = from.r9;
    slot.r10 = from.r10;
    slot.r11 = from.r11;
    slot.r12 = from.r12;
    slot.r13 = from.r13;
    slot.r14 = from.r14;
    slot.r15 = from.r15;
    slot.rdi = from.rdi;
    slot.rsi = from.rsi;
    slot.rbp = from.rbp;
    slot.rbx = from.rbx;
    slot.rdx = from.rdx;
    slot.rax = from.rax;
    slot.rcx = from.rcx;
    slot.rsp = from.rsp;
    slot.rip = from.rip;
    slot.rflags = from.rflags & FLAGS_FREE | FLAGS_SET;
}

/// The alternate stack that `context` names.
pub fn alternate(context: &Context) -> Alternate {
    let [start, flags, size] = context.alternate;
    (start, size, flags as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_raw_sys::general as linux;

    #[test]
    fn the_handler_finds_its_stack_aligned_as_after_a_call() {
        for rsp in [0x7fff_0000_u64, 0x7fff_0008, 0x7fff_0037] {
            let place = place(below_red_zone(rsp), 836).unwrap();
            assert_eq!(place.frame % 16, 8);
            assert_eq!(place.vector % 64, 0);
            assert!(place.vector + 836 <= rsp - 128);
            assert!(place.frame + FRAME_BYTES <= place.vector);
        }
        assert_eq!(super::place(100, 836), None);
    }

    #[test]
    fn what_goes_in_comes_out() {
        let slot = Slot {
            rip: 0x1000,
            rflags: 0x246,
            rsp: 0x8000,
            rax: 3,
            r8: 4,
            r15: 5,
            ..Slot::default()
        };
        let info = Info { code: -6, first: 42, second: 43, trap: 14, error: 5, address: 0x99 };
        let contents = Contents {
            signal: 10,
            info: &info,
            restorer: 0x4000,
            mask: 0xff00,
            alternate: (1, 2, linux::SS_DISABLE),
            vector: 0x7000,
            extended: true,
        };
        let frame = build(&slot, &contents);
        assert_eq!(frame.info[..4], [10, 0xffff_fffa, 42, 43]);
        assert_eq!(frame.context.flags, 7);
        assert_eq!((frame.context.mask, frame.context.vector), (0xff00, 0x7000));
        assert_eq!(alternate(&frame.context), (1, 2, linux::SS_DISABLE));
        let mut back = Slot::default();
        restore(&mut back, &frame.context);
        assert_eq!(registers(&back), registers(&slot));
    }

    #[test]
    fn flags_that_are_not_the_programs_stay() {
        let slot = Slot { rflags: !0, ..Slot::default() };
        let info = Info::default();
        let contents = Contents {
            signal: 1,
            info: &info,
            restorer: 0,
            mask: 0,
            alternate: (0, 0, 0),
            vector: 0,
            extended: false,
        };
        let mut back = Slot::default();
        restore(&mut back, &build(&slot, &contents).context);
        assert_eq!(back.rflags, FLAGS_FREE | FLAGS_SET);
    }
}
