//! Debian's busybox on the network: a client, and servers on a forwarded port.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::failure::{Context, Result};
use crate::tally::Verdict;

use super::{LIMIT, expect, xtask};

/// Bytes of what is fetched: more than fits the buffers on the way.
const BODY_BYTES: usize = 300_000;
/// How long the guest's server is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

fn local() -> Result<TcpListener> {
    TcpListener::bind("127.0.0.1:0").context("a port of the host")
}

fn port_of(listener: &TcpListener) -> Result<u16> {
    Ok(listener.local_addr().context("a port of the host")?.port())
}

/// `wget` fetches a file of the host's; a port without a server refuses.
pub fn client() -> Result<Verdict> {
    let body: Vec<u8> = (0..BODY_BYTES).map(|at| (at * at / 7) as u8).collect();
    let listener = local()?;
    let port = port_of(&listener)?;
    // Bound only to be closed: nobody listens there.
    let closed = port_of(&local()?)?;
    let script = format!(
        "wget -q -O - http://10.0.2.2:{port}/ || exit 7; \
         wget -q -O - http://10.0.2.2:{closed}/ 2>/dev/null; exit $?"
    );
    let output = std::thread::scope(|scope| {
        scope.spawn(|| serve(&listener, &body));
        let output = xtask(&["run", "--", "busybox", "sh", "-c", &script], b"");
        // Frees the server if the guest never came.
        drop(TcpStream::connect(("127.0.0.1", port)));
        output
    })?;
    Ok(expect("status", output.status.code(), Some(1)).and(expect(
        "the body came whole",
        output.stdout == body,
        true,
    )))
}

/// Answers one request.
fn serve(listener: &TcpListener, body: &[u8]) {
    let Ok((mut stream, _)) = listener.accept() else { return };
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        request.push(byte[0]);
    }
    let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    // What does not arrive is seen in the guest's output.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// `nc -l` in the guest hears the host, and the host hears it.
pub fn server() -> Result<Verdict> {
    let port = port_of(&local()?)?;
    let forward = format!("{port}:8081");
    let script = "echo from-guest | nc -l -p 8081";
    let words = ["run", "-p", &forward, "--", "busybox", "sh", "-c", script];
    let (output, heard) = std::thread::scope(|scope| {
        let host = scope.spawn(|| talk(port, b"from-host\n"));
        (xtask(&words, b""), host.join())
    });
    let heard = heard.unwrap_or_default();
    Ok(expect("the guest hears", output?.stdout.as_slice(), b"from-host\n".as_slice()).and(expect(
        "the host hears",
        heard.as_slice(),
        b"from-guest\n".as_slice(),
    )))
}

/// Debian's `httpd` forks for each connection: the child answers, the parent closes its copy. The
/// last request is one more than the children that have ended.
pub fn forking_server() -> Result<Verdict> {
    let port = port_of(&local()?)?;
    let forward = format!("{port}:8081");
    // What is fetched last ends the server from a child's program.
    let script = "mkdir -p /tmp/www/cgi-bin; cd /tmp/www; \
                  head -c 200000 /bin/busybox >large; echo small >small; \
                  printf '#!/bin/sh\\necho; echo ended; kill $PPID' >cgi-bin/end; \
                  chmod +x cgi-bin/end; httpd -f -p 8081 -h /tmp/www & \
                  server=$!; printf '#!/bin/sh\\necho; echo ended; kill '$server >cgi-bin/end; \
                  wait; cat large";
    let words = ["run", "-p", &forward, "--", "busybox", "sh", "-c", script];
    let ask = |name: &str| talk(port, format!("GET /{name} HTTP/1.0\r\n\r\n").as_bytes());
    let (output, heard) = std::thread::scope(|scope| {
        let host = scope.spawn(|| ["small", "large", "small", "cgi-bin/end"].map(ask));
        (xtask(&words, b""), host.join())
    });
    let output = output?;
    let bodies = heard.unwrap_or_default().map(|answer| body(&answer));
    Ok(expect("small", bodies[0].as_slice(), b"small\n".as_slice())
        .and(expect("large", bodies[1] == output.stdout && bodies[1].len() == 200_000, true))
        .and(expect("small again", bodies[2].as_slice(), b"small\n".as_slice()))
        .and(expect("the script", bodies[3].as_slice(), b"ended\n".as_slice())))
}

