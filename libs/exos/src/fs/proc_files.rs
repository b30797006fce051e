//! /proc: the published pages, in the form that Linux programs read.

use abi::id::EnvId;
use abi::published::{CpuRecord, EnvRecord, EnvState, Table};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use unix::attributes::Attributes;
use unix::dirents::Packer;
use unix::proc_text::{self, CpuTimes, MemoryRecord};
use unix::process_page::{DIRECTORY, LIMITS, ROOT_DIRECTORY};
use unix::{Errno, mounts};
use xok::{clock, published};

use super::node::{Node, stamped};
use super::proc_records::{Ids, record_of, zombie};
use super::walk::Last;
use super::{Files, processor};
use crate::group_list;
use crate::process::Process;
use crate::said;
use crate::{environment, others};

/// Device number of /proc.
const DEVICE: u64 = 0x15;

/// Something in /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The process, 0: none.
    pid: u32,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Root,
    SelfLink,
    /// By place in [`GLOBAL`].
    Global(usize),
    MountsLink,
    Sys,
    SysKernel,
    /// By place in [`SYS`].
    SysFile(usize),
    Net,
    /// By place in [`NET`].
    NetFile(usize),
    Process,
    /// By place in [`OF_PROCESS`].
    ProcessFile(usize),
    /// By place in [`LINKS`].
    Link(usize),
    Descriptors,
    Descriptor(u32),
    Tasks,
    /// Of a thread: what a process has, but no list of threads.
    Task,
}

/// Files of the root.
const GLOBAL: &[&str] = &[
    "cmdline",
    "cpuinfo",
    "filesystems",
    "loadavg",
    "meminfo",
    "stat",
    "swaps",
    "uptime",
    "version",
];
/// Files of /proc/net, with their heads; nobody keeps such tables yet.
const NET: &[(&str, &str)] = &[
    (
        "dev",
        "Inter-|   Receive                                                |  Transmit\n face |\
         bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop \
         fifo colls carrier compressed\n",
    ),
    (
        "raw",
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  \
         timeout inode ref pointer drops\n",
    ),
    (
        "tcp",
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  \
         timeout inode\n",
    ),
    (
        "udp",
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  \
         timeout inode ref pointer drops\n",
    ),
    ("unix", "Num       RefCount Protocol Flags    Type St Inode Path\n"),
];
/// Files of /proc/sys/kernel.
const SYS: &[(&str, &str)] = &[
    ("hostname", "xok\n"),
    ("osrelease", "6.1.0-xok\n"),
    ("ostype", "Linux\n"),
    ("pid_max", "1073741824\n"),
];
/// Files of a process.
const OF_PROCESS: &[&str] = &[
    "auxv",
    "callsites",
    "cmdline",
    "comm",
    "environ",
    "limits",
    "maps",
    "mem",
    "mounts",
    "stat",
    "statm",
    "status",
];
/// Links of a process.
const LINKS: &[&str] = &["cwd", "exe", "root"];

impl Item {
    /// /proc itself.
    pub const ROOT: Item = Item { pid: 0, kind: Kind::Root };

    fn global(kind: Kind) -> Self {
        Self { pid: 0, kind }
    }

    fn of(self, kind: Kind) -> Self {
        Self { pid: self.pid, kind }
    }
}

fn number(name: &[u8]) -> Option<u32> {
    let text = core::str::from_utf8(name).ok()?;
    (!text.starts_with('0') || text == "0").then(|| text.parse().ok())?
}

fn place(list: &[&str], name: &[u8]) -> Option<usize> {
    list.iter().position(|entry| entry.as_bytes() == name)
}

