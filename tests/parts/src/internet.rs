//! A socket of the internet's, neither bound nor connected: the standard library makes none.
//!
//! # Safety
//! Declares functions of the C library as their manual pages have them.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};

unsafe extern "C" {
    #[link_name = "socket"]
    fn socket_call(family: c_int, kind: c_int, protocol: c_int) -> c_int;
}

/// socket(2) of IPv4, for datagrams.
pub fn socket() -> std::io::Result<OwnedFd> {
    // SAFETY: touches no memory; what is made is nobody else's.
    unsafe {
        match socket_call(2, 2, 0) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}
