//! Where the program begins and ends.
//!
//! # Safety
//! Declares the entry, as `xok::static_program` says.
#![allow(unsafe_code)]

use xok::static_program::{exit, write};

xok::static_program!(begin, failed);

extern "C" fn begin(stack: u64) -> ! {
    // SAFETY: this is the entry point.
    let argument = unsafe { xok::static_program::argument(stack, 1) };
    exit(crate::run(argument.unwrap_or_default()))
}

fn failed() -> ! {
    write("xokstat: panic\n");
    exit(101)
}
