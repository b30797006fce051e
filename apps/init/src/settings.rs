//! The command line: `key=value` words, percent-encoded (docs/decisions/0010).

use alloc::vec::Vec;

/// What init is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `run=`: the program, else the shell.
    pub run: Option<Vec<u8>>,
    /// `stdin=terminal`: the program gets the terminal, as the shell does.
    pub terminal: bool,
    /// `arg=`: argv from its zeroth element on.
    pub arguments: Vec<Vec<u8>>,
    /// `env=`: `NAME=VALUE`.
    pub environment: Vec<Vec<u8>>,
    /// `trace=`: what the kernel records is sent out.
    pub trace: bool,
    /// `ip=ADDRESS/PREFIX,GATEWAY`
    pub address: Option<Address>,
}

/// The static IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address, in network order.
    pub address: u32,
    /// Bits of the network.
    pub prefix: u8,
    /// The gateway, in network order; 0: none.
    pub gateway: u32,
}

/// Reads a command line.
pub fn parse(line: &[u8]) -> Settings {
    let mut settings = Settings::default();
    for word in line.split(u8::is_ascii_whitespace) {
        let Some(at) = word.iter().position(|&byte| byte == b'=') else { continue };
        let (key, value) = (&word[..at], decode(&word[at + 1..]));
        match key {
            b"run" => settings.run = Some(value),
            b"stdin" => settings.terminal = value == b"terminal",
            b"arg" => settings.arguments.push(value),
            b"env" => settings.environment.push(value),
            b"trace" => settings.trace = true,
            b"ip" => settings.address = address(&value),
            _ => {}
        }
    }
    settings
}

fn decode(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if let (b'%', [high, low, ..]) = (byte, rest)
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            bytes.push(high << 4 | low);
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    bytes
}

fn address(text: &[u8]) -> Option<Address> {
    let text = core::str::from_utf8(text).ok()?;
    let (own, gateway) = text.split_once(',').unwrap_or((text, ""));
    let (address, prefix) = own.split_once('/')?;
    let prefix: u8 = prefix.parse().ok()?;
    let gateway = if gateway.is_empty() { 0 } else { numbers(gateway)? };
    (prefix <= 32).then_some(Address { address: numbers(address)?, prefix, gateway })
}

fn numbers(text: &str) -> Option<u32> {
    let address: core::net::Ipv4Addr = text.parse().ok()?;
    Some(u32::from_le_bytes(address.octets()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_decoded() {
        let line = b"log=debugcon run=/bin/sh arg=sh arg=-c arg=echo%20100%25%0a arg= env=A=b%3d";
        let settings = parse(line);
        assert_eq!(settings.run.as_deref(), Some(&b"/bin/sh"[..]));
        let arguments: Vec<&[u8]> = settings.arguments.iter().map(Vec::as_slice).collect();
        assert_eq!(arguments, [&b"sh"[..], b"-c", b"echo 100%\n", b""]);
        assert_eq!(settings.environment, [b"A=b=".to_vec()]);
        assert!(!settings.terminal && parse(b"run=/bin/vi stdin=terminal").terminal);
    }

    #[test]
    fn addresses_are_in_network_order() {
        let settings = parse(b"ip=10.0.2.15/24,10.0.2.2");
        let expected = Address {
            address: u32::from_ne_bytes([10, 0, 2, 15]).to_le(),
            prefix: 24,
            gateway: u32::from_le_bytes([10, 0, 2, 2]),
        };
        assert_eq!(settings.address, Some(expected));
        assert_eq!(parse(b"ip=10.0.2.15").address, None);
        assert_eq!(parse(b"ip=10.0.2.15/33").address, None);
    }
}
