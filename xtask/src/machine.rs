//! The virtual machine: what it consists of, and QEMU's words for it.

use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

use abi::published::COMMAND_LINE;

use crate::accelerator::{self, Accelerator};
use crate::command_line::{self, CommandLine};
use crate::failure::{Failure, Result};
use crate::firmware::Firmware;
use crate::options::{HELP, Options};
use crate::packages;
use crate::process;
use crate::workspace;

/// The port that the kernel's log goes to, byte by byte.
pub const LOG_PORT: u16 = 0xe9;
/// The port that the standard error of a PROGRAM goes to.
pub const ERROR_PORT: u16 = 0xea;

/// How many processors a machine may have.
pub const CPUS: RangeInclusive<u32> = 1..=4;

/// The least memory that works, found by trial: with a MiB less programs are ended for want of it,
/// with two less the servers, with four less the kernel; with half of it the firmware does not come
/// as far as the kernel, and nothing is said at all.
const MEMORY_MIB: u32 = 16;

/// QEMU's machine types that the kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A PC with PCI Express: virtio over PCI.
    Q35,
    /// Without PCI: virtio over memory-mapped registers.
    Microvm,
}

impl Kind {
    /// Reads QEMU's name.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "q35" => Ok(Self::Q35),
            "microvm" => Ok(Self::Microvm),
            _ => Err(Failure::new(format!("--machine {text}: neither q35 nor microvm"))),
        }
    }

    /// QEMU's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q35 => "q35",
            Self::Microvm => "microvm",
        }
    }
}

/// What the network card is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// There is no card.
    None,
    /// QEMU's user network: 10.0.2.0/24, these ports of the host forwarded (host, guest).
    User(Vec<(u16, u16)>),
    /// A tap device of the host, by name, with the words of our own `ip=`.
    Tap(String, String),
    /// A datagram on the local host for each frame: from this port, to that one, with the words of
    /// our own `ip=`.
    Datagrams(u16, u16, String),
}

/// Has everything counted that a run executes, and the run repeat itself exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counting {
    /// The plugin that counts; none: the guest's clock is count enough.
    pub plugin: Option<PathBuf>,
    /// What it is told, such as `out=FILE`.
    pub settings: Vec<String>,
    /// What QEMU's random numbers begin with, where the run is to repeat exactly; nothing where
    /// others, such as a network's peers, take part in it.
    pub seed: Option<u32>,
}

/// A virtual machine to be started.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The machine's type.
    pub kind: Kind,
    /// What starts the kernel on q35; microvm has but one.
    pub firmware: Firmware,
    /// Processors, 1 to 4.
    pub cpus: u32,
    /// Memory in QEMU's notation, such as `256M`.
    pub memory: String,
    /// The processor's model in QEMU's notation; by default the one we measure with.
    pub cpu: Option<String>,
    /// What runs it; by default what [`accelerator::choose`] finds.
    pub accelerator: Option<Accelerator>,
    /// Where packets go.
    pub network: Network,
    /// Whether there is a source of random numbers.
    pub rng: bool,
    /// Whether that source gives a kilobyte in a second and no more.
    pub slow_rng: bool,
    /// The file that is the contents of a disk.
    pub disk: Option<PathBuf>,
    /// Whether instructions are counted; the translator runs them then, one after the other.
    pub counting: Option<Counting>,
    /// A library that is loaded into the emulator before its own.
    pub library: Option<PathBuf>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            kind: Kind::Q35,
            firmware: Firmware::Qboot,
            cpus: 1,
            memory: "256M".into(),
            cpu: None,
            accelerator: None,
            network: Network::User(Vec::new()),
            rng: true,
            slow_rng: false,
            disk: None,
            counting: None,
            library: None,
        }
    }
}

