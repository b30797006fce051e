//! Protected control transfer: registers are the message, the callee decides, donors survive.

use super::roles;
use super::sched::{counter, until};
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground};
use abi::call::number;
use abi::error::Error;
use abi::id::EnvId;
use abi::published::{CpuRecord, Table};
use abi::trace::Kind;
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN};
use xok::clock::now_ns;
use xok::published;

fn server(ground: &Ground, kind: u64) -> Result<xok::spawn::Spawned, Failure> {
    let server = assistant::spawn(ground.image, roles::SERVE, [kind, 1, 0, 0, 0, 0], &[])?;
    assistant::start(server)?;
    until(|| counter(server.env) == 1, "the server to accept")?;
    let _ = call::sleep(now_ns() + 5_000_000, 0, 0, 0);
    Ok(server)
}

fn end(server: xok::spawn::Spawned) -> Result<u64, Failure> {
    call::env_destroy(OWN, server.env, 0).map_err(|why| format!("{why:?}"))?;
    assistant::wait(server.env)
}

/// Calls until the server is not busy.
fn ask(env: EnvId, message: call::Message) -> Result<call::Message, Failure> {
    for _ in 0..100_000 {
        match call::transfer(env, message) {
            Err((Error::Busy, _)) => {
                let _ = call::yield_to(env);
            }
            other => return other.map_err(|why| format!("{why:?}")),
        }
    }
    Err(String::from("busy for ever"))
}

/// A client that is alone finds its server accepting after each reply, also after requests that
/// take long.
pub fn lone_clients_find_it_accepting(ground: &Ground) -> Result<String, Failure> {
    const REQUESTS: u64 = 12;
    const EACH_NS: u64 = 1_000_000;
    let words = [roles::SERVE_SLOWLY, 0, 0, 0, 0, 0];
    let server = assistant::spawn(ground.image, roles::SERVE, words, &[])?;
    assistant::start(server)?;
    ask(server.env, [0; 6])?;
    for request in 0..REQUESTS {
        let reply = call::transfer(server.env, [EACH_NS, 0, 0, 0, 0, 0]);
        expect!(reply.is_ok_and(|reply| reply[0] == 1), "request {request}: {reply:?}");
    }
    end(server)?;
    Ok(format!("{REQUESTS} requests"))
}

/// aegis95 T17, thesis98 Z-48: every register, the vector registers included, arrives and returns.
pub fn registers(ground: &Ground) -> Result<String, Failure> {
    let server = assistant::spawn(ground.image, roles::REGISTER_MIRROR, [0; 6], &[])?;
    assistant::start(server)?;
    until(|| counter(server.env) == 1, "the server to accept")?;
    let _ = call::sleep(now_ns() + 5_000_000, 0, 0, 0);
    // The first one opens the fast path, which the second one goes.
    let different = [(); 2].map(|()| roles::mirror::compare(server.env));
    end(server)?;
    for different in different {
        let different = different?;
        expect!(different == 0, "registers that differ, by bit: {different:#x}");
    }
    Ok(String::new())
}

