//! What a processor that runs ahead may give away, and by what means the kernel keeps it.
//!
//! A pure function of what CPUID and IA32_ARCH_CAPABILITIES say: which hazards concern the
//! processor, which means the kernel uses, and which hazards stay open. The machine layer asks the
//! processor and does what is decided here.
//!
//! | hazard | means |
//! |---|---|
//! | a fault comes after its data's use (Meltdown, L1TF) | none: the kernel's half stays mapped |
//! | buffers keep what the kernel has loaded (MDS, TAA, MMIO, RFDS) | `verw` before each way out |
//! | one user trains the predictor for another one | a barrier (IBPB) between their turns |
//! | a program trains it for the kernel's calls of compiled code | [`Shield`] |
//!
//! Sources: Intel, "Processors Affected by Transient Execution Attacks" and "CPUID Enumeration and
//! Architectural MSRs"; AMD, "Software Techniques for Managing Speculation" and APM 3, E.4.

use core::fmt;

/// What the processor says of itself, as CPUID answers it; all 0: there is no such leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// EBX, EDX, ECX of leaf 0, in this order.
    pub vendor: [u8; 12],
    /// EAX of leaf 1: family, model, stepping.
    pub signature: u32,
    /// EBX and EDX of leaf 7.
    pub leaf7: [u32; 2],
    /// EBX of leaf 8000_0008H.
    pub extended8: u32,
    /// EAX of leaf 8000_0021H.
    pub extended21: u32,
    /// IA32_ARCH_CAPABILITIES; 0: there is none.
    pub capabilities: u64,
    /// Several processors of the operating system's are one core.
    pub has_siblings: bool,
    /// An emulator, which does nothing ahead; what its host does is the host's matter.
    pub is_emulator: bool,
}

/// What the command line asks for (`mitigations=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// What the processor needs.
    #[default]
    Auto,
    /// Nothing; a second user is taken all the same.
    Off,
    /// Whatever there is, as if every hazard concerned it; an emulator counts as the processor that
    /// it says it is.
    All,
}

impl Asked {
    /// The word behind `mitigations=`, if it is one.
    pub fn parse(word: Option<&str>) -> Option<Self> {
        match word {
            None | Some("auto") => Some(Self::Auto),
            Some("off") => Some(Self::Off),
            Some("all") => Some(Self::All),
            Some(_) => None,
        }
    }
}

/// How the kernel calls code that it has compiled: by a pointer, which a predictor may have been
/// trained for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shield {
    /// As it stands: the predictor keeps modes apart by itself, or there is none.
    #[default]
    None,
    /// By a return whose prediction the call itself sets, so that what is guessed is a loop.
    Return,
    /// Behind a write of SPEC_CTRL.IBRS, which forbids what less privileged code has trained:
    /// where returns are predicted as jumps are.
    Restriction,
}

/// Hazards, one bit each.
pub mod hazard {
    /// What a load that faults has found in the kernel's half is used ahead.
    pub const MELTDOWN: u8 = 1;
    /// So is what lies in the first cache at the address of an entry that is not present.
    pub const L1TF: u8 = 1 << 1;
    /// So is what is left in fill, store and load buffers.
    pub const BUFFERS: u8 = 1 << 2;
    /// What one user has trained decides what another one does ahead.
    pub const BRANCHES: u8 = 1 << 3;

    /// Their names, by bit.
    pub const NAMES: [&str; 4] = ["Meltdown", "L1TF", "MDS", "Spectre 2"];
}

/// What the kernel does about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Hazards ([`hazard`]) that no means closes: users are not isolated from each other.
    pub open: u8,
    /// More than one user's account is taken.
    pub takes_users: bool,
    /// `verw` before each way out.
    pub clears_buffers: bool,
    /// A barrier between turns of different users.
    pub has_barrier: bool,
    /// Calls of compiled code.
    pub shield: Shield,
    /// SPEC_CTRL.IBRS is set once and stays.
    pub restricts_always: bool,
    /// EFER.AIBRSE is set, which does the same.
    pub restricts_by_itself: bool,
    /// SPEC_CTRL.STIBP is set: what one processor of a core has trained is not the other one's.
    pub separates_siblings: bool,
}

