//! What runs in the virtual machine before the kernel does.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::failure::{Failure, Result};
use crate::packages;

/// The file of the firmware that does no more than start a kernel.
const QBOOT: &str = "qboot.rom";

/// A firmware of QEMU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// qboot: reads the kernel from QEMU and jumps there. It leaves PCI to the kernel.
    Qboot,
    /// What QEMU takes for q35 by itself: a PC's whole BIOS.
    SeaBios,
}

impl Firmware {
    /// Reads a name.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "qboot" => Ok(Self::Qboot),
            "seabios" => Ok(Self::SeaBios),
            _ => Err(Failure::new(format!("--firmware {text}: neither qboot nor seabios"))),
        }
    }

    /// What QEMU must be told; nothing where it takes this firmware by itself, or has no other.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::Qboot if has_qboot() => &["-bios", QBOOT],
            _ => &[],
        }
    }
}

/// Whether this QEMU finds qboot in one of the directories of its data.
fn has_qboot() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let listed = Command::new(packages::QEMU.0).args(["-L", "help"]).output();
        let listed = listed.map(|output| output.stdout).unwrap_or_default();
        let directories = String::from_utf8_lossy(&listed);
        directories.lines().any(|directory| Path::new(directory).join(QBOOT).is_file())
    })
}