/// What `name` is in a directory of /proc.
pub fn child(item: Item, name: &[u8]) -> Option<Item> {
    match item.kind {
        Kind::Root => match name {
            b"self" | b"thread-self" => Some(Item::global(Kind::SelfLink)),
            b"mounts" => Some(Item::global(Kind::MountsLink)),
            b"net" => Some(Item::global(Kind::Net)),
            b"sys" => Some(Item::global(Kind::Sys)),
            _ => match place(GLOBAL, name) {
                Some(at) => Some(Item::global(Kind::Global(at))),
                None => {
                    let pid = number(name)?;
                    let exists = said::brief(EnvId(pid)).is_some() || zombie(pid).is_some();
                    exists.then_some(Item { pid, kind: Kind::Process })
                }
            },
        },
        Kind::Sys => (name == b"kernel").then(|| Item::global(Kind::SysKernel)),
        Kind::SysKernel => {
            let at = SYS.iter().position(|entry| entry.0.as_bytes() == name)?;
            Some(Item::global(Kind::SysFile(at)))
        }
        Kind::Net => {
            let at = NET.iter().position(|entry| entry.0.as_bytes() == name)?;
            Some(Item::global(Kind::NetFile(at)))
        }
        Kind::Process | Kind::Task => match name {
            b"fd" => Some(item.of(Kind::Descriptors)),
            b"task" if item.kind == Kind::Process => Some(item.of(Kind::Tasks)),
            _ => place(OF_PROCESS, name)
                .map(|at| item.of(Kind::ProcessFile(at)))
                .or_else(|| place(LINKS, name).map(|at| item.of(Kind::Link(at)))),
        },
        Kind::Descriptors => {
            let fd = number(name)?;
            let own = crate::thread::process();
            let open = if item.pid == own.id.0 {
                own.files.any(fd as i32).is_ok()
            } else {
                u16::try_from(fd)
                    .is_ok_and(|fd| fd < ROOT_DIRECTORY && published_name(item.pid, fd).is_some())
            };
            open.then(|| item.of(Kind::Descriptor(fd)))
        }
        Kind::Tasks => (number(name)? == item.pid).then(|| item.of(Kind::Task)),
        _ => None,
    }
}

/// Is it a symbolic link?
pub fn is_link(item: Item) -> bool {
    matches!(item.kind, Kind::SelfLink | Kind::MountsLink | Kind::Link(_) | Kind::Descriptor(_))
}

fn is_directory(item: Item) -> bool {
    matches!(
        item.kind,
        Kind::Root
            | Kind::Net
            | Kind::Sys
            | Kind::SysKernel
            | Kind::Process
            | Kind::Descriptors
            | Kind::Tasks
            | Kind::Task
    )
}

/// A link that leads to a thing rather than to a path: an open descriptor, a set-id program.
pub fn followed(files: &Files, node: Node) -> Option<Node> {
    let Node::Proc(Item { kind, pid }) = node else { return None };
    let own = crate::thread::process();
    if pid != own.id.0 {
        return None;
    }
    let fd = match kind {
        Kind::Descriptor(fd) => fd,
        Kind::Link(at) if LINKS[at] == "exe" => return own.program,
        _ => return None,
    };
    let description = files.any(fd as i32).ok()?;
    Some(description.file.node().unwrap_or(Node::Descriptor(fd)))
}

/// What a process has open and where it is are for those to see who may look into it (ptrace(2)).
pub fn check(process: &Process, item: Item) -> Result<(), Errno> {
    let private = matches!(item.kind, Kind::Link(_) | Kind::Descriptors | Kind::Descriptor(_));
    if private && !others::may_look(process, item.pid)? { Err(Errno::EACCES) } else { Ok(()) }
}

/// Where a link leads.
pub fn target(files: &Files, item: Item) -> Result<Vec<u8>, Errno> {
    let own = crate::thread::process();
    check(own, item)?;
    match item.kind {
        Kind::SelfLink => Ok(format!("{}", own.id.0).into_bytes()),
        Kind::MountsLink => Ok(Vec::from(*b"self/mounts")),
        Kind::Link(at) => match (LINKS[at], item.pid == own.id.0) {
            ("exe", true) => Ok(own.executable.clone().into_bytes()),
            ("exe", false) => {
                let page = said::of_index(EnvId(item.pid).index()).ok_or(Errno::ENOENT)?;
                let path = page.own_word().path();
                if path.is_empty() { Err(Errno::ENOENT) } else { Ok(path.to_vec()) }
            }
            ("cwd", true) => Ok(files.directory.path.as_bytes().to_vec()),
            ("cwd", false) => published_name(item.pid, DIRECTORY).ok_or(Errno::ENOENT),
            ("root", true) => Ok(files.root.path.as_bytes().to_vec()),
            ("root", false) => {
                said::of_index(EnvId(item.pid).index()).ok_or(Errno::ENOENT)?;
                let elsewhere = published_name(item.pid, ROOT_DIRECTORY);
                Ok(elsewhere.unwrap_or_else(|| Vec::from(*b"/")))
            }
            _ => Err(Errno::EACCES),
        },
        Kind::Descriptor(fd) if item.pid == own.id.0 => {
            Ok(files.any(fd as i32)?.name().into_owned())
        }
        Kind::Descriptor(fd) => published_name(item.pid, fd as u16).ok_or(Errno::ENOENT),
        _ => Err(Errno::EINVAL),
    }
}