/// As the boot line has it: the means in use, and what stays open; nothing if there is nothing.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shield = match self.shield {
            Shield::None => "",
            Shield::Return => ", retpoline",
            Shield::Restriction => ", ibrs",
        };
        for (used, name) in [
            (self.clears_buffers, ", verw"),
            (self.has_barrier, ", ibpb"),
            (true, shield),
            (self.restricts_always | self.restricts_by_itself, ", enhanced ibrs"),
            (self.separates_siblings, ", stibp"),
        ] {
            f.write_str(if used { name } else { "" })?;
        }
        let mut before = ", not isolated: ";
        for (bit, name) in hazard::NAMES.iter().enumerate() {
            if self.open >> bit & 1 != 0 {
                write!(f, "{before}{name}")?;
                before = ", ";
            }
        }
        f.write_str(if self.takes_users { "" } else { " (one account only)" })
    }
}

/// Bits of leaf 7 and IA32_ARCH_CAPABILITIES.
mod bit {
    /// EBX of leaf 7: transactions.
    pub const RTM: u32 = 1 << 11;
    /// EDX of leaf 7.
    pub const MD_CLEAR: u32 = 1 << 10;
    pub const IBRS_IBPB: u32 = 1 << 26;
    pub const STIBP: u32 = 1 << 27;
    /// EBX of leaf 8000_0008H.
    pub const AMD_IBPB: u32 = 1 << 12;
    pub const AMD_IBRS: u32 = 1 << 14;
    pub const AMD_STIBP: u32 = 1 << 15;
    /// EAX of leaf 8000_0021H.
    pub const AUTOMATIC_IBRS: u32 = 1 << 8;

    pub const RDCL_NO: u64 = 1;
    pub const IBRS_ALL: u64 = 1 << 1;
    pub const RSBA: u64 = 1 << 2;
    pub const MDS_NO: u64 = 1 << 5;
    pub const TAA_NO: u64 = 1 << 8;
    pub const FB_CLEAR: u64 = 1 << 17;
    pub const RFDS_NO: u64 = 1 << 27;
    pub const RFDS_CLEAR: u64 = 1 << 28;
}

/// Of Intel's family 6: those that do nothing ahead (Bonnell, Saltwell); those whose buffers keep
/// nothing (Goldmont and its followers); those that predict returns as jumps (Skylake's kin).
const IN_ORDER: [u32; 5] = [0x1c, 0x26, 0x27, 0x35, 0x36];
const EMPTY_BUFFERS: [u32; 6] = [0x5c, 0x5f, 0x7a, 0x86, 0x96, 0x9c];
const RETURNS_AS_JUMPS: [u32; 7] = [0x4e, 0x5e, 0x55, 0x8e, 0x9e, 0xa5, 0xa6];

/// Who made it, as far as that matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Maker {
    Intel,
    /// AMD, and Hygon after its plans.
    Amd,
    /// Centaur and Zhaoxin, whose processors of these families are not concerned.
    Other,
    /// Nothing is known: everything is feared.
    Unknown,
}

impl Facts {
    fn has(&self, capability: u64) -> bool {
        self.capabilities & capability != 0
    }

    fn family(&self) -> u32 {
        let family = self.signature >> 8 & 0xf;
        if family == 0xf { family + (self.signature >> 20 & 0xff) } else { family }
    }

    fn model(&self) -> u32 {
        self.signature >> 4 & 0xf | (self.signature >> 16 & 0xf) << 4
    }

    fn maker(&self) -> Maker {
        match (&self.vendor, self.family()) {
            (b"GenuineIntel", _) => Maker::Intel,
            (b"AuthenticAMD" | b"HygonGenuine", _) => Maker::Amd,
            (b"CentaurHauls", 5 | 7) | (b"  Shanghai  ", 7) => Maker::Other,
            _ => Maker::Unknown,
        }
    }

    fn is_one_of(&self, models: &[u32]) -> bool {
        self.maker() == Maker::Intel && self.family() == 6 && models.contains(&self.model())
    }

