//! Files of the boot image, by path.

use abi::id::Frame;
use abi::layout::PAGE_SIZE;
use abi::memory::NO_EXECUTE;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use exos::layout::IMAGE;
use image::archive::{Archive, Entry, Kind};
use xok::call::Refused;
use xok::memory::Space;
use xok::published;

/// Links followed on the way to a file.
const LINKS_MAX: usize = 16;

/// The boot image, mapped where ExOS has it too.
pub struct Image {
    archive: Archive<'static>,
}

/// A file of it.
#[derive(Clone, Debug)]
pub struct File {
    /// Its path without links.
    pub path: String,
    /// Where its bytes lie in the image.
    pub offset: u64,
    /// How many.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// The bytes.
    pub bytes: &'static [u8],
}

impl File {
    /// The frame of its first byte.
    pub fn frame(&self) -> Frame {
        let first = published::directory().image_frame as u32;
        Frame(first + (self.offset / PAGE_SIZE) as u32)
    }
}

impl Image {
    /// Maps the image.
    pub fn open() -> Result<Option<Self>, Refused> {
        let directory = published::directory();
        let pages = directory.image_bytes.div_ceil(PAGE_SIZE);
        let first = Frame(directory.image_frame as u32);
        Space::own().map(IMAGE, first, pages, NO_EXECUTE)?;
        Ok(Archive::open_checked(exos::start::image()).ok().map(|archive| Self { archive }))
    }

    fn entry(&self, path: &str) -> Option<Entry<'static>> {
        let mut rest: Vec<String> = parts(path);
        let mut at = self.archive.root()?;
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == ".." {
                at = self.archive.entry(at.parent)?;
                continue;
            }
            let next = self.archive.child(&at, &name)?;
            match self.archive.target(&next) {
                Some(target) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return None;
                    }
                    if target.starts_with('/') {
                        at = self.archive.root()?;
                    }
                    rest.extend(parts(target));
                }
                None => at = next,
            }
        }
        Some(at)
    }

    /// The file that an absolute path leads to.
    pub fn file(&self, path: &str) -> Option<File> {
        let entry = self.entry(path)?;
        (entry.kind == Kind::File).then(|| File {
            path: entry.path().to_string(),
            offset: entry.data_offset,
            size: entry.size,
            mode: entry.mode,
            bytes: self.archive.data(&entry),
        })
    }
}

/// The parts of a path, last one first.
fn parts(path: &str) -> Vec<String> {
    path.rsplit('/').filter(|part| !part.is_empty() && *part != ".").map(String::from).collect()
}
