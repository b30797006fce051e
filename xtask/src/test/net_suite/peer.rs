//! The guest's peer: datagrams that its judge asks for, and two servers side by side.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use crate::boot_image;

use super::inside::{GUEST, Judge, say};

/// Where the judge listens for us.
const CONTROL: u16 = 9000;
/// The echo server's port.
const ECHO: u16 = 7;
/// The bulk sender's port.
const BULK: u16 = 19;
/// Bytes of the bulk sender's stream.
const STREAM: usize = 8 << 20;
/// Bytes that are echoed.
const ECHOED: usize = 1 << 20;
/// The port of the server with a TCP of its own.
const TINY: u16 = 13;
/// Connections to it.
const TINY_TIMES: usize = 20;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Datagrams sent without a pause: no more than a card's queue holds.
const BURST: u32 = 32;

type Verdict = Result<String, String>;

/// Does what `net: send PORT COUNT SIZE FROM` asks for, and says so.
pub fn send_datagrams(order: &str) -> Result<(), String> {
    let numbers: Vec<u32> = order.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [port, count, size, from] = numbers[..] else {
        return Err(format!("net: send {order}: not four numbers"));
    };
    let socket = UdpSocket::bind(("0.0.0.0", from as u16)).map_err(|why| why.to_string())?;
    for number in 0..count {
        let mut datagram = number.to_le_bytes().to_vec();
        datagram.extend((4..size).map(|at| at as u8));
        socket.send_to(&datagram, (GUEST, port as u16)).map_err(|why| why.to_string())?;
        if number % BURST == BURST - 1 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    // The card delivers in order, so what was sent before has arrived when this does.
    std::thread::sleep(Duration::from_millis(50));
    tell(b"sent")
}

fn tell(message: &[u8]) -> Result<(), String> {
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(|why| why.to_string())?;
    socket.send_to(message, (GUEST, CONTROL)).map(drop).map_err(|why| why.to_string())
}

/// Ends the judge.
pub fn end() -> Result<(), String> {
    tell(b"end")
}

/// Pings, two servers side by side, and the death of one of them.
pub fn run(judge: &mut Judge) {
    say("ping", ping());
    say("another_tcp", another_tcp());
    say("two_programs_side_by_side", side_by_side());
    say("killing_one_leaves_the_other", kill_one(judge));
}

/// After the judge has started the echo server again.
pub fn run_again() {
    say("port_reused", echo(ECHOED));
}

fn ping() -> Verdict {
    let busybox = boot_image::busybox().map_err(|why| why.to_string())?;
    let output = Command::new(busybox)
        .args(["ping", "-c", "3", "-W", "3", "-s", "1000", GUEST])
        .output()
        .map_err(|why| why.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    if said.contains("3 packets received") { Ok(String::new()) } else { Err(said.into()) }
}

/// A connection to a port of the guest.
pub fn connect(port: u16, patience: Duration) -> Result<TcpStream, String> {
    let address: SocketAddr = format!("{GUEST}:{port}").parse().map_err(|_| "no address")?;
    let stream = TcpStream::connect_timeout(&address, patience);
    let stream = stream.map_err(|why| format!("port {port}: {why}"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|why| why.to_string())?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(|why| why.to_string())?;
    Ok(stream)
}

/// The byte at `at` of the bulk sender's stream.
fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 8)) as u8
}

/// Reads the bulk sender's stream from `from` to `to`, comparing each byte.
fn read_bulk(stream: &mut TcpStream, from: usize, to: usize) -> Result<(), String> {
    let mut buffer = vec![0; 64 << 10];
    let mut at = from;
    while at < to {
        let want = buffer.len().min(to - at);
        let got = stream.read(&mut buffer[..want]).map_err(|why| format!("at {at}: {why}"))?;
        if got == 0 {
            return Err(format!("the stream ended at {at} of {to}"));
        }
        if let Some(wrong) = (0..got).find(|&offset| buffer[offset] != pattern(at + offset)) {
            return Err(format!("byte {} is wrong", at + wrong));
        }
        at += got;
    }
    Ok(())
}

fn bulk() -> Verdict {
    let mut stream = connect(BULK, PATIENCE)?;
    read_bulk(&mut stream, 0, STREAM)?;
    match stream.read(&mut [0]) {
        Ok(0) => Ok(String::new()),
        other => Err(format!("after the stream's end: {other:?}")),
    }
}

fn echo(length: usize) -> Verdict {
    let stream = connect(ECHO, PATIENCE)?;
    let sent: Vec<u8> = (0..length).map(|at| (at ^ (at >> 7)) as u8).collect();
    let mut writer = stream.try_clone().map_err(|why| why.to_string())?;
    let to_send = sent.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&to_send).and_then(|()| writer.shutdown(Shutdown::Write))
    });
    let mut got = Vec::new();
    let mut reader = stream;
    reader.read_to_end(&mut got).map_err(|why| format!("after {} bytes: {why}", got.len()))?;
    match writing.join() {
        Ok(Ok(())) if got == sent => Ok(String::new()),
        Ok(Ok(())) => Err(format!("{} of {length} bytes came back, or others", got.len())),
        other => Err(format!("writing: {other:?}")),
    }
}

/// A server with a TCP of its own, while the library's carries a stream beside it.
fn another_tcp() -> Verdict {
    let beside = std::thread::spawn(bulk);
    for time in 0..TINY_TIMES {
        let mut line = String::new();
        let mut stream = connect(TINY, PATIENCE)?;
        stream.read_to_string(&mut line).map_err(|why| format!("time {time}: {why}"))?;
        if line != "another TCP\n" {
            return Err(format!("time {time}: {line}"));
        }
    }
    beside.join().unwrap_or_else(|_| Err("a thread panicked".into()))
}

fn side_by_side() -> Verdict {
    let one = std::thread::spawn(bulk);
    let other = std::thread::spawn(|| echo(ECHOED));
    let join = |thread: std::thread::JoinHandle<Verdict>| {
        thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
    };
    let (one, other) = (join(one), join(other));
    one.map_err(|why| format!("bulk: {why}"))?;
    other.map_err(|why| format!("echo: {why}"))
}

/// In the middle of the bulk sender's stream the echo server is killed.
fn kill_one(judge: &mut Judge) -> Verdict {
    let mut stream = connect(BULK, PATIENCE)?;
    read_bulk(&mut stream, 0, STREAM / 8)?;
    let mut wish = connect(ECHO, PATIENCE)?;
    wish.write_all(b"kill me\n").map_err(|why| why.to_string())?;
    judge.until("net: killed")?;
    read_bulk(&mut stream, STREAM / 8, STREAM)?;
    Ok(String::new())
}
