//! Debian's busybox on the network: a client, and a server on a forwarded port.

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
