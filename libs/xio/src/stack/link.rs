//! What a stack asks of the world: a source of frames, a sink for frames, and link addresses.

use core::net::Ipv4Addr;

use crate::arp;
use crate::ethernet::Mac;

/// Frames that have arrived, oldest first.
pub trait Receive {
    /// The oldest frame, in place; it stays until [`release`](Receive::release). May be cut short.
    fn peek(&mut self) -> Option<&[u8]>;

    /// Gives back the frame that `peek` showed.
    fn release(&mut self);
}

/// Frames to send. A frame is written straight into the link's own memory and never copied.
pub trait Transmit {
    /// Room for the next frame, [`FRAME_MAX`](crate::ethernet::FRAME_MAX) bytes; `None`: full now.
    fn buffer(&mut self) -> Option<&mut [u8]>;

    /// Sends the first `length` bytes of what `buffer` gave last.
    fn commit(&mut self, length: usize);
}

/// Link addresses of the stations nearby.
pub trait Neighbours {
    /// The link address of `address`, if it is known.
    fn lookup(&self, address: Ipv4Addr) -> Option<Mac>;
}

impl Neighbours for arp::Reader<'_> {
    fn lookup(&self, address: Ipv4Addr) -> Option<Mac> {
        self.get(address).map(|entry| entry.mac)
    }
}

impl<F: Fn(Ipv4Addr) -> Option<Mac>> Neighbours for F {
    fn lookup(&self, address: Ipv4Addr) -> Option<Mac> {
        self(address)
    }
}
