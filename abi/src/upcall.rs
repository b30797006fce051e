//! The save area: how the kernel speaks to a program (decisions 4, aegis95 S32, thesis98 E-1).
//!
//! One page of the application's, pinned for writing, never copy-on-write. The kernel writes it
//! through the direct map, so delivery cannot fault; nothing is ever written to the program's
//! stack. GS base holds its address by convention, so a handler needs no register to find it.
//!
//! ```text
//!  0x000  header      mask, depth, returning, pending, events, return range, accepting
//!  0x040  foreign     rip, rflags of the last foreign `syscall` (rcx and r11 are taken by it)
//!  0x080  resume      the library's: rip, rflags, rsp for its way back
//!  0x0c0  senders     count and the last eight environments that posted
//!  0x100  slot 0      ┐
//!  0x200  slot 1      │ frames of upcalls, innermost last; slot[depth] is written,
//!  0x300  slot 2      │ then depth grows by one
//!  0x400  slot 3      ┘
//!  0x500  free        the library's
//!  0x1000
//! ```
//!
//! Delivery of a fault: the kernel writes the slot, sets `mask`, increments `depth`, clears TF, DF,
//! AC and NT, loads rdi = slot's address, rsi = cause, rdx = address, rcx and r11 as `sysret`
//! needs, and enters at `fault_entry`; every other register is the program's. An event (cause
//! [`Cause::Event`]) is delivered the same way, only when `mask` is 0; otherwise its bit stays in
//! `pending` or `events`. The slot remembers the mask as it was; every delivery but a chained one
//! (below) stores 0 in `returning`.
//!
//! The way back needs no kernel: `returning` = slot address | 1; from `return_first` to
//! `return_last` (exclusive): restore registers, `depth` -= 1, `mask` = the slot's, test `pending`
//! and `events` (set and unmasked: back to the handler), `popfq`, `mov rsp, gs:resume.rsp`, `jmp
//! gs:resume.rip`. Whatever the kernel delivers while rip is inside that range, it takes as
//! arriving before the sequence began: `depth` is set back to `returning`'s slot + 1, nothing is
//! pushed, `mask` is set, and the handler is entered with that slot again (tail-chaining);
//! `returning` stays non-zero, which tells the handler that the program's registers are in the
//! slot, not in the processor.

use crate::atomic::{Atomic, Ordering};
use crate::limits::{SENDERS, UPCALL_DEPTH};
use crate::shared::Memory;

/// What one upcall saved; 256 bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Slot {
    /// Where the program was.
    pub rip: u64,
    /// Its flags.
    pub rflags: u64,
    /// Its stack pointer.
    pub rsp: u64,
    /// The registers delivery overwrites.
    pub rdi: u64,
    /// See `rdi`.
    pub rsi: u64,
    /// See `rdi`.
    pub rdx: u64,
    /// See `rdi`.
    pub rcx: u64,
    /// See `rdi`.
    pub r11: u64,
    /// [`Cause`] as a number.
    pub cause: u64,
    /// The processor's error code (page fault: bit 0 present, 1 write, 4 fetch), or 0.
    pub error: u64,
    /// The faulting address (page fault), or 0.
    pub address: u64,
    /// `SaveArea::mask` before the delivery; the way back stores it again.
    pub mask: u64,
    /// The library's: by its convention the program's other registers.
    pub free: [u64; 20],
}

/// The save area as the kernel writes it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SaveArea {
    /// Non-zero: asynchronous events wait. Set by each delivery and foreign call.
    pub mask: u64,
    /// Slots in use.
    pub depth: u64,
    /// Slot address | 1 while the way back runs, else 0.
    pub returning: u64,
    /// Bits posted by others ([`Call::Post`](crate::call::Call)); cleared by the owner, atomically.
    pub pending: u64,
    /// Bits set by the kernel (`EVENT_…`); cleared by the owner, atomically.
    pub events: u64,
    /// First address of the return sequence.
    pub return_first: u64,
    /// First address after it.
    pub return_last: u64,
    /// Non-zero: transfers are accepted. The kernel clears it when one enters.
    pub accepting: u64,
    /// rip after the last foreign `syscall`.
    pub foreign_rip: u64,
    /// rflags there.
    pub foreign_rflags: u64,
    /// The library's.
    pub foreign_free: [u64; 6],
    /// The library's way back: rip, rflags, rsp.
    pub resume: [u64; 8],
    /// Posts of bits ever received; the last sender is at `(count - 1) % 8`. Its bits are set
    /// afterwards: see `posts_set`.
    pub sender_count: u64,
    /// Environments that posted.
    pub senders: [u32; SENDERS],
    /// Ends of slices that the kernel has held off because `mask` was set: a critical section. Who
    /// leaves one in which this has grown yields; it is forced to after 100 µs.
    pub held_off: u64,
    /// Posts whose bits have been set: who reads this, and then takes the bits, has taken all that
    /// so many posts have set.
    pub posts_set: u64,
    /// Zero.
    pub zero: u64,
    /// Frames of upcalls.
    pub slots: [Slot; UPCALL_DEPTH],
}

