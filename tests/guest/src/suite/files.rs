//! The memory file server: what it does without frames, and that it gives them back.
//!
//! It is started as init starts it, but an account of its own pays for it, whose limit and use say
//! to the frame what it may have and has.

use super::sched::until;
use crate::expect;
use crate::judge::{Failure, Ground};
use abi::call::Call;
use abi::capability::{ALL, NAME_IMAGE, READ};
use abi::id::{AccountId, DomainId, Frame, RegionId};
use abi::limits::Resource;
use abi::published::{AccountRecord, EnvRecord, EnvState, Table};
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use image::archive::Archive;
use image::elf::Plan;
use unix::Errno;
use unix::attributes::Credentials;
use unix::protocol::{
    AT_END, CLIENT, LOCK_EXCLUSIVE, Operation, Request, TRANSFER_BYTES, TRANSPORT_FRAMES, answer,
    inline,
};
use unix::tree::ROOT;
use xok::call::{self, OWN, Refused};
use xok::spawn::{self, Gift, Spawned};
use xok::{clock, published};

/// The first account, which pays for the tests.
const FIRST: AccountId = AccountId(1);
/// Frames that a file of the tests has, where it is a large one.
const LARGE: u64 = 4096;
/// Frames that the server may keep of a file that has ended: free pages, and tables.
const KEPT: u64 = 80;
/// Files made with each of them.
const FILES: u64 = 64;
/// Files that fit into what it keeps, at most.
const MANY: u64 = 4000;
/// Limits tried, from what the server has.
const LIMITS: u64 = 40;

fn refused(why: Refused) -> Failure {
    format!("{why:?}")
}

/// The server, and the way to it.
struct Server {
    account: AccountId,
    spawned: Spawned,
    region: RegionId,
}

impl Server {
    fn start(ground: &Ground) -> Result<Self, Failure> {
        let make = Call::AccountAlloc { which: Which::Any, parent: FIRST };
        let account = AccountId(call::make(make, OWN).map_err(refused)?);
        for resource in 0..abi::limits::RESOURCES as u16 {
            let set = Call::AccountLimit { account, resource, limit: u32::MAX, reserve: 0 };
            let _ = call::make(set, OWN);
        }
        let archive = Archive::open_checked(ground.image).map_err(|why| format!("{why:?}"))?;
        let entry = archive.lookup("/xok/tmpfsd").ok_or("no tmpfsd")?;
        let file = archive.data(&entry);
        let plan = Plan::parse(file).map_err(|why| format!("{why:?}"))?;
        let frame = Frame(xok::boot_image::place().0.0 + (entry.data_offset / 4096) as u32);
        let gift = |slot, extend, rights| Gift { from: OWN, slot, extend, rights };
        let gifts = [gift(1, &[NAME_IMAGE], READ), gift(2, &[], ALL), gift(3, &[], ALL)];
        let spawned = spawn::paid_by(account, &plan, file, Some(frame), &[], &gifts);
        let spawned = spawned.map_err(refused)?;
        call::env_release(OWN, spawned.env).map_err(refused)?;
        let frames = [u32::MAX; TRANSPORT_FRAMES[1]];
        let region = call::region_alloc(OWN, &frames).map_err(refused)?;
        call::region_attach(OWN, region, CLIENT, DomainId::NONE).map_err(refused)?;
        let server = Self { account, spawned, region };
        until(|| server.sleeps(), "the file server to begin")?;
        Ok(server)
    }

    fn record(&self) -> Option<EnvRecord> {
        published::env(self.spawned.env)
    }

    fn sleeps(&self) -> bool {
        self.record().is_some_and(|record| record.state == EnvState::Sleeping as u32)
    }

    /// Asks; `Err` with a text if nobody answered.
    fn ask(&self, operation: Operation, arguments: [u64; 4]) -> Result<[u64; 4], Failure> {
        self.try_ask(operation, arguments)?.map_err(|errno| format!("{operation:?}: {errno:?}"))
    }

