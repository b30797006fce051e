//! The time stamp counter's rate: what the processor tells, or what was measured.

/// What is told is believed if what was measured differs by less than one part in so many.
const FAITH: u64 = 16;

/// Ticks in a second, and where that is from. `told` is CPUID's leaf 15H: of a processor it is
/// exact, which no measurement is; an emulator may tell what the processor has that it plays, and
/// count otherwise, as Bochs does.
pub fn choose(told: Option<u64>, measured: Option<u64>) -> Option<(u64, &'static str)> {
    match (told, measured) {
        (Some(told), Some(measured)) if told.abs_diff(measured) > told / FAITH => {
            Some((measured, "acpi timer, not cpuid 15"))
        }
        (Some(told), _) => Some((told, "cpuid 15")),
        (None, Some(measured)) => Some((measured, "acpi timer")),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_believed_unless_it_is_far_off() {
        let hz = |told, measured| choose(told, measured).map(|(hz, _)| hz);
        assert_eq!(hz(Some(2_419_200_000), Some(2_418_000_000)), Some(2_419_200_000));
        assert_eq!(hz(Some(2_419_200_000), Some(50_000_000)), Some(50_000_000));
        assert_eq!(hz(Some(50_000_000), Some(2_419_200_000)), Some(2_419_200_000));
        assert_eq!(hz(Some(2_419_200_000), None), Some(2_419_200_000));
        assert_eq!(hz(None, Some(1)), Some(1));
        assert_eq!(hz(None, None), None);
    }
}
