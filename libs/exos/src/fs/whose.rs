//! Whose a pipe is (stat(2), chmod(2), chown(2)).
//!
//! One with a name is as its file is, which the file server says. Of another each process knows
//! what its maker was, as it inherits that with the ends: the words of the fifo are for all to
//! write who have one. So a change is seen by this process, and by those that it makes later.

use linux_raw_sys::general as raw;
use unix::Errno;
use unix::attributes::{Attributes, Given};
use unix::protocol::{CHANGE_GID, CHANGE_MODE, CHANGE_OWNER, CHANGE_UID};
use unix::tree::Id;

use super::Files;
use super::memory_files::Change;
use super::node::{Node, stamped};
use super::open_file::OpenFile;
use super::pipe::Pipe;
use crate::errno::Answer;
use crate::process::Process;

/// Whose a pipe is, as the process that made it or opened it by name knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whose {
    /// The name's file, of one that has a name: that says the rest.
    pub node: Option<Id>,
    /// Permissions, else.
    pub mode: u32,
    /// Owner and group.
    pub ids: [u32; 2],
}

impl Whose {
    /// A new one's of this user and group.
    pub fn of(ids: [u32; 2]) -> Self {
        Self { node: None, mode: 0o600, ids }
    }

    /// In words, for the process's next life.
    pub fn saved(&self) -> [u64; 3] {
        let [user, group] = self.ids.map(u64::from);
        [self.node.unwrap_or(u64::MAX), self.mode.into(), user | group << 32]
    }

    /// Of those words.
    pub fn loaded([node, mode, ids]: [u64; 3]) -> Self {
        let node = (node != u64::MAX).then_some(node);
        Self { node, mode: mode as u32 & 0o7777, ids: [ids as u32, (ids >> 32) as u32] }
    }
}

impl Pipe {
    /// Attributes (stat(2)).
    pub fn attributes(&self, files: &Files) -> Result<Attributes, Errno> {
        let Whose { node, mode, ids: [uid, gid] } = self.whose.get();
        if let Some(id) = node {
            return Node::Memory(id).attributes(files);
        }
        let (inode, mode) = (self.region.0, raw::S_IFIFO | mode);
        Ok(Attributes { device: 0xc, inode, mode, uid, gid, links: 1, ..stamped() })
    }
}

/// Changes whose a pipe without a name is, as this process knows it, and its children to come.
pub fn change(process: &Process, pipe: &Pipe, what: &Change) -> Answer {
    let given = |bit, at: usize| (what.which & bit != 0).then_some(what.words[at] as u32);
    let given = Given {
        mode: given(CHANGE_MODE, 0),
        uid: given(CHANGE_UID, 1),
        gid: given(CHANGE_GID, 2),
        owner: what.which & CHANGE_OWNER != 0,
    };
    let (mut attributes, who) = (pipe.attributes(&process.files)?, process.files.who());
    attributes.may_be_given(&given, &who)?;
    attributes.give(&given, &who);
    let Attributes { mode, uid, gid, .. } = attributes;
    let whose = Whose { node: None, mode: mode & 0o7777, ids: [uid, gid] };
    for description in process.files.descriptions() {
        match &description.file {
            OpenFile::Pipe(end) if end.region == pipe.region => end.whose.set(whose),
            _ => {}
        }
    }
    Ok(0)
}
