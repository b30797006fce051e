//! Walking paths across all file systems: links, `..`, mounts (path_resolution(7)).

use alloc::borrow::Cow;
use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use unix::attributes::{Attributes, Credentials};
use unix::path::{self, Canonical};
use unix::protocol::outcome;
use unix::tree::{Id, ROOT};
use unix::versions::Seen;
use unix::{Errno, mounts};

use super::node::{Node, Place, device_named};
use super::{Files, image_files, proc_files, pty};
use image::archive::Kind;

/// What a walk found.
#[derive(Debug)]
pub struct Found {
    /// The directory that holds the last name.
    pub parent: Place,
    /// The last name; empty, `.` or `..` where the path ends so.
    pub name: Vec<u8>,
    /// What it names, if it exists.
    pub place: Option<Place>,
    /// Did a slash follow the last name?
    pub slash: bool,
    /// Kind and permissions of `place`, if the walk showed them.
    pub mode: Option<u32>,
    /// Its attributes, if they were asked for and the walk showed them.
    pub attributes: Option<Attributes>,
    /// What all this depends on, if that is known: it is when attributes were asked for.
    pub seen: Option<Seen>,
}

/// A path, and what is meant by it.
#[derive(Clone, Copy, Debug)]
pub struct Which<'a> {
    /// Where a relative path begins: a descriptor or `AT_FDCWD`.
    pub directory: i32,
    /// The path.
    pub path: &'a [u8],
    /// Is its last name followed if it is a link?
    pub last: Last,
}

impl Found {
    /// What was found, or `ENOENT`.
    pub fn existing(self) -> Result<Place, Errno> {
        self.place.ok_or(Errno::ENOENT)
    }
}

/// Is the last name of a path followed if it is a link?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// Yes.
    Follow,
    /// Yes, as it is the way to another name: whosesoever it is.
    Pass,
    /// No: the link itself is meant, unless a slash follows.
    Keep,
    /// No, whatever follows: the name itself is made, moved or taken away. As on Linux, nobody's
    /// link says where that is.
    Name,
}

/// One step: a directory's child.
enum Step {
    To(Place),
    Link(Place, Vec<u8>),
    Missing,
}

fn step_to(node: Option<Node>, path: Canonical) -> Step {
    node.map_or(Step::Missing, |node| Step::To(Place { node, path }))
}

/// How far one look went: a name, or a run of names that the memory file server walks at once.
struct Ahead {
    /// The directory in which the last name was looked up.
    parent: Place,
    /// That name.
    name: Vec<u8>,
    /// Bytes of the path used up, the name included.
    used: usize,
    /// What it names.
    step: Step,
    /// Is that a link of others' that is not followed at a path's end?
    is_strangers: bool,
    /// Its kind and permissions, where the look showed them.
    mode: Option<u32>,
    /// Its attributes, likewise.
    attributes: Option<Attributes>,
    /// What the look depends on; `None`: on what has no words.
    seen: Option<Seen>,
}

impl Ahead {
    fn found(self, place: Option<Place>, slash: bool, seen: Option<Seen>) -> Found {
        let Ahead { parent, name, mode, attributes, .. } = self;
        Found { parent, name, place, slash, mode, attributes, seen }
    }
}

/// Both, if there is room.
pub fn joined(one: Option<Seen>, other: Option<Seen>) -> Option<Seen> {
    let (mut all, other) = (one?, other?);
    other.words().iter().all(|&word| all.add(word)).then_some(all)
}

/// Bytes of `path` before the first `.` or `..`, and before slashes at the end of that.
fn run_of_names(path: &[u8]) -> usize {
    let mut rest = path;
    while let Some((name, after)) = path::next(rest) {
        if matches!(name, b"." | b"..") {
            break;
        }
        rest = after;
    }
    path.len() - rest.len()
}

