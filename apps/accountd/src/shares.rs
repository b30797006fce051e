//! What of the machine an account may have, and what of it is kept for the account.

use abi::limits::Resource;

/// Limit and reserve of one resource for a user, where the machine has `all` of it.
///
/// User 0 may have all, and a sixteenth is kept for it: what ends the processes of others must
/// start. Others may have half, so that one of them leaves room for the next, and a 128th is kept.
pub fn share(user: u32, resource: usize, all: u32) -> (u32, u32) {
    // In no table: there is nothing to keep.
    if resource == Resource::Pins as usize {
        return (all, 0);
    }
    // None of these is a process's to have.
    if resource == Resource::Accounts as usize {
        return (0, 0);
    }
    match user {
        0 => (all, all / 16),
        // One at a time for each account.
        _ if resource == Resource::Retractions as usize => (1, 0),
        _ => (all / 2, all / 128),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_within_the_limit_and_fits_the_machine() {
        for resource in 0..abi::limits::RESOURCES {
            for all in [0, 1, 3, 16, 255, 4096, 1 << 20, u32::MAX] {
                let of = |user| share(user, resource, all);
                assert!([0, 1, 65534].iter().all(|&user| of(user).1 <= of(user).0));
                assert!(of(0).0 <= all && of(1000).0 <= all.max(1));
                // User 0 and eighty others at once.
                assert!(u64::from(of(0).1) + 80 * u64::from(of(1).1) <= u64::from(all));
            }
        }
    }
}
