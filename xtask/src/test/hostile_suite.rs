//! Attackers beside victims (`xtask/src/hostile.rs`), twenty seconds each on 1, 2 and 4 processors.

use crate::failure::Result;
use crate::hostile;
use crate::soak;
use crate::tally::Tally;

/// Seconds of the attack in each boot.
const SECONDS: u64 = 20;
const NAME: &str = "hostile/victims_notice_nothing";

/// Runs it on those machines that are wanted.
pub fn run(tally: &mut Tally) -> Result<()> {
    for cpus in [1, 2, 4] {
        let place = format!("q35 x{cpus}");
        if tally.wants(NAME) && tally.wants_place(&place) {
            let seed = soak::fresh_seed();
            let outcome = hostile::attack(seed, SECONDS, cpus);
            let outcome = outcome.map(|said| format!("(seed {seed}: {said})"));
            tally.record(NAME, &place, outcome.map_err(|why| format!("seed {seed}: {why}")));
        }
    }
    Ok(())
}
