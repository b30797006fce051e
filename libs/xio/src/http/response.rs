//! Answers: their status, and how their head is written (RFC 9110 §15, RFC 9112 §4).

use alloc::vec::Vec;

use super::date::{DATE, write_date};

macro_rules! statuses {
    ($(
        $(#[doc = $doc:literal])+
        $number:literal $name:ident $reason:literal $closes:literal;
    )+) => {
        /// What an answer says.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Status { $($(#[doc = $doc])+ $name = $number),+ }

        impl Status {
            /// Its line, without the version, as a body for those who look at it.
            pub fn text(self) -> &'static str {
                match self { $(Status::$name => concat!($number, " ", $reason, "\n")),+ }
            }

            /// Is it unknown after it where the next request begins?
            pub fn closes(self) -> bool {
                match self { $(Status::$name => $closes),+ }
            }
        }
    };
}

statuses! {
    /// Here it is.
    200 Ok "OK" false;
    /// It is a directory: ask with a slash.
    301 MovedPermanently "Moved Permanently" false;
    /// Not HTTP.
    400 BadRequest "Bad Request" true;
    /// No such file.
    404 NotFound "Not Found" false;
    /// Only GET and HEAD.
    405 MethodNotAllowed "Method Not Allowed" true;
    /// The request never came to its end.
    408 RequestTimeout "Request Timeout" true;
    /// A body larger than is skipped.
    413 ContentTooLarge "Content Too Large" true;
    /// A target longer than is read.
    414 UriTooLong "URI Too Long" true;
    /// An `Expect` other than `100-continue`.
    417 ExpectationFailed "Expectation Failed" true;
    /// Headers longer or more than are read.
    431 HeadersTooLarge "Request Header Fields Too Large" true;
    /// A method or a transfer coding that isn't known.
    501 NotImplemented "Not Implemented" true;
    /// There is no memory for the answer now.
    503 ServiceUnavailable "Service Unavailable" true;
    /// Not version 1.
    505 VersionNotSupported "HTTP Version Not Supported" true;
}

/// Bytes of a head at most, without the location.
const FIXED: usize = 384;

/// The head of an answer.
pub struct Head<'a> {
    pub status: Status,
    pub content_type: &'a str,
    pub length: u64,
    pub location: Option<&'a str>,
    /// What to say about the connection, if anything.
    pub connection: Option<&'static str>,
    /// Seconds since 1970, if they are known.
    pub date: Option<u64>,
}

impl Head<'_> {
    /// Its bytes, the empty line included; `None`: there is no memory for them.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        out.try_reserve_exact(FIXED + self.location.map_or(0, str::len)).ok()?;
        let mut put = |parts: &[&str]| {
            for part in parts {
                out.extend_from_slice(part.as_bytes());
            }
        };
        put(&["HTTP/1.1 ", self.status.text().trim_end(), "\r\n"]);
        if let Some(seconds) = self.date {
            let mut date = [0; DATE];
            write_date(seconds, &mut date);
            // A date is ASCII.
            put(&["Date: ", core::str::from_utf8(&date).unwrap_or_default(), "\r\n"]);
        }
        put(&["Content-Type: ", self.content_type, "\r\n"]);
        put(&["Content-Length: ", decimal(self.length, &mut [0; 20]), "\r\n"]);
        if self.status == Status::MethodNotAllowed {
            put(&["Allow: GET, HEAD\r\n"]);
        }
        if let Some(location) = self.location {
            put(&["Location: ", location, "\r\n"]);
        }
        if let Some(connection) = self.connection {
            put(&["Connection: ", connection, "\r\n"]);
        }
        put(&["\r\n"]);
        Some(out)
    }
}

fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &str {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    // Digits are ASCII.
    core::str::from_utf8(&digits[at..]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_written_line_by_line() {
        let head = Head {
            status: Status::MethodNotAllowed,
            content_type: "text/plain",
            length: 1_234_567,
            location: None,
            connection: Some("close"),
            date: Some(784_111_777),
        };
        let expected = "HTTP/1.1 405 Method Not Allowed\r\n\
            Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
            Content-Type: text/plain\r\n\
            Content-Length: 1234567\r\n\
            Allow: GET, HEAD\r\n\
            Connection: close\r\n\r\n";
        assert_eq!(head.to_bytes().as_deref().map(core::str::from_utf8), Some(Ok(expected)));
    }

    #[test]
    fn numbers_in_decimal() {
        assert_eq!(decimal(0, &mut [0; 20]), "0");
        assert_eq!(decimal(u64::MAX, &mut [0; 20]), "18446744073709551615");
    }
}
