//! The kernel's command line: `key=value` words, as docs/decisions/0010-command-line.md says.

/// A command line being put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    words: Vec<String>,
}

impl CommandLine {
    /// Adds `key=value`, with what would break the line apart percent-encoded.
    pub fn set(&mut self, key: &str, value: &str) -> &mut Self {
        self.set_bytes(key, value.as_bytes())
    }

    /// Adds `key=value` whose value need not be text.
    pub fn set_bytes(&mut self, key: &str, value: &[u8]) -> &mut Self {
        self.words.push(format!("{key}={}", encode(value)));
        self
    }

    /// The line as the kernel gets it.
    pub fn text(&self) -> String {
        self.words.join(" ")
    }
}

/// Percent-encodes everything but visible ASCII, and of that the percent sign and the quote.
fn encode(value: &[u8]) -> String {
    let mut text = String::new();
    for &byte in value {
        if byte.is_ascii_graphic() && byte != b'%' && byte != b'"' {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_words() {
        let mut line = CommandLine::default();
        line.set("run", "/bin/sh").set("arg", "-c").set("arg", "echo 100% \"ü\"\n").set("arg", "");
        let expected = "run=/bin/sh arg=-c arg=echo%20100%25%20%22%c3%bc%22%0a arg=";
        assert_eq!(line.text(), expected);
    }
}