impl Machine {
    /// Takes `flag` with its value if it is one of the machine's; answers whether it was.
    pub fn option(&mut self, flag: &str, options: &mut Options) -> Result<bool> {
        match flag {
            "--machine" => self.kind = Kind::parse(&options.value(flag)?)?,
            "--firmware" => self.firmware = Firmware::parse(&options.value(flag)?)?,
            "--cpus" => self.cpus = options.number_in(flag, CPUS)?,
            "--memory" => self.memory = memory_size(&options.value(flag)?)?,
            "--disk" => {
                let disk = PathBuf::from(options.value(flag)?);
                if !disk.exists() {
                    return Err(Failure::new(format!("--disk {}: no such file", disk.display())));
                }
                self.disk = Some(disk);
            }
            "--without" => match options.value(flag)?.as_str() {
                "network" => self.connect(flag, Network::None)?,
                "rng" => self.rng = false,
                other => {
                    let cause = format!("--without {other}: neither network nor rng");
                    return Err(Failure::new(cause));
                }
            },
            "--cpu" => self.cpu = Some(options.value(flag)?),
            "--accel" => self.accelerator = Some(Accelerator::parse(&options.value(flag)?)?),
            "-p" | "--port" => {
                let forward = parse_forward(&options.value(flag)?)?;
                match &mut self.network {
                    Network::User(forwards) => forwards.push(forward),
                    _ => return Err(Failure::new("-p: only with QEMU's user network")),
                }
            }
            "--tap" => self.connect(flag, parse_tap(&options.value(flag)?)?)?,
            _ => return Ok(false),
        }
        if (self.kind, self.firmware) == (Kind::Microvm, Firmware::SeaBios) {
            return Err(Failure::new("--firmware seabios: only with --machine q35"));
        }
        Ok(true)
    }

    /// Takes a network in place of QEMU's user network, if nothing was said of the network before.
    fn connect(&mut self, flag: &str, network: Network) -> Result<()> {
        if self.network != Network::User(Vec::new()) {
            let cause = format!("{flag}: only one of -p, --tap and --without network");
            return Err(Failure::new(cause));
        }
        self.network = network;
        Ok(())
    }

    /// Adds the words of the command line that follow from the machine.
    pub fn describe(&self, line: &mut CommandLine) {
        let address = match &self.network {
            Network::None => return,
            Network::User(_) => "10.0.2.15/24,10.0.2.2",
            Network::Tap(_, address) | Network::Datagrams(_, _, address) => address,
        };
        line.set("ip", address);
    }

    /// QEMU with the whole machine but its serial ports, which each use connects differently.
    pub fn qemu(&self, image: &Path, line: &CommandLine) -> Result<Command> {
        let line = line.text();
        if line.len() > COMMAND_LINE {
            let cause = format!("command line of {} bytes; {COMMAND_LINE} at most", line.len());
            return Err(Failure::new(cause).next("put the arguments into a file and --file it"));
        }
        self.boot(&kernel()?, image, &line)
    }

