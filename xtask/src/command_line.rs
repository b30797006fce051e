//! The kernel's command line: `key=value` words, as docs/decisions/0010-command-line.md says.

use std::net::Ipv4Addr;

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

/// Is it ADDRESS/PREFIX[,GATEWAY], as `ip=` has it? A machine that is told another one boots, with
/// no network and without a word about it.
pub fn is_address(text: &str) -> bool {
    let (own, gateway) = text.split_once(',').unwrap_or((text, "0.0.0.0"));
    let is_ip = |text: &str| text.parse::<Ipv4Addr>().is_ok();
    own.split_once('/').is_some_and(|(address, prefix)| {
        is_ip(address) && is_ip(gateway) && prefix.parse::<u8>().is_ok_and(|bits| bits <= 32)
    })
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
    fn addresses_are_told_from_other_words() {
        assert!(is_address("10.0.2.15/24,10.0.2.2") && is_address("10.0.2.15/32"));
        for wrong in ["", "999", "10.0.2.15", "10.0.2.15/33", "10.0.2/24", "10.0.2.15/24,", "/24"] {
            assert!(!is_address(wrong), "{wrong}");
        }
    }

    #[test]
    fn words_stay_words() {
        let mut line = CommandLine::default();
        line.set("run", "/bin/sh").set("arg", "-c").set("arg", "echo 100% \"ü\"\n").set("arg", "");
        let expected = "run=/bin/sh arg=-c arg=echo%20100%25%20%22%c3%bc%22%0a arg=";
        assert_eq!(line.text(), expected);
    }
}
