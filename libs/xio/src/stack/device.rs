//! Our link as the TCP engine sees it: a device of bare IP packets.

use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

use super::Counters;
use super::egress::Path;
use super::link::{Neighbours, Transmit};
use crate::ethernet;

/// One packet in, any number out.
pub struct Adapter<'a, T, N> {
    /// The packet that has arrived, if it was not taken yet.
    pub packet: Option<&'a [u8]>,
    pub now_us: u64,
    pub tx: &'a mut T,
    pub neighbours: &'a N,
    pub path: &'a mut Path,
    pub counters: &'a mut Counters,
}

pub struct Arrived<'a>(&'a [u8]);

pub struct Room<'a, T, N> {
    now_us: u64,
    tx: &'a mut T,
    neighbours: &'a N,
    path: &'a mut Path,
    counters: &'a mut Counters,
}

impl<T: Transmit, N: Neighbours> Adapter<'_, T, N> {
    fn room(&mut self) -> Room<'_, T, N> {
        Room {
            now_us: self.now_us,
            tx: self.tx,
            neighbours: self.neighbours,
            path: self.path,
            counters: self.counters,
        }
    }
}

impl<T: Transmit, N: Neighbours> Device for Adapter<'_, T, N> {
    type RxToken<'t>
        = Arrived<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Room<'t, T, N>
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let packet = self.packet.take()?;
        Some((Arrived(packet), self.room()))
    }

    // Never refused: see `Path::overflow`.
    fn transmit(&mut self, _: Instant) -> Option<Self::TxToken<'_>> {
        Some(self.room())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities()
    }
}

/// Bare IP packets of Ethernet's size. The sums of TCP's segments are ours: checked before the
/// engine sees a segment (`ingress`), written behind it (`egress`).
fn capabilities() -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ip;
    capabilities.max_transmission_unit = ethernet::PAYLOAD_MAX;
    capabilities.checksum.tcp = Checksum::None;
    capabilities
}

impl RxToken for Arrived<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

impl<T: Transmit, N: Neighbours> TxToken for Room<'_, T, N> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        self.path.send(self.now_us, self.tx, self.neighbours, self.counters, (length, fill))
    }
}

/// A device without a link, for making an interface.
pub struct Nowhere;

pub struct Never(core::convert::Infallible);

impl Device for Nowhere {
    type RxToken<'t> = Never;
    type TxToken<'t> = Never;

    fn receive(&mut self, _: Instant) -> Option<(Never, Never)> {
        None
    }

    fn transmit(&mut self, _: Instant) -> Option<Never> {
        None
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities()
    }
}

impl RxToken for Never {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, _: F) -> R {
        match self.0 {}
    }
}

impl TxToken for Never {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, _: usize, _: F) -> R {
        match self.0 {}
    }
}
