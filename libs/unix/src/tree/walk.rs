//! Walking a path inside the tree.

use super::{Body, Id, ROOT, Tree};
use crate::attributes::Credentials;
use crate::errno::Errno;
use crate::path;
use crate::versions::SEEN_MAX;

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The path is used up; `node` is what it names.
    Done,
    /// `node` is a symbolic link; the caller decides whether to follow it.
    Link,
    /// `..` at the root: the rest is another file system's.
    Up,
    /// `node` is a directory without the next name.
    Missing,
}

/// How far a walk came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Why it ended.
    pub outcome: Outcome,
    /// See [`Outcome`].
    pub node: Id,
    /// The directory in which `node` was found (the node itself if the path was empty).
    pub parent: Id,
    /// Bytes of the path used up: for `Missing`, those before the missing name.
    pub used: usize,
    /// The inodes on which the outcome depends, as long as they are few enough to be told.
    pub seen: [Id; SEEN_MAX],
    /// How many there are, also of those that there was no room for.
    pub seen_count: usize,
}

/// Collects what a walk sees.
struct Way {
    seen: [Id; SEEN_MAX],
    count: usize,
}

impl Way {
    fn see(&mut self, id: Id) {
        if self.count > 0 && self.seen.get(self.count - 1) == Some(&id) {
            return;
        }
        if let Some(place) = self.seen.get_mut(self.count) {
            *place = id;
        }
        self.count += 1;
    }

    fn end(self, outcome: Outcome, node: Id, parent: Id, used: usize) -> Walk {
        Walk { outcome, node, parent, used, seen: self.seen, seen_count: self.count }
    }
}

impl Tree {
    /// Walks from `start`, a directory, along `path` as far as it goes without leaving the tree or
    /// following a link.
    pub fn walk(&self, start: Id, path: &[u8], who: &Credentials) -> Result<Walk, Errno> {
        let (mut node, mut parent, mut rest) = (start, start, path);
        let mut way = Way { seen: [0; SEEN_MAX], count: 0 };
        loop {
            way.see(node);
            let used = path.len() - rest.len();
            let Some((name, after)) = path::next(rest) else {
                if !rest.is_empty() {
                    self.directory(node)?;
                }
                return Ok(way.end(Outcome::Done, node, parent, path.len()));
            };
            self.directory(node)?;
            self.check(node, who, 1)?;
            if name.len() > path::NAME_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            match name {
                b"." => {}
                b".." if node == ROOT => {
                    let used = path.len() - after.len();
                    return Ok(way.end(Outcome::Up, node, parent, used));
                }
                b".." => {
                    parent = node;
                    node = self.directory(node)?.parent;
                }
                _ => match self.child(node, name) {
                    Some(child) => {
                        parent = node;
                        node = child;
                        if matches!(self.inode(child)?.body, Body::Link(_)) {
                            let used = path.len() - after.len();
                            way.see(node);
                            return Ok(way.end(Outcome::Link, node, parent, used));
                        }
                    }
                    None => {
                        return Ok(way.end(Outcome::Missing, node, node, used));
                    }
                },
            }
            rest = after;
        }
    }

    /// The inode of a name in a directory.
    pub fn child(&self, directory: Id, name: &[u8]) -> Option<Id> {
        let directory = self.directory(directory).ok()?;
        directory.names.get(name).map(|(_, id, _)| id)
    }
}