impl Files {
    /// The directory where a relative path begins: the working directory, or a descriptor's.
    pub fn start(&self, directory: i32) -> Result<Place, Errno> {
        if directory == raw::AT_FDCWD {
            return Ok(self.directory.clone());
        }
        let description = self.any(directory)?;
        match description.file.node() {
            Some(node) => Ok(Place { node, path: description.path.clone() }),
            None => Err(Errno::ENOTDIR),
        }
    }

    /// Finds what must exist.
    pub fn find(&self, directory: i32, path: &[u8], last: Last) -> Result<Place, Errno> {
        self.find_walked(self.walk(directory, path, last)?).map(|found| found.0)
    }

    /// Attributes of what must exist.
    pub fn find_attributes(
        &self,
        directory: i32,
        path: &[u8],
        last: Last,
    ) -> Result<Attributes, Errno> {
        self.known(&Which { directory, path, last }).map(|known| known.attributes)
    }

    /// The place at which a path begins that is kept: only the root and the working directory are.
    pub fn base(&self, which: &Which<'_>) -> Option<&Place> {
        if which.path.first() == Some(&b'/') {
            Some(&self.root)
        } else {
            (which.directory == raw::AT_FDCWD).then_some(&self.directory)
        }
    }

    /// The place found, which must be there, and its attributes as far as the walk showed them.
    pub fn find_walked(&self, found: Found) -> Result<(Place, Option<Attributes>), Errno> {
        let Found { place, slash, mode, attributes, .. } = found;
        let place = place.ok_or(Errno::ENOENT)?;
        let is_directory = || match mode {
            Some(mode) => mode & raw::S_IFMT == raw::S_IFDIR,
            None => place.node.is_directory(self),
        };
        if slash && !is_directory() {
            return Err(Errno::ENOTDIR);
        }
        Ok((place, attributes))
    }

    /// Walks `path` from `directory`.
    pub fn walk(&self, directory: i32, path: &[u8], last: Last) -> Result<Found, Errno> {
        self.walk_to(&Which { directory, path, last }, false)
    }

    /// Walks a path; `attributes`: the caller wants those of what it finds, and what it depends on.
    pub fn walk_to(&self, which: &Which<'_>, attributes: bool) -> Result<Found, Errno> {
        let Which { directory, path, last } = *which;
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() >= path::PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let who = self.who();
        let mut at = if path[0] == b'/' { self.root.clone() } else { self.start(directory)? };
        let mut rest = Cow::Borrowed(path);
        let mut from = 0;
        let mut links = 0;
        let mut seen = attributes.then(Seen::default);
        loop {
            let Some(mut ahead) = self.look(&at, &rest[from..], &who, attributes)? else {
                // Only slashes: the place itself.
                let (slash, place) = (from < rest.len(), Some(at.clone()));
                let name = Vec::new();
                let (mode, attributes) = (None, None);
                // A place that was not looked at has shown no words.
                let seen = seen.filter(|_| matches!(at.node, Node::Image(_)));
                return Ok(Found { parent: at, name, place, slash, mode, attributes, seen });
            };
            seen = joined(seen, ahead.seen);
            from += ahead.used;
            let after = &rest[from..];
            let (is_last, slash) = (path::is_last(after), !after.is_empty());
            match core::mem::replace(&mut ahead.step, Step::Missing) {
                Step::Missing if is_last => return Ok(ahead.found(None, slash, seen)),
                Step::Missing => return Err(Errno::ENOENT),
                Step::Link(place, target) => {
                    if is_last && (last == Last::Name || last == Last::Keep && !slash) {
                        return Ok(ahead.found(Some(place), slash, seen));
                    }
                    if is_last && last != Last::Pass && ahead.is_strangers {
                        return Err(Errno::EACCES);
                    }
                    links += 1;
                    if links > path::LINKS_MAX {
                        return Err(Errno::ELOOP);
                    }
                    if let Some(node) = proc_files::followed(self, place.node) {
                        at = Place { node, path: place.path };
                        if is_last {
                            ahead.parent = at.clone();
                            (ahead.mode, ahead.attributes) = (None, None);
                            return Ok(ahead.found(Some(at), slash, None));
                        }
                        seen = None;
                        continue;
                    }
                    at = if target.first() == Some(&b'/') {
                        self.root.clone()
                    } else {
                        ahead.parent
                    };
                    let mut whole = target;
                    whole.extend(after);
                    (rest, from) = (Cow::Owned(whole), 0);
                }
                Step::To(place) if is_last => return Ok(ahead.found(Some(place), slash, seen)),
                Step::To(place) => at = place,
            }
        }
    }

