//! An HTTP/1.1 server's side of one connection, without I/O (RFC 9110, RFC 9112).
//!
//! [`Connection`] takes bytes as they come and says what to send; files come from a [`Files`], in
//! pieces that lie where they lie. What is served: GET and HEAD of files, with keep-alive and
//! pipelining. What is refused, and how, is in [`Status`]; nothing a peer sends makes it hold more
//! than [`HEAD_MAX`] bytes.

mod connection;
mod date;
mod mime;
mod path;
mod request;
mod response;

pub use connection::{Connection, Files, Lookup, Step, Waiting};
pub use date::{DATE, write_date};
pub use mime::content_type;
pub use path::{decode, path_of};
pub use request::{Request, find_end, parse};
pub use response::Status;

/// Bytes of a request's line and headers.
pub const HEAD_MAX: usize = 8192;
/// Bytes of a request's target.
pub const TARGET_MAX: usize = 4096;
/// Header lines of a request.
pub const HEADERS_MAX: usize = 100;
/// Bytes of a request's body, which is skipped.
pub const BODY_MAX: u64 = 1 << 20;
