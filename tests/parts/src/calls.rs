//! Kernel calls of the program's own: they reach the kernel, past ExOS, and no further than ExOS's.

use crate::faults::update;
use crate::{Seen, expect, libc};
use abi::call::{Call, number};
use abi::error::Error;
use abi::id::{DomainId, EnvId};
use abi::memory::{Item, NO_EXECUTE, Operation};
use abi::published::{DomainRecord, FrameType, Table};
use abi::word::UserAddress;

/// Calls made.
const CALLS: u64 = 1000;

fn made(number: u16) -> u64 {
    xok::published::call_record(number.into()).count
}

/// Issue part 12's door: a call through it is the kernel's, once, and answers by its registers.
pub fn own_kernel_calls(door: door::Door) -> Seen {
    let before = made(number::Entropy);
    let mut words = std::collections::BTreeSet::new();
    for _ in 0..CALLS {
        let word = libc::kernel(door, Call::Entropy {}).map_err(|error| format!("{error:?}"))?;
        words.insert(word);
    }
    let count = made(number::Entropy) - before;
    expect(count == CALLS, || format!("{count} kernel calls for {CALLS}"))?;
    expect(words.len() as u64 == CALLS, || format!("{} different answers", words.len()))?;
    // The same by Linux's call, which asks the kernel, too.
    expect(std::process::id() != 0, || "no Linux calls any more".into())?;
    Ok(format!("({count})"))
}

/// A frame that another domain's root table is in.
fn foreign_frame() -> Option<u32> {
    let own = xok::published::env_domain(EnvId(std::process::id()))?;
    (0..xok::published::table(Table::Domains).count as usize)
        .filter_map(|index| xok::published::record::<DomainRecord>(Table::Domains, index))
        .find(|record| record.id != 0 && record.id != own.0)
        .map(|record| record.root)
}

/// What the kernel refuses ExOS it refuses the program; an address that is not there is the
/// program's own fault, not ExOS's end.
pub fn own_kernel_calls_are_checked(door: door::Door) -> Seen {
    let page = libc::reserved(1);
    let frame = foreign_frame().ok_or("no other domain")?;
    let map = |frame| Item {
        operation: Operation::Map as u8,
        level: 1,
        more: 0,
        frame,
        address: page,
        value: NO_EXECUTE,
    };
    let table = update(door, map(frame));
    expect(matches!(table, Err((Error::WrongType, _))), || format!("a table: {table:?}"))?;
    let refused = (0..xok::published::table(Table::Frames).count as u32)
        .filter(|&frame| {
            let record = xok::published::frame(abi::id::Frame(frame)).unwrap_or_default();
            record.kind == FrameType::Data as u8 && record.references > 0
        })
        .take(4000)
        .filter(|&frame| matches!(update(door, map(frame)), Err((Error::NotPermitted, _))))
        .count();
    expect(refused > 100, || format!("{refused} frames of others refused"))?;
    let child = libc::spawn(|| {
        let items = UserAddress(libc::reserved(1));
        let call = Call::TableUpdate { domain: DomainId::NONE, items, count: 1 };
        i32::from(libc::kernel(door, call).is_ok())
    });
    let status = libc::wait(child);
    expect(status & 0x7f == 11, || format!("a call with a bad address: status {status:#x}"))?;
    Ok(format!("({refused} frames of others refused)"))
}