    /// As [`Machine::qemu`], with a kernel that need not be ours.
    pub fn boot(&self, kernel: &Path, initial: &Path, line: &str) -> Result<Command> {
        packages::require(&[packages::QEMU])?;
        let accelerator = match (self.accelerator, &self.counting) {
            (_, Some(_)) => Accelerator::Tcg,
            (Some(accelerator), None) => accelerator,
            (None, None) => accelerator::choose()?,
        };
        let model = match (&self.cpu, accelerator) {
            (Some(model), _) => model.as_str(),
            // What TCG does not do the way processors do, or does slowly, is left out.
            (None, Accelerator::Tcg) => "max,-pku,-erms,-fsrm,-la57",
            (None, Accelerator::Kvm) => "host,-la57",
        };

        let mut qemu = guarded(packages::QEMU.0);
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-machine", self.kind.name(), "-accel", accelerator.name(), "-cpu", model])
            .args(["-smp", &self.cpus.to_string(), "-m", &self.memory])
            .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]);
        match self.kind {
            Kind::Q35 => qemu.args(self.firmware.words()),
            Kind::Microvm => qemu.args(["-global", "virtio-mmio.force-legacy=false"]),
        };
        if self.rng {
            qemu.args(["-object", self.entropy()]);
            let rate = if self.slow_rng { ",max-bytes=1024,period=1000" } else { "" };
            self.add_device(&mut qemu, "virtio-rng", &format!("rng=entropy{rate}"));
        }
        if let Some(netdev) = self.netdev() {
            qemu.args(["-netdev", &netdev]);
            self.add_device(&mut qemu, "virtio-net", "netdev=net");
        }
        if let Some(disk) = &self.disk {
            // A comma ends a value; two of them are one.
            let file = disk.display().to_string().replace(',', ",,");
            qemu.args(["-drive", &format!("if=none,id=disk,format=raw,file={file}")]);
            self.add_device(&mut qemu, "virtio-blk", "drive=disk");
        }
        if let Some(counting) = &self.counting {
            counting.add_to(&mut qemu);
        }
        if let Some(library) = &self.library {
            qemu.env("LD_PRELOAD", library);
        }
        qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(initial);
        qemu.args(["-append", line]);
        Ok(qemu)
    }

    /// A virtio device as this machine's bus has it.
    fn add_device(&self, qemu: &mut Command, name: &str, settings: &str) {
        let device = match self.kind {
            Kind::Q35 => format!("{name}-pci,disable-legacy=on,{settings}"),
            Kind::Microvm => format!("{name}-device,{settings}"),
        };
        qemu.args(["-device", &device]);
    }

    fn entropy(&self) -> &'static str {
        match self.counting {
            // QEMU's own generator, which begins with the seed.
            Some(_) => "rng-builtin,id=entropy",
            None => "rng-random,id=entropy,filename=/dev/urandom",
        }
    }

    /// What the card is connected to, in QEMU's words, if there is a card.
    fn netdev(&self) -> Option<String> {
        Some(match &self.network {
            Network::None => return None,
            Network::User(forwards) => forwards
                .iter()
                .map(|(host, guest)| format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}"))
                .fold("user,id=net".to_string(), |all, one| all + &one),
            Network::Tap(device, _) => {
                format!("tap,id=net,ifname={device},script=no,downscript=no")
            }
            Network::Datagrams(from, to, _) => format!(
                "dgram,id=net,local.type=inet,local.host=127.0.0.1,local.port={from},\
                 remote.type=inet,remote.host=127.0.0.1,remote.port={to}"
            ),
        })
    }
}

impl Counting {
    /// With a seed one instruction is a nanosecond of the guest's time, sleeping takes none of the
    /// host's, and the date is always the same.
    fn add_to(&self, qemu: &mut Command) {
        if let Some(seed) = self.seed {
            qemu.args(["-icount", "shift=0,sleep=off"])
                .args(["-seed", &seed.to_string()])
                .args(["-rtc", "base=2026-01-01T00:00:00,clock=vm"]);
        }
        if let Some(plugin) = &self.plugin {
            let mut plugin = plugin.display().to_string();
            for setting in &self.settings {
                plugin = plugin + "," + setting;
            }
            qemu.args(["-plugin", &plugin]);
        }
    }
}

