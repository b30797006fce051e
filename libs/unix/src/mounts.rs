//! Which directories are writable: the mount table that clients and the file server share.
//!
//! Each is a directory of the memory file system's root, under its path with `/` as `+` and without
//! the first one.

/// Paths and modes.
pub const WRITABLE: &[(&str, u32)] = &[
    ("/dev/shm", 0o1777),
    ("/etc", 0o755),
    ("/home", 0o755),
    ("/mnt", 0o755),
    ("/root", 0o700),
    ("/run", 0o755),
    ("/tmp", 0o1777),
    ("/var", 0o755),
];

/// The name in the server's root of what is mounted at `path`.
pub fn name(path: &str) -> &'static [u8] {
    match path {
        "/dev/shm" => b"dev+shm",
        "/etc" => b"etc",
        "/home" => b"home",
        "/mnt" => b"mnt",
        "/root" => b"root",
        "/run" => b"run",
        "/tmp" => b"tmp",
        "/var" => b"var",
        _ => b"",
    }
}

/// The mount that an absolute path lies in: its name in the server's root, and the rest.
pub fn inside(path: &[u8]) -> Option<(&'static [u8], &[u8])> {
    WRITABLE.iter().find_map(|(mount, _)| {
        crate::path::below(path, mount.as_bytes()).map(|rest| (name(mount), rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mount_has_a_name_of_its_own() {
        for (at, (path, _)) in WRITABLE.iter().enumerate() {
            assert!(!name(path).is_empty(), "{path}");
            assert!(WRITABLE[..at].iter().all(|(other, _)| name(other) != name(path)));
        }
        assert_eq!(inside(b"/tmp/a/b"), Some((&b"tmp"[..], &b"a/b"[..])));
        assert_eq!(inside(b"/dev/shm"), Some((&b"dev+shm"[..], &b""[..])));
        assert_eq!(inside(b"/etc/passwd"), Some((&b"etc"[..], &b"passwd"[..])));
        assert_eq!(inside(b"/bin/sh"), None);
    }
}
