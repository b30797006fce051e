//! A processor's one-shot timer: what it is set to, and when it must be set again (decisions 25).
//!
//! The counter has 32 bits: a deadline beyond its reach is waited for in several goes, and as its
//! rate is measured, any go may end a little early. So an interrupt says only that nothing is set
//! any more, and whoever then still waits for the same deadline sets it again.

/// What the timer was last set for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneShot {
    /// The deadline, if it is set.
    armed: Option<u64>,
}

/// What to do with the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// It stays as it is.
    Unchanged,
    /// It is switched off.
    Off,
    /// It is set to so many nanoseconds from now.
    After(u64),
}

impl OneShot {
    /// Will an interrupt come by `deadline` as it is set? One before the deadline is followed by
    /// another: rather that than setting the timer at every switch.
    #[inline(always)]
    pub fn covers(&self, deadline: u64, now: u64) -> bool {
        self.armed.is_some_and(|armed| armed <= deadline && armed > now)
    }

    /// May it stay as it is set, if an interrupt is wanted at `deadline`?
    #[inline(always)]
    pub fn keeps(&self, deadline: Option<u64>, now: u64) -> bool {
        // One that is due and has not fired is set again: it costs little.
        match (self.armed, deadline) {
            (Some(_), Some(deadline)) => self.covers(deadline, now),
            (armed, deadline) => armed == deadline,
        }
    }

    /// An interrupt is wanted at `deadline`, nanoseconds since boot.
    pub fn want(&mut self, deadline: Option<u64>, now: u64) -> Setting {
        if self.keeps(deadline, now) {
            return Setting::Unchanged;
        }
        self.armed = deadline;
        deadline.map_or(Setting::Off, |at| Setting::After(at.saturating_sub(now)))
    }

    /// It has fired.
    pub fn fired(&mut self) {
        self.armed = None;
    }
}

/// What a counter of `hz` is set to for an interrupt after `ns`, or as late as it can count; never
/// 0, which would switch it off.
pub fn ticks(ns: u64, hz: u64) -> u32 {
    let ticks = u128::from(ns) * u128::from(hz) / 1_000_000_000;
    ticks.clamp(1, u128::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const GHZ: u64 = 1_000_000_000;

    /// A counter that runs a thousandth fast beside the clock: when does who sleeps to `deadline`
    /// wake, and after how many interrupts?
    fn sleep(deadline: u64, hz: u64) -> (u64, u32) {
        let (mut timer, mut now, mut interrupts) = (OneShot::default(), 0, 0);
        while now < deadline {
            let Setting::After(ns) = timer.want(Some(deadline), now) else {
                panic!("{now} of {deadline}: nobody will wake it")
            };
            let passed = u64::from(ticks(ns, hz)) * GHZ / hz;
            now += (passed - passed / 1000).max(1);
            interrupts += 1;
            timer.fired();
        }
        (now, interrupts)
    }

    #[test]
    fn a_sleep_beyond_the_counter_ends_when_it_should() {
        for hz in [GHZ, 62_500_000, 4 * GHZ] {
            for deadline in [1, 1000, 4_000_000_000, 4_300_000_000, 60_000_000_000] {
                let (woken, interrupts) = sleep(deadline, hz);
                assert!((deadline..deadline + 1000).contains(&woken), "{woken} for {deadline}");
                let rounds = deadline / (u64::from(u32::MAX) * GHZ / hz);
                assert!(u64::from(interrupts) < rounds + 20, "{interrupts} for {deadline}");
            }
        }
    }

    #[test]
    fn a_count_is_never_none_and_never_wraps() {
        assert_eq!(ticks(0, GHZ), 1);
        assert_eq!(ticks(1, 1), 1);
        assert_eq!(ticks(5_000, GHZ), 5_000);
        assert_eq!(ticks(5 * GHZ, GHZ), u32::MAX);
        assert_eq!(ticks(u64::MAX, u64::MAX), u32::MAX);
    }

    #[test]
    fn what_is_set_already_is_left_alone() {
        let mut timer = OneShot::default();
        assert_eq!(timer.want(None, 5), Setting::Unchanged);
        assert_eq!(timer.want(Some(9), 5), Setting::After(4));
        assert_eq!(timer.want(Some(9), 6), Setting::Unchanged);
        assert_eq!(timer.want(Some(12), 6), Setting::Unchanged, "it comes before");
        assert_eq!(timer.want(Some(7), 6), Setting::After(1));
        assert_eq!(timer.want(Some(7), 8), Setting::After(0), "overdue");
        assert_eq!(timer.want(None, 8), Setting::Off);
    }
}