/// A name from the list of open files that a process publishes.
fn published_name(pid: u32, number: u16) -> Option<Vec<u8>> {
    let page = said::of_index(EnvId(pid).index())?;
    page.own_word().files().find(|file| file.0 == number).map(|file| file.1.to_vec())
}

/// Attributes.
pub fn attributes(item: Item) -> Result<Attributes, Errno> {
    let (mode, links) = match item.kind {
        Kind::Descriptors => (raw::S_IFDIR | 0o500, 2),
        _ if is_directory(item) => (raw::S_IFDIR | 0o555, 2),
        _ if is_link(item) => (raw::S_IFLNK | 0o777, 1),
        Kind::ProcessFile(at) if ["auxv", "environ"].contains(&OF_PROCESS[at]) => {
            (raw::S_IFREG | 0o400, 1)
        }
        Kind::ProcessFile(at) if OF_PROCESS[at] == "mem" => (raw::S_IFREG | 0o600, 1),
        _ => (raw::S_IFREG | 0o444, 1),
    };
    let mut attributes =
        Attributes { device: DEVICE, inode: inode(item), mode, links, ..stamped() };
    if item.pid != 0
        && let Some(page) = said::of_index(EnvId(item.pid).index())
    {
        let page = page.own_word();
        // Of a process that hides itself only the directory is its user's (proc(5)).
        if page.undumpable == 0 || mode == raw::S_IFDIR | 0o555 {
            let ids = Ids::of(EnvId(item.pid), page);
            attributes.uid = ids.users[1];
            attributes.gid = ids.groups[1];
        }
    }
    Ok(attributes)
}

fn inode(item: Item) -> u64 {
    let kind = match item.kind {
        Kind::Root => 1,
        Kind::SelfLink => 2,
        Kind::MountsLink => 3,
        Kind::Net => 4,
        Kind::Process => 5,
        Kind::Descriptors => 6,
        Kind::Tasks => 7,
        Kind::Sys => 8,
        Kind::SysKernel => 9,
        Kind::Task => 10,
        Kind::SysFile(at) => 0x280 + at as u64,
        Kind::Global(at) => 0x100 + at as u64,
        Kind::NetFile(at) => 0x200 + at as u64,
        Kind::ProcessFile(at) => 0x300 + at as u64,
        Kind::Link(at) => 0x400 + at as u64,
        Kind::Descriptor(fd) => 0x1_0000 + u64::from(fd),
    };
    u64::from(item.pid) << 24 | kind
}

/// Lists a directory from `position`.
pub fn list(files: &Files, item: Item, position: u64, packer: &mut Packer) -> Result<(), Errno> {
    let mut names: Vec<(String, u32, Item)> = Vec::new();
    let mut add = |name: &str, kind| {
        let child = item.of(kind);
        let mode = attributes(child).map_or(raw::S_IFREG, |attributes| attributes.mode);
        names.push((name.into(), mode, child));
    };
    match item.kind {
        Kind::Root => {
            GLOBAL.iter().enumerate().for_each(|(at, name)| add(name, Kind::Global(at)));
            add("mounts", Kind::MountsLink);
            add("net", Kind::Net);
            add("self", Kind::SelfLink);
            add("sys", Kind::Sys);
        }
        Kind::Sys => add("kernel", Kind::SysKernel),
        Kind::SysKernel => {
            SYS.iter().enumerate().for_each(|(at, file)| add(file.0, Kind::SysFile(at)));
        }
        Kind::Net => NET.iter().enumerate().for_each(|(at, file)| add(file.0, Kind::NetFile(at))),
        Kind::Process | Kind::Task => {
            OF_PROCESS.iter().enumerate().for_each(|(at, name)| add(name, Kind::ProcessFile(at)));
            LINKS.iter().enumerate().for_each(|(at, name)| add(name, Kind::Link(at)));
            add("fd", Kind::Descriptors);
            if item.kind == Kind::Process {
                add("task", Kind::Tasks);
            }
        }
        Kind::Descriptors if item.pid == crate::thread::process().id.0 => {
            for fd in files.open_numbers() {
                add(&format!("{fd}"), Kind::Descriptor(fd));
            }
        }
        Kind::Descriptors => {
            let page = said::of_index(EnvId(item.pid).index()).ok_or(Errno::ENOENT)?;
            for (fd, _) in page.own_word().files().filter(|file| file.0 < ROOT_DIRECTORY) {
                add(&format!("{fd}"), Kind::Descriptor(u32::from(fd)));
            }
        }
        Kind::Tasks => add(&format!("{}", item.pid), Kind::Task),
        _ => return Err(Errno::ENOTDIR),
    }
    let own = inode(item);
    let fixed = [(".", own), ("..", 1)];
    for (at, (name, inode)) in fixed.iter().enumerate().skip(position as usize) {
        if !packer.push(*inode, at as u64 + 1, raw::S_IFDIR, name.as_bytes()) {
            return Ok(());
        }
    }
    let descriptors = item.kind == Kind::Descriptors;
    for (at, (name, mode, child)) in names.iter().enumerate() {
        // A descriptor's place is its number, so that one that is closed meanwhile moves no other.
        let at = match child.kind {
            Kind::Descriptor(fd) if descriptors => u64::from(fd),
            _ => at as u64,
        };
        if at + 2 >= position && !packer.push(inode(*child), at + 3, *mode, name.as_bytes()) {
            return Ok(());
        }
    }
    if item.kind == Kind::Root {
        list_processes(names.len() as u64 + 2, position, packer);
    }
    Ok(())
}

