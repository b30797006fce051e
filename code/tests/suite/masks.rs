//! The mask's bound: no address, right or guessed, leads outside of what the function was given.

use code::argument::{Argument, Outcome};
use code::builder::Builder;
use code::compiler::compile;
use code::instruction::{Operation, Register, Size};
use code::signature::{Parameter, Rights, Signature, WORD, address};
use code::verifier::{Point, Verified, verify};

use crate::executable::{Executable, Guarded, World};
use crate::programs::{GENERAL, Random};

const SIZES: [Size; 4] = [Size::B1, Size::B2, Size::B4, Size::B8];
const R0: Register = Register::R0;
const R1: Register = Register::R1;

/// Loads from the address in r1, or stores a byte pattern there.
fn program(size: Size, store: bool) -> Vec<u8> {
    let mut builder = Builder::new();
    builder.set(R0, 0x55);
    if store {
        builder.store(size, R1, 0, 0x5555_5555);
    } else {
        builder.load(size, R0, R1, 0);
    }
    builder.exit().finish().expect("no labels")
}

/// The compiled code's branch to its end, whose offset is the comparison's: 0f 83, a distance.
pub fn ignore_the_branch(code: &mut [u8]) {
    let found: Vec<usize> =
        (0..code.len() - 5).filter(|&at| code[at] == 0x0f && code[at + 1] == 0x83).collect();
    let [at] = found[..] else { panic!("one branch of that kind, not {}", found.len()) };
    // Six bytes of nothing: now the processor does always what it would do after a wrong guess.
    code[at..at + 6].fill(0x90);
}

/// An area of `bytes` bytes at the very begin or end of a page between two that nobody may touch;
/// the function has lost its branch: every access, whatever its address, is made, and none faults.
#[test]
fn a_wrong_guess_stays_inside() {
    let mut random = Random(77);
    for (bytes, last) in [8, 9, 64, 100, 4096].into_iter().flat_map(|b| [(b, false), (b, true)]) {
        for (size, store) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
            let parameters = [WORD, Parameter::area(bytes, Rights::Write)];
            let signature = Signature { parameters: &parameters, ..GENERAL };
            let program = program(size, store);
            let mut points = [Point::default(); 4];
            let mut function = verify(&program, &signature, &mut points).expect("a good program");
            let mut executable = Executable::new(4);
            executable.load_changed(&mut function, 3, ignore_the_branch);
            let mut guarded = Guarded::new();
            let end = address(2) + u64::from(bytes);
            let edges = [address(2), end, address(3), address(9), 0, u64::MAX];
            let near = edges
                .into_iter()
                .flat_map(|edge| (-9..=9).map(move |d| edge.wrapping_add_signed(d)));
            let far = (0..50).map(|_| random.word()).collect::<Vec<_>>();
            for at in near.chain(far) {
                let memory = Argument::Write(guarded.slice(bytes as usize, last));
                let arguments = &mut [Argument::Word(at), memory];
                let (outcome, _) = executable.run(&signature, arguments, &mut World::default());
                assert!(matches!(outcome, Outcome::Returned(_)), "{at:#x}");
            }
            let inside = guarded.slice(bytes as usize, last);
            assert!(!store || inside.contains(&0x55));
            let touched = inside.iter().filter(|&&byte| byte != 0).count();
            let all = guarded.slice(guarded.bytes, false);
            assert_eq!(all.iter().filter(|&&byte| byte != 0).count(), touched, "the rest of it");
        }
    }
}

/// With the branch: the same addresses are inside or end the function.
#[test]
fn what_is_outside_ends_the_function() {
    let parameters = [WORD, Parameter::area(100, Rights::Write), Parameter::area(64, Rights::Read)];
    let signature = Signature { parameters: &parameters, ..GENERAL };
    for (size, store) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
        let program = program(size, store);
        let mut points = [Point::default(); 4];
        let mut function = verify(&program, &signature, &mut points).expect("a good program");
        let mut executable = Executable::new(4);
        executable.load(&mut function, 3);
        let bytes = u64::from(size.bytes());
        let inside = |at: u64, area: usize, length: u64| {
            at >= address(area) && at + bytes <= address(area) + length
        };
        let edges = [address(2), address(2) + 100, address(3), address(3) + 64, address(6), 0];
        let edges = edges.into_iter().chain([address(6) + 512, address(7), address(8), u64::MAX]);
        for at in edges.flat_map(|edge| (-9..=9).map(move |by| edge.wrapping_add_signed(by))) {
            let (mut write, read) = ([1; 100], [1; 64]);
            let arguments =
                &mut [Argument::Word(at), Argument::Write(&mut write), Argument::Read(&read)];
            let (outcome, _) = executable.run(&signature, arguments, &mut World::default());
            let allowed = at < address(7)
                && (inside(at, 2, 100) || inside(at, 6, 512) || (inside(at, 3, 64) && !store));
            let ended = outcome == Outcome::Outside;
            assert_eq!(ended, !allowed, "{at:#x} {size:?} store {store}: {outcome:?}");
        }
    }
}

/// Each masked access has the two masks in the code, and no proved one has any: `sbb rdx, rdx` and
/// `and`, of the area's number and of the offset.
#[test]
fn each_computed_access_has_its_masks() {
    let mask = |code: &[u8], and: [u8; 3]| {
        let pattern = [0x48, 0x19, 0xd2, and[0], and[1], and[2]];
        code.windows(6).filter(|window| *window == pattern).count()
    };
    let mut random = Random(99);
    let mut points = vec![Point::default(); 1024];
    let mut code = vec![0; 200_000];
    let mut masks = 0;
    for _ in 0..300 {
        let program = crate::generate::program(&mut random, 30);
        let Ok(mut function) = verify(&program, &GENERAL, &mut points) else { continue };
        let length = compile(&mut function, &mut code, 9).expect("there is room");
        let code = &code[..length];
        assert_eq!(mask(code, [0x48, 0x21, 0xd1]), function.masked(), "area numbers");
        assert_eq!(mask(code, [0x48, 0x21, 0xd0]), function.masked(), "offsets");
        masks += function.masked();
    }
    assert!(masks > 100, "{masks}");
}

/// Constants of the program do not stand in the code, and other seeds make other code.
#[test]
fn constants_are_blinded() {
    let mut builder = Builder::new();
    builder.set(R0, 0x1122_3344_5566_7788).compute(Operation::Xor, R0, 0x0abb_ccdd);
    builder.store(Size::B4, Register::R10, -8, 0x0eff_1234).exit();
    let program = builder.finish().expect("no labels");
    let mut points = [Point::default(); 8];
    let mut function = verify(&program, &GENERAL, &mut points).expect("a good program");
    let compiled = |function: &mut Verified, seed| {
        let mut code = vec![0; 1000];
        let length = compile(function, &mut code, seed).expect("there is room");
        code.truncate(length);
        code
    };
    let one = compiled(&mut function, 0x1357_9bdf_0246_8ace);
    let other = compiled(&mut function, 0x0fed_cba9_8765_4321);
    assert_ne!(one, other);
    for constant in [0x5566_7788_u32, 0x1122_3344, 0x0abb_ccdd, 0x0eff_1234] {
        let bytes = constant.to_le_bytes();
        for code in [&one, &other] {
            assert!(!code.windows(4).any(|window| window == bytes), "{constant:#x}");
        }
    }
}
