//! What a case did, how two outcomes are compared, and how a difference is shown.

/// Lines of a difference that are printed at most, for each side.
const SHOWN_LINES: usize = 20;

/// What a case did.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Outcome {
    /// Exit status as the shell gives it; `None` if the case never ended.
    pub status: Option<i32>,
    /// Standard output (of the script after, for a case with keys).
    pub stdout: Vec<u8>,
    /// Standard error, likewise.
    pub stderr: Vec<u8>,
    /// What stood on the terminal at the end, for a case with keys.
    pub screen: Option<String>,
    /// What kept the case from running to its end.
    pub trouble: Option<String>,
}

impl Outcome {
    /// The outcome of a case that was not started.
    pub fn never_ran() -> Self {
        let trouble = Some("not started: the guest started nothing before".into());
        Self { trouble, ..Self::default() }
    }

    /// Replaces one side's name of a place by the other's, so that both compare equal.
    pub fn rename(&mut self, ours: &str, others: &str) {
        for bytes in [&mut self.stdout, &mut self.stderr] {
            if let Ok(text) = std::str::from_utf8(bytes)
                && text.contains(ours)
            {
                *bytes = text.replace(ours, others).into_bytes();
            }
        }
        if let Some(screen) = &mut self.screen {
            *screen = screen.replace(ours, others);
        }
    }

    /// Describes how `other` differs from this one; `None` if it doesn't.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let mut report = String::new();
        for (side, outcome) in [("host ", self), ("guest", other)] {
            for line in lines(&outcome.trouble) {
                report.push_str(&format!("    {side} * {line}\n"));
            }
        }
        if self.status != other.status {
            let show = |status: Option<i32>| vec![format!("{status:?}")];
            part(&mut report, "status", &show(self.status), &show(other.status));
        }
        let text = |bytes: &[u8]| visible(&String::from_utf8_lossy(bytes));
        if self.stdout != other.stdout {
            part(&mut report, "stdout", &text(&self.stdout), &text(&other.stdout));
        }
        if self.stderr != other.stderr {
            part(&mut report, "stderr", &text(&self.stderr), &text(&other.stderr));
        }
        if self.screen != other.screen {
            part(&mut report, "screen", &lines(&self.screen), &lines(&other.screen));
        }
        (!report.is_empty()).then_some(report)
    }

    /// All of it, for a person.
    pub fn describe(&self) -> String {
        let mut report = format!("    status {:?}\n", self.status);
        let text = |bytes: &[u8]| visible(&String::from_utf8_lossy(bytes));
        let parts = [
            ("stdout", text(&self.stdout)),
            ("stderr", text(&self.stderr)),
            ("screen", lines(&self.screen)),
            ("trouble", lines(&self.trouble)),
        ];
        for (name, lines) in parts {
            for line in lines {
                report.push_str(&format!("    {name} | {line}\n"));
            }
        }
        report
    }
}

/// The lines of a text that may be absent.
fn lines(text: &Option<String>) -> Vec<String> {
    text.as_deref().map(visible).unwrap_or_default()
}

/// The lines of a text, with what can't be seen spelled out.
fn visible(text: &str) -> Vec<String> {
    text.split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(line) => line.escape_debug().to_string().replace("\\\"", "\"").replace("\\'", "'"),
            None => format!("{} (no newline)", line.escape_debug()),
        })
        .collect()
}

/// Adds the lines in which the two differ.
fn part(report: &mut String, name: &str, ours: &[String], others: &[String]) {
    let same_start = ours.iter().zip(others).take_while(|(a, b)| a == b).count();
    let (ours, others) = (&ours[same_start..], &others[same_start..]);
    let both_ends = ours.iter().rev().zip(others.iter().rev());
    let same_end = both_ends.take_while(|(a, b)| a == b).count();
    report.push_str(&format!("    {name}, from line {}:\n", same_start + 1));
    for (sign, lines) in [("host ", ours), ("guest", others)] {
        for line in lines[..lines.len() - same_end].iter().take(SHOWN_LINES) {
            report.push_str(&format!("    {sign} | {line}\n"));
        }
    }
}

/// Decodes base64 as the applet writes it; `None` for anything else.
pub fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut bits = 0u32;
    let mut count = 0;
    for &byte in text.iter().filter(|byte| !byte.is_ascii_whitespace()) {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => continue,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_all_lengths() {
        assert_eq!(decode_base64(b"YQ==\n").unwrap(), b"a");
        assert_eq!(decode_base64(b"YWI=").unwrap(), b"ab");
        assert_eq!(decode_base64(b"AP+A\nYWJj").unwrap(), b"\0\xff\x80abc");
        assert_eq!(decode_base64(b"a b!"), None);
    }

    #[test]
    fn shows_only_what_differs() {
        let host = Outcome { stdout: b"a\nb\nc\n".into(), ..Outcome::default() };
        let guest = Outcome { stdout: b"a\nx\nc\n".into(), ..Outcome::default() };
        let report = host.difference(&guest).unwrap();
        assert_eq!(report, "    stdout, from line 2:\n    host  | b\n    guest | x\n");
        assert_eq!(host.difference(&host.clone()), None);
    }

    #[test]
    fn trouble_on_either_side_is_a_difference() {
        let fine = Outcome { status: Some(0), ..Outcome::default() };
        let hung = Outcome { trouble: Some("hung".into()), ..Outcome::default() };
        assert!(fine.difference(&hung).is_some());
        assert!(hung.difference(&hung).is_some());
    }
}