/// What stands behind the head of an answer.
fn body(answer: &[u8]) -> Vec<u8> {
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n" || part[2..] == *b"\n\n");
    end.map_or(Vec::new(), |at| answer[at + 4..].to_vec())
}

/// A shell whose streams are a connection, as inetd would start it: it and what it forks and
/// executes read and write in turn, and the stream ends when the last of them does.
pub fn shell() -> Result<Verdict> {
    let port = port_of(&local()?)?;
    let forward = format!("{port}:8081");
    // The last child holds the fifo open until it has ended, its own words sent.
    let script = "mkfifo /tmp/held; nc -l -p 8081 -e sh; echo status $?; cat /tmp/held";
    let words = ["run", "-p", &forward, "--", "busybox", "sh", "-c", script];
    let typed = b"echo one\n(echo two; echo 3 | cat)\nseq 1 20000 | tail -1\n\
                  sh -c 'exec 3>/tmp/held; sleep 0.3; exec busybox echo last' &\nexit 5\n";
    let (output, heard) = std::thread::scope(|scope| {
        let host = scope.spawn(|| talk(port, typed));
        (xtask(&words, b""), host.join())
    });
    let heard = heard.unwrap_or_default();
    let heard = String::from_utf8_lossy(&heard);
    Ok(expect("the host hears", heard.as_ref(), "one\ntwo\n3\n20000\nlast\n").and(expect(
        "output",
        output?.stdout.as_slice(),
        b"status 5\n".as_slice(),
    )))
}

/// Servers and clients in one guest, by the loopback address and by the own one: Debian's, and
/// Cheetah, which has no ExOS.
pub fn itself() -> Result<Verdict> {
    let script = "mkdir /tmp/www; echo page >/tmp/www/page; httpd -p 8081 -h /tmp/www; \
                  wget -q -O - http://127.0.0.1:8081/page || echo failed; \
                  wget -q -O - http://10.0.2.15:8081/page || echo failed; \
                  wget -q -O - http://127.0.0.1/ | head -n 1; \
                  nc -l -p 99 >/tmp/heard & \
                  until echo word | nc 127.0.0.1 99 2>/dev/null; do :; done; wait; \
                  cat /tmp/heard; nc 127.0.0.1 98 </dev/null 2>/dev/null || echo refused";
    let output = xtask(&["run", "--", "busybox", "sh", "-c", script], b"")?;
    let said = "page\npage\n<!doctype html>\nword\nrefused\n";
    Ok(expect("output", String::from_utf8_lossy(&output.stdout).as_ref(), said).and(expect(
        "status",
        output.status.code(),
        Some(0),
    )))
}

/// Says `text` to the guest's server as soon as there is one, and hears it to its end.
fn talk(port: u16, text: &[u8]) -> Vec<u8> {
    let end = Instant::now() + PATIENCE.min(LIMIT);
    while Instant::now() < end {
        let mut heard = Vec::new();
        match attempt(port, text, &mut heard) {
            Ok(()) if !heard.is_empty() => return heard,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return heard,
            // Not there yet: QEMU accepts before the guest does.
            _ => std::thread::sleep(Duration::from_millis(200)),
        }
    }
    Vec::new()
}

fn attempt(port: u16, text: &[u8], heard: &mut Vec<u8>) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(text)?;
    stream.shutdown(Shutdown::Write)?;
    stream.read_to_end(heard).map(|_| ())
}
