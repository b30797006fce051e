//! virtio-net: frames from the device to `kernel_core::net`, and back (virtio 1.2 §5.1).
//!
//! ```text
//!  receive buffers   128 of 2 KiB: {header 12 bytes, frame up to 1514 bytes}
//!  send headers      256 of 256 bytes: {header 12 bytes, first 128 bytes of the packet}; the rest
//!                    of a packet is gathered from programs' frames
//! ```

use abi::limits::TRANSMIT_HEADER;
use abi::published::Category;
use kernel_core::net::transmit::{Segment, TOKENS};
use kernel_core::state::State;

use super::queue::{Piece, Queue, SIZE};
use super::transport::{EVENT_INDEX, Transport};
use crate::boot::memory_map::MemoryMap;
use crate::hardware::Hardware;
use crate::lock::Lock;
use crate::physical;

/// The device has an Ethernet address (§5.1.3).
const MAC: u64 = 1 << 5;
/// Bytes of the header before each packet, all zero: no offloads (§5.1.6).
const HEADER: u64 = 12;
const BUFFER: u64 = 2048;
const BUFFERS: u64 = 128;
const SEND_HEADER: u64 = 256;

const _: () = assert!(HEADER as usize + TRANSMIT_HEADER <= SEND_HEADER as usize);
// What is kept for accounts of all tokens is kept of the queue's places.
const _: () = assert!(TOKENS == SIZE);

/// The device.
pub struct Net {
    pub transport: Transport,
    pub vector: u8,
    receive: Queue,
    send: Queue,
    buffers: u64,
    headers: u64,
    mac: u64,
    /// Token and descriptors of the chain with this head.
    chains: [(u8, u16); SIZE],
}

static NET: Lock<Option<Net>> = Lock::new(None);

/// Uses the device if there is one.
pub fn with<R>(f: impl FnOnce(&mut Net) -> R) -> Option<R> {
    NET.lock().as_mut().map(f)
}

/// Sets the first device up; says so when it can't be.
pub fn start(transport: Transport, memory: &mut MemoryMap, vector: u8) -> bool {
    if NET.lock().is_some() {
        return false;
    }
    let Some(features) = transport.begin(MAC | EVENT_INDEX) else {
        crate::log!("virtio-net: not a version 1 device, left alone");
        return false;
    };
    let event_index = features & EVENT_INDEX != 0;
    let receive = Queue::new(&transport, 0, event_index, memory);
    let send = Queue::new(&transport, 1, event_index, memory);
    let (Some(receive), Some(send)) = (receive, send) else {
        crate::log!("virtio-net: its queues can't be used, left alone");
        return false;
    };
    let mac = match features & MAC {
        0 => 0x0000_0100_0000_0252,
        _ => (0..6).fold(0, |mac, byte| mac | u64::from(transport.config(byte)) << (8 * byte)),
    };
    let mut net = Net {
        transport,
        vector,
        receive,
        send,
        buffers: memory.take(Category::Devices, BUFFERS * BUFFER, 4096),
        headers: memory.take(Category::Devices, TOKENS as u64 * SEND_HEADER, 4096),
        mac,
        chains: [(0, 0); SIZE],
    };
    for number in 0..BUFFERS.min(net.receive.room() as u64) {
        net.offer(number as u16);
    }
    net.transport.finish();
    net.receive.publish();
    *NET.lock() = Some(net);
    true
}

impl Net {
    /// Offers receive buffer `number`: descriptors come in order, so it heads its chain.
    fn offer(&mut self, number: u16) {
        let address = self.buffers + u64::from(number) * BUFFER;
        let piece = Piece { address, len: BUFFER as u32, device_writes: true };
        let head = self.receive.add([piece].into_iter());
        self.chains_of_receive(head, number);
    }

    /// Every receive chain is one descriptor, and free ones are taken in the order they came back:
    /// head and buffer stay paired.
    fn chains_of_receive(&self, head: u16, number: u16) {
        assert_eq!(head, number);
    }

    /// Asks for interrupts.
    pub fn listen(&mut self) {
        self.receive.ask();
        self.send.ask();
    }
}

/// The interface's Ethernet address, first byte lowest.
pub fn mac() -> Option<u64> {
    with(|net| net.mac)
}

/// An interrupt of the device's: the line falls; `poll` does the rest under the state's lock.
pub fn acknowledge() {
    with(|net| net.transport.acknowledge());
}

/// Takes what the device has: packets sent, packets received.
pub fn poll(state: &mut State, hardware: &mut Hardware) {
    if NET.lock().is_none() {
        return;
    }
    loop {
        while let Some(token) = with(Net::sent).flatten() {
            kernel_core::net::transmit::sent(state, hardware, 0, usize::from(token));
        }
        let mut received = false;
        while let Some((number, len)) = with(Net::received).flatten() {
            let address = with(|net| net.buffers).unwrap_or(0) + u64::from(number) * BUFFER;
            let packet = physical::bytes(address + HEADER, u64::from(len));
            kernel_core::net::receive(state, hardware, 0, packet);
            with(|net| {
                net.receive.free(number, 1);
                net.offer(number);
            });
            received = true;
        }
        let again = with(|net| {
            if received {
                net.receive.publish();
            }
            // Both are asked; either having something means another round.
            net.receive.ask() | net.send.ask_late()
        });
        if again != Some(true) {
            return;
        }
    }
}

impl Net {
    fn sent(&mut self) -> Option<u8> {
        let (head, _) = self.send.take()?;
        let (token, count) = self.chains[usize::from(head)];
        self.send.free(head, count);
        Some(token)
    }

    /// The number of a filled buffer and the bytes of its frame.
    fn received(&mut self) -> Option<(u16, u32)> {
        let (head, len) = self.receive.take()?;
        let most = (BUFFER - HEADER) as u32;
        Some((head, len.saturating_sub(HEADER as u32).min(most)))
    }
}

/// Descriptors free for sending.
pub fn room() -> usize {
    with(|net| net.send.room()).unwrap_or(0)
}

/// Physical address of the token's copied first bytes.
pub fn header(token: usize) -> u64 {
    with(|net| net.headers + token as u64 * SEND_HEADER + HEADER).unwrap_or(0)
}

/// Sends: the first `header` bytes from the token's place, then `rest`.
pub fn transmit(token: usize, header: usize, rest: &[Segment]) {
    with(|net| {
        let address = net.headers + token as u64 * SEND_HEADER;
        let first = Segment { address, len: (HEADER as usize + header) as u32 };
        let count = rest.len() + 1;
        let head = net.send.add((0..count).map(|at| {
            let Segment { address, len } = if at == 0 { first } else { rest[at - 1] };
            Piece { address, len, device_writes: false }
        }));
        net.chains[usize::from(head)] = (token as u8, count as u16);
        net.send.publish();
    });
}
