//! The server's side of HTTP: what is right is served, each wrong input gets its answer.

mod wire;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use wire::Random;
use xio::http::{Connection, Files, HEAD_MAX, Lookup, Step, Waiting};

/// Files in memory, in pieces of an odd size.
struct Memory(BTreeMap<&'static str, Vec<u8>>);

impl Files for &'static Memory {
    type File = String;

    fn open(&mut self, name: &str) -> Lookup<String> {
        assert!(!name.starts_with('/') && name.split('/').all(|part| part != ".."), "{name}");
        if self.0.contains_key(name) {
            return Lookup::File(name.to_string());
        }
        let below = format!("{name}/");
        let directory = self.0.keys().any(|known| known.starts_with(&below));
        if directory { Lookup::Directory } else { Lookup::Missing }
    }

    fn length(&self, file: &String) -> u64 {
        self.0[file.as_str()].len() as u64
    }

    fn piece<'a>(&'a self, file: &'a String, offset: u64) -> &'a [u8] {
        let rest = &self.0[file.as_str()][offset as usize..];
        &rest[..rest.len().min(997)]
    }
}

fn files() -> &'static Memory {
    static FILES: OnceLock<Memory> = OnceLock::new();
    FILES.get_or_init(|| {
        Memory(BTreeMap::from([
            ("index.html", b"<h1>hello</h1>".to_vec()),
            ("sub/index.html", b"below".to_vec()),
            ("sub/a b.txt", b"spaced".to_vec()),
            ("empty/x", Vec::new()),
            ("big.bin", Random::new(5).bytes(100_000)),
        ]))
    })
}

/// One answer, taken apart.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Peer {
    connection: Connection<String>,
    files: &'static Memory,
    output: Vec<u8>,
    closed: bool,
}

impl Peer {
    fn new() -> Peer {
        Peer { connection: Connection::new(), files: files(), output: Vec::new(), closed: false }
    }

    /// Gives bytes, in pieces of `step`; takes everything the other side sends, in pieces too.
    fn say(&mut self, bytes: &[u8], step: usize) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.connection.push(&rest[..rest.len().min(step)]);
            rest = &rest[taken..];
            self.listen(step);
        }
    }

    fn listen(&mut self, step: usize) {
        while !self.closed {
            let count = match self.connection.next(&mut self.files, None) {
                Step::Send(bytes) => {
                    let count = bytes.len().min(step);
                    self.output.extend_from_slice(&bytes[..count]);
                    count
                }
                Step::Wait => return,
                Step::Close => {
                    self.closed = true;
                    return;
                }
                Step::Abort => panic!("aborted"),
            };
            assert!(count > 0);
            self.connection.sent(count);
        }
    }

    /// The answers so far; `heads` tells which of them answer a HEAD.
    fn answers(&self, heads: &[usize]) -> Vec<Answer> {
        let mut rest = &self.output[..];
        let mut answers = Vec::new();
        while !rest.is_empty() {
            let end = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
            let head = std::str::from_utf8(&rest[..end]).unwrap();
            let mut lines = head.split("\r\n");
            let line = lines.next().unwrap();
            assert!(line.starts_with("HTTP/1.1 "), "{line}");
            let status = line[9..12].parse().unwrap();
            let headers: BTreeMap<_, _> = lines
                .map(|line| line.split_once(": ").unwrap())
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect();
            let length: usize = headers["Content-Length"].parse().unwrap();
            let length = if heads.contains(&answers.len()) { 0 } else { length };
            let body = rest[end + 4..end + 4 + length].to_vec();
            rest = &rest[end + 4 + length..];
            answers.push(Answer { status, headers, body });
        }
        answers
    }
}

fn ask(request: &str) -> (Answer, bool) {
    let mut peer = Peer::new();
    peer.say(request.as_bytes(), usize::MAX);
    let mut answers = peer.answers(if request.starts_with("HEAD") { &[0] } else { &[] });
    assert_eq!(answers.len(), 1, "{request}");
    (answers.remove(0), peer.closed)
}

