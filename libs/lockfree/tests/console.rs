//! Every order in which bytes of the console and the terminal that takes them can meet.
//!
//! They come once and in order, as long as there is room.

#[path = "tried/shared.rs"]
mod shared;
mod tried;

use abi::console;
use loom::sync::Arc;
use loom::thread;
use shared::{Kernel, Page};
use tried::try_all;

/// Bytes that there is room for here.
const ROOM: u64 = 2;

fn meet(switches: usize, bytes: u8, looks: u32) {
    try_all(switches, move || {
        let page = Arc::new(Page::new(2, |_| false, ROOM as usize));
        console::begin(&mut Kernel(&page), 0);
        let there = page.clone();
        // `kernel_core::console::input`, under the kernel's lock: what finds no room is asked for
        // again. How many were put in?
        let kernel = thread::spawn(move || {
            let (mut memory, mut head) = (Kernel(&there), 0);
            for _ in 0..=bytes {
                if head < bytes && console::has_room::<ROOM>(&memory, 0, head.into()) {
                    console::put::<ROOM>(&mut memory, 0, head.into(), head + 1);
                    head += 1;
                }
            }
            head
        });
        let mut taken = 0;
        let mut take = || {
            let byte = console::take::<ROOM, _, _>(|at| page.word(at), |at| page.byte(at));
            byte.map(|byte| {
                assert_eq!(byte, taken + 1);
                taken = byte;
            })
        };
        for _ in 0..looks {
            take();
        }
        let put = kernel.join().expect("the kernel");
        while take().is_some() {}
        assert!(taken == put && put >= bytes.min(ROOM as u8));
    });
}

#[test]
fn bytes_of_the_console_come_in_order() {
    meet(3, 3, 2);
    meet(2, 4, 3);
}
