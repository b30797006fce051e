//! What traced programs tell (`libs/exos/src/trace.rs`), as a file that strace could have written.
//!
//! Records come from several threads, mixed: a call that has begun when another thread says
//! something stays `<unfinished ...>` and is `<... resumed>`, and `[pid N]` stands in front as long
//! as more than one thread is traced.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// What each record begins with.
const PREFIX: &str = "strace: ";
/// The column of the `=` before a result.
const RESULT_COLUMN: usize = 40;

/// A thread that is traced.
#[derive(Default)]
struct Thread {
    /// The beginning of a record whose rest is still to come.
    pieces: String,
    /// The name of the call it is in.
    call: Option<String>,
    /// Is that call's line closed by what another thread said?
    unfinished: bool,
    /// What is to be said after the call.
    later: Vec<String>,
}

/// Writes what records say.
struct Writer<W: Write> {
    to: W,
    threads: BTreeMap<u32, Thread>,
    /// Whose line is not ended yet, and how wide it is.
    open: Option<(u32, usize)>,
}

impl<W: Write> Writer<W> {
    fn new(to: W) -> Self {
        Self { to, threads: BTreeMap::new(), open: None }
    }

    /// Takes a line of the log; false if it is no record.
    fn line(&mut self, line: &str) -> io::Result<bool> {
        let Some(record) = line.strip_prefix(PREFIX) else { return Ok(false) };
        let digits = record.bytes().take_while(u8::is_ascii_digit).count();
        let (tid, rest) = record.split_at(digits);
        let (Ok(tid), Some(mark)) = (tid.parse(), rest.chars().next()) else { return Ok(false) };
        let thread = self.threads.entry(tid).or_default();
        thread.pieces.push_str(&rest[mark.len_utf8()..]);
        if mark == '+' {
            return Ok(true);
        }
        let text = std::mem::take(&mut thread.pieces);
        match mark {
            '>' => self.begin(tid, &text)?,
            '<' => self.end(tid, &text)?,
            _ => self.whole(tid, text)?,
        }
        Ok(true)
    }

    fn begin(&mut self, tid: u32, text: &str) -> io::Result<()> {
        self.close()?;
        let name = text.split('(').next().unwrap_or(text).to_string();
        self.threads.entry(tid).or_default().call = Some(name);
        self.lead(tid)?;
        write!(self.to, "{text}")?;
        self.open = Some((tid, text.len()));
        Ok(())
    }

    fn end(&mut self, tid: u32, text: &str) -> io::Result<()> {
        let thread = self.threads.entry(tid).or_default();
        let name = thread.call.take().unwrap_or_default();
        let later = std::mem::take(&mut thread.later);
        thread.unfinished = false;
        let mut width = match self.open.take() {
            Some((open, width)) if open == tid => width,
            other => {
                self.open = other;
                self.close()?;
                self.lead(tid)?;
                let resumed = format!("<... {name} resumed>");
                write!(self.to, "{resumed}")?;
                resumed.len()
            }
        };
        let (arguments, result) = text.split_once('\t').unwrap_or((text, ""));
        width += arguments.len();
        let gap = RESULT_COLUMN.saturating_sub(width).max(1);
        writeln!(self.to, "{arguments}{:gap$}{result}", "")?;
        later.iter().try_for_each(|line| self.whole(tid, line.clone()))
    }

    fn whole(&mut self, tid: u32, text: String) -> io::Result<()> {
        let ends = text.starts_with("+++");
        let thread = self.threads.entry(tid).or_default();
        if thread.call.is_some() && !ends {
            // A signal that came in a call is taken behind it.
            thread.later.push(text);
            return Ok(());
        }
        self.close()?;
        self.lead(tid)?;
        writeln!(self.to, "{text}")?;
        if ends {
            self.threads.remove(&tid);
        }
        Ok(())
    }

    /// Ends the line of a call that goes on.
    fn close(&mut self) -> io::Result<()> {
        match self.open.take() {
            Some(_) => writeln!(self.to, " <unfinished ...>"),
            None => Ok(()),
        }
    }

    fn lead(&mut self, tid: u32) -> io::Result<()> {
        if self.threads.len() > 1 { write!(self.to, "[pid {tid:5}] ") } else { Ok(()) }
    }
}

/// The trace of a run: its file is made when the first record comes.
pub struct Trace {
    path: PathBuf,
    writer: Option<Writer<BufWriter<File>>>,
}

impl Trace {
    /// A trace that is to lie at `path`; an old one goes.
    pub fn new(path: &Path) -> Self {
        // There need not be one.
        let _ = std::fs::remove_file(path);
        Self { path: path.to_path_buf(), writer: None }
    }

    /// Takes a line of the log; false if it is none of ours.
    pub fn line(&mut self, line: &str) -> bool {
        if !line.starts_with(PREFIX) {
            return false;
        }
        if self.writer.is_none() {
            match File::create(&self.path) {
                Ok(file) => self.writer = Some(Writer::new(BufWriter::new(file))),
                Err(error) => eprintln!("{}: {error}", self.path.display()),
            }
        }
        let Some(writer) = &mut self.writer else { return false };
        match writer.line(line) {
            Ok(taken) => taken,
            Err(error) => {
                eprintln!("{}: {error}", self.path.display());
                false
            }
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if let Some(writer) = &mut self.writer {
            // A line too few at the end of a trace harms nobody.
            let _ = writer.close().and_then(|()| writer.to.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(lines: &[&str]) -> String {
        let mut writer = Writer::new(Vec::new());
        for line in lines {
            assert!(writer.line(line).unwrap(), "{line}");
        }
        writer.close().unwrap();
        String::from_utf8(writer.to).unwrap()
    }

    #[test]
    fn a_call_is_one_line_with_its_result_aligned() {
        let lines =
            ["strace: 7>brk(NULL", "strace: 7<)\t= 0x1000", "strace: 7=+++ exited with 0 +++"];
        let result = format!("brk(NULL){:31}= 0x1000\n+++ exited with 0 +++\n", "");
        assert_eq!(written(&lines), result);
        let mut writer = Writer::new(Vec::new());
        assert!(!writer.line("xok: 1 cpu").unwrap() && !writer.line("strace: me").unwrap());
    }

    #[test]
    fn threads_interrupt_each_other() {
        let lines = [
            "strace: 7>fork(",
            "strace: 7<)\t= 8",
            "strace: 7>wait4(-1, ",
            "strace: 8>exit(0",
            "strace: 8<)\t= ?",
            "strace: 8=+++ exited with 0 +++",
            "strace: 7=--- SIGCHLD {} ---",
            "strace: 7+[{WIFEXI",
            "strace: 7<TED(s)}], 0, NULL)\t= 8",
        ];
        let result = "fork()                                  = 8\nwait4(-1,  <unfinished ...>\n\
            [pid     8] exit(0)                                 = ?\n\
            [pid     8] +++ exited with 0 +++\n\
            <... wait4 resumed>[{WIFEXITED(s)}], 0, NULL) = 8\n--- SIGCHLD {} ---\n";
        assert_eq!(written(&lines), result);
    }
}
