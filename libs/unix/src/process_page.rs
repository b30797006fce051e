//! The process table: what each process says of itself in its application page, for all to read.
//!
//! Written by its owner alone, so these words are claims (decisions 6): who acts on them (the
//! terminal's server, `kill`) has the kernel check the act itself. `ps` and `/proc` read nothing else.

/// First word of a page that a Linux process has filled: "EXOSPROC".
pub const MAGIC: u64 = u64::from_le_bytes(*b"EXOSPROC");
/// Bytes of the command line kept.
pub const COMMAND_BYTES: usize = 1024;
/// Bytes of the executable's path kept.
pub const PATH_BYTES: usize = 256;
/// Linux calls counted.
pub const CALLS: usize = 480;

/// The page.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ProcessPage {
    /// [`MAGIC`]
    pub magic: u64,
    /// Parent.
    pub parent: u32,
    /// Process group.
    pub group: u32,
    /// Session.
    pub session: u32,
    /// Threads.
    pub threads: u32,
    /// Real user.
    pub user: u32,
    /// Effective user.
    pub effective_user: u32,
    /// Real group id.
    pub group_id: u32,
    /// Effective group id.
    pub effective_group_id: u32,
    /// Signal that stopped it, 0: it runs.
    pub stop_signal: u32,
    /// Times it was stopped.
    pub stop_count: u32,
    /// Times it was continued.
    pub continue_count: u32,
    /// Open descriptors.
    pub descriptors: u32,
    /// When it was made, nanoseconds since boot.
    pub start_ns: u64,
    /// Name (`PR_SET_NAME`), padded with zeros.
    pub name: [u8; 16],
    /// Bytes promised to the program.
    pub virtual_bytes: u64,
    /// Blocked signals.
    pub blocked: u64,
    /// Ignored signals.
    pub ignored: u64,
    /// Handled signals.
    pub handled: u64,
    /// Has it a terminal as its session's?
    pub terminal: u32,
    /// Nice value.
    pub nice: i32,
    /// Has it executed a program since it was forked?
    pub executed: u32,
    /// Bytes of `command`.
    pub command_len: u32,
    /// Bytes of `path`.
    pub path_len: u32,
    /// Zero.
    pub zero: u32,
    /// Arguments, each with its NUL.
    pub command: [u8; COMMAND_BYTES],
    /// The executable.
    pub path: [u8; PATH_BYTES],
    /// Calls answered with ENOSYS, by number.
    pub unsupported: [u16; CALLS],
}

const _: () = assert!(size_of::<ProcessPage>() <= 4096);

fn prefix(bytes: &[u8], len: u32) -> &[u8] {
    bytes.get(..len as usize).unwrap_or(bytes)
}

impl ProcessPage {
    /// The name up to its first NUL.
    pub fn name(&self) -> &[u8] {
        let end = self.name.iter().position(|&byte| byte == 0).unwrap_or(self.name.len());
        &self.name[..end]
    }

    /// Arguments, each with its NUL.
    pub fn command(&self) -> &[u8] {
        prefix(&self.command, self.command_len)
    }

    /// The executable's path.
    pub fn path(&self) -> &[u8] {
        prefix(&self.path, self.path_len)
    }
}
