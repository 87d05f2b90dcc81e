//! Files that a process writes while it runs.

use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use ringfold_transport::may_write;

/// Bytes that a file system with room takes.
const TRIAL: [u8; 4096] = [b'\n'; 4096];

/// The name under which the caller writes a new state of a file. No other caller gets it, also not
/// in another container with the same folder, where processes have the same numbers.
pub(crate) fn part_of(path: &Path) -> PathBuf {
    let number = RandomState::new().hash_one(());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{number:x}"))
}

/// Checks that a file can be made or written. Leaves nothing, and no other bytes in the file.
///
/// # Errors
/// It cannot.
pub(super) fn check_file(path: &Path) -> io::Result<()> {
    if path.file_name().is_none() || path.is_dir() {
        return Err(io::Error::other("it is a folder"));
    }
    match fs::metadata(path) {
        Ok(it) if !it.is_file() => return Err(io::Error::other("it is no regular file")),
        Ok(_) => drop(OpenOptions::new().write(true).open(path)?),
        Err(_) => {}
    }
    may_write(TRIAL.len() as u64)?;
    let part = part_of(path);
    let written = fs::write(&part, TRIAL);
    let removed = fs::remove_file(&part);
    written.and(removed)
}

#[cfg(test)]
mod tests {
    use ringfold_harness::Folder;

    use super::*;

    #[test]
    fn a_check_leaves_a_state_that_is_being_written() {
        let folder = Folder::new();
        let path = PathBuf::from(folder.at("metrics.prom"));
        let part = part_of(&path);
        fs::write(&part, "state").unwrap();
        check_file(&path).unwrap();
        fs::rename(&part, &path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "state");
    }
}
