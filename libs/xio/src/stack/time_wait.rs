//! Connections in TIME-WAIT, a few words each (RFC 9293 §3.6, appnet L14).
//!
//! A connection that its user has closed and that has nothing left to do but wait gives its buffers
//! back and leaves an entry here. Segments that still come are not answered by a reset; a repeated
//! FIN, whose acknowledgement was lost, is acknowledged again with numbers taken from itself. A new
//! SYN ends the wait: its sequence number can't be compared here (the kept state has none), which
//! trusts the peer as RFC 6191 does.

use alloc::collections::BTreeMap;
use core::net::SocketAddrV4;

/// How long a connection waits, microseconds.
pub const TIME_WAIT_US: u64 = 60_000_000;
/// Connections that wait at one time; the first to end gives way.
pub const TIME_WAIT_MAX: usize = 4096;

/// A connection as its peer names it: the peer's address and our port.
pub type Key = (SocketAddrV4, u16);

/// The connections that wait, with the time at which each ends.
#[derive(Default)]
pub struct TimeWait {
    ends: BTreeMap<Key, u64>,
}

impl TimeWait {
    /// A connection begins to wait.
    pub fn insert(&mut self, key: Key, now_us: u64) {
        if self.ends.len() >= TIME_WAIT_MAX {
            self.expire(now_us);
        }
        if self.ends.len() >= TIME_WAIT_MAX {
            let first = self.ends.iter().min_by_key(|(_, end)| **end).map(|(key, _)| *key);
            first.map(|key| self.ends.remove(&key));
        }
        self.ends.insert(key, now_us + TIME_WAIT_US);
    }

    /// Does this connection still wait?
    pub fn contains(&mut self, key: &Key, now_us: u64) -> bool {
        match self.ends.get(key) {
            Some(end) if *end > now_us => true,
            Some(_) => {
                self.ends.remove(key);
                false
            }
            None => false,
        }
    }

    /// Ends a wait early.
    pub fn remove(&mut self, key: &Key) {
        self.ends.remove(key);
    }

    /// Connections that wait, some perhaps no longer.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    fn expire(&mut self, now_us: u64) {
        self.ends.retain(|_, end| *end > now_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn waits_end_and_are_bounded() {
        let key = |n: usize| (SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), n as u16), 80);
        let mut waiting = TimeWait::default();
        for n in 0..TIME_WAIT_MAX + 10 {
            waiting.insert(key(n), n as u64);
        }
        assert_eq!(waiting.len(), TIME_WAIT_MAX);
        assert!(!waiting.contains(&key(9), 0));
        assert!(waiting.contains(&key(10), 0));
        assert!(!waiting.contains(&key(10), 10 + TIME_WAIT_US));
        waiting.remove(&key(11));
        assert!(!waiting.contains(&key(11), 0));
    }
}
