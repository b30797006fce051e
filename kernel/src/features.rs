//! What the processor has, and what of it the kernel uses.
//!
//! # Safety
//! Writes control registers; what each bit needs of the rest of the kernel is said there.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use kernel_core::speculation::{self, Asked, Plan};

use crate::mitigate;
use crate::registers::{
    cpuid, msr, rdmsr, read_cr0, read_cr4, write_cr0, write_cr4, wrmsr, xsetbv,
};

/// Features found on the first processor; the others must have them too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features {
    pub smep: bool,
    pub smap: bool,
    pub umip: bool,
    pub fsgsbase: bool,
    pub rdrand: bool,
    pub xsave: bool,
    /// Mappings of one frame with different memory types are coherent.
    pub self_snoop: bool,
    /// What is done about its running ahead.
    pub speculation: Plan,
    /// The time stamp counter runs at one rate always.
    pub invariant_tsc: bool,
    /// A hypervisor says so.
    pub hypervisor: bool,
    /// It is QEMU's own emulation.
    pub tcg: bool,
}

/// XCR0: x87, SSE, AVX, and the three parts of AVX-512; never AMX (decisions 21).
const XCR0_BASE: u64 = 0b11;
const XCR0_AVX: u64 = 0b100;
const XCR0_AVX512: u64 = 0b1110_0000;

/// Bytes of vector state, and XCR0 (0: FXSAVE).
static VECTOR_BYTES: AtomicU32 = AtomicU32::new(512);
static XCR0: AtomicU64 = AtomicU64::new(0);

/// Bytes of vector state saved for each environment.
pub fn vector_bytes() -> u32 {
    VECTOR_BYTES.load(Ordering::Relaxed)
}

/// The vector features in use; 0: FXSAVE.
pub fn xcr0() -> u64 {
    XCR0.load(Ordering::Relaxed)
}

impl Features {
    /// Asks the processor; what is done about its running ahead is as asked.
    pub fn probe(asked: Asked) -> Self {
        let bit = |word: u32, n: u32| word >> n & 1 != 0;
        let [max, ..] = cpuid(0, 0);
        let [_, _, ecx1, edx1] = cpuid(1, 0);
        let [_, ebx7, ecx7, _] = if max >= 7 { cpuid(7, 0) } else { [0; 4] };
        let [extended, ..] = cpuid(0x8000_0000, 0);
        let edx_power = if extended >= 0x8000_0007 { cpuid(0x8000_0007, 0)[3] } else { 0 };
        let hypervisor = bit(ecx1, 31);
        // "TCGT" of TCGTCGTCGTCG
        let tcg = hypervisor && cpuid(0x4000_0000, 0)[1] == 0x5447_4354;
        Self {
            smep: bit(ebx7, 7),
            smap: bit(ebx7, 20),
            umip: bit(ecx7, 2),
            fsgsbase: bit(ebx7, 0),
            rdrand: bit(ecx1, 30),
            xsave: bit(ecx1, 26),
            self_snoop: bit(edx1, 27),
            speculation: speculation::plan(&mitigate::facts(tcg), asked),
            invariant_tsc: bit(edx_power, 8),
            hypervisor,
            tcg,
        }
    }
}

const CR0_MP: u64 = 1 << 1;
const CR0_EM: u64 = 1 << 2;
const CR0_TS: u64 = 1 << 3;
const CR0_NE: u64 = 1 << 5;
const CR0_WP: u64 = 1 << 16;
const CR4_OSFXSR: u64 = 1 << 9;
const CR4_OSXMMEXCPT: u64 = 1 << 10;
const CR4_UMIP: u64 = 1 << 11;
const CR4_FSGSBASE: u64 = 1 << 16;
const CR4_OSXSAVE: u64 = 1 << 18;
const CR4_SMEP: u64 = 1 << 20;
const CR4_SMAP: u64 = 1 << 21;
const EFER_SCE: u64 = 1;
const EFER_NXE: u64 = 1 << 11;

/// Switches the features on, on this processor.
pub fn enable(features: &Features) {
    let when = |on: bool, bit: u64| if on { bit } else { 0 };
    let cr4 = CR4_OSFXSR
        | CR4_OSXMMEXCPT
        | when(features.umip, CR4_UMIP)
        | when(features.fsgsbase, CR4_FSGSBASE)
        | when(features.xsave, CR4_OSXSAVE)
        | when(features.smep, CR4_SMEP)
        | when(features.smap, CR4_SMAP);
    let cr0 = read_cr0() & !(CR0_EM | CR0_TS) | CR0_MP | CR0_NE | CR0_WP;
    // SAFETY: paging stays as it is; the kernel touches user memory only in `user`, between
    // stac and clac.
    unsafe {
        write_cr0(cr0);
        write_cr4(read_cr4() | cr4);
        wrmsr(msr::EFER, rdmsr(msr::EFER) | EFER_SCE | EFER_NXE);
    }
    mitigate::enable(&features.speculation);
    if features.xsave {
        let offered = u64::from(cpuid(0xd, 0)[0]);
        let mut used = XCR0_BASE | offered & XCR0_AVX;
        if offered & XCR0_AVX512 == XCR0_AVX512 && used & XCR0_AVX != 0 {
            used |= XCR0_AVX512;
        }
        // SAFETY: all are offered.
        unsafe { xsetbv(0, used) };
        VECTOR_BYTES.store(cpuid(0xd, 0)[1], Ordering::Relaxed);
        XCR0.store(used, Ordering::Relaxed);
    }
}
