//! Who serves what: the words that `init` publishes in its application page.
//!
//! Readable by everyone without a call; written by init alone. 0 means "not running".

use crate::published;

/// First word of init's page once it is filled: "XOKINIT1".
pub const MAGIC: u64 = u64::from_le_bytes(*b"XOKINIT1");
/// Index of init's environment.
pub const INIT_INDEX: usize = 1;

/// The words, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Service {
    /// [`MAGIC`]
    Magic = 0,
    /// Environment of ttyd.
    Terminal = 1,
    /// Region of the terminal's input: cooked bytes.
    TerminalInput = 2,
    /// Region of the terminal's output.
    TerminalOutput = 3,
    /// Region of the terminal's settings.
    TerminalState = 4,
    /// Environment of tmpfsd.
    Files = 5,
    /// Environment of arpd.
    Addresses = 6,
    /// Own IPv4 address, network order in the low 32 bits.
    Address = 7,
    /// Prefix length.
    Prefix = 8,
    /// Default gateway, or 0.
    Gateway = 9,
    /// Environment that runs the session (the shell or the `run=` program).
    Session = 10,
    /// 1: the console is raw, not a terminal (`run=`).
    RawConsole = 11,
    /// Region of the error stream in raw mode.
    ErrorOutput = 12,
    /// Region of the table of pseudo-terminals.
    Terminals = 15,
    /// Environment of cheetah.
    Web = 13,
    /// Environment of traced.
    Tracer = 14,
    /// Environment of setidd.
    SetId = 16,
    /// Environment of accountd.
    Accounts = 17,
}

/// The word, or 0.
pub fn get(service: Service) -> u64 {
    match published::application(INIT_INDEX) {
        Some(init) if word(init, Service::Magic) == MAGIC => word(init, service),
        _ => 0,
    }
}

/// The word of init's page, which has been filled.
#[inline]
pub fn word(init: published::ApplicationPage, service: Service) -> u64 {
    init.word(8 * service as usize)
}

/// The name of the native program that runs in this environment, if init has started it.
pub fn name(env: u32) -> Option<&'static str> {
    if abi::id::EnvId(env).index() == INIT_INDEX {
        return Some("init");
    }
    let known = [
        (Service::Terminal, "ttyd"),
        (Service::Files, "tmpfsd"),
        (Service::Addresses, "arpd"),
        (Service::Web, "cheetah"),
        (Service::Tracer, "traced"),
        (Service::SetId, "setidd"),
        (Service::Accounts, "accountd"),
    ];
    let is = |service| get(service) == u64::from(env);
    known.into_iter().find(|(service, _)| is(*service)).map(|(_, name)| name)
}
