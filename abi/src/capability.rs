//! Capabilities: hierarchical names with prefix dominance (xok97 XK-8).
//!
//! A domain holds [`CAPABILITIES`](crate::limits::CAPABILITIES) of them; each call names the one
//! it uses by index. A capability dominates a guard when its name is a prefix of the guard's name
//! and it has the right needed. A name is only ever extended, a right only ever dropped.
//!
//! ```text
//!  byte 0        1       2                                14      16
//!  ┌────────┬────────┬──────────────────────────────────┬────────┐
//!  │ rights │ length │ component 0 … 5, 16 bits each    │ zero   │
//!  └────────┴────────┴──────────────────────────────────┴────────┘
//! ```

use crate::limits::NAME_COMPONENTS;

/// May read: map for reading, attach, look.
pub const READ: u8 = 1;
/// May write: map for writing, change, break bindings.
pub const WRITE: u8 = 2;
/// May control: over a domain's guard, make environments in it, enter and destroy it; over an
/// environment's, shape it, and all that SIGNAL allows; over an account's, a slice owner's or a
/// frame's name, what is theirs; over a region's, attach to read.
pub const CONTROL: u8 = 4;
/// May derive capabilities from this one for other domains.
pub const DERIVE: u8 = 8;
/// May signal, over a name that a domain says it is signalled by (`DomainSet`): post to its
/// environments, hold, release and destroy them. Who has CONTROL over an environment's guard, or is
/// of its domain, may do so without.
pub const SIGNAL: u8 = 16;
/// All of the rights.
pub const ALL: u8 = READ | WRITE | CONTROL | DERIVE | SIGNAL;
/// The rights that a user's capability has: over the user's processes, never over their memory.
pub const USER_RIGHTS: u8 = CONTROL | DERIVE | SIGNAL;

/// First component of the frames of the boot image (readable by whoever is given the name).
pub const NAME_IMAGE: u16 = 1;
/// First component of the machine's devices (console, network, power).
pub const NAME_DEVICE: u16 = 2;
/// Second component under [`NAME_DEVICE`]: the console.
pub const DEVICE_CONSOLE: u16 = 1;
/// Second component under [`NAME_DEVICE`]: network interfaces.
pub const DEVICE_NETWORK: u16 = 2;
/// Second component under [`NAME_DEVICE`]: power off, exit status.
pub const DEVICE_POWER: u16 = 3;
/// Second component under [`NAME_DEVICE`]: what the trace records.
pub const DEVICE_TRACE: u16 = 4;
/// First component of users: `[NAME_USER, high half, low half]` of the user's number. User 0 holds
/// `[NAME_USER]` itself, and so dominates all others.
pub const NAME_USER: u16 = 3;
/// First component of groups, in the same form, group 0 too; user 0 holds `[NAME_GROUP]` itself.
pub const NAME_GROUP: u16 = 4;
/// First component of fresh names: `[NAME_FRESH]` and a 48-bit serial number, which is never used
/// again. Every domain gets one when it is made; no user's name dominates it.
pub const NAME_FRESH: u16 = 5;
/// First component of account number `n` is `NAME_ACCOUNT + n`.
pub const NAME_ACCOUNT: u16 = 256;

/// A name: what guards carry and capabilities dominate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Name {
    /// How many components count.
    pub length: u8,
    /// Zero.
    pub zero: u8,
    /// The components; those beyond `length` are zero.
    pub components: [u16; NAME_COMPONENTS],
}

impl Name {
    /// The empty name: the prefix of every other.
    pub const ROOT: Name = Name { length: 0, zero: 0, components: [0; NAME_COMPONENTS] };

    /// The name with these components; those beyond [`NAME_COMPONENTS`] are left out.
    pub const fn of(parts: &[u16]) -> Name {
        let mut name = Name::ROOT;
        let mut at = 0;
        while at < parts.len() && at < NAME_COMPONENTS {
            name.components[at] = parts[at];
            at += 1;
        }
        name.length = at as u8;
        name
    }

