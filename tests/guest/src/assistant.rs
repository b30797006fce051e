//! The second party of a test: this program again, with a role as its start block.

use abi::id::{AccountId, EnvId};
use alloc::vec::Vec;
use xok::call::{self, OWN};
use xok::spawn::{Gift, Spawned};

/// `role` and its words, as the start block carries them.
pub struct Role {
    /// What to do.
    pub role: u64,
    /// With what.
    pub words: [u64; 6],
}

/// Spawns this program as an assistant, with `gifts` beside its own name; not yet released.
pub fn spawn(
    image: &'static [u8],
    role: u64,
    words: [u64; 6],
    gifts: &[Gift],
) -> Result<Spawned, alloc::string::String> {
    spawn_paid_by(AccountId::NONE, image, role, words, gifts)
}

/// The same in a domain of this account.
pub fn spawn_paid_by(
    account: AccountId,
    image: &'static [u8],
    role: u64,
    words: [u64; 6],
    gifts: &[Gift],
) -> Result<Spawned, alloc::string::String> {
    let archive = image::archive::Archive::open(image).map_err(|why| alloc::format!("{why:?}"))?;
    let entry = archive.lookup("/xok/guest-tests").ok_or("no /xok/guest-tests in the image")?;
    let file = archive.data(&entry);
    let plan = image::elf::Plan::parse(file).map_err(|why| alloc::format!("{why:?}"))?;
    let mut block = Vec::new();
    block.extend_from_slice(&role.to_le_bytes());
    for word in words {
        block.extend_from_slice(&word.to_le_bytes());
    }
    let (first, _) = xok::boot_image::place();
    let frame = abi::id::Frame(first.0 + (entry.data_offset / 4096) as u32);
    xok::spawn::paid_by(account, &plan, file, Some(frame), &block, gifts)
        .map_err(|why| alloc::format!("spawn: {why:?}"))
}

/// Releases it, waits for its end, and forgets it: the word it left.
pub fn finish(spawned: Spawned) -> Result<u64, alloc::string::String> {
    start(spawned)?;
    wait(spawned.env)
}

/// Releases it.
pub fn start(spawned: Spawned) -> Result<(), alloc::string::String> {
    call::env_release(OWN, spawned.env).map_err(|why| alloc::format!("release: {why:?}"))?;
    Ok(())
}

/// Waits for the end of an environment that the caller holds, and forgets it: the word it left.
pub fn wait(env: EnvId) -> Result<u64, alloc::string::String> {
    let deadline = xok::clock::now_ns() + 20_000_000_000;
    loop {
        match call::env_forget(env) {
            Ok(word) => return Ok(word),
            Err((abi::error::Error::WrongState, _)) if xok::clock::now_ns() < deadline => {
                let soon = xok::clock::now_ns() + 50_000_000;
                let _ = call::sleep(soon, 0, abi::upcall::EVENT_CHILD, 0);
                xok::upcall::take_events_of(abi::upcall::EVENT_CHILD);
            }
            Err(why) => {
                let record = xok::published::env(env);
                return Err(alloc::format!("wait: {why:?}, {record:?}"));
            }
        }
    }
}

/// Runs the role that the start block names; its result is the word left.
pub fn run(argument: &'static [u8]) {
    let word = |at: usize| {
        argument.get(8 * at..8 * at + 8).map_or(0, |bytes| {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            u64::from_le_bytes(word)
        })
    };
    crate::faults::install();
    let role =
        Role { role: word(0), words: [word(1), word(2), word(3), word(4), word(5), word(6)] };
    call::exit(crate::suite::roles::play(&role))
}
