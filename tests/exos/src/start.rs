//! The entry point of a static program, and its end when something is badly wrong.
//!
//! # Safety
//! Declares the program's entry, as `xok::static_program` says.
#![allow(unsafe_code)]

use crate::linux;

xok::static_program!(begin, failed);

extern "C" fn begin(stack: u64) -> ! {
    // SAFETY: this is the entry point.
    crate::suite::run(unsafe { xok::static_program::argument(stack, 1) })
}

fn failed() -> ! {
    linux::print("exos tests: panic\n");
    linux::exit(101)
}
