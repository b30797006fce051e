//! What `exec` hands over to the process's next life: a flat list of words and strings.
//!
//! ```text
//!  magic · pid, area · users, groups, payer · blocked, pending, ignored · timer · traced · limits
//!  children · executable · arguments · environment · files (theirs to read)
//! ```

use crate::errno::Errno;
use crate::fs::node::Node;
use crate::posix_timers::Timers;
use crate::process::{Child, LIMITS, Process};
use crate::signal::Info;
use abi::id::{EnvId, RegionId};
use alloc::string::String;
use alloc::vec::Vec;
use unix::attributes::Attributes;

/// First word of a block: "EXOSLIFE".
const MAGIC: u64 = u64::from_le_bytes(*b"EXOSLIFE");

/// A program to run, and with what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Where its bytes lie in the image.
    pub image: Option<(u64, u64)>,
    /// Its bytes, if they lie elsewhere; in the next life they lie at `layout::PROGRAM`.
    pub bytes: Vec<u8>,
    /// What it is, and its attributes; told to no next life.
    pub origin: Option<(Node, Attributes)>,
    /// How many bytes lie there.
    pub handed_over: u64,
    /// Its path, links resolved.
    pub path: String,
    /// The path that was asked for (`AT_EXECFN`).
    pub asked: Vec<u8>,
    /// argv
    pub arguments: Vec<Vec<u8>>,
    /// envp
    pub environment: Vec<Vec<u8>>,
}

struct Writer(Vec<u8>);

impl Writer {
    fn word(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }
    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
    fn list(&mut self, list: &[Vec<u8>]) {
        self.word(list.len() as u64);
        for item in list {
            self.bytes(item);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn word(&mut self) -> Result<u64, Errno> {
        let (word, rest) = self.0.split_first_chunk::<8>().ok_or(Errno::EINVAL)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }
    fn bytes(&mut self) -> Result<&'a [u8], Errno> {
        let len = usize::try_from(self.word()?).map_err(|_| Errno::EINVAL)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Errno::EINVAL)?;
        self.0 = rest;
        Ok(bytes)
    }
    fn list(&mut self) -> Result<Vec<Vec<u8>>, Errno> {
        let count = self.word()?;
        (0..count).map(|_| Ok(self.bytes()?.to_vec())).collect()
    }
}

/// Writes a block for `process`, the signals that its thread blocks, and what it is to run.
pub fn write(process: &Process, blocked: u64, command: &Command) -> Vec<u8> {
    let mut block = head(process, blocked, command);
    process.files.save(&mut block);
    block
}

/// A block without files: the first process of all opens the terminal itself.
pub fn head(process: &Process, blocked: u64, command: &Command) -> Vec<u8> {
    let mut out = Writer(Vec::new());
    out.word(MAGIC);
    out.word(u64::from(process.id.0));
    for id in process.users.iter().chain(&process.groups) {
        out.word(u64::from(*id));
    }
    out.word(u64::from(process.payer));
    out.word(u64::from(process.more_groups.count));
    for region in process.more_groups.regions {
        out.word(region.0);
    }
    out.word(blocked);
    out.word(process.signals.pending.list().len() as u64);
    for (signal, info) in process.signals.pending.list() {
        out.word(u64::from(*signal) | u64::from(info.code as u32) << 32);
        out.word(info.first);
        out.word(info.second);
    }
    out.word(process.signals.set_of(false));
    out.word(process.timer.0);
    out.word(process.timer.1);
    process.timers.saved().into_iter().for_each(|word| out.word(word));
    out.word(process.children_ns);
    let left = process.left_own_group.get();
    let told = [process.traced, process.private, process.told_group, left, process.closed];
    out.word((0..).zip(told).map(|(bit, is)| u64::from(is) << bit).sum());
    for (soft, hard) in process.limits.0 {
        out.word(soft);
        out.word(hard);
    }
    out.word(process.children.len() as u64);
    for child in &process.children {
        out.word(u64::from(child.id.0) | u64::from(child.group) << 32);
        out.word(u64::from(child.kept) | u64::from(child.order) << 32);
        out.word(u64::from(child.stops) | u64::from(child.continuations) << 32);
    }
    let (offset, size) = command.image.unwrap_or((0, 0));
    out.word(u64::from(command.image.is_some()));
    out.word(offset);
    out.word(size);
    out.word(command.bytes.len() as u64);
    out.bytes(command.path.as_bytes());
    out.bytes(&command.asked);
    out.list(&command.arguments);
    out.list(&command.environment);
    out.0
}

