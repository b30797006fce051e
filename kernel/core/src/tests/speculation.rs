//! What is decided of processors that there are: each as it says of itself what it is.

use crate::speculation::{Asked, Facts, Plan, Shield, hazard, plan};

/// As CPUID answers, with the microcode of its day.
fn processor(vendor: &[u8; 12], signature: u32) -> Facts {
    Facts { vendor: *vendor, signature, ..Facts::default() }
}

const INTEL: &[u8; 12] = b"GenuineIntel";
const AMD: &[u8; 12] = b"AuthenticAMD";
/// Leaf 7 of the processors below: SSBD, ARCH_CAPABILITIES, L1D_FLUSH, STIBP, IBRS and IBPB; with
/// MD_CLEAR in the second.
const CONTROLS: u32 = 0xbc00_0000;
const CLEARS: u32 = CONTROLS | 1 << 10;
const RTM: u32 = 1 << 11;
/// IBPB, IBRS, STIBP of leaf 8000_0008H.
const AMD_CONTROLS: u32 = 1 << 12 | 1 << 14 | 1 << 15;
/// Bits of IA32_ARCH_CAPABILITIES: RDCL_NO, IBRS_ALL, SKIP_L1DFL, MDS_NO; TAA_NO.
const CASCADE: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 5;
const TAA_NO: u64 = 1 << 8;

const NEITHER: u8 = hazard::MELTDOWN | hazard::L1TF;
const BUFFERS: u8 = hazard::BUFFERS;

