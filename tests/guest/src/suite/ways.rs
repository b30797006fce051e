//! Which way switches take, and how long interrupts stay off: what the kernel counts of itself.

use super::roles;
use super::sched::{counter, until};
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground};
use abi::call::number;
use abi::error::Error;
use abi::id::EnvId;
use abi::published::{CpuRecord, EnvState, STRETCHES, Table};
use abi::trace::Kind;
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN, Refused};
use xok::clock::now_ns;
use xok::published;
use xok::spawn::Spawned;

fn said(refused: Refused) -> Failure {
    format!("{refused:?}")
}

fn cpus() -> impl Iterator<Item = CpuRecord> {
    let count = published::table(Table::Cpus).count as usize;
    (0..count).filter_map(|cpu| published::record::<CpuRecord>(Table::Cpus, cpu))
}

/// Calls of this number made, and switches by the short way. What the fast path has done is noted
/// when the lock is taken the next time, which a timer's call does.
fn made(number: u16) -> (u64, u64) {
    let _ = call::timer_set(0);
    let short = cpus().map(|cpu| cpu.short_ways).sum();
    (published::call_record(number.into()).count, short)
}

fn end(spawned: Spawned) -> Result<(), Failure> {
    call::env_destroy(OWN, spawned.env, 0).map_err(said)?;
    assistant::wait(spawned.env).map(|_| ())
}

/// A slice of one's own that has just begun.
fn fresh_slice() {
    let _ = call::sleep(now_ns() + 1_000_000, 0, 0, 0);
    let _ = call::yield_to(EnvId::NONE);
}

/// l4stack 10: a ping-pong goes the short way and no other.
pub fn ping_pong_is_short(ground: &Ground) -> Result<String, Failure> {
    const ROUNDS: u64 = 300;
    let server =
        assistant::spawn(ground.image, roles::SERVE, [roles::SERVE_SUMS, 1, 0, 0, 0, 0], &[])?;
    assistant::start(server)?;
    until(|| counter(server.env) == 1, "the server to accept")?;
    fresh_slice();
    let before = made(number::TransferSync);
    for round in 0..ROUNDS {
        call::transfer(server.env, [round, 0, 0, 0, 0, 0]).map_err(said)?;
    }
    let after = made(number::TransferSync);
    end(server)?;
    let (calls, short) = (after.0 - before.0, after.1 - before.1);
    expect!(calls == 2 * ROUNDS, "{calls} transfers in {ROUNDS} rounds");
    expect!(short == calls, "{short} of {calls} transfers went the short way");
    let back = [1, 0, 0, 0, 0, 0];
    let partner = assistant::spawn(ground.image, roles::COUNT_AND_YIELD, back, &[])?;
    assistant::start(partner)?;
    until(|| counter(partner.env) > 0, "the partner to start")?;
    fresh_slice();
    let before = made(number::Yield);
    for _ in 0..ROUNDS {
        call::yield_to(partner.env).map_err(said)?;
    }
    let after = made(number::Yield);
    end(partner)?;
    let (yields, quick) = (after.0 - before.0, after.1 - before.1);
    expect!(yields >= 2 * ROUNDS - 2, "{yields} yields in {ROUNDS} rounds");
    expect!(quick == yields, "{quick} of {yields} yields went the short way");
    Ok(format!("({short} of {calls} transfers, {quick} of {yields} yields)"))
}

/// A yield by name by entry code's fast path, and by the way that the rest of the kernel goes while
/// calls are traced: both sides keep their registers, and the same is counted.
pub fn yield_by_either_way(ground: &Ground) -> Result<String, Failure> {
    const ROUNDS: u64 = 200;
    let back = [1, 0, 0, 0, 0, 0];
    let partner = assistant::spawn(ground.image, roles::KEEP_AND_YIELD, back, &[])?;
    assistant::start(partner)?;
    until(|| counter(partner.env) > 0, "the partner to start")?;
    let (mut seen, mut short) = ([(0, 0, 0, 0); 2], [0; 2]);
    for (at, kinds) in [0, Kind::Call.bit()].into_iter().enumerate() {
        call::trace_set(OWN, kinds).map_err(said)?;
        fresh_slice();
        let entries = |env| published::env(env).map_or(0, |record| record.entries);
        let counts = || {
            let made = made(number::Yield);
            (made.0, entries(EnvId(1)), entries(partner.env), counter(partner.env), made.1)
        };
        let before = counts();
        for round in 0..ROUNDS {
            let wrong = roles::mirror::across_yield(partner.env, round << 32);
            expect!(wrong == Some(0), "round {round}: changed, by bit: {wrong:x?}");
        }
        let after = counts();
        seen[at] = (after.0 - before.0, after.1 - before.1, after.2 - before.2, after.3 - before.3);
        short[at] = after.4 - before.4;
    }
    let _ = call::trace_set(OWN, 0);
    let alive = published::env(partner.env).map_or(0, |record| record.state);
    end(partner)?;
    expect!(alive != EnvState::Dead as u32, "the partner found registers changed");
    expect!(seen[0] == seen[1] && seen[0].3 >= ROUNDS, "yields, entries, rounds: {seen:?}");
    expect!(short[0] >= 2 * ROUNDS - 2 && short[1] == 0, "{short:?} by short ways");
    Ok(format!("({} of {} by short ways)", short[0], 2 * ROUNDS))
}

