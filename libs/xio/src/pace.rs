//! How many packets a server takes in a while.
//!
//! Packets come from any program that has the network, and from the wire; a server takes them in
//! turns of its own. So that they cost others no more than a share of those turns, the rest waits
//! for the next while, in the ring, or is lost where that is full.

/// A while, in nanoseconds: a slice of a processor.
const WHILE_NS: u64 = 10_000_000;
/// Packets taken in it.
const PACKETS: u32 = 32;

/// What has been taken.
#[derive(Debug, Default)]
pub struct Pace {
    begun_ns: u64,
    taken: u32,
}

impl Pace {
    /// May one more packet be taken now? It is counted.
    pub fn takes(&mut self, now: u64) -> bool {
        if now >= self.begun_ns + WHILE_NS {
            (self.begun_ns, self.taken) = (now, 0);
        }
        let takes = self.taken < PACKETS;
        self.taken += u32::from(takes);
        takes
    }

    /// When packets are taken again, if none is taken now.
    pub fn resumes(&self, now: u64) -> Option<u64> {
        let end = self.begun_ns + WHILE_NS;
        (self.taken >= PACKETS && now < end).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_taken_in_a_while() {
        let mut pace = Pace::default();
        let mut taken = 0;
        for now in (0..100 * WHILE_NS).step_by(WHILE_NS as usize / 1000) {
            taken += u32::from(pace.takes(now));
        }
        assert_eq!(taken, 100 * PACKETS);
    }

    #[test]
    fn it_goes_on_with_the_next_while() {
        let mut pace = Pace::default();
        assert_eq!(pace.resumes(0), None);
        (0..PACKETS).for_each(|_| assert!(pace.takes(5 + WHILE_NS)));
        assert!(!pace.takes(6 + WHILE_NS));
        assert_eq!(pace.resumes(6 + WHILE_NS), Some(5 + 2 * WHILE_NS));
        assert_eq!(pace.resumes(5 + 2 * WHILE_NS), None);
        assert!(pace.takes(5 + 2 * WHILE_NS));
    }
}
