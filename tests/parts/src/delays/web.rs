//! A client of the web server's beside connections on which another user asks for dear pages.

use super::{Measured, failed, now};
use crate::deputies::NOBODY;
use crate::{expect, libc};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use xok::services::{self, Service};

/// Connections of the other user's.
const CONNECTIONS: usize = 12;
/// Requests that are sent at once on each: as many as the server takes in.
const IN_A_ROW: usize = 200;
/// What they are: the answer has no body, so they don't wait for room.
const DEAR: &[u8] = b"HEAD /status.json HTTP/1.1\r\nHost:\r\n\r\n";
/// What the client asks for.
const OWN: &[u8] = b"HEAD /status HTTP/1.1\r\nHost:\r\n\r\n";
/// How often it does.
const PAGES: usize = 20;
/// Between two of them: no multiple of a tick.
const PAUSE: Duration = Duration::from_millis(23);
/// Within which the server begins to serve.
const PATIENCE: Duration = Duration::from_secs(10);
/// The group whose members have the network.
const NETWORK: u32 = 3003;

/// A connection to the server.
fn connect() -> Result<TcpStream, String> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", 80)) {
            Ok(stream) => return Ok(stream),
            Err(why) if begun.elapsed() >= PATIENCE => return Err(failed(why)),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// The client's pages, and that the same server has served all of them.
pub fn beside(_: door::Door) -> Measured {
    let mut own = connect()?;
    let server = services::get(Service::Web);
    let asked = &libc::words(libc::shared(1), 1)[0];
    let attacker = libc::spawn(|| match libc::become_user_of(NOBODY, &[NETWORK]) {
        true => ask_for_much(asked).unwrap_or(1),
        false => 1,
    });
    while libc::count(asked) == 0 && libc::is_alive(attacker) {
        std::thread::yield_now();
    }
    let victim = ask_now_and_then(&mut own);
    let alive = libc::is_alive(attacker);
    libc::send(attacker, 9);
    libc::wait(attacker);
    let victim = victim?;
    expect(alive, || "the other user's program has ended".into())?;
    expect(services::get(Service::Web) == server, || "it is another server".into())?;
    Ok(victim)
}

fn ask_now_and_then(own: &mut TcpStream) -> Measured {
    let mut all = Vec::new();
    let mut answer = [0; 4096];
    for at in 0..PAGES {
        let begun = now();
        own.write_all(OWN).map_err(failed)?;
        let taken = own.read(&mut answer).map_err(failed)?;
        expect(answer[..taken].starts_with(b"HTTP/1.1 200 "), || format!("{taken} bytes"))?;
        all.push((format!("for page {at}"), now() - begun));
        std::thread::sleep(PAUSE);
    }
    Ok(all)
}

/// Sends what has room, and takes answers, on all connections in turn.
fn ask_for_much(asked: &AtomicU64) -> Option<i32> {
    let all: Option<Vec<TcpStream>> = (0..CONNECTIONS).map(|_| connect().ok()).collect();
    let all = all?;
    let requests = DEAR.repeat(IN_A_ROW);
    let mut sent = [0; CONNECTIONS];
    let mut answers = vec![0; 1 << 16];
    all.iter().try_for_each(|one| one.set_nonblocking(true)).ok()?;
    loop {
        for (mut stream, sent) in all.iter().zip(&mut sent) {
            if let Ok(taken) = stream.write(&requests[*sent % requests.len()..]) {
                *sent += taken;
            }
            while stream.read(&mut answers).is_ok_and(|taken| taken == answers.len()) {}
        }
        asked.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(PAUSE);
    }
}
