//! A request's line and headers (RFC 9112 §2–§5, RFC 9110 §5).

use super::{BODY_MAX, HEADERS_MAX, Status, TARGET_MAX};

/// Methods of RFC 9110 and RFC 5789 that exist and are not served here.
const OTHER_METHODS: [&str; 7] = ["POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// HEAD: the same answer without its body.
    pub head_only: bool,
    /// The target, as it was written; visible ASCII.
    pub target: &'a str,
    /// Version 1.1 or a later 1.x; else 1.0.
    pub version_1_1: bool,
    /// Should the connection stay open afterwards?
    pub keep_alive: bool,
    /// Bytes of body that follow, to be skipped.
    pub body: u64,
}

/// The length of a head that ends in `bytes` (empty line included), looked for from `from` on.
///
/// Lines end in CR LF; a bare LF is taken as well (RFC 9112 §2.2).
pub fn find_end(bytes: &[u8], from: usize) -> Option<usize> {
    // The end may have begun up to two bytes before what is new.
    let start = from.saturating_sub(2);
    let new = bytes.get(start..)?;
    for (at, _) in new.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        match &new[at + 1..] {
            [b'\n', ..] => return Some(start + at + 2),
            [b'\r', b'\n', ..] => return Some(start + at + 3),
            _ => {}
        }
    }
    None
}

/// Reads a head, up to and including its empty line. An error says which answer it gets; whether
/// the connection can go on then, [`Status::closes`] knows.
pub fn parse(head: &[u8]) -> Result<Request<'_>, Status> {
    let mut lines =
        head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first = lines.next().ok_or(Status::BadRequest)?;
    let (method, target, version_1_1) = request_line(first)?;

    let mut fields = Fields::default();
    for (count, line) in lines.take_while(|line| !line.is_empty()).enumerate() {
        if count == HEADERS_MAX {
            return Err(Status::HeadersTooLarge);
        }
        fields.take(line)?;
    }
    let body = fields.body(version_1_1)?;
    // Exactly one host names itself in 1.1 (RFC 9112 §3.2).
    if fields.hosts > 1 || (version_1_1 && fields.hosts == 0) {
        return Err(Status::BadRequest);
    }
    if fields.other_expectation {
        return Err(Status::ExpectationFailed);
    }
    let head_only = match method {
        "GET" => false,
        "HEAD" => true,
        _ if OTHER_METHODS.contains(&method) => return Err(Status::MethodNotAllowed),
        _ => return Err(Status::NotImplemented),
    };
    // Who waits for "100 Continue" before the body gets the answer instead, and no body follows.
    let waits = fields.expects && body > 0;
    let keep_alive = if version_1_1 { !fields.close } else { fields.keep_alive && !fields.close };
    Ok(Request { head_only, target, version_1_1, keep_alive: keep_alive && !waits, body })
}

fn request_line(line: &[u8]) -> Result<(&str, &str, bool), Status> {
    let mut words = line.split(|byte| *byte == b' ');
    let method = words.next().unwrap_or_default();
    let target = words.next().ok_or(Status::BadRequest)?;
    if target.len() > TARGET_MAX {
        return Err(Status::UriTooLong);
    }
    let version = words.next().ok_or(Status::BadRequest)?;
    if words.next().is_some() || method.is_empty() || !method.iter().copied().all(is_token) {
        return Err(Status::BadRequest);
    }
    if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
        return Err(Status::BadRequest);
    }
    let version_1_1 = match version {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor] if minor.is_ascii_digit() => {
            *minor > b'0'
        }
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            return Err(Status::VersionNotSupported);
        }
        _ => return Err(Status::BadRequest),
    };
    // Only ASCII so far, so these can't fail.
    let text = |bytes| core::str::from_utf8(bytes).map_err(|_| Status::BadRequest);
    Ok((text(method)?, text(target)?, version_1_1))
}

/// What the headers say that matters here.
#[derive(Default)]
struct Fields {
    hosts: u32,
    close: bool,
    keep_alive: bool,
    length: Option<u64>,
    coding: bool,
    expects: bool,
    other_expectation: bool,
}

impl Fields {
    fn take(&mut self, line: &[u8]) -> Result<(), Status> {
        let colon = line.iter().position(|byte| *byte == b':').ok_or(Status::BadRequest)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        // A line that goes on the last one begins with a space, which no name does.
        if name.is_empty() || !name.iter().copied().all(is_token) {
            return Err(Status::BadRequest);
        }
        if value.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f) {
            return Err(Status::BadRequest);
        }
        if name.eq_ignore_ascii_case(b"host") {
            self.hosts += 1;
            if !value.iter().copied().all(is_host) {
                return Err(Status::BadRequest);
            }
        } else if name.eq_ignore_ascii_case(b"connection") {
            for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                self.close |= option.eq_ignore_ascii_case(b"close");
                self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let length = number(value).ok_or(Status::BadRequest)?;
            if self.length.is_some_and(|other| other != length) {
                return Err(Status::BadRequest);
            }
            self.length = Some(length);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.coding = true;
        } else if name.eq_ignore_ascii_case(b"expect") {
            self.expects = true;
            self.other_expectation |= !value.eq_ignore_ascii_case(b"100-continue");
        }
        Ok(())
    }

    /// The length of the body. A body whose end only its coding tells isn't read at all.
    fn body(&self, version_1_1: bool) -> Result<u64, Status> {
        if self.coding {
            // Both at once, or a coding in 1.0, is how requests are smuggled (RFC 9112 §6.1).
            let smuggled = self.length.is_some() || !version_1_1;
            return Err(if smuggled { Status::BadRequest } else { Status::NotImplemented });
        }
        match self.length.unwrap_or(0) {
            length if length > BODY_MAX => Err(Status::ContentTooLarge),
            length => Ok(length),
        }
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // A number too large for any body is as good as the largest one.
    let step =
        |number: u64, digit: &u8| number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, step))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%:[]".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_found_wherever_the_bytes_were_cut() {
        for head in [&b"GET / HTTP/1.0\r\nA: b\r\n\r\n"[..], b"GET / HTTP/1.0\nA: b\n\n"] {
            for cut in 0..head.len() {
                assert_eq!(find_end(&head[..cut], 0), None);
                assert_eq!(find_end(head, cut), Some(head.len()), "cut at {cut}");
            }
        }
    }

    #[test]
    fn keep_alive_follows_version_and_header() {
        let keeps = |version: &str, connection: &str| {
            let head = std::format!("GET / HTTP/{version}\r\nHost: x\r\n{connection}\r\n");
            parse(head.as_bytes()).unwrap().keep_alive
        };
        assert!(keeps("1.1", ""));
        assert!(!keeps("1.1", "Connection: close\r\n"));
        assert!(!keeps("1.1", "connection: x, CLOSE\r\n"));
        assert!(!keeps("1.0", ""));
        assert!(keeps("1.0", "Connection: Keep-Alive\r\n"));
        assert!(!keeps("1.0", "Connection: keep-alive\r\nConnection: close\r\n"));
    }

    #[test]
    fn a_plain_request() {
        let head = b"HEAD /x?y HTTP/1.1\r\nHost: a:80\r\nContent-Length: 5\r\n\r\n";
        let request = parse(head).unwrap();
        assert_eq!((request.head_only, request.target, request.body), (true, "/x?y", 5));
    }
}
