//! What is served: a directory of the boot image, where it lies, and the status page.

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use image::archive::{Archive, Kind};
use xio::http::{Files, Lookup};
use xnet::settings;
use xok::call::Refused;

use crate::status::Status;
use crate::{IMAGE, LOG};

/// The directory served unless the command line names another.
const ROOT: &str = "/www";

/// What the server has done since it began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub open: u64,
    /// Requests answered in full.
    pub answers: u64,
    /// Bytes handed to TCP, heads included.
    pub bytes: u64,
}

/// The files.
pub struct Site {
    archive: Archive<'static>,
    root: String,
    status: Status,
    /// For the status page.
    pub counters: Counters,
}

/// An open file.
pub enum File {
    /// Of the image: its bytes, where they lie.
    Image(&'static [u8]),
    /// Made for this request, or for one shortly before it, and what it is.
    Made(Rc<Vec<u8>>, &'static str),
    /// Always there, and what it is.
    Fixed(&'static [u8], &'static str),
}

impl Site {
    /// Maps the image.
    pub fn open() -> Result<Site, Refused> {
        let bytes = xok::boot_image::map(IMAGE)?;
        let archive = Archive::open_checked(bytes).map_err(|why| {
            xok::log!(LOG, "cheetah: boot image: {why:?}");
            (abi::error::Error::BadArgument, 0)
        })?;
        let root = settings::value("www").unwrap_or_else(|| String::from(ROOT));
        let root = String::from(root.trim_end_matches('/'));
        if archive.lookup(&root).is_none_or(|entry| entry.kind != Kind::Directory) {
            xok::log!(LOG, "cheetah: no directory {root} in the boot image: only /status is there");
        }
        Ok(Site { archive, root, status: Status::default(), counters: Counters::default() })
    }

    /// The directory served.
    pub fn root(&self) -> &str {
        &self.root
    }
}

impl Files for Site {
    type File = File;

    fn open(&mut self, name: &str) -> Lookup<File> {
        if let Some(found) = self.status.open(name, &self.counters) {
            return found;
        }
        let mut path = String::new();
        if path.try_reserve_exact(self.root.len() + 1 + name.len()).is_err() {
            return Lookup::NoMemory;
        }
        [self.root.as_str(), "/", name].into_iter().for_each(|part| path.push_str(part));
        match self.archive.lookup(&path) {
            // Links aren't followed: they could lead out of the directory.
            Some(entry) => match entry.kind {
                Kind::File => Lookup::File(File::Image(self.archive.data(&entry))),
                Kind::Directory => Lookup::Directory,
                Kind::Symlink => Lookup::Missing,
            },
            None => Lookup::Missing,
        }
    }

    fn length(&self, file: &File) -> u64 {
        bytes(file).len() as u64
    }

    fn piece<'a>(&'a self, file: &'a File, offset: u64) -> &'a [u8] {
        usize::try_from(offset).ok().and_then(|at| bytes(file).get(at..)).unwrap_or(&[])
    }

    fn content_type(&self, file: &File) -> Option<&'static str> {
        match file {
            File::Image(_) => None,
            File::Made(_, kind) | File::Fixed(_, kind) => Some(kind),
        }
    }
}

fn bytes(file: &File) -> &[u8] {
    match file {
        File::Image(bytes) => bytes,
        File::Made(bytes, _) => bytes,
        File::Fixed(bytes, _) => bytes,
    }
}
