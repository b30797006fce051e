//! Protected methods: functions that alone reach a region's bytes (decision 0023, thesis98 M-16).
//!
//! A region has up to [`METHODS`] methods, each of up to three functions in the bytecode of RFC
//! 9669, bound by `MethodBind` before anybody is attached. From then on its bytes are reached by
//! `MethodCall` alone.
//!
//! ```text
//!  r1  all bytes of the region, to read         r3 r4 r5  the caller's three words
//!  r2  a copy of the method's part of it: to write for the body, to read for the tests
//!
//!  before ── agrees ──► body ──► after ── agrees ──► the copy goes back; `rdx` is the body's r0
//!    └─ no, outside, budget spent: `Refused`, and nothing has changed ──┘
//! ```

use crate::limits::METHODS;

/// Which function of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// What the method does. It is bound first.
    Body = 0,
    /// Looks before: whether the call may be made. 0: no.
    Before = 1,
    /// Looks at what the body has done, before it counts: whether it may stay. 0: no.
    After = 2,
}

/// Functions that one method may have.
pub const PARTS: usize = 3;

impl Part {
    /// The part with this number.
    pub const fn from_number(number: u8) -> Option<Part> {
        match number {
            0 => Some(Part::Body),
            1 => Some(Part::Before),
            2 => Some(Part::After),
            _ => None,
        }
    }
}

/// What `MethodBind` reads from program memory, once; the program's slots of 8 bytes follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Binding {
    /// Which method, below `limits::METHODS`.
    pub method: u8,
    /// [`Part`] as a number.
    pub part: u8,
    /// Who may call it: a bit for each role. Of a body; 0 for tests.
    pub roles: u8,
    /// Zero.
    pub zero: u8,
    /// What jumps back may cost in one run: a jump from slot p to t takes p - t + 1.
    pub budget: u32,
    /// First byte of the region that the body may change. 0 for tests, which see the same part.
    pub offset: u32,
    /// How many bytes from there, at least 8. 0 for tests.
    pub length: u32,
}

impl Binding {
    /// As it lies in memory.
    pub const fn to_bytes(self) -> [u8; BINDING_BYTES] {
        let [a, b, c, d] = self.budget.to_le_bytes();
        let [e, f, g, h] = self.offset.to_le_bytes();
        let [i, j, k, l] = self.length.to_le_bytes();
        let Self { method, part, roles, zero, .. } = self;
        [method, part, roles, zero, a, b, c, d, e, f, g, h, i, j, k, l]
    }
}

/// Bytes of a [`Binding`].
pub const BINDING_BYTES: usize = core::mem::size_of::<Binding>();

/// Why a call of a method was `Refused`: `rdx` is the [`Part`] that ended it, and 256 times one of
/// these.
pub mod refused {
    /// It answered 0, being a test.
    pub const DISAGREED: u64 = 0;
    /// It loaded or stored outside of what it is given.
    pub const OUTSIDE: u64 = 1;
    /// Its budget was spent.
    pub const BUDGET: u64 = 2;
}

const _: () = assert!(BINDING_BYTES == 16);
const _: () = assert!(METHODS <= 256);
