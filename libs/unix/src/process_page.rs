//! The process table: what each process says of itself in its application page, for all to read.
//!
//! Written by its owner alone, so these words are claims (decisions 6): who acts on them (the
//! terminal's server, `kill`) has the kernel check the act itself. `ps` and `/proc` read nothing else.

/// First word of a process's page: "XOKPROC1".
pub const MAGIC: u64 = u64::from_le_bytes(*b"XOKPROC1");
/// Bytes of the command line kept.
pub const COMMAND_LINE_BYTES: usize = 1536;
/// Bytes of a path kept.
pub const PATH_BYTES: usize = 512;
/// Numbers of unsupported calls kept.
pub const UNSUPPORTED: usize = 64;

/// The page.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ProcessPage {
    /// [`MAGIC`]
    pub magic: u64,
    /// Process: the id of its first thread.
    pub pid: u32,
    /// Parent.
    pub ppid: u32,
    /// Process group.
    pub pgid: u32,
    /// Session.
    pub sid: u32,
    /// Real user.
    pub uid: u32,
    /// Effective user.
    pub euid: u32,
    /// Real group.
    pub gid: u32,
    /// Effective group.
    pub egid: u32,
    /// Non-zero: the terminal controls its session.
    pub terminal: u32,
    /// `RUNNING`, `STOPPED`, `ENDED`.
    pub status: u32,
    /// Signal that stopped it.
    pub stop_signal: u32,
    /// Times it stopped.
    pub stops: u32,
    /// Times it went on.
    pub continues: u32,
    /// Threads.
    pub threads: u32,
    /// Open descriptors.
    pub descriptors: u32,
    /// Nice value, two's complement.
    pub nice: u32,
    /// When it was made, nanoseconds since boot.
    pub started_ns: u64,
    /// Nanoseconds its waited-for children ran.
    pub children_ns: u64,
    /// Bytes mapped.
    pub mapped_bytes: u64,
    /// Bytes of them present.
    pub resident_bytes: u64,
    /// Signals blocked, signal n at bit n - 1.
    pub blocked: u64,
    /// Signals ignored.
    pub ignored: u64,
    /// Signals with a handler.
    pub caught: u64,
    /// File mode mask.
    pub umask: u32,
    /// Bytes in `command_line`.
    pub command_line_len: u32,
    /// Bytes in `executable`.
    pub executable_len: u32,
    /// Bytes in `directory`.
    pub directory_len: u32,
    /// Calls answered with `ENOSYS`.
    pub unsupported_count: u64,
    /// Zero.
    pub zero: [u64; 4],
    /// The name that `ps` shows, NUL-padded.
    pub name: [u8; 16],
    /// Arguments, each ended by a NUL.
    pub command_line: [u8; COMMAND_LINE_BYTES],
    /// The program's absolute path.
    pub executable: [u8; PATH_BYTES],
    /// The working directory.
    pub directory: [u8; PATH_BYTES],
    /// Unsupported calls: number in the low 16 bits, times above.
    pub unsupported: [u32; UNSUPPORTED],
}

/// It runs or sleeps: the kernel's record says which.
pub const RUNNING: u32 = 0;
/// A signal stopped it.
pub const STOPPED: u32 = 1;
/// It exits.
pub const ENDED: u32 = 2;

const _: () = assert!(size_of::<ProcessPage>() <= 4096);

impl Default for ProcessPage {
    fn default() -> Self {
        Self {
            magic: MAGIC,
            pid: 0,
            ppid: 0,
            pgid: 0,
            sid: 0,
            uid: 0,
            euid: 0,
            gid: 0,
            egid: 0,
            terminal: 0,
            status: RUNNING,
            stop_signal: 0,
            stops: 0,
            continues: 0,
            threads: 1,
            descriptors: 0,
            nice: 0,
            started_ns: 0,
            children_ns: 0,
            mapped_bytes: 0,
            resident_bytes: 0,
            blocked: 0,
            ignored: 0,
            caught: 0,
            umask: 0o22,
            command_line_len: 0,
            executable_len: 0,
            directory_len: 0,
            unsupported_count: 0,
            zero: [0; 4],
            name: [0; 16],
            command_line: [0; COMMAND_LINE_BYTES],
            executable: [0; PATH_BYTES],
            directory: [0; PATH_BYTES],
            unsupported: [0; UNSUPPORTED],
        }
    }
}

fn prefix(bytes: &[u8], len: u32) -> &[u8] {
    bytes.get(..len as usize).unwrap_or(bytes)
}

fn fill(place: &mut [u8], bytes: &[u8]) -> u32 {
    let len = bytes.len().min(place.len());
    place[..len].copy_from_slice(&bytes[..len]);
    len as u32
}

impl ProcessPage {
    /// The name up to its first NUL.
    pub fn name(&self) -> &[u8] {
        let end = self.name.iter().position(|&byte| byte == 0).unwrap_or(16);
        &self.name[..end]
    }

    /// Sets the name, cut to 15 bytes as Linux does.
    pub fn set_name(&mut self, name: &[u8]) {
        self.name = [0; 16];
        fill(&mut self.name[..15], name);
    }

    /// Arguments, each ended by a NUL.
    pub fn command_line(&self) -> &[u8] {
        prefix(&self.command_line, self.command_line_len)
    }

    /// Sets the arguments, cut to what fits.
    pub fn set_command_line(&mut self, bytes: &[u8]) {
        self.command_line_len = fill(&mut self.command_line, bytes);
    }

    /// The program's path.
    pub fn executable(&self) -> &[u8] {
        prefix(&self.executable, self.executable_len)
    }

    /// Sets the program's path.
    pub fn set_executable(&mut self, path: &[u8]) {
        self.executable_len = fill(&mut self.executable, path);
    }

    /// The working directory.
    pub fn directory(&self) -> &[u8] {
        prefix(&self.directory, self.directory_len)
    }

    /// Sets the working directory.
    pub fn set_directory(&mut self, path: &[u8]) {
        self.directory_len = fill(&mut self.directory, path);
    }

    /// Counts a call that is not supported.
    pub fn count_unsupported(&mut self, number: u16) {
        self.unsupported_count += 1;
        let place = self
            .unsupported
            .iter_mut()
            .find(|entry| **entry == 0 || (**entry as u16 == number && **entry >> 16 != 0));
        if let Some(entry) = place {
            let times = (*entry >> 16).saturating_add(1).min(0xffff);
            *entry = u32::from(number) | times << 16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_to_what_fits() {
        let mut page = ProcessPage::default();
        page.set_name(b"a-very-long-program-name");
        assert_eq!(page.name(), b"a-very-long-pro");
        page.set_name(b"sh");
        assert_eq!(page.name(), b"sh");
        page.set_command_line(&[b'x'; 2000]);
        assert_eq!(page.command_line().len(), COMMAND_LINE_BYTES);
        page.executable_len = u32::MAX;
        assert_eq!(page.executable().len(), PATH_BYTES);
    }

    #[test]
    fn unsupported_calls_are_counted_by_number() {
        let mut page = ProcessPage::default();
        for number in [425, 0, 425] {
            page.count_unsupported(number);
        }
        assert_eq!(page.unsupported[..3], [425 | 2 << 16, 1 << 16, 0]);
        assert_eq!(page.unsupported_count, 3);
    }
}
