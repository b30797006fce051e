//! Watches: compiled, they say what the same comparisons say in Rust.

use code::watch::{BYTES_MAX, COMPARISONS_MAX, Comparison, Compiler, ENTRY, How, Side};

use crate::executable::Executable;
use crate::programs::Random;

const WORDS: usize = 8;

fn holds(watch: &[Comparison], now: u64) -> bool {
    let load = |address: u64| {
        // What a test below has put there.
        let place = address as *const u32;
        crate::executable::load(place)
    };
    let side = |side: Side| match side {
        Side::Constant(value) => value,
        Side::Now => now,
        Side::Word(address) => load(address) | load(address + 4) << 32,
        Side::Half(address) => load(address),
    };
    let compare = |one: &Comparison| {
        let gone = one.unless.is_some_and(|(at, value)| side(Side::Word(at)) != value);
        gone || one.how.holds(side(one.left) & one.mask, side(one.right) & one.mask)
    };
    // Products that are ended.
    let mut products = watch.split_inclusive(|one| one.last);
    products
        .any(|product| product.last().is_some_and(|one| one.last) && product.iter().all(compare))
}

fn some_side(random: &mut Random, words: &[u64; WORDS]) -> Side {
    let at = words.as_ptr() as u64 + 8 * random.below(WORDS) as u64;
    match random.below(5) {
        0 => Side::Constant(random.below(4) as u64),
        1 => Side::Constant(random.next()),
        2 => Side::Now,
        3 => Side::Half(at + 4 * random.below(2) as u64),
        _ => Side::Word(at),
    }
}

fn some_comparison(random: &mut Random, words: &[u64; WORDS]) -> Comparison {
    let hows = [How::Equal, How::NotEqual, How::Below, How::AtLeast];
    let masks = [u64::MAX, u64::MAX, 1, 0xffff_ffff, 2 << 40];
    let gone = words.as_ptr() as u64 + 8 * random.below(WORDS) as u64;
    let value = random.below(4) as u64 | (random.below(3) as u64) << 32;
    Comparison {
        left: some_side(random, words),
        right: some_side(random, words),
        how: hows[random.below(4)],
        mask: masks[random.below(5)],
        unless: (random.below(3) == 0).then_some((gone, value)),
        last: random.below(3) == 0,
    }
}

fn compile(watch: &[Comparison], key: u64, code: &mut [u8]) -> Option<usize> {
    let mut compiler = Compiler::new(code, key);
    watch.iter().for_each(|one| compiler.compare(one));
    compiler.finish()
}

#[test]
fn compiled_watches_hold_when_they_hold() {
    let mut random = Random(7);
    let mut executable = Executable::new(COMPARISONS_MAX + 1);
    let mut held = [0; 2];
    for _ in 0..if cfg!(debug_assertions) { 3_000 } else { 30_000 } {
        let words: [u64; WORDS] = std::array::from_fn(|_| match random.below(3) {
            0 => random.next(),
            _ => random.below(4) as u64 | (random.below(3) as u64) << 32,
        });
        let count = random.below(COMPARISONS_MAX + 1);
        let watch: Vec<Comparison> =
            (0..count).map(|_| some_comparison(&mut random, &words)).collect();
        let (key, now) = (random.next(), random.below(4) as u64);
        let mut code = [0; 16 + COMPARISONS_MAX * BYTES_MAX];
        let length = compile(&watch, key, &mut code).expect("there is room");
        assert!(length <= ENTRY + count * BYTES_MAX + 3);
        executable.load_bytes(&code[..length]);
        let expected = holds(&watch, now);
        assert_eq!(executable.watch(ENTRY, now, key), u64::from(expected), "{watch:?}");
        held[usize::from(expected)] += 1;
    }
    assert!(held.iter().all(|&times| times > 300), "{held:?}");
}

#[test]
fn what_does_not_fit_is_not_compiled() {
    let one = Comparison {
        left: Side::Constant(1),
        right: Side::Now,
        how: How::Equal,
        mask: u64::MAX,
        unless: None,
        last: false,
    };
    let mut code = [0; 8192];
    assert!(compile(&[one; COMPARISONS_MAX], 1, &mut code).is_some());
    assert_eq!(compile(&[one; COMPARISONS_MAX + 1], 1, &mut code), None);
    let length = compile(&[one; 3], 1, &mut code).expect("there is room");
    assert_eq!(compile(&[one; 3], 1, &mut code[..length]), Some(length));
    assert_eq!(compile(&[one; 3], 1, &mut code[..length - 1]), None);
}

#[test]
fn no_word_stands_in_the_code() {
    let word = 0x1122_3344_5566_7788_u64;
    let one = Comparison {
        left: Side::Constant(word),
        right: Side::Word(word),
        how: How::Equal,
        mask: word,
        unless: Some((word, word)),
        last: true,
    };
    let mut code = [0; 256];
    let length = compile(&[one; 2], 0x9e37_79b9_7f4a_7c15, &mut code).expect("there is room");
    let three: Vec<&[u8]> = code[..length].windows(3).collect();
    for piece in word.to_le_bytes().windows(3) {
        assert!(!three.contains(&piece), "{piece:x?}");
    }
}