/// Reads a block; the part about files, which looks at who asks, is left for `Files::load`.
pub fn read(block: &[u8]) -> Result<(Process, u64, Command, &[u8]), Errno> {
    let mut from = Reader(block);
    if from.word()? != MAGIC {
        return Err(Errno::EINVAL);
    }
    let mut process = Process { id: EnvId(from.word()? as u32), ..Process::default() };
    for id in process.users.iter_mut().chain(&mut process.groups) {
        *id = from.word()? as u32;
    }
    process.listed = (process.users, process.groups);
    process.payer = from.word()? as u32;
    process.more_groups.count = from.word()? as u32;
    for region in &mut process.more_groups.regions {
        *region = RegionId(from.word()?);
    }
    let blocked = from.word()?;
    let waiting = from.word()?;
    for _ in 0..waiting {
        let (word, first, second) = (from.word()?, from.word()?, from.word()?);
        let info = Info { code: (word >> 32) as i32, first, second, ..Info::default() };
        process.signals.pending.put(word as u32, info);
    }
    let ignored = from.word()?;
    process.signals.ignore(ignored);
    process.timer = (from.word()?, from.word()?);
    process.timers = Timers::loaded([from.word()?, from.word()?, from.word()?, from.word()?]);
    process.children_ns = from.word()?;
    let told = from.word()?;
    (process.traced, process.private) = (told & 1 != 0, told & 2 != 0);
    process.told_group = told & 4 != 0;
    process.left_own_group.set(told & 8 != 0);
    process.closed = told & 16 != 0;
    for at in 0..LIMITS {
        process.limits.0[at] = (from.word()?, from.word()?);
    }
    let children = from.word()?;
    for _ in 0..children {
        let (first, kept, second) = (from.word()?, from.word()?, from.word()?);
        process.children.push(Child {
            id: EnvId(first as u32),
            group: (first >> 32) as u32,
            order: (kept >> 32) as u32,
            stops: second as u32,
            continuations: (second >> 32) as u32,
            kept: kept as u32 != 0,
            told: false,
            told_alive: [second as u32, (second >> 32) as u32],
            told_early: false,
        });
    }
    let in_image = from.word()? != 0;
    let place = (from.word()?, from.word()?);
    let command = Command {
        image: in_image.then_some(place),
        bytes: Vec::new(),
        origin: None,
        handed_over: from.word()?,
        path: String::from_utf8_lossy(from.bytes()?).into_owned(),
        asked: from.bytes()?.to_vec(),
        arguments: from.list()?,
        environment: from.list()?,
    };
    process.executable = command.path.clone();
    Ok((process, blocked, command, from.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_goes_on() {
        let mut process = Process { id: EnvId(77), ..Process::default() };
        process.users = [1, 2, 3];
        process.signals.ignore(1 << 1);
        let told = Info { code: -1, first: 9, second: 8, ..Info::default() };
        process.signals.pending.put(40, told);
        process.signals.pending.put(40, told);
        process.children.push(Child {
            id: EnvId(5),
            group: 6,
            order: 9,
            stops: 7,
            continuations: 8,
            kept: true,
            told: false,
            told_alive: [7, 8],
            told_early: false,
        });
        let command = Command {
            image: Some((4096, 10)),
            path: "/bin/busybox".into(),
            asked: b"/bin/sh".to_vec(),
            arguments: alloc::vec![b"sh".to_vec(), b"-c".to_vec(), b"".to_vec()],
            environment: alloc::vec![b"PATH=/bin".to_vec()],
            ..Command::default()
        };
        let block = write(&process, 0xf0, &command);
        let (read_process, blocked, read_command, _) = read(&block).unwrap();
        assert_eq!(read_command, command);
        assert_eq!(read_process.id, process.id);
        assert_eq!(read_process.users, process.users);
        assert_eq!(read_process.children, process.children);
        assert_eq!(read_process.signals.pending, process.signals.pending);
        assert_eq!(blocked, 0xf0);
        assert_eq!(read_process.signals.set_of(false), 1 << 1);
        assert!(read(&block[..block.len() / 4]).is_err());
        assert!(read(b"not a block at all").is_err());
    }
}
