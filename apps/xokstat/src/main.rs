//! `xokstat ps|top|free|map`: the machine as the published pages show it, without a call.
//!
//! A static Linux program that links the thin library `xok`: it reads what the kernel publishes to
//! everyone, and only then writes what it has read, by write(2). The last line says how many kernel
//! calls were made meanwhile, by anybody.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
mod linux;
#[cfg(target_os = "none")]
mod text;
#[cfg(target_os = "none")]
mod views;

/// Status for an argument that is no view, or for several, as shells have it.
#[cfg(target_os = "none")]
const USAGE: u8 = 2;
/// Nanoseconds between the two samples of `top`.
#[cfg(target_os = "none")]
const INTERVAL: u64 = 500_000_000;

/// Shows the view that `argument` names; the status.
#[cfg(target_os = "none")]
fn run(argument: &[u8]) -> u8 {
    use abi::limits::INDICES;
    use core::fmt::Write;
    use xok::reader::{Reader, Sample};
    use xok::static_program;

    let reader = match Reader::open() {
        Ok(reader) => reader,
        Err(unknown) => {
            let mut text = text::Text::new();
            // What does not fit is cut.
            let _ = writeln!(text, "xokstat: the kernel publishes another version: {unknown:?}");
            static_program::complain(text.as_str());
            return 1;
        }
    };
    let mut ran = core::hint::black_box([[(0, 0); INDICES]; 2]);
    let [first, second] = &mut ran;
    let (mut earlier, mut now) = (Sample::new(first), Sample::new(second));
    let mut text = text::Text::new();
    if argument == b"top" {
        reader.sample(&mut earlier);
        static_program::sleep(INTERVAL);
    }
    let before = reader.calls();
    let shown = match argument {
        b"ps" => views::ps(reader, &mut text),
        b"top" => {
            reader.sample(&mut now);
            views::top(reader, &earlier, &now, &mut text)
        }
        b"free" => views::free(reader, &mut text),
        b"map" => views::map(reader, &mut text),
        _ => {
            static_program::complain("usage: xokstat ps|top|free|map\n");
            return USAGE;
        }
    };
    let calls = reader.calls() - before;
    static_program::write(text.as_str());
    let mut text = text::Text::new();
    let cut = if shown.is_err() { "cut; " } else { "" };
    let _ = writeln!(text, "({cut}{calls} kernel calls while reading)");
    static_program::write(text.as_str());
    0
}
