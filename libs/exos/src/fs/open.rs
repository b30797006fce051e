//! Opening and making files (open(2), mknod(2), pipe(2)).

use alloc::rc::Rc;
use linux_raw_sys::general as raw;
use unix::attributes::{Attributes, Credentials, mode_of_new};
use unix::path::{Canonical, split_last};
use unix::protocol::CLIENT;
use unix::tree::Id;

use super::description::Description;
use super::lookups::{Known, Wanted};
use super::names::to_be_made;
use super::node::{Device, Node, Place};
use super::open_file::OpenFile;
use super::pipe::{self, Pipe, READER, WRITER};
use super::region::{self, Region};
use super::terminal::Tty;
use super::walk::{Found, Last, Which};
use super::whose::Whose;
use super::{Files, proc_files, pty, terminal};
use crate::errno::{Answer, Errno};
use crate::identity;
use crate::page::{self, HELD_ANY, Hold};
use crate::process::Process;
use crate::user;

/// `openat(directory, path, flags, mode)`
pub fn openat(process: &mut Process, directory: i32, path: u64, flags: u32, mode: u32) -> Answer {
    let path = user::read_path(path)?;
    let description = open(process, directory, &path, flags, mode)?;
    let limit = process.limit(raw::RLIMIT_NOFILE);
    process.files.enter(description, flags & raw::O_CLOEXEC != 0, 0, limit)
}

/// All that counts where only a place is opened (open(2)).
const PATH_FLAGS: u32 = raw::O_PATH | raw::O_DIRECTORY | raw::O_NOFOLLOW | raw::O_CLOEXEC;

/// Opens `path`.
pub fn open(
    process: &mut Process,
    directory: i32,
    path: &[u8],
    flags: u32,
    mode: u32,
) -> Result<Rc<Description>, Errno> {
    let flags = if flags & raw::O_PATH == 0 { flags } else { flags & PATH_FLAGS };
    let exclusive = flags & raw::O_CREAT != 0 && flags & raw::O_EXCL != 0;
    let keep = exclusive || flags & raw::O_NOFOLLOW != 0;
    let last = match keep {
        // No file is made behind a slash, wherever a link leads.
        _ if flags & raw::O_CREAT != 0 && path.ends_with(b"/") => Last::Name,
        true => Last::Keep,
        false => Last::Follow,
    };
    if flags & raw::O_CREAT == 0 {
        let known = process.files.known_to_open(&Which { directory, path, last })?;
        if let Some(description) = open_known(&process.files, &known, flags)? {
            return Ok(description);
        }
        let kind = known.attributes.mode & raw::S_IFMT;
        // A slash behind the name was answered for already.
        return open_existing(process, known.place.clone(), flags, kind);
    }
    if let Some(description) = make(process, &Which { directory, path, last }, flags, mode)? {
        return Ok(description);
    }
    loop {
        let found = process.files.walk(directory, path, last)?;
        if found.slash {
            // What has a slash behind it is a directory, and those are not made here.
            return Err(Errno::EISDIR);
        }
        match &found.place {
            Some(_) if exclusive => return Err(Errno::EEXIST),
            Some(place) => {
                let place = place.clone();
                check_meant(&process.files, &found.parent, &place)?;
                let mode = match found.mode {
                    Some(mode) => mode,
                    None => place.node.attributes(&process.files)?.mode,
                };
                return open_existing(process, place, flags, mode & raw::S_IFMT);
            }
            None => match create(process, &found, flags, mode) {
                // Somebody made it meanwhile.
                Err(Errno::EEXIST) if !exclusive => {}
                other => return other,
            },
        }
    }
}

/// May a call that makes files open what is at `place`, in `parent`?
fn check_meant(files: &Files, parent: &Place, place: &Place) -> Result<(), Errno> {
    let Node::Memory(_) = place.node else { return Ok(()) };
    let (file, who) = (place.node.attributes(files)?, files.who());
    let own = file.kind() == raw::S_IFDIR || file.uid == who.uid;
    if own || file.may_be_meant(&parent.node.attributes(files)?, &who) {
        Ok(())
    } else {
        Err(Errno::EACCES)
    }
}

