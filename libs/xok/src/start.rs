//! From the first instruction of a native program to its `main`.
//!
//! A native program is entered at `_start` with rdi = its start block (0: none), on a stack, with
//! GS base = [`SAVE_AREA`]. [`program!`](crate::program) names its main and declares its heap.
//!
//! # Safety
//! Holds the entry point's assembly, the handler stacks and the default handler.
#![allow(unsafe_code)]

use crate::upcall::{self, Handler, Slot};
use abi::setup::{EnvSetup, field};
use core::cell::UnsafeCell;

/// Where every native program has its save area.
pub const SAVE_AREA: u64 = 0xffff_c0ff_ffff_0000;
/// Where it has its application page, writable.
pub const APPLICATION_PAGE: u64 = 0xffff_c0ff_ffff_1000;
/// Where its start block lies, if it has one: a length, then that many bytes.
pub const START_BLOCK: u64 = 0xffff_c0ff_fffe_0000;
/// Bytes of the largest start block.
pub const START_BLOCK_MAX: usize = 4096 - 8;
/// Top of its stack, in the lower half.
pub const STACK_TOP: u64 = 0x0000_7fff_ffff_0000;
/// Pages of its stack.
pub const STACK_PAGES: u64 = 16;

const HANDLER_STACK: usize = 16 * 1024;

#[repr(C, align(4096))]
struct Stacks(UnsafeCell<[[u8; HANDLER_STACK]; 4]>);

// SAFETY: used by the processor as handler stacks of the one environment, never by Rust code.
unsafe impl Sync for Stacks {}
static STACKS: Stacks = Stacks(UnsafeCell::new([[0; HANDLER_STACK]; 4]));

unsafe extern "Rust" {
    safe fn xok_main(argument: &'static [u8]);
}

/// What the entry point that [`program!`](crate::program) makes goes on with.
pub extern "C" fn begin(block: u64) -> ! {
    if !crate::published::is_known() {
        crate::call::exit(EXIT_WRONG_KERNEL);
    }
    set_handler(default_handler);
    xok_main(start_block(block));
    crate::call::exit(0)
}

/// Status of a program that meets a kernel with another layout of the published pages.
pub const EXIT_WRONG_KERNEL: u64 = 126 << 8;
/// Status of a program whose fault nobody handles; the cause is added.
pub const EXIT_FAULT: u64 = 0x1000;

/// Makes `handler` the program's upcall handler, for faults and events.
pub fn set_handler(handler: Handler) {
    let base = STACKS.0.get() as u64;
    let top = |depth: u64| base + (depth + 1) * HANDLER_STACK as u64;
    let stacks = [top(0), top(1), top(2), top(3)];
    let beginning =
        upcall::Beginning { save_area: SAVE_AREA, stacks, handler, trivial: &[], sample: 0 };
    // SAFETY: the save area is mapped before the first instruction; the stacks are used by no one
    // else.
    unsafe { upcall::prepare(SAVE_AREA, &beginning) };
    let entry = upcall::entry();
    let setup = EnvSetup { fault_entry: entry, event_entry: entry, ..EnvSetup::default() };
    let fields = field::FAULT_ENTRY | field::EVENT_ENTRY;
    // Oneself, own fields: refused only by a kernel that does not know the call.
    let _ = crate::call::env_set(crate::call::OWN, abi::id::EnvId::NONE, fields, &setup);
}

/// Events are left for `main` to find, which goes on masked: the way back would find them again
/// and again. A fault ends the program with a word that names its cause.
extern "C" fn default_handler(slot: &mut Slot, cause: u64, address: u64) {
    if cause == abi::upcall::Cause::Event as u64 {
        slot.mask = 1;
        return;
    }
    let (at, cause) = (slot.rip, slot.cause);
    crate::print::last_words(format_args!("fault {cause} at {at:#x}, address {address:#x}"));
    crate::call::exit(EXIT_FAULT | cause);
}

fn start_block(block: u64) -> &'static [u8] {
    if block == 0 {
        return &[];
    }
    // SAFETY: the spawner maps the block, read-only, for as long as the program lives.
    unsafe {
        let len = (block as *const u64).read() as usize;
        core::slice::from_raw_parts((block + 8) as *const u8, len.min(START_BLOCK_MAX))
    }
}

/// Declares a native program: its heap, its panic handler, its main.
///
/// ```ignore
/// xok::program!(main);
/// fn main(argument: &'static [u8]) { … }
/// ```
#[macro_export]
macro_rules! program {
    ($main:path) => {
        // Made where it is used, so that other users of the library may have a `_start` of their
        // own.
        core::arch::global_asm!(
            ".section .text._start, \"ax\"",
            ".global _start",
            "_start:",
            "xor ebp, ebp",
            "and rsp, -16",
            "call {begin}",
            "ud2",
            begin = sym $crate::start::begin,
        );

        #[global_allocator]
        static HEAP: $crate::heap::Growing = $crate::heap::Growing::new();

        // SAFETY: one definition in each program; `start` declares the same signature.
        #[unsafe(no_mangle)]
        fn xok_main(argument: &'static [u8]) {
            $main(argument)
        }

        #[panic_handler]
        fn panic(info: &core::panic::PanicInfo) -> ! {
            $crate::print::last_words(format_args!("panic: {}", info));
            $crate::call::exit(101 << 8)
        }
    };
}
