//! Runs compiled code on the host: written while it may not run, run while it may not be written.
//!
//! # Safety
//! The one place that calls into bytes. What may be called is what [`code::compiler`] made of a
//! verified function, on a context whose memory is borrowed meanwhile.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use code::argument::{Argument, Outcome};
use code::compiler::{self, compile};
use code::context::Context;
use code::signature::Signature;
use code::verifier::Verified;

unsafe extern "C" {
    fn mmap(at: *mut c_void, n: usize, prot: c_int, flags: c_int, fd: c_int, o: i64)
    -> *mut c_void;
    fn mprotect(at: *mut c_void, bytes: usize, prot: c_int) -> c_int;
    fn munmap(at: *mut c_void, bytes: usize) -> c_int;
}

const NONE: c_int = 0;
const READ_WRITE: c_int = 1 | 2;
const READ_EXECUTE: c_int = 1 | 4;
const PRIVATE_ANONYMOUS: c_int = 2 | 0x20;
const PAGE: usize = 4096;

/// Pages of our own, given back at the end.
struct Pages {
    at: *mut c_void,
    bytes: usize,
}

impl Pages {
    fn new(bytes: usize, protection: c_int) -> Self {
        // SAFETY: mmap(2) of fresh pages, wherever the kernel likes.
        let at = unsafe { mmap(std::ptr::null_mut(), bytes, protection, PRIVATE_ANONYMOUS, -1, 0) };
        assert_ne!(at as isize, -1, "mmap");
        Self { at, bytes }
    }

    fn protect(&self, from: usize, bytes: usize, protection: c_int) {
        // SAFETY: mprotect(2) of pages of ours, which no reference of ours reaches.
        let done = unsafe { mprotect(self.at.wrapping_byte_add(from), bytes, protection) };
        assert_eq!(done, 0, "mprotect");
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: munmap(2) of what we mapped.
        unsafe { munmap(self.at, self.bytes) };
    }
}

/// Memory that ends where a page begins that nobody may touch, and begins where one ends.
pub struct Guarded {
    pages: Pages,
    pub bytes: usize,
}

impl Guarded {
    /// A page between two others.
    pub fn new() -> Self {
        let pages = Pages::new(3 * PAGE, NONE);
        pages.protect(PAGE, PAGE, READ_WRITE);
        Self { pages, bytes: PAGE }
    }

    /// The first or the last `bytes` bytes of the page.
    pub fn slice(&mut self, bytes: usize, last: bool) -> &mut [u8] {
        let offset = if last { self.bytes - bytes } else { 0 };
        let at = self.pages.at.wrapping_byte_add(PAGE + offset).cast();
        // SAFETY: within the page in the middle, which is ours and borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(at, bytes) }
    }
}

/// A 32-bit word that a test put somewhere.
pub fn load(place: *const u32) -> u64 {
    // SAFETY: tests ask for words of arrays that they keep.
    u64::from(unsafe { place.read_volatile() })
}

/// What the functions of the tests call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// All that it was called with.
    pub log: u64,
}

impl World {
    /// Call 1 of two arguments, 2 of none, 3 of five: their answers depend on all calls before.
    pub fn call(&mut self, number: u32, arguments: &[u64]) -> u64 {
        for &word in [u64::from(number)].iter().chain(arguments) {
            self.log = (self.log.rotate_left(7) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        self.log
    }
}

type Callee = extern "sysv64" fn(*mut Context, u64, u64, u64, u64, u64) -> u64;

extern "sysv64" fn one(context: *mut Context, a: u64, b: u64, _: u64, _: u64, _: u64) -> u64 {
    world(context).call(1, &[a, b])
}

extern "sysv64" fn two(context: *mut Context, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    world(context).call(2, &[])
}

extern "sysv64" fn three(context: *mut Context, a: u64, b: u64, c: u64, d: u64, e: u64) -> u64 {
    world(context).call(3, &[a, b, c, d, e])
}

fn world<'w>(context: *mut Context) -> &'w mut World {
    // SAFETY: the code hands on the context that it runs on; `own` is the world that `run`
    // borrowed.
    unsafe { &mut *((*context).own as *mut World) }
}

/// A buffer for one compiled function after the other.
pub struct Executable {
    pages: Pages,
    /// How many bytes the function in it has.
    pub length: usize,
}

impl Executable {
    pub fn new(slots: usize) -> Self {
        let bytes = slots * compiler::SLOT_BYTES_MAX + compiler::FRAME_BYTES_MAX;
        let pages = Pages::new(bytes.next_multiple_of(PAGE), READ_EXECUTE);
        Self { pages, length: 0 }
    }

    /// Compiles a function, and lets `change` have its way with the bytes.
    pub fn load_changed(
        &mut self,
        function: &mut Verified,
        seed: u64,
        change: impl FnOnce(&mut [u8]),
    ) {
        self.pages.protect(0, self.pages.bytes, READ_WRITE);
        // SAFETY: the pages may be written now, and nobody else looks at them.
        let code =
            unsafe { std::slice::from_raw_parts_mut(self.pages.at.cast::<u8>(), self.pages.bytes) };
        self.length = compile(function, code, seed).expect("there is room for every function");
        change(&mut code[..self.length]);
        self.pages.protect(0, self.pages.bytes, READ_EXECUTE);
    }

    pub fn load(&mut self, function: &mut Verified, seed: u64) {
        self.load_changed(function, seed, |_| {});
    }

    /// Puts a compiled watch there.
    pub fn load_bytes(&mut self, bytes: &[u8]) {
        self.pages.protect(0, self.pages.bytes, READ_WRITE);
        // SAFETY: the pages may be written now, and nobody else looks at them.
        let code =
            unsafe { std::slice::from_raw_parts_mut(self.pages.at.cast::<u8>(), self.pages.bytes) };
        code[..bytes.len()].copy_from_slice(bytes);
        self.pages.protect(0, self.pages.bytes, READ_EXECUTE);
    }

    /// Asks the watch that was loaded, which is entered at `entry`.
    pub fn watch(&self, entry: usize, now: u64, key: u64) -> u64 {
        let at = self.pages.at.wrapping_byte_add(entry);
        // SAFETY: what was loaded is a compiled watch, whose words the caller keeps.
        unsafe {
            let function: extern "sysv64" fn(u64, u64) -> u64 = std::mem::transmute(at);
            function(now, key)
        }
    }

    /// Runs what was loaded; answers the outcome, and what is left of the budget.
    pub fn run(
        &self,
        signature: &Signature,
        arguments: &mut [Argument],
        world: &mut World,
    ) -> (Outcome, u64) {
        let calls: [Callee; 3] = [one, two, three];
        let mut context =
            Context::new(signature, arguments, calls.as_ptr() as u64).expect("arguments fit");
        context.own = std::ptr::from_mut(world) as u64;
        let ending = self.enter(&mut context);
        (context.outcome(ending), context.budget())
    }

    /// Runs a function without arguments and calls twice, on one context.
    pub fn run_twice(&self, signature: &Signature) -> [Outcome; 2] {
        let mut context = Context::new(signature, &mut [], 0).expect("there are none");
        [(); 2].map(|()| {
            let ending = self.enter(&mut context);
            context.outcome(ending)
        })
    }

    fn enter(&self, context: &mut Context) -> u64 {
        let at = context.prepare();
        // SAFETY: the pages hold a function of this type, for the context's signature, which was
        // verified; it reaches the context, what that borrows, and the calls it was made with.
        unsafe {
            let function: extern "sysv64" fn(*mut Context) -> u64 =
                std::mem::transmute(self.pages.at);
            function(at)
        }
    }
}