#[test]
fn files_are_served_whole() {
    let (answer, closed) = ask("GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((answer.status, closed), (200, false));
    assert!(answer.body == files().0["big.bin"]);
    assert_eq!(answer.headers["Content-Type"], "application/octet-stream");
    let (answer, _) = ask("GET /sub/a%20b.txt?x=y HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((answer.status, &answer.body[..]), (200, &b"spaced"[..]));
    assert_eq!(answer.headers["Content-Type"], "text/plain; charset=utf-8");
    let (answer, _) = ask("GET /empty/x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((answer.status, answer.body.len()), (200, 0));
}

#[test]
fn directories_show_their_index() {
    let (answer, _) = ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(&answer.body, b"<h1>hello</h1>");
    let (answer, _) = ask("GET http://x/sub/ HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(&answer.body, b"below");
    let (answer, _) = ask("GET /sub?q HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((answer.status, &*answer.headers["Location"]), (301, "/sub/"));
}

#[test]
fn head_is_get_without_its_body() {
    let (answer, closed) = ask("HEAD /big.bin HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((answer.status, &*answer.headers["Content-Length"]), (200, "100000"));
    assert!(!closed);
    let (answer, _) = ask("HEAD /none HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(answer.status, 404);
    let (answer, _) = ask("HEAD /../x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(answer.status, 400);
}

#[test]
fn pipelined_requests_are_answered_in_order_however_they_are_cut() {
    let requests = "GET /index.html HTTP/1.1\r\nHost: x\r\n\r\n\
        \r\nGET /none HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\nignored\
        HEAD /big.bin HTTP/1.1\r\nHost: x\r\n\r\n\
        GET /big.bin HTTP/1.1\nHost: x\n\n\
        GET /sub/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\
        GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n\
        GET / HTTP/1.1\r\nHost: never read\r\n\r\n";
    for step in (1..50).chain([usize::MAX]) {
        let mut peer = Peer::new();
        peer.say(requests.as_bytes(), step);
        let answers = peer.answers(&[2]);
        let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [200, 404, 200, 200, 200, 200], "in steps of {step}");
        assert!(answers[3].body == files().0["big.bin"]);
        assert_eq!(answers[4].headers["Connection"], "keep-alive");
        assert_eq!(answers[5].headers["Connection"], "close");
        assert!(peer.closed);
        assert_eq!(peer.connection.answers(), 6);
    }
}

#[test]
fn old_clients_get_their_connection_closed() {
    let (answer, closed) = ask("GET / HTTP/1.0\r\n\r\n");
    assert_eq!((answer.status, closed), (200, true));
}

#[test]
fn a_body_that_waits_for_leave_is_not_waited_for() {
    let (answer, closed) =
        ask("GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n");
    assert_eq!((answer.status, closed), (200, true));
}

#[test]
fn the_end_of_input_ends_the_connection_after_its_answers() {
    let mut peer = Peer::new();
    assert_eq!(peer.connection.waiting(), Waiting::Request);
    peer.connection.push(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT");
    peer.connection.end_input();
    peer.listen(1000);
    assert_eq!(peer.answers(&[]).len(), 1);
    assert!(peer.closed);
}

#[test]
fn a_request_that_never_ends_times_out() {
    let mut peer = Peer::new();
    peer.say(b"GET / HTTP/1.1\r\nHo", 5);
    assert_eq!(peer.connection.waiting(), Waiting::Rest);
    peer.connection.time_out(Some(0));
    peer.listen(1000);
    assert_eq!(peer.answers(&[])[0].status, 408);
    assert!(peer.closed);

    let mut idle = Peer::new();
    idle.connection.time_out(None);
    idle.listen(1000);
    assert!(idle.closed && idle.output.is_empty());
}

#[test]
fn input_is_bounded_while_an_answer_waits() {
    let mut connection = Connection::<String>::new();
    let mut files = files();
    let request = b"GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n";
    connection.push(request);
    assert!(matches!(connection.next(&mut files, None), Step::Send(_)));
    let mut taken = 0;
    loop {
        match connection.push(request) {
            0 => break,
            count => taken += count,
        }
    }
    assert_eq!(taken, HEAD_MAX);
    assert_eq!(connection.waiting(), Waiting::Peer);
}

#[test]
fn a_file_that_ends_early_aborts_its_answer() {
    struct Short;
    impl Files for Short {
        type File = ();
        fn open(&mut self, _: &str) -> Lookup<()> {
            Lookup::File(())
        }
        fn length(&self, _: &()) -> u64 {
            100
        }
        fn piece<'a>(&'a self, _: &'a (), offset: u64) -> &'a [u8] {
            &[7; 60][(offset as usize).min(60)..]
        }
    }
    let mut connection = Connection::new();
    connection.push(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut sent = 0;
    while let Step::Send(bytes) = connection.next(&mut Short, None) {
        sent = bytes.len();
        connection.sent(sent);
    }
    assert_eq!(sent, 60);
    assert_eq!(connection.next(&mut Short, None), Step::Abort);
}

#[test]
fn each_wrong_input_gets_its_answer() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/wrong/http");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let expected: u16 = name.split('-').next().unwrap().parse().unwrap();
        let input = std::fs::read(&path).unwrap();
        for step in [usize::MAX, 1, 7] {
            let mut peer = Peer::new();
            peer.say(&input, step);
            let answers = peer.answers(&[]);
            assert_eq!(answers.len(), 1, "{name} in steps of {step}");
            assert_eq!(answers[0].status, expected, "{name} in steps of {step}");
            assert_eq!(peer.closed, expected != 404, "{name}");
            assert_eq!(answers[0].headers.contains_key("Allow"), expected == 405, "{name}");
        }
        count += 1;
    }
    assert!(count >= 50, "only {count} files found");
}

#[test]
fn mutated_requests_never_panic_and_answers_stay_whole() {
    let good = b"GET /sub/a%20b.txt?x=y HTTP/1.1\r\nHost: x:80\r\nConnection: keep-alive\r\n\
        Content-Length: 3\r\n\r\nabc";
    let mut random = Random::new(3);
    for _ in 0..50_000 {
        let mut input = good.to_vec();
        for _ in 0..1 + random.below(4) {
            let at = random.below(input.len() as u64) as usize;
            match random.below(4) {
                0 => input[at] = random.next() as u8,
                1 => input[at] ^= 1 << random.below(8),
                2 => drop(input.remove(at)),
                _ => input.insert(at, b" \r\n:/%.0"[random.below(8) as usize]),
            }
        }
        let mut peer = Peer::new();
        peer.say(&input, 1 + random.below(60) as usize);
        let head = input.starts_with(b"HEAD");
        for answer in peer.answers(if head { &[0] } else { &[] }) {
            assert!(
                [200, 301, 400, 404, 405, 413, 414, 417, 431, 501, 505].contains(&answer.status)
            );
        }
    }
}
