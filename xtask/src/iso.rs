//! A CD or USB stick that starts the kernel by GRUB and multiboot2, by BIOS and by UEFI.
//!
//! ```text
//! /boot/xok              the kernel as it lies in memory: the ELF file's segments in a row
//! /boot/boot.img         the boot image, GRUB's module
//! /boot/grub/grub.cfg    the one entry, with the kernel's command line; on the serial line, too
//! ```
//! What else is in it `grub-mkrescue` puts there: GRUB for both firmwares.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Context, Failure, Result};
use crate::packages;
use crate::process;
use crate::report;
use crate::workspace;

pub mod emulator;
pub mod native;
pub mod serial;

/// What makes it, and GRUB's parts for both firmwares.
const PROGRAMS: [(&str, &str); 3] =
    [("grub-mkrescue", "grub-common"), ("xorriso", "xorriso"), ("mformat", "mtools")];
const PARTS: [(&str, &str); 2] = [
    ("/usr/lib/grub/i386-pc/multiboot2.mod", "grub-pc-bin"),
    ("/usr/lib/grub/x86_64-efi/multiboot2.mod", "grub-efi-amd64-bin"),
];

/// Makes the file `to` of the boot image at `image`, with this command line for the kernel.
pub fn make(image: &Path, line: &str, to: &Path) -> Result<()> {
    packages::require(&PROGRAMS)?;
    for part in PARTS {
        packages::require_file(part)?;
    }
    report::step("making the ISO");
    let tree = Directory::new(&format!("iso-{}", std::process::id()))?;
    let boot = tree.path.join("boot");
    std::fs::create_dir_all(boot.join("grub")).context(boot.display())?;
    let write = |name: &str, bytes: &[u8]| {
        let path = boot.join(name);
        std::fs::write(&path, bytes).context(path.display())
    };
    let kernel = workspace::bare("kernel");
    let file = std::fs::read(&kernel).context(kernel.display())?;
    write("xok", &as_loaded(&file)?)?;
    std::fs::copy(image, boot.join("boot.img")).context(image.display())?;
    write("grub/grub.cfg", configuration(line)?.as_bytes())?;
    // Written whole or not at all.
    let partial = to.with_extension(format!("{}.partial", std::process::id()));
    let mut rescue = Command::new(PROGRAMS[0].0);
    // GRUB's modules as they are: none is translated, none is a theme.
    rescue.args(["--locales=", "--fonts=", "--themes=", "-o"]).arg(&partial).arg(&tree.path);
    // It tells its whole story on standard error; that is shown if it fails.
    process::output(&mut rescue)?;
    std::fs::rename(&partial, to).context(to.display())
}

/// GRUB's orders. Quotes keep its language away from the words.
fn configuration(line: &str) -> Result<String> {
    if line.contains(['\'', '\\', '\n', '"']) {
        return Err(Failure::new(format!("command line for GRUB: quote or backslash in {line}")));
    }
    let words: String = line.split_ascii_whitespace().map(|word| format!(" '{word}'")).collect();
    Ok(format!(
        "serial --unit=0 --speed=115200\n\
         terminal_input console serial\n\
         terminal_output console serial\n\
         set timeout=0\n\
         menuentry 'Xok/ExOS' {{\n    \
             multiboot2 /boot/xok{words}\n    \
             module2 /boot/boot.img\n\
         }}\n"
    ))
}

/// The file's segments as they lie in memory, from the first one's physical address on: what the
/// header in `kernel/src/boot/start.rs` describes. Zeroes at the end are the loader's to make.
fn as_loaded(file: &[u8]) -> Result<Vec<u8>> {
    let parts = loaded_parts(file).ok_or_else(|| Failure::new("the kernel's file: cut short"))?;
    let first = parts.iter().map(|(address, _)| *address).min().unwrap_or(0);
    let mut bytes = Vec::new();
    for (address, part) in parts {
        let begin = (address - first) as usize;
        if bytes.len() < begin + part.len() {
            bytes.resize(begin + part.len(), 0);
        }
        bytes[begin..begin + part.len()].copy_from_slice(part);
    }
    Ok(bytes)
}

/// What is loaded of an ELF file, with its physical addresses; nothing if the file is cut short.
/// (`image::elf` reads programs, whose entry lies in a segment; the kernel's is physical.)
fn loaded_parts(file: &[u8]) -> Option<Vec<(u64, &[u8])>> {
    const LOADED: u64 = 1;
    let number = |at: usize, len: usize| {
        let bytes = file.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let (headers, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let mut parts = Vec::new();
    for at in (0..count).map(|index| (headers + index * size) as usize) {
        if number(at, 4)? == LOADED {
            let from = number(at + 8, 8)? as usize;
            let part = file.get(from..from + number(at + 32, 8)? as usize)?;
            parts.push((number(at + 24, 8)?, part));
        }
    }
    Some(parts)
}

/// A directory below the target directory, which goes when this does.
pub struct Directory {
    /// Where it lies.
    pub path: PathBuf,
}

impl Directory {
    /// An empty one of this name.
    pub fn new(name: &str) -> Result<Self> {
        let path = workspace::output().join(name);
        // What a run that was killed has left.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).context(path.display())?;
        Ok(Self { path })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Files too many in the target directory harm nobody.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_grub_in_quotes() {
        let text = configuration("init=/xok/x arg=a%20$b;c").unwrap();
        assert!(text.contains("multiboot2 /boot/xok 'init=/xok/x' 'arg=a%20$b;c'\n"), "{text}");
        assert!(configuration("arg=it's").is_err());
    }
}