    /// Looks ahead along `rest`, which may begin with slashes; `None` if it is nothing else.
    fn look(
        &self,
        at: &Place,
        rest: &[u8],
        who: &Credentials,
        attributes: bool,
    ) -> Result<Option<Ahead>, Errno> {
        let Some((name, after)) = path::next(rest) else { return Ok(None) };
        if let (Node::Memory(id), false) = (at.node, matches!(name, b"." | b"..")) {
            return self.look_in_memory(at, id, rest, attributes).map(Some);
        }
        if !at.node.is_directory(self) {
            return Err(Errno::ENOTDIR);
        }
        if name.len() > path::NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.search(at, who)?;
        Ok(Some(Ahead {
            parent: at.clone(),
            name: name.to_vec(),
            used: rest.len() - after.len(),
            step: self.step(at, name)?,
            is_strangers: false,
            mode: None,
            attributes: None,
            seen: self.seen_of_step(at, name),
        }))
    }

    /// What one name further depends on: the image and what is mounted stay as they are. A mount
    /// point's own attributes have been looked at by nobody.
    fn seen_of_step(&self, at: &Place, name: &[u8]) -> Option<Seen> {
        let stays = matches!(at.node, Node::Image(_) | Node::Devices) && name != b"..";
        stays.then(Seen::default)
    }

    /// Has the memory file server walk all names that come; it checks each directory.
    fn look_in_memory(
        &self,
        at: &Place,
        id: Id,
        rest: &[u8],
        attributes: bool,
    ) -> Result<Ahead, Errno> {
        let run = &rest[..run_of_names(rest)];
        let walked = self.client()?.walk(id, run, attributes)?;
        let missing = walked.outcome == outcome::MISSING;
        let mut parent = Place { node: Node::Memory(walked.parent), path: at.path.clone() };
        let mut left = run.get(..walked.used).ok_or(Errno::EIO)?;
        let mut name: &[u8] = b"";
        while let Some((next, after)) = path::next(left) {
            if !name.is_empty() {
                parent.path.push(name);
            }
            (name, left) = (next, after);
        }
        let mut used = walked.used;
        if missing {
            if !name.is_empty() {
                parent.path.push(name);
            }
            let (next, after) = path::next(&run[used..]).ok_or(Errno::EIO)?;
            (name, used) = (next, run.len() - after.len());
        }
        let mut path = parent.path.clone();
        path.push(name);
        let place = Place { node: Node::Memory(walked.node), path };
        let name = name.to_vec();
        let step = match walked.outcome {
            outcome::DONE => Step::To(place),
            outcome::LINK | outcome::STRANGERS_LINK => Step::Link(place, walked.target),
            _ => Step::Missing,
        };
        let mode = (!missing).then_some(walked.mode);
        Ok(Ahead {
            parent,
            name,
            used,
            step,
            is_strangers: walked.outcome == outcome::STRANGERS_LINK,
            mode,
            attributes: walked.attributes,
            seen: walked.seen,
        })
    }

    fn search(&self, at: &Place, who: &Credentials) -> Result<(), Errno> {
        // The memory file server checks its own directories at each name, but has no part in `.`
        // and `..`; the rest is open to all but what the image says, and what processes have open.
        match at.node {
            Node::Memory(id) if who.uid != 0 => self.client()?.access(id, 1),
            Node::Image(_) if who.uid != 0 => at.node.permits(self, who, 1),
            Node::Proc(item) => proc_files::check(crate::thread::process(), item),
            _ => Ok(()),
        }
    }