/// Opens a file of the memory file server without a word to it, if nothing is to be changed: the
/// page of the process says that the file is open, then its name is looked at once more. Whoever
/// takes the last name away moves a word first and looks into the page then.
fn open_known(files: &Files, known: &Known, flags: u32) -> Result<Option<Rc<Description>>, Errno> {
    let Node::Memory(_) = known.place.node else { return Ok(None) };
    let writes = flags & raw::O_ACCMODE != raw::O_RDONLY;
    let simple = flags & (raw::O_PATH | raw::O_TRUNC) == 0
        && match known.attributes.kind() {
            raw::S_IFREG => flags & raw::O_DIRECTORY == 0,
            raw::S_IFDIR => !writes && flags & raw::O_CREAT == 0,
            _ => false,
        };
    if !simple {
        return Ok(None);
    }
    let who = files.who();
    check(&known.attributes, &who, flags)?;
    let Some(hold) = files.hold(known.attributes.inode)? else { return Ok(None) };
    if !files.is_so(known) {
        return Ok(None);
    }
    let file = OpenFile::Node(known.place.node);
    let description = Description::held(file, known.place.path.clone(), flags, hold);
    description.seal.set_for(known.attributes.seal, [who.uid, who.gid]);
    Ok(Some(description))
}

/// Makes a file by one question, where the last name is to be looked up in the memory file system;
/// `None` if there is something already, or it is not so simple.
fn make(
    process: &Process,
    which: &Which<'_>,
    flags: u32,
    mode: u32,
) -> Result<Option<Rc<Description>>, Errno> {
    let files = &process.files;
    let found = files.in_memory(which.directory, which.path)?;
    let Some((parent, name, id)) = found else { return Ok(None) };
    if flags & (raw::O_DIRECTORY | raw::O_PATH) != 0 {
        return Ok(None);
    }
    if flags & raw::O_EXCL == 0
        && let Some(known) = files.remembered(which, Wanted::Seal)
    {
        // Whether another one's is meant, its directory tells.
        let own = known.attributes.uid == files.who().uid;
        return if own { open_known(files, &known, flags) } else { Ok(None) };
    }
    let mode = mode_of_new(raw::S_IFREG, mode, files.umask);
    let client = files.client()?;
    let made = client.with_room_for_a_file(id, || {
        // Whatever is made is ours until we know which one; meanwhile no file of ours ends.
        let Some(hold) = files.hold(HELD_ANY)? else { return Ok(None) };
        Ok(Some((client.make(id, name, mode)?, hold)))
    });
    let Some((made, hold)) = made? else { return Ok(None) };
    let Some(((node, seal), number)) = made else {
        return if flags & raw::O_EXCL == 0 { Ok(None) } else { Err(Errno::EEXIST) };
    };
    hold.set(number);
    let mut path = parent.path.clone();
    path.push(name);
    let made = Description::held(OpenFile::Node(Node::Memory(node)), path, flags, hold);
    made.seal.set(seal);
    Ok(Some(made))
}

/// A directory of the memory file system, a name to be looked up in it, and its number.
pub type LastName<'a> = (Place, &'a [u8], Id);

