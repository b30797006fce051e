//! Open files on their way through `exec`: written in the old space, read in the new one.

use abi::id::RegionId;
use alloc::rc::Rc;
use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use unix::Errno;
use unix::path::Canonical;
use unix::tty::shared::Entry;

use super::description::Description;
use super::epoll::Epoll;
use super::event_counter::EventCounter;
use super::node::{Device, Node, Place};
use super::open_file::OpenFile;
use super::pipe::Pipe;
use super::pty::{self, Master};
use super::region::{Heritage, Region};
use super::signal_file::SignalFile;
use super::terminal::Tty;
use super::timer_file::TimerFile;
use super::whose::Whose;
use super::{Descriptor, Files};
use crate::net::socket::Socket;
use crate::unix_sockets::UnixSocket;

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn word(&mut self, word: u64) {
        self.0.extend(word.to_le_bytes());
    }

    fn words(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.word(*word));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn place(&mut self, node: Option<Node>, path: &Canonical) {
        let (tag, number) = match node {
            Some(Node::Image(index)) => (1, u64::from(index)),
            Some(Node::Memory(id)) => (2, id),
            _ => (0, 0),
        };
        self.word(tag);
        self.word(number);
        self.bytes(path.as_bytes());
    }
}

/// Writes everything [`load`] needs; every description has its region by now.
pub fn save(files: &Files, out: &mut Vec<u8>) {
    let mut out = Writer(out);
    out.word(u64::from(files.umask));
    for place in [&files.directory, &files.root] {
        out.place(Some(place.node), &place.path);
    }
    let descriptions = files.descriptions();
    out.word(descriptions.len() as u64);
    for description in &descriptions {
        out.word(u64::from(description.access) | u64::from(description.seal.is_carried()) << 32);
        out.word(description.seal.next());
        out.word(description.region().map_or(0, |region| region.0));
        out.place(description.file.node(), &description.path);
        match &description.file {
            OpenFile::Node(_) => out.word(0),
            OpenFile::Text(_, text) => {
                out.word(1);
                out.bytes(text);
            }
            OpenFile::Pipe(pipe) => {
                let ends = u64::from(pipe.reads) | u64::from(pipe.writes) << 1;
                out.words(&[2 | ends << 8, pipe.region.0]);
                out.words(&pipe.whose.get().saved());
            }
            OpenFile::Terminal(tty) => {
                out.word(3 | u64::from(tty.mark().number) << 8);
                for id in [tty.input.id, tty.output.id, tty.settings.id, RegionId::NONE] {
                    out.word(id.0);
                }
            }
            OpenFile::Master(master) => {
                out.word(11);
                out.words(&master.saved());
            }
            OpenFile::Socket(socket) => {
                out.word(5);
                out.words(&socket.saved());
            }
            OpenFile::UnixSocket(socket) => {
                out.word(10);
                out.words(&socket.saved());
            }
            OpenFile::EventCounter(counter) => {
                let semaphore = u64::from(counter.semaphore);
                out.words(&[6 | semaphore << 8, counter.words.id.0]);
            }
            OpenFile::Timer(timer) => {
                out.words(&[8 | u64::from(timer.real) << 8, timer.words.id.0]);
            }
            OpenFile::Signals(file) => out.words(&[9, file.words.id.0]),
            // What it watched stays behind; a program takes its own functions along to the grave.
            OpenFile::Epoll(_) | OpenFile::Own(_) => out.word(7),
            OpenFile::Stream(number) => out.word(4 | u64::from(*number) << 8),
        }
    }
    let holder = files.keeper.as_ref();
    let holder = holder.and_then(|one| descriptions.iter().position(|it| Rc::ptr_eq(it, one)));
    out.word(holder.map_or(u64::MAX, |at| at as u64));
    let slots = files.table.iter().enumerate();
    let slots: Vec<_> = slots.filter_map(|(at, slot)| Some((at, slot.as_ref()?))).collect();
    out.word(slots.len() as u64);
    for (fd, slot) in slots {
        let which = descriptions.iter().position(|one| Rc::ptr_eq(one, &slot.description));
        out.word(fd as u64 | (which.unwrap_or(0) as u64) << 32);
        out.word(u64::from(slot.close_on_exec));
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn word(&mut self) -> Result<u64, Errno> {
        let (word, rest) = self.0.split_first_chunk::<8>().ok_or(Errno::EINVAL)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }

    fn words<const N: usize>(&mut self) -> Result<[u64; N], Errno> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.word()?;
        }
        Ok(words)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Errno> {
        let len = usize::try_from(self.word()?).map_err(|_| Errno::EINVAL)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Errno::EINVAL)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// A place; nodes that are neither the image's nor the memory file system's are found by path.
    fn place(&mut self, files: &Files) -> Result<Place, Errno> {
        let (tag, number) = (self.word()?, self.word()?);
        let path = Canonical::from_canonical(self.bytes()?);
        let node = match tag {
            1 => Node::Image(number as u32),
            2 => Node::Memory(number),
            _ => files.canonical(&path)?.map_or(Node::Image(0), |place| place.node),
        };
        Ok(Place { node, path })
    }
}

