//! A frame that was given up: what it held is nobody's to read.

use super::sched::until;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::call::Call;
use abi::id::{AccountId, Frame};
use abi::layout::PAGE_SIZE;
use abi::limits::Resource;
use abi::memory::{NO_EXECUTE, Operation};
use abi::published::FrameType;
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN, Refused};
use xok::memory::{DATA, Space, item};
use xok::published;

/// What the old owner leaves.
const SECRET: u8 = 0xa5;
/// The first account, which pays for the tests.
const FIRST: AccountId = AccountId(1);

fn refused(why: Refused) -> Failure {
    format!("{why:?}")
}

fn kind(frame: Frame) -> Option<u8> {
    published::frame(frame).map(|record| record.kind)
}

/// An account below the first one that may have a domain of a few frames.
fn poor_account() -> Result<AccountId, Failure> {
    let make = Call::AccountAlloc { which: Which::Any, parent: FIRST };
    let account = AccountId(call::make(make, OWN).map_err(refused)?);
    for (resource, limit) in [(Resource::Frames, 16), (Resource::Domains, 1)] {
        let set = Call::AccountLimit { account, resource: resource as u16, limit, reserve: 0 };
        call::make(set, OWN).map_err(refused)?;
    }
    Ok(account)
}

/// How many bytes of the page at `SCRATCH` are the secret, and how many anything but zero.
fn look() -> Result<(u64, u64), Failure> {
    let (mut secret, mut other) = (0, 0);
    for at in 0..PAGE_SIZE {
        let byte = faults::load(SCRATCH + at).ok_or("the page is not there")?;
        secret += u64::from(byte == SECRET);
        other += u64::from(byte != 0);
    }
    Ok((secret, other))
}

/// aegis95 T3: the frame that one account filled and freed is all zeros for the next one, which
/// asks for exactly that frame.
pub fn frame_is_clean(_: &Ground) -> Result<String, Failure> {
    let mut own = Space::own();
    own.allocate(SCRATCH, 1, DATA).map_err(refused)?;
    let frame = xok::own::frame(SCRATCH).ok_or("no frame")?;
    expect!((0..PAGE_SIZE).all(|at| faults::store(SCRATCH + at, SECRET)), "own page");
    let account = poor_account()?;
    let domain = call::domain_alloc(OWN, account, 0, u64::MAX).map_err(refused)?;
    // Before the frame is free: a table takes whichever is.
    Space::of(domain, OWN).tables_to(SCRATCH, 1).map_err(refused)?;
    own.unmap(SCRATCH, 1).map_err(refused)?;
    until(|| kind(frame) == Some(FrameType::Free as u8), "the frame to be free")?;
    let take = item(Operation::Allocate, 1, SCRATCH, frame.0, DATA);
    call::table_update(OWN, domain, &[take]).map_err(refused)?;
    let payer = published::frame(frame).map(|record| u32::from(record.account));
    expect!(payer == Some(account.index() as u32), "{payer:?} pays for it, not {account:?}");
    // It is guarded by our own name: so we may look what the other would see.
    own.map(SCRATCH, frame, 1, NO_EXECUTE).map_err(refused)?;
    let (secret, other) = look()?;
    own.unmap(SCRATCH, 1).map_err(refused)?;
    call::make(Call::AccountDestroy { account }, OWN).map_err(refused)?;
    let gone = || kind(frame) == Some(FrameType::Free as u8);
    until(gone, "the account's frames to come back")?;
    expect!(other == 0, "{secret} bytes of the old owner's, {other} not zero");
    Ok(String::new())
}
