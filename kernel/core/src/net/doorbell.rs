//! Does the device want to hear of what was added to its queue (virtio 1.2 §2.7.10)?
//!
//! ```text
//!        told          event        added
//!  ───────┴──────────────┴────────────┴──────► chains, free-running, modulo 2^16
//!          the device asked to be told when this chain is there: ring
//! ```
//! The question is asked since the doorbell last rang, not since the last chain alone: where a
//! device's "tell me at this one" is seen too late (an emulator without barriers, see
//! `kernel/src/virtio/queue.rs`), the next chain makes good for it. Else the queue would stand
//! still for ever.

/// What one queue was told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Doorbell {
    told: u16,
}

impl Doorbell {
    /// Chains up to `added` are there, and the device asked to be told of chain `event`: must the
    /// bell be rung? Then it counts as rung.
    pub fn wanted(&mut self, event: u16, added: u16) -> bool {
        let since_told = added.wrapping_sub(self.told);
        let wanted = added.wrapping_sub(event).wrapping_sub(1) < since_told;
        if wanted {
            self.told = added;
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chains added one by one to a device that works in bursts: while it works it does not listen,
    /// and what it asks for when it has run dry is seen `late` chains too late. Answers the most
    /// chains that waited for a device that listened.
    fn most_waiting(late: u16) -> u16 {
        let mut bell = Doorbell::default();
        let (mut done, mut event) = (0_u16, 0_u16);
        let (mut seen, mut asked_at) = (0_u16, 0_u16);
        let (mut working, mut most) = (0, 0);
        for step in 0..200_000_u32 {
            let added = (step as u16).wrapping_add(1);
            if added.wrapping_sub(asked_at) > late {
                seen = event;
            }
            if bell.wanted(seen, added) && working == 0 {
                working = 1 + step % 1000;
            }
            if working > 0 {
                working -= 1;
                done = added;
                if working == 0 {
                    (event, asked_at) = (done, added);
                }
            }
            most = most.max(added.wrapping_sub(done));
        }
        most
    }

    #[test]
    fn a_device_that_listens_is_told_at_once() {
        assert_eq!(most_waiting(0), 0);
    }

    #[test]
    fn a_question_seen_late_is_answered_with_the_next_chain() {
        for late in 1..5 {
            assert_eq!(most_waiting(late), late);
        }
    }

    #[test]
    fn a_device_that_works_is_left_alone() {
        let mut bell = Doorbell::default();
        assert!(bell.wanted(0, 1));
        assert!((2..60_000).all(|added| !bell.wanted(0, added)));
    }
}
