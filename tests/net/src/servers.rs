//! The two servers: one gives back what it gets, one sends a long known stream.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use xio::stack::{Error, ListenerId, TcpId};
use xnet::Network;
use xok::call;

/// Index of the capability over the network interface.
const NETWORK: u8 = 1;
/// Word of the application page: the server listens.
pub const LISTENS: usize = 1;
/// Word of the application page: the server asks to be killed.
pub const KILL_ME: usize = 2;
/// Status: the port is taken.
pub const EXIT_TAKEN: u64 = 2 << 8;
/// Bytes of the stream.
const STREAM: usize = 8 << 20;
/// Bytes handed over at a time.
const CHUNK: usize = 4096;
/// What the echo server is told when it shall be killed.
const LAST_WISH: &[u8] = b"kill me\n";

/// The byte at `at` of the stream; the host knows it too.
fn pattern(at: usize) -> u8 {
    ((at.wrapping_mul(31)) ^ (at >> 8)) as u8
}

fn open(port: u16) -> (Network, ListenerId) {
    let Ok(mut network) = Network::open(NETWORK) else { call::exit(1 << 8) };
    match network.claim_tcp(port) {
        Ok(_) => {}
        Err((abi::error::Error::Overlap, _)) => call::exit(EXIT_TAKEN),
        Err(_) => call::exit(3 << 8),
    }
    let Ok(listener) = network.stack.tcp_listen(port, 8) else { call::exit(4 << 8) };
    xnet::own_page()[LISTENS].store(u64::from(port), Ordering::Release);
    (network, listener)
}

/// Runs `serve` for each connection until it says that it is over.
fn serve<T>(port: u16, fresh: fn() -> T, serve: fn(&mut Network, TcpId, &mut T) -> bool) -> ! {
    let (mut network, listener) = open(port);
    let mut connections: Vec<(TcpId, T)> = Vec::new();
    loop {
        network.poll();
        while let Ok(id) = network.stack.tcp_accept(listener) {
            connections.push((id, fresh()));
        }
        connections.retain_mut(|(id, state)| {
            let goes_on = serve(&mut network, *id, state);
            if !goes_on {
                // Fails only if it is gone already.
                let _ = network.stack.tcp_close(*id);
            }
            goes_on
        });
        network.flush();
        network.wait(None);
    }
}

/// Gives back what it gets.
pub fn echo(port: u16) -> ! {
    serve(port, Vec::new, |network, id, pending: &mut Vec<u8>| {
        loop {
            if pending.is_empty() {
                let mut chunk = [0; CHUNK];
                match network.stack.tcp_receive(id, &mut chunk) {
                    Ok(0) => return false,
                    Ok(len) => pending.extend_from_slice(&chunk[..len]),
                    Err(error) => return error == Error::WouldBlock,
                }
                if pending == LAST_WISH {
                    xnet::own_page()[KILL_ME].store(1, Ordering::Release);
                }
            }
            match network.stack.tcp_send(id, pending) {
                Ok(taken) => drop(pending.drain(..taken)),
                Err(error) => return error == Error::WouldBlock,
            }
        }
    })
}

/// Sends the stream, then ends its own.
pub fn bulk(port: u16) -> ! {
    serve(
        port,
        || 0,
        |network, id, sent: &mut usize| {
            while *sent < STREAM {
                let mut chunk = [0; CHUNK];
                let len = CHUNK.min(STREAM - *sent);
                for (at, byte) in chunk[..len].iter_mut().enumerate() {
                    *byte = pattern(*sent + at);
                }
                match network.stack.tcp_send(id, &chunk[..len]) {
                    Ok(taken) => *sent += taken,
                    Err(error) => return error == Error::WouldBlock,
                }
            }
            false
        },
    )
}
