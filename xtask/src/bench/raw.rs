//! What each boot of a measurement said, kept as it came: a file for each.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::failure::{Context, Result};

/// The number of the next boot of this run, from 1; 0: none has been kept.
static BOOTS: AtomicU32 = AtomicU32::new(0);

/// Where the files are: those of the last run that measured.
pub fn directory() -> Result<PathBuf> {
    super::file("raw")
}

/// The files, in the order of the boots.
pub fn files() -> Result<Vec<PathBuf>> {
    let directory = directory()?;
    let entries = std::fs::read_dir(&directory).context(directory.display())?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}

/// Takes all away: what comes now is another measurement.
pub fn clear() -> Result<()> {
    let directory = directory()?;
    if directory.exists() {
        std::fs::remove_dir_all(&directory).context(directory.display())?;
    }
    BOOTS.fetch_max(1, Ordering::Relaxed);
    std::fs::create_dir_all(&directory).context(directory.display())
}

/// Keeps what a boot of `system` said.
pub fn keep(system: &str, console: &str) -> Result<()> {
    if BOOTS.load(Ordering::Relaxed) == 0 {
        clear()?;
    }
    let number = BOOTS.fetch_add(1, Ordering::Relaxed);
    keep_in(&directory()?, number, system, console)
}

fn keep_in(directory: &Path, number: u32, system: &str, console: &str) -> Result<()> {
    let path = directory.join(format!("{number:04}-{system}.log"));
    std::fs::write(&path, console).context(path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// thesis98 Z-69: no log takes the place of another.
    #[test]
    fn each_boot_has_a_log_of_its_own() {
        let directory = std::env::temp_dir().join(format!("raw-logs-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let said = ["row x operations 1 ticks 9 2", "row x operations 1 ticks 9 3", ""];
        for (number, said) in (1..).zip(said) {
            keep_in(&directory, number, "ours", said).unwrap();
        }
        let kept: Vec<String> = (1..=3)
            .map(|number| directory.join(format!("000{number}-ours.log")))
            .map(|path| std::fs::read_to_string(path).unwrap_or_else(|error| error.to_string()))
            .collect();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(kept, said);
    }
}
