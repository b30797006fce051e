//! One connection: bytes in, bytes out, one answer after the other.
//!
//! ```text
//!  push(bytes) ─▶ input ─▶ request ─▶ Files::open ─▶ head, pieces of file ─▶ next() ─▶ sent(n)
//! ```
//! A request is looked at only when the answer before it has been sent, so pipelined requests wait
//! in the input, which is bounded; when it is full `push` takes nothing and TCP's window closes.

use alloc::string::String;
use alloc::vec::Vec;

use super::response::Head;
use super::{HEAD_MAX, Status, content_type, decode, find_end, parse, path_of};

/// The file that stands for a directory.
const INDEX: &str = "index.html";

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<F> {
    /// A file.
    File(F),
    /// A directory.
    Directory,
    /// Nothing.
    Missing,
    /// There is no memory to say what.
    NoMemory,
}

/// Where files come from.
pub trait Files {
    /// An open file.
    type File;

    /// Opens the file of this name: decoded, without a slash in front, no segment `.` or `..`.
    fn open(&mut self, name: &str) -> Lookup<Self::File>;

    /// Its length, which must not change while it is open.
    fn length(&self, file: &Self::File) -> u64;

    /// Bytes of the file from `offset` on, as many as lie together; none: it can't be read further.
    fn piece<'a>(&'a self, file: &'a Self::File, offset: u64) -> &'a [u8];

    /// What it holds, where its name doesn't tell.
    fn content_type(&self, _file: &Self::File) -> Option<&'static str> {
        None
    }
}

/// What to do next with the connection below.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Send these bytes, or some of them, and report by [`Connection::sent`].
    Send(&'a [u8]),
    /// Give more input.
    Wait,
    /// End the stream in good order.
    Close,
    /// Reset: an answer that was promised can't be finished.
    Abort,
}

/// What a connection waits for; its owner's clock decides for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// A request of which nothing has come.
    Request,
    /// The rest of a request.
    Rest,
    /// The peer, to take an answer.
    Peer,
}

enum Body<F> {
    None,
    Text(&'static str),
    File(F),
}

struct Answer<F> {
    head: Vec<u8>,
    head_sent: usize,
    body: Body<F>,
    length: u64,
    body_sent: u64,
}

/// The server's side of one connection.
pub struct Connection<F> {
    input: Vec<u8>,
    /// Bytes of input in which no end of a head was found.
    searched: usize,
    /// Bytes of a body still to come, which are thrown away.
    skip: u64,
    input_ended: bool,
    answer: Option<Answer<F>>,
    /// No further request is read.
    closing: bool,
    answers: u64,
}

impl<F> Default for Connection<F> {
    fn default() -> Self {
        Connection::new()
    }
}

impl<F> Connection<F> {
    /// A connection just accepted.
    pub fn new() -> Connection<F> {
        Connection {
            input: Vec::new(),
            searched: 0,
            skip: 0,
            input_ended: false,
            answer: None,
            closing: false,
            answers: 0,
        }
    }

