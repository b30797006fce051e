//! Bytes that nobody meant as a program: refused or accepted, never a panic, always in time.

use code::compiler::{FRAME_BYTES_MAX, SLOT_BYTES_MAX, compile};
use code::error::{Error, Why};
use code::listing::Listing;
use code::signature::{Dialect, Signature};
use code::verifier::{Point, VISITS_MAX, Verification, Verified, verify};

use crate::generate;
use crate::programs::{GENERAL, Random, number};

/// What can be done to any bytes: verify, and if they pass, compile; show them.
fn treat(bytes: &[u8], points: &mut [Point], code: &mut [u8]) -> bool {
    let shown = Listing { program: bytes, calls: &[] }.to_string();
    assert!(shown.lines().count() <= bytes.len() / 8);
    for dialect in [Dialect::General, Dialect::Deterministic] {
        let signature = Signature { dialect, ..GENERAL };
        let Ok(mut function) = verify(bytes, &signature, points) else { continue };
        let slots = function.slots();
        assert!(function.visits() <= VISITS_MAX * slots);
        let length = compile(&mut function, code, 1).expect("there is room for every function");
        assert!(length <= SLOT_BYTES_MAX * slots + FRAME_BYTES_MAX, "{length} of {slots} slots");
        return true;
    }
    false
}

fn count(release: u64) -> u64 {
    number("XOK_PROGRAMS", if cfg!(debug_assertions) { release / 20 } else { release })
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random(number("XOK_SEED", 1) | 1);
    let mut points = vec![Point::default(); 32];
    let mut code = vec![0; 32 * SLOT_BYTES_MAX + FRAME_BYTES_MAX];
    let mut accepted = 0;
    for _ in 0..count(200_000) {
        let length = random.below(80);
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        accepted += u32::from(treat(&bytes, &mut points, &mut code));
    }
    println!("{accepted} accepted");
}

/// Programs with some bits turned come further than random bytes do.
#[test]
fn damaged_programs_never_panic() {
    let mut random = Random(number("XOK_SEED", 1) | 1);
    let mut points = vec![Point::default(); 1024];
    let mut code = vec![0; 1024 * SLOT_BYTES_MAX + FRAME_BYTES_MAX];
    let mut accepted = 0;
    let programs = count(20_000);
    for _ in 0..programs {
        let mut bytes = generate::program(&mut random, 20);
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        accepted += u64::from(treat(&bytes, &mut points, &mut code));
    }
    assert!(accepted > programs / 20, "{accepted}");
}

/// A verification that stops after every few looks, and goes on as another, ends as one that does
/// not.
#[test]
fn pieces_of_a_verification_say_the_same() {
    let mut random = Random(number("XOK_SEED", 1) | 1);
    let (mut points, mut others) = (vec![Point::default(); 1024], vec![Point::default(); 1024]);
    for _ in 0..count(4_000) {
        let mut bytes = generate::program(&mut random, 20);
        if random.chance(30) {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        let whole = verify(&bytes, &GENERAL, &mut points);
        let looks = 1 + random.below(30);
        let pieces = in_pieces(&bytes, &mut others, looks);
        match (whole, pieces) {
            (Ok(one), Ok(other)) => {
                let sums = |function: &Verified| {
                    (function.visits(), function.masked(), function.stack_bytes())
                };
                assert_eq!(sums(&one), sums(&other));
                for at in 0..one.slots() {
                    assert_eq!(one.access(at), other.access(at), "slot {at}");
                }
            }
            (whole, pieces) => assert_eq!(whole.err(), pieces.err()),
        }
    }
}

fn in_pieces<'a>(
    bytes: &'a [u8],
    points: &'a mut [Point],
    looks: usize,
) -> Result<Verified<'a>, Error> {
    let mut progress = Verification::begin(bytes, &GENERAL, points)?.pause();
    loop {
        let mut piece = Verification::resume(bytes, &GENERAL, points, progress);
        let is_all = piece.advance(looks)?;
        progress = piece.pause();
        if is_all {
            break;
        }
        let early = Verification::resume(bytes, &GENERAL, points, progress).finish();
        assert!(early.is_none(), "not all has been looked at");
    }
    let last = Verification::resume(bytes, &GENERAL, points, progress);
    Ok(last.finish().expect("all has been looked at"))
}

/// The verifier's own time: a program made to be looked at as often as possible, at its full
/// length.
#[test]
fn the_longest_program_is_verified_in_bounded_visits() {
    use code::builder::Builder;
    use code::instruction::{Condition, Register};
    use code::verifier::SLOTS_MAX;

    // Every slot jumps back to the first with one more register gone: most is lost one by one.
    let mut builder = Builder::new();
    let again = builder.label();
    for register in [0, 6, 7, 8, 9].into_iter().filter_map(Register::new) {
        builder.set(register, 0);
    }
    builder.place(again);
    for slot in 0..SLOTS_MAX - 6 {
        let register = Register::new([0, 6, 7, 8, 9][slot / 2 % 5]).expect("there are eleven");
        if slot % 2 == 0 {
            builder.set(register, slot as u64);
        } else {
            builder.branch(Condition::Equal, Register::R1, 0, again);
        }
    }
    let program = builder.exit().finish().expect("it is placed");
    let mut points = vec![Point::default(); SLOTS_MAX];
    let function = verify(&program, &GENERAL, &mut points).expect("a good program");
    assert_eq!(function.slots(), SLOTS_MAX);
    assert!(function.visits() <= VISITS_MAX * SLOTS_MAX, "{} visits", function.visits());

    let mut longer = program.clone();
    longer.extend(&program[..8]);
    assert_eq!(crate::programs::why(&longer, &GENERAL), Some(Why::TooLong));
}
