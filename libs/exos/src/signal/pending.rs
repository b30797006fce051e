//! Signals that arrived and were not taken yet.
//!
//! A standard one waits once, a real-time one as often as it was sent (signal(7)).

use super::{Info, SIGNALS, bit};
use alloc::vec::Vec;

/// The first signal that queues, as the kernel of Linux counts (the C library keeps some of them).
pub const REAL_TIME: u32 = 32;
/// Signals that wait at most; more real-time ones are refused (`EAGAIN`).
const QUEUED_MAX: usize = 1024;

/// What waits, in the order of arrival. A signal is in `set` exactly if it is in `list`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    set: u64,
    list: Vec<(u32, Info)>,
}

impl Pending {
    /// The signals that wait, as bits.
    pub fn set(&self) -> u64 {
        self.set
    }

    /// Everything that waits.
    pub fn list(&self) -> &[(u32, Info)] {
        &self.list
    }

    /// Adds `signal`; false if there is no room for one more of it.
    pub fn put(&mut self, signal: u32, info: Info) -> bool {
        if signal == 0 || signal as usize > SIGNALS {
            return false;
        }
        if self.set & bit(signal) != 0 {
            if signal < REAL_TIME {
                return true;
            }
            if self.list.len() >= QUEUED_MAX {
                return false;
            }
        }
        self.set |= bit(signal);
        self.list.push((signal, info));
        true
    }

    /// Takes the `signal` that came first; what was said with it.
    pub fn take(&mut self, signal: u32) -> Option<Info> {
        if self.set & bit(signal) == 0 {
            return None;
        }
        let at = self.list.iter().position(|entry| entry.0 == signal)?;
        let (_, info) = self.list.remove(at);
        if !self.list.iter().any(|entry| entry.0 == signal) {
            self.set &= !bit(signal);
        }
        Some(info)
    }

    /// What waits is told with `info`, whatever was said with it.
    pub fn retell(&mut self, info: Info) {
        self.list.iter_mut().for_each(|entry| entry.1 = info);
    }

    /// Forgets every `signal` that waits.
    pub fn discard(&mut self, signal: u32) {
        self.set &= !bit(signal);
        self.list.retain(|entry| entry.0 != signal);
    }

    /// Forgets all (what a fork child begins with).
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_raw_sys::general::SIGUSR1;

    fn told(first: u64) -> Info {
        Info { first, ..Info::default() }
    }

    #[test]
    fn real_time_signals_queue_in_order_and_standard_ones_do_not() {
        let mut pending = Pending::default();
        for at in 1..=3 {
            assert!(pending.put(40, told(at)));
            assert!(pending.put(SIGUSR1, told(at)));
        }
        assert_eq!(pending.set(), bit(40) | bit(SIGUSR1));
        assert_eq!(pending.take(SIGUSR1), Some(told(1)));
        assert_eq!(pending.take(SIGUSR1), None);
        assert_eq!([1, 2, 3].map(|_| pending.take(40).unwrap().first), [1, 2, 3]);
        assert_eq!(pending, Pending::default());
    }

    #[test]
    fn a_full_queue_refuses_but_keeps_one_of_each() {
        let mut pending = Pending::default();
        let put = (0..2 * QUEUED_MAX).filter(|_| pending.put(50, Info::default())).count();
        assert_eq!(put, QUEUED_MAX);
        assert!(pending.put(51, Info::default()));
        assert!(!pending.put(0, Info::default()) && !pending.put(65, Info::default()));
        pending.discard(50);
        assert_eq!(pending.set(), bit(51));
    }
}