/// A processor, what stays open, whether `verw` is used, a barrier, and the shield.
type Row = (&'static str, Facts, u8, bool, bool, Shield);

fn intel() -> Vec<Row> {
    let of = |signature| processor(INTEL, signature);
    let late = |signature| Facts { leaf7: [0, CLEARS], ..of(signature) };
    let with = |signature, capabilities| Facts { capabilities, ..late(signature) };
    let kept = NEITHER | BUFFERS;
    let nothing = kept | hazard::BRANCHES;
    vec![
        ("Pentium MMX", of(0x543), 0, false, false, Shield::None),
        ("Bonnell", of(0x106ca), 0, false, false, Shield::None),
        ("Nehalem", of(0x106a5), nothing, false, false, Shield::Return),
        ("Haswell, first microcode", of(0x306c3), nothing, false, false, Shield::Return),
        ("Haswell", late(0x306c3), NEITHER, true, true, Shield::Return),
        ("Silvermont", late(0x30678), NEITHER, true, true, Shield::Return),
        ("Skylake", late(0x506e3), NEITHER, true, true, Shield::Restriction),
        (
            "Skylake, two threads",
            Facts { has_siblings: true, ..late(0x506e3) },
            kept,
            true,
            true,
            Shield::Restriction,
        ),
        (
            "Goldmont Plus",
            Facts { leaf7: [0, CONTROLS], capabilities: 1, ..of(0x706a1) },
            0,
            false,
            true,
            Shield::Return,
        ),
        (
            "Cascade Lake with transactions",
            Facts { leaf7: [RTM, CLEARS], capabilities: CASCADE, ..of(0x50657) },
            0,
            true,
            true,
            Shield::None,
        ),
        (
            "Cascade Lake with transactions, two threads",
            Facts {
                leaf7: [RTM, CLEARS],
                capabilities: CASCADE,
                has_siblings: true,
                ..of(0x50657)
            },
            BUFFERS,
            true,
            true,
            Shield::None,
        ),
        ("Cascade Lake", with(0x50657, CASCADE), 0, false, true, Shield::None),
        ("Ice Lake", with(0x606a6, CASCADE | TAA_NO | 1 << 17), 0, true, true, Shield::None),
        ("Tiger Lake", with(0x806c1, CASCADE | TAA_NO), 0, false, true, Shield::None),
        ("Alder Lake", with(0x906a3, CASCADE | TAA_NO | 1 << 28), 0, true, true, Shield::None),
        (
            "Sapphire Rapids",
            with(0x806f8, CASCADE | TAA_NO | 1 << 27 | 1 << 28),
            0,
            false,
            true,
            Shield::None,
        ),
    ]
}

fn others() -> Vec<Row> {
    let amd = |signature| Facts { extended8: AMD_CONTROLS, ..processor(AMD, signature) };
    let ibpb = |signature| Facts { extended8: 1 << 12, ..processor(AMD, signature) };
    let branches = hazard::BRANCHES;
    vec![
        ("K8", processor(AMD, 0x20f12), branches, false, false, Shield::Return),
        ("Bulldozer", ibpb(0x600f12), 0, false, true, Shield::Return),
        ("Zen", ibpb(0x800f11), 0, false, true, Shield::Return),
        ("Zen 2", amd(0x830f10), 0, false, true, Shield::Restriction),
        ("Zen 3", amd(0xa00f11), 0, false, true, Shield::Return),
        ("Zen 4", Facts { extended21: 1 << 8, ..amd(0xa10f11) }, 0, false, true, Shield::None),
        (
            "Hygon",
            Facts { extended8: 1 << 12, ..processor(b"HygonGenuine", 0x900f01) },
            0,
            false,
            true,
            Shield::Return,
        ),
        ("Zhaoxin", processor(b"  Shanghai  ", 0x307b0), 0, false, false, Shield::None),
        (
            "somebody's",
            processor(b"Somebody els", 0x600),
            NEITHER | BUFFERS | branches,
            false,
            false,
            Shield::Return,
        ),
    ]
}

#[test]
fn real_processors() {
    for (name, facts, open, clears, barrier, shield) in intel().into_iter().chain(others()) {
        let plan = plan(&facts, Asked::Auto);
        assert_eq!(plan.open, open, "{name}: open");
        assert_eq!(plan.takes_users, open == 0, "{name}: users");
        assert_eq!(plan.clears_buffers, clears, "{name}: buffers");
        assert_eq!(plan.has_barrier, barrier, "{name}: barrier");
        assert_eq!(plan.shield, shield, "{name}: shield");
        let enhanced = facts.capabilities & 2 != 0;
        assert_eq!(plan.restricts_always, enhanced, "{name}: IBRS");
        assert_eq!(plan.restricts_by_itself, facts.extended21 != 0, "{name}: automatic IBRS");
    }
}

/// `mitigations=off` takes everybody and does nothing, and says what is open all the same.
#[test]
fn nothing_is_done_unasked() {
    for (name, facts, open, ..) in intel().into_iter().chain(others()) {
        let expected = Plan { open, takes_users: true, ..Plan::default() };
        assert_eq!(plan(&facts, Asked::Off), expected, "{name}");
    }
}

/// An emulator does nothing ahead; asked to, it is taken for what it says it is.
#[test]
fn emulators_guess_nothing() {
    for (name, facts, open, ..) in intel().into_iter().chain(others()) {
        let facts = Facts { is_emulator: true, ..facts };
        let taken = Plan { takes_users: true, ..Plan::default() };
        assert_eq!(plan(&facts, Asked::Auto), taken, "{name}");
        let all = plan(&facts, Asked::All);
        // It has a barrier, which does nothing there.
        assert_eq!(all.open, open & !hazard::BRANCHES, "{name}");
        assert_eq!(all.takes_users, all.open == 0, "{name}");
        assert!(all.clears_buffers && all.has_barrier && all.shield != Shield::None, "{name}");
    }
}

/// No means is used that the processor does not have: what is written would be a fault.
#[test]
fn nothing_is_written_that_is_not_there() {
    for asked in [Asked::Auto, Asked::All] {
        for (name, facts, ..) in intel().into_iter().chain(others()) {
            let plan = plan(&facts, asked);
            let intel = facts.leaf7[1] & 1 << 26 != 0;
            assert!(!plan.has_barrier || intel || facts.extended8 & 1 << 12 != 0, "{name}");
            let restricts = plan.shield == Shield::Restriction;
            assert!(!restricts || intel || facts.extended8 & 1 << 14 != 0, "{name}");
            let stibp = facts.leaf7[1] & 1 << 27 != 0 || facts.extended8 & 1 << 15 != 0;
            assert!(!plan.separates_siblings || stibp && facts.has_siblings, "{name}");
        }
    }
}

/// Threads of one core that belong to two users don't train each other's branches.
#[test]
fn siblings_are_separated() {
    let zen = Facts { extended8: AMD_CONTROLS, ..processor(AMD, 0xa00f11) };
    assert!(!plan(&zen, Asked::Auto).separates_siblings);
    assert!(plan(&Facts { has_siblings: true, ..zen }, Asked::Auto).separates_siblings);
}

#[test]
fn words_of_the_command_line() {
    let parse = Asked::parse;
    assert_eq!([parse(None), parse(Some("auto"))], [Some(Asked::Auto); 2]);
    assert_eq!(parse(Some("off")), Some(Asked::Off));
    assert_eq!(parse(Some("all")), Some(Asked::All));
    assert_eq!([parse(Some("")), parse(Some("OFF"))], [None; 2]);
}

#[test]
fn boot_line_says_what_is_open() {
    let late = Facts { leaf7: [0, CLEARS], ..processor(INTEL, 0x506e3) };
    let text = |asked| plan(&late, asked).to_string();
    let open = ", not isolated: Meltdown, L1TF";
    assert_eq!(text(Asked::Auto), format!(", verw, ibpb, ibrs{open} (one account only)"));
    assert_eq!(text(Asked::Off), open);
    let emulator = Facts { is_emulator: true, ..late };
    assert_eq!(plan(&emulator, Asked::Auto).to_string(), "");
}
