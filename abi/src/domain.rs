//! What may be set of a domain (call `DomainSet`).

/// The property to set; the call's `value` is said beside each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Property {
    /// The two names that SIGNAL is asked over: of the domain's capabilities at the indices in bits
    /// 0-7 and 8-15 of `value`, each with SIGNAL; [`NO_NAME`]: none. For kill(2): real and saved
    /// user.
    Signals = 0,
    /// Who pays for what is charged to the domain from now on, and for its environments, whose
    /// turns become that one's as soon as it can pay: the account with the id `value`. Needs
    /// CONTROL over its name and that of the present one, and nothing else: of any domain.
    Account = 1,
    /// The environment that may move in, whatever it holds, and the one prepared for it: ids in the
    /// low and the high half. It takes over all that the prepared one was set to, which ends, and
    /// brings its domain's groups, whose regions it has passed; it may pass regions from now on.
    /// Only of a domain that the caller builds.
    Admits = 2,
    /// The groups held besides those in the list: the region with the id `value` (0: none), whose
    /// words are group numbers, two in each, in ascending order; the rest is `u32::MAX`. From then
    /// on nobody writes it. Needs the name of all groups, or to hold the same region.
    Groups = 3,
    /// The same, for more than one region holds: places 1 to 3.
    MoreGroups = 4,
    /// See [`Property::MoreGroups`].
    YetMoreGroups = 5,
    /// See [`Property::MoreGroups`].
    LastGroups = 6,
    /// Where visitors arrive (`DomainSwitch`): the address `value`; 0, as at first: none may come.
    Entry = 7,
    /// Does the kernel look when the domain's entries are used, and publish it (`AgeRecord`)? 1:
    /// yes, 0: no, as it is at first.
    Ages = 8,
    /// Are frames that are allocated in the domain from now on cleared when they are given up,
    /// whoever gets them, the same account too? 1: yes, 0: no, as it is at first. For a program
    /// that others of its account must not read.
    Secret = 9,
    /// Another name of its own: 0. In slot 0 of its list is then all of the rights over a fresh
    /// name, and nobody holds the former one by that slot. So what was made by that name (frames
    /// in children's tables, their environments) is no longer the domain's, and regions that it
    /// has made are its own no more than others are; what it maps and is attached to stays.
    OwnName = 10,
    /// What guards it: the same as the caller's own domain, 0. Only of a domain that the caller
    /// builds, which need not hold that name: whoever has no way into the one has none into the
    /// other.
    Guard = 11,
}

/// Kind that `DomainHolds` knows besides users and groups: groups that the domain holds as
/// [`Property::Groups`] and the like has it, whatever is in its list. Those are what counts beside
/// the one that a client acts by: in the list are also groups that it could take back.
pub const SET_OF_GROUPS: u16 = 6;
/// Another kind: groups that a capability of the domain's list dominates, whatever its set is. It
/// acts by those as its real, effective or saved group; it does so by none of its set alone.
pub const GROUPS_OF_LIST: u16 = 7;
/// In place of a capability's index in [`Property::Signals`].
pub const NO_NAME: u64 = 0xff;
/// Regions of groups that a domain may hold.
pub const GROUP_REGIONS: usize = 4;

impl Property {
    /// The property with this number.
    pub const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Signals,
            1 => Self::Account,
            2 => Self::Admits,
            3 => Self::Groups,
            4 => Self::MoreGroups,
            5 => Self::YetMoreGroups,
            6 => Self::LastGroups,
            7 => Self::Entry,
            8 => Self::Ages,
            9 => Self::Secret,
            10 => Self::OwnName,
            11 => Self::Guard,
            _ => return None,
        })
    }
}