    fn try_ask(
        &self,
        operation: Operation,
        arguments: [u64; 4],
    ) -> Result<Result<[u64; 4], Errno>, Failure> {
        let who = Credentials::default();
        let request = Request { operation, region: self.region.0 as u32, arguments, who };
        loop {
            match call::transfer(self.spawned.env, request.to_words()) {
                Ok(reply) => return Ok(answer(&reply)),
                Err((abi::error::Error::Busy, _)) => {
                    let _ = call::yield_to(self.spawned.env);
                }
                Err(why) => return Err(format!("{operation:?}: {why:?}")),
            }
        }
    }

    /// Makes a file or finds it.
    fn file(&self, name: &[u8]) -> Result<u64, Failure> {
        Ok(self.ask(Operation::Make, self.named(name, 0o644 << 32))?[0])
    }

    fn named(&self, name: &[u8], what: u64) -> [u64; 4] {
        let [first, second] = inline(name).unwrap_or_default();
        [ROOT, name.len() as u64 | what, first, second]
    }

    /// Writes so many frames at the end of a file.
    fn fill(&self, file: u64, frames: u64) -> Result<(), Failure> {
        for _ in 0..frames * 4096 / TRANSFER_BYTES {
            self.ask(Operation::Write, [file, AT_END, TRANSFER_BYTES, 0])?;
        }
        Ok(())
    }

    fn account(&self) -> Result<AccountRecord, Failure> {
        let record = published::record(Table::Accounts, self.account.index());
        record.ok_or_else(|| String::from("no account"))
    }

    fn used(&self) -> Result<u64, Failure> {
        Ok(u64::from(self.account()?.used[Resource::Frames as usize]))
    }

    fn limit(&self, frames: u64) -> Result<(), Failure> {
        let resource = Resource::Frames as u16;
        let set = Call::AccountLimit {
            account: self.account,
            resource,
            limit: frames as u32,
            reserve: 0,
        };
        call::make(set, OWN).map(drop).map_err(refused)
    }

    fn end(self) -> Result<(), Failure> {
        let record = self.record();
        call::region_detach(self.region, CLIENT).map_err(refused)?;
        call::domain_destroy(OWN, self.spawned.domain).map_err(refused)?;
        until(|| !published::env_lives(self.spawned.env), "the file server to end")?;
        call::env_forget(self.spawned.env).map_err(refused)?;
        call::make(Call::AccountDestroy { account: self.account }, OWN).map_err(refused)?;
        let dead = |record: &EnvRecord| record.state >= EnvState::Stopped as u32;
        expect!(!record.is_some_and(|record| dead(&record)), "it had ended before: {record:?}");
        Ok(())
    }
}

/// Whichever of its frames the file server does not get, it answers, and goes on: a limit for each
/// number of frames from none on.
pub fn without_frames(ground: &Ground) -> Result<String, Failure> {
    let server = Server::start(ground)?;
    let result = starve(&server);
    let ended = server.end();
    let (full, done) = result.map_err(|why| format!("{why}; {ended:?}"))?;
    ended?;
    expect!(full > LIMITS && done > LIMITS, "{full} answers of no room, {done} done");
    Ok(format!("({full} answers of no room, {done} done)"))
}

