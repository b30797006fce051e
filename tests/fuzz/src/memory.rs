//! The areas of a function as real memory, at the very addresses that the function knows.
//!
//! Addresses of downloaded code are numbers: parameter *n* lies at *n* · 2^32. rbpf uses addresses
//! as they are; with memory mapped there, both compute with the same ones.
//!
//! # Safety
//! Mapped where nothing else is (`MAP_FIXED_NOREPLACE`), for ever, a page for each area; slices of
//! them are made of a `&mut` of the one owner, and rbpf runs while none is there.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use code::signature::address;

unsafe extern "C" {
    fn mmap(at: *mut c_void, n: usize, prot: c_int, flags: c_int, fd: c_int, o: i64)
    -> *mut c_void;
}

const READ_WRITE: c_int = 1 | 2;
const PRIVATE_ANONYMOUS: c_int = 2 | 0x20;
const FIXED_NOREPLACE: c_int = 0x10_0000;
const PAGE: usize = 4096;

/// A page at a fixed address.
pub struct Area {
    at: *mut u8,
}

impl Area {
    /// The page of the area with this number. Once only.
    pub fn new(number: usize) -> Self {
        let wanted = std::ptr::without_provenance_mut::<c_void>(address(number) as usize);
        let flags = PRIVATE_ANONYMOUS | FIXED_NOREPLACE;
        // SAFETY: mmap(2) of a fresh page where none is.
        let at = unsafe { mmap(wanted, PAGE, READ_WRITE, flags, -1, 0) };
        assert_eq!(at.addr(), wanted.addr(), "mmap");
        Self { at: at.cast() }
    }

    /// Its first bytes.
    pub fn bytes(&mut self, count: usize) -> &mut [u8] {
        assert!(count <= PAGE);
        // SAFETY: within the page, which is this one's alone and borrowed with it.
        unsafe { std::slice::from_raw_parts_mut(self.at, count) }
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.at.expose_provenance() as u64
    }
}
