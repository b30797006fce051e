//! Files and directories that runs which a signal ended have left in the target directory.
//!
//! Their names hold the process that made them: `boot-123.img`, `iso-123`, `xok.123.partial`. Those
//! of processes that live are in use.

use std::path::Path;

/// What such names begin with; the process follows.
const KINDS: [&str; 10] =
    ["bad", "bochs", "boot", "chromium", "disk", "execute", "iso", "shell", "trace", "wrong"];

/// Removes from `directory` what processes have left that live no more.
pub fn remove(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(maker) else { continue };
        if Path::new("/proc").join(process.to_string()).exists() {
            continue;
        }
        let path = entry.path();
        // What stays harms nobody; somebody else may be removing it, too.
        let _ = if path.is_dir() {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
    }
}

/// The process that a file of this name was made by, if it is such a file.
fn maker(name: &str) -> Option<u32> {
    if let Some(stem) = name.strip_suffix(".partial") {
        return stem.rsplit_once('.')?.1.parse().ok();
    }
    let stem = name.split('.').next()?;
    let (kind, process) = stem.split_once('-')?;
    if KINDS.contains(&kind) { process.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The suite's own process lives; one that was waited for does not.
    #[test]
    fn what_the_dead_left_goes() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let (dead, own) = (child.id(), std::process::id());
        child.wait().unwrap();
        let directory = std::env::temp_dir().join(format!("xok-leftovers-{own}"));
        std::fs::create_dir_all(directory.join(format!("iso-{dead}/boot"))).unwrap();
        let kept = [
            format!("boot-{own}.img"),
            "boot.img".into(),
            format!("x-{dead}"),
            "kernel.log".into(),
        ];
        let gone = [format!("boot-{dead}.img"), format!("boot-{own}.{dead}.partial")];
        for name in kept.iter().chain(&gone) {
            std::fs::write(directory.join(name), "").unwrap();
        }
        remove(&directory);
        let mut left: Vec<String> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected = kept.to_vec();
        expected.sort();
        assert_eq!(left, expected);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