    /// The name of a user or group ([`NAME_USER`], [`NAME_GROUP`]); that of user 0 dominates all
    /// users'. Group 0 is a group like others: only user 0 is in all of them, by `[NAME_GROUP]`.
    pub fn principal(kind: u16, number: u32) -> Name {
        if kind == NAME_USER && number == 0 {
            return Name::of(&[kind]);
        }
        Name::of(&[kind, (number >> 16) as u16, number as u16])
    }

    /// Is it the name of a user or of a group?
    pub const fn is_principal(&self) -> bool {
        self.length != 0 && matches!(self.components[0], NAME_USER | NAME_GROUP)
    }

    /// Is it the name of a device?
    pub const fn is_device(&self) -> bool {
        self.length != 0 && self.components[0] == NAME_DEVICE
    }

    /// Is this name a prefix of `other` (or the same)?
    pub fn is_prefix_of(&self, other: &Name) -> bool {
        let mut both = self.components.iter().zip(&other.components).take(self.length.into());
        self.length <= other.length && both.all(|(own, its)| own == its)
    }

    /// The name with one more component; `None` at full length.
    pub fn child(&self, component: u16) -> Option<Name> {
        let length = usize::from(self.length);
        if length >= NAME_COMPONENTS {
            return None;
        }
        let mut name = *self;
        name.components[length] = component;
        name.length += 1;
        Some(name)
    }
}

/// A capability as a domain's list holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Capability {
    /// [`READ`], [`WRITE`], [`CONTROL`], [`DERIVE`], [`SIGNAL`]; 0 is an empty slot.
    pub rights: u8,
    /// Zero.
    pub zero: u8,
    /// What it dominates.
    pub name: Name,
}

impl Capability {
    /// The bytes as two words, as tokens carry them.
    pub const fn to_words(&self) -> [u64; 2] {
        let c = &self.name.components;
        let first = self.rights as u64
            | (self.zero as u64) << 8
            | (self.name.length as u64) << 16
            | (self.name.zero as u64) << 24
            | (c[0] as u64) << 32
            | (c[1] as u64) << 48;
        let second = c[2] as u64 | (c[3] as u64) << 16 | (c[4] as u64) << 32 | (c[5] as u64) << 48;
        [first, second]
    }

    /// The capability with these words; `None` if none looks like that.
    pub fn from_words([first, second]: [u64; 2]) -> Option<Self> {
        let component = |word: u64, at: u32| (word >> (16 * at)) as u16;
        let components = [
            component(first, 2),
            component(first, 3),
            component(second, 0),
            component(second, 1),
            component(second, 2),
            component(second, 3),
        ];
        let (rights, length) = (first as u8, (first >> 16) as u8);
        let name = Name { length, zero: 0, components };
        let made = Self { rights, zero: 0, name };
        let tail = components.get(usize::from(length)..)?;
        let whole = rights != 0 && rights & !ALL == 0 && tail.iter().all(|&part| part == 0);
        (whole && made.to_words() == [first, second]).then_some(made)
    }

    /// Does it give `rights` over what `guard` guards?
    pub fn dominates(&self, guard: &Name, rights: u8) -> bool {
        self.rights != 0 && self.rights & rights == rights && self.name.is_prefix_of(guard)
    }
}

const _: () = assert!(core::mem::size_of::<Capability>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_dominates_and_nothing_else() {
        let root = Capability { rights: ALL, zero: 0, name: Name::ROOT };
        let account = Capability { rights: READ, zero: 0, name: Name::of(&[300]) };
        let guard = Name::of(&[300, 7]);
        assert!(root.dominates(&guard, WRITE));
        assert!(account.dominates(&guard, READ));
        assert!(!account.dominates(&guard, WRITE));
        assert!(!account.dominates(&Name::of(&[301, 7]), READ));
        assert!(!account.dominates(&Name::ROOT, READ));
        assert!(!Capability::default().dominates(&guard, 0));
    }
}