    /// Takes bytes that have arrived; how many. 0 of some: not before more has been sent, or there
    /// is memory for them.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        if self.closing {
            // Nobody will look at them; but they must not stop the end from coming.
            return bytes.len();
        }
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
        self.skip -= skipped as u64;
        let room = HEAD_MAX - self.input.len();
        let taken = room.min(bytes.len() - skipped);
        // Without memory for them they wait where they are.
        let taken = if self.input.try_reserve(taken).is_ok() { taken } else { 0 };
        self.input.extend_from_slice(&bytes[skipped..skipped + taken]);
        skipped + taken
    }

    /// The peer has ended its stream: what it asked is still answered.
    pub fn end_input(&mut self) {
        self.input_ended = true;
    }

    /// What to do now.
    pub fn next<'a, S: Files<File = F>>(
        &'a mut self,
        files: &'a mut S,
        date: Option<u64>,
    ) -> Step<'a> {
        if self.answer.is_none() && !self.closing {
            self.read_request(files, date);
        }
        let Some(answer) = &self.answer else {
            return if self.closing || self.input_ended { Step::Close } else { Step::Wait };
        };
        if answer.head_sent < answer.head.len() {
            return Step::Send(&answer.head[answer.head_sent..]);
        }
        let left = usize::try_from(answer.length - answer.body_sent).unwrap_or(usize::MAX);
        let piece = match &answer.body {
            Body::None => &[],
            Body::Text(text) => text.as_bytes().get(answer.body_sent as usize..).unwrap_or(&[]),
            Body::File(file) => files.piece(file, answer.body_sent),
        };
        match piece {
            [] => Step::Abort,
            _ => Step::Send(&piece[..piece.len().min(left)]),
        }
    }

    /// So many bytes of what `next` gave were sent.
    pub fn sent(&mut self, count: usize) {
        let Some(answer) = &mut self.answer else { return };
        if answer.head_sent < answer.head.len() {
            answer.head_sent += count;
        } else {
            answer.body_sent += count as u64;
        }
        if answer.head_sent >= answer.head.len() && answer.body_sent >= answer.length {
            self.answer = None;
            self.answers += 1;
        }
    }

    /// What it waits for.
    pub fn waiting(&self) -> Waiting {
        if self.answer.is_some() {
            Waiting::Peer
        } else if self.input.is_empty() && self.skip == 0 {
            Waiting::Request
        } else {
            Waiting::Rest
        }
    }

    /// It waited too long: a request half sent is answered by 408; then the stream ends.
    pub fn time_out(&mut self, date: Option<u64>) {
        if self.answer.is_none() && !self.closing && !self.input.is_empty() {
            self.refuse(Status::RequestTimeout, (false, None, date));
        }
        self.closing = true;
    }

    /// Answers sent in full.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    fn read_request<S: Files<File = F>>(&mut self, files: &mut S, date: Option<u64>) {
        // Empty lines before a request are nothing (RFC 9112 §2.2).
        let blank = self.input.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        if blank > 0 {
            self.input.drain(..blank);
            self.searched = 0;
        }
        let Some(end) = find_end(&self.input, self.searched) else {
            self.searched = self.input.len();
            if self.input.len() == HEAD_MAX {
                let line_ended = self.input.contains(&b'\n');
                let status = if line_ended { Status::HeadersTooLarge } else { Status::UriTooLong };
                self.refuse(status, (false, None, date));
            } else if self.input_ended {
                self.closing = true;
            }
            return;
        };
        let mut head = Vec::new();
        if head.try_reserve_exact(end).is_err() {
            return self.refuse(Status::ServiceUnavailable, (false, Some("close"), date));
        }
        head.extend(self.input.drain(..end));
        self.searched = 0;
        match parse(&head) {
            Ok(request) => {
                let skipped = usize::try_from(request.body).unwrap_or(usize::MAX);
                let skipped = skipped.min(self.input.len());
                self.input.drain(..skipped);
                self.skip = request.body - skipped as u64;
                let connection = match (request.keep_alive, request.version_1_1) {
                    (false, _) => Some("close"),
                    (true, false) => Some("keep-alive"),
                    (true, true) => None,
                };
                self.closing = !request.keep_alive;
                self.serve(files, request.target, (request.head_only, connection, date));
            }
            Err(status) => self.refuse(status, (head.starts_with(b"HEAD "), None, date)),
        }
    }

    /// Answers what can't be answered as asked, and reads no further.
    fn refuse(&mut self, status: Status, (head_only, _, date): How) {
        self.closing |= status.closes();
        self.input.clear();
        self.answer_text(status, None, (head_only, Some("close"), date));
    }

    fn serve<S: Files<File = F>>(&mut self, files: &mut S, target: &str, how: How) {
        let (path, name) = match path_of(target).and_then(|path| Ok((path, decode(path)?))) {
            Ok(found) => found,
            Err(status) => return self.refuse(status, how),
        };
        // A name with an empty segment in the middle is nobody's.
        if name.starts_with('/') || name.contains("//") {
            return self.answer_text(Status::NotFound, None, how);
        }
        let is_directory = name.is_empty() || name.ends_with('/');
        let mut name = name;
        if is_directory {
            if name.try_reserve_exact(INDEX.len()).is_err() {
                return self.answer_text(Status::ServiceUnavailable, None, how);
            }
            name.push_str(INDEX);
        }
        let file = match files.open(&name) {
            Lookup::File(file) => file,
            Lookup::Directory if !is_directory => {
                let mut location = String::new();
                if location.try_reserve_exact(path.len() + 1).is_err() {
                    return self.answer_text(Status::ServiceUnavailable, None, how);
                }
                [path, "/"].into_iter().for_each(|part| location.push_str(part));
                return self.answer_text(Status::MovedPermanently, Some(&location), how);
            }
            Lookup::NoMemory => return self.answer_text(Status::ServiceUnavailable, None, how),
            _ => return self.answer_text(Status::NotFound, None, how),
        };
        let kind = files.content_type(&file).unwrap_or_else(|| content_type(&name));
        let length = files.length(&file);
        self.answer(Status::Ok, (kind, length, Body::File(file)), None, how);
    }

    fn answer_text(&mut self, status: Status, location: Option<&str>, how: How) {
        let text = status.text();
        let body = ("text/plain; charset=utf-8", text.len() as u64, Body::Text(text));
        self.answer(status, body, location, how);
    }

    fn answer(
        &mut self,
        status: Status,
        (kind, length, body): (&str, u64, Body<F>),
        location: Option<&str>,
        (head_only, connection, date): How,
    ) {
        let head = Head { status, content_type: kind, length, location, connection, date };
        let Some(head) = head.to_bytes() else {
            // Not even that can be said.
            self.closing = true;
            return;
        };
        let (length, body) = if head_only { (0, Body::None) } else { (length, body) };
        self.answer = Some(Answer { head, head_sent: 0, body, length, body_sent: 0 });
    }
}

/// How to answer: without a body, what to say of the connection, and the date.
type How = (bool, Option<&'static str>, Option<u64>);
