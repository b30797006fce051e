//! `cargo xtask trace -- PROGRAM`: runs it with everything recorded, and shows what was.
//!
//! `trace=` on the kernel's command line has the kernel record from boot on and init start
//! `traced`, which sends the records out as lines of the kernel's log. They become text and a
//! timeline file.

mod lines;
mod rules;
mod text;
mod timeline;

use std::path::PathBuf;

use crate::failure::{Context, Failure, Result};
use crate::report;
use crate::run;
use crate::workspace;

use lines::Trace;
pub use rules::check;

/// `cargo xtask trace [--output FILE] [--text FILE] [--records N] [OPTIONS of run] -- PROGRAM ...`;
/// answers the program's exit status.
pub fn command(words: Vec<String>) -> Result<u8> {
    let mut output = workspace::output().join("trace.json");
    let mut text_file: Option<PathBuf> = None;
    let mut asked = "all".to_string();
    let mut rest = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut value = || {
            let cause = || Failure::new(format!("{word} needs a value"));
            words.next().ok_or_else(|| cause().next(crate::options::HELP))
        };
        match word.as_str() {
            "--output" => output = value()?.into(),
            "--text" => text_file = Some(value()?.into()),
            "--records" => {
                let records = value()?;
                let number: u32 = records.parse().unwrap_or(0);
                if number == 0 {
                    let refused = format!("--records {records}: not a number from 1 on");
                    return Err(Failure::new(refused).next(crate::options::HELP));
                }
                asked = format!("all,{number}");
            }
            "--" => {
                rest.push(word);
                rest.extend(words);
                break;
            }
            _ => rest.push(word),
        }
    }
    let (status, log) = run::program_logged(rest, &[("trace", &asked)])?;
    let trace = Trace::read(log.iter().map(String::as_str)).map_err(Failure::new)?;
    if !trace.ended {
        report::step("the machine ended before all of the trace was sent: its end is missing");
    }
    let text = text::text(&trace);
    match &text_file {
        Some(file) => std::fs::write(file, text).context(file.display())?,
        None => eprint!("{text}"),
    }
    let timeline = timeline::timeline(&trace);
    std::fs::write(&output, timeline).context(output.display())?;
    let (records, lost) = (trace.items.len(), trace.lost);
    report::step(&format!(
        "{records} records, {lost} lost; {} (Perfetto opens it)",
        output.display()
    ));
    Ok(status)
}
