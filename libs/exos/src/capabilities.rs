//! Where a Linux process keeps its capabilities: one slot for each, in one list.
//!
//! ```text
//!  0  own name                what is the process's alone                  the kernel
//!  1  image                   read the boot image                          init, inherited
//!  2  effective user          make its processes' domains, signal them     init, inherited
//!  3  network                 filters, rings, transmission                 init, inherited
//!  4  console                 the kernel's log                             init, inherited
//!  5  power                   switch the machine off                       init, inherited
//!  6  real user               as the effective one                         init, inherited
//!  7  family                  sockets that relatives share                 its founder, inherited
//!  8  saved user              what `seteuid` may take back                 init, inherited
//!  9  effective group ┐
//! 10  real group      ├       what servers ask for                         init, inherited
//! 11  saved group     ┘
//! 12  all groups              while one of the users is 0                  init, inherited
//! 13 private name             guards what a set-id program makes           setidd, inherited
//! 14, 15                      empty but while identities change            `identity`
//! ```

/// The effective user: guards the domains that the process makes, and signals others.
pub const USER_SLOT: u8 = 2;
/// WRITE over the network.
pub const NETWORK_SLOT: u8 = 3;
/// WRITE over the console: the kernel's log.
pub const LOG_SLOT: u8 = 4;
/// WRITE over power.
pub const POWER_SLOT: u8 = 5;
/// The real user, who may signal others, too.
pub const REAL_SLOT: u8 = 6;
/// The name by which a process, its descendants and their keepers share sockets: below the own
/// name of the first of them that had a socket.
pub const FAMILY_SLOT: u8 = 7;
/// The saved user.
pub const SAVED_SLOT: u8 = 8;
/// Real, effective and saved user, in the order of `setresuid`.
pub const USER_SLOTS: [u8; 3] = [REAL_SLOT, USER_SLOT, SAVED_SLOT];
/// Real, effective and saved group, in the order of `setresgid`.
pub const GROUP_SLOTS: [u8; 3] = [10, 9, 11];
/// All groups: a process of user 0 may become a member of any.
pub const ALL_GROUPS_SLOT: u8 = 12;
/// A name below that of all users that is no user's: what guards domains and regions of a process
/// that acts for more than its user. That user's other processes have no right over it.
pub const PRIVATE_SLOT: u8 = 13;
/// Where capabilities lie while they change places.
pub const SPARE_SLOTS: [u8; 2] = [14, 15];
/// Slots that every process passes on to its children, a bit each: 1 to 13.
pub const INHERITED: u16 = 0x3ffe;

pub use xnet::NETWORK_GROUP;

// No two of them are one: each from 2 on to the last is there once, and all are passed on.
const _: () = {
    let slots =
        [USER_SLOT, NETWORK_SLOT, LOG_SLOT, POWER_SLOT, FAMILY_SLOT, ALL_GROUPS_SLOT, PRIVATE_SLOT];
    let mut seen: u16 = 1 << 1;
    let mut at = 0;
    while at < slots.len() {
        assert!(seen & 1 << slots[at] == 0);
        seen |= 1 << slots[at];
        at += 1;
    }
    at = 0;
    while at < 3 {
        assert!(seen & 1 << GROUP_SLOTS[at] == 0);
        seen |= 1 << GROUP_SLOTS[at];
        if USER_SLOTS[at] != USER_SLOT {
            assert!(seen & 1 << USER_SLOTS[at] == 0);
            seen |= 1 << USER_SLOTS[at];
        }
        at += 1;
    }
    assert!(seen == INHERITED);
};