    /// Does it do anything ahead that somebody could see?
    fn looks_ahead(&self) -> bool {
        let older = self.maker() == Maker::Intel && self.family() == 5;
        !(older || self.is_one_of(&IN_ORDER))
    }

    /// Does a fault come after its data has been used?
    fn faults_late(&self) -> bool {
        let maker = matches!(self.maker(), Maker::Intel | Maker::Unknown);
        maker && self.looks_ahead() && !self.has(bit::RDCL_NO)
    }

    /// Do its buffers keep what others have loaded (MDS, TAA)?
    fn keeps_buffers(&self) -> bool {
        if !matches!(self.maker(), Maker::Intel | Maker::Unknown) || !self.looks_ahead() {
            return false;
        }
        let aborts = self.leaf7[0] & bit::RTM != 0 && !self.has(bit::TAA_NO);
        aborts || !self.has(bit::MDS_NO) && !self.is_one_of(&EMPTY_BUFFERS)
    }

    /// Does it say that `verw` clears more of them (MMIO, RFDS)?
    fn clears_more(&self) -> bool {
        self.has(bit::FB_CLEAR) || self.has(bit::RFDS_CLEAR) && !self.has(bit::RFDS_NO)
    }

    fn has_barrier(&self) -> bool {
        self.leaf7[1] & bit::IBRS_IBPB != 0 || self.extended8 & bit::AMD_IBPB != 0
    }

    fn has_restriction(&self) -> bool {
        self.leaf7[1] & bit::IBRS_IBPB != 0 || self.extended8 & bit::AMD_IBRS != 0
    }

    fn separates(&self) -> bool {
        self.leaf7[1] & bit::STIBP != 0 || self.extended8 & bit::AMD_STIBP != 0
    }

    /// Is a return predicted as any other jump (RSBA; Retbleed), so that it shields nothing?
    fn returns_as_jumps(&self) -> bool {
        let zen = self.maker() == Maker::Amd && matches!(self.family(), 0x17 | 0x18);
        zen || self.has(bit::RSBA) || self.is_one_of(&RETURNS_AS_JUMPS)
    }

    /// Is a branch predicted by what another user has trained?
    fn shares_predictors(&self) -> bool {
        self.maker() != Maker::Other && self.looks_ahead()
    }
}

/// What the kernel does, and what it leaves open.
pub fn plan(facts: &Facts, asked: Asked) -> Plan {
    let all = asked == Asked::All;
    if facts.is_emulator && !all {
        return Plan { takes_users: true, ..Plan::default() };
    }
    let mut open = 0;
    if facts.faults_late() {
        open |= hazard::MELTDOWN | hazard::L1TF;
    }
    let clears = facts.leaf7[1] & bit::MD_CLEAR != 0;
    // What the one processor of a core has in its buffers the other one finds while both run.
    if facts.keeps_buffers() && (!clears || facts.has_siblings) {
        open |= hazard::BUFFERS;
    }
    let barrier = facts.has_barrier() || facts.is_emulator;
    if facts.shares_predictors() && !barrier {
        open |= hazard::BRANCHES;
    }
    if asked == Asked::Off {
        return Plan { open, takes_users: true, ..Plan::default() };
    }
    let always = facts.has(bit::IBRS_ALL);
    let itself = facts.extended21 & bit::AUTOMATIC_IBRS != 0;
    let shared = facts.shares_predictors();
    let shield = match (always || itself, facts.returns_as_jumps() && facts.has_restriction()) {
        (true, _) if !all => Shield::None,
        _ if !shared && !all => Shield::None,
        (_, true) => Shield::Restriction,
        _ => Shield::Return,
    };
    Plan {
        open,
        takes_users: open == 0,
        clears_buffers: all || facts.keeps_buffers() && clears || facts.clears_more(),
        has_barrier: barrier && (shared || all),
        shield,
        restricts_always: always && shared,
        restricts_by_itself: itself && shared,
        separates_siblings: shared && facts.has_siblings && facts.separates(),
    }
}
