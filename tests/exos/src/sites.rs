//! Call sites that run often become jumps: the kernel is no longer asked.

use crate::linux;
use abi::published::{CpuRecord, Table};
use xok::published;

/// What a test saw: numbers, or what is wrong with them.
type Seen = Result<[u64; 3], (&'static str, [u64; 3])>;

/// Calls until each site has been looked at, and calls counted then.
const OFTEN: u64 = 20_000;

/// Foreign calls that the kernel sent back, on all processors; published once in a millisecond.
fn sent_back() -> u64 {
    let cpus = published::directory().cpus as usize;
    let record = |at| published::record::<CpuRecord>(Table::Cpus, at);
    (0..cpus).filter_map(record).map(|cpu| cpu.foreign).sum()
}

/// Lets the processors publish their counters: they do when they switch, for one.
fn settle() {
    for _ in 0..3 {
        let millisecond = [0_u64, 1_000_000];
        linux::call(35, [millisecond.as_ptr() as u64, 0, 0, 0, 0, 0]);
    }
}

/// Calls that the kernel sent back while `call` ran `OFTEN` times, after as many before.
fn counted(call: fn()) -> u64 {
    (0..OFTEN).for_each(|_| call());
    settle();
    let before = sent_back();
    (0..OFTEN).for_each(|_| call());
    settle();
    sent_back() - before
}

/// xok97 AP-1, T31: a captured call becomes a jump within the program's own address space.
pub fn hot_calls_leave_the_kernel_alone() -> Seen {
    let parent = linux::hot_parent();
    let trivial = counted(|| {
        linux::hot_parent();
    });
    let full = counted(|| {
        linux::close_nothing();
    });
    let numbers = [OFTEN, trivial, full];
    // Servers beside us make a call now and then.
    if trivial > OFTEN / 20 || full > OFTEN / 20 {
        return Err(("calls, trivial and full ones that the kernel saw", numbers));
    }
    if linux::hot_parent() != parent || linux::close_nothing() != -9 {
        return Err((
            "answers after",
            [linux::hot_parent(), linux::close_nothing() as u64, parent],
        ));
    }
    let child = linux::fork();
    if child == 0 {
        linux::exit(u8::from(linux::close_nothing() != -9));
    }
    match linux::wait(child) {
        0 => Ok(numbers),
        status => Err(("the child's status", [status.into(), 0, 0])),
    }
}
