//! What Linux calls capabilities, as a process's users say: user 0 has all, others none.
//!
//! No file has any here and none is dropped alone, so they follow from the users as
//! capabilities(7) has it ("Effect of user ID changes on capabilities"), and are told, not kept.

/// Capabilities there are (`CAP_LAST_CAP` is one less).
pub const COUNT: u32 = 41;
/// All of them.
pub const ALL: u64 = (1 << COUNT) - 1;
/// Those about files, which go and come with the user for files (setfsuid(2)): `CAP_CHOWN`,
/// `CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH`, `CAP_FOWNER`, `CAP_FSETID`, `CAP_LINUX_IMMUTABLE`,
/// `CAP_MKNOD`, `CAP_MAC_OVERRIDE`.
pub const FILES: u64 = 0b1_1111 | 1 << 9 | 1 << 27 | 1 << 32;

/// The sets of a process, of those that are not always empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sets {
    /// What it may have.
    pub permitted: u64,
    /// What it has.
    pub effective: u64,
}

impl Sets {
    /// Of a process with these real, effective and saved users, and this one for files.
    pub fn of(users: [u32; 3], for_files: u32) -> Self {
        let permitted = if users.contains(&0) { ALL } else { 0 };
        let usual = if users[1] == 0 { ALL } else { 0 };
        let of_files = if for_files == 0 { FILES } else { 0 };
        Self { permitted, effective: permitted & (usual & !FILES | of_files) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_follow_from_the_users() {
        let sets = |users, for_files| {
            let Sets { permitted, effective } = Sets::of(users, for_files);
            (permitted, effective)
        };
        assert_eq!(sets([0, 0, 0], 0), (ALL, ALL));
        assert_eq!(sets([5, 5, 5], 5), (0, 0));
        assert_eq!(sets([0, 5, 5], 5), (ALL, 0));
        assert_eq!(sets([5, 0, 7], 0), (ALL, ALL));
        assert_eq!(sets([0, 0, 0], 5), (ALL, ALL & !FILES));
        assert_eq!(sets([0, 5, 5], 0), (ALL, FILES));
        // A user for files that none of the three is gives nothing.
        assert_eq!(sets([5, 5, 5], 0), (0, 0));
    }
}
