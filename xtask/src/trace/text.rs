//! The trace as text, a line for each thing that happened.
//!
//! ```text
//!       ms  cpu  environment           what
//!    12.345   0  busybox (12)          call Sleep
//!    12.350   0  -                     switch to nobody
//! ```

use std::fmt::Write;

use abi::trace::{Event, Kind};

use super::lines::{Trace, What, call_name, cause_name, error_name};

/// All of it.
pub fn text(trace: &Trace) -> String {
    let mut out = format!("{:>12}  cpu  {:<24} what\n", "ms", "environment");
    for item in &trace.items {
        let (env, what) = match item.what {
            What::Lost(count) => ("-".into(), format!("{count} records lost")),
            What::Event(event) => {
                let env = if event.env == 0 { "-".into() } else { trace.name(event.env) };
                (env, said(trace, &event))
            }
        };
        let (ms, ns) = (item.ns / 1_000_000, item.ns % 1_000_000);
        // Writing to a string does not fail.
        let _ = writeln!(out, "{ms:>5}.{ns:06}  {:>3}  {env:<24} {what}", item.cpu);
    }
    out
}

fn said(trace: &Trace, event: &Event) -> String {
    let Event { kind, detail, env, argument } = *event;
    let interface = argument >> 56;
    match kind {
        Kind::Call => format!("call {}", call_name(detail)),
        Kind::Leave => "goes on".into(),
        Kind::Refused => format!("{} refused: {}", call_name(detail), error_name(argument)),
        Kind::Upcall => format!("upcall: {}", cause_name(detail)),
        Kind::Switch if env == 0 => "switch to nobody".into(),
        Kind::Switch => format!("switch to {}", trace.name(env)),
        Kind::Interrupt => format!("interrupt {detail:#x}"),
        Kind::PacketIn if argument << 8 == 0 => {
            format!("packet from interface {interface}, {detail} bytes, nobody's")
        }
        Kind::PacketIn => format!("packet from interface {interface}, {detail} bytes"),
        Kind::PacketDropped => format!("packet dropped, {detail} bytes: the ring is full"),
        Kind::PacketOut => format!("packet to interface {interface}, {detail} bytes"),
        Kind::BlockAsked | Kind::BlockAnswered => format!("{} {detail}", kind.name()),
    }
}