/// One open file.
fn description(
    reader: &mut Reader<'_>,
    files: &Files,
    takes_sockets: bool,
) -> Result<Rc<Description>, Errno> {
    let access = reader.word()?;
    let (access, carried) = (access as u32, access >> 32 != 0);
    let seal = reader.word()?;
    let region = RegionId(reader.word()?);
    let mut place = reader.place(files)?;
    let kind = reader.word()?;
    let file = match kind & 0xff {
        0 => OpenFile::Node(place.node),
        1 => OpenFile::Text(place.node, reader.bytes()?.to_vec()),
        2 => {
            let region = RegionId(reader.word()?);
            let ends = (kind >> 8 & 1 != 0, kind >> 9 & 1 != 0);
            OpenFile::Pipe(Pipe::new(region, ends, Whose::loaded(reader.words()?)))
        }
        3 => {
            let entry = Entry::from_words(reader.words()?);
            let number = ((kind >> 8) as u32).checked_sub(2);
            OpenFile::Terminal(match number {
                Some(number) => {
                    place.path = pty::path_of(number);
                    Tty::pseudo(number, &entry)
                }
                None => Tty::console()?,
            })
        }
        11 => {
            place.path = Canonical::from_canonical(b"/dev/ptmx");
            OpenFile::Master(Master::loaded(reader.words()?))
        }
        4 => OpenFile::Stream((kind >> 8) as u8),
        6 => OpenFile::EventCounter(EventCounter {
            words: Region::held(RegionId(reader.word()?)),
            semaphore: kind >> 8 & 1 != 0,
        }),
        7 => OpenFile::Epoll(Epoll::default()),
        8 => OpenFile::Timer(TimerFile {
            words: Region::held(RegionId(reader.word()?)),
            real: kind >> 8 & 1 != 0,
        }),
        9 => OpenFile::Signals(SignalFile { words: Region::held(RegionId(reader.word()?)) }),
        5 | 10 if !takes_sockets => return Err(Errno::EPERM),
        5 => OpenFile::Socket(Socket::loaded(reader.words()?)?),
        10 => OpenFile::UnixSocket(UnixSocket::loaded(reader.words()?)?),
        _ => return Err(Errno::EINVAL),
    };
    let description = Description::inherited(file, place.path, access, region);
    description.seal.set(seal);
    if carried {
        description.seal.set_carried();
    }
    Ok(description)
}

/// Reads what [`save`] wrote. Nothing: the first process's files.
pub fn load(bytes: &[u8]) -> Result<Files, Errno> {
    if bytes.is_empty() {
        let files = Files::initial();
        files.publish();
        return Ok(files);
    }
    let mut reader = Reader(bytes);
    let mut files = Files { umask: reader.word()? as u32, ..Files::default() };
    files.directory = reader.place(&files)?;
    files.root = reader.place(&files)?;
    let descriptions = open_files(&mut reader, &files, true)?;
    let holder = reader.word()?;
    files.keeper = descriptions.get(holder as usize).cloned();
    enter_all(&mut reader, &mut files, &descriptions, u64::MAX, |_, _| true)?;
    files.publish();
    Ok(files)
}

/// The open files, as they are numbered from there on.
fn open_files(
    reader: &mut Reader<'_>,
    files: &Files,
    takes_sockets: bool,
) -> Result<Vec<Rc<Description>>, Errno> {
    let mut all = Vec::new();
    // Each takes bytes: there are no more than these.
    for _ in 0..reader.word()? {
        all.push(description(reader, files, takes_sockets)?);
    }
    Ok(all)
}

/// Enters the descriptors, all of them below `most`, of the files that are wanted.
fn enter_all(
    reader: &mut Reader<'_>,
    files: &mut Files,
    descriptions: &[Rc<Description>],
    most: u64,
    wanted: impl Fn(&Files, &Description) -> bool,
) -> Result<(), Errno> {
    let wanted: Vec<bool> = descriptions.iter().map(|one| wanted(files, one)).collect();
    for _ in 0..reader.word()? {
        let which = reader.word()?;
        let close_on_exec = reader.word()? != 0;
        let number = (which >> 32) as usize;
        let description = descriptions.get(number).ok_or(Errno::EINVAL)?.clone();
        let at = which as u32 as usize;
        if at as u64 >= most {
            return Err(Errno::EINVAL);
        }
        if !wanted.get(number).is_some_and(|&wanted| wanted) {
            continue;
        }
        if files.table.len() <= at {
            files.table.resize(at + 1, None);
        }
        files.table[at] = Some(Descriptor { description, close_on_exec });
    }
    Ok(())
}

