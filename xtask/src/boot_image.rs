//! `cargo xtask image`: the archive that the kernel is booted with, alone or in an ISO (`iso`).
//!
//! ```text
//! /bin/busybox         Debian's, unmodified; /bin/sh and the other applets are links to it
//! /sbin /usr/bin ...   links to /bin
//! /bin/strace, /etc    xtask/root as it lies in the tree
//! /www                 apps/cheetah/www as it lies in the tree
//! /xok                 our own programs, without their debugging information
//! /tmp /proc /dev /root /home
//! ```

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use image::archive::{Attributes, BuildError, Builder};
use image::elf::Plan;

use crate::command_line;
use crate::failure::{Context, Failure, Result};
use crate::iso;
use crate::options::{self, Options};
use crate::packages;
use crate::process;
use crate::report;
use crate::workspace;

/// Directories of programs that are links to /bin, with their targets.
const LINKS: [(&str, &str); 3] =
    [("/sbin", "bin"), ("/usr/bin", "../bin"), ("/usr/sbin", "../bin")];

/// A file or directory of the host that the image shall hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    /// Where it lies on the host.
    pub host: PathBuf,
    /// Where it shall lie in the guest: an absolute path.
    pub guest: String,
}

impl Extra {
    /// Reads `HOST[:GUEST]`; without GUEST it keeps its absolute path.
    pub fn parse(text: &str) -> Result<Self> {
        let (host, guest) = match text.rsplit_once(':') {
            Some((host, guest)) if guest.starts_with('/') => (host, Some(guest)),
            _ => (text, None),
        };
        let host = std::path::absolute(host).context(host)?;
        if !host.exists() {
            let failure = Failure::new(format!("{}: no such file", host.display()));
            return Err(match text.rsplit_once(':') {
                Some((_, guest)) if !guest.starts_with('/') => failure
                    .next(format!("HOST:GUEST with a GUEST that begins with /, such as /{guest}")),
                _ => failure,
            });
        }
        let guest = match guest {
            Some(guest) => guest.to_string(),
            None => text_of(&host)?.to_string(),
        };
        // A link that was named stands for what it leads to; links inside of a tree stay links.
        let host = host.canonicalize().context(host.display())?;
        Ok(Self { host, guest })
    }
}

/// `cargo xtask image [--iso] [--line WORDS] [--file HOST[:GUEST]]... [--output FILE]`
pub fn command(words: Vec<String>) -> Result<()> {
    let mut options = Options::new(words);
    let mut extras = Vec::new();
    let mut output = None;
    let mut is_iso = false;
    let mut line = None;
    while let Some(word) = options.next() {
        match word.as_str() {
            "--file" => extras.push(Extra::parse(&options.value("--file")?)?),
            "--output" => output = Some(PathBuf::from(options.value("--output")?)),
            "--iso" => is_iso = true,
            "--line" => line = Some(options.value("--line")?),
            _ => return Err(options::unknown("image", &word)),
        }
    }
    if line.is_some() && !is_iso {
        return Err(Failure::new("--line: only an ISO has a command line").next(options::HELP));
    }
    let words = line.iter().flat_map(|line| line.split_ascii_whitespace());
    let mut addresses = words.filter_map(|word| word.strip_prefix("ip="));
    if let Some(wrong) = addresses.find(|address| !command_line::is_address(address)) {
        return Err(Failure::new(format!("--line: ip={wrong}: not ADDRESS/PREFIX[,GATEWAY]")));
    }
    crate::build::build()?;
    let name = if is_iso { "xok.iso" } else { "boot.img" };
    let to = output.unwrap_or_else(|| workspace::output().join(name));
    if is_iso {
        if let Some(directory) = to.parent() {
            std::fs::create_dir_all(directory).context(directory.display())?;
        }
        let job = crate::run::Job { extras, ..Default::default() };
        let image = crate::run::make_image(&job)?;
        iso::make(&image.path, &line.unwrap_or_default(), &to)?;
    } else {
        make(&extras, &[], &to)?;
    }
    println!("{}", to.display());
    Ok(())
}

/// Writes the image with these extras; our programs must have been built.
pub fn make(extras: &[Extra], leaves_out: &[&str], to: &Path) -> Result<()> {
    report::step("making the boot image");
    let mut builder = Builder::new();
    add_directories(&mut builder)?;
    add_busybox(&mut builder)?;
    add_tree(&mut builder, &workspace::root().join("xtask/root"), "")?;
    add_tree(&mut builder, &workspace::root().join("apps/cheetah/www"), "/www")?;
    let programs = workspace::native_programs()?.into_iter();
    for name in programs.filter(|name| !leaves_out.contains(&name.as_str())) {
        add_native(&mut builder, &name)?;
    }
    for extra in extras {
        add_tree(&mut builder, &extra.host, &without_links(&extra.guest))?;
    }
    let bytes = builder.build().map_err(refused)?;
    if let Some(directory) = to.parent() {
        std::fs::create_dir_all(directory).context(directory.display())?;
    }
    // Written whole or not at all: another run may be reading the old one.
    let partial = to.with_extension(format!("{}.partial", std::process::id()));
    std::fs::write(&partial, bytes).context(partial.display())?;
    std::fs::rename(&partial, to).context(to.display())
}

