//! The server as `xok::server` drives it: one request, and the domains that wait for their guests.

use abi::id::EnvId;
use alloc::vec::Vec;
use unix::Errno;
use unix::set_id::{BLOCK_MAX, HEAD_BYTES, Head, Ids, OTHER, Request};
use xok::call::{self, Message, OWN};
use xok::server::Serve;
use xok::{clock, published};

use linux_raw_sys::general as raw;

use crate::files::{self, Files};
use crate::life::{self, Builder, Built};

/// Domains that wait at a time. When there are as many, one of the user with the most of them goes.
const WAITING: usize = 64;
/// Nanoseconds for which a guest is waited for.
const PATIENCE_NS: u64 = 30_000_000_000;
/// Nanoseconds between two looks at those that wait.
const LOOK_NS: u64 = 1_000_000_000;

/// A domain that waits for its guest.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    built: Built,
    guest: EnvId,
    user: u32,
    until_ns: u64,
}

/// The server.
#[derive(Debug)]
pub struct Server {
    files: Files,
    builder: Builder,
    waiting: Vec<Waiting>,
    /// Where head and block are put together.
    block: Vec<u8>,
}

impl Server {
    /// `life`: how many there were before it. All the memory that it needs is taken here.
    pub fn open(life: u64) -> Result<Self, Errno> {
        let mut block = unix::map::vector(HEAD_BYTES + BLOCK_MAX)?;
        block.resize(HEAD_BYTES + BLOCK_MAX, 0);
        let waiting = unix::map::vector(WAITING)?;
        Ok(Self { files: Files::open()?, builder: Builder::open(life)?, waiting, block })
    }

    fn answer(&mut self, caller: EnvId, message: &Message) -> Result<u64, Errno> {
        let request = Request::from_words(message)?;
        let domain = published::env_domain(caller).ok_or(Errno::ESRCH)?;
        let guest = EnvId(request.process);
        if published::env_domain(guest) != Some(domain) || !life::lives(guest) {
            return Err(Errno::ESRCH);
        }
        let before = request.ids();
        files::holds(domain, &before)?;
        let head = self.judge(&request, domain, &before)?;
        files::takes(&head.ids)?;
        let (_, rest) = self.block.split_at_mut(HEAD_BYTES);
        files::fetch(domain, &request, &mut rest[..request.bytes])?;
        self.make_room();
        let (files, block) = (&self.files, &mut self.block[..HEAD_BYTES + request.bytes]);
        let built = self.builder.build(guest, domain, (&head.ids, before.users[0]), |domain| {
            // The file is open for the next life alone, and not for who else acts for its ids.
            let seal = files.pass((head.file, head.seal), domain, &head.ids)?;
            block[..HEAD_BYTES].copy_from_slice(&Head { seal, ..head }.to_bytes());
            Ok(&*block)
        })?;
        let until_ns = clock::now_ns() + PATIENCE_NS;
        self.waiting.push(Waiting { built, guest, user: before.users[0], until_ns });
        Ok(built.domain.0)
    }

    /// What the next life is told, with our own seal of the file, if the asker may execute the file
    /// and it is set-id, or hidden: the asker may not read it.
    fn judge(
        &self,
        request: &Request,
        domain: abi::id::DomainId,
        before: &Ids,
    ) -> Result<Head, Errno> {
        let file = self.files.attributes(request.file)?;
        if file.kind() != raw::S_IFREG {
            return Err(Errno::EACCES);
        }
        files::permits(domain, before, &file, 1)?;
        let ids = before.after(&file);
        if !ids.differ_from(before) && files::permits(domain, before, &file, 4).is_ok() {
            // It was a set-id file, or was hidden, when the asker looked.
            return Err(Errno::EAGAIN);
        }
        if request.directory.kind != OTHER {
            let directory = self.files.attributes(request.directory)?;
            if !directory.is_directory() {
                return Err(Errno::ENOTDIR);
            }
            files::permits(domain, before, &directory, 1)?;
        }
        let seal = self.files.seal(request.file)?;
        if self.files.is_script(request.file, seal)? {
            return Err(Errno::EACCES);
        }
        Ok(Head {
            process: request.process,
            ids,
            file: request.file,
            seal,
            size: file.size,
            mode: file.mode,
            changed_ns: file.changed_ns,
            directory: request.directory,
        })
    }

    /// Gives up domains whose guests have come, or will not come any more.
    fn sweep(&mut self, now: u64) {
        self.waiting.retain(|waiting| {
            let waits = life::lives(waiting.built.prepared);
            let keep = waits && life::lives(waiting.guest) && now < waiting.until_ns;
            if !keep {
                end(waiting);
            }
            keep
        });
    }

    /// If there is no room for one more, one goes of whoever has the most.
    fn make_room(&mut self) {
        self.sweep(clock::now_ns());
        if self.waiting.len() < WAITING {
            return;
        }
        let count = |user: u32| self.waiting.iter().filter(|one| one.user == user).count();
        let most = self.waiting.iter().map(|one| count(one.user)).max().unwrap_or(0);
        if let Some(at) = self.waiting.iter().position(|one| count(one.user) == most) {
            end(&self.waiting.remove(at));
        }
    }
}

/// Ends a domain unless its guest is there. That right is the builder's: a guest ends it.
fn end(waiting: &Waiting) {
    // The environment first, at once: what ends with its domain ends in its payer's turns, and a
    // record that is not dead yet is not forgotten. It is dead already if the guest has come.
    let _ = call::env_destroy(life::PRIVATE, waiting.built.prepared, 0);
    let _ = call::env_forget(waiting.built.prepared);
    let _ = call::domain_destroy(OWN, waiting.built.domain);
}

impl Serve for Server {
    fn request(&mut self, caller: EnvId, message: &mut Message) {
        *message = match self.answer(caller, message) {
            Ok(domain) => [0, domain, 0, 0, 0, 0],
            Err(Errno(number)) => [number.into(), 0, 0, 0, 0, 0],
        };
    }

    fn events(&mut self) -> u64 {
        xok::upcall::take_events();
        xok::upcall::take_pending();
        let now = clock::now_ns();
        self.sweep(now);
        if self.waiting.is_empty() { 0 } else { now + LOOK_NS }
    }
}
