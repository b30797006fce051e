//! The two ways to a device's registers, seen as one (virtio 1.2 §4.1, §4.2).
//!
//! # Safety
//! Registers are reached where they were mapped at boot, each by the width the specification
//! gives it; what a device does to memory is bounded by the queues handed to it.
#![allow(unsafe_code)]

/// Acknowledged, driver, features chosen, working, failed (virtio 1.2 §2.1).
const ACKNOWLEDGE: u8 = 1;
const DRIVER: u8 = 2;
const DRIVER_OK: u8 = 4;
const FEATURES_OK: u8 = 8;
const FAILED: u8 = 128;

/// Feature bits of every device (virtio 1.2 §6).
pub const EVENT_INDEX: u64 = 1 << 29;
/// The device follows version 1.
const VERSION_1: u64 = 1 << 32;

/// Where a device's registers are.
#[derive(Clone, Copy, Debug)]
pub enum Transport {
    /// Registers in memory.
    Mmio {
        /// Their address.
        registers: u64,
        /// Its global interrupt.
        global: u32,
    },
    /// Capabilities of a PCI function.
    Pci {
        /// Common configuration.
        common: u64,
        /// Notification area, and bytes from one queue's offset to the next.
        notify: u64,
        /// See `notify`.
        multiplier: u32,
        /// Device configuration.
        config: u64,
        /// First entry of the MSI-X table, 0: none.
        messages: u64,
        /// Device type.
        kind: u32,
    },
}

/// Addresses of a queue's three parts.
#[derive(Clone, Copy, Debug)]
pub struct QueueAddresses {
    pub descriptors: u64,
    pub available: u64,
    pub used: u64,
}

pub fn read<T: Copy>(address: u64) -> T {
    // SAFETY: see the file's head.
    unsafe { (address as *const T).read_volatile() }
}

pub fn write<T: Copy>(address: u64, value: T) {
    // SAFETY: see the file's head.
    unsafe { (address as *mut T).write_volatile(value) }
}

/// Offsets of the registers in memory (virtio 1.2 §4.2.2).
mod at {
    pub const DEVICE_TYPE: u64 = 0x008;
    pub const FEATURES: u64 = 0x010;
    pub const FEATURES_SELECT: u64 = 0x014;
    pub const CHOSEN: u64 = 0x020;
    pub const CHOSEN_SELECT: u64 = 0x024;
    pub const QUEUE_SELECT: u64 = 0x030;
    pub const QUEUE_SIZE_MAX: u64 = 0x034;
    pub const QUEUE_SIZE: u64 = 0x038;
    pub const QUEUE_READY: u64 = 0x044;
    pub const NOTIFY: u64 = 0x050;
    pub const INTERRUPT: u64 = 0x060;
    pub const ACKNOWLEDGE: u64 = 0x064;
    pub const STATUS: u64 = 0x070;
    pub const DESCRIPTORS: u64 = 0x080;
    pub const AVAILABLE: u64 = 0x090;
    pub const USED: u64 = 0x0a0;
    pub const CONFIG: u64 = 0x100;
}

/// Offsets in the common configuration (virtio 1.2 §4.1.4.3).
mod common_at {
    pub const FEATURES_SELECT: u64 = 0;
    pub const FEATURES: u64 = 4;
    pub const CHOSEN_SELECT: u64 = 8;
    pub const CHOSEN: u64 = 12;
    pub const CONFIG_VECTOR: u64 = 16;
    pub const STATUS: u64 = 20;
    pub const QUEUE_SELECT: u64 = 22;
    pub const QUEUE_SIZE: u64 = 24;
    pub const QUEUE_VECTOR: u64 = 26;
    pub const QUEUE_ENABLE: u64 = 28;
    pub const QUEUE_NOTIFY: u64 = 30;
    pub const DESCRIPTORS: u64 = 32;
    pub const AVAILABLE: u64 = 40;
    pub const USED: u64 = 48;
}

const NO_VECTOR: u16 = 0xffff;

impl Transport {
    /// What kind of device it is.
    pub fn device_type(&self) -> u32 {
        match *self {
            Self::Mmio { registers, .. } => read(registers + at::DEVICE_TYPE),
            Self::Pci { kind, .. } => kind,
        }
    }

    fn status(&self) -> u8 {
        match *self {
            Self::Mmio { registers, .. } => read::<u32>(registers + at::STATUS) as u8,
            Self::Pci { common, .. } => read(common + common_at::STATUS),
        }
    }

    fn set_status(&self, status: u8) {
        match *self {
            Self::Mmio { registers, .. } => write(registers + at::STATUS, u32::from(status)),
            Self::Pci { common, .. } => write(common + common_at::STATUS, status),
        }
    }

    fn features(&self) -> u64 {
        let half = |select: u32| -> u64 {
            match *self {
                Self::Mmio { registers, .. } => {
                    write(registers + at::FEATURES_SELECT, select);
                    read::<u32>(registers + at::FEATURES).into()
                }
                Self::Pci { common, .. } => {
                    write(common + common_at::FEATURES_SELECT, select);
                    read::<u32>(common + common_at::FEATURES).into()
                }
            }
        };
        half(0) | half(1) << 32
    }

