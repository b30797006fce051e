//! A machine that has nothing but its serial line: what it says there, what it is told, its status.
//!
//! The kernel's last words on the line are `xok: end status N`; what comes behind is the machine's
//! own end, which is waited for.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::failure::{Context, Result};
use crate::process;

/// The line that says how the machine ended begins so; a number follows, and the line's end.
const END_MARK: &str = "xok: end status ";
/// How long a machine may take to switch itself off once it has said so.
const GRACE: Duration = Duration::from_secs(20);
/// How often a file is looked at for more.
const LOOK: Duration = Duration::from_millis(20);

/// Where the emulator's serial line leads.
pub enum Line {
    /// Its standard input and output.
    Standard,
    /// This file, which it writes; nothing can be said.
    File(PathBuf),
}

/// What came of a machine.
#[derive(Debug)]
pub struct Heard {
    /// Its status; nothing if it said none in time.
    pub status: Option<u8>,
    /// Whether it switched itself off.
    pub is_off: bool,
    /// All that it said.
    pub text: String,
}

/// Runs the emulator until the machine has ended, at most `limit`. Of `talk` each pair is something
/// to wait for, and what is typed then; `line_sink` sees each line as it comes.
pub fn run(
    mut emulator: Command,
    line: Line,
    talk: &[(&str, &str)],
    limit: Duration,
    mut line_sink: impl FnMut(&str),
) -> Result<Heard> {
    let shown = process::show(&emulator);
    let is_standard = matches!(line, Line::Standard);
    emulator.stdin(if is_standard { Stdio::piped() } else { Stdio::null() });
    emulator.stdout(if is_standard { Stdio::piped() } else { Stdio::null() });
    emulator.stderr(Stdio::null());
    let mut child = emulator.spawn().context(format!("{shown}: could not start"))?;
    let mut input = child.stdin.take();
    let gone = Arc::new(AtomicBool::new(false));
    let (sender, bytes) = mpsc::channel();
    let reader = {
        let (gone, stdout) = (gone.clone(), child.stdout.take());
        std::thread::spawn(move || match line {
            Line::Standard => stdout.into_iter().for_each(|from| pass_on(from, &sender, |_| false)),
            Line::File(path) => follow(path, &gone, &sender),
        })
    };
    let outcome = listen(&mut child, &bytes, &mut input, talk, limit, &mut line_sink);
    // Neither may find it running still; the reader ends with it.
    let _ = child.kill();
    let _ = child.wait();
    gone.store(true, Ordering::Release);
    let _ = reader.join();
    let Conversation { is_off, mut text, mut told } = outcome?;
    // What came between the last look and the machine's end.
    bytes.try_iter().for_each(|more| text.extend(more));
    tell_lines(&text, &mut told, &mut line_sink);
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(Heard { status: status(&text), is_off, text })
}

/// How far a conversation came.
struct Conversation {
    /// Whether the machine switched itself off.
    is_off: bool,
    /// What it said until then.
    text: Vec<u8>,
    /// How many bytes of `text` the line sink has seen.
    told: usize,
}

/// Hands the sink each whole line of `text` from byte `told` on, which it moves behind them.
fn tell_lines(text: &[u8], told: &mut usize, line_sink: &mut impl FnMut(&str)) {
    while let Some(len) = text[*told..].iter().position(|&byte| byte == b'\n') {
        line_sink(String::from_utf8_lossy(&text[*told..*told + len]).trim_end());
        *told += len + 1;
    }
}

/// Listens, and answers, until the machine is off or time is up.
fn listen(
    child: &mut Child,
    bytes: &mpsc::Receiver<Vec<u8>>,
    input: &mut Option<ChildStdin>,
    talk: &[(&str, &str)],
    limit: Duration,
    line_sink: &mut impl FnMut(&str),
) -> Result<Conversation> {
    let mut deadline = Instant::now() + limit;
    let mut text = Vec::new();
    let (mut told, mut heard, mut answered, mut ended) = (0, 0, 0, false);
    loop {
        match bytes.recv_timeout(LOOK) {
            Ok(more) => text.extend(more),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK),
        }
        tell_lines(&text, &mut told, line_sink);
        if let Some((wanted, answer)) = talk.get(answered)
            && let Some(at) = find(&text[heard..], wanted.as_bytes())
        {
            heard += at + wanted.len();
            answered += 1;
            if let Some(pipe) = input {
                let sent = pipe.write_all(answer.as_bytes()).and_then(|()| pipe.flush());
                sent.context("typing to the machine")?;
            }
        }
        if !ended && status(&String::from_utf8_lossy(&text)).is_some() {
            ended = true;
            deadline = deadline.min(Instant::now() + GRACE);
        }
        let is_off = child.try_wait().context("waiting for the emulator")?.is_some();
        if is_off || Instant::now() > deadline {
            return Ok(Conversation { is_off, text, told });
        }
    }
}

