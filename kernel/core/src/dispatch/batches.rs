//! Calls with an array of things to do: one after the other, as far as a hold of the lock has room.
//!
//! What is done is in the caller's registers, so that the call, run again, goes on behind it.

use super::continuation::{Continuation, Done};
use super::{Caller, ITEM_BYTES, PLACE_BYTES, named};
use crate::answer::Refusal;
use crate::bytes::{u32_at, u64_at};
use crate::machine::Machine;
use crate::state::State;
use crate::work::{self, cost};
use crate::{domain, region, table};
use abi::error::Error;
use abi::id::DomainId;
use abi::limits::{BATCH, BATCH_ITEMS, REGION_PLACES};
use abi::memory::Item;
use abi::region::Place;
use abi::word::UserAddress;

/// Item by item, page by page: each is checked and applied before the next is read. After `BATCH`
/// items, or when this hold of the lock has no room for the next page, the registers are advanced
/// and the call runs again; r10 counts what is done: items of earlier rounds in its low half, pages
/// of the first item left in its high half.
#[inline(never)]
pub(super) fn update_tables<M: Machine>(
    state: &mut State,
    machine: &mut M,
    who: Caller<'_>,
    id: DomainId,
    (items, count): (UserAddress, u64),
    k: Continuation,
) -> Done {
    let own = who.domain(state);
    let prepared = named(state, who).and_then(|named| {
        let target = domain::find_or_own(state, own, id)?;
        if !domain::may_write(state, own, target, &named) {
            return Err(Error::NotPermitted);
        }
        Ok((named, target))
    });
    let (named, target) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return k.refuse(error),
    };
    if count > BATCH_ITEMS {
        return k.refuse(Refusal::new(Error::TooLarge, BATCH_ITEMS));
    }
    let before = machine.context(who.index.at()).r10;
    let earlier = |round: u64| u64::from((before as u32).wrapping_add(round as u32));
    let mut pages = (before >> 32) as u32;
    let (mut round, mut old) = (0, 0);
    let mut request = table::Request::new(state, own, target, &named);
    while round < count.min(BATCH as u64) {
        let item = read_item(&who.bytes[(round * ITEM_BYTES) as usize..]);
        if round > 0 && !work::room(state, table::cost(&item)) {
            break;
        }
        work::spend(state, cost::ENTRY);
        let (done, updated) = table::update_item(state, machine, &mut request, &item, pages);
        match updated {
            Ok(entry) => old = entry,
            Err(refusal) => {
                let items = earlier(round);
                return k.refuse(Refusal::new(refusal.error, items | refusal.value << 32));
            }
        }
        pages = done;
        if done <= u32::from(item.more) {
            break;
        }
        pages = 0;
        round += 1;
    }
    if count > round {
        let context = machine.context(who.index.at());
        context.rsi = items.0 + round * ITEM_BYTES;
        context.rdx = count - round;
        context.r10 = earlier(round) | u64::from(pages) << 32;
        return k.again();
    }
    let single = before == 0 && count == 1;
    k.answer(Ok(if single { old } else { earlier(round) }))
}

/// Place by place, as far as this hold of the lock has room.
#[inline(never)]
pub(super) fn pass_regions<M: Machine>(
    state: &mut State,
    machine: &mut M,
    who: Caller<'_>,
    domain: DomainId,
    (places, count): (UserAddress, u64),
    k: Continuation,
) -> Done {
    let own = who.domain(state);
    let target = match region::receiver(state, own, who.capability(), domain) {
        Ok(target) => target,
        Err(error) => return k.refuse(error),
    };
    if count > REGION_PLACES as u64 {
        return k.refuse(Refusal::new(Error::TooLarge, REGION_PLACES as u64));
    }
    let before = machine.context(who.index.at()).r10;
    let mut done = 0;
    for place in who.bytes.chunks_exact(PLACE_BYTES).take(count as usize) {
        if done > 0 && !work::room(state, cost::ATTACH) {
            let context = machine.context(who.index.at());
            context.rsi = places.0 + done * PLACE_BYTES as u64;
            context.rdx = count - done;
            context.r10 = before.wrapping_add(done);
            return k.again();
        }
        work::spend(state, cost::ATTACH);
        let place = Place { region: u64_at(place, 0), role: u64_at(place, 8) };
        if let Err(refusal) = region::pass(state, own, target, place) {
            return k.refuse(Refusal::new(refusal.error, before.wrapping_add(done)));
        }
        done += 1;
    }
    k.answer(Ok(before.wrapping_add(done)))
}

fn read_item(bytes: &[u8]) -> Item {
    let first = u64_at(bytes, 0).to_le_bytes();
    Item {
        operation: first[0],
        level: first[1],
        more: u16::from_le_bytes([first[2], first[3]]),
        frame: u32_at(bytes, 4),
        address: u64_at(bytes, 8),
        value: u64_at(bytes, 16),
    }
}
