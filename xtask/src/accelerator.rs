//! KVM or TCG: KVM only where a small guest shows that it works at a processor's speed.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::{Context, Failure, Result};
use crate::packages;
use crate::process;
use crate::report;
use crate::workspace;

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor itself.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl Accelerator {
    /// Reads `kvm` or `tcg`.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "kvm" => Ok(Self::Kvm),
            "tcg" => Ok(Self::Tcg),
            _ => Err(Failure::new(format!("--accel {text}: neither kvm nor tcg"))),
        }
    }

    /// QEMU's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// How long the probe may take: on a processor it takes a tenth of a second, QEMU's start included.
const PROBE_LIMIT: Duration = Duration::from_secs(3);

/// The probe's size: the firmware that QEMU puts below 4 GiB, where the processor starts.
const FIRMWARE_SIZE: usize = 65536;

/// The last sixteen bytes of the firmware, where a processor begins (SDM 3A 10.1.4): counts down
/// from 2^26, then ends QEMU through isa-debug-exit. An interpreter needs many seconds for it.
const RESET_VECTOR: [u8; 16] = [
    0x66, 0xb9, 0x00, 0x00, 0x00, 0x04, // mov ecx, 1 << 26
    0x66, 0x49, // dec ecx
    0x75, 0xfc, // jnz (the dec)
    0xb0, 0x10, // mov al, 16
    0xe6, 0xf4, // out 0xf4, al
    0xf4, 0xf4, // hlt
];

/// What isa-debug-exit makes of the 16 that the probe writes.
const PROBE_STATUS: i32 = 16 << 1 | 1;

/// Chooses, and says so. The answer is kept until the machine boots again.
pub fn choose() -> Result<Accelerator> {
    if std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(Accelerator::Tcg);
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let kept = workspace::output().join("accelerator");
    let remembered = std::fs::read_to_string(&kept).unwrap_or_default();
    if let Some(name) = remembered.strip_prefix(boot.trim()).filter(|_| !boot.is_empty()) {
        return Accelerator::parse(name.trim());
    }
    report::step("trying KVM");
    let chosen = if probe()? { Accelerator::Kvm } else { Accelerator::Tcg };
    match chosen {
        Accelerator::Kvm => report::step("KVM works: using it"),
        Accelerator::Tcg => report::step("KVM is there but too slow or broken: using TCG"),
    }
    std::fs::write(&kept, format!("{} {}\n", boot.trim(), chosen.name()))
        .context(kept.display())?;
    Ok(chosen)
}

/// Runs the probe's few instructions under KVM.
fn probe() -> Result<bool> {
    let mut firmware = vec![0xf4; FIRMWARE_SIZE];
    firmware[FIRMWARE_SIZE - RESET_VECTOR.len()..].copy_from_slice(&RESET_VECTOR);
    let path = workspace::output().join("kvm-probe.bin");
    std::fs::create_dir_all(workspace::output()).context(workspace::output().display())?;
    std::fs::write(&path, firmware).context(path.display())?;

    let mut qemu = Command::new(packages::QEMU.0);
    qemu.args(["-accel", "kvm", "-machine", "q35", "-cpu", "host", "-m", "64M", "-nodefaults"])
        .args(["-display", "none", "-no-reboot"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04", "-bios"])
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let shown = process::show(&qemu);
    let mut child = qemu.spawn().context(shown)?;
    let begin = Instant::now();
    while begin.elapsed() < PROBE_LIMIT {
        if let Some(status) = child.try_wait().context("waiting for the probe")? {
            return Ok(status.code() == Some(PROBE_STATUS));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().context("ending the probe")?;
    child.wait().context("ending the probe")?;
    Ok(false)
}
