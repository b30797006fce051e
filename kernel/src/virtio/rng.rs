//! virtio-rng: random bytes where the processor has no RDRAND (virtio 1.2 §5.4).

use abi::published::Category;

use super::queue::{Piece, Queue};
use super::transport::{EVENT_INDEX, Transport};
use crate::boot::memory_map::MemoryMap;
use crate::lock::Lock;
use crate::physical;

/// Bytes asked for at a time.
const POOL: u64 = 4096;
/// How often an empty pool is looked at before the answer is "none just now".
const PATIENCE: usize = 1_000_000;

struct Rng {
    queue: Queue,
    pool: u64,
    /// Words of the pool not given out yet: from here on.
    next: u64,
    end: u64,
    asked: bool,
}

static RNG: Lock<Option<Rng>> = Lock::new(None);

/// Sets the first device up.
pub fn start(transport: Transport, memory: &mut MemoryMap) -> bool {
    if RNG.lock().is_some() {
        return false;
    }
    let Some(features) = transport.begin(EVENT_INDEX) else {
        crate::log!("virtio-rng: not a version 1 device, left alone");
        return false;
    };
    let Some(queue) = Queue::new(&transport, 0, features & EVENT_INDEX != 0, memory) else {
        return false;
    };
    let pool = memory.take(Category::Devices, POOL, 4096);
    transport.finish();
    let mut rng = Rng { queue, pool, next: 0, end: 0, asked: false };
    rng.ask();
    *RNG.lock() = Some(rng);
    true
}

/// Is there a device?
pub fn present() -> bool {
    RNG.lock().is_some()
}

/// 64 random bits; `None` when the device has none just now.
pub fn random() -> Option<u64> {
    RNG.lock().as_mut()?.word()
}

impl Rng {
    fn ask(&mut self) {
        let piece = Piece { address: self.pool, len: POOL as u32, device_writes: true };
        self.queue.add([piece].into_iter());
        self.queue.publish();
        self.asked = true;
    }

    fn word(&mut self) -> Option<u64> {
        for _ in 0..PATIENCE {
            if self.next + 8 <= self.end {
                let word = physical::read64(self.pool + self.next);
                self.next += 8;
                return Some(word);
            }
            if !self.asked {
                self.ask();
            }
            if let Some((head, len)) = self.queue.take() {
                self.queue.free(head, 1);
                self.asked = false;
                (self.next, self.end) = (0, u64::from(len).min(POOL));
            }
            core::hint::spin_loop();
        }
        None
    }
}
