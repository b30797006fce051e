//! Linux's initial file system: a cpio archive, as the kernel unpacks it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cpio::newc::{Builder, trailer};

use crate::failure::{Context, Result};

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// What an archive holds.
#[derive(Clone, Debug, Default)]
pub struct Initramfs {
    directories: BTreeSet<String>,
    /// Path without the first `/`, mode, contents.
    entries: Vec<(String, u32, Vec<u8>)>,
}

impl Initramfs {
    /// Adds a file of the host under an absolute path, executable.
    pub fn file(&mut self, path: &str, host: &Path) -> Result<()> {
        let contents = std::fs::read(host).context(host.display())?;
        self.bytes(path, contents);
        Ok(())
    }

    /// Adds a file with these contents.
    pub fn bytes(&mut self, path: &str, contents: Vec<u8>) {
        self.add(path, FILE, contents);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.add(path, LINK, target.as_bytes().to_vec());
    }

    /// Adds an empty directory.
    pub fn directory(&mut self, path: &str) {
        self.parents_of(&format!("{path}/"));
    }

    fn add(&mut self, path: &str, mode: u32, contents: Vec<u8>) {
        self.parents_of(path);
        self.entries.push((path.trim_start_matches('/').to_string(), mode, contents));
    }

    fn parents_of(&mut self, path: &str) {
        let path = path.trim_start_matches('/');
        let ends = path.char_indices().filter(|(_, c)| *c == '/').map(|(at, _)| at);
        self.directories.extend(ends.map(|end| path[..end].to_string()));
    }

    /// Writes the archive.
    pub fn write(&self, to: &Path) -> Result<()> {
        let partial: PathBuf = to.with_extension(format!("{}.partial", std::process::id()));
        std::fs::write(&partial, self.archive().context(to.display())?)
            .context(partial.display())?;
        std::fs::rename(&partial, to).context(to.display())
    }

    fn archive(&self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut number = 0;
        // A directory stands before what is in it; a shorter path before a longer one does that.
        let directories = self.directories.iter().map(|path| (path, DIRECTORY, &[][..]));
        let entries =
            self.entries.iter().map(|(path, mode, contents)| (path, *mode, &contents[..]));
        for (path, mode, contents) in directories.chain(entries) {
            number += 1;
            let mut writer = Builder::new(path)
                .ino(number)
                .nlink(1)
                .mode(mode)
                .write(&mut bytes, contents.len() as u32);
            std::io::Write::write_all(&mut writer, contents)?;
            writer.finish()?;
        }
        trailer(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpio::newc::Reader;

    #[test]
    fn directories_stand_before_what_is_in_them() {
        let mut files = Initramfs::default();
        files.bytes("/a/b/c", vec![1, 2, 3]);
        files.link("/a/d", "b/c");
        files.directory("/tmp");
        let archive = files.archive().unwrap();
        let mut rest = &archive[..];
        let mut names = Vec::new();
        loop {
            let reader = Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            names.push((reader.entry().name().to_string(), reader.entry().mode() >> 12));
            rest = reader.finish().unwrap();
        }
        let expected = [("a", 4), ("a/b", 4), ("tmp", 4), ("a/b/c", 8), ("a/d", 10)];
        assert_eq!(names, expected.map(|(name, kind)| (name.to_string(), kind)));
    }
}
