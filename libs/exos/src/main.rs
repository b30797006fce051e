//! ExOS as a program: the entry point; everything else is in the library half.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]

#[cfg(target_os = "none")]
#[global_allocator]
static HEAP: exos::heap::Shared = exos::heap::Shared;

#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    exos::start::died(info)
}
