//! Cheetah from outside: files by curl, byte for byte, and what HTTP/1.1 asks of a server.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::workspace;

use super::inside::{GUEST, STRANGER, say};
use super::peer::connect;
use super::{SIZES, files};

/// Cheetah's port.
const PORT: u16 = 80;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Connections at one time.
const CONNECTIONS: usize = 16;
/// Connections that the server has at one time.
const PLACES: usize = 128;
/// For how long they may keep another one out: the second that the server gives each, and what a
/// busy host takes for a request.
const IN_THE_WAY: Duration = Duration::from_millis(1500);
/// Connections one after the other.
const IN_TURN: usize = 200;

type Verdict = Result<String, String>;

/// All of it.
pub fn run() {
    for (name, size) in SIZES {
        say(&format!("fetch_{name}"), fetch(name, size, &[]));
    }
    // The guest doesn't know this address's station, so that it has to ask before it can answer.
    say("fetch_to_stranger", fetch("10k", 10 << 10, &["--interface", STRANGER]));
    say("fetch_at_once", at_once());
    say("fetch_in_turn", in_turn());
    say("http_pipelined", pipelined());
    say("http_wrong", wrong());
    say("http_slow_request", slow_request());
    say("http_stalled", stalled());
    say("status_page", status_page());
}

/// Fetches a file by curl and compares it.
fn fetch(name: &str, size: usize, more: &[&str]) -> Verdict {
    let path = files().join(format!("{name}.bin"));
    let expected = std::fs::read(&path).map_err(|why| why.to_string())?;
    let begin = Instant::now();
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--fail", "--max-time", "60"])
        .args(more)
        .arg(format!("http://{GUEST}/net/{name}.bin"))
        .output()
        .map_err(|why| why.to_string())?;
    let took = begin.elapsed();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    if output.stdout != expected || expected.len() != size {
        return Err(format!("{} bytes came, {size} expected, or others", output.stdout.len()));
    }
    Ok(format!("({size} bytes in {} ms)", took.as_millis()))
}

/// Sends a request on a connection of its own, ends our stream, and reads to the end.
fn ask(request: &[u8]) -> Result<Vec<u8>, String> {
    let mut stream = connect(PORT, PATIENCE)?;
    // The server may answer and close before it has read all of a wrong request.
    let _ = stream.write_all(request).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(|why| format!("{why} after {} bytes", answer.len()))?;
    Ok(answer)
}

fn get(name: &str) -> Vec<u8> {
    format!("GET /net/{name}.bin HTTP/1.1\r\nHost: {GUEST}\r\n\r\n").into_bytes()
}

/// The body of an answer with status 200.
fn body(answer: &[u8]) -> Result<&[u8], String> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("no head")?;
    if !answer.starts_with(b"HTTP/1.1 200 OK\r\n") {
        return Err(String::from_utf8_lossy(&answer[..end]).into());
    }
    Ok(&answer[end + 4..])
}

fn check(name: &str, answer: &[u8]) -> Result<(), String> {
    let expected = std::fs::read(files().join(format!("{name}.bin")));
    if body(answer)? == expected.map_err(|why| why.to_string())? {
        return Ok(());
    }
    Err("another body".into())
}

fn at_once() -> Verdict {
    let threads: Vec<_> = (0..CONNECTIONS)
        .map(|_| std::thread::spawn(|| check("100k", &ask(&get("100k"))?)))
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    Ok(format!("({CONNECTIONS} connections)"))
}

fn in_turn() -> Verdict {
    let begin = Instant::now();
    for turn in 0..IN_TURN {
        let answer = ask(&get("100")).map_err(|why| format!("turn {turn}: {why}"))?;
        check("100", &answer).map_err(|why| format!("turn {turn}: {why}"))?;
    }
    Ok(format!("({IN_TURN} connections in {} ms)", begin.elapsed().as_millis()))
}