/// Processes in the order of their indices, so that a listing goes on rightly while some end.
fn list_processes(base: u64, position: u64, packer: &mut Packer) {
    let envs = published::table(Table::Envs).count as usize;
    for index in 1..envs {
        let Some(record) = published::record::<EnvRecord>(Table::Envs, index) else { return };
        let id = EnvId(record.id);
        if id.is_none() || (said::brief_of(&record).is_none() && zombie(record.id).is_none()) {
            continue;
        }
        let at = base + index as u64;
        if at < position || (position > base && at == position) {
            continue;
        }
        let child = Item { pid: id.0, kind: Kind::Process };
        let name = format!("{}", id.0);
        if !packer.push(inode(child), at + 1, raw::S_IFDIR, name.as_bytes()) {
            return;
        }
    }
}

/// A file's text, as it is now.
pub fn text(process: &Process, item: Item) -> Result<Vec<u8>, Errno> {
    match item.kind {
        Kind::Global(at) => Ok(global(process, GLOBAL[at])),
        Kind::NetFile(at) => Ok(NET[at].1.as_bytes().to_vec()),
        Kind::SysFile(at) => Ok(SYS[at].1.as_bytes().to_vec()),
        Kind::ProcessFile(at) => of_process(process, item.pid, OF_PROCESS[at]),
        _ => Err(Errno::EISDIR),
    }
}

