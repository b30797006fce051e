//! Ids, dominance, tokens and extents: every case there is, not a sample.
//!
//! ```text
//!  cargo test --release -p abi --test enumerated      all of 2^30 ids; without --release each 61st
//! ```

use abi::capability::{ALL, Capability, Name};
use abi::extent::within_narrow;
use abi::id::{EnvId, GENERATIONS, INDEX_BITS};
use abi::limits::NAME_COMPONENTS;
use abi::word::Word;
use std::collections::HashSet;

/// Ids are numbers below 2^30 (FUTEX_TID_MASK).
const IDS: u64 = 1 << 30;

#[test]
fn every_id_is_one_index_and_one_generation() {
    assert_eq!(u64::from(GENERATIONS) << INDEX_BITS, IDS);
    let stride = if cfg!(debug_assertions) { 61 } else { 1 };
    for number in (0..IDS).step_by(stride) {
        let id = EnvId::from_word(number).expect("an id below 2^30");
        assert_eq!(id.to_word(), number);
        let (index, generation) = (id.index(), id.generation());
        assert!(index < 1 << INDEX_BITS && generation < GENERATIONS);
        // The way back leads to the same number: so no two ids have both alike.
        assert_eq!(EnvId::new(index as u16, generation), id);
        assert_eq!(id.is_none(), index == 0 && generation == 0);
    }
}

#[test]
fn no_word_from_2_to_the_30_on_is_an_id() {
    for bit in 30..64 {
        for low in [0, 1, IDS - 1] {
            assert_eq!(EnvId::from_word(1 << bit | low), None);
        }
    }
    assert_eq!(EnvId::from_word(u64::MAX), None);
}

#[test]
fn generations_come_round_and_keep_the_index() {
    for index in 0..1u16 << INDEX_BITS {
        for generation in [0, 1, GENERATIONS - 1, GENERATIONS, GENERATIONS + 1, u32::MAX] {
            let id = EnvId::new(index, generation);
            assert_eq!(id.index(), usize::from(index));
            assert_eq!(id.generation(), generation % GENERATIONS);
        }
    }
}

/// All names of components below `letters`.
fn names(letters: u16) -> Vec<Name> {
    let mut all = vec![Name::ROOT];
    let mut begin = 0;
    for _ in 0..NAME_COMPONENTS {
        let end = all.len();
        for at in begin..end {
            let name = all[at];
            all.extend((0..letters).filter_map(|letter| name.child(letter)));
        }
        begin = end;
    }
    all
}

/// What a name covers, by definition: itself and everything that can be derived from it.
fn covered(name: Name, letters: u16) -> HashSet<Name> {
    let mut found = HashSet::from([name]);
    for letter in 0..letters {
        found.extend(name.child(letter).into_iter().flat_map(|child| covered(child, letters)));
    }
    found
}

/// A component is only ever compared with the one at the same place of another name: two letters
/// have every way in which two names can agree and differ.
#[test]
fn dominance_is_what_can_be_derived() {
    let all = names(2);
    assert_eq!(all.len(), (1 << (NAME_COMPONENTS + 1)) - 1);
    for name in &all {
        let covered = covered(*name, 2);
        for guard in &all {
            assert_eq!(name.is_prefix_of(guard), covered.contains(guard), "{name:?} {guard:?}");
        }
        assert!(name.child(0).is_none_or(|child| !child.is_prefix_of(name)));
    }
    for rights in 0..=ALL {
        for wanted in 0..=ALL {
            for (name, guard) in all.iter().flat_map(|n| all.iter().map(move |g| (n, g))) {
                let held = Capability { rights, zero: 0, name: *name };
                let holds = rights != 0 && wanted & !rights == 0 && name.is_prefix_of(guard);
                assert_eq!(held.dominates(guard, wanted), holds);
            }
        }
    }
}

/// Three names agree and differ in every way with three letters; depth three has every order of
/// lengths.
#[test]
fn dominance_is_an_order() {
    let shallow: Vec<Name> = names(3).into_iter().filter(|name| name.length <= 3).collect();
    for a in &shallow {
        assert!(a.is_prefix_of(a));
        for b in shallow.iter().filter(|b| a.is_prefix_of(b)) {
            assert!(a == b || !b.is_prefix_of(a));
            for c in shallow.iter().filter(|c| b.is_prefix_of(c)) {
                assert!(a.is_prefix_of(c), "{a:?} {b:?} {c:?}");
            }
        }
    }
}

/// What a token carries is read back as what was sealed, and nothing else is read at all.
#[test]
fn words_are_one_capability_or_none() {
    let mut read = 0;
    for rights in 0..=u8::MAX {
        for length in 0..=u8::MAX {
            for filled in 0..1u32 << NAME_COMPONENTS {
                let component = |at: usize| if filled >> at & 1 == 1 { 0x8001 } else { 0 };
                let components = core::array::from_fn(component);
                let name = Name { length, zero: 0, components };
                let capability = Capability { rights, zero: 0, name };
                let words = capability.to_words();
                let beyond = filled >> u32::from(length).min(31) != 0;
                let wrong = usize::from(length) > NAME_COMPONENTS || beyond;
                let whole = rights != 0 && rights & !ALL == 0 && !wrong;
                let expected = whole.then_some(capability);
                assert_eq!(Capability::from_words(words), expected, "{capability:?}");
                read += u32::from(whole);
                // The bytes that are always zero say so.
                for bit in [8, 15, 24, 31] {
                    assert_eq!(Capability::from_words([words[0] | 1 << bit, words[1]]), None);
                }
            }
        }
    }
    // 31 sets of rights, and as many patterns as each length has components.
    assert_eq!(read, 31 * (0..=NAME_COMPONENTS).map(|length| 1 << length).sum::<u32>());
}

#[test]
fn extents_never_wrap() {
    for size in 0..=u8::MAX {
        for offset in 0..=u8::MAX {
            for length in 0..=u8::MAX {
                let end = u32::from(offset) + u32::from(length);
                let inside = end <= u32::from(size);
                assert_eq!(within_narrow(offset, length, size), inside, "{offset} {length} {size}");
            }
        }
    }
}
