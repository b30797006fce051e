//! Init's application page: who serves what.
//!
//! # Safety
//! The page is mapped writable for init alone, at the place all native programs have it.
#![allow(unsafe_code)]

use xok::services::{MAGIC, Service};
use xok::start::APPLICATION_PAGE;

/// Says so; readers see the word at once.
pub fn set(service: Service, word: u64) {
    let place = (APPLICATION_PAGE + 8 * service as u64) as *mut u64;
    // SAFETY: a word of the own page.
    unsafe { place.write_volatile(word) }
}

/// From now on the page counts.
pub fn open() {
    set(Service::Magic, MAGIC);
}