fn global(process: &Process, name: &str) -> Vec<u8> {
    let directory = published::directory();
    let cpus: Vec<CpuRecord> =
        (0..directory.cpus as usize).filter_map(|at| published::record(Table::Cpus, at)).collect();
    let now = clock::now_ns();
    let envs = published::table(Table::Envs).count as usize;
    let records = || (1..envs).filter_map(|at| published::record::<EnvRecord>(Table::Envs, at));
    let in_state = |record: &EnvRecord, state: EnvState| record.state == state as u32;
    let running = records()
        .filter(|one| in_state(one, EnvState::Ready) || in_state(one, EnvState::Running))
        .count() as u32;
    match name {
        "cmdline" => {
            let mut buffer = [0; abi::published::COMMAND_LINE];
            let mut line = published::command_line(&mut buffer).to_vec();
            line.push(b'\n');
            line
        }
        "cpuinfo" => proc_text::cpuinfo(directory.cpus, &processor::model()),
        "filesystems" => Vec::from(*b"nodev\tproc\nnodev\ttmpfs\nnodev\tdevtmpfs\n\txokimage\n"),
        "loadavg" => {
            let last = records().map(|record| record.id).max().unwrap_or(0);
            let all = records().filter(|record| record.id != 0).count() as u32;
            proc_text::loadavg(running, all, last)
        }
        "meminfo" => {
            let space = process.files.client().and_then(|client| client.space());
            let files = space.map_or(0, |space| (space.blocks - space.blocks_free) * 4096);
            let (total, free) = (directory.frames_usable * 4096, directory.frames_free * 4096);
            proc_text::meminfo(&MemoryRecord { total, free, files })
        }
        "stat" => {
            let times: Vec<CpuTimes> = cpus
                .iter()
                .map(|cpu| CpuTimes {
                    busy_ns: now.saturating_sub(cpu.idle_ns),
                    idle_ns: cpu.idle_ns,
                    interrupts: cpu.interrupts,
                    switches: cpu.switches,
                })
                .collect();
            let boot = published::clock().wall_ns / 1_000_000_000;
            let made = records().map(|record| EnvId(record.id).generation() as u64 + 1).sum();
            proc_text::machine_stat(&times, boot, made, running)
        }
        "swaps" => Vec::from(*b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"),
        "uptime" => proc_text::uptime(now, cpus.iter().map(|cpu| cpu.idle_ns).sum()),
        _ => processor::version().into_bytes(),
    }
}

fn of_process(process: &Process, pid: u32, name: &str) -> Result<Vec<u8>, Errno> {
    let own = pid == process.id.0;
    match name {
        "cmdline" => {
            let page = said::of_index(EnvId(pid).index());
            Ok(page.map_or(Vec::new(), |page| page.own_word().command().to_vec()))
        }
        "environ" => {
            let id = EnvId(pid);
            let page = said::of_index(id.index()).ok_or(Errno::ESRCH)?;
            environment::read(process, id, page.own_word())
        }
        "comm" => {
            let mut name = record_of(pid)?.name;
            name.push(b'\n');
            Ok(name)
        }
        "mounts" => Ok(mount_text(&process.files)),
        "stat" => Ok(proc_text::stat(&record_of(pid)?)),
        "statm" => Ok(proc_text::statm(&record_of(pid)?)),
        "status" => {
            let mut record = record_of(pid)?;
            if own {
                // Its page has room for the first of them.
                record.more_groups = group_list::numbers(&process.more_groups)?;
            }
            Ok(proc_text::status(&record))
        }
        "callsites" if own => Ok(crate::memory::space().rewrites.text().into_bytes()),
        "limits" => {
            let page = said::of_index(EnvId(pid).index()).ok_or(Errno::ESRCH)?;
            Ok(limit_text(&page.own_word().limits))
        }
        // Nothing is mapped at its beginning, and no more of it is shown.
        "mem" if own => Err(Errno::EIO),
        "auxv" if own => processor::vector(),
        "maps" if own => Ok(proc_text::maps(&processor::maps())),
        _ => Err(Errno::EACCES),
    }
}

fn mount_text(files: &Files) -> Vec<u8> {
    let mut rows = Vec::from([
        ("xokimage", "/", "xokimage", "ro"),
        ("proc", "/proc", "proc", "ro,nosuid,nodev,noexec"),
        ("dev", "/dev", "devtmpfs", "rw,nosuid"),
    ]);
    rows.extend(mounts::WRITABLE.iter().map(|&(path, _)| {
        let place = files.find(raw::AT_FDCWD, path.as_bytes(), Last::Follow);
        let attributes = place.and_then(|place| place.node.attributes(files));
        let flags = attributes.map_or(0, |attributes| attributes.mount_flags);
        let nosuid = flags & u64::from(raw::MS_NOSUID) != 0;
        ("tmpfs", path, "tmpfs", if nosuid { "rw,nosuid" } else { "rw" })
    }));
    proc_text::mounts(&rows)
}

fn limit_text(limits: &[[u64; 2]; LIMITS]) -> Vec<u8> {
    const ROWS: [(&str, u32, &str); 7] = [
        ("Max cpu time", raw::RLIMIT_CPU, "seconds"),
        ("Max file size", raw::RLIMIT_FSIZE, "bytes"),
        ("Max data size", raw::RLIMIT_DATA, "bytes"),
        ("Max stack size", raw::RLIMIT_STACK, "bytes"),
        ("Max processes", raw::RLIMIT_NPROC, "processes"),
        ("Max open files", raw::RLIMIT_NOFILE, "files"),
        ("Max address space", raw::RLIMIT_AS, "bytes"),
    ];
    let rows = ROWS.map(|(name, limit, unit)| {
        let [soft, hard] = limits[limit as usize];
        (name, soft, hard, unit)
    });
    proc_text::limits(&rows)
}
