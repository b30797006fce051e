//! What the ISO is tried in: QEMU with a PC's BIOS, QEMU with UEFI, and Bochs.
//!
//! None of them has a port that ends it, nor one for the log: there is the serial line, and ACPI's
//! switch. Bochs has neither virtio nor configuration space in memory; its processor is stricter
//! than QEMU's, and runs some tens of millions of instructions in a second.

use std::path::Path;
use std::process::Command;

use super::serial::Line;
use crate::failure::{Context, Result};
use crate::machine;
use crate::packages;

/// Bochs's instructions in a second of the machine's time. Its time stamp counter counts
/// instructions. Fewer, and tests that wait for so many milliseconds have less of them to work in.
const BOCHS_RATE: u32 = 50_000_000;
/// The processor: it has PCID, SMAP and UMIP, and faults at SYSRET and IRETQ as Intel's do.
const BOCHS_MODEL: &str = "tigerlake";
/// UEFI for QEMU, and where it keeps its settings, which are not kept here.
const OVMF: (&str, &str) = ("/usr/share/OVMF/OVMF_CODE_4M.fd", "ovmf");
const OVMF_SETTINGS: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";
const BOCHS: (&str, &str) = ("bochs-bin", "bochs");
const BOCHS_SCREEN: (&str, &str) =
    ("/usr/lib/x86_64-linux-gnu/bochs/plugins/libbx_term_gui.so", "bochs-term");
const BOCHS_BIOS: (&str, &str) = ("/usr/share/bochs/BIOS-bochs-latest", "bochsbios");
const BOCHS_VIDEO: (&str, &str) = ("/usr/share/vgabios/vgabios.bin", "vgabios");

/// An emulator with its firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulator {
    /// QEMU's q35 with a PC's BIOS.
    SeaBios,
    /// QEMU's q35 with UEFI.
    Ovmf,
    /// Bochs, with its own BIOS.
    Bochs,
}

/// What tests call a machine: `bochs x2`.
pub fn place(emulator: Emulator, cpus: u32) -> String {
    let name = match emulator {
        Emulator::SeaBios => "seabios",
        Emulator::Ovmf => "ovmf",
        Emulator::Bochs => "bochs",
    };
    format!("{name} x{cpus}")
}

impl Emulator {
    /// The command that boots `iso`, with this many processors and MiB of memory, and where its
    /// serial line leads; `directory` is for its files.
    pub fn command(
        self,
        iso: &Path,
        cpus: u32,
        memory: u32,
        directory: &Path,
    ) -> Result<(Command, Line)> {
        match self {
            Self::Bochs => bochs(iso, cpus, memory, directory),
            Self::SeaBios | Self::Ovmf => {
                Ok((self.qemu(iso, cpus, memory, directory)?, Line::Standard))
            }
        }
    }

    fn qemu(self, iso: &Path, cpus: u32, memory: u32, directory: &Path) -> Result<Command> {
        packages::require(&[packages::QEMU])?;
        let mut qemu = machine::guarded(packages::QEMU.0);
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-machine", "q35", "-accel", "tcg", "-cpu", "max,-la57"])
            .args(["-smp", &cpus.to_string(), "-m", &format!("{memory}M")])
            .args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"])
            .args(["-netdev", "user,id=net"])
            .args(["-device", "virtio-net-pci,disable-legacy=on,netdev=net"]);
        if self == Self::Ovmf {
            packages::require_file(OVMF)?;
            let settings = directory.join("settings.fd");
            std::fs::copy(OVMF_SETTINGS, &settings).context(OVMF_SETTINGS)?;
            let flash =
                |file: &str| format!("if=pflash,format=raw,file={}", file.replace(',', ",,"));
            qemu.args(["-drive", &(flash(OVMF.0) + ",readonly=on")]);
            qemu.args(["-drive", &flash(&settings.display().to_string())]);
        }
        qemu.arg("-cdrom").arg(iso);
        Ok(qemu)
    }
}

fn bochs(iso: &Path, cpus: u32, memory: u32, directory: &Path) -> Result<(Command, Line)> {
    packages::require(&[BOCHS])?;
    for file in [BOCHS_SCREEN, BOCHS_BIOS, BOCHS_VIDEO] {
        packages::require_file(file)?;
    }
    let line = directory.join("serial.txt");
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).context(path.display()).map(|()| path)
    };
    let settings = format!(
        "display_library: term\n\
         romimage: file={bios}\n\
         vgaromimage: file={video}\n\
         cpu: model={BOCHS_MODEL}, count={cpus}, ips={BOCHS_RATE}, reset_on_triple_fault=0\n\
         megs: {memory}\n\
         clock: sync=none, time0=utc\n\
         sound: driver=dummy\n\
         ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14\n\
         ata0-master: type=cdrom, path=\"{iso}\", status=inserted\n\
         boot: cdrom\n\
         com1: enabled=1, mode=file, dev=\"{line}\"\n\
         log: \"{log}\"\n\
         panic: action=fatal\n\
         error: action=report\n\
         info: action=ignore\n\
         debug: action=ignore\n",
        bios = BOCHS_BIOS.0,
        video = BOCHS_VIDEO.0,
        iso = iso.display(),
        line = line.display(),
        log = directory.join("bochs.log").display(),
    );
    let settings = write("bochsrc", &settings)?;
    // Debian's has a debugger, which waits for an order before the first instruction.
    let orders = write("orders", "continue\n")?;
    let mut bochs = machine::guarded(BOCHS.0);
    bochs.arg("-q").arg("-f").arg(settings).arg("-rc").arg(orders);
    // Its screen is drawn on a terminal that is not looked at.
    bochs.env("TERM", "vt100");
    Ok((bochs, Line::File(line)))
}