/// Three requests in one piece, three answers in order on one connection.
fn pipelined() -> Verdict {
    let mut requests = get("100");
    requests.extend(b"HEAD /net/10m.bin HTTP/1.1\r\nHost: x\r\n\r\n");
    requests.extend(get("10k"));
    let answer = ask(&requests)?;
    let text = String::from_utf8_lossy(&answer);
    let heads: Vec<_> = text.match_indices("HTTP/1.1 ").map(|(at, _)| &text[at..at + 12]).collect();
    if heads != ["HTTP/1.1 200"; 3] || !text.contains("Content-Length: 10485760") {
        return Err(format!("{heads:?}"));
    }
    let last = std::fs::read(files().join("10k.bin")).map_err(|why| why.to_string())?;
    if answer.ends_with(&last) { Ok(String::new()) } else { Err("another last body".into()) }
}

/// Every file of `tests/wrong/http` gets the status that its name begins with.
fn wrong() -> Verdict {
    let directory = workspace::root().join("tests/wrong/http");
    let entries = std::fs::read_dir(&directory).map_err(|why| why.to_string())?;
    let mut count = 0;
    for entry in entries {
        let path = entry.map_err(|why| why.to_string())?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().to_string());
        let name = name.unwrap_or_default();
        // The guest has other directories than the one that this asks for.
        if name.contains("directory_without_index") {
            continue;
        }
        let request = std::fs::read(&path).map_err(|why| why.to_string())?;
        let answer = ask(&request).map_err(|why| format!("{name}: {why}"))?;
        let expected = format!("HTTP/1.1 {} ", &name[..3]);
        if !answer.starts_with(expected.as_bytes()) {
            let answer = String::from_utf8_lossy(&answer[..answer.len().min(40)]).to_string();
            return Err(format!("{name}: {answer}"));
        }
        count += 1;
    }
    if count > 40 { Ok(format!("({count} files)")) } else { Err(format!("only {count} files")) }
}

/// A request that never ends is answered by 408, and nobody else waits meanwhile.
fn slow_request() -> Verdict {
    let mut slow: TcpStream = connect(PORT, PATIENCE)?;
    slow.write_all(b"GET / HTTP/1.1\r\nHo").map_err(|why| why.to_string())?;
    let begin = Instant::now();
    check("100", &ask(&get("100"))?)?;
    if begin.elapsed() > Duration::from_secs(5) {
        return Err("another request had to wait".into());
    }
    let mut answer = String::new();
    slow.read_to_string(&mut answer).map_err(|why| why.to_string())?;
    if answer.starts_with("HTTP/1.1 408 ") { Ok(String::new()) } else { Err(answer) }
}

/// A client that takes all places, and sends a part of a request on each, keeps another one out for
/// a second.
fn stalled() -> Verdict {
    let stall = || -> Result<TcpStream, String> {
        let mut stalled = connect(PORT, PATIENCE)?;
        stalled.write_all(b"GET / HTTP/1.1\r\nHo").map_err(|why| why.to_string())?;
        Ok(stalled)
    };
    let all: Vec<TcpStream> = (0..PLACES).map(|_| stall()).collect::<Result<_, _>>()?;
    // At once: the places are as young as they can be.
    let begin = Instant::now();
    check("100", &ask(&get("100"))?)?;
    let took = begin.elapsed();
    drop(all);
    if took > IN_THE_WAY {
        return Err(format!("another request had to wait for {} ms", took.as_millis()));
    }
    Ok(format!("({} ms)", took.as_millis()))
}

/// The status page shows the machine as it is: the counts move, and the parts are there.
fn status_page() -> Verdict {
    let mut answers = [0_u64; 2];
    for count in &mut answers {
        // A page that took long to make is good for some time.
        std::thread::sleep(Duration::from_secs(1));
        let page = ask(b"GET /status/tables HTTP/1.0\r\n\r\n")?;
        let page = String::from_utf8_lossy(body(&page)?).to_string();
        for part in [
            "Environments",
            "Owners of frames",
            "Filters",
            "Rings",
            "The kernel's memory",
            "Link addresses",
            "NetTransmit",
        ] {
            if !page.contains(part) {
                return Err(format!("no {part}"));
            }
        }
        let number = page.split(" answers, ").next().and_then(|text| text.rsplit(' ').next());
        *count = number.and_then(|text| text.parse().ok()).ok_or("no count of answers")?;
    }
    if answers[1] == answers[0] + 1 { Ok(String::new()) } else { Err(format!("{answers:?}")) }
}
