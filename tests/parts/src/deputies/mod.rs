//! A user without rights tells servers and programs of others what they then do by their rights.

mod accepted;
mod attachments;
mod files;
pub mod guesses;
pub mod heirs;
mod hidden;
mod ids;
mod meetings;
mod network;
mod offers;
mod pages;
mod payers;
mod pipes;
mod processes;
mod relatives;
mod room;
pub mod seals;
mod slices;
mod sockets;
mod starters;
pub mod stepped;
pub mod terminals;

use crate::{Test, expect, forgers, libc};
use abi::call::Call;
use abi::error::Error;
use abi::id::EnvId;
use abi::region::{COPY_NONE, COPY_OUT, RegionOperation, WordAt};
use abi::word::UserAddress;
use std::io::{Read, Write};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use unix::attributes::Credentials;
use unix::process_page::{HELD, ProcessPage};
use unix::protocol::{self, Operation, Request, outcome};
use unix::tree::ROOT;
use xok::services::{self, Service};

/// What holds, of all modules.
pub const TESTS: [&[Test]; 22] = [
    &accepted::TESTS,
    &attachments::TESTS,
    &files::TESTS,
    &guesses::TESTS,
    &heirs::TESTS,
    &hidden::TESTS,
    &ids::TESTS,
    &meetings::TESTS,
    &network::TESTS,
    &offers::TESTS,
    &pages::TESTS,
    &payers::TESTS,
    &pipes::TESTS,
    &processes::TESTS,
    &relatives::TESTS,
    &room::TESTS,
    &seals::TESTS,
    &slices::TESTS,
    &sockets::TESTS,
    &starters::TESTS,
    &stepped::TESTS,
    &terminals::TESTS,
];

/// The user.
pub(super) const NOBODY: u32 = 65_534;
/// Another one.
pub(super) const ANN: u32 = 61_000;
/// `O_PATH`
pub(super) const PATH_ONLY: u64 = 0o10_000_000;

pub(super) fn failed(error: std::io::Error) -> String {
    error.to_string()
}

/// Asks the file server for `user`.
pub(super) fn ask(
    door: door::Door,
    user: u32,
    operation: Operation,
    arguments: [u64; 4],
) -> Result<[u64; 4], u16> {
    let region = forgers::transport().ok_or(0_u16)?;
    ask_by(door, region, user, operation, arguments)
}

/// The same by a transport region that is known.
pub(super) fn ask_by(
    door: door::Door,
    region: u32,
    user: u32,
    operation: Operation,
    arguments: [u64; 4],
) -> Result<[u64; 4], u16> {
    ask_as(door, region, Credentials::of(user, user), operation, arguments)
}

/// The same for a user and a group.
pub(super) fn ask_as(
    door: door::Door,
    region: u32,
    who: Credentials,
    operation: Operation,
    arguments: [u64; 4],
) -> Result<[u64; 4], u16> {
    let request = Request { operation, region, arguments, who };
    loop {
        let server = EnvId(services::get(Service::Files) as u32);
        match libc::transfer(door, server, request.to_words()) {
            Err((Error::Busy, _)) => std::thread::yield_now(),
            Ok(reply) => return protocol::answer(&reply).map_err(|errno| errno.0),
            Err(_) => return Err(0),
        }
    }
}

/// The file server's word for what a path leads to; each of its names has up to 16 bytes.
pub(super) fn node_of(door: door::Door, user: u32, path: &str) -> Option<u64> {
    path.split('/').filter(|name| !name.is_empty()).try_fold(ROOT, |directory, name| {
        let [first, second] = protocol::inline(name.as_bytes())?;
        let arguments = [directory, name.len() as u64, first, second];
        let [result, node, ..] = ask(door, user, Operation::Walk, arguments).ok()?;
        (result as u32 == outcome::DONE as u32).then_some(node)
    })
}

/// An operation of a kernel call's own on a region, in a role.
pub(super) fn operate(door: door::Door, operation: &RegionOperation) -> bool {
    let operation = UserAddress(&raw const *operation as u64);
    libc::kernel(door, Call::RegionOperate { operation }).is_ok()
}

/// Stores one word into a region, in either role.
pub(super) fn store(door: door::Door, region: u64, word: WordAt) -> bool {
    let write = [word, WordAt::default(), WordAt::default(), WordAt::default()];
    let mut operation =
        RegionOperation { region, writes: 1, direction: COPY_NONE, write, ..Default::default() };
    for role in 0..2 {
        operation.role = role;
        if operate(door, &operation) {
            return true;
        }
    }
    false
}

/// Bytes of a region, seen in this role.
pub(super) fn look(
    door: door::Door,
    region: u64,
    role: u8,
    offset: u64,
    len: usize,
) -> Option<Vec<u8>> {
    let mut bytes = vec![0_u8; len];
    let operation = RegionOperation {
        region,
        role,
        direction: COPY_OUT,
        address: bytes.as_mut_ptr() as u64,
        offset,
        len: len as u32,
        ..Default::default()
    };
    operate(door, &operation).then(|| std::hint::black_box(bytes))
}

/// Sets half a word of the own page.
pub(super) fn say(offset: usize, value: u32) {
    libc::own_page_word(offset).store(value, Ordering::SeqCst);
}

/// Says in the own page, at its last place for that, that the process has this file open.
pub(super) fn say_held(word: u64) {
    let last = offset_of!(ProcessPage, held) + 8 * (HELD - 1);
    say(last, word as u32);
    say(last + 4, (word >> 32) as u32);
}

/// A child that is nobody's, once it says so; it ends with its pipe.
pub(super) fn nobody(act: impl FnOnce() -> i32) -> Result<(i32, UnixStream), String> {
    another(NOBODY, act)
}

/// The same as any user.
pub(super) fn another(user: u32, act: impl FnOnce() -> i32) -> Result<(i32, UnixStream), String> {
    let (mut own, others) = UnixStream::pair().map_err(failed)?;
    let pid = libc::spawn(|| {
        libc::close(own.as_raw_fd());
        if !libc::become_user(user) {
            return 100;
        }
        let status = act();
        if (&others).write_all(b"r").is_err() {
            return 101;
        }
        let _ = (&others).read(&mut [0]);
        status
    });
    drop(others);
    own.read_exact(&mut [0]).map_err(failed)?;
    Ok((pid, own))
}

/// Its end.
pub(super) fn end((pid, end): (i32, UnixStream)) -> Result<(), String> {
    drop(end);
    let status = libc::wait(pid);
    expect(status == 0, || format!("the attacker ended with {status:#x}"))
}
