//! The machine's static address, from the kernel's command line: `ip=ADDRESS/PREFIX[,GATEWAY]`.

use abi::published::COMMAND_LINE;
use alloc::string::String;
use xio::ipv4::Network;

/// The value of `key=` on the command line, percent-decoded.
pub fn value(key: &str) -> Option<String> {
    let mut buffer = [0; COMMAND_LINE];
    let line = core::str::from_utf8(xok::published::command_line(&mut buffer)).ok()?;
    let value = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
    // A slash in front makes it a path, which is decoded the same way.
    xio::http::decode(&(String::from("/") + value)).ok()
}

/// The address; `None`: the machine was given none, or one that is none.
pub fn network() -> Option<Network> {
    parse(&value("ip")?)
}

fn parse(text: &str) -> Option<Network> {
    let (own, gateway) = match text.split_once(',') {
        Some((own, gateway)) => (own, Some(gateway.parse().ok()?)),
        None => (text, None),
    };
    let (address, prefix) = own.split_once('/')?;
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
    Some(Network { address: address.parse().ok()?, prefix, gateway })
}
