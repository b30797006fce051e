//! From a request's target to the name of a file.

use alloc::string::String;
use alloc::vec::Vec;

use super::Status;

/// The path within a target in origin form or absolute form (RFC 9112 §3.2), query left out.
pub fn path_of(target: &str) -> Result<&str, Status> {
    if target.contains('#') {
        return Err(Status::BadRequest);
    }
    let target = match target.split_once("://") {
        Some((scheme, rest)) if !target.starts_with('/') => {
            let http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
            let authority = rest.find(['/', '?']).unwrap_or(rest.len());
            if !http || authority == 0 {
                return Err(Status::BadRequest);
            }
            &rest[authority..]
        }
        _ if target.starts_with('/') => target,
        _ => return Err(Status::BadRequest),
    };
    let path = target.split('?').next().unwrap_or(target);
    Ok(if path.is_empty() { "/" } else { path })
}

/// The name of the file that a path asks for: without its first slash, percent-decoded.
///
/// A name never leaves the directory that is served: a segment `.` or `..`, written plainly or
/// percent-encoded, is refused, and an encoded slash separates as a plain one does.
pub fn decode(path: &str) -> Result<String, Status> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(path.len()).map_err(|_| Status::ServiceUnavailable)?;
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => match (rest.next().and_then(digit), rest.next().and_then(digit)) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err(Status::BadRequest),
            },
            _ => byte,
        };
        if byte == 0 {
            return Err(Status::BadRequest);
        }
        bytes.push(byte);
    }
    let mut whole = String::from_utf8(bytes).map_err(|_| Status::BadRequest)?;
    let Some(name) = whole.strip_prefix('/') else { return Err(Status::BadRequest) };
    if name.split('/').any(|segment| segment == "." || segment == "..") {
        return Err(Status::BadRequest);
    }
    // The slash goes: nothing is taken for it.
    whole.remove(0);
    Ok(whole)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_targets() {
        assert_eq!(path_of("/a/b?c=d"), Ok("/a/b"));
        assert_eq!(path_of("/"), Ok("/"));
        assert_eq!(path_of("http://host/x"), Ok("/x"));
        assert_eq!(path_of("HTTP://host:80"), Ok("/"));
        assert_eq!(path_of("http://host?q"), Ok("/"));
        assert_eq!(path_of("/redirect?to=http://other/"), Ok("/redirect"));
        for bad in ["", "x", "*", "host:80", "ftp://host/x", "http:///x", "/a#b"] {
            assert_eq!(path_of(bad), Err(Status::BadRequest), "{bad}");
        }
    }

    #[test]
    fn names_are_decoded_once_and_stay_inside() {
        assert_eq!(decode("/a%20b/%C3%A4.txt").as_deref(), Ok("a b/ä.txt"));
        assert_eq!(decode("/%2541").as_deref(), Ok("%41"));
        assert_eq!(decode("/a/..b/.c").as_deref(), Ok("a/..b/.c"));
        assert_eq!(decode("/").as_deref(), Ok(""));
        for bad in [
            "/..",
            "/../x",
            "/a/../b",
            "/a/..",
            "/%2e%2e/x",
            "/%2E./x",
            "/a%2f..%2fb",
            "/./a",
            "/%",
            "/%4",
            "/%zz",
            "/%+1",
            "/a%00b",
            "/%ff",
            "a",
            "",
        ] {
            assert_eq!(decode(bad), Err(Status::BadRequest), "{bad}");
        }
    }
}
