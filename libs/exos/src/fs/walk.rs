//! Walking paths across all file systems: links, `..`, mounts (path_resolution(7)).

use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use unix::attributes::Credentials;
use unix::path::{self, Canonical};
use unix::protocol::outcome;
use unix::tree::ROOT;
use unix::{Errno, mounts};

use super::node::{Node, Place, device_named};
use super::{Files, image_files, proc_files};
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
    /// No: the link itself is meant.
    Keep,
}

/// One step: a directory's child.
enum Step {
    To(Place),
    Link(Place, Vec<u8>),
    Missing,
}

impl Files {
    /// The directory where a relative path begins: the working directory, or a descriptor's.
    pub fn start(&self, directory: i32) -> Result<Place, Errno> {
        if directory == raw::AT_FDCWD {
            return Ok(self.directory.clone());
        }
        let description = self.get(directory)?;
        match description.file.node() {
            Some(node) => Ok(Place { node, path: description.path.clone() }),
            None => Err(Errno::ENOTDIR),
        }
    }

    /// Finds what must exist.
    pub fn find(&self, directory: i32, path: &[u8], last: Last) -> Result<Place, Errno> {
        let found = self.walk(directory, path, last)?;
        let slash = found.slash;
        let place = found.existing()?;
        if slash && !place.node.is_directory(self) {
            return Err(Errno::ENOTDIR);
        }
        Ok(place)
    }

    /// Walks `path` from `directory`.
    pub fn walk(&self, directory: i32, path: &[u8], last: Last) -> Result<Found, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() >= path::PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let who = self.who();
        let mut at = if path[0] == b'/' { self.root.clone() } else { self.start(directory)? };
        let mut rest = path.to_vec();
        let mut links = 0;
        loop {
            let Some((name, after)) = path::next(&rest) else {
                // Only slashes: the place itself.
                let slash = !rest.is_empty();
                let place = Some(at.clone());
                return Ok(Found { parent: at, name: Vec::new(), place, slash });
            };
            if !at.node.is_directory(self) {
                return Err(Errno::ENOTDIR);
            }
            if name.len() > path::NAME_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            let is_last = path::is_last(after);
            let (name, after) = (name.to_vec(), after.to_vec());
            self.search(&at, &who)?;
            match self.step(&at, &name)? {
                Step::Missing if is_last => {
                    return Ok(Found { parent: at, name, place: None, slash: !after.is_empty() });
                }
                Step::Missing => return Err(Errno::ENOENT),
                Step::Link(place, target) => {
                    if is_last && last == Last::Keep && after.is_empty() {
                        return Ok(Found { parent: at, name, place: Some(place), slash: false });
                    }
                    links += 1;
                    if links > path::LINKS_MAX {
                        return Err(Errno::ELOOP);
                    }
                    if let Some(node) = proc_files::followed(self, place.node) {
                        at = Place { node, path: place.path };
                        if is_last {
                            let place = Some(at.clone());
                            return Ok(Found { parent: at, name, place, slash: !after.is_empty() });
                        }
                        rest = after;
                        continue;
                    }
                    if target.first() == Some(&b'/') {
                        at = self.root.clone();
                    }
                    rest = target;
                    rest.extend(after);
                }
                Step::To(place) if is_last => {
                    let slash = !after.is_empty();
                    return Ok(Found { parent: at, name, place: Some(place), slash });
                }
                Step::To(place) => {
                    at = place;
                    rest = after;
                }
            }
        }
    }

    fn search(&self, at: &Place, who: &Credentials) -> Result<(), Errno> {
        // The memory file server checks its own directories at each step; the rest is open to all
        // but what the image says.
        match at.node {
            Node::Image(_) if who.uid != 0 => at.node.permits(self, who, 1),
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
                let walked = self.client()?.walk(id, name)?;
                match walked.outcome {
                    outcome::DONE => Node::Memory(walked.node),
                    outcome::LINK => {
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
        if !super::memory_files::is_there() {
            return Ok(None);
        }
        if let Some(&(_, id)) = self.mounts.borrow().iter().find(|mount| mount.0 == name) {
            return Ok(Some(Node::Memory(id)));
        }
        let walked = self.client()?.walk(ROOT, name)?;
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
