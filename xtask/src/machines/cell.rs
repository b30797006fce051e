//! A cell of the table: one value of each property that machines differ in.

use crate::firmware::Firmware;
use crate::machine::Kind;

/// A processor's model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its name in a cell's.
    pub name: &'static str,
    /// QEMU's words for it.
    pub words: &'static str,
    /// Whether it has XSAVE.
    pub has_xsave: bool,
}

/// A type of machine, with what starts the kernel there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Type {
    /// Its name in a cell's.
    pub name: &'static str,
    /// QEMU's machine.
    pub kind: Kind,
    /// Its firmware.
    pub firmware: Firmware,
}

/// The machines' types.
pub const TYPES: [Type; 3] = [
    Type { name: "q35", kind: Kind::Q35, firmware: Firmware::Qboot },
    Type { name: "q35_seabios", kind: Kind::Q35, firmware: Firmware::SeaBios },
    Type { name: "microvm", kind: Kind::Microvm, firmware: Firmware::Qboot },
];
/// Mebibytes of memory.
pub const MEMORIES: [u64; 6] = [16, 64, 256, 1024, 4096, 16384];
/// Processors.
pub const CPUS: [u32; 4] = [1, 2, 3, 4];
/// The models, from one with everything that QEMU has to one with nothing but x86-64.
pub const MODELS: [Model; 5] = [
    Model { name: "measured", words: "max,-pku,-erms,-fsrm,-la57", has_xsave: true },
    Model { name: "max", words: "max", has_xsave: true },
    Model { name: "qemu64", words: "qemu64", has_xsave: false },
    Model { name: "epyc", words: "EPYC", has_xsave: true },
    Model { name: "skylake", words: "Skylake-Server", has_xsave: true },
];
/// Whether a device is there.
pub const PRESENCE: [bool; 2] = [true, false];

/// How many properties there are, and how many values of each.
pub const PROPERTIES: [usize; 7] = [TYPES.len(), MEMORIES.len(), CPUS.len(), MODELS.len(), 2, 2, 2];

/// A machine of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The machine's type.
    pub machine: Type,
    /// Mebibytes of memory.
    pub memory: u64,
    /// Processors.
    pub cpus: u32,
    /// Their model.
    pub model: Model,
    /// Whether it has a disk.
    pub disk: bool,
    /// Whether it has a network card.
    pub network: bool,
    /// Whether it has a source of random numbers.
    pub rng: bool,
}

impl Cell {
    /// The one with these values, each an index below that of [`PROPERTIES`].
    pub fn of(values: [usize; PROPERTIES.len()]) -> Self {
        let [machine, memory, cpus, model, disk, network, rng] = values;
        Self {
            machine: TYPES[machine],
            memory: MEMORIES[memory],
            cpus: CPUS[cpus],
            model: MODELS[model],
            disk: PRESENCE[disk],
            network: PRESENCE[network],
            rng: PRESENCE[rng],
        }
    }

    /// Such as `q35-16M-x2-qemu64-disk-network-rng`; what is not there is not in it.
    pub fn name(&self) -> String {
        let (machine, model) = (self.machine.name, self.model.name);
        let devices = [(self.disk, "-disk"), (self.network, "-network"), (self.rng, "-rng")];
        let devices: String =
            devices.iter().filter(|(present, _)| *present).map(|(_, name)| *name).collect();
        format!("{machine}-{}M-x{}-{model}{devices}", self.memory, self.cpus)
    }
}
