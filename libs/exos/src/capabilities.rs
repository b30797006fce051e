//! Where a Linux process keeps its capabilities: one slot for each, in one list.
//!
//! ```text
//!  0  own name                what is the process's alone                  the kernel
//!  1  image                   read the boot image                          init, inherited
//!  2  account                 post, hold and destroy its processes         init, inherited
//!  3  network                 filters, rings, transmission                 init, inherited
//!  4  console                 the kernel's log                             init, inherited
//!  5  power                   switch the machine off                       init, inherited
//!  6  account, shared         what its processes show each other           init, inherited
//!  7  family                  sockets that relatives share                 its founder, inherited
//! ```

/// CONTROL over the processes that one may signal.
pub const CONTROL_SLOT: u8 = 2;
/// WRITE over the network.
pub const NETWORK_SLOT: u8 = 3;
/// WRITE over the console: the kernel's log.
pub const LOG_SLOT: u8 = 4;
/// WRITE over power.
pub const POWER_SLOT: u8 = 5;
/// All rights over what processes of the account show each other.
pub const SHARED_SLOT: u8 = 6;
/// The name by which a process, its descendants and their keepers share sockets: below the own
/// name of the first of them that had a socket.
pub const FAMILY_SLOT: u8 = 7;
/// Slots that every process passes on to its children, a bit each: 1 to 7.
pub const INHERITED: u16 = 0xfe;

// No two of them are one: each is the one before plus one, and all are passed on.
const _: () = {
    let slots = [CONTROL_SLOT, NETWORK_SLOT, LOG_SLOT, POWER_SLOT, SHARED_SLOT, FAMILY_SLOT];
    let mut at = 1;
    while at < slots.len() {
        assert!(slots[at] == slots[at - 1] + 1);
        at += 1;
    }
    assert!(FAMILY_SLOT as u32 == INHERITED.ilog2());
};
