//! Comparisons of words of memory, compiled: what a sleeper waits for.
//!
//! Not a program but its own small form: a sum of products of comparisons, without jumps back,
//! computed addresses or stores, so there is nothing to verify. Who compiles has checked the
//! addresses. The compiled form is entered at [`ENTRY`]:
//!
//! ```text
//!  extern "sysv64" fn(now: u64, key: u64) -> u64      rax rcx rdx are all that it changes
//!
//!  0      mov eax, 1; ret                             it holds
//!  ENTRY  comparison: rax = left & mask; rcx = right & mask; cmp
//!           last of its product: if true, to 0; others: if false, to the next product
//!         …
//!         xor eax, eax; ret                           it does not
//! ```
//! No word of it stands in the code as it is: addresses, constants and masks are xor-ed with a key
//! that the caller hands in, random and told to nobody.

/// Where the compiled form is entered.
pub const ENTRY: usize = 8;
/// Most comparisons of a watch.
pub const COMPARISONS_MAX: usize = 32;
/// The most bytes that one comparison becomes.
pub const BYTES_MAX: usize = 98;

/// One side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This value.
    Constant(u64),
    /// The time.
    Now,
    /// The 64-bit word at an address, a multiple of 8.
    Word(u64),
    /// The 32-bit word at an address, a multiple of 4.
    Half(u64),
}

/// How both sides compare, unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Equal.
    Equal,
    /// Not equal.
    NotEqual,
    /// Left below right.
    Below,
    /// Left at or above right.
    AtLeast,
}

impl How {
    /// Does it hold?
    pub fn holds(self, left: u64, right: u64) -> bool {
        match self {
            How::Equal => left == right,
            How::NotEqual => left != right,
            How::Below => left < right,
            How::AtLeast => left >= right,
        }
    }

    /// The processor's condition code.
    fn code(self) -> u8 {
        match self {
            How::Below => 2,
            How::AtLeast => 3,
            How::Equal => 4,
            How::NotEqual => 5,
        }
    }
}

const NOT_EQUAL: u8 = 5;

/// `left & mask  how  right & mask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The left side.
    pub left: Side,
    /// The right side.
    pub right: Side,
    /// How they compare.
    pub how: How,
    /// And-ed to both sides first.
    pub mask: u64,
    /// A 64-bit word and its value: while it has another one, the comparison counts as true.
    pub unless: Option<(u64, u64)>,
    /// It is the last one of its product.
    pub last: bool,
}

/// The registers used, by their number: rax, rcx, rdx.
const LEFT: u8 = 0;
const RIGHT: u8 = 1;
const SCRATCH: u8 = 2;

/// Compiles comparison by comparison into a buffer.
#[derive(Debug)]
pub struct Compiler<'c> {
    code: &'c mut [u8],
    at: usize,
    key: u64,
    /// Where distances to the next product stand.
    open: [u16; COMPARISONS_MAX],
    count: usize,
    compared: usize,
}

impl<'c> Compiler<'c> {
    /// Begins.
    pub fn new(code: &'c mut [u8], key: u64) -> Self {
        let mut compiler =
            Self { code, at: 0, key, open: [0; COMPARISONS_MAX], count: 0, compared: 0 };
        // mov eax, 1; ret; and what nobody comes to.
        compiler.put(&[0xb8, 1, 0, 0, 0, 0xc3, 0xcc, 0xcc]);
        compiler
    }

    fn put(&mut self, bytes: &[u8]) {
        if let Some(place) = self.code.get_mut(self.at..self.at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        self.at += bytes.len();
    }

    /// `register = value`, by the key.
    fn set(&mut self, register: u8, value: u64) {
        self.put(&[0x48, 0xb8 | register]);
        self.put(&(value ^ self.key).to_le_bytes());
        // xor register, rsi
        self.put(&[0x48, 0x31, 0xf0 | register]);
    }

    fn load(&mut self, register: u8, side: Side) {
        let through = register << 3 | register;
        match side {
            Side::Constant(value) => self.set(register, value),
            // mov register, rdi
            Side::Now => self.put(&[0x48, 0x89, 0xf8 | register]),
            Side::Word(address) => {
                self.set(register, address);
                self.put(&[0x48, 0x8b, through]);
            }
            Side::Half(address) => {
                self.set(register, address);
                self.put(&[0x8b, through]);
            }
        }
    }

    /// Jumps if `condition`: where it holds, or to the next product.
    fn branch(&mut self, condition: u8, holds: bool) {
        self.put(&[0x0f, 0x80 | condition]);
        let behind = self.at as i32 + 4;
        if !holds && let Some(place) = self.open.get_mut(self.count) {
            *place = self.at as u16;
            self.count += 1;
        }
        self.put(&(-behind).to_le_bytes());
    }

    /// Whatever is jumped to from `place` comes next.
    fn land(&mut self, place: usize) {
        let distance = (self.at - place - 4) as i32;
        if let Some(bytes) = self.code.get_mut(place..place + 4) {
            bytes.copy_from_slice(&distance.to_le_bytes());
        }
    }

    /// The next comparison.
    pub fn compare(&mut self, comparison: &Comparison) {
        let Comparison { left, right, how, mask, unless, last } = *comparison;
        let mut skip = None;
        if let Some((address, value)) = unless {
            self.load(LEFT, Side::Word(address));
            self.set(RIGHT, value);
            // cmp rax, rcx
            self.put(&[0x48, 0x39, 0xc8]);
            if last {
                self.branch(NOT_EQUAL, true);
            } else {
                self.put(&[0x0f, 0x80 | NOT_EQUAL, 0, 0, 0, 0]);
                skip = Some(self.at - 4);
            }
        }
        self.load(LEFT, left);
        self.load(RIGHT, right);
        if mask != u64::MAX {
            self.set(SCRATCH, mask);
            // and rax, rdx; and rcx, rdx
            self.put(&[0x48, 0x21, 0xd0, 0x48, 0x21, 0xd1]);
        }
        // cmp rax, rcx
        self.put(&[0x48, 0x39, 0xc8]);
        let code = how.code();
        self.branch(if last { code } else { code ^ 1 }, last);
        if let Some(place) = skip {
            self.land(place);
        }
        if last {
            self.next_product();
        }
        self.compared += 1;
    }

    fn next_product(&mut self) {
        for at in 0..core::mem::take(&mut self.count) {
            self.land(self.open[at].into());
        }
    }

    /// Ends; how many bytes it took, if it fits the buffer and the limit.
    pub fn finish(mut self) -> Option<usize> {
        self.next_product();
        // xor eax, eax; ret
        self.put(&[0x31, 0xc0, 0xc3]);
        (self.at <= self.code.len() && self.compared <= COMPARISONS_MAX).then_some(self.at)
    }
}
