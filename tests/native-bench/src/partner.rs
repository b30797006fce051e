//! The other party of a row: this program again, in a space of its own.

use abi::capability::CONTROL;
use abi::error::Error;
use abi::id::EnvId;
use alloc::boxed::Box;
use alloc::format;
use xok::call::{self, Message, OWN};
use xok::memory::Space;
use xok::spawn::{Gift, Spawned};

use crate::row::Failure;
use crate::shared;

/// What a partner does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// Answers transfers with what they said.
    Echo = 1,
    /// Yields back to the environment whose id follows.
    YieldBack = 2,
    /// Sends words back by a pipe.
    Pipe = 3,
    /// The same, the pipe being part of the program.
    PipeInlined = 4,
    /// Makes a shared counter even.
    Count = 5,
    /// Notifies of each condition that it is notified of.
    Board = 6,
    /// Does for ever the work that the next byte names (`cpus`).
    Work = 7,
}

/// Replies with the message as it came.
pub struct Echo;

impl xok::server::Serve for Echo {
    fn request(&mut self, _caller: EnvId, _message: &mut Message) {}

    fn events(&mut self) -> u64 {
        xok::upcall::take_events();
        xok::upcall::take_pending();
        0
    }
}

/// Plays the role in the start block.
pub fn run(argument: &'static [u8]) {
    match argument {
        [role, ..] if *role == Role::Echo as u8 => xok::server::run(Box::leak(Box::new(Echo))),
        [role, kind, ..] if *role == Role::Work as u8 => crate::cpus::work(*kind),
        [role, id @ ..] => {
            let id = id.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            let partner = EnvId(id);
            match *role {
                role if role == Role::Pipe as u8 => shared::echo(partner),
                role if role == Role::PipeInlined as u8 => shared::echo_inlined(partner),
                role if role == Role::Count as u8 => shared::count(partner),
                role if role == Role::Board as u8 => shared::notify_back(partner),
                _ => loop {
                    // Whatever the answer, it is our turn to give the processor back.
                    let _ = call::yield_to(partner);
                },
            }
        }
        [] => {}
    }
}

/// Starts a partner that knows who we are.
pub fn start(image: &'static [u8], role: Role) -> Result<Spawned, Failure> {
    start_with(image, role, |_| Ok(()))
}

/// The same, after `prepare` has put into its space what else it needs.
pub fn start_with(
    image: &'static [u8],
    role: Role,
    prepare: impl FnOnce(&mut Space) -> Result<(), Failure>,
) -> Result<Spawned, Failure> {
    let mut block = [role as u8; 5];
    block[1..].copy_from_slice(&OURSELVES.0.to_le_bytes());
    start_block(image, block, prepare)
}

/// The same with a start block of one's own.
pub fn start_block(
    image: &'static [u8],
    block: [u8; 5],
    prepare: impl FnOnce(&mut Space) -> Result<(), Failure>,
) -> Result<Spawned, Failure> {
    let archive = image::archive::Archive::open(image).map_err(|why| format!("{why:?}"))?;
    let entry = archive.lookup("/xok/native-bench").ok_or("no /xok/native-bench")?;
    let file = archive.data(&entry);
    let plan = image::elf::Plan::parse(file).map_err(|why| format!("{why:?}"))?;
    let (first, _) = xok::boot_image::place();
    let frame = abi::id::Frame(first.0 + (entry.data_offset / 4096) as u32);
    // So it may post to us.
    let gift = Gift { from: OWN, slot: GIFT.into(), extend: &[], rights: CONTROL };
    let spawned = xok::spawn::native(&plan, file, Some(frame), &block, &[gift])
        .map_err(|why| format!("spawn: {why:?}"))?;
    prepare(&mut Space::of(spawned.domain, OWN))?;
    call::env_release(OWN, spawned.env).map_err(|why| format!("release: {why:?}"))?;
    Ok(spawned)
}

/// Where a partner has the capability that gives control over us.
pub const GIFT: u8 = 1;
/// The first environment of all.
const OURSELVES: EnvId = EnvId(1);

/// Waits until the server accepts.
pub fn meet(env: EnvId) -> Result<(), Failure> {
    for _ in 0..100_000 {
        match call::transfer(env, [0; 6]) {
            Ok(_) => return Ok(()),
            Err((Error::Busy, _)) => drop(call::yield_to(env)),
            Err(why) => return Err(format!("transfer: {why:?}")),
        }
    }
    Err("the server never accepted".into())
}

/// Ends the partner's environment.
pub fn end(env: EnvId) {
    // Gone already: just as well.
    let _ = call::env_destroy(OWN, env, 0);
    // News of it that waits, masked, would have every transfer of the next row go the long way.
    xok::upcall::take_events_of(abi::upcall::EVENT_CHILD);
}