/// aegis95 T17: pairs on two processors go their short ways as if they were alone, and what they
/// have done is known to whoever takes the lock; two clients of one server get their own replies.
pub fn transfers_do_not_meet(ground: &Ground) -> Result<String, Failure> {
    const CALLS: u64 = 20_000;
    if published::directory().cpus < 2 {
        return Ok(String::from("(one processor)"));
    }
    let server = || -> Result<Spawned, Failure> {
        let words = [roles::SERVE_SUMS, 1, 0, 0, 0, 0];
        let server = assistant::spawn(ground.image, roles::SERVE, words, &[])?;
        assistant::start(server)?;
        until(|| counter(server.env) == 1, "the server to accept")?;
        Ok(server)
    };
    let client = |server: Spawned, cpu: u16| -> Result<Spawned, Failure> {
        let words = [server.env.0.into(), CALLS, u64::from(cpu) << 32, 0, 0, 0];
        let client = assistant::spawn(ground.image, roles::clients::ASK_OFTEN, words, &[])?;
        call::slice_alloc(OWN, cpu, Which::Any, client.env).map_err(said)?;
        Ok(client)
    };
    let servers = [server()?, server()?];
    let before = made(number::TransferSync);
    let clients = [client(servers[0], 0)?, client(servers[1], 1)?];
    for client in clients {
        assistant::start(client)?;
    }
    let mut late = 0;
    for _ in 0..50 {
        let asked: u64 = clients.iter().map(|client| counter(client.env)).sum();
        let known = made(number::TransferSync).0 - before.0;
        late += u64::from(known < 2 * asked);
        let _ = call::sleep(now_ns() + 1_000_000, 0, 0, 0);
    }
    for client in clients {
        let wrong = assistant::wait(client.env)?;
        expect!(wrong == 0, "{wrong} replies were wrong");
    }
    let after = made(number::TransferSync);
    let (calls, short) = (after.0 - before.0, after.1 - before.1);
    expect!(late == 0, "{late} times the kernel knew of fewer transfers than had been made");
    expect!(short * 100 >= calls * 95, "{short} of {calls} transfers went the short way");
    let rivals = [client(servers[0], 0)?, client(servers[0], 1)?];
    for rival in rivals {
        assistant::start(rival)?;
    }
    for rival in rivals {
        let wrong = assistant::wait(rival.env)?;
        expect!(wrong == 0, "of two clients of one server, {wrong} replies were wrong");
    }
    for server in servers {
        end(server)?;
    }
    Ok(format!("({short} of {calls} by short ways)"))
}

/// l4stack 10: what is refused, and what is another processor's, goes the long way.
pub fn others_are_long(ground: &Ground) -> Result<String, Failure> {
    let sleeper = assistant::spawn(ground.image, roles::SLEEP, [0; 6], &[])?;
    assistant::start(sleeper)?;
    let state = |env| published::env(env).map_or(0, |record| record.state);
    until(|| state(sleeper.env) == EnvState::Sleeping as u32, "it to sleep")?;
    let before = made(number::TransferSync).1;
    let busy = call::transfer(sleeper.env, [0; 6]);
    let asleep = call::yield_to(sleeper.env);
    let nobody = call::transfer(EnvId(0x3fff_ffff), [0; 6]);
    let vain = call::yield_to(EnvId(0x3fff_ffff));
    let refused = made(number::TransferSync).1 - before;
    end(sleeper)?;
    expect!(matches!(busy, Err((Error::Busy, _))), "not accepting: {busy:?}");
    expect!(matches!(asleep, Err((Error::WrongState, _))), "asleep: {asleep:?}");
    expect!(matches!(nobody, Err((Error::NoSuchEnv, _))) && vain.is_err(), "{nobody:?} {vain:?}");
    expect!(refused == 0, "{refused} refusals by the short way");
    if published::directory().cpus < 2 {
        return Ok(String::from("(one processor)"));
    }
    let remote = assistant::spawn(ground.image, roles::SPIN, [1, 0, 0, 0, 0, 0], &[])?;
    call::slice_alloc(OWN, 1, Which::Any, remote.env).map_err(said)?;
    assistant::start(remote)?;
    until(|| counter(remote.env) > 0, "it to run elsewhere")?;
    let before = made(number::Yield).1;
    let answers = [(); 50].map(|()| call::yield_to(remote.env));
    let short = made(number::Yield).1 - before;
    end(remote)?;
    let refused = answers.iter().filter(|answer| answer.is_err()).count();
    expect!(refused > 0, "it never ran elsewhere");
    expect!(short == 0, "{short} yields to another processor by the short way");
    Ok(format!("({refused} of 50 refused as it ran elsewhere)"))
}

/// l4stack 16: how long interrupts were off is told by class; the longest stretch has its call.
pub fn stretches_by_class(_: &Ground) -> Result<String, Failure> {
    const CALLS: u64 = 2_000;
    let classes = || {
        // They are published once in a millisecond.
        let _ = call::sleep(now_ns() + 2_000_000, 0, 0, 0);
        let mut sums = [0; STRETCHES];
        for cpu in cpus() {
            sums.iter_mut().zip(cpu.stretches).for_each(|(sum, count)| *sum += count);
        }
        sums
    };
    let before = classes();
    // The timer's interrupt comes at every place of the calls, and has to wait there.
    for round in 0..CALLS {
        let _ = call::timer_set(now_ns() + round % 1_000);
    }
    let _ = call::timer_set(0);
    let after = classes();
    xok::upcall::take_events();
    let counted: u64 = after.iter().zip(before).map(|(after, before)| after - before).sum();
    expect!(counted >= CALLS, "{counted} stretches in {CALLS} calls");
    let longest = after.iter().rposition(|&count| count > 0).unwrap_or(0);
    let worst = cpus().map(|cpu| (cpu.longest_ns, cpu.longest_call)).max().unwrap_or((0, 0));
    expect!(worst.0 > 0, "the longest stretch is not told");
    Ok(format!("(classes {after:?}, longest {longest}: {} ns in call {:#x})", worst.0, worst.1))
}
