//! The bound of memory, enumerated: what a verified program touches is what it was given.
//!
//! ```text
//!  verifier, interpreter   extent::{split, within}          one text for two widths: all of the
//!  compiled code           masked, here                     narrow one is tried, both agree
//!  compiled code, as run   the same bytes as `masked` says  edges of the wide one
//! ```
//! An address is any number: the sum of a register and an offset wraps, in all of them alike, so
//! that all addresses are all cases.

use code::argument::{Argument, Outcome};
use code::builder::Builder;
use code::extent::{split, split_narrow, within, within_narrow};
use code::instruction::{Register, Size};
use code::signature::{
    AREA_BYTES_MAX, AREA_BYTES_MIN, AREAS, Parameter, Rights, STACK, STACK_BYTES, Signature, WORD,
};
use code::verifier::{Point, verify};

use crate::executable::{Executable, World};
use crate::masks::ignore_the_branch;
use crate::programs::GENERAL;

/// How many bytes an access has.
const SIZES: [u8; 4] = [1, 2, 4, 8];

/// Where the compiled code makes an access: the entry, the offset in it, and whether its branch
/// lets it come to that. A wrong guess makes the access whatever the branch says.
macro_rules! masked {
    ($name:ident: $address:ty, twice $half:ty) => {
        fn $name(
            at: $address,
            bytes: $half,
            length: impl Fn($half) -> $address,
        ) -> ($half, $address, bool) {
            const ALL: $address = <$address>::MAX;
            // rcx = rax >> half; cmp rcx, 8; sbb rdx, rdx; and rcx, rdx
            let number = at >> <$half>::BITS;
            let number = number & if number < AREAS as $address { ALL } else { 0 };
            // rax = its low half; rdx = rax + bytes - 1; cmp rdx, length[rcx]
            let offset = at & <$half>::MAX as $address;
            let last = offset.wrapping_add(bytes as $address - 1);
            let borrow = last < length(number as $half);
            // sbb rdx, rdx; and rax, rdx
            (number as $half, offset & if borrow { ALL } else { 0 }, borrow)
        }
    };
}

masked!(masked_narrow: u16, twice u8);
masked!(masked_wide: u64, twice u32);

/// All addresses of 16 bits, all sizes, all lengths that an area of the number may have, or none.
#[test]
fn every_narrow_access_is_inside_what_was_given() {
    let lengths = || (AREA_BYTES_MIN as u8..=u8::MAX).chain([0]);
    for (at, bytes) in (0..=u16::MAX).flat_map(|at| SIZES.map(|bytes| (at, bytes))) {
        let (number, offset) = split_narrow(at);
        assert_eq!(u16::from(number) << 8 | u16::from(offset), at);
        let exists = usize::from(number) < AREAS;
        for length in lengths().filter(|&length| exists || length == 0) {
            // Numbers without mistakes: nothing of so few bits wraps in 32.
            let inside = u32::from(offset) + u32::from(bytes) <= u32::from(length);
            assert_eq!(within_narrow(offset, bytes, length), inside, "{at:#x} {bytes} {length}");
            // The first entry is nobody's, and so has no length.
            let of = |entry: u8| if entry == number { u16::from(length) } else { 0 };
            let (entry, place, goes_on) = masked_narrow(at, bytes, of);
            assert_eq!(goes_on, exists && inside, "{at:#x} {bytes} {length}");
            assert!(usize::from(entry) < AREAS);
            assert_eq!(entry, if exists { number } else { 0 });
            // Who went on is where it wanted to be; who only guessed, at an area's first bytes,
            // and entries of no length have the stack's.
            assert_eq!(place, if goes_on { u16::from(offset) } else { 0 });
            let own = if of(entry) == 0 { STACK_BYTES } else { u32::from(of(entry)) };
            assert!(u32::from(place) + u32::from(bytes) <= own);
        }
    }
}

/// The wide ones, at each edge of each length: what all of the narrow ones were.
#[test]
fn wide_accesses_are_as_narrow_ones() {
    let lengths = (AREA_BYTES_MIN..=4096).chain([0, 65_536, AREA_BYTES_MAX]);
    for length in lengths {
        let edges = [0, 8, length, u32::MAX];
        for offset in edges.into_iter().flat_map(|e| e.saturating_sub(9)..=e.saturating_add(9)) {
            for (number, bytes) in
                [0, 1, 7, 8].into_iter().flat_map(|number| SIZES.map(|bytes| (number, bytes)))
            {
                let at = number << 32 | u64::from(offset);
                assert_eq!(split(at), (number as u32, offset));
                let inside = u64::from(offset) + u64::from(bytes) <= u64::from(length);
                assert_eq!(within(offset, bytes.into(), length), inside);
                let exists = (number as usize) < AREAS && number != 0;
                let of = |entry: u32| if entry == 0 { 0 } else { u64::from(length) };
                let (entry, place, goes_on) = masked_wide(at, bytes.into(), of);
                assert_eq!(goes_on, exists && inside);
                assert_eq!(u64::from(entry), if exists { number } else { 0 });
                assert_eq!(place, if goes_on { u64::from(offset) } else { 0 });
            }
        }
    }
    // What a proved access adds to an area's base is a displacement of 31 bits.
    const { assert!(AREA_BYTES_MAX < 1 << 31) };
}

/// The compiled code without its branch changes the bytes that `masked` says, and no others.
#[test]
fn compiled_code_goes_where_the_model_says() {
    const LENGTHS: [usize; 2] = [100, 8];
    let parameters = [
        WORD,
        Parameter::area(LENGTHS[0] as u32, Rights::Write),
        Parameter::area(LENGTHS[1] as u32, Rights::Write),
    ];
    let signature = Signature { parameters: &parameters, ..GENERAL };
    let length = |entry: u32| match entry as usize {
        entry @ (2 | 3) => LENGTHS[entry - 2] as u64,
        STACK => u64::from(STACK_BYTES),
        _ => 0,
    };
    let numbers = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1 << 31, u64::from(u32::MAX)];
    for size in [Size::B1, Size::B2, Size::B4, Size::B8] {
        let mut builder = Builder::new();
        builder.set(Register::R0, 0).store(size, Register::R1, 0, -1).exit();
        let program = builder.finish().expect("no labels");
        let mut points = [Point::default(); 4];
        let mut function = verify(&program, &signature, &mut points).expect("a good program");
        let mut executable = Executable::new(4);
        executable.load_changed(&mut function, 5, ignore_the_branch);
        for (number, edge) in numbers.into_iter().flat_map(|n| [0, 8, 100].map(|edge| (n, edge))) {
            for by in -9..=9 {
                let at = (number << 32).wrapping_add_signed(edge + by);
                let (mut first, mut second) = ([0; LENGTHS[0]], [0; LENGTHS[1]]);
                let arguments = &mut [
                    Argument::Word(at),
                    Argument::Write(&mut first),
                    Argument::Write(&mut second),
                ];
                let (outcome, _) = executable.run(&signature, arguments, &mut World::default());
                assert_eq!(outcome, Outcome::Returned(0));
                let (entry, place, _) = masked_wide(at, size.bytes(), length);
                let touched = |number: u32, memory: &[u8]| {
                    let places = place as usize..place as usize + size.bytes() as usize;
                    let here = |at| u8::from(entry == number && places.contains(&at)) * 0xff;
                    assert!(memory.iter().enumerate().all(|(at, &byte)| byte == here(at)));
                };
                touched(2, &first);
                touched(3, &second);
            }
        }
    }
}
