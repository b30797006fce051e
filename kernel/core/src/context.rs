//! The registers of an environment that is not running, as entry code lays them down.
//!
//! ```text
//!  offset 0   r15 r14 r13 r12 r11 r10 r9 r8 rbp rdi rsi rdx rcx rbx rax   15 words, by the stub
//!       120   error, zero                                                 error code; padding
//!       136   rip cs rflags rsp ss                                        5 words, by the CPU
//!       176   end: TSS.RSP0 points here, so it is a multiple of 16
//!       176   fs_base gs_base
//!       192
//! ```

use abi::id::{DomainId, EnvId};

/// All general registers of an environment; lives in its slot of kernel memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
#[allow(missing_docs)]
pub struct Context {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rbp: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rbx: u64,
    pub rax: u64,
    pub vector: u64,
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
}

/// Byte offset one past `ss`: where the processor begins to push.
pub const FRAME_END: usize = 176;

/// User code selector (decisions 27: as Linux).
pub const USER_CS: u64 = 0x33;
/// User data selector.
pub const USER_SS: u64 = 0x2b;
/// Flags a program may choose: CF PF AF ZF SF TF DF OF NT AC ID. IF is always set.
pub const USER_FLAGS: u64 = 1
    | 1 << 2
    | 1 << 4
    | 1 << 6
    | 1 << 7
    | 1 << 8
    | 1 << 10
    | 1 << 11
    | 1 << 14
    | 1 << 18
    | 1 << 21;
/// IF and the bit that is always one.
pub const FIXED_FLAGS: u64 = 1 << 9 | 1 << 1;

/// Bytes of the `syscall` instruction.
pub const SYSCALL_BYTES: u64 = 2;

impl Context {
    /// Makes the call that it is in begin anew.
    pub fn again(&mut self) {
        self.rip = self.rip.wrapping_sub(SYSCALL_BYTES);
        self.rcx = self.rip;
    }

    /// Takes that back: the call has been done.
    pub fn answered(&mut self) {
        self.rip = self.rip.wrapping_add(SYSCALL_BYTES);
        self.rcx = self.rip;
    }

    /// A context that starts at `rip` with everything else zero.
    pub fn starting(rip: u64, rsp: u64, argument: u64) -> Self {
        Self {
            rip,
            rsp,
            rdi: argument,
            cs: USER_CS,
            ss: USER_SS,
            rflags: FIXED_FLAGS,
            ..Self::default()
        }
    }

    /// Becomes that of who is entered by a transfer: `message` is the sender's.
    #[inline]
    pub fn enter(&mut self, message: &Self, entry: u64, sender: EnvId) {
        self.take_message(message);
        (self.rax, self.rsp) = (message.rax, message.rsp);
        (self.rip, self.rflags) = (entry, FIXED_FLAGS);
        (self.cs, self.ss) = (USER_CS, USER_SS);
        // Not by `sysret`, which would take rcx and r11.
        (self.rcx, self.r11) = (u64::from(sender.0), FIXED_FLAGS);
    }

    /// Becomes that of who gets a reply: `message` is the sender's.
    #[inline]
    pub fn resume(&mut self, message: &Self, sender: EnvId) {
        self.take_message(message);
        (self.rax, self.rcx, self.r11) = (0, u64::from(sender.0), self.rflags);
    }

    /// Gets the message of a visit, the domain left and the environment's own id: all that arrives
    /// besides rip, the stack pointer and the bases.
    pub fn take_visit(&mut self, message: &Self, from: DomainId, own: EnvId) {
        (self.rsi, self.rdx) = (message.rsi, message.rdx);
        (self.r8, self.r9, self.r10) = (message.r8, message.r9, message.r10);
        // Not by `sysret`, which would take rcx and r11.
        (self.rdi, self.rcx) = (from.0, u64::from(own.0));
    }

    /// The registers that arrive either way.
    #[inline]
    fn take_message(&mut self, message: &Self) {
        (self.r15, self.r14, self.r13, self.r12) =
            (message.r15, message.r14, message.r13, message.r12);
        (self.r10, self.r9, self.r8, self.rbp) = (message.r10, message.r9, message.r8, message.rbp);
        (self.rdi, self.rsi, self.rdx, self.rbx) =
            (message.rdi, message.rsi, message.rdx, message.rbx);
        (self.vector, self.error) = (0, message.error);
    }

    /// Sets what a call answers and clears every other register a call may destroy.
    pub fn answer(&mut self, error: u64, value: u64) {
        self.rax = error;
        self.rdx = value;
        self.rdi = 0;
        self.rsi = 0;
        self.r8 = 0;
        self.r9 = 0;
        self.r10 = 0;
    }
}

const _: () = assert!(core::mem::offset_of!(Context, fs_base) == FRAME_END);
const _: () = assert!(core::mem::size_of::<Context>() <= 192);