/// A transfer and its reply by entry code's fast path, and by the way that the rest of the kernel
/// goes while calls are traced: neither side can tell which it was, nor can who counts.
pub fn by_either_way(ground: &Ground) -> Result<String, Failure> {
    const ROUNDS: u64 = 100;
    let server = server(ground, roles::SERVE_SUMS)?;
    let mut seen = [(0, 0, 0); 2];
    let mut short = [0; 2];
    for (at, kinds) in [0, Kind::Call.bit()].into_iter().enumerate() {
        // Neither this call nor the two below are the fast path's: they note what that has done.
        call::trace_set(OWN, kinds).map_err(|why| format!("TraceSet: {why:?}"))?;
        let counts = || {
            let entries = |env| published::env(env).map_or(0, |record| record.entries);
            let cpus = published::table(Table::Cpus).count as usize;
            let cpus = (0..cpus).filter_map(|cpu| published::record::<CpuRecord>(Table::Cpus, cpu));
            let made = published::call_record(number::TransferSync.into()).count;
            (entries(EnvId(1)), entries(server.env), made, cpus.map(|cpu| cpu.short_ways).sum())
        };
        let before: (u64, u64, u64, u64) = counts();
        let mut sum = 0_u64;
        for round in 0..ROUNDS {
            let [first, ..] = ask(server.env, [round, 3, 5, 7, 11, 13])?;
            sum = sum.wrapping_mul(31).wrapping_add(first);
        }
        call::timer_set(0).map_err(|why| format!("TimerSet: {why:?}"))?;
        let after = counts();
        expect!(after.2 - before.2 == 2 * ROUNDS, "{} calls counted", after.2 - before.2);
        seen[at] = (after.0 - before.0, after.1 - before.1, sum);
        short[at] = after.3 - before.3;
    }
    let _ = call::trace_set(OWN, 0);
    let ran = published::env(server.env).map_or(0, |record| record.run_ns);
    end(server)?;
    expect!(seen[0] == seen[1] && seen[0].1 == ROUNDS, "entries and sums {seen:?}");
    expect!(short[0] > ROUNDS && short[1] == 0, "{short:?} by short ways");
    expect!(ran > 0 && ran < 10_000_000_000, "the server ran {ran} ns");
    Ok(format!("({} of {} by short ways)", short[0], 2 * ROUNDS))
}

/// l4stack 11: the dead, the stale, the impossible, the unwilling, oneself: a code, no fault.
pub fn refused(ground: &Ground) -> Result<String, Failure> {
    let sleeper = assistant::spawn(ground.image, roles::SLEEP, [0; 6], &[])?;
    let try_one = |env: EnvId| call::transfer(env, [0; 6]);
    let new = try_one(sleeper.env);
    expect!(matches!(new, Err((Error::Busy, _))), "not started: {new:?}");
    assistant::start(sleeper)?;
    let _ = call::sleep(now_ns() + 5_000_000, 0, 0, 0);
    let unwilling = try_one(sleeper.env);
    expect!(matches!(unwilling, Err((Error::Busy, _))), "not accepting: {unwilling:?}");
    let own = try_one(EnvId(1));
    expect!(matches!(own, Err((Error::Busy, _))), "oneself: {own:?}");
    call::env_destroy(OWN, sleeper.env, 0).map_err(|why| format!("{why:?}"))?;
    let dead = try_one(sleeper.env);
    expect!(matches!(dead, Err((Error::NoSuchEnv | Error::Dead, _))), "the dead: {dead:?}");
    assistant::wait(sleeper.env)?;
    let index = sleeper.env.index() as u16;
    for (what, env) in [
        ("stale", sleeper.env),
        ("of the future", EnvId::new(index, 777)),
        ("unused", EnvId::new(4000, 0)),
        ("nobody", EnvId::NONE),
        ("out of range", EnvId(0x3fff_ffff)),
        ("absurd", EnvId(u32::MAX)),
    ] {
        let answer = try_one(env);
        expect!(matches!(answer, Err((Error::NoSuchEnv, _))), "{what}: {answer:?}");
    }
    Ok(String::new())
}