/// Instead of a path that does not lead where it should (getcwd(2)).
const UNREACHABLE: &[u8] = b"/(unreachable)";

/// The path of `node`, if it is the one that is said.
pub fn confirmed(files: &Files, node: Node, said: &Canonical) -> Canonical {
    let found = files.canonical(said).ok().flatten().filter(|place| place.node == node);
    found.map_or_else(|| Canonical::from_canonical(UNREACHABLE), |place| place.path)
}

/// Is this something that a process of another user could have had open?
fn could_be_open(files: &Files, description: &Description) -> bool {
    let opened = description.access & (raw::O_ACCMODE | raw::O_PATH);
    match &description.file {
        OpenFile::Node(Node::Memory(id)) => {
            let mask = match opened {
                raw::O_RDONLY => 4,
                raw::O_WRONLY => 2,
                raw::O_RDWR => 6,
                _ => return false,
            };
            let sealed = files
                .client()
                .is_ok_and(|client| client.is_sealed((*id, description.seal.get()), mask));
            sealed && is_where_it_says(files, Node::Memory(*id), &description.path)
        }
        OpenFile::Node(node @ Node::Image(_)) => {
            opened == raw::O_RDONLY && is_where_it_says(files, *node, &description.path)
        }
        OpenFile::Node(Node::Device(device)) => matches!(
            device,
            Device::Null | Device::Zero | Device::Full | Device::Random | Device::Urandom
        ),
        OpenFile::Text(node, _) => matches!(node, Node::Proc(_)),
        OpenFile::Terminal(tty) => tty.is_open(files),
        OpenFile::Master(master) => master.is_open(files),
        OpenFile::Pipe(_)
        | OpenFile::EventCounter(_)
        | OpenFile::Timer(_)
        | OpenFile::Signals(_)
        | OpenFile::Stream(_) => true,
        OpenFile::Node(_)
        | OpenFile::Epoll(_)
        | OpenFile::Socket(_)
        | OpenFile::UnixSocket(_)
        | OpenFile::Own(_) => false,
    }
}

/// From a directory paths go on, and back: it must be where its path says.
fn is_where_it_says(files: &Files, node: Node, path: &Canonical) -> bool {
    !node.is_directory(files) || confirmed(files, node, path).as_bytes() != UNREACHABLE
}

/// Does the process have, before it makes anything itself, the regions that a description names?
/// Ids can be guessed: one that is not there yet could be the process's own later, which its
/// children would have then as they have its open files.
fn is_inherited(description: &Description) -> bool {
    let mut heritage = Heritage::none();
    description.share(&mut heritage).is_ok() && heritage.is_from_others()
}

/// Reads what another user's process says that it has written so.
pub fn load_offered(bytes: &[u8], directory: Option<Node>, most: u64) -> Result<Files, Errno> {
    let mut reader = Reader(bytes);
    let umask = reader.word()? as u32 & 0o777;
    let mut files = Files { umask, ..Files::default() };
    let said = reader.place(&files)?;
    let root = reader.place(&files)?;
    if root != Place::default() {
        return Err(Errno::EPERM);
    }
    let descriptions = open_files(&mut reader, &files, false)?;
    if !descriptions.iter().all(|description| is_inherited(description)) {
        return Err(Errno::EPERM);
    }
    let _holder = reader.word()?;
    enter_all(&mut reader, &mut files, &descriptions, most, could_be_open)?;
    files.make_own();
    let node = match directory {
        Some(node) => node,
        // What is no file: only a name says which.
        None if matches!(said.node, Node::Devices | Node::Terminals | Node::Proc(_)) => said.node,
        None => return Err(Errno::EPERM),
    };
    let path = confirmed(&files, node, &said.path);
    open_streams(&mut files);
    files.enter_directory(Place { node, path })?;
    Ok(files)
}

/// Opens the first three descriptors where they are closed: what a program opens as a file must not
/// become what it says its errors to.
fn open_streams(files: &mut Files) {
    for at in 0..3 {
        if files.table.get(at).is_none_or(Option::is_none) {
            let path = Canonical::from_canonical(b"/dev/null");
            let null = OpenFile::Node(Node::Device(Device::Null));
            let description = Description::new(null, path, raw::O_RDWR, None);
            files.put(at, description, false);
        }
    }
}
