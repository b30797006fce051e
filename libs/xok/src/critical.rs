//! Critical sections: the end of one's slice is held off for a moment, instead of a lock.
//!
//! Software interrupts are off (`SaveArea::mask`), the end of the slice among them, for 100 µs at
//! most: nobody has to be trusted to unlock, and who dies inside leaves nothing (xok97 XK-7). What
//! it excludes are the others of one's own processor.

use crate::{call, upcall};
use abi::id::EnvId;
use abi::upcall::offset;

/// A section, until it is dropped.
#[derive(Debug)]
pub struct Critical {
    was_masked: bool,
    held_off: u64,
}

impl Critical {
    /// Begins one. They nest.
    pub fn enter() -> Self {
        let was_masked = upcall::set_mask(true);
        Self { was_masked, held_off: upcall::word(offset::HELD_OFF) }
    }

    /// Has the end of the slice come meanwhile? Whoever has more to do should leave now.
    pub fn is_due(&self) -> bool {
        upcall::word(offset::HELD_OFF) != self.held_off
    }
}

impl Drop for Critical {
    /// Gives the processor up if the end of the slice has come, and lets events in that have.
    fn drop(&mut self) {
        if self.was_masked {
            return;
        }
        let due = self.is_due();
        upcall::set_mask(false);
        if due {
            let _ = call::yield_to(EnvId::NONE);
        } else if upcall::pending() | upcall::events() != 0 {
            // Past already: what waits is delivered on the way out.
            let _ = call::sleep(1, 0, 0, 0);
        }
    }
}