/// aegis95 T17, thesis98 Z-47: a synchronous call donates the later slices too, an asynchronous
/// one only the rest of this one.
pub fn sync_async(ground: &Ground) -> Result<String, Failure> {
    const WORK: u64 = 1_000_000_000;
    let slow = server(ground, roles::SERVE_SLOWLY)?;
    let rival = assistant::spawn(ground.image, roles::SPIN, [0; 6], &[])?;
    assistant::start(rival)?;
    let run_ns = |env| published::env(env).map_or(0, |record| record.run_ns);
    until(|| run_ns(rival.env) > 0, "the rival to run")?;
    let before = (run_ns(slow.env), run_ns(rival.env));
    let began = now_ns();
    ask(slow.env, [WORK, 0, 0, 0, 0, 0])?;
    let took = now_ns() - began;
    let (ran, lost) = (run_ns(slow.env) - before.0, run_ns(rival.env) - before.1);
    end(rival)?;
    end(slow)?;
    expect!(took >= WORK, "the reply came after {took} ns, before the work was done");
    // With its own slices alone it would get as much as the rival, with the donor's twice that; the
    // host may take some of it from either.
    expect!(4 * ran >= 5 * lost, "the callee ran {ran} ns, a rival {lost} ns");
    let hog = assistant::spawn(ground.image, roles::ACCEPT_ASYNC_AND_SPIN, [0; 6], &[])?;
    assistant::start(hog)?;
    until(|| counter(hog.env) == 1, "the other to accept")?;
    let _ = call::sleep(now_ns() + 5_000_000, 0, 0, 0);
    let rax = u64::from(abi::call::number::TransferAsync)
        | u64::from(hog.env.0) << abi::call::TRANSFER_SHIFT;
    let began = now_ns();
    let sent = call::raw(rax, [1, 2, 3, 4, 5, 6]);
    let back = now_ns() - began;
    call::env_destroy(OWN, hog.env, 0).map_err(|why| format!("{why:?}"))?;
    assistant::wait(hog.env)?;
    expect!(sent.is_ok(), "asynchronous: {sent:?}");
    expect!(back < 1_000_000_000, "back after {back} ns, though the callee never ends");
    Ok(format!("(sync {took} ns, async back after {back} ns)"))
}

/// aegis95 T17: calls and replies under timer interrupts, none lost. Half of the replies are entry
/// code's, half the rest of the kernel's.
pub fn storm(ground: &Ground) -> Result<String, Failure> {
    const CALLS: u64 = 5_000;
    // So often somebody else's slice has come in between, whatever was being done.
    const INTERRUPTIONS: u64 = 40;
    let adder = server(ground, roles::SERVE_SUMS_BY_TURNS)?;
    let rival = assistant::spawn(ground.image, roles::SPIN, [0; 6], &[])?;
    assistant::start(rival)?;
    let slices = || published::env(rival.env).map_or(u64::MAX, |record| record.switches);
    let (began, mut calls, mut wrong) = (slices(), 0, 0);
    while calls < CALLS || slices() - began < INTERRUPTIONS {
        let reply = ask(adder.env, [calls, 2 * calls, 3, 4, 5, 6])?;
        wrong += u64::from(reply[0] != 3 * calls + 18);
        calls += 1;
    }
    end(adder)?;
    end(rival)?;
    expect!(wrong == 0, "{wrong} of {calls} replies were wrong");
    Ok(format!("({calls} calls, interrupted {INTERRUPTIONS} times)"))
}

/// aegis95 T18: the kernel lets anyone in; the callee's own code turns strangers away.
pub fn access_is_the_callees(ground: &Ground) -> Result<String, Failure> {
    let choosy =
        assistant::spawn(ground.image, roles::SERVE, [roles::SERVE_CHOOSY, 1, 0, 0, 0, 0], &[])?;
    assistant::start(choosy)?;
    until(|| counter(choosy.env) == 1, "the server to accept")?;
    let mine = ask(choosy.env, [5, 0, 0, 0, 0, 0])?;
    let stranger =
        assistant::spawn(ground.image, roles::ASK, [choosy.env.0.into(), 5, 0, 0, 0, 0], &[])?;
    let theirs = assistant::finish(stranger)?;
    end(choosy)?;
    expect!(mine[0] == roles::WELCOME, "the known caller got {:#x}", mine[0]);
    expect!(theirs == roles::TURNED_AWAY, "the stranger got {theirs:#x}");
    Ok(String::new())
}

/// A donor gets its processor back when the callee dies.
pub fn callee_dies(ground: &Ground) -> Result<String, Failure> {
    let mortal = server(ground, roles::SERVE_DEATH)?;
    let answer = call::transfer(mortal.env, [0; 6]);
    expect!(matches!(answer, Err((Error::Dead, _))), "the caller got {answer:?}");
    assistant::wait(mortal.env)?;
    Ok(String::new())
}