impl Files {
    /// The directory of the memory file system in which a path's last name is to be looked up, if
    /// it is one and that is an ordinary name: its place, the name, its number.
    pub fn in_memory<'a>(
        &self,
        directory: i32,
        path: &'a [u8],
    ) -> Result<Option<LastName<'a>>, Errno> {
        let Some((parent, name)) = split_last(path) else { return Ok(None) };
        let place = if parent.is_empty() {
            self.start(directory)?
        } else {
            let which = Which { directory, path: parent, last: Last::Pass };
            self.known_place(&which)?.place.clone()
        };
        match place.node {
            Node::Memory(id) => Ok(Some((place, name, id))),
            _ => Ok(None),
        }
    }

    /// Says in the process's page that a file is open (`process_page::held`), if there is room.
    fn hold(&self, held: u64) -> Result<Option<Hold>, Errno> {
        let process = crate::thread::process().id;
        self.server();
        if self.holder.get() != process {
            self.client()?.holder(process)?;
            self.holder.set(process);
        }
        Ok(Hold::take(held))
    }

    /// Has the server of a file that only the process's page says is open watch a region: from now
    /// on others may have the file, too, and the description has a name.
    pub fn entrust(&self, description: &Description) -> Result<(), Errno> {
        let OpenFile::Node(Node::Memory(id)) = description.file else { return Ok(()) };
        if !description.is_held() {
            return Ok(());
        }
        let region = watched_region()?;
        let held = self.client()?.open_node(id, raw::O_PATH, region.id);
        held.inspect_err(|_| region.detach())?;
        description.set_watched(region.id);
        Ok(())
    }
}

fn create(
    process: &mut Process,
    found: &Found,
    flags: u32,
    mode: u32,
) -> Result<Rc<Description>, Errno> {
    let directory = memory_directory(&found.parent)?;
    let mode = mode_of_new(raw::S_IFREG, mode, process.files.umask);
    let region = watched_region()?;
    let made = process.files.client()?.create(directory, &found.name, mode, region.id);
    let (node, seal) = made.inspect_err(|_| region.detach())?;
    let mut path = found.parent.path.clone();
    path.push(&found.name);
    let file = OpenFile::Node(Node::Memory(node));
    let description = Description::new(file, path, flags, Some(region.id));
    description.seal.set(seal);
    Ok(description)
}

/// The server's name of a directory in which names can be made.
pub fn memory_directory(place: &Place) -> Result<Id, Errno> {
    match place.node {
        Node::Memory(id) => Ok(id),
        Node::Image(_) => Err(Errno::EROFS),
        _ => Err(Errno::EACCES),
    }
}

/// A region for a description that the file server watches; the own domain is attached.
fn watched_region() -> Result<Region, Errno> {
    let region = Region { id: region::make(0)?, role: CLIENT };
    region.attach()?;
    Ok(region)
}

/// Holds a directory of the memory file system without opening it for anything.
pub fn hold(files: &Files, id: Id, path: Canonical) -> Result<Rc<Description>, Errno> {
    let region = watched_region()?;
    let held = files.client()?.open_node(id, raw::O_PATH, region.id);
    held.inspect_err(|_| region.detach())?;
    let file = OpenFile::Node(Node::Memory(id));
    Ok(Description::new(file, path, raw::O_PATH, Some(region.id)))
}

/// What `open` asks to be allowed to do: 4 read, 2 write. Who empties a file writes it.
pub fn mask_of(flags: u32) -> u32 {
    let access = match flags & raw::O_ACCMODE {
        raw::O_RDONLY => 4,
        raw::O_WRONLY => 2,
        _ => 6,
    };
    if flags & raw::O_TRUNC != 0 { access | 2 } else { access }
}

/// May `who` open it so? That it was read is hidden by its owner alone (`O_NOATIME`).
fn check(attributes: &Attributes, who: &Credentials, flags: u32) -> Result<(), Errno> {
    if !attributes.permits(who, mask_of(flags)) {
        return Err(Errno::EACCES);
    }
    let hides = flags & raw::O_NOATIME != 0;
    if hides && who.uid != 0 && who.uid != attributes.uid { Err(Errno::EPERM) } else { Ok(()) }
}

