//! What is where: the tree's own places, and which package is built for what.

use std::path::{Path, PathBuf};

/// Packages that run on the host, and are tested there.
pub const HOST_PACKAGES: [&str; 5] = ["abi", "image", "kernel-core", "xio", "xtask"];

/// Packages built for the bare machine, beside the libraries of theirs above.
pub const BARE_PACKAGES: [&str; 9] =
    ["kernel", "xok", "exos", "init", "ttyd", "tmpfsd", "arpd", "cheetah", "guest-tests"];

/// Programs of the boot image, which lie in `/xok` under these names.
pub const NATIVE_PROGRAMS: [&str; 7] =
    ["init", "exos", "ttyd", "tmpfsd", "arpd", "cheetah", "guest-tests"];

/// The tree's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Where cargo puts what it builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where what we make ourselves goes: images, logs, results.
pub fn output() -> PathBuf {
    target().join("xok")
}

/// Where what was fetched is kept.
pub fn cache() -> PathBuf {
    root().join(".cache")
}

/// What cargo built for the bare machine.
pub fn bare(name: &str) -> PathBuf {
    target().join(crate::packages::BARE_TARGET).join("release").join(name)
}
