//! virtio-rng: random bits where the processor has no RDRAND (virtio 1.2 §5.4).
//!
//! The device is asked once, when it is found: how much it gives in a second is its owner's choice,
//! and programs that make calls must neither wait for it nor leave others without.

use abi::published::Category;
use kernel_core::generator::Generator;

use super::queue::{Piece, Queue};
use super::transport::{EVENT_INDEX, Transport};
use crate::boot::memory_map::MemoryMap;
use crate::lock::Lock;
use crate::physical;

/// Bytes asked for: a generator's key.
const BYTES: u64 = 16;
/// Bytes of the page where the device puts them.
const PAGE: u64 = 4096;
/// How often the device is looked at before it counts as one that has none. At boot, where nobody
/// waits for anything else.
const PATIENCE: usize = 10_000_000;

static GENERATOR: Lock<Option<Generator>> = Lock::new(None);

/// Sets the first device up that answers.
pub fn start(transport: Transport, memory: &mut MemoryMap) -> bool {
    if GENERATOR.lock().is_some() {
        return false;
    }
    let Some(features) = transport.begin(EVENT_INDEX) else {
        crate::log!("virtio-rng: not a version 1 device, left alone");
        return false;
    };
    let Some(mut queue) = Queue::new(&transport, 0, features & EVENT_INDEX != 0, memory) else {
        return false;
    };
    let page = memory.take(Category::Devices, PAGE, PAGE);
    transport.finish();
    let Some(key) = ask(&mut queue, page) else {
        crate::log!("virtio-rng: it has no random bits now, left alone");
        return false;
    };
    *GENERATOR.lock() = Some(Generator::new(key));
    true
}

/// Is there a device that has answered?
pub fn present() -> bool {
    GENERATOR.lock().is_some()
}

/// 64 random bits; `None` without a device.
pub fn random() -> Option<u64> {
    GENERATOR.lock().as_mut().map(Generator::word)
}

/// Asks until there is a whole key.
fn ask(queue: &mut Queue, page: u64) -> Option<[u64; 2]> {
    let mut there = 0;
    let mut asked = false;
    for _ in 0..PATIENCE {
        if there >= BYTES {
            return Some([physical::read64(page), physical::read64(page + 8)]);
        }
        if !asked {
            let len = (BYTES - there) as u32;
            let piece = Piece { address: page + there, len, device_writes: true };
            queue.add([piece].into_iter());
            queue.publish();
            asked = true;
        }
        if let Some((head, len)) = queue.take() {
            queue.free(head, 1);
            asked = false;
            there += u64::from(len).min(BYTES - there);
        }
        core::hint::spin_loop();
    }
    None
}
