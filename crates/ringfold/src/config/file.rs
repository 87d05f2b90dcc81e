//! Files that a process writes while it runs.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes that a file system with room takes.
const TRIAL: [u8; 4096] = [b'\n'; 4096];

/// The name under which this process writes a new state of a file.
pub(crate) fn part_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", std::process::id()))
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
    let part = part_of(path);
    let written = fs::write(&part, TRIAL);
    let removed = fs::remove_file(&part);
    written.and(removed)
}
