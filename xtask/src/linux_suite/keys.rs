//! Keystrokes: a small script that types and waits for events, never for time.
//!
//! ```text
//! send TEXT      type it; escapes: \r \n \t \e \\ \xHH
//! expect TEXT    wait until TEXT is printed after the last thing expected
//! screen TEXT    wait until TEXT stands on the screen; \n at its ends stands for a line's end
//! look           keep the screen as it is now: what is compared (without it, the one at the end)
//! ```
//!
//! A program that redraws only when no input waits, such as vi, leaves a screen that depends on
//! time: there, wait for what it draws last (vi: the status line), then look.

use std::fmt;

/// One step.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Type the bytes.
    Send(Vec<u8>),
    /// Wait for the bytes in the stream.
    Expect(Vec<u8>),
    /// Wait for the text on the screen.
    Screen(String),
    /// Keep the screen for the comparison.
    Look,
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(bytes) => write!(out, "send {}", bytes.escape_ascii()),
            Self::Expect(bytes) => write!(out, "expect {}", bytes.escape_ascii()),
            Self::Screen(text) => write!(out, "screen {}", text.escape_debug()),
            Self::Look => out.write_str("look"),
        }
    }
}

/// Reads the steps; the error is the line that isn't one.
pub fn parse(text: &str) -> Result<Vec<Step>, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| step(line).ok_or_else(|| line.to_string())).collect()
}

/// Reads one step.
fn step(line: &str) -> Option<Step> {
    if line == "look" {
        return Some(Step::Look);
    }
    let (verb, rest) = line.split_once(' ')?;
    let bytes = unescape(rest)?;
    match verb {
        "send" => Some(Step::Send(bytes)),
        "expect" => Some(Step::Expect(bytes)),
        "screen" => Some(Step::Screen(String::from_utf8(bytes).ok()?)),
        _ => None,
    }
}

/// Replaces the escapes.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next()? {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'e' => 0x1b,
            b'\\' => b'\\',
            b'x' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            _ => return None,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_escapes() {
        let steps = parse("send a\\r\\x03\nexpect ok> \n").unwrap();
        assert_eq!(steps, [Step::Send(b"a\r\x03".into()), Step::Expect(b"ok> ".into())]);
    }

    #[test]
    fn names_a_line_that_is_no_step() {
        assert_eq!(parse("wait 3"), Err("wait 3".into()));
    }
}