/// The number behind the last mark whose line has ended.
fn status(text: &str) -> Option<u8> {
    let (_, rest) = text.rsplit_once(END_MARK)?;
    let (line, _) = rest.split_once('\n')?;
    line.trim_end().parse().ok()
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// Hands on what comes until it ends; `again` says whether an end is to be looked behind.
fn pass_on(mut from: impl Read, to: &mpsc::Sender<Vec<u8>>, again: impl Fn(()) -> bool) {
    let mut buffer = [0; 4096];
    loop {
        match from.read(&mut buffer) {
            Ok(0) | Err(_) if !again(()) => return,
            Ok(0) | Err(_) => std::thread::sleep(LOOK),
            Ok(len) => {
                if to.send(buffer[..len].to_vec()).is_err() {
                    return;
                }
            }
        }
    }
}

/// Hands on what a file grows by until its writer has gone.
fn follow(path: PathBuf, gone: &AtomicBool, to: &mpsc::Sender<Vec<u8>>) {
    let file = loop {
        match File::open(&path) {
            Ok(file) => break file,
            Err(_) if gone.load(Ordering::Acquire) => return,
            Err(_) => std::thread::sleep(LOOK),
        }
    };
    pass_on(file, to, |()| !gone.load(Ordering::Acquire));
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_conversation_ends_with_its_status() {
        let script = "echo '~ # '; read word; printf 'got %s\\r\\nxok: end status 7\\r\\n' $word";
        let mut lines = Vec::new();
        let sink = |line: &str| lines.push(line.to_string());
        let heard = run(shell(script), Line::Standard, &[("# ", "x\n")], LIMIT, sink).unwrap();
        assert_eq!((heard.status, heard.is_off), (Some(7), true));
        assert_eq!(lines, ["~ #", "got x", "xok: end status 7"]);
    }

    /// The pipe holds 64 KiB, so the machine is off long before the listener has seen all lines.
    #[test]
    fn the_last_words_reach_the_line_sink() {
        let script = "printf '%060000d' 0 | tr 0 '\\n'; echo 'xok: end status 0'";
        let mut lines = Vec::new();
        let sink = |line: &str| lines.push(line.to_string());
        let heard = run(shell(script), Line::Standard, &[], LIMIT, sink).unwrap();
        assert_eq!((heard.status, heard.is_off), (Some(0), true));
        assert_eq!(lines.len(), 60_001);
        assert_eq!(lines[60_000], "xok: end status 0");
    }

    #[test]
    fn half_a_status_is_none_and_the_last_one_counts() {
        assert_eq!(status("xok: end status 25"), None);
        assert_eq!(status("xok: end status 25\r\n"), Some(25));
        assert_eq!(status("xok: end status 0\r\nxok: end status 3\r\nGRUB"), Some(3));
        assert_eq!(status("xok: end status 0, reset\r\n"), None);
        assert_eq!(status("all is well"), None);
    }

    #[test]
    fn a_machine_that_stays_on_is_ended() {
        let limit = Duration::from_millis(300);
        let heard = run(shell("exec sleep 60"), Line::Standard, &[], limit, |_| {}).unwrap();
        assert_eq!((heard.status, heard.is_off), (None, false));
    }

    #[test]
    fn a_file_is_followed_to_its_end() {
        let path = std::env::temp_dir().join(format!("xok-line-{}", std::process::id()));
        let script = format!("sleep 0.1; printf 'a\\nxok: end status 0\\n' > {}", path.display());
        let heard = run(shell(&script), Line::File(path.clone()), &[], LIMIT, |_| {}).unwrap();
        assert_eq!((heard.status, heard.text.as_str()), (Some(0), "a\nxok: end status 0\n"));
        std::fs::remove_file(&path).unwrap();
    }
}
