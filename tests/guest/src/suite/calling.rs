//! Remote calls: of servers that are trusted and of one that should not have been; typed ones.

use super::roles::ledger::{LEDGER, LedgerClient};
use super::roles::{self, clients};
use super::sched::until_accepts;
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground};
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN};
use xok::rpc;
use xok::spawn::Spawned;

fn server(ground: &Ground, role: u64, words: [u64; 6]) -> Result<Spawned, Failure> {
    let server = assistant::spawn(ground.image, role, words, &[])?;
    assistant::start(server)?;
    until_accepts(server.env)?;
    Ok(server)
}

fn end(server: Spawned) -> Result<(), Failure> {
    call::env_destroy(OWN, server.env, 0).map_err(|why| format!("{why:?}"))?;
    assistant::wait(server.env).map(drop)
}

/// aegis95 T32: a server keeps no register: who calls it with care does not notice, who trusts it
/// has lost its registers, and nobody else has lost anything.
pub fn by_trust(ground: &Ground) -> Result<String, Failure> {
    let trash = server(ground, clients::TRASH, [0; 6])?;
    let honest = server(ground, roles::SERVE, [roles::SERVE_SUMS, 1, 0, 0, 0, 0])?;
    let call = |server: Spawned, trusting: u64| {
        let words = [server.env.0.into(), trusting, 0, 0, 0, 0];
        let client = assistant::spawn(ground.image, clients::CALL_AND_COMPARE, words, &[])?;
        assistant::finish(client)
    };
    let careful = call(trash, 0)?;
    let trusting = call(trash, 1)?;
    let again = call(trash, 0)?;
    let of_honest = [call(honest, 0)?, call(honest, 1)?];
    let sum = rpc::lrpc(honest.env, [1, 2, 3, 4, 5, 6]);
    end(trash)?;
    end(honest)?;
    expect!(careful == 0 && again == 0, "with care: lost, by bit, {careful:#b}, then {again:#b}");
    expect!(trusting != 0, "who trusts has lost nothing");
    expect!(of_honest == [0, 0], "a server that keeps them: lost, by bit, {of_honest:?}");
    expect!(sum.is_ok_and(|reply| reply[0] == 21), "another client's call: {sum:?}");
    Ok(format!("(who trusts lost, by bit, {trusting:#b})"))
}

/// Typed calls from a trait: results, callers told apart, what is no call of the service refused.
pub fn typed(ground: &Ground) -> Result<String, Failure> {
    let ledger = server(ground, LEDGER, [0; 6])?;
    let client = LedgerClient(ledger.env);
    let results = [
        client.add(30),
        client.add(u32::MAX),
        client.give(77, 5),
        client.sum(),
        rpc::ask(ledger.env, [9, 0, 0, 0, 0, 0]),
        rpc::ask(ledger.env, [1, 1 << 40, 0, 0, 0, 0]),
        rpc::ask(ledger.env, [3, 77, 1 << 32, 0, 0, 0]),
        client.sum(),
    ];
    end(ledger)?;
    let gone = client.sum();
    let sum = 30 + u64::from(u32::MAX);
    let expected = [
        Ok(30),
        Ok(sum),
        Ok(sum - 5),
        Ok(sum - 5),
        Err(rpc::Failure::NoMethod),
        Err(rpc::Failure::NoArgument),
        Err(rpc::Failure::NoArgument),
        Ok(sum - 5),
    ];
    expect!(results == expected, "answers {results:?}");
    expect!(matches!(gone, Err(rpc::Failure::Refused(_))), "the server has ended: {gone:?}");
    Ok(String::new())
}
