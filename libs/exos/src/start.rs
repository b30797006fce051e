//! From the first instruction of an ExOS process to the program's first.

/// ExOS itself failed: says so on the kernel's log and ends the process.
pub fn died(_info: &core::panic::PanicInfo) -> ! {
    xok::call::exit(0x86)
}