    /// One name further.
    fn step(&self, at: &Place, name: &[u8]) -> Result<Step, Errno> {
        match name {
            b"." => return Ok(Step::To(at.clone())),
            b".." if at.path == self.root.path => return Ok(Step::To(at.clone())),
            b".." => {
                let mut up = at.path.clone();
                up.pop();
                return Ok(self.canonical(&up)?.map_or(Step::Missing, Step::To));
            }
            _ => {}
        }
        let mut path = at.path.clone();
        path.push(name);
        if let Some(node) = self.mounted(&path)? {
            return Ok(Step::To(Place { node, path }));
        }
        let node = match at.node {
            Node::Image(index) => {
                let Some(archive) = image_files::archive() else { return Err(Errno::EIO) };
                let Some(directory) = archive.entry(index) else { return Err(Errno::EIO) };
                let Ok(name) = core::str::from_utf8(name) else { return Ok(Step::Missing) };
                match archive.child(&directory, name) {
                    Some(entry) if entry.kind == Kind::Symlink => {
                        let target = archive.data(&entry).to_vec();
                        return Ok(Step::Link(
                            Place { node: Node::Image(entry.index), path },
                            target,
                        ));
                    }
                    Some(entry) => Node::Image(entry.index),
                    None => return Ok(Step::Missing),
                }
            }
            Node::Memory(id) => {
                let walked = self.client()?.walk(id, name, false)?;
                match walked.outcome {
                    outcome::DONE => Node::Memory(walked.node),
                    outcome::LINK | outcome::STRANGERS_LINK => {
                        let place = Place { node: Node::Memory(walked.node), path };
                        return Ok(Step::Link(place, walked.target));
                    }
                    _ => return Ok(Step::Missing),
                }
            }
            Node::Devices => match device_named(name) {
                Some(node @ Node::DeviceLink(_)) => {
                    let target = node.target(self)?;
                    return Ok(Step::Link(Place { node, path }, target));
                }
                Some(node) => node,
                None => return Ok(Step::Missing),
            },
            Node::Proc(item) => match proc_files::child(item, name) {
                Some(child) => {
                    let node = Node::Proc(child);
                    if proc_files::is_link(child) {
                        let target = node.target(self)?;
                        return Ok(Step::Link(Place { node, path }, target));
                    }
                    node
                }
                None => return Ok(Step::Missing),
            },
            Node::Terminals => return pty::named(self, name).map(|node| step_to(node, path)),
            _ => return Err(Errno::ENOTDIR),
        };
        Ok(Step::To(Place { node, path }))
    }

    /// What is mounted at exactly this path.
    fn mounted(&self, path: &Canonical) -> Result<Option<Node>, Errno> {
        match path.as_bytes() {
            b"/dev" => return Ok(Some(Node::Devices)),
            b"/proc" => return Ok(Some(Node::Proc(proc_files::Item::ROOT))),
            _ => {}
        }
        let Some((name, [])) = mounts::inside(path.as_bytes()) else { return Ok(None) };
        if self.server().is_none() {
            return Ok(None);
        }
        if let Some(&(_, id)) = self.mounts.borrow().iter().find(|mount| mount.0 == name) {
            return Ok(Some(Node::Memory(id)));
        }
        let walked = self.client()?.walk(ROOT, name, false)?;
        if walked.outcome != outcome::DONE {
            return Ok(None);
        }
        self.mounts.borrow_mut().push((name, walked.node));
        Ok(Some(Node::Memory(walked.node)))
    }

    /// The place of a canonical path, which has no links.
    pub fn canonical(&self, path: &Canonical) -> Result<Option<Place>, Errno> {
        let mut at = Place::default();
        let mut rest = path.as_bytes();
        while let Some((name, after)) = path::next(rest) {
            match self.step(&at, name)? {
                Step::To(place) | Step::Link(place, _) => at = place,
                Step::Missing => return Ok(None),
            }
            rest = after;
        }
        Ok(Some(at))
    }
}
