//! Which processors, interrupt controllers and buses there are, as the firmware says.

mod acpi;
pub mod apic;
pub mod clock;
pub mod io_apic;
mod mp_table;
pub mod pic;
pub mod smp;

use abi::limits::CPUS;

/// Interrupt controllers that we note.
const IO_APICS: usize = 4;
/// Redirections of ISA interrupts.
const OVERRIDES: usize = 16;

/// An I/O APIC: its registers and its first global interrupt.
#[derive(Clone, Copy, Debug, Default)]
pub struct IoApic {
    pub address: u64,
    pub first: u32,
}

/// An ISA interrupt that isn't the global one of the same number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Override {
    pub isa: u8,
    pub global: u32,
    pub flags: u16,
}

/// PCI configuration space in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ecam {
    pub address: u64,
}

/// How the machine is switched off, as ACPI says.
#[derive(Clone, Copy, Debug, Default)]
pub enum Sleep {
    #[default]
    Unknown,
    /// A port of 16 bits, with what to write.
    Port(u16, u16),
    /// A byte in memory, with what to write.
    Memory(u64, u8),
    /// A port of 8 bits.
    BytePort(u16, u8),
}

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Platform {
    /// Local APIC ids; the first is the one that booted.
    pub cpus: [u32; CPUS],
    pub cpu_count: usize,
    /// Processors beyond `CPUS`.
    pub cpus_left_out: usize,
    pub local_apic: u64,
    pub io_apics: [IoApic; IO_APICS],
    pub io_apic_count: usize,
    pub overrides: [Override; OVERRIDES],
    pub override_count: usize,
    pub ecam: Option<Ecam>,
    pub sleep: Sleep,
    /// ACPI's power management timer: its port, or 0.
    pub timer_port: u16,
    /// ACPI's tables were found (else the MP table, else nothing).
    pub acpi: bool,
}

impl Platform {
    /// Reads the firmware's tables; `rsdp` is where the loader says that ACPI's begin, or 0.
    pub fn probe(rsdp: u64) -> Self {
        let mut found = Self { local_apic: 0xfee0_0000, ..Self::default() };
        found.acpi = acpi::read(&mut found, rsdp);
        if !found.acpi || found.cpu_count == 0 {
            mp_table::read(&mut found);
        }
        let boot = apic::id_by_cpuid();
        if found.cpu_count == 0 {
            found.add_cpu(boot);
        }
        if found.io_apic_count == 0 {
            found.add_io_apic(0xfec0_0000, 0);
        }
        // Whoever booted is processor 0.
        if let Some(at) = found.cpus[..found.cpu_count].iter().position(|&id| id == boot) {
            found.cpus.swap(0, at);
        }
        found
    }

    fn add_cpu(&mut self, id: u32) {
        if self.cpu_count < CPUS {
            self.cpus[self.cpu_count] = id;
            self.cpu_count += 1;
        } else {
            self.cpus_left_out += 1;
        }
    }

    fn add_io_apic(&mut self, address: u64, first: u32) {
        if self.io_apic_count < IO_APICS {
            self.io_apics[self.io_apic_count] = IoApic { address, first };
            self.io_apic_count += 1;
        }
    }

    fn add_override(&mut self, found: Override) {
        if self.override_count < OVERRIDES {
            self.overrides[self.override_count] = found;
            self.override_count += 1;
        }
    }

    /// The global number and flags of an ISA interrupt.
    pub fn isa_interrupt(&self, isa: u8) -> (u32, u16) {
        self.overrides[..self.override_count]
            .iter()
            .find(|found| found.isa == isa)
            .map_or((u32::from(isa), 0), |found| (found.global, found.flags))
    }
}
