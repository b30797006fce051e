//! Where a processor may go when it leaves the kernel, and with what: one definition for all ways.
//!
//! ```text
//!  where to                           rip is looked at
//!  behind a call: answers, replies,   when the call comes: it is served if rcx lies in the
//!  yields                             domain's window, which lies in a user range ([`window`])
//!  a handler, a callee's entry        when it is set (`EnvSet`)
//!  where it was interrupted           on the way out ([`settle`])
//! ```
//! `sysret` and `iretq` to an address that is not canonical fault in the kernel, on the program's
//! stack or gs. Page tables are not relied on: no page is mapped behind the last one
//! (`update::whole`), and who comes from there all the same is not served.

use crate::index::EnvIndex;
use crate::machine::Machine;
use crate::state::State;
use crate::upcall;
use abi::layout::{LIBRARY, LIBRARY_END, PAGE_SIZE, PROGRAM_END, is_user};
use abi::upcall::Cause;

use crate::context::SYSCALL_BYTES;

/// Flags that neither the kernel nor a handler starts with: TF, DF, NT, AC.
pub const CLEARED_FLAGS: u64 = 1 << 8 | 1 << 10 | 1 << 14 | 1 << 18;
/// What `syscall` clears: those, and IF.
pub const MASKED_FLAGS: u64 = CLEARED_FLAGS | 1 << 9;

/// A page fault's error code: an instruction was to be fetched, by a program.
const FETCH: u64 = 1 << 4;

/// May a program go on at this address?
pub const fn may_run_at(rip: u64) -> bool {
    is_user(rip)
}

/// Does the processor take this address: bit 47 repeated upwards? Of `fs_base` and `gs_base` that
/// is all that is asked.
pub const fn is_canonical(address: u64) -> bool {
    address.wrapping_add(1 << 47) >> 48 == 0
}

/// The first address of a domain's native window and the first one behind it, as entry code looks
/// at them: the part of a window of so many bytes in which a program may go on behind a call, or
/// begin the call anew. A window begins in the lower half or in the library, and is empty
/// otherwise.
pub fn window(first: u64, bytes: u64) -> (u64, u64) {
    let (begin, end) = if first < PROGRAM_END - PAGE_SIZE {
        (0, PROGRAM_END - PAGE_SIZE)
    } else if (LIBRARY..LIBRARY_END).contains(&first) {
        (LIBRARY, LIBRARY_END)
    } else {
        return (0, 0);
    };
    (first.max(begin + SYSCALL_BYTES), first.saturating_add(bytes).min(end))
}

/// May what runs at `index` go on where it was interrupted? If not it gets the fault that it would
/// have there, now; `false`: it has stopped.
pub fn settle<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) -> bool {
    let rip = machine.context(index.at()).rip;
    if may_run_at(rip) {
        return true;
    }
    let (cause, error, address) =
        if is_canonical(rip) { (Cause::PageFault, FETCH, rip) } else { (Cause::Protection, 0, 0) };
    upcall::deliver_fault(state, machine, index, cause as u8, error, address)
}
