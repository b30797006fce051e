//! Where the program begins and ends.
//!
//! # Safety
//! Declares the entry, as `xok::static_program` says.
#![allow(unsafe_code)]

use xok::static_program::{complain, exit};

xok::static_program!(begin, failed);

extern "C" fn begin(stack: u64) -> ! {
    // SAFETY: this is the entry point.
    let argument = unsafe { xok::static_program::only_argument(stack) };
    exit(crate::run(argument.unwrap_or_default()))
}

fn failed() -> ! {
    complain("xokstat: panic\n");
    exit(101)
}