/// Byte offsets, for assembly.
pub mod offset {
    /// `SaveArea::mask`
    pub const MASK: usize = 0x00;
    /// `SaveArea::depth`
    pub const DEPTH: usize = 0x08;
    /// `SaveArea::returning`
    pub const RETURNING: usize = 0x10;
    /// `SaveArea::pending`
    pub const PENDING: usize = 0x18;
    /// `SaveArea::events`
    pub const EVENTS: usize = 0x20;
    /// `SaveArea::return_first`
    pub const RETURN_FIRST: usize = 0x28;
    /// `SaveArea::return_last`
    pub const RETURN_LAST: usize = 0x30;
    /// `SaveArea::accepting`
    pub const ACCEPTING: usize = 0x38;
    /// `SaveArea::foreign_rip`
    pub const FOREIGN_RIP: usize = 0x40;
    /// `SaveArea::foreign_rflags`
    pub const FOREIGN_RFLAGS: usize = 0x48;
    /// `SaveArea::held_off`
    pub const HELD_OFF: usize = 0xe8;
    /// `SaveArea::resume`
    pub const RESUME: usize = 0x80;
    /// `SaveArea::slots`
    pub const SLOTS: usize = 0x100;
    /// First byte that the kernel never writes.
    pub const FREE: usize = 0x500;
}

const _: () = assert!(core::mem::size_of::<Slot>() == 256);
const _: () = assert!(core::mem::size_of::<SaveArea>() == offset::FREE);
const _: () = assert!(core::mem::offset_of!(SaveArea, accepting) == offset::ACCEPTING);
const _: () = assert!(core::mem::offset_of!(SaveArea, foreign_rip) == offset::FOREIGN_RIP);
const _: () = assert!(core::mem::offset_of!(SaveArea, resume) == offset::RESUME);
const _: () = assert!(core::mem::offset_of!(SaveArea, sender_count) == 0xc0);
const _: () = assert!(core::mem::offset_of!(SaveArea, posts_set) == 0xf0);
const _: () = assert!(core::mem::offset_of!(SaveArea, held_off) == offset::HELD_OFF);
const _: () = assert!(core::mem::offset_of!(SaveArea, slots) == offset::SLOTS);

/// The owner's: takes all bits of `pending` or `events`; those that were set.
#[inline]
pub fn take_all<W: Atomic<Value = u64>>(word: &W) -> u64 {
    word.swap(0, Ordering::AcqRel)
}

/// The owner's: takes those in `which`; those of them that were set.
#[inline]
pub fn take<W: Atomic<Value = u64>>(word: &W, which: u64) -> u64 {
    word.fetch_and(!which, Ordering::AcqRel) & which
}

/// The kernel's: says by bits of the word at this address that something has happened. Who sees
/// one, on whatever processor, sees as well what `more` says of it.
#[inline]
pub fn tell<M: Memory>(memory: &mut M, word: u64, bits: u64, more: impl FnOnce(&mut M)) {
    more(memory);
    memory.word_or(word, bits);
}

/// Why an upcall happened. Exceptions have the processor's vector numbers (SDM 3A §6.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// #DE
    Divide = 0,
    /// #DB: single step or breakpoint register.
    Debug = 1,
    /// #BP
    Breakpoint = 3,
    /// #OF
    Overflow = 4,
    /// #BR
    Bound = 5,
    /// #UD
    IllegalInstruction = 6,
    /// #NM
    NoDevice = 7,
    /// #NP
    NotPresentSegment = 11,
    /// #SS
    StackSegment = 12,
    /// #GP
    Protection = 13,
    /// #PF
    PageFault = 14,
    /// #MF
    FloatingPoint = 16,
    /// #AC
    Alignment = 17,
    /// #XM
    Simd = 19,
    /// A `syscall` outside the native window without a foreign entry.
    Foreign = 64,
    /// `pending` or `events` is non-zero.
    Event = 65,
}

/// A packet was put into a ring of the domain.
pub const EVENT_PACKET: u64 = 1 << 0;
/// A slice begins ([`FLAG_SLICE_START`](crate::setup::FLAG_SLICE_START)).
pub const EVENT_SLICE_START: u64 = 1 << 1;
/// The slice ends: save and yield ([`FLAG_SLICE_END`](crate::setup::FLAG_SLICE_END)).
pub const EVENT_SLICE_END: u64 = 1 << 2;
/// An environment that this one holds died, stopped or went on.
pub const EVENT_CHILD: u64 = 1 << 3;
/// A byte arrived in the console ring.
pub const EVENT_CONSOLE: u64 = 1 << 4;
/// A deadline set by `TimerSet` passed.
pub const EVENT_TIMER: u64 = 1 << 5;
/// A packet was sent: a completion counter changed.
pub const EVENT_SENT: u64 = 1 << 7;

/// Why `Sleep` or a transfer ended, in `rdx`.
pub mod woken {
    /// The predicate holds.
    pub const PREDICATE: u64 = 1;
    /// A posted bit in the mask is set.
    pub const POSTED: u64 = 2;
    /// An event bit in the mask is set.
    pub const EVENT: u64 = 3;
}