    fn choose(&self, features: u64) {
        for select in 0..2_u32 {
            let half = (features >> (32 * select)) as u32;
            match *self {
                Self::Mmio { registers, .. } => {
                    write(registers + at::CHOSEN_SELECT, select);
                    write(registers + at::CHOSEN, half);
                }
                Self::Pci { common, .. } => {
                    write(common + common_at::CHOSEN_SELECT, select);
                    write(common + common_at::CHOSEN, half);
                }
            }
        }
    }

    /// Resets the device and agrees on features: those of `wanted` that it has; `None` if it does
    /// not follow version 1 or does not agree.
    pub fn begin(&self, wanted: u64) -> Option<u64> {
        self.set_status(0);
        for _ in 0..1_000_000 {
            if self.status() == 0 {
                break;
            }
        }
        self.set_status(ACKNOWLEDGE | DRIVER);
        let offered = self.features();
        let chosen = offered & (wanted | VERSION_1);
        self.choose(chosen);
        self.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK);
        if chosen & VERSION_1 == 0 || self.status() & FEATURES_OK == 0 {
            self.set_status(FAILED);
            return None;
        }
        Some(chosen)
    }

    /// The device may work: its queues are set.
    pub fn finish(&self) {
        self.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
    }

    /// Entries that queue `index` may have; 0: there is none.
    pub fn queue_size(&self, index: u16) -> u16 {
        match *self {
            Self::Mmio { registers, .. } => {
                write(registers + at::QUEUE_SELECT, u32::from(index));
                read::<u32>(registers + at::QUEUE_SIZE_MAX).min(u32::from(u16::MAX)) as u16
            }
            Self::Pci { common, .. } => {
                write(common + common_at::QUEUE_SELECT, index);
                read(common + common_at::QUEUE_SIZE)
            }
        }
    }

    /// Hands a queue over.
    pub fn set_queue(&self, index: u16, size: u16, addresses: &QueueAddresses) {
        match *self {
            Self::Mmio { registers, .. } => {
                write(registers + at::QUEUE_SELECT, u32::from(index));
                write(registers + at::QUEUE_SIZE, u32::from(size));
                for (offset, address) in [
                    (at::DESCRIPTORS, addresses.descriptors),
                    (at::AVAILABLE, addresses.available),
                    (at::USED, addresses.used),
                ] {
                    write(registers + offset, address as u32);
                    write(registers + offset + 4, (address >> 32) as u32);
                }
                write(registers + at::QUEUE_READY, 1_u32);
            }
            Self::Pci { common, .. } => {
                write(common + common_at::CONFIG_VECTOR, NO_VECTOR);
                write(common + common_at::QUEUE_SELECT, index);
                write(common + common_at::QUEUE_SIZE, size);
                write(common + common_at::QUEUE_VECTOR, 0_u16);
                for (offset, address) in [
                    (common_at::DESCRIPTORS, addresses.descriptors),
                    (common_at::AVAILABLE, addresses.available),
                    (common_at::USED, addresses.used),
                ] {
                    write(common + offset, address as u32);
                    write(common + offset + 4, (address >> 32) as u32);
                }
                write(common + common_at::QUEUE_ENABLE, 1_u16);
            }
        }
    }

    /// Where a queue is notified, and how wide the word is that names it.
    pub fn doorbell(&self, index: u16) -> Doorbell {
        match *self {
            Self::Mmio { registers, .. } => Doorbell::Wide(registers + at::NOTIFY),
            Self::Pci { common, notify, multiplier, .. } => {
                write(common + common_at::QUEUE_SELECT, index);
                let offset: u16 = read(common + common_at::QUEUE_NOTIFY);
                Doorbell::Narrow(notify + u64::from(offset) * u64::from(multiplier))
            }
        }
    }

    /// A byte of the device's own configuration.
    pub fn config(&self, offset: u64) -> u8 {
        match *self {
            Self::Mmio { registers, .. } => read(registers + at::CONFIG + offset),
            Self::Pci { config, .. } => read(config + offset),
        }
    }

    /// The global interrupt of a device in memory.
    pub fn interrupt_line(&self) -> Option<u32> {
        match *self {
            Self::Mmio { global, .. } => Some(global),
            Self::Pci { .. } => None,
        }
    }

    /// Sends a PCI device's messages to the processor with this APIC id as `vector`.
    pub fn signal_to(&self, target: u32, vector: u8) {
        if let Self::Pci { messages, .. } = *self
            && messages != 0
        {
            // SDM 3A §10.11: address, data; PCI 3.0 §6.8.2: the last word unmasks.
            write(messages, 0xfee0_0000 | target << 12);
            write(messages + 4, 0_u32);
            write(messages + 8, u32::from(vector));
            write(messages + 12, 0_u32);
        }
    }

    /// Takes an interrupt on a line back, so that the line falls.
    pub fn acknowledge(&self) {
        if let Self::Mmio { registers, .. } = *self {
            let why: u32 = read(registers + at::INTERRUPT);
            write(registers + at::ACKNOWLEDGE, why);
        }
    }
}

/// How a queue's device is told to look.
#[derive(Clone, Copy, Debug)]
pub enum Doorbell {
    /// 32 bits.
    Wide(u64),
    /// 16 bits.
    Narrow(u64),
}

impl Doorbell {
    /// Tells the device to look at queue `index`.
    pub fn ring(&self, index: u16) {
        match *self {
            Self::Wide(address) => write(address, u32::from(index)),
            Self::Narrow(address) => write(address, index),
        }
    }
}
