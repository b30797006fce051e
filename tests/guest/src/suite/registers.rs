//! Registers around every call of the table: what is no answer is as it was.

use super::roles::mirror;
use crate::expect;
use crate::judge::{Failure, Ground};
use abi::call::{CAPABILITY_SHIFT, Call, TABLE, TRANSFER_SHIFT, number};
use abi::id::{DomainId, EnvId};
use abi::published::{EnvRecord, Table};
use abi::setup::EnvSetup;
use abi::word::{UserAddress, Which};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xok::call::{self, OWN};
use xok::published;

/// A slot of the list, and a slice position, that nobody uses.
const SLOT: u16 = 9;
const POSITION: u32 = 77;

/// Calls that are served, in this order, and change nothing in the end.
fn served(setup: &EnvSetup) -> Vec<Call> {
    let own = published::record::<EnvRecord>(Table::Envs, 1).unwrap_or_default();
    let env = EnvId(own.id);
    let nowhere = UserAddress(core::ptr::from_ref(setup) as u64);
    let mut calls = Vec::from([
        Call::Yield { to: EnvId::NONE },
        Call::Yield { to: env },
        Call::Post { env, bits: 0 },
        Call::EnvSet { env: EnvId::NONE, fields: 0, setup: nowhere },
        Call::TableUpdate { domain: DomainId::NONE, items: nowhere, count: 0 },
        Call::CapabilityDerive {
            domain: DomainId::NONE,
            slot: SLOT,
            extend: 0,
            components: 0,
            rights: 1,
        },
        Call::CapabilityToken { word: 0 },
        Call::CapabilityDrop { slot: SLOT },
        Call::SliceAlloc { cpu: 0, position: Which::This(POSITION), env },
        Call::SliceFree { cpu: 0, position: POSITION },
        Call::PredicateSet { atoms: nowhere, count: 0 },
        Call::TimerSet { deadline: 0 },
        Call::ConsoleWrite { stream: 2, bytes: nowhere, len: 0 },
        Call::TraceSet { kinds: 0 },
    ]);
    if published::directory().features & abi::published::FEATURE_ENTROPY != 0 {
        calls.push(Call::Entropy {});
    }
    calls
}

/// aegis95 T19: every call, refused, and those that can be served for nothing.
pub fn across_every_call(_: &Ground) -> Result<String, Failure> {
    for entry in TABLE {
        for word in [u64::MAX, 0xffff_0000_0000_0000] {
            // Transfers find nobody.
            let rax = u64::from(entry.number) | u64::from(u32::MAX) << TRANSFER_SHIFT;
            let Some((error, wrong)) = mirror::across_any_call(rax, [word; 6]) else { continue };
            expect!(wrong == 0, "{} ({error}) changed, by bit: {wrong:#x}", entry.name);
        }
    }
    call::timer_set(0).map_err(|why| format!("{why:?}"))?;
    let setup = EnvSetup::default();
    let calls = served(&setup);
    let deadline = Call::Sleep { deadline: 1, posted: 0, events: 0, flags: 0 };
    for call in calls.iter().chain([&deadline]) {
        let (number, words) = call.encode();
        let rax = u64::from(number) | u64::from(OWN) << CAPABILITY_SHIFT;
        let (error, wrong) = mirror::across_any_call(rax, words).ok_or("a fault")?;
        let answered = error == 0 || number == number::Sleep;
        expect!(answered, "{call:?} was refused: {error}");
        expect!(wrong == 0, "{call:?} changed, by bit: {wrong:#x}");
    }
    Ok(format!("({} calls refused, {} served)", TABLE.len(), calls.len()))
}