fn open_existing(
    process: &mut Process,
    place: Place,
    flags: u32,
    kind: u32,
) -> Result<Rc<Description>, Errno> {
    let Place { node, path } = place;
    let is_directory = kind == raw::S_IFDIR;
    let only_path = flags & raw::O_PATH != 0;
    if flags & raw::O_DIRECTORY != 0 && !is_directory {
        return Err(Errno::ENOTDIR);
    }
    if kind == raw::S_IFLNK && !only_path {
        return Err(Errno::ELOOP);
    }
    if only_path {
        return Ok(Description::new(OpenFile::Node(node), path, flags, None));
    }
    let writes = flags & raw::O_ACCMODE != raw::O_RDONLY;
    if is_directory && (writes || flags & (raw::O_CREAT | raw::O_TRUNC) != 0) {
        return Err(Errno::EISDIR);
    }
    if flags & raw::O_NOATIME != 0 {
        check(&node.attributes(&process.files)?, &process.files.who(), flags)?;
    }
    match node {
        Node::Memory(id) => open_memory(process, id, path, flags, kind),
        Node::Image(_) => {
            let changes = writes || flags & raw::O_TRUNC != 0;
            if changes && kind == raw::S_IFREG {
                return Err(Errno::EROFS);
            }
            node.permits(&process.files, &process.files.who(), mask_of(flags))?;
            Ok(Description::new(OpenFile::Node(node), path, flags, None))
        }
        Node::Device(device @ (Device::Terminal | Device::Console)) => {
            open_terminal(process, device, path, flags)
        }
        Node::Device(Device::Master) => pty::open_master(process, path, flags),
        Node::Slave(number) => pty::open_slave(process, pty::whichever(number), flags),
        Node::Device(_) => {
            node.permits(&process.files, &process.files.who(), mask_of(flags))?;
            Ok(Description::new(OpenFile::Node(node), path, flags, None))
        }
        Node::Proc(item) if !is_directory => {
            if writes {
                return Err(Errno::EACCES);
            }
            node.permits(&process.files, &process.files.who(), mask_of(flags))?;
            let text = proc_files::text(process, item)?;
            Ok(Description::new(OpenFile::Text(node, text), path, flags, None))
        }
        Node::Proc(item) => {
            proc_files::check(process, item)?;
            Ok(Description::new(OpenFile::Node(node), path, flags, None))
        }
        Node::Descriptor(fd) => open_again(process, fd, path, flags),
        _ => Ok(Description::new(OpenFile::Node(node), path, flags, None)),
    }
}

/// Opens what is open already, by /proc/self/fd: a pipe as its permissions and the kernel have it;
/// of what has no name else there is one description.
fn open_again(
    process: &mut Process,
    fd: u32,
    path: Canonical,
    flags: u32,
) -> Result<Rc<Description>, Errno> {
    let description = process.files.get(fd as i32)?;
    let OpenFile::Pipe(pipe) = &description.file else { return Ok(description) };
    if let Some(id) = pipe.whose.get().node {
        return open_fifo(process, id, path, flags);
    }
    check(&pipe.attributes(&process.files)?, &process.files.who(), flags)?;
    let access = flags & raw::O_ACCMODE;
    let another = pipe.another(access != raw::O_WRONLY, access != raw::O_RDONLY)?;
    Ok(Description::new(OpenFile::Pipe(another), Canonical::default(), flags, None))
}

fn open_memory(
    process: &mut Process,
    id: Id,
    path: Canonical,
    flags: u32,
    kind: u32,
) -> Result<Rc<Description>, Errno> {
    match kind {
        raw::S_IFIFO => return open_fifo(process, id, path, flags),
        raw::S_IFSOCK => {
            process.files.client()?.access(id, mask_of(flags))?;
            return Err(Errno::ENXIO);
        }
        _ => {}
    }
    let region = watched_region()?;
    let opened = process.files.client()?.open_node(id, flags, region.id);
    let seal = opened.inspect_err(|_| region.detach())?;
    let file = OpenFile::Node(Node::Memory(id));
    let description = Description::new(file, path, flags, Some(region.id));
    description.seal.set(seal);
    Ok(description)
}