/// Debian's busybox, as its package has it.
pub fn busybox() -> Result<PathBuf> {
    packages::debian_file("busybox-static", "bin/busybox")
}

/// The applets that busybox answers to, each a name in the guest's /bin.
pub fn applets() -> Result<Vec<String>> {
    let list = process::output(Command::new(busybox()?).arg("--list"))?;
    Ok(list.lines().map(str::to_string).filter(|name| name != "busybox").collect())
}

fn add_directories(builder: &mut Builder) -> Result<()> {
    let modes =
        [("/tmp", 0o1777), ("/proc", 0o555), ("/dev", 0o755), ("/root", 0o700), ("/home", 0o755)];
    for (path, mode) in modes {
        builder.directory(path, Attributes::mode(mode)).map_err(refused)?;
    }
    for (path, target) in LINKS {
        builder.symlink(path, target).map_err(refused)?;
    }
    Ok(())
}

/// A path of the guest without our own links on the way: the archive wants real directories.
pub fn without_links(guest: &str) -> String {
    let mut below =
        LINKS.iter().filter_map(|(link, _)| guest.strip_prefix(link)?.strip_prefix('/'));
    below.next().map_or_else(|| guest.to_string(), |name| format!("/bin/{name}"))
}

fn add_busybox(builder: &mut Builder) -> Result<()> {
    add_tree(builder, &busybox()?, "/bin/busybox")?;
    for applet in applets()? {
        builder.symlink(&format!("/bin/{applet}"), "busybox").map_err(refused)?;
    }
    Ok(())
}

fn add_native(builder: &mut Builder, name: &str) -> Result<()> {
    let path = workspace::bare(name);
    let file = std::fs::read(&path).context(path.display())?;
    let file = without_sections(name, file);
    builder.file(&format!("/xok/{name}"), Attributes::mode(0o755), file).map_err(refused)
}

/// Cuts off what is not loaded: section headers, symbols, debugging information.
fn without_sections(name: &str, mut file: Vec<u8>) -> Vec<u8> {
    // Our own programs may lie anywhere, also in the upper half.
    let plan = match Plan::parse_in(&file, 0x1000..u64::MAX) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("note: {name}: {error}; it is put in as it is");
            return file;
        }
    };
    let ends = plan.segments().iter().map(|segment| segment.file_offset + segment.filesz);
    let headers = 64 + u64::from(plan.phnum) * u64::from(plan.phentsize);
    let end = ends.fold(headers, u64::max) as usize;
    file.truncate(end);
    // e_shoff, then e_shentsize, e_shnum and e_shstrndx: there are none any more.
    file[40..48].fill(0);
    file[58..64].fill(0);
    file
}

/// Adds what lies at `host` as `guest`, with everything below it.
fn add_tree(builder: &mut Builder, host: &Path, guest: &str) -> Result<()> {
    let metadata = std::fs::symlink_metadata(host).context(host.display())?;
    let attributes = Attributes {
        mode: metadata.mode() & 0o7777,
        uid: 0,
        gid: 0,
        mtime: u64::try_from(metadata.mtime()).unwrap_or(0),
    };
    if metadata.is_symlink() && !guest.is_empty() {
        return add_link(builder, host, guest);
    }
    if metadata.is_file() {
        let data = std::fs::read(host).context(host.display())?;
        return builder.file(guest, attributes, data).map_err(refused);
    }
    if !metadata.is_dir() {
        return Err(Failure::new(format!("{}: neither file, directory nor link", host.display())));
    }
    if !guest.is_empty() {
        builder.directory(guest, attributes).map_err(refused)?;
    }
    for entry in std::fs::read_dir(host).context(host.display())? {
        let path = entry.context(host.display())?.path();
        let name = path.file_name().map(Path::new).unwrap_or(&path);
        add_tree(builder, &path, &format!("{guest}/{}", text_of(name)?))?;
    }
    Ok(())
}

fn add_link(builder: &mut Builder, host: &Path, guest: &str) -> Result<()> {
    let target = std::fs::read_link(host).context(host.display())?;
    builder.symlink(guest, text_of(&target)?).map_err(refused)
}

fn text_of(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Failure::new(format!("{}: not UTF-8", path.display())))
}

/// What to say of an entry that the archive cannot hold.
pub fn refused(error: BuildError) -> Failure {
    Failure::new(format!("boot image: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extras_name_host_and_guest() {
        let extra = Extra::parse("/dev/null:/tmp/x").unwrap();
        assert_eq!((extra.host.to_str(), extra.guest.as_str()), (Some("/dev/null"), "/tmp/x"));
        let extra = Extra::parse("/dev/null").unwrap();
        assert_eq!(extra.guest, "/dev/null");
        assert!(Extra::parse("/no/such/file").is_err());
        let refused = Extra::parse("/dev/null:tmp/x").unwrap_err().to_string();
        assert!(refused.contains("GUEST that begins with /, such as /tmp/x"), "{refused}");
    }

    #[test]
    fn programs_land_in_bin() {
        assert_eq!(without_links("/usr/bin/busybox"), "/bin/busybox");
        assert_eq!(without_links("/sbin/x"), "/bin/x");
        assert_eq!(without_links("/usr/binary/x"), "/usr/binary/x");
        assert_eq!(without_links("/home/x"), "/home/x");
    }
}
