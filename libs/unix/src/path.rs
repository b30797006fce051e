//! Paths as Linux takes them apart (path_resolution(7)).

use crate::bytes;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// Bytes of a path at most, its NUL included (limits.h).
pub const PATH_MAX: usize = 4096;
/// Bytes of one name at most.
pub const NAME_MAX: usize = 255;
/// Symbolic links followed in one walk at most.
pub const LINKS_MAX: u32 = 40;

/// The first name in `path` and where the rest begins; `None` if only slashes are left.
pub fn next(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = path.iter().position(|&byte| byte != b'/')?;
    let rest = &path[start..];
    let len = bytes::position(rest, b'/').unwrap_or(rest.len());
    Some((&rest[..len], &rest[len..]))
}

/// The directory's part of a path and its last name, if that is an ordinary one and no slash
/// follows; a name alone has no directory's part.
pub fn split_last(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes::last_position(path, b'/').map_or(0, |at| at + 1);
    let (directory, name) = path.split_at(at);
    let ordinary = !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_MAX;
    (ordinary && path.len() < PATH_MAX).then_some((directory, name))
}

/// Does nothing but slashes follow?
pub fn is_last(rest: &[u8]) -> bool {
    rest.iter().all(|&byte| byte == b'/')
}

/// A canonical absolute path that grows and shrinks with the walk; a copy costs nothing until one
/// of them changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canonical(Rc<Vec<u8>>);

impl Default for Canonical {
    fn default() -> Self {
        Self(Rc::new(Vec::from(*b"/")))
    }
}

impl Canonical {
    /// One that is known to be canonical: absolute, without `.`, `..`, double or last slashes.
    pub fn from_canonical(path: &[u8]) -> Self {
        if path.is_empty() { Self::default() } else { Self(Rc::new(path.to_vec())) }
    }

    /// Goes into `name`.
    pub fn push(&mut self, name: &[u8]) {
        let path = Rc::make_mut(&mut self.0);
        if path.len() > 1 {
            path.push(b'/');
        }
        path.extend(name);
    }

    /// Goes up; stays at the root.
    pub fn pop(&mut self) {
        let at = bytes::last_position(&self.0, b'/').unwrap_or(0);
        Rc::make_mut(&mut self.0).truncate(at.max(1));
    }

    /// The path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The last name; empty for the root.
    pub fn name(&self) -> &[u8] {
        let at = bytes::last_position(&self.0, b'/').map_or(0, |at| at + 1);
        &self.0[at..]
    }
}

/// Is `path` the same as `prefix` or below it? Answers the rest without its first slash.
pub fn below<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(prefix)?;
    match rest.first() {
        None => Some(rest),
        Some(b'/') => Some(&rest[1..]),
        Some(_) if prefix == b"/" => Some(rest),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_one_by_one() {
        let (name, rest) = next(b"//usr///bin/").unwrap();
        assert_eq!((name, rest), (&b"usr"[..], &b"///bin/"[..]));
        let (name, rest) = next(rest).unwrap();
        assert_eq!((name, is_last(rest)), (&b"bin"[..], true));
        assert_eq!(next(rest), None);
    }

    #[test]
    fn last_names_are_split_off_if_they_are_ordinary() {
        assert_eq!(split_last(b"/tmp/a"), Some((&b"/tmp/"[..], &b"a"[..])));
        assert_eq!(split_last(b"a"), Some((&b""[..], &b"a"[..])));
        for odd in [&b""[..], b"/", b"a/", b"a/.", b"..", &[b'x'; 256]] {
            assert_eq!(split_last(odd), None);
        }
    }

    #[test]
    fn canonical_paths() {
        let mut path = Canonical::default();
        path.pop();
        path.push(b"a");
        path.push(b"b");
        assert_eq!((path.as_bytes(), path.name()), (&b"/a/b"[..], &b"b"[..]));
        path.pop();
        path.pop();
        assert_eq!(path.as_bytes(), b"/");
    }

    #[test]
    fn below_needs_whole_names() {
        assert_eq!(below(b"/tmp/a", b"/tmp"), Some(&b"a"[..]));
        assert_eq!(below(b"/tmpfs", b"/tmp"), None);
        assert_eq!(below(b"/tmp", b"/tmp"), Some(&b""[..]));
        assert_eq!(below(b"/x", b"/"), Some(&b"x"[..]));
    }
}
