//! The client: connections that ask for one document until enough answers have come.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is asked of whom.
#[derive(Clone, Debug)]
pub struct Load {
    /// The server.
    pub address: SocketAddr,
    /// The document.
    pub path: String,
    /// Its bytes.
    pub size: usize,
    /// Whether connections stay for the next request.
    pub keep: bool,
}

impl Load {
    /// Makes so many requests over so many connections at a time; how long it took. An answer that
    /// is not the whole document is a failure.
    pub fn run(&self, connections: usize, requests: usize) -> Result<Duration> {
        let begun = Instant::now();
        let left = AtomicUsize::new(requests);
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..connections).map(|_| scope.spawn(|| self.ask_while(&left))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, std::io::Result<()>>| {
                thread.join().map_err(|_| Failure::new("a client's thread panicked"))
            };
            threads.into_iter().try_for_each(|thread| {
                join(thread)?.map_err(|why| {
                    Failure::new(format!("http://{}{}: {why}", self.address, self.path))
                })
            })
        })?;
        Ok(begun.elapsed())
    }

    fn ask_while(&self, left: &AtomicUsize) -> std::io::Result<()> {
        let next = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        let mut kept = None;
        while next().is_ok() {
            let connection = match kept.take() {
                Some(connection) => connection,
                None => self.connect()?,
            };
            let connection = self.ask(connection)?;
            kept = Some(connection).filter(|_| self.keep);
        }
        Ok(())
    }

    fn connect(&self) -> std::io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(BufReader::with_capacity(64 << 10, stream))
    }

    fn ask(&self, mut from: BufReader<TcpStream>) -> std::io::Result<BufReader<TcpStream>> {
        let (path, address) = (&self.path, self.address);
        let connection = if self.keep { "keep-alive" } else { "close" };
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: {connection}\r\n\r\n");
        from.get_mut().write_all(request.as_bytes())?;
        let wrong = |what: String| std::io::Error::other(what);
        let mut line = String::new();
        from.read_line(&mut line)?;
        if !line.starts_with("HTTP/1.1 200 ") {
            return Err(wrong(format!("answered {line:?}")));
        }
        let mut length = None;
        loop {
            line.clear();
            from.read_line(&mut line)?;
            if line == "\r\n" {
                break;
            }
            if line.is_empty() {
                return Err(wrong("ended in its headers".into()));
            }
            let (name, value) = line.split_once(':').unwrap_or(("", ""));
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok();
            }
        }
        if length != Some(self.size) {
            return Err(wrong(format!("has {length:?} bytes, not {}", self.size)));
        }
        let mut body = vec![0; self.size];
        from.read_exact(&mut body)?;
        Ok(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Answers so many connections, each with as many answers as requests come.
    fn serve(body: &'static str, connections: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(connections) {
                let mut lines = BufReader::new(stream.unwrap());
                let mut line = String::new();
                while lines.read_line(&mut line).is_ok_and(|length| length > 0) {
                    if line == "\r\n" {
                        let length = body.len();
                        let answer =
                            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
                        lines.get_mut().write_all(answer.as_bytes()).unwrap();
                    }
                    line.clear();
                }
            }
        });
        address
    }

    fn load(address: SocketAddr, size: usize, keep: bool) -> Load {
        Load { address, path: "/x".into(), size, keep }
    }

    #[test]
    fn connections_are_kept_or_not() {
        assert!(load(serve("hello", 1), 5, true).run(1, 10).is_ok());
        assert!(load(serve("hello", 10), 5, false).run(1, 10).is_ok());
    }

    #[test]
    fn another_document_is_a_failure() {
        assert!(load(serve("hello", 1), 6, true).run(1, 1).is_err());
    }
}