fn open_terminal(
    process: &mut Process,
    device: Device,
    path: Canonical,
    flags: u32,
) -> Result<Rc<Description>, Errno> {
    if device == Device::Terminal && page::own().terminal > 1 {
        return pty::open_own(process, flags);
    }
    // Its mode is 0600, user 0's; a session has it by the name of its terminal, too.
    let is_own = page::own().terminal == 1 || process.users[1] == 0;
    if device == Device::Console && !is_own {
        return Err(Errno::EACCES);
    }
    if terminal::exists() {
        let tty = Tty::console()?;
        let control = tty.control()?;
        if device == Device::Terminal && control.session != page::own().session {
            return Err(Errno::ENXIO);
        }
        control.check_open(process.users[1])?;
        return Ok(Description::new(OpenFile::Terminal(tty), path, flags, None));
    }
    // Without a terminal the console is the machine's standard output.
    if device == Device::Console && flags & raw::O_ACCMODE == raw::O_WRONLY {
        return Ok(Description::new(OpenFile::Stream(1), path, flags, None));
    }
    Err(Errno::ENXIO)
}

/// Opens a named pipe: waits for the other side unless told not to (fifo(7)).
fn open_fifo(
    process: &mut Process,
    id: Id,
    path: Canonical,
    flags: u32,
) -> Result<Rc<Description>, Errno> {
    let access = flags & raw::O_ACCMODE;
    let (reads, writes) = (access != raw::O_WRONLY, access != raw::O_RDONLY);
    let client = process.files.client()?;
    if flags & raw::O_TRUNC != 0 {
        client.access(id, mask_of(flags))?;
    }
    let mut id_of_pipe = None;
    for (wanted, role) in [(reads, READER), (writes, WRITER)] {
        if wanted {
            id_of_pipe = Some(client.fifo(id, role)?);
        }
    }
    let region = id_of_pipe.ok_or(Errno::EINVAL)?;
    let whose = Whose { node: Some(id), ..Whose::of([0, 0]) };
    let pipe = Pipe::new(region, (reads, writes), whose);
    // Dropping it, should the wait end early, gives the attachments back.
    let description = Description::new(OpenFile::Pipe(pipe.clone()), path, flags, None);
    let waits = flags & raw::O_NONBLOCK == 0;
    if reads && writes {
        return Ok(description);
    }
    if writes && !waits && pipe.no_reader() {
        return Err(Errno::ENXIO);
    }
    pipe.meet(process, waits)?;
    Ok(description)
}

/// `mknodat(directory, path, mode, device)`
pub fn mknodat(process: &mut Process, directory: i32, path: u64, mode: u32) -> Answer {
    let path = user::read_path(path)?;
    let found = to_be_made(process, directory, &path)?;
    if found.slash {
        return Err(Errno::ENOENT);
    }
    let kind = mode & raw::S_IFMT;
    if matches!(kind, raw::S_IFCHR | raw::S_IFBLK) {
        return Err(Errno::EPERM);
    }
    let parent = memory_directory(&found.parent)?;
    let kind = if kind == 0 { raw::S_IFREG } else { kind };
    let mode = mode_of_new(kind, mode, process.files.umask);
    let none = abi::id::RegionId::NONE;
    process.files.client()?.create(parent, &found.name, mode, none)?;
    Ok(0)
}

/// `pipe2(fds, flags)`
pub fn pipe2(process: &mut Process, into: u64, flags: u32) -> Answer {
    if flags & !(raw::O_CLOEXEC | raw::O_NONBLOCK | raw::O_DIRECT) != 0 {
        return Err(Errno::EINVAL);
    }
    let (reader, writer) = pipe::make(identity::for_files(process))?;
    let close = flags & raw::O_CLOEXEC != 0;
    let flags = flags & raw::O_NONBLOCK;
    let limit = process.limit(raw::RLIMIT_NOFILE);
    let describe = |pipe, access| {
        Description::new(OpenFile::Pipe(pipe), Canonical::default(), flags | access, None)
    };
    let (reader, writer) = (describe(reader, raw::O_RDONLY), describe(writer, raw::O_WRONLY));
    let files = &mut process.files;
    let first = files.enter(reader, close, 0, limit)?;
    let second = files.enter(writer, close, 0, limit);
    let wrote = second.and_then(|second| {
        user::write_value(into, &[first as u32, second as u32]).map(|()| second)
    });
    if let Err(errno) = wrote {
        files.close(first as i32)?;
        if let Ok(second) = second {
            files.close(second as i32)?;
        }
        return Err(errno);
    }
    Ok(0)
}
