//! The judge's own port: prompts to the host through the log, answers by datagram.

use abi::upcall::{EVENT_CHILD, EVENT_PACKET, EVENT_SENT};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use xio::filter::Filter;
use xio::ipv4::Network;
use xio::stack::Receive;
use xnet::Port;
use xok::call::{self, OWN};
use xok::clock;

/// Bytes of headers before a datagram's payload.
pub const HEADERS: usize = 42;
/// How long the host may take, nanoseconds.
const PATIENCE: u64 = 20_000_000_000;

/// The port.
pub struct Control {
    /// Its ring and queue.
    pub port: Port,
    /// Where this machine is.
    pub network: Network,
}

impl Control {
    /// Opens it and claims the control port.
    pub fn open() -> Result<Control, String> {
        let network = xnet::settings::network().ok_or("no ip= on the command line")?;
        let port = Port::open(OWN, 0).map_err(|why| format!("port: {why:?}"))?;
        let local = SocketAddrV4::new(network.address, crate::CONTROL);
        port.claim(&Filter::udp(local)).map_err(|why| format!("control: {why:?}"))?;
        xok::upcall::set_mask(true);
        Ok(Control { port, network })
    }

    /// This machine's address with a port.
    pub fn local(&self, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(self.network.address, port)
    }

    /// The next message from the host, if one has come.
    pub fn message(&mut self) -> Option<Vec<u8>> {
        let frame = self.port.ring.peek()?;
        let message = frame.get(HEADERS..).map(Vec::from);
        self.port.ring.release();
        message
    }

    /// Waits for a message.
    pub fn expect(&mut self, expected: &[u8]) -> Result<(), String> {
        let end = clock::now_ns() + PATIENCE;
        while clock::now_ns() < end {
            // Short messages are padded by the link.
            match self.message() {
                Some(message) if message.starts_with(expected) => return Ok(()),
                Some(_) => {}
                None => nap(10_000_000),
            }
        }
        Err(format!("the host never said {}", String::from_utf8_lossy(expected)))
    }

    /// Has the host send `count` datagrams of `size` bytes to `port`; they have arrived afterwards,
    /// or never will.
    pub fn send(&mut self, port: u16, count: u32, size: u32, from: u16) -> Result<(), String> {
        xok::log!(OWN, "net: send {port} {count} {size} {from}");
        self.expect(b"sent")
    }
}

/// Sleeps until something happens, at most so many nanoseconds.
pub fn nap(ns: u64) {
    let events = EVENT_PACKET | EVENT_CHILD | EVENT_SENT;
    let _ = call::sleep(clock::now_ns() + ns, 0, events, 0);
    xok::upcall::take_events_of(events);
}