fn starve(server: &Server) -> Result<(u64, u64), Failure> {
    let (mut full, mut done) = (0, 0);
    let kept = server.file(b"kept")?;
    server.ask(Operation::Write, [kept, 0, 4096, 0])?;
    for frames in 0..LIMITS {
        // Nothing is left of what it has but does not use.
        server.limit(server.used()?)?;
        let filled = fill_up(server)?;
        server.limit(server.used()? + frames)?;
        let mut try_ask = |operation, arguments| match server.try_ask(operation, arguments)? {
            Ok(_) => {
                done += 1;
                Ok(())
            }
            Err(Errno::ENOSPC | Errno::ENOMEM | Errno::ENOLCK) => {
                full += 1;
                Ok(())
            }
            Err(errno) => Err(format!("{operation:?} with {frames} frames: {errno:?}")),
        };
        for number in 0..FILES {
            let name = format!("{number}");
            try_ask(Operation::Make, server.named(name.as_bytes(), 0o644 << 32))?;
        }
        try_ask(Operation::Write, [kept, frames << 30, TRANSFER_BYTES, 0])?;
        for number in 0..20 {
            let range = [kept, LOCK_EXCLUSIVE, number * 10, number * 10 + 1];
            try_ask(Operation::Lock, range)?;
        }
        try_ask(Operation::List, [ROOT, 0, 4096, 0])?;
        try_ask(Operation::Truncate, [kept, 4096, 0, 0])?;
        server.limit(u64::from(u32::MAX))?;
        for number in 0..FILES {
            let name = format!("{number}");
            // Those that were made.
            let _ = server.try_ask(Operation::Remove, server.named(name.as_bytes(), 0))?;
        }
        for number in 0..filled {
            let name = format!("more{number}");
            server.ask(Operation::Remove, server.named(name.as_bytes(), 0))?;
        }
        let [size, ..] = server.ask(Operation::Read, [kept, 0, 4096, 0])?;
        expect!(size == 4096, "{size} bytes of 4096 are there");
    }
    Ok((full, done))
}

/// Makes files until there is no room; how many there are.
fn fill_up(server: &Server) -> Result<u64, Failure> {
    for number in 0..MANY {
        let name = format!("more{number}");
        if server.try_ask(Operation::Make, server.named(name.as_bytes(), 0o644 << 32))?.is_err() {
            return Ok(number);
        }
    }
    Err(format!("{MANY} files in what was left"))
}

/// What files that have ended or were cut had goes back to the machine.
pub fn give_frames_back(ground: &Ground) -> Result<String, Failure> {
    let server = Server::start(ground)?;
    let result = fill_and_empty(&server);
    server.end()?;
    result.map(|kept| format!("({kept} frames kept)"))
}

fn fill_and_empty(server: &Server) -> Result<u64, Failure> {
    let file = server.file(b"large")?;
    server.fill(file, 16)?;
    let before = server.used()?;
    let mut kept = 0;
    for cut in [0, 8 * 4096] {
        server.fill(file, LARGE)?;
        let full = server.used()?;
        expect!(full >= before + LARGE, "{full} frames where {LARGE} were written");
        server.ask(Operation::Truncate, [file, cut, 0, 0])?;
        let given = || server.used().is_ok_and(|used| used <= before + KEPT);
        until(given, "the frames to come back")
            .map_err(|why| format!("{why}: {:?} of {before}, cut {cut}", server.used()))?;
        kept = server.used()?.saturating_sub(before);
    }
    server.fill(file, LARGE)?;
    server.ask(Operation::Remove, server.named(b"large", 0))?;
    until(|| server.used().is_ok_and(|used| used <= before + KEPT), "the frames to come back")?;
    Ok(kept)
}

/// A large file's end delays nobody: it takes many times as long as who asks next waits.
pub fn end_in_pieces(ground: &Ground) -> Result<String, Failure> {
    let server = Server::start(ground)?;
    let result = wait_beside_an_end(&server);
    server.end()?;
    result
}

fn wait_beside_an_end(server: &Server) -> Result<String, Failure> {
    let before = server.used()?;
    let file = server.file(b"large")?;
    server.fill(file, LARGE)?;
    let begun = clock::now_ns();
    let mut longest = 0;
    let mut ask = |operation, arguments| {
        let begun = clock::now_ns();
        let answer = server.ask(operation, arguments);
        longest = longest.max(clock::now_ns() - begun);
        answer
    };
    ask(Operation::Truncate, [file, 0, 0, 0])?;
    let mut asked = 1;
    while server.used()? > before + KEPT {
        ask(Operation::Access, [ROOT, 4, 0, 0])?;
        asked += 1;
    }
    let all = clock::now_ns() - begun;
    // At once it would be one or two.
    expect!(asked > 4, "the end of {LARGE} frames was over after {asked} answers");
    Ok(format!("({asked} answers while a file ended: {longest} of {all} ns at most)"))
}