/// A command that ends when we end, however we end: no machine is left running.
pub fn guarded(program: &str) -> Command {
    if process::find("setpriv").is_none() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

fn kernel() -> Result<PathBuf> {
    let kernel = workspace::bare("kernel");
    if kernel.is_file() {
        return Ok(kernel);
    }
    Err(Failure::new(format!("{}: not built", kernel.display())).next("cargo xtask build"))
}

fn parse_forward(text: &str) -> Result<(u16, u16)> {
    // QEMU takes 0 for any free port, and does not say which one it took.
    let port = |word: &str| word.parse::<NonZeroU16>().ok().map(NonZeroU16::get);
    let ports = text.split_once(':').and_then(|(host, guest)| port(host).zip(port(guest)));
    let refused = || format!("-p {text}: not HOST:GUEST, two port numbers from 1 to 65535");
    ports.ok_or_else(|| Failure::new(refused()).next(HELP))
}

fn parse_tap(text: &str) -> Result<Network> {
    match text.split_once('=') {
        Some((device, address)) if !device.is_empty() && command_line::is_address(address) => {
            Ok(Network::Tap(device.into(), address.into()))
        }
        _ => Err(Failure::new(format!("--tap {text}: not DEVICE=ADDRESS/PREFIX[,GATEWAY]"))),
    }
}

fn memory_size(text: &str) -> Result<String> {
    let digits = text.trim_end_matches(['M', 'G']);
    let suffixed = text.len() <= digits.len() + 1;
    let Some(number) = digits.parse::<u32>().ok().filter(|_| suffixed) else {
        return Err(Failure::new(format!("--memory {text}: not a size such as 256M or 2G")));
    };
    // A number alone is mebibytes, as QEMU has it.
    let mib = if text.ends_with('G') { number.saturating_mul(1024) } else { number };
    if mib < MEMORY_MIB {
        return Err(Failure::new(format!(
            "--memory {text}: {MEMORY_MIB}M is the least that works"
        )));
    }
    Ok(text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> (Machine, Result<bool>) {
        let mut options = Options::new(words[1..].iter().map(|word| word.to_string()).collect());
        let mut machine = Machine::default();
        let answer = machine.option(words[0], &mut options);
        (machine, answer)
    }

    #[test]
    fn options_describe_the_machine() {
        assert_eq!(options(&["--machine", "microvm"]).0.kind, Kind::Microvm);
        assert_eq!(options(&["--cpus", "4"]).0.cpus, 4);
        assert_eq!(options(&["--memory", "1G"]).0.memory, "1G");
        assert_eq!(options(&["--memory", "16"]).0.memory, "16");
        let forwarded = options(&["-p", "8080:80"]).0;
        assert_eq!(forwarded.network, Network::User(vec![(8080, 80)]));
        let netdev = forwarded.netdev();
        assert_eq!(netdev.as_deref(), Some("user,id=net,hostfwd=tcp:127.0.0.1:8080-:80"));
        assert_eq!(options(&["--without", "network"]).0.netdev(), None);
        assert!(!options(&["--without", "rng"]).0.rng);
        let tap = options(&["--tap", "tap0=10.1.0.2/24,10.1.0.1"]).0;
        assert_eq!(tap.network, Network::Tap("tap0".into(), "10.1.0.2/24,10.1.0.1".into()));
        assert!(!options(&["--other", "1"]).1.unwrap());
    }

    #[test]
    fn wrong_options_are_refused() {
        let wrong = [
            ["--machine", "pc"],
            ["--cpus", "5"],
            ["--cpus", "0"],
            ["--cpus", "x"],
            ["--memory", "lots"],
            ["--memory", "1GM"],
            ["--memory", "15M"],
            ["--memory", "8"],
            ["--memory", "0G"],
            ["-p", "8080"],
            ["-p", "8080:99999"],
            ["--accel", "xen"],
            ["--without", "processors"],
            ["--tap", "tap0"],
        ];
        for words in wrong {
            assert!(options(&words).1.is_err(), "{words:?}");
        }
        assert!(options(&["--cpus"]).1.is_err());
    }

    #[test]
    fn options_that_exclude_each_other_are_refused() {
        let both = [
            ["-p", "8080:80", "--without", "network"],
            ["-p", "8080:80", "--tap", "tap0=10.1.0.2/24"],
            ["--without", "network", "--tap", "tap0=10.1.0.2/24"],
            ["--machine", "microvm", "--firmware", "seabios"],
        ];
        for [first, its, second, other] in both {
            for words in [[first, its, second, other], [second, other, first, its]] {
                let mut options = Options::new(words.map(String::from).into());
                let mut machine = Machine::default();
                let mut next = || machine.option(&options.next().unwrap(), &mut options);
                assert!(next().is_ok_and(|taken| taken), "{words:?}");
                assert!(next().is_err(), "{words:?}");
            }
        }
    }
}
