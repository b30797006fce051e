//! Randomness from the machine: RDRAND, or virtio-rng.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::registers::rdrand;

static RDRAND: AtomicBool = AtomicBool::new(false);

/// RDRAND is there.
pub fn use_rdrand() {
    RDRAND.store(true, Ordering::Relaxed);
}

/// Is there a source?
pub fn present() -> bool {
    RDRAND.load(Ordering::Relaxed) || crate::virtio::rng::present()
}

/// 64 random bits; `None` without a source, or when it has none just now.
pub fn random() -> Option<u64> {
    if RDRAND.load(Ordering::Relaxed) { rdrand() } else { crate::virtio::rng::random() }
}

/// The source's name, as the boot line has it.
pub fn source() -> &'static str {
    match (RDRAND.load(Ordering::Relaxed), crate::virtio::rng::present()) {
        (true, _) => "rdrand",
        (false, true) => "virtio",
        (false, false) => "none",
    }
}
